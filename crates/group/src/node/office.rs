//! The duties of the leader.
//!
//! - It begins with [`Command::Lead`], before any other command.
//! - It says to the state that this host goes on, if an earlier process was it.
//! - It declares hosts lost that are silent, unless one of them may come back with the last copy of a volume.
//!   Each host says every few milliseconds that it is alive, and every message of the group counts too. A
//!   leader that does not hear a majority declares nobody lost.
//! - It lets the state's time pass while a volume is closed.
//! - It opens volumes again that were closed for too long so that copies can be made (J6).
//! - It keeps the members of the group: every host that is present follows, and some of them vote. It makes
//!   one change at a time.
//! - It hands over to another voter if its host shall leave.

use super::{HostId, Node, Notice};
#[cfg(feature = "mutants")]
use crate::mutant::{Mutant, planted};
use sherman_consensus::{Change, Members, NodeId, Refused, Ticket};
use sherman_fabric::group::CopyProgress;
use sherman_memory_server::cluster::{ClusterState, Command};
use std::collections::{BTreeMap, BTreeSet};

/// The pause between two looks at the members of the group, in nanoseconds, and as a part of the time for
/// which a host may be silent. The shorter one counts.
const MEMBERS_EVERY: (u64, u64) = (50_000_000, 4);
/// How long the leader waits for the result of a command or a change of its own before it forgets it, in
/// nanoseconds, and in times for which a host may be silent.
const PATIENCE: (u64, u64) = (5_000_000_000, 16);
/// Ticks in a lease.
const TICKS: u64 = 16;
/// The shortest time between two ticks, in nanoseconds, and as a part of the time for which a host may be
/// silent.
const SHORTEST_TICK: (u64, u64) = (2_000_000, 8);

/// The leader's notes.
#[derive(Debug)]
pub(super) struct Office {
    /// Whether this host has said to the state that it leads.
    pub(super) leads: bool,
    /// When each host gave a sign of life, by number. A host that is missing begins now.
    heard: BTreeMap<u16, u64>,
    /// The hosts that gave a sign since this leader listens.
    signs: BTreeSet<u16>,
    /// Hosts that are being declared lost.
    losing: BTreeMap<Ticket, u16>,
    /// The change of the members that is under way, and until when its result counts.
    change: Option<(Ticket, u64)>,
    tick: Option<(Ticket, u64)>,
    /// The end of a pause for makings, on its way.
    abort: Option<(Ticket, u64)>,
    /// That this host goes on after its process ended, on its way.
    back: Option<(Ticket, u64)>,
    /// The silent hosts that the log has named because they are waited for.
    awaited: BTreeSet<u16>,
    next_tick: u64,
    next_members: u64,
    next_transfer: u64,
    /// How far the copies are that each host makes.
    progress: BTreeMap<u16, Vec<CopyProgress>>,
}

impl Office {
    /// The notes of a new leader. It knows when it heard the leader before it: that host has been silent
    /// since then, and not only since the election that followed.
    pub(super) fn new(former: Option<(u16, u64)>) -> Self {
        Self {
            leads: false,
            heard: former.into_iter().collect(),
            signs: BTreeSet::new(),
            losing: BTreeMap::new(),
            change: None,
            tick: None,
            abort: None,
            back: None,
            awaited: BTreeSet::new(),
            next_tick: u64::MAX,
            next_members: 0,
            next_transfer: 0,
            progress: BTreeMap::new(),
        }
    }

    /// When the leader has something to do next, beside the ticks of the group.
    pub(super) fn next(&self) -> u64 {
        if self.leads { self.next_tick } else { u64::MAX }
    }

    /// Takes a sign of life. A host has one incarnation, so its number says enough.
    pub(super) fn heard(&mut self, host: u16, _incarnation: u32, now: u64) {
        if let Some(heard) = self.heard.get_mut(&host) {
            *heard = (*heard).max(now);
            self.signs.insert(host);
        }
    }

