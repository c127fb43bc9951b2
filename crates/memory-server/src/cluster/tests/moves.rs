//! Planned moves: hosts that leave, and copies that are spread evenly.

use super::makings::report_all;
use super::*;
use crate::cluster::moves::Placement;
use sherman_fabric::control::Spreading;

/// A pause that is only for moves begins at most that often.
const REST: u64 = 2 * LEASE;

impl ClusterState {
    fn operate_now(&mut self, request: Request) -> Result<Response, FabricError> {
        let now = self.now();
        self.apply(&Command::Operate { now, request })
    }

    fn drain_host(&mut self, host: u16) -> Result<Response, FabricError> {
        self.operate_now(Request::Drain { host, cancel: false })
    }

    fn cancel_drain(&mut self, host: u16) -> Result<Response, FabricError> {
        self.operate_now(Request::Drain { host, cancel: true })
    }

    fn spread(&mut self, when: Spreading) {
        assert_eq!(self.operate_now(Request::Rebalance { when }), Ok(Response::Done));
    }

    /// Hosts do all that is planned, wave by wave. Returns the number of waves.
    fn finish(&mut self) -> usize {
        for wave in 0..200 {
            if self.makings().is_empty() && self.makings.swaps.is_empty() {
                return wave;
            }
            let now = self.now() + REST;
            self.apply(&Command::Tick { now }).unwrap();
            report_all(self, now);
            assert!(self.is_open() && self.makings_are_legal());
        }
        panic!("it never ends: {:?}", self.makings)
    }

    /// Copies and primaries of each present host.
    fn counts(&self) -> Vec<(usize, usize)> {
        let present: Vec<u16> = self.hosts.present().map(|host| host.number).collect();
        let count = |host| {
            let copies = self.copies_on(host);
            (copies.len(), copies.iter().filter(|(.., role)| *role == Role::Primary).count())
        };
        present.into_iter().map(count).collect()
    }
}

/// A cluster of hosts with room for `room` copies each. All but the first `formed` join later.
fn cluster(volumes: u16, replicas: u8, formed: u16, room: &[u64]) -> ClusterState {
    let settings = ClusterSettings { volumes, replicas, hosts: formed, ..settings() };
    let mut state = ClusterState::new(CLUSTER, settings).unwrap();
    for (boot, room) in (1..).zip(room) {
        let offer = HostOffer { memory_bytes: room * settings.volume_bytes, ..offer(boot) };
        state.apply(&Command::Register { now: 0, offer }).unwrap();
    }
    state
}

#[test]
fn a_drained_host_leaves_when_its_copies_are_elsewhere() {
    let mut state = cluster(6, 2, 3, &[12, 12, 12]);
    let member = state.admit(0);
    state.drain_host(1).unwrap();
    let planned: Vec<_> = state.makings().iter().map(|making| making.replaces).collect();
    assert!(planned.iter().all(Option::is_some) && planned.len() == 4, "{planned:?}");
    assert_eq!(state.table().epoch(), 1, "a plan changes no epoch");
    assert!(state.ask(0, &member, Request::Renew).is_ok());
    state.ask(0, &member, Request::Leave).unwrap();
    assert!(state.host(1).unwrap().info.up && state.host(1).unwrap().info.leaving);
    assert_eq!(state.finish(), 1);
    let gone = &state.host(1).unwrap().info;
    assert!(gone.has_left() && !gone.is_lost() && !gone.up);
    assert_eq!(state.counts(), [(6, state.counts()[0].1), (6, state.counts()[1].1)]);
    assert!(state.table().volumes().iter().all(|entry| entry.open && entry.backup.is_some()));
    assert_eq!(state.drain_host(1), Ok(Response::Done), "again");
    assert_eq!(state.cancel_drain(1), Err(Refusal::HostLeft { host: 1 }.into()));
    let restored = ClusterState::restore(&state.snapshot()).unwrap();
    assert_eq!(restored.hosts(), state.hosts());
}

