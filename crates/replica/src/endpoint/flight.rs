//! Lists and calls in flight.

use super::route::{Volumes, ends_identity};
use sherman_fabric::{Endpoint, FabricError, Peer, Progress, Role, Roles, Ticket, WorkList};
use std::task::{Context, Poll, Waker};

/// What a ticket names.
#[derive(Debug)]
pub(super) enum Flight {
    /// The first half of a list with data verbs.
    Halves(Box<Halves>),
    /// A list, or its second half, at one copy. `before` has the copies that completed a first half.
    Last { volume: u16, role: Role, before: Option<Roles>, ticket: Ticket },
    /// A list that ended with its first half: a CAS was refused there.
    Ended(WorkList),
    /// The same. Its WRITEs before that CAS are in flight to the primary.
    Ending(WorkList, Ticket),
    /// A list or call that failed.
    Failed(FabricError),
    /// A control request.
    Call { peer: Peer, ticket: Ticket },
}

impl Flight {
    /// Gives up its tickets at the backend.
    pub(super) fn forget<E: Endpoint>(self, inner: &E) {
        match self {
            Self::Last { ticket, .. } | Self::Call { ticket, .. } => inner.forget(ticket),
            Self::Ended(list) => inner.recycle(list),
            Self::Ending(list, ticket) => {
                inner.recycle(list);
                inner.forget(ticket);
            }
            Self::Halves(_) | Self::Failed(_) => {}
        }
    }
}

/// A list whose first half is in flight.
#[derive(Debug)]
pub(super) struct Halves {
    volume: u16,
    /// The whole list, for the primary.
    list: Option<WorkList>,
    /// The parts of the first half that have not completed.
    parts: [Option<(Role, Ticket)>; 2],
    done: Roles,
    failed: Roles,
    /// The first refusal of bad input.
    refusal: Option<FabricError>,
    /// Whether a CAS found another word.
    stale: bool,
    /// The task that waits.
    pub(super) waker: Option<Waker>,
    /// Whether nobody will ask for the outcome.
    pub(super) forgotten: bool,
    /// The primary's part, if a planted bug posted it too early.
    #[cfg(feature = "mutants")]
    early: Option<Ticket>,
    /// Whether a planted bug posted the primary's part first.
    #[cfg(feature = "mutants")]
    primary_first: bool,
}

impl Halves {
    /// Posts the first half of `list`.
    pub(super) fn begin<E: Endpoint>(inner: &E, volumes: &Volumes, list: WorkList) -> Self {
        let volume = list.server();
        let entry = volumes.entry(volume);
        let part = |role: Role| {
            let copy = entry.copy(role)?;
            let mut part = inner.list(copy);
            volumes.push_data(&list, &mut part);
            Some((role, inner.post(part)))
        };
        #[cfg(feature = "mutants")]
        if let Some(halves) = Self::begin_wrongly(inner, volumes, &list, volume) {
            return halves;
        }
        let parts = [part(Role::Backup), part(Role::Joining)];
        Self::waiting(volume, Some(list), parts)
    }

    fn waiting(volume: u16, list: Option<WorkList>, parts: [Option<(Role, Ticket)>; 2]) -> Self {
        Self {
            volume,
            list,
            parts,
            done: Roles::NONE,
            failed: Roles::NONE,
            refusal: None,
            stale: false,
            waker: None,
            forgotten: false,
            #[cfg(feature = "mutants")]
            early: None,
            #[cfg(feature = "mutants")]
            primary_first: false,
        }
    }

    /// Keeps the waker of the polling task.
    pub(super) fn watch(&mut self, waker: &Waker) {
        if self.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
    }

    /// Waits for all parts of the first half, and then posts the second. Returns what the ticket names next.
    pub(super) fn poll<E: Endpoint>(
        &mut self,
        inner: &E,
        volumes: &Volumes,
        cx: &mut Context<'_>,
    ) -> Poll<Flight> {
        for slot in &mut self.parts {
            let Some((role, ticket)) = *slot else { continue };
            let Poll::Ready(outcome) = inner.poll(ticket, cx) else { continue };
            *slot = None;
            match outcome {
                Ok(part) => {
                    self.done = self.done.with(role);
                    if let Some(list) = &mut self.list {
                        self.stale |= volumes.take_words(&part, list);
                    }
                    inner.recycle(part);
                }
                Err(error) if ends_identity(&error) => self.failed = self.failed.with(role),
                Err(error) => {
                    self.failed = self.failed.with(role);
                    self.refusal.get_or_insert(error);
                }
            }
        }
        if self.parts.iter().any(Option::is_some) {
            return Poll::Pending;
        }
        let list = self.list.take();
        #[cfg(feature = "mutants")]
        if let Some(next) = self.end_wrongly(inner, volumes, list.as_ref()) {
            return Poll::Ready(next);
        }
        Poll::Ready(match list {
            Some(list) if self.may_go_on() => self.post_second(inner, volumes, list),
            Some(list) if self.failed.is_empty() => self.end(inner, volumes, list),
            list => {
                list.into_iter().for_each(|list| inner.recycle(list));
                let Self { volume: server, done, failed, .. } = *self;
                Flight::Failed(match self.refusal.take() {
                    Some(refusal) => volumes.named(refusal, server),
                    None => FabricError::CopyFailed { server, progress: Progress { done, failed } },
                })
            }
        })
    }