    /// Notes how far the copies are that a host makes.
    pub(super) fn progress(&mut self, host: u16, progress: Vec<CopyProgress>) {
        self.progress.insert(host, progress);
    }

    /// How far copies are, as other hosts have said.
    pub(super) fn known_progress(&self) -> impl Iterator<Item = CopyProgress> + '_ {
        self.progress.values().flatten().copied()
    }

    /// Forgets who was silent.
    pub(super) fn listen_anew(&mut self) {
        self.heard.clear();
        self.signs.clear();
    }

    /// Notes that a command of the leader has a result.
    pub(super) fn proposed(&mut self, ticket: Ticket) {
        self.losing.remove(&ticket);
        self.tick.take_if(|(waiting, _)| *waiting == ticket);
        self.abort.take_if(|(waiting, _)| *waiting == ticket);
        self.back.take_if(|(waiting, _)| *waiting == ticket);
    }

    /// Notes the result of a change of the members.
    pub(super) fn changed(&mut self, ticket: Ticket) {
        if self.change.take_if(|(waiting, _)| *waiting == ticket).is_some() {
            self.next_members = 0;
        }
    }

    /// The hosts that were not heard for so long, or not by this leader: they may be dead for longer.
    fn unheard(&self, time: u64, now: u64) -> Vec<u16> {
        let late = |host: &u16, heard: &u64| now.saturating_sub(*heard) > time || !self.signs.contains(host);
        let late = self.heard.iter().filter(|(host, heard)| late(host, heard));
        late.map(|(host, _)| *host).collect()
    }

    /// The hosts of these that were silent for longer than `detect`. Counts hosts from now on that are new.
    fn silent(&mut self, hosts: impl Iterator<Item = u16>, detect: u64, now: u64) -> Vec<u16> {
        let hosts: BTreeSet<u16> = hosts.collect();
        self.heard.retain(|host, _| hosts.contains(host));
        self.signs.retain(|host| hosts.contains(host));
        self.progress.retain(|host, _| hosts.contains(host));
        let losing: BTreeSet<u16> = self.losing.values().copied().collect();
        let mut silent = Vec::new();
        for host in hosts {
            let heard = *self.heard.entry(host).or_insert(now);
            if now.saturating_sub(heard) > detect && !losing.contains(&host) {
                silent.push(host);
            }
        }
        silent
    }

    /// Whether a majority of the voters gave a sign of life within the last `recent` nanoseconds. The leader
    /// itself counts, and hosts that were lost do not.
    fn hears_majority(
        &self,
        own: NodeId,
        voters: &[NodeId],
        state: &ClusterState,
        recent: u64,
        now: u64,
    ) -> bool {
        let host = |node: NodeId| state.hosts().iter().find(|host| host.info.up && host.info.node == node);
        let heard = |node: &&NodeId| {
            let at = host(**node).and_then(|host| self.heard.get(&host.info.number));
            **node == own || at.is_some_and(|at| now.saturating_sub(*at) <= recent)
        };
        2 * voters.iter().filter(heard).count() > voters.len()
    }
}

impl<R> Node<R> {
    /// Says to the state that this host leads. `now` was read after the node began to lead: the state counts
    /// time from there, and the former leader's commands are older (L3).
    pub(super) fn lead(&mut self, now: u64) {
        #[cfg(feature = "mutants")]
        if planted(Mutant::LeadUnsaid) {
            self.office.iter_mut().for_each(|office| office.leads = true);
            return;
        }
        let proposed = self.propose_at_once(&Command::Lead { now });
        if let (Ok(_), Some(office)) = (proposed, &mut self.office) {
            office.leads = true;
        }
    }

    /// Does what is due, if this host leads. The caller has passed in everything that has arrived: otherwise
    /// hosts might seem silent whose messages wait.
    pub fn duties(&mut self, now: u64) {
        match &self.office {
            None => return,
            Some(office) if !office.leads => return self.lead(now),
            Some(_) => {}
        }
        self.come_back(now);
        self.declare_lost(now);
        self.let_time_pass(now);
        self.abort_makings(now);
        self.keep_members(now);
        self.hand_over(now);
    }