#[test]
fn a_move_takes_the_place_of_a_primary_or_of_a_backup_with_one_copy_and_with_two() {
    for replicas in [1, 2] {
        let mut state = cluster(4, replicas, 3, &[8, 8, 8]);
        let before = state.table().volumes().to_vec();
        state.drain_host(0).unwrap();
        let moves: Vec<_> = state.makings().to_vec();
        assert!(!moves.is_empty());
        state.finish();
        for making in moves {
            let (was, is) =
                (before[usize::from(making.volume)], state.table().volumes()[usize::from(making.volume)]);
            if making.replaces == was.primary {
                assert_eq!((is.primary, is.backup), (Some(making.copy), was.backup));
            } else {
                assert_eq!((is.primary, is.backup), (was.primary, Some(making.copy)));
            }
        }
        assert!(state.host(0).unwrap().info.has_left());
    }
}

#[test]
fn identities_of_both_epochs_of_a_move_end() {
    let mut state = cluster(2, 1, 2, &[4, 4]);
    let member = state.admit(1);
    state.activate(1, &member);
    state.drain_host(0).unwrap();
    let copy = state.makings()[0].copy;
    state.apply(&Command::Copied { now: 2, copy }).unwrap();
    state.rest();
    assert!(state.is_closed_for_makings() && !state.quiet());
    assert_eq!(state.ask(3, &member, Request::Renew), ended(&member));
    // The primary does not change before everybody of the former epoch is gone.
    state.apply(&Command::Settled { now: 4, copy, epoch: 2 }).unwrap();
    assert_eq!(state.table().epoch(), 2);
    let heir = state.admit(4 + LEASE);
    state.recover(4 + LEASE, &heir, &member);
    assert!(state.quiet());
    state.apply(&Command::Settled { now: 5 + LEASE, copy, epoch: 2 }).unwrap();
    assert!(state.is_open() && state.table().epoch() == 3);
    assert_eq!(state.ask(6 + LEASE, &heir, Request::Renew), ended(&heir));
    assert!(state.host(0).unwrap().info.has_left());
}

#[test]
fn a_drain_that_cannot_end_well_is_refused_and_changes_nothing() {
    let refused = |state: &mut ClusterState, host, refusal: Refusal| {
        let before = state.snapshot();
        assert_eq!(state.drain_host(host), Err(refusal.into()));
        assert_eq!(state.snapshot(), before);
    };
    refused(&mut cluster(3, 1, 1, &[3]), 0, Refusal::LastCopy { volume: 0 });
    refused(&mut cluster(3, 2, 2, &[4, 4]), 0, Refusal::TooFewHosts { left: 1, replicas: 2 });
    refused(&mut cluster(3, 1, 1, &[3, 2]), 0, Refusal::NoRoom { copies: 3, room: 2 });
    refused(&mut cluster(3, 2, 3, &[2, 2, 3]), 0, Refusal::NoRoom { copies: 2, room: 1 });
    let mut state = cluster(3, 2, 3, &[6, 6, 6]);
    refused(&mut state, 3, Refusal::NoSuchHost { host: 3 });
    state.lose(0, 1);
    refused(&mut state, 1, Refusal::NoSuchHost { host: 1 });
    // The host that already leaves does not count among those that would be left.
    let mut state = cluster(3, 1, 2, &[6, 6]);
    state.drain_host(0).unwrap();
    refused(&mut state, 1, Refusal::LastCopy { volume: 1 });
}

#[test]
fn a_cancelled_drain_leaves_the_host_as_it_was() {
    let mut state = cluster(6, 2, 3, &[12, 12, 12]);
    let before = state.table().volumes().to_vec();
    assert_eq!(state.cancel_drain(1), Ok(Response::Done), "nothing to cancel");
    state.drain_host(1).unwrap();
    assert!(!state.makings().is_empty());
    state.cancel_drain(1).unwrap();
    assert_eq!(state.makings(), []);
    assert!(!state.host(1).unwrap().info.leaving);
    assert_eq!(state.table().volumes(), before);
    // In a pause the moves are finished, and no further ones are planned.
    state.drain_host(1).unwrap();
    let copies: Vec<u16> = state.makings().iter().map(|making| making.copy).collect();
    let member = state.admit(1);
    state.activate(1, &member);
    copies.iter().for_each(|&copy| drop(state.apply(&Command::Copied { now: 2, copy })));
    state.rest();
    assert!(state.is_closed_for_makings());
    state.cancel_drain(1).unwrap();
    let heir = state.admit(3 + LEASE);
    state.recover(3 + LEASE, &heir, &member);
    let epoch = state.table().epoch();
    copies.iter().for_each(|&copy| drop(state.apply(&Command::Settled { now: 4 + LEASE, copy, epoch })));
    assert!(state.is_open() && state.makings().is_empty() && state.copies_on(1).is_empty());
    assert!(state.host(1).unwrap().info.up, "it stays");
}

