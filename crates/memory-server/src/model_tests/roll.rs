//! The model's view of membership: until when each member lives, and which member recovers which.

use super::CAPACITY;
use fastrand::Rng;
use sherman_fabric::control::{MemberInfo, Renewal, Standing, Verdict};
use sherman_fabric::{ComputeId, Refusal, Request, Response};
use std::collections::{BTreeMap, BTreeSet};

/// The length of a lease, in steps of a run.
pub(super) const LEASE: u64 = 250;

/// A member that is dead or leaving.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ending {
    standing: Standing,
    recoverer: Option<u16>,
}

/// The members of a cluster.
#[derive(Default)]
pub(super) struct Roll {
    /// Until when each live member counts as alive.
    live: BTreeMap<u16, u64>,
    ending: BTreeMap<u16, Ending>,
    /// When each id was issued, and how often.
    issued: BTreeMap<u16, (u64, u32)>,
    /// Ids that were retired and not issued since.
    retired: BTreeSet<u16>,
    /// The last member that ran out of memory, and when.
    short: Option<(u16, u64)>,
    /// Ids and incarnations of members whose recovery has begun.
    begun: BTreeSet<(u16, u32)>,
    /// Live and ending members that said that they may own memory.
    active: BTreeSet<u16>,
    /// How often each kind of event happened.
    pub(super) seen: BTreeMap<&'static str, u32>,
}

impl Roll {
    pub(super) fn is_live(&self, id: u16) -> bool {
        self.live.contains_key(&id)
    }

    pub(super) fn is_ending(&self, id: u16) -> bool {
        self.ending.contains_key(&id)
    }

    pub(super) fn is_active(&self, id: u16) -> bool {
        self.active.contains(&id)
    }

    /// Whether no client may join once the members in `to_reap` are gone: the last id is reserved for a
    /// member that recovers others.
    pub(super) fn is_full(&self, to_reap: &[u16], now: u64) -> bool {
        let free = usize::from(CAPACITY) - self.live.len() - self.ending.len() + to_reap.len();
        let waiting = !self.ending.is_empty() || self.run_out(now).any(|id| !to_reap.contains(&id));
        free == 0 || (free == 1 && !waiting)
    }

    /// The live members whose lease has run out.
    pub(super) fn run_out(&self, now: u64) -> impl Iterator<Item = u16> {
        self.live.iter().filter(move |(_, until)| **until <= now).map(|(&id, _)| id)
    }

    pub(super) fn incarnation(&self, id: u16) -> u32 {
        self.issued.get(&id).map_or(0, |issued| issued.1)
    }

    pub(super) fn recovers_any(&self, id: u16) -> bool {
        self.ending.values().any(|ending| ending.recoverer == Some(id))
    }

    pub(super) fn reap(&mut self, id: u16) {
        assert!(!self.recovers_any(id), "{id} still recovers a member");
        assert!(self.live.remove(&id).is_some());
        self.active.remove(&id);
        self.saw("reaped");
    }

    pub(super) fn condemn(&mut self, id: u16) {
        if self.is_live(id) {
            self.end(id, Standing::Dead, None);
        }
    }

    pub(super) fn renew(&mut self, id: u16, now: u64) {
        self.live.insert(id, now + LEASE);
    }

    /// A renewal names all members without a live recoverer, and says whether another member lacks memory.
    pub(super) fn learn_renewed(&mut self, from: u16, expired: &[ComputeId], short: bool, now: u64) {
        let unattended = self.unattended(from, now);
        self.saw(if expired.is_empty() { "nobody to recover" } else { "unattended" });
        assert!(expired.iter().map(|client| client.0).eq(unattended));
        assert_eq!(short, self.short.is_some_and(|(client, at)| client != from && now - at < LEASE));
        if short {
            self.saw("short");
        }
    }

    fn is_alive(&self, id: u16, now: u64) -> bool {
        self.live.get(&id).is_some_and(|&until| until > now)
    }

    /// Half of the time a member that died or departed, if there is one; otherwise any id.
    pub(super) fn pick_victim(&self, rng: &mut Rng) -> ComputeId {
        let ending = rng.choice(self.ending.keys()).filter(|_| rng.bool());
        ComputeId(ending.copied().unwrap_or_else(|| rng.u16(0..=CAPACITY + 1)))
    }

    /// The next sender: now and then a member that recovers another.
    pub(super) fn pick_sender(&self, rng: &mut Rng) -> ComputeId {
        let recoverers: Vec<u16> = self.ending.values().filter_map(|ending| ending.recoverer).collect();
        let recoverer = rng.choice(recoverers).filter(|_| rng.u32(0..3) == 0);
        let live = rng.choice(self.live.keys()).copied().filter(|_| rng.bool());
        ComputeId(recoverer.or(live).unwrap_or_else(|| rng.u16(0..=CAPACITY + 1)))
    }