    /// Lets another voter lead if this host shall leave.
    fn hand_over(&mut self, now: u64) {
        let (own, pause) = (self.options.own.host, self.patience() / 10);
        let Self { office: Some(office), group, members, .. } = self else { return };
        let Some(state) = group.state().state() else { return };
        let leaves = state.host(own).is_some_and(|host| host.info.leaving);
        if !leaves || now < office.next_transfer {
            return;
        }
        office.next_transfer = now.saturating_add(pause);
        let stays = state.hosts().iter().map(|host| &host.info).filter(|host| host.up && !host.leaving);
        let next = stays.map(|host| host.node).find(|node| members.voters.contains(node));
        if let Some(next) = next {
            self.notices.push(Notice::HandsOver);
            // If this fails, the leader tries again.
            let _ = self.group.transfer(next);
        }
    }

    fn patience(&self) -> u64 {
        PATIENCE.0.min(self.options.detect.saturating_mul(PATIENCE.1))
    }

    /// Says to the state that this host goes on, if it leads itself (I4).
    fn come_back(&mut self, now: u64) {
        let HostId { host, incarnation, .. } = self.options.own;
        let Some(offer) = &self.options.offer else { return };
        let Self { office: Some(office), group, .. } = &*self else { return };
        let known = group.state().state().and_then(|state| state.host(host));
        let is_known = known.is_some_and(|known| known.boot == offer.boot && known.info.up);
        if is_known || office.back.is_some_and(|(_, until)| now < until) {
            return;
        }
        let until = now.saturating_add(self.patience());
        let proposed = self.propose(&Command::HostReturned { now, host, incarnation, offer: offer.clone() });
        if let (Ok(ticket), Some(office)) = (proposed, &mut self.office) {
            office.back = Some((ticket, until));
        }
    }

    /// Declares hosts lost that are silent, if the leader has just heard a majority. Otherwise it is the
    /// leader that hears nobody, and what it proposes now could be committed later, when it leads again. So
    /// it begins to listen anew: of the others, some are heard again before the rest.
    fn declare_lost(&mut self, now: u64) {
        #[cfg(feature = "mutants")]
        if planted(Mutant::NobodyLost) {
            return;
        }
        let (own, detect) = (self.options.own.host, self.options.detect);
        let Self { office: Some(office), group, members, .. } = self else { return };
        let Some(state) = group.state().state() else { return };
        let others = state.hosts().iter().map(|host| &host.info).filter(|host| host.up && host.number != own);
        let silent = office.silent(others.map(|host| host.number), detect, now);
        let node = group.status().id;
        let hears = office.hears_majority(node, &members.voters, state, detect / 2, now);
        #[cfg(feature = "mutants")]
        let hears = hears || planted(Mutant::PauseCounts) || planted(Mutant::DeclaresUnheard);
        if !hears {
            return office.listen_anew();
        }
        // Hosts that died together are not noticed in the same moment.
        let doubtful = office.unheard(detect / 2, now);
        office.awaited.retain(|host| silent.contains(host));
        let mut lost = Vec::new();
        for host in silent {
            // P6: it may come back with the last copies of volumes.
            if state.awaits(host, &doubtful) {
                if office.awaited.insert(host) {
                    self.notices.push(Notice::Awaited { host });
                }
            } else if let Some(found) = state.host(host) {
                lost.push((host, found.info.incarnation));
            }
        }
        for (host, incarnation) in lost {
            self.notices.push(Notice::Silent { host });
            let proposed = self.propose(&Command::HostLost { now, host, incarnation });
            if let (Ok(ticket), Some(office)) = (proposed, &mut self.office) {
                office.losing.insert(ticket, host);
            }
        }
    }