#[test]
fn a_host_that_leaves_gets_no_copies_and_is_no_voter() {
    let mut state = cluster(4, 2, 3, &[8, 8, 8, 8]);
    state.drain_host(3).unwrap();
    assert!(state.host(3).unwrap().info.has_left(), "it has no copies");
    state.drain_host(2).unwrap();
    assert_eq!(state.voters_wanted(&[1, 2, 3]), [1, 2]);
    state.register_host(9);
    assert_eq!(state.voters_wanted(&[1, 2, 3]), [1, 2, 5]);
    state.lose(0, 0);
    assert!(state.makings().iter().all(|making| state.host_of(making.copy) != Some(2)));
    state.finish();
    assert!(state.host(2).unwrap().info.has_left());
    assert_eq!(state.counts(), [(4, state.counts()[0].1), (4, state.counts()[1].1)]);
}

#[test]
fn a_host_that_is_lost_while_it_leaves_is_lost() {
    let mut state = cluster(6, 2, 3, &[12, 12, 12]);
    state.drain_host(1).unwrap();
    state.lose(1, 1);
    let lost = &state.host(1).unwrap().info;
    assert!(lost.is_lost() && !lost.has_left());
    assert!(state.makings().iter().all(|making| making.replaces.is_none()), "the copies are lost");
    state.finish();
    assert_eq!(state.counts().iter().map(|(copies, _)| *copies).collect::<Vec<_>>(), [6, 6]);
}

#[test]
fn new_hosts_get_their_share_by_memory_when_an_operator_asks() {
    let mut state = cluster(12, 2, 1, &[24, 24, 24, 24]);
    // The second copies go to the second host at once.
    state.finish();
    assert_eq!(state.counts(), [(12, 12), (12, 0), (0, 0), (0, 0)]);
    state.spread(Spreading::Now);
    state.finish();
    assert_eq!(state.counts(), [(6, 3); 4]);
    assert!(!state.makings.spreading);
    state.spread(Spreading::Now);
    assert!(state.makings().is_empty() && !state.makings.spreading, "it is even");
    // A host with twice the memory has twice the copies.
    let mut state = cluster(12, 2, 2, &[48, 24, 24]);
    state.spread(Spreading::Now);
    state.finish();
    assert_eq!(state.counts(), [(12, 6), (6, 3), (6, 3)]);
    // With one copy of each volume, too.
    let mut state = cluster(12, 1, 1, &[24, 24, 24]);
    state.spread(Spreading::Now);
    state.finish();
    assert_eq!(state.counts(), [(4, 4), (4, 4), (4, 4)]);
}

#[test]
fn two_hosts_of_which_one_was_replaced_share_the_primaries_without_a_copy() {
    let mut state = cluster(8, 2, 2, &[8, 8]);
    state.lose(0, 1);
    state.apply(&Command::Tick { now: LEASE }).unwrap();
    state.apply(&Command::Register { now: LEASE, offer: offer_of(9, 8) }).unwrap();
    state.finish();
    assert_eq!(state.counts(), [(8, 8), (8, 0)]);
    let (sites, epoch) = (state.table().sites().len(), state.table().epoch());
    let member = state.admit(state.now());
    state.activate(state.now(), &member);
    state.spread(Spreading::Now);
    assert_eq!((state.makings().len(), state.makings.swaps.len()), (0, 4));
    // It waits until nobody of the former epoch is left.
    state.rest();
    assert!(state.is_closed_for_makings() && state.table().epoch() == epoch + 1);
    let later = state.now() + LEASE;
    let heir = state.admit(later);
    state.recover(later, &heir, &member);
    assert!(!state.is_swapping());
    assert_eq!(state.counts(), [(8, 4), (8, 4)]);
    assert_eq!((state.table().sites().len(), state.table().epoch()), (sites, epoch + 2));
}