    pub(super) fn refusal_for(&self, from: ComputeId, request: &Request) -> Option<Refusal> {
        let bad = |what| Some(Refusal::BadRequest { what });
        match request {
            Request::Condemn { client } => {
                let known = self.is_live(client.0) || self.is_ending(client.0);
                (!known).then_some(Refusal::NotAMember { client: *client })
            }
            Request::Relieve { client } | Request::FreeId { client } => match self.ending.get(&client.0) {
                None => bad("the client to retire is neither dead nor leaving"),
                Some(ending) if ending.recoverer != Some(from.0) => {
                    bad("the sender is not the recoverer of the client to retire")
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

    /// Removes `id` as a recoverer: the members that it was recovering have no recoverer.
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
        self.active.remove(&id);
    }

    fn end(&mut self, id: u16, standing: Standing, recoverer: Option<u16>) {
        assert!(self.live.remove(&id).is_some());
        self.ending.insert(id, Ending { standing, recoverer });
    }

    /// Predicts the answer to a suspicion, and applies its effects.
    fn suspect(&mut self, from: u16, id: u16, now: u64) -> Verdict {
        if let Some(&until) = self.live.get(&id) {
            if until > now {
                return Verdict::Alive { lease_left: until - now };
            }
            self.begun.insert((id, self.issued[&id].1));
            self.end(id, Standing::Dead, Some(from));
            return Verdict::Recover;
        }
        self.appoint(from, id, now)
    }

    /// Predicts the verdict about a member whose lease has ended, and applies its effects.
    fn appoint(&mut self, from: u16, id: u16, now: u64) -> Verdict {
        let Some(ending) = self.ending.get_mut(&id) else { return Verdict::Gone };
        match ending.recoverer {
            Some(by) if by != from => {
                if self.is_alive(by, now) {
                    return Verdict::Recovering { by: ComputeId(by) };
                }
                if self.is_live(by) {
                    self.end(by, Standing::Dead, None);
                }
                Verdict::Displaced { by: ComputeId(by) }
            }
            _ => {
                ending.recoverer = Some(from);
                self.begun.insert((id, self.issued[&id].1));
                Verdict::Recover
            }
        }
    }

    /// The members that a renewal may name.
    fn unattended(&self, from: u16, now: u64) -> BTreeSet<u16> {
        let expired = self.run_out(now);
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
                client: ComputeId(id),
                standing: ending.map_or(Standing::Live, |ending| ending.standing),
                incarnation,
                age: now - joined,
                lease_left: self.live.get(&id).map_or(0, |until| until.saturating_sub(now)),
                recoverer: ComputeId(ending.and_then(|ending| ending.recoverer).unwrap_or(0)),
            }
        };
        (1..=CAPACITY).filter(|&id| self.is_live(id) || self.is_ending(id)).map(info).collect()
    }

    /// Checks an answer and learns from it.
    pub(super) fn learn(&mut self, from: ComputeId, request: &Request, answer: Response, now: u64) {
        match (request, answer) {
            (Request::Short, Response::Renewed(Renewal { expired, .. })) => {
                self.short = Some((from.0, now));
                let expired: BTreeSet<u16> = expired.iter().map(|client| client.0).collect();
                assert_eq!(expired, self.unattended(from.0, now));
            }
            (Request::Succeed { client, incarnation }, Response::Verdict(verdict)) => {
                let expected = if self.incarnation(client.0) != *incarnation {
                    Verdict::Gone
                } else {
                    if self.is_live(client.0) {
                        self.saw("succeeded");
                    }
                    self.condemn(client.0);
                    let begun = self.begun.contains(&(client.0, *incarnation));
                    match self.appoint(from.0, client.0, now) {
                        Verdict::Recover if !begun => Verdict::Inherit,
                        verdict => verdict,
                    }
                };
                assert_eq!(verdict, expected);
            }
            (Request::Suspect { client }, Response::Verdict(verdict)) => {
                let again = self.ending.get(&client.0).is_some_and(|ending| ending.recoverer == Some(from.0));
                self.saw(match verdict {
                    Verdict::Alive { .. } => "alive",
                    Verdict::Inherit => "inherit",
                    Verdict::Recover if again => "recover again",
                    Verdict::Recover => "recover",
                    Verdict::Recovering { .. } => "recovering",
                    Verdict::Displaced { .. } => "displaced",
                    Verdict::Gone => "gone",
                });
                assert_eq!(verdict, self.suspect(from.0, client.0, now));
            }
            (Request::Activate, Response::Active { incarnation }) => {
                assert_eq!(incarnation, self.incarnation(from.0));
                self.active.insert(from.0);
            }
            (Request::Relieve { client }, Response::Done) => self.give_up(client.0),
            (Request::Depart, Response::Done) => {
                self.give_up(from.0);
                self.end(from.0, Standing::Leaving, None);
            }
            (Request::Members, Response::Members(members)) => assert_eq!(members, self.infos(now)),
            (request, answer) => panic!("{request:?} was answered by {answer:?}"),
        }
    }
}
