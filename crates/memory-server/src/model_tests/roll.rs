//! The model's view of membership on server 0: who lives until when, and who recovers whom.

use super::CAPACITY;
use fastrand::Rng;
use sherman_fabric::control::{MemberInfo, Standing, Verdict};
use sherman_fabric::{ClientId, Refusal, Request, Response};
use std::collections::{BTreeMap, BTreeSet};

/// Leases run out after so many steps of a run.
pub(super) const LEASE: u64 = 60;

/// One that is dead or leaving.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ending {
    standing: Standing,
    recoverer: Option<u16>,
}

/// The members of a cluster.
#[derive(Default)]
pub(super) struct Roll {
    /// Until when each live member is believed to be alive.
    live: BTreeMap<u16, u64>,
    ending: BTreeMap<u16, Ending>,
    /// When each id was issued, and how often.
    issued: BTreeMap<u16, (u64, u32)>,
    /// Ids that were retired and not issued since.
    retired: BTreeSet<u16>,
    /// How often what has happened.
    pub(super) seen: BTreeMap<&'static str, u32>,
}

impl Roll {
    pub(super) fn is_live(&self, id: u16) -> bool {
        self.live.contains_key(&id)
    }

    pub(super) fn is_ending(&self, id: u16) -> bool {
        self.ending.contains_key(&id)
    }

    pub(super) fn live(&self) -> impl Iterator<Item = u16> {
        self.live.keys().copied()
    }

    pub(super) fn is_full(&self) -> bool {
        self.live.len() + self.ending.len() == usize::from(CAPACITY)
    }

    fn is_alive(&self, id: u16, now: u64) -> bool {
        self.live.get(&id).is_some_and(|&until| until > now)
    }

    /// One that died or left, if there is any: half of the time, else anyone.
    pub(super) fn pick_victim(&self, rng: &mut Rng) -> ClientId {
        let ending = rng.choice(self.ending.keys()).filter(|_| rng.bool());
        ClientId(ending.copied().unwrap_or_else(|| rng.u16(0..=CAPACITY + 1)))
    }

    /// Who asks next: now and then one who recovers somebody.
    pub(super) fn pick_sender(&self, rng: &mut Rng) -> ClientId {
        let recoverers: Vec<u16> = self.ending.values().filter_map(|ending| ending.recoverer).collect();
        let recoverer = rng.choice(recoverers).filter(|_| rng.u32(0..3) == 0);
        ClientId(recoverer.unwrap_or_else(|| rng.u16(0..=CAPACITY + 1)))
    }

    pub(super) fn refusal_for(&self, from: ClientId, request: &Request) -> Option<Refusal> {
        let bad = |what| Some(Refusal::BadRequest { what });
        match request {
            Request::Suspect { client } if *client == from => bad("a member suspects itself"),
            Request::Condemn { client } | Request::Fence { client } => {
                let known = self.is_live(client.0) || self.is_ending(client.0);
                (!known).then_some(Refusal::NotAMember { client: *client })
            }
            Request::Retire { client } => match self.ending.get(&client.0) {
                None => bad("who is to be retired is neither dead nor leaving"),
                Some(ending) if ending.recoverer != Some(from.0) => {
                    bad("the sender does not recover who is to be retired")
                }
                Some(_) => None,
            },
            _ => None,
        }
    }

    pub(super) fn join(&mut self, id: u16, now: u64) {
        assert!((1..=CAPACITY).contains(&id));
        assert!(!self.is_ending(id), "{id} was issued before it was retired");
        assert_eq!(self.live.insert(id, now + LEASE), None, "{id} was issued twice");
        if self.retired.remove(&id) {
            self.saw("reissued");
        }
        let issued = self.issued.entry(id).or_default();
        *issued = (now, issued.1 + 1);
    }

