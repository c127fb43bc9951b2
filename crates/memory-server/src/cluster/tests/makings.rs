//! Copies that are made again.

use super::*;

/// A cluster of three hosts whose host 0 is lost. Volumes 0 and 3 had their primaries there, and volume 2 its
/// backup.
fn with_a_lost_host() -> ClusterState {
    let mut state = formed();
    state.lose(0, 0);
    state
}

/// The hosts report everything that they are asked for.
pub(super) fn report_all(state: &mut ClusterState, now: u64) {
    state.report_copied(now);
    state.report_settled(now);
}

fn phases(state: &ClusterState) -> Vec<Phase> {
    state.makings().iter().map(|making| making.phase).collect()
}

impl ClusterState {
    fn copies_of_makings(&self) -> Vec<u16> {
        self.makings().iter().map(|making| making.copy).collect()
    }

    fn report_copied(&mut self, now: u64) {
        for copy in self.copies_of_makings() {
            assert_eq!(self.apply(&Command::Copied { now, copy }), Ok(Response::Done));
        }
        if !self.is_closed_for_makings() {
            self.rest();
        }
    }

    /// Lets the time pass for which the table stays as it is before volumes close (J3).
    pub(super) fn rest(&mut self) {
        let now = self.now() + LEASE / 2;
        assert_eq!(self.apply(&Command::Tick { now }), Ok(Response::Done));
    }

    fn report_settled(&mut self, now: u64) {
        for copy in self.copies_of_makings() {
            let epoch = self.table().epoch();
            assert_eq!(self.apply(&Command::Settled { now, copy, epoch }), Ok(Response::Done));
        }
    }

    fn unchanged_by(&mut self, command: &Command) {
        let before = self.snapshot();
        assert_eq!(self.apply(command), Ok(Response::Done));
        assert_eq!(self.snapshot(), before, "{command:?}");
    }
}

#[test]
fn a_lost_copy_is_planned_on_the_emptiest_host_that_has_none_of_the_volume() {
    let mut state = with_a_lost_host();
    let sites = state.table().sites().len() as u16;
    assert_eq!(state.copies_of_makings(), [8, 9, 10]);
    assert_eq!(sites, 11);
    assert!(phases(&state).iter().all(|phase| *phase == Phase::Planned));
    for making in state.makings() {
        let primary = state.table().volume(making.volume).unwrap().primary.unwrap();
        assert_ne!(state.host_of(primary), state.host_of(making.copy));
        assert_eq!(state.table().of_copy(making.copy), None);
    }
    assert_eq!(state.table().epoch(), 2, "a plan changes no epoch");
    // A host that joins gets nothing, because every volume has a plan.
    state.register_host(4);
    assert_eq!(state.copies_of_makings(), [8, 9, 10]);
    // The plan of a lost host goes to others.
    let host = state.host_of(8).unwrap();
    state.lose(0, host);
    assert!(!state.copies_of_makings().contains(&8));
    assert!(state.makings().iter().all(|making| state.host_of(making.copy) == Some(3)));
}

#[test]
fn a_host_without_room_gets_no_copy() {
    let mut state = ClusterState::new(CLUSTER, ClusterSettings { hosts: 2, ..settings() }).unwrap();
    for boot in 1..=3 {
        // The third host has room for one copy.
        let bytes = if boot < 3 { 4 } else { 1 } * settings().volume_bytes;
        let offer = HostOffer { memory_bytes: bytes, ..offer(boot) };
        state.apply(&Command::Register { now: 0, offer }).unwrap();
    }
    state.lose(0, 1);
    assert_eq!(state.makings().len(), 1);
    state.register_host(4);
    assert_eq!(state.makings().len(), 4);
}

#[test]
fn a_cluster_with_one_copy_of_each_volume_plans_none() {
    let mut state = ClusterState::new(CLUSTER, ClusterSettings { replicas: 1, ..settings() }).unwrap();
    (1..=4).for_each(|boot| drop(state.register_host(boot)));
    state.lose(0, 0);
    assert_eq!(state.makings(), []);
}

#[test]
fn a_cluster_that_began_with_one_host_gets_second_copies_from_the_next_one() {
    let mut state = ClusterState::new(CLUSTER, ClusterSettings { hosts: 1, ..settings() }).unwrap();
    state.register_host(1);
    assert_eq!(state.makings(), []);
    state.register_host(2);
    assert_eq!(state.makings().len(), 4);
    state.report_copied(1);
    state.report_settled(2);
    assert!(state.is_open() && state.table().is_replicated() && state.makings().is_empty());
}

