//! Requests that wait for their result.

use super::Group;
use crate::error::Refused;
use crate::machine::StateMachine;
use crate::output::{Event, Ticket, Unanswered};
use std::collections::BTreeMap;

/// Proposals and changes that this node appended to its log, by index and term.
#[derive(Debug, Default)]
pub(super) struct Pending(pub(super) BTreeMap<(u64, u64), Request>);

/// A proposal or a change of the members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) ticket: Ticket,
    /// The tick at which the node gives up.
    pub(super) until: u64,
    pub(super) is_change: bool,
}

/// Reads that go together, each with the tick at which the node gives it up.
pub(super) type Round = Vec<(Ticket, u64)>;

/// Reads, in rounds: one is asked of a majority at a time, and the next one collects meanwhile.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Reads whose round has not begun.
    pub(super) next: Round,
    /// The round that is under way, by its context.
    pub(super) round: Option<(Vec<u8>, Round)>,
    /// Reads that a majority has confirmed, with the index that the state must have.
    pub(super) confirmed: Vec<(u64, Round)>,
    /// Numbers the rounds.
    pub(super) rounds: u64,
}

impl Reads {
    pub(super) fn len(&self) -> usize {
        let confirmed: usize = self.confirmed.iter().map(|(_, reads)| reads.len()).sum();
        self.next.len() + self.round.as_ref().map_or(0, |(_, reads)| reads.len()) + confirmed
    }
}

impl<S: StateMachine> Group<S> {
    /// Answers the request for the entry at this index and term, if this node has it, by `answer`. Requests
    /// for another term at this index did not happen.
    pub(super) fn resolve(&mut self, index: u64, term: u64) -> Option<Request> {
        let mut found = None;
        while let Some(entry) = self.pending.0.first_entry() {
            let (at, its_term) = *entry.key();
            if at > index {
                break;
            }
            let request = entry.remove();
            if at == index && same_entry(its_term, term) {
                found = Some(request);
            } else {
                // Below the index, only a snapshot can have passed it.
                let why = if at == index { Unanswered::Superseded } else { Unanswered::Unknown };
                self.unanswered(request, why);
            }
        }
        found
    }

    pub(super) fn unanswered(&mut self, Request { ticket, is_change, .. }: Request, why: Unanswered) {
        self.output.events.push(if is_change {
            Event::Changed { ticket, result: Err(why) }
        } else {
            Event::Proposed { ticket, result: Err(why) }
        });
    }

    /// Ends the requests that wait for too long.
    pub(super) fn give_up_late(&mut self) {
        let now = self.time.ticks;
        let late: Vec<_> =
            self.pending.0.iter().filter(|(_, request)| request.until <= now).map(|(key, _)| *key).collect();
        for key in late {
            if let Some(request) = self.pending.0.remove(&key) {
                self.unanswered(request, Unanswered::Unknown);
            }
        }
        let mut late = Vec::new();
        let mut keep = |reads: &mut Round| {
            late.extend(reads.extract_if(.., |(_, until)| *until <= now).map(|(ticket, _)| ticket));
        };
        keep(&mut self.reads.next);
        if let Some((_, reads)) = &mut self.reads.round {
            keep(reads);
        }
        self.reads.confirmed.iter_mut().for_each(|(_, reads)| keep(reads));
        self.fail_reads(late);
    }

    /// Ends all reads: this node does not lead any more.
    pub(super) fn give_up_reads(&mut self) {
        let reads = std::mem::take(&mut self.reads);
        self.reads.rounds = reads.rounds;
        let mut tickets = reads.next;
        tickets.extend(reads.round.into_iter().flat_map(|(_, reads)| reads));
        tickets.extend(reads.confirmed.into_iter().flat_map(|(_, reads)| reads));
        self.fail_reads(tickets.into_iter().map(|(ticket, _)| ticket).collect());
    }

    /// Ends all requests: the node stops.
    pub(super) fn give_up_all(&mut self) {
        for request in std::mem::take(&mut self.pending.0).into_values() {
            self.unanswered(request, Unanswered::Unknown);
        }
        self.give_up_reads();
    }

    fn fail_reads(&mut self, tickets: Vec<Ticket>) {
        let why = self.stopped.clone().map_or_else(|| self.not_leader(), Refused::Stopped);
        for ticket in tickets {
            self.output.events.push(Event::Read { ticket, result: Err(why.clone()) });
        }
    }
}

/// Whether the entry that was committed is the one that the request appended.
fn same_entry(appended: u64, committed: u64) -> bool {
    seam!(group::same_entry());
    appended == committed
}