#[test]
fn copies_spread_by_themselves_if_the_operator_wants_it_always() {
    let mut state = cluster(12, 2, 2, &[24, 24]);
    state.spread(Spreading::Always);
    assert!(state.makings().is_empty());
    state = ClusterState::restore(&state.snapshot()).unwrap();
    let offer = HostOffer { memory_bytes: 24 * settings().volume_bytes, ..offer(7) };
    state.apply(&Command::Register { now: 0, offer: offer.clone() }).unwrap();
    assert!(!state.makings().is_empty());
    state.finish();
    assert_eq!(state.counts(), [(8, 4); 3]);
    state.spread(Spreading::Never);
    state.apply(&Command::Register { now: 0, offer: HostOffer { boot: 8, ..offer } }).unwrap();
    assert!(state.makings().is_empty());
    state.spread(Spreading::Now);
    assert!(!state.makings().is_empty());
    state.spread(Spreading::Never);
    assert!(state.makings().is_empty(), "moves that have not begun to close volumes are forgotten");
}

#[test]
fn waves_are_bounded_and_rest_between_pauses() {
    let mut state = cluster(80, 2, 2, &[160, 160, 160]);
    state.spread(Spreading::Now);
    assert_eq!(state.makings().len(), 32);
    let now = state.now();
    report_all(&mut state, now);
    let now = state.now();
    assert!(state.is_open() && state.table().epoch() == 3, "the first wave does not wait");
    assert!(!state.makings().is_empty(), "the next one is planned");
    for making in state.makings().to_vec() {
        state.apply(&Command::Copied { now: now + 1, copy: making.copy }).unwrap();
    }
    assert!(!state.is_closed_for_makings() && state.needs_tick());
    state.apply(&Command::Tick { now: now + REST - 1 }).unwrap();
    assert!(!state.is_closed_for_makings());
    state.apply(&Command::Tick { now: now + REST }).unwrap();
    assert!(state.is_closed_for_makings());
    state.finish();
    let even =
        |(copies, primaries): &(usize, usize)| (53..=54).contains(copies) && (26..=27).contains(primaries);
    assert!(state.counts().iter().all(even), "{:?}", state.counts());
}

#[test]
fn a_lost_copy_is_made_before_copies_move() {
    let mut state = cluster(12, 2, 3, &[24, 24, 24]);
    state.drain_host(2).unwrap();
    state.lose(0, 0);
    assert!(state.makings().iter().all(|making| making.replaces.is_none()));
    assert!(
        !state.makings().is_empty() || state.table().volumes().iter().any(|entry| entry.backup.is_none())
    );
}

#[test]
fn random_hosts_that_come_and_go_always_end_even_and_whole() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let replicas = 1 + u8::from(seed % 3 > 0);
        let volumes = rng.u16(1..40);
        let mut state = cluster(volumes, replicas, 2, &[80, 80]);
        let mut boot = 10;
        for _ in 0..12 {
            let present: Vec<u16> = state.hosts.present().map(|host| host.number).collect();
            match rng.u32(..5) {
                0 | 1 => {
                    boot += 1;
                    state
                        .apply(&Command::Register {
                            now: state.now(),
                            offer: offer_of(boot, rng.u64(20..120)),
                        })
                        .unwrap();
                }
                2 | 3 => drop(state.drain_host(rng.choice(present).unwrap())),
                _ => drop(state.cancel_drain(rng.choice(present).unwrap())),
            }
            if rng.bool() {
                state.finish();
            }
        }
        state.finish();
        state.spread(Spreading::Now);
        let waves = state.finish();
        assert!(!state.makings.spreading, "seed {seed}, {waves} waves");
        let copies = if state.hosts.candidates().len() > 1 { usize::from(replicas) } else { 1 };
        assert!(
            state.table().volumes().iter().all(|entry| entry.copies().count() >= copies.min(1)),
            "seed {seed}"
        );
        // No move would make it more even, and no swap.
        let placement = Placement::of(&state);
        assert_eq!(placement.next_move(|_| true), None, "seed {seed}");
        assert!(placement.next_swaps(|_| true).is_empty(), "seed {seed}");
    }
}

fn offer_of(boot: u64, room: u64) -> HostOffer {
    HostOffer { memory_bytes: room * settings().volume_bytes, ..offer(boot) }
}