#[test]
fn volumes_close_when_all_copies_are_made_and_open_with_them_when_all_are_settled() {
    let mut state = with_a_lost_host();
    let copies = state.copies_of_makings();
    let member = state.admit(1);
    state.activate(1, &member);
    for (&copy, left) in copies.iter().zip((0..3).rev()) {
        assert!(!state.is_closed_for_makings());
        state.apply(&Command::Copied { now: 2, copy }).unwrap();
        assert_eq!(phases(&state).iter().filter(|phase| **phase == Phase::Planned).count(), left);
    }
    assert!(!state.is_closed_for_makings() && state.needs_tick());
    state.rest();
    // J3
    let open: Vec<bool> = state.table().volumes().iter().map(|entry| entry.open).collect();
    assert_eq!((state.table().epoch(), open), (3, vec![false, true, false, false]));
    assert!(state.needs_tick() && !state.quiet());
    assert_eq!(state.ask(3, &member, Request::Renew), ended(&member));
    // Nobody writes any more when the former identity is recovered. Until then nothing is settled.
    state.report_settled(4);
    assert!(phases(&state).iter().all(|phase| *phase == Phase::Copied));
    let heir = state.admit(4);
    let Admission { client, incarnation, .. } = member;
    let inherit = Ok(Response::Verdict(Verdict::Inherit));
    assert_eq!(state.ask(4, &heir, Request::Succeed { client, incarnation }), inherit);
    assert!(!state.quiet());
    assert_eq!(state.ask(5, &heir, Request::FreeId { client }), Ok(Response::Done));
    assert!(state.quiet() && !state.is_open());
    // J5
    state.report_settled(6);
    assert!(state.is_open() && state.makings().is_empty() && !state.needs_tick());
    assert_eq!(state.table().epoch(), 4);
    let backups: Vec<_> = state.table().volumes().iter().filter_map(|entry| entry.backup).collect();
    assert_eq!(backups, [8, 5, 9, 10]);
    assert_eq!(state.ask(7, &heir, Request::Renew), ended(&heir));
}

#[test]
fn a_pause_begins_only_when_nobody_of_an_older_epoch_is_left() {
    let mut state = formed();
    let member = state.admit(0);
    state.activate(0, &member);
    state.lose(1, 0);
    state.report_copied(2);
    assert!(!state.is_closed_for_makings() && state.needs_tick());
    let heir = state.admit(LEASE);
    state.recover(LEASE, &heir, &member);
    // The volumes have just opened.
    assert!(state.is_open() && !state.is_closed_for_makings() && state.needs_tick());
    state.rest();
    assert!(state.is_closed_for_makings());
    assert_eq!(state.table().epoch(), 3);
}

#[test]
fn a_pause_begins_only_when_nobody_needs_recovery() {
    let mut state = with_a_lost_host();
    let dead = state.admit(1);
    state.activate(1, &dead);
    state.apply(&Command::Tick { now: 1 + LEASE }).unwrap();
    state.report_copied(1 + LEASE);
    assert!(!state.is_closed_for_makings() && state.needs_tick());
    let heir = state.admit(1 + LEASE);
    state.recover(1 + LEASE, &heir, &dead);
    assert!(state.is_closed_for_makings());
}

#[test]
fn a_member_that_dies_in_the_pause_makes_hosts_compare_again() {
    let mut state = with_a_lost_host();
    state.report_copied(1);
    let now = state.now();
    let dead = state.admit(now);
    state.activate(now, &dead);
    let copy = state.copies_of_makings()[0];
    state.apply(&Command::Settled { now, copy, epoch: 3 }).unwrap();
    assert_eq!(phases(&state)[0], Phase::Settled);
    let heir = state.admit(now + LEASE);
    let client = dead.client;
    state.ask(now + LEASE, &heir, Request::Suspect { client }).unwrap();
    assert!(!state.quiet());
    assert_eq!(phases(&state)[0], Phase::Copied);
    state.ask(now + LEASE, &heir, Request::FreeId { client }).unwrap();
    assert!(state.quiet());
    state.report_settled(now + LEASE);
    assert!(state.is_open());
}

#[test]
fn late_and_repeated_reports_change_nothing() {
    let mut state = with_a_lost_host();
    let copy = state.copies_of_makings()[0];
    for copy in [0, 4, 7, 11, u16::MAX] {
        state.unchanged_by(&Command::Copied { now: 0, copy });
        state.unchanged_by(&Command::Settled { now: 0, copy, epoch: 2 });
    }
    state.unchanged_by(&Command::Settled { now: 0, copy, epoch: 2 });
    state.unchanged_by(&Command::AbortMaking { now: 0 });
    state.apply(&Command::Copied { now: 0, copy }).unwrap();
    state.unchanged_by(&Command::Copied { now: 0, copy });
    state.unchanged_by(&Command::Settled { now: 0, copy, epoch: 2 });
    state.report_copied(0);
    for epoch in [0, 2, 4, u64::MAX] {
        state.unchanged_by(&Command::Settled { now: 0, copy, epoch });
    }
    state.unchanged_by(&Command::Copied { now: 0, copy });
    state.report_settled(0);
    state.unchanged_by(&Command::Copied { now: 0, copy });
    state.unchanged_by(&Command::Settled { now: 0, copy, epoch: 3 });
    state.unchanged_by(&Command::Settled { now: 0, copy, epoch: 4 });
}