    /// `id` goes for good: those whom it was recovering are nobody's.
    fn give_up(&mut self, id: u16) {
        for ending in self.ending.values_mut().filter(|ending| ending.recoverer == Some(id)) {
            ending.recoverer = None;
        }
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(super) fn retire(&mut self, id: u16) {
        self.saw("retired");
        self.retired.insert(id);
        self.leave(id);
    }

    pub(super) fn leave(&mut self, id: u16) {
        self.give_up(id);
        self.live.remove(&id);
        self.ending.remove(&id);
    }

    fn end(&mut self, id: u16, standing: Standing, recoverer: Option<u16>) {
        assert!(self.live.remove(&id).is_some());
        self.ending.insert(id, Ending { standing, recoverer });
    }

    /// What a suspicion must be answered with, and what follows from it.
    fn suspect(&mut self, from: u16, id: u16, now: u64) -> Verdict {
        if let Some(&until) = self.live.get(&id) {
            if until > now {
                return Verdict::Alive { lease_left: until - now };
            }
            self.end(id, Standing::Dead, Some(from));
            return Verdict::Recover;
        }
        let Some(ending) = self.ending.get_mut(&id) else { return Verdict::Gone };
        match ending.recoverer {
            Some(by) if by != from => {
                if self.is_alive(by, now) {
                    return Verdict::Recovering { by: ClientId(by) };
                }
                if self.is_live(by) {
                    self.end(by, Standing::Dead, None);
                }
                Verdict::Displaced { by: ClientId(by) }
            }
            _ => {
                ending.recoverer = Some(from);
                Verdict::Recover
            }
        }
    }

    /// Whom a renewal may name.
    fn unattended(&self, from: u16, now: u64) -> Vec<u16> {
        let expired = self.live.iter().filter(|(_, until)| **until <= now).map(|(&id, _)| id);
        let ending = self.ending.iter().filter(|(_, ending)| match ending.recoverer {
            Some(by) => by == from || !self.is_alive(by, now),
            None => true,
        });
        expired.chain(ending.map(|(&id, _)| id)).filter(|&id| id != from).collect()
    }

    fn infos(&self, now: u64) -> Vec<MemberInfo> {
        let info = |id: u16| {
            let (joined, incarnation) = self.issued[&id];
            let ending = self.ending.get(&id);
            MemberInfo {
                client: ClientId(id),
                standing: ending.map_or(Standing::Live, |ending| ending.standing),
                incarnation,
                age: now - joined,
                lease_left: self.live.get(&id).map_or(0, |until| until.saturating_sub(now)),
                recoverer: ClientId(ending.and_then(|ending| ending.recoverer).unwrap_or(0)),
            }
        };
        (1..=CAPACITY).filter(|&id| self.is_live(id) || self.is_ending(id)).map(info).collect()
    }

    /// Checks an answer and learns from it.
    pub(super) fn learn(&mut self, from: ClientId, request: &Request, answer: Response, now: u64) {
        match (request, answer) {
            (Request::Renew, Response::Renewed { expired }) => {
                self.live.insert(from.0, now + LEASE);
                let unattended = self.unattended(from.0, now);
                self.saw(if expired.is_some() { "unattended" } else { "nobody to recover" });
                match expired {
                    Some(client) => assert!(unattended.contains(&client.0), "{client} needs nobody"),
                    None => assert_eq!(unattended, [], "nobody is told of them"),
                }
            }
            (Request::Suspect { client }, Response::Verdict(verdict)) => {
                let again = self.ending.get(&client.0).is_some_and(|ending| ending.recoverer == Some(from.0));
                self.saw(match verdict {
                    Verdict::Alive { .. } => "alive",
                    Verdict::Recover if again => "recover again",
                    Verdict::Recover => "recover",
                    Verdict::Recovering { .. } => "recovering",
                    Verdict::Displaced { .. } => "displaced",
                    Verdict::Gone => "gone",
                });
                assert_eq!(verdict, self.suspect(from.0, client.0, now));
            }
            (Request::Condemn { client }, Response::Done) => {
                if self.is_live(client.0) {
                    self.end(client.0, Standing::Dead, None);
                }
            }
            (Request::Depart, Response::Done) => {
                self.give_up(from.0);
                self.end(from.0, Standing::Leaving, None);
            }
            (Request::Members, Response::Members(members)) => assert_eq!(members, self.infos(now)),
            (request, answer) => panic!("{request:?} was answered by {answer:?}"),
        }
    }
}