    /// Whether the first half is complete (W1), so that the second may be posted.
    fn may_go_on(&self) -> bool {
        #[cfg(feature = "mutants")]
        if crate::mutant::planted(crate::mutant::Mutant::AloneOnError) {
            return !self.stale;
        }
        self.failed.is_empty() && !self.stale
    }

    /// Ends a list of which the backup refused a CAS. The primary gets the WRITEs before that CAS, as if it
    /// had refused it too: one of them is the record of the change, and records are in all copies (W2).
    fn end<E: Endpoint>(&self, inner: &E, volumes: &Volumes, list: WorkList) -> Flight {
        #[cfg(feature = "mutants")]
        if crate::mutant::planted(crate::mutant::Mutant::RefusedOnBackupOnly) {
            return Flight::Ended(list);
        }
        let Ok(copy) = volumes.copy(self.volume, Role::Primary) else { return Flight::Ended(list) };
        let mut before = inner.list(copy);
        volumes.push_writes_before_cas(&list, &mut before);
        if before.is_empty() {
            inner.recycle(before);
            return Flight::Ended(list);
        }
        Flight::Ending(list, inner.post(before))
    }

    fn post_second<E: Endpoint>(&self, inner: &E, volumes: &Volumes, mut list: WorkList) -> Flight {
        let volume = self.volume;
        match volumes.copy(volume, Role::Primary) {
            Ok(copy) => {
                list.route(copy);
                let before = Some(self.done);
                Flight::Last { volume, role: Role::Primary, before, ticket: inner.post(list) }
            }
            Err(error) => Flight::Failed(error),
        }
    }

    /// Posts the primary's part before the backup's, or together with it. A root word needs the answer of the
    /// backup: lists with a CAS stay as they are.
    #[cfg(feature = "mutants")]
    fn begin_wrongly<E: Endpoint>(
        inner: &E,
        volumes: &Volumes,
        list: &WorkList,
        volume: u16,
    ) -> Option<Self> {
        use crate::mutant::{Mutant, planted};
        use sherman_fabric::Verb;
        let first = planted(Mutant::PrimaryFirst);
        let plain = list.verbs().iter().all(|verb| matches!(verb, Verb::Write { .. }));
        if !(first || planted(Mutant::ReleaseBeforeBackup)) || !plain {
            return None;
        }
        let entry = volumes.entry(volume);
        let (primary, backup) = (entry.primary?, entry.backup?);
        let (mut whole, mut part) = (inner.list(primary), inner.list(backup));
        for (index, verb) in list.verbs().iter().enumerate() {
            if let Verb::Write { space, offset, .. } = *verb {
                whole.write(space, offset, list.data(index));
            }
        }
        volumes.push_data(list, &mut part);
        let whole = inner.post(whole);
        if first {
            let mut halves = Self::waiting(volume, Some(part), [Some((Role::Primary, whole)), None]);
            halves.primary_first = true;
            return Some(halves);
        }
        let mut halves = Self::waiting(volume, None, [Some((Role::Backup, inner.post(part))), None]);
        halves.early = Some(whole);
        Some(halves)
    }

    /// Goes on after what `begin_wrongly` posted.
    #[cfg(feature = "mutants")]
    fn end_wrongly<E: Endpoint>(
        &self,
        inner: &E,
        volumes: &Volumes,
        part: Option<&WorkList>,
    ) -> Option<Flight> {
        let (volume, before) = (self.volume, Some(self.done));
        if let Some(ticket) = self.early {
            return Some(Flight::Last { volume, role: Role::Primary, before, ticket });
        }
        if !self.primary_first || !self.failed.is_empty() {
            return None;
        }
        let mut again = inner.list(volumes.entry(volume).backup?);
        volumes.push_data(part?, &mut again);
        Some(Flight::Last { volume, role: Role::Backup, before, ticket: inner.post(again) })
    }
}