#[test]
fn a_leader_gives_up_a_pause_that_lasts_too_long_and_makings_begin_anew() {
    let mut state = with_a_lost_host();
    state.report_copied(10);
    let (copies, late) = (state.copies_of_makings(), state.now() + 5_000_000_000);
    state.apply(&Command::Tick { now: late }).unwrap();
    assert!(!state.is_making_overdue());
    state.apply(&Command::Tick { now: late + 1 }).unwrap();
    assert!(state.is_making_overdue());
    let member = state.admit(late + 1);
    state.apply(&Command::AbortMaking { now: late + 2 }).unwrap();
    assert!(state.is_open() && !state.is_making_overdue());
    assert_eq!((state.table().epoch(), state.copies_of_makings()), (3, copies.clone()));
    assert!(phases(&state).iter().all(|phase| *phase == Phase::Planned));
    assert!(state.ask(late + 3, &member, Request::Renew).is_ok(), "the epoch goes on");
    // What was settled for the former pause is not settled now.
    state.unchanged_by(&Command::Settled { now: late + 3, copy: copies[0], epoch: 3 });
    state.report_copied(late + 3);
    assert!(state.is_closed_for_makings());
    state.unchanged_by(&Command::Settled { now: late + 3, copy: copies[0], epoch: 3 });
}

#[test]
fn the_loss_of_a_host_in_a_pause_ends_its_makings_and_the_pause() {
    let mut state = formed();
    state.register_host(4);
    state.lose(0, 0);
    state.report_copied(1);
    assert!(state.is_closed_for_makings());
    let member = state.admit(2);
    state.activate(2, &member);
    // Host 3 has copies that are made, and no volume names it.
    state.lose(3, 3);
    assert!(!state.is_closed_for_makings() && !state.makings().is_empty());
    assert!(phases(&state).iter().all(|phase| *phase == Phase::Planned));
    assert!(state.makings().iter().all(|making| state.host_of(making.copy) != Some(3)));
    assert!(state.is_open() && state.table().epoch() == 3, "nobody of an older epoch is left (E6)");
    assert!(state.ask(4, &member, Request::Renew).is_ok());
}

#[test]
fn snapshots_keep_makings_in_every_phase() {
    let mut state = with_a_lost_host();
    let check = |state: &ClusterState| {
        let restored = ClusterState::restore(&state.snapshot()).expect("a state's own snapshot");
        assert_eq!(restored.makings(), state.makings());
        assert_eq!(restored.is_closed_for_makings(), state.is_closed_for_makings());
        assert_eq!(restored.snapshot(), state.snapshot());
    };
    check(&state);
    for copy in state.copies_of_makings() {
        state.apply(&Command::Copied { now: 1, copy }).unwrap();
        check(&state);
    }
    state.rest();
    check(&state);
    for copy in state.copies_of_makings() {
        state.apply(&Command::Settled { now: 2, copy, epoch: 3 }).unwrap();
        check(&state);
    }
    assert!(state.is_open());
}

#[test]
fn a_repeated_successor_inherits_again_until_somebody_asks_something_else() {
    let mut state = formed();
    let former = state.admit(0);
    state.activate(0, &former);
    state.lose(1, 1);
    let (heir, other) = (state.admit(2), state.admit(2));
    let Admission { client, incarnation, .. } = former;
    let succeed = || Request::Succeed { client, incarnation };
    let verdict = |verdict| Ok(Response::Verdict(verdict));
    assert_eq!(state.ask(3, &heir, succeed()), verdict(Verdict::Inherit));
    assert_eq!(state.ask(4, &heir, succeed()), verdict(Verdict::Inherit));
    let mut state = ClusterState::restore(&state.snapshot()).unwrap();
    assert_eq!(state.ask(4, &heir, succeed()), verdict(Verdict::Inherit));
    assert_eq!(state.ask(5, &other, succeed()), verdict(Verdict::Recovering { by: heir.client }));
    assert_eq!(state.ask(6, &heir, succeed()), verdict(Verdict::Recover), "somebody else asked");
    assert_eq!(state.ask(7, &heir, Request::FreeId { client }), Ok(Response::Done));
    assert_eq!(state.ask(8, &heir, succeed()), verdict(Verdict::Gone));
}