    fn let_time_pass(&mut self, now: u64) {
        let needed = self.state().is_some_and(ClusterState::needs_tick);
        let shortest = SHORTEST_TICK.0.min(self.options.detect / SHORTEST_TICK.1);
        let every = (self.options.lease / TICKS).max(shortest).max(1);
        let until = now.saturating_add(self.patience());
        let Some(office) = &mut self.office else { return };
        if !needed {
            office.next_tick = u64::MAX;
            return;
        }
        if office.next_tick == u64::MAX {
            office.next_tick = now + every;
        }
        let waits = office.tick.is_some_and(|(_, until)| now < until);
        if now < office.next_tick {
            return;
        }
        office.next_tick = now + every;
        if waits {
            return;
        }
        let proposed = self.propose(&Command::Tick { now });
        if let (Ok(ticket), Some(office)) = (proposed, &mut self.office) {
            office.tick = Some((ticket, until));
        }
    }

    /// Opens the volumes again if they were closed for too long so that copies can be made (J6).
    fn abort_makings(&mut self, now: u64) {
        let is_overdue = self.state().is_some_and(ClusterState::is_making_overdue);
        let waits =
            self.office.as_ref().is_some_and(|office| office.abort.is_some_and(|(_, until)| now < until));
        if !is_overdue || waits {
            return;
        }
        self.notices.push(Notice::Overdue);
        self.give_up_pause(now);
    }

    /// Opens the volumes that are closed so that copies can be made, if this host leads.
    pub fn give_up_pause(&mut self, now: u64) {
        let until = now.saturating_add(self.patience());
        let proposed = self.propose(&Command::AbortMaking { now });
        if let (Ok(ticket), Some(office)) = (proposed, &mut self.office) {
            office.abort = Some((ticket, until));
        }
    }

    fn keep_members(&mut self, now: u64) {
        let Some(office) = &self.office else { return };
        if now < office.next_members || office.change.is_some_and(|(_, until)| now < until) {
            return;
        }
        let (mut begun, until) = (None, now.saturating_add(self.patience()));
        for change in self.wanted_changes() {
            if self.needs_vote(change, now) {
                continue;
            }
            match self.group.change(change) {
                Ok(ticket) => {
                    begun = Some((ticket, until));
                    break;
                }
                // There is no room for another learner, or a learner lacks much of the log. That may change.
                Err(Refused::BadChange { .. }) => {}
                Err(_) => break,
            }
        }
        let every = MEMBERS_EVERY.0.min(self.options.detect / MEMBERS_EVERY.1);
        if let Some(office) = &mut self.office {
            // The next one follows at once: between two promotions there is an even number of voters.
            office.next_members = if begun.is_some() { now } else { now + every };
            office.change = begun;
        }
    }

    /// Whether a host that has left must vote a while longer: the leader does not hear a majority of the
    /// others. One of them may have died, and without this host nobody could say so.
    fn needs_vote(&self, change: Change, now: u64) -> bool {
        let (Change::Remove(node), Some(office), Some(state)) = (change, &self.office, self.state()) else {
            return false;
        };
        let has_left = state.hosts().iter().any(|host| host.info.node == node && host.info.has_left());
        let others: Vec<NodeId> =
            self.members.voters.iter().copied().filter(|voter| *voter != node).collect();
        let votes = others.len() < self.members.voters.len();
        let own = self.group.status().id;
        has_left && votes && !office.hears_majority(own, &others, state, self.options.detect / 2, now)
    }

    fn wanted_changes(&self) -> Vec<Change> {
        let Some(state) = self.state() else { return Vec::new() };
        let members = &self.members;
        let up = state.hosts().iter().map(|host| &host.info).filter(|host| host.up);
        let present: Vec<NodeId> = up.map(|host| host.node).collect();
        let wanted = state.voters_wanted(&members.voters);
        let own = self.group.status().id;
        wanted_changes(own, members, &present, &wanted, |node| self.group.has_nearly_all(node))
    }
}

/// The changes that lead from these members to all present nodes, of which the wanted ones vote: first those
/// that matter most.
///
/// An even number of voters is no better than one less: with two of them, the loss of either ends the group.
/// So hosts get their votes only when so many learners are ready that the number becomes odd, and then
/// directly after each other. One too many stays without a vote.
fn wanted_changes(
    own: NodeId,
    members: &Members,
    present: &[NodeId],
    wanted: &[NodeId],
    is_ready: impl Fn(NodeId) -> bool,
) -> Vec<Change> {
    let Members { voters, learners } = members;
    let gone = voters.iter().chain(learners).filter(|node| !present.contains(node) && **node != own);
    let new = present.iter().filter(|node| !voters.contains(node) && !learners.contains(node));
    let without_vote = wanted.iter().filter(|node| !voters.contains(node));
    let mut promote: Vec<NodeId> =
        without_vote.filter(|node| learners.contains(node) && is_ready(**node)).copied().collect();
    // A host that shall leave is not wanted: another one votes before it goes.
    let staying = voters.iter().filter(|node| wanted.contains(node) || **node == own).count();
    if (staying + promote.len()).is_multiple_of(2) {
        promote.pop();
    }
    let mut changes: Vec<Change> = gone.map(|node| Change::Remove(*node)).collect();
    changes.extend(new.map(|node| Change::AddLearner(*node)));
    changes.extend(promote.into_iter().map(Change::Promote));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman_fabric::group::HostOffer;
    use sherman_layout::FormatOptions;
    use sherman_memory_server::ClusterSettings;

    /// Applies changes until there are no more.
    fn settle(members: &mut Members, present: &[NodeId], wanted: &[NodeId]) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Some(change) = wanted_changes(1, members, present, wanted, |_| true).first().copied() {
            let node = change.node();
            members.voters.retain(|voter| *voter != node);
            members.learners.retain(|learner| *learner != node);
            match change {
                Change::AddLearner(_) => members.learners.push(node),
                Change::Promote(_) => members.voters.push(node),
                Change::Remove(_) => {}
            }
            changes.push(change);
            assert!(changes.len() < 30, "{changes:?}");
        }
        changes
    }

    #[test]
    fn three_hosts_vote_and_a_lost_voter_is_replaced() {
        let mut members = Members { voters: vec![1], learners: Vec::new() };
        settle(&mut members, &[1, 2, 3, 4], &[1, 2, 3]);
        assert_eq!((&members.voters[..], &members.learners[..]), (&[1, 2, 3][..], &[4][..]));
        let changes = settle(&mut members, &[1, 3, 4], &[1, 3, 4]);
        assert_eq!(changes, [Change::Remove(2), Change::Promote(4)]);
    }

    #[test]
    fn hosts_get_votes_only_when_their_number_becomes_odd() {
        let members = Members { voters: vec![1], learners: vec![2, 3] };
        let all = [1, 2, 3];
        assert_eq!(wanted_changes(1, &members, &all, &all, |node| node == 2), []);
        assert_eq!(wanted_changes(1, &members, &all, &all, |_| true), [2, 3].map(Change::Promote));
        let members = Members { voters: vec![1, 2], learners: vec![3] };
        assert_eq!(wanted_changes(1, &members, &all, &all, |_| true), [Change::Promote(3)]);
        // One of the two voters is lost, and a learner takes its place.
        assert_eq!(
            wanted_changes(1, &members, &[1, 3], &[1, 3], |_| true),
            [Change::Remove(2)],
            "of two hosts one votes"
        );
    }

    #[test]
    fn another_host_votes_before_a_voter_leaves() {
        let mut members = Members { voters: vec![1, 2, 3], learners: Vec::new() };
        // Host 3 shall leave, and host 4 has joined.
        let changes = settle(&mut members, &[1, 2, 3, 4], &[1, 2, 4]);
        assert_eq!(changes, [Change::AddLearner(4), Change::Promote(4)]);
        assert_eq!(settle(&mut members, &[1, 2, 4], &[1, 2, 4]), [Change::Remove(3)]);
        assert_eq!(members.voters, [1, 2, 4]);
    }

    #[test]
    fn of_two_hosts_one_votes() {
        let mut members = Members { voters: vec![1], learners: Vec::new() };
        assert_eq!(settle(&mut members, &[1, 2], &[1, 2]), [Change::AddLearner(2)]);
        assert_eq!(settle(&mut members, &[1, 2, 3], &[1, 2, 3]).len(), 3);
        assert_eq!(members.voters, [1, 2, 3]);
        assert_eq!(settle(&mut members, &[1, 3], &[1, 3]), [Change::Remove(2)]);
        assert_eq!(members.voters, [1, 3]);
    }

    /// The state of a cluster with three hosts.
    fn three_hosts() -> ClusterState {
        let settings = ClusterSettings {
            replicas: 2,
            volumes: 1,
            hosts: 3,
            volume_bytes: 16 << 20,
            on_chip_bytes: 256 << 10,
            format: FormatOptions::default(),
        };
        let mut state = ClusterState::new(7, settings).unwrap();
        for boot in 1..=3 {
            let address = format!("unix:/{boot}");
            let offer = HostOffer { address, memory_bytes: 1 << 30, boot, cluster: 0, keeps: false };
            state.apply(&Command::Register { now: 0, offer }).unwrap();
        }
        state
    }

    #[test]
    fn a_leader_that_hears_no_majority_declares_nobody_lost() {
        let (mut state, mut office, voters) = (three_hosts(), Office::new(None), [1, 2, 3]);
        let hears =
            |office: &Office, state: &ClusterState, now| office.hears_majority(1, &voters, state, 50, now);
        assert!(!hears(&office, &state, 1_000), "it has heard nobody yet");
        assert!(office.silent([1, 2].into_iter(), 100, 1_000).is_empty());
        office.heard(1, 2, 1_050);
        assert!(hears(&office, &state, 1_100));
        assert!(!hears(&office, &state, 1_101), "the leader was cut off at 1050");
        office.heard(2, 3, 1_140);
        assert!(hears(&office, &state, 1_150));
        state.apply(&Command::HostLost { now: 0, host: 2, incarnation: 3 }).unwrap();
        assert!(!hears(&office, &state, 1_150), "a lost host does not count");
        office.heard(1, 2, 1_150);
        assert!(hears(&office, &state, 1_150));
    }

    #[test]
    fn a_host_is_silent_only_while_somebody_listens() {
        let mut office = Office::new(None);
        let silent = |office: &mut Office, now| office.silent([2, 3].into_iter(), 100, now);
        assert!(silent(&mut office, 1_000).is_empty());
        office.heard(2, 1, 1_050);
        office.heard(9, 1, 1_050);
        assert_eq!(silent(&mut office, 1_101), [3]);
        office.losing.insert(7, 3);
        assert!(silent(&mut office, 1_102).is_empty());
        office.proposed(7);
        assert_eq!(silent(&mut office, 1_151), [2, 3]);
        office.listen_anew();
        assert!(silent(&mut office, 5_000).is_empty());
    }

    #[test]
    fn a_host_that_this_leader_has_not_heard_may_be_dead_for_longer() {
        let mut office = Office::new(Some((2, 1_000)));
        assert!(office.silent([1, 2, 3].into_iter(), 100, 1_080).is_empty());
        office.heard(3, 1, 1_090);
        assert_eq!(office.silent([1, 2, 3].into_iter(), 100, 1_101), [2]);
        assert_eq!(office.unheard(50, 1_101), [1, 2], "host 1 gave no sign yet");
        office.heard(1, 1, 1_102);
        assert_eq!(office.unheard(50, 1_103), [2]);
    }

    #[test]
    fn a_former_leader_is_silent_since_it_was_heard_and_not_since_the_election() {
        let mut office = Office::new(Some((2, 1_000)));
        assert!(office.silent([2, 3].into_iter(), 100, 1_080).is_empty());
        assert_eq!(office.silent([2, 3].into_iter(), 100, 1_101), [2]);
        office.heard(2, 1, 1_090);
        assert!(office.silent([2, 3].into_iter(), 100, 1_101).is_empty(), "it answers the new leader");
    }
}
