//! Tests of the control state of a cluster of hosts.

mod creations;
mod fuzz;
mod makings;
mod moves;
mod returned;

use super::settings::memory_id;
use super::*;
use crate::cluster::hosts::{MOST_ADDRESS, MOST_LOST};
use creations::name_of;
use sherman_fabric::ServerInfo;
use sherman_fabric::control::{Renewal, TreeSpec, Verdict};
use sherman_layout::testing::small_options;
use std::collections::BTreeSet;

const CLUSTER: u64 = 0xc1;
const LEASE: u64 = 1000;

pub(super) fn settings() -> ClusterSettings {
    ClusterSettings {
        replicas: 2,
        volumes: 4,
        hosts: 3,
        volume_bytes: 64 << 10,
        on_chip_bytes: 0,
        format: FormatOptions { lease_nanos: LEASE, ..small_options() },
    }
}

fn offer(boot: u64) -> HostOffer {
    let address = format!("tcp://host{boot}:7000");
    HostOffer { address, memory_bytes: 1 << 20, boot, cluster: CLUSTER, keeps: false }
}

fn registered(response: Response) -> Registration {
    match response {
        Response::Registered(registration) => *registration,
        other => panic!("no registration: {other:?}"),
    }
}

impl ClusterState {
    fn register_host(&mut self, boot: u64) -> Registration {
        registered(self.apply(&Command::Register { now: 0, offer: offer(boot) }).unwrap())
    }

    fn lose(&mut self, now: u64, host: u16) {
        let incarnation = self.host(host).unwrap().info.incarnation;
        assert_eq!(self.apply(&Command::HostLost { now, host, incarnation }), Ok(Response::Done));
    }

    fn admit(&mut self, now: u64) -> Admission {
        match self.apply(&Command::Join { now }) {
            Ok(Response::Admitted(admission)) => *admission,
            other => panic!("not admitted: {other:?}"),
        }
    }

    /// Lets others join and leave until `client` is issued again.
    fn reissue(&mut self, now: u64, client: ComputeId) -> Admission {
        loop {
            let other = self.admit(now);
            if other.client == client {
                return other;
            }
            assert_eq!(self.ask(now, &other, Request::Leave), Ok(Response::Done));
        }
    }

    fn ask(&mut self, now: u64, who: &Admission, request: Request) -> Result<Response, FabricError> {
        let Admission { client, incarnation, .. } = *who;
        self.apply(&Command::Ask { now, client, incarnation, request })
    }

    fn activate(&mut self, now: u64, who: &Admission) {
        let active = Response::Active { incarnation: who.incarnation };
        assert_eq!(self.ask(now, who, Request::Activate), Ok(active));
    }

    fn recover(&mut self, now: u64, who: &Admission, dead: &Admission) {
        let client = dead.client;
        let verdict = self.ask(now, who, Request::Suspect { client });
        assert_eq!(verdict, Ok(Response::Verdict(Verdict::Recover)));
        assert_eq!(self.ask(now, who, Request::FreeId { client }), Ok(Response::Done));
    }

    fn is_open(&self) -> bool {
        self.table.all_open()
    }
}

pub(super) fn formed() -> ClusterState {
    let mut state = ClusterState::new(CLUSTER, settings()).unwrap();
    (1..=3).for_each(|boot| drop(state.register_host(boot)));
    assert!(state.is_formed());
    state
}

fn ended(who: &Admission) -> Result<Response, FabricError> {
    Err(FabricError::EpochEnded { client: who.client })
}

#[test]
fn a_cluster_has_no_volumes_before_enough_hosts_have_registered() {
    let mut state = ClusterState::new(CLUSTER, settings()).unwrap();
    for boot in 1..=3 {
        assert!(!state.is_formed() && !state.needs_tick());
        let refused = Refusal::Forming { hosts: boot as u16 - 1, expected: 3 };
        assert_eq!(state.apply(&Command::Join { now: 0 }), Err(refused.into()));
        let registration = state.register_host(boot);
        let number = boot as u16 - 1;
        let numbers = (registration.host, registration.incarnation, registration.node);
        assert_eq!(numbers, (number, boot as u32, boot));
        assert_eq!(registration.hosts.len(), boot as usize);
        assert_eq!(ClusterSettings::decode(&registration.settings), Some(settings()));
    }
    assert!(state.is_formed() && state.is_open() && !state.needs_tick());
    assert_eq!(state.table().epoch(), 1);
    let admission = state.admit(5);
    assert_eq!(VolumeTable::decode(&admission.table).as_ref(), Ok(&**state.table()));
    assert_eq!((admission.cluster, admission.lease_nanos), (CLUSTER, LEASE));
    let addresses: Vec<_> = (0..3).map(|host| (host, offer(u64::from(host) + 1).address)).collect();
    assert_eq!(admission.hosts, addresses);
}

#[test]
fn volumes_are_placed_evenly_and_a_lost_host_s_load_spreads() {
    for (hosts, volumes, replicas) in (1..=6u16)
        .flat_map(|hosts| (1..=30).flat_map(move |volumes| [(hosts, volumes, 1), (hosts, volumes, 2)]))
    {
        let settings = ClusterSettings { replicas, volumes, hosts, ..settings() };
        let mut state = ClusterState::new(CLUSTER, settings).unwrap();
        for boot in 1..=hosts {
            let offer = HostOffer { memory_bytes: settings.bytes_per_host(), ..offer(boot.into()) };
            state.apply(&Command::Register { now: 0, offer }).unwrap();
        }
        let copies = if hosts > 1 { u16::from(replicas) } else { 1 };
        assert_eq!(settings.copies_per_volume(), copies);
        assert_eq!(state.table().sites().len(), usize::from(volumes * copies));
        for host in 0..hosts {
            let mine = state.copies_on(host);
            assert!(mine.len() <= usize::from(settings.copies_per_host()));
            let primaries: Vec<_> = mine.iter().filter(|(.., role)| *role == Role::Primary).collect();
            let (least, most) = (volumes / hosts, volumes.div_ceil(hosts));
            assert!((least..=most).contains(&(primaries.len() as u16)));
            let heirs: BTreeSet<_> = primaries
                .iter()
                .filter_map(|(_, volume, _)| state.host_of(state.table().volume(*volume)?.backup?))
                .collect();
            assert!(!heirs.contains(&host));
            if copies == 2 {
                assert_eq!(heirs.len(), primaries.len().min(usize::from(hosts) - 1), "{hosts} {volumes}");
            }
        }
    }
}

#[test]
fn a_repeated_offer_gets_the_same_answer_and_a_restarted_process_is_a_new_host() {
    let mut state = formed();
    let first = state.register_host(2);
    assert_eq!((first.host, first.incarnation, first.node, first.hosts.len()), (1, 2, 2, 3));
    let again = HostOffer { boot: 9, ..offer(2) };
    let second = registered(state.apply(&Command::Register { now: 0, offer: again }).unwrap());
    assert_eq!((second.host, second.incarnation, second.node), (3, 4, 4));
    assert!(state.host(1).unwrap().info.up, "only the leader finds out that the former process is silent");
    assert_eq!(state.table().epoch(), 1);
    state.lose(0, 1);
    assert!(!state.register_host(2).hosts[1].up, "a lost host learns it from the answer");
    assert_eq!(state.register_host(10).host, 4);
}

#[test]
fn a_process_that_restarts_while_the_cluster_forms_counts_once() {
    let mut state = ClusterState::new(CLUSTER, settings()).unwrap();
    state.register_host(1);
    for boot in [20, 21, 22] {
        let offer = HostOffer { boot, ..offer(2) };
        state.apply(&Command::Register { now: 0, offer }).unwrap();
    }
    assert!(!state.is_formed());
    state.register_host(3);
    assert!(state.is_formed());
    let hosts: BTreeSet<u16> = state.table().sites().iter().map(|site| site.host).collect();
    assert_eq!(hosts, BTreeSet::from([0, 3, 4]), "the last one of each address");
}

#[test]
fn impossible_offers_are_refused() {
    let mut state = ClusterState::new(CLUSTER, settings()).unwrap();
    let good = offer(7);
    for bad in [
        HostOffer { boot: 0, ..good.clone() },
        HostOffer { address: String::new(), ..good.clone() },
        HostOffer { address: "a".repeat(MOST_ADDRESS + 1), ..good.clone() },
        HostOffer { cluster: 8, ..good.clone() },
        HostOffer { memory_bytes: settings().bytes_per_host() - 1, ..good.clone() },
    ] {
        let before = state.snapshot();
        let refused = state.apply(&Command::Register { now: 0, offer: bad });
        assert!(matches!(refused, Err(FabricError::Refused(Refusal::BadRequest { .. }))), "{refused:?}");
        assert_eq!(state.snapshot(), before);
    }
    let any = HostOffer { cluster: 0, ..good };
    assert!(state.apply(&Command::Register { now: 0, offer: any }).is_ok());
}

#[test]
fn the_loss_of_a_host_ends_all_identities_and_closes_what_changed_its_primary() {
    let mut state = formed();
    let member = state.admit(10);
    state.activate(11, &member);
    state.lose(20, 0);
    let table = Arc::clone(state.table());
    assert_eq!(table.epoch(), 2);
    // Primaries of volumes 0 and 3 were on host 0, and the backup of volume 2.
    let entry = |volume: u16| *table.volume(volume).unwrap();
    let open: Vec<bool> = table.volumes().iter().map(|entry| entry.open).collect();
    assert_eq!(open, [false, true, true, false]);
    assert_eq!((entry(0).primary, entry(0).backup), (Some(4), None));
    assert_eq!((entry(2).primary, entry(2).backup), (Some(2), None));
    assert_eq!(state.copies_on(0), []);
    assert_eq!(state.volume_format(3).server, 3);
    for request in [Request::Renew, Request::Volumes, Request::ListTrees, Request::Leave] {
        assert_eq!(state.ask(21, &member, request), ended(&member));
    }
    assert!(state.needs_tick());
}

#[test]
fn volumes_open_when_the_last_old_identity_is_recovered_and_cannot_count_on_its_lease() {
    let mut state = formed();
    let (idle, busy) = (state.admit(10), state.admit(10));
    state.activate(10, &busy);
    state.lose(20, 0);
    // A member of the new epoch is none of them.
    let heir = state.admit(30);
    let left: Vec<_> = state.leftovers().map(|leftover| leftover.client).collect();
    assert_eq!(left, [idle.client, busy.client]);
    let Admission { client, incarnation, .. } = busy;
    let verdict = state.ask(40, &heir, Request::Succeed { client, incarnation });
    assert_eq!(verdict, Ok(Response::Verdict(Verdict::Inherit)));
    assert_eq!(state.ask(41, &heir, Request::FreeId { client }), Ok(Response::Done));
    assert!(!state.is_open(), "the other one may count on its lease");
    assert_eq!(state.apply(&Command::Tick { now: 10 + LEASE - 1 }), Ok(Response::Done));
    assert!(!state.is_open());
    assert_eq!(state.apply(&Command::Tick { now: 10 + LEASE }), Ok(Response::Done));
    assert!(state.is_open() && !state.needs_tick());
    assert_eq!((state.table().epoch(), state.reaped()), (2, &[idle.client][..]));
    assert!(state.ask(10 + LEASE, &heir, Request::Renew).is_ok());
}

#[test]
fn a_silent_member_with_memory_keeps_volumes_closed_until_it_is_recovered() {
    let mut state = formed();
    let busy = state.admit(0);
    state.activate(0, &busy);
    state.lose(1, 1);
    let heir = state.admit(LEASE);
    state.apply(&Command::Tick { now: 5 * LEASE }).unwrap();
    assert!(!state.is_open());
    let heir =
        if state.ask(5 * LEASE, &heir, Request::Renew).is_ok() { heir } else { state.admit(5 * LEASE) };
    state.recover(5 * LEASE, &heir, &busy);
    assert!(state.is_open());
}

#[test]
fn the_loss_of_a_backup_closes_nothing() {
    let settings = ClusterSettings { volumes: 1, ..settings() };
    let mut state = ClusterState::new(CLUSTER, settings).unwrap();
    (1..=3).for_each(|boot| drop(state.register_host(boot)));
    let member = state.admit(0);
    state.lose(1, 1);
    assert!(state.is_open() && state.table().epoch() == 2);
    assert_eq!(state.ask(2, &member, Request::Renew), ended(&member));
    // Host 2 has no copies.
    state.lose(3, 2);
    assert_eq!(state.table().epoch(), 2);
    assert!(!state.host(2).unwrap().info.up);
}

#[test]
fn a_host_is_lost_once_and_only_under_its_incarnation() {
    let mut state = formed();
    let lost = |host, incarnation| Command::HostLost { now: 5, host, incarnation };
    for (host, incarnation) in [(0, 2), (3, 4), (u16::MAX, 1)] {
        let refused = state.apply(&lost(host, incarnation));
        assert!(matches!(refused, Err(FabricError::Refused(Refusal::BadRequest { .. }))));
    }
    assert_eq!(state.table().epoch(), 1);
    for _ in 0..2 {
        assert_eq!(state.apply(&lost(0, 1)), Ok(Response::Done));
        assert_eq!(state.table().epoch(), 2);
    }
}

#[test]
fn the_others_go_on_without_a_volume_that_has_lost_both_copies() {
    let mut state = formed();
    state.lose(0, 0);
    state.lose(2, 1);
    let lost: Vec<u16> = state.table().lost().collect();
    assert!(!lost.is_empty() && lost.len() < 4, "{lost:?}");
    state.apply(&Command::Tick { now: 9 * LEASE }).unwrap();
    assert!(state.is_open() && !state.needs_tick(), "the others are open");
    let member = state.admit(9 * LEASE);
    // New trees avoid what is lost, also after a restart from a snapshot.
    let spec = TreeSpec { format: 1, key_len: 8, value_len: 8, leaf_bytes: 1024, internal_bytes: 1024 };
    for round in 0..4 {
        let asked = name_of(&member, round);
        let create = Request::CreateTree { name: format!("t{round}"), spec, types: None, asked };
        match state.ask(9 * LEASE, &member, create) {
            Ok(Response::Tree(reply)) => assert!(!lost.contains(&reply.info.root_word.server())),
            Err(FabricError::Refused(Refusal::TooManyTrees)) => assert!(round > 0),
            other => panic!("{other:?}"),
        }
        state = ClusterState::restore(&state.snapshot()).unwrap();
    }
    // A host that comes gets second copies of what is left, and nothing of what is lost.
    state.register_host(9);
    assert!(state.makings().iter().all(|making| !lost.contains(&making.volume)));
    state.lose(9 * LEASE, 2);
    let refused = FabricError::VolumeLost { volume: 0 };
    assert_eq!(state.apply(&Command::Join { now: 9 * LEASE }), Err(refused));
}

#[test]
fn lost_hosts_are_forgotten_in_the_end_but_their_numbers_stay_used() {
    let mut state = formed();
    for boot in 100..100 + 2 * MOST_LOST as u64 {
        let host = state.register_host(boot).host;
        state.lose(0, host);
    }
    assert_eq!(state.hosts().len(), 3 + MOST_LOST);
    let forgotten = Command::HostLost { now: 0, host: 3, incarnation: 4 };
    assert_eq!(state.apply(&forgotten), Ok(Response::Done));
    let last = state.register_host(1000).host;
    assert_eq!(usize::from(last), 3 + 2 * MOST_LOST);
    let restored = ClusterState::restore(&state.snapshot()).unwrap();
    assert_eq!(restored.hosts(), state.hosts());
}

#[test]
fn a_condemned_member_still_counts_on_its_lease() {
    let mut state = formed();
    let member = state.admit(0);
    let condemn = Request::Condemn { client: member.client };
    assert_eq!(state.apply(&Command::Operate { now: 1, request: condemn }), Ok(Response::Done));
    assert_eq!(state.member(member.client).state, MemberState::Free);
    state.lose(2, 0);
    assert!(!state.is_open());
    // Its id is issued again before its lease has run out.
    state.reissue(3, member.client);
    assert!(state.leftovers().any(|leftover| leftover.until == LEASE));
    state.apply(&Command::Tick { now: LEASE - 1 }).unwrap();
    assert!(!state.is_open());
    state.apply(&Command::Tick { now: LEASE }).unwrap();
    assert!(state.is_open());
}

#[test]
fn a_former_holder_of_an_id_is_fenced() {
    let mut state = formed();
    let former = state.admit(0);
    assert_eq!(state.ask(1, &former, Request::Leave), Ok(Response::Done));
    assert_eq!(state.ask(1, &former, Request::Leave), Ok(Response::Done), "it did not get the answer");
    let present = state.reissue(2, former.client);
    assert_eq!(present.incarnation, former.incarnation + 1);
    let fenced = Err(FabricError::Fenced { client: former.client });
    assert_eq!(state.ask(3, &former, Request::Renew), fenced);
    assert_eq!(state.ask(3, &former, Request::Leave), fenced);
    assert!(state.ask(3, &present, Request::Renew).is_ok());
    let nobody = Admission { client: ComputeId(99), ..present };
    let stranger = Refusal::NotAMember { client: ComputeId(99) };
    assert_eq!(state.ask(3, &nobody, Request::Renew), Err(stranger.into()));
}

#[test]
fn a_successor_of_another_incarnation_does_not_end_a_lease() {
    let mut state = formed();
    let (member, other) = (state.admit(0), state.admit(0));
    let wrong = Request::Succeed { client: member.client, incarnation: member.incarnation + 1 };
    assert_eq!(state.ask(1, &other, wrong), Ok(Response::Verdict(Verdict::Gone)));
    state.lose(2, 0);
    assert!(state.leftovers().any(|left| left.client == member.client && left.until == LEASE));
}

#[test]
fn a_freed_id_may_be_freed_again() {
    let mut state = formed();
    let dead = state.admit(0);
    state.activate(0, &dead);
    let heir = state.admit(LEASE);
    state.recover(LEASE, &heir, &dead);
    let client = dead.client;
    assert_eq!(state.ask(LEASE, &heir, Request::FreeId { client }), Ok(Response::Done));
    let client = heir.client;
    assert!(state.ask(LEASE, &heir, Request::FreeId { client }).is_err(), "it is alive");
}

#[test]
fn a_new_leader_s_clock_may_be_any_and_all_leases_begin_again() {
    for reading in [0, 5, u64::MAX / 2] {
        let mut state = formed();
        let (member, dead) = (state.admit(100), state.admit(100));
        state.activate(100, &dead);
        state.apply(&Command::Tick { now: 100 + LEASE - 1 }).unwrap();
        let before = state.now();
        assert_eq!(state.apply(&Command::Lead { now: reading }), Ok(Response::Done));
        assert_eq!(state.now(), before, "the time between leaders does not count");
        let renewed = state.ask(reading + LEASE - 1, &member, Request::Renew);
        assert_eq!(renewed, Ok(Response::Renewed(Renewal::default())), "nobody is dead yet");
        assert_eq!(state.now(), before + LEASE - 1);
        // A clock that goes back stands still.
        state.apply(&Command::Tick { now: reading }).unwrap();
        assert_eq!(state.now(), before + LEASE - 1);
        let renewed = state.ask(reading + LEASE, &member, Request::Renew);
        let expired = vec![dead.client];
        assert_eq!(renewed, Ok(Response::Renewed(Renewal { expired, short: false })));
        state.lose(reading + LEASE, 0);
        assert!(state.leftovers().any(|leftover| leftover.until == state.now() + LEASE));
    }
}

#[test]
fn operators_see_hosts_and_declare_them_lost() {
    let mut state = formed();
    state.admit(0);
    let mut operate = |request| state.apply(&Command::Operate { now: 4, request });
    let host = |boot, lost| ServerInfo { memory: boot, lost };
    assert_eq!(operate(Request::DeclareLost { server: 1 }), Ok(Response::Done));
    let servers = vec![host(1, false), host(2, true), host(3, false)];
    assert_eq!(operate(Request::Servers), Ok(Response::Servers(servers)));
    assert!(operate(Request::DeclareLost { server: 3 }).is_err());
    assert!(matches!(operate(Request::Members), Ok(Response::Members(members)) if members.len() == 1));
    assert_eq!(operate(Request::ListTrees), Ok(Response::Trees(Vec::new())));
    assert!(matches!(operate(Request::Volumes), Ok(Response::Volumes(_))));
    for request in [Request::Renew, Request::Join, Request::Usage, Request::Cluster] {
        assert!(matches!(operate(request), Err(FabricError::Refused(Refusal::BadRequest { .. }))));
    }
    assert_eq!(state.table().epoch(), 2);
}

#[test]
fn members_may_ask_what_concerns_members_alone() {
    let mut state = formed();
    let member = state.admit(0);
    for request in [
        Request::Join,
        Request::Cluster,
        Request::Register { offer: offer(9) },
        Request::Alive { host: 0, incarnation: 1, progress: Vec::new() },
    ] {
        let answer = state.ask(1, &member, request);
        assert!(matches!(answer, Err(FabricError::Refused(Refusal::BadRequest { .. }))), "{answer:?}");
    }
    for request in [Request::RedoArea, Request::Release, Request::Usage] {
        assert_eq!(state.ask(1, &member, request), Err(Refusal::NotHere.into()));
    }
    let spec = TreeSpec { format: 1, key_len: 8, value_len: 8, leaf_bytes: 1024, internal_bytes: 1024 };
    let asked = name_of(&member, 1);
    let create = Request::CreateTree { name: "t".into(), spec, types: None, asked };
    assert!(matches!(state.ask(1, &member, create), Ok(Response::Tree(reply)) if reply.created));
    assert_eq!(state.trees().len(), 1);
    let volumes = state.ask(1, &member, Request::Volumes);
    assert_eq!(volumes, Ok(Response::Volumes(state.table().encode())));
    assert!(matches!(state.ask(1, &member, Request::Servers), Ok(Response::Servers(all)) if all.len() == 3));
}

#[test]
fn voters_that_are_present_stay_and_others_take_the_places_of_lost_ones() {
    let mut state = ClusterState::new(CLUSTER, settings()).unwrap();
    assert_eq!(state.voters_wanted(&[]), []);
    state.register_host(1);
    assert_eq!(state.voters_wanted(&[1]), [1]);
    state.register_host(2);
    assert_eq!(state.voters_wanted(&[1]), [1, 2]);
    (3..=4).for_each(|boot| drop(state.register_host(boot)));
    assert_eq!(state.voters_wanted(&[1]), [1, 2, 3]);
    assert_eq!(state.voters_wanted(&[1, 2, 4]), [1, 2, 4]);
    state.lose(0, 1);
    assert_eq!(state.voters_wanted(&[1, 2, 4]), [1, 3, 4]);
    (5..=6).for_each(|boot| drop(state.register_host(boot)));
    assert_eq!(state.voters_wanted(&[1, 4, 6]), [1, 3, 4, 5, 6]);
}

#[test]
fn what_a_host_tells_about_the_cluster_is_the_state() {
    let mut state = formed();
    state.lose(0, 2);
    let info = state.info(1, Some("tcp://host1:7000".into()));
    assert_eq!((info.cluster, info.host, info.epoch, info.formed), (CLUSTER, 1, 2, true));
    assert_eq!(VolumeTable::decode(&info.table).as_ref(), Ok(&**state.table()));
    assert_eq!(info.hosts.iter().map(|host| host.up).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn settings_survive_their_bytes_and_impossible_ones_are_refused() {
    let bytes = settings().encode();
    assert_eq!(ClusterSettings::decode(&bytes), Some(settings()));
    let formats = [FormatOptions::default(), FormatOptions { wipe_chunks: true, ..small_options() }];
    for format in formats {
        let settings = ClusterSettings { format, ..settings() };
        assert_eq!(ClusterSettings::decode(&settings.encode()), Some(settings));
    }
    for len in 0..bytes.len() {
        assert_eq!(ClusterSettings::decode(&bytes[..len]), None);
    }
    assert_eq!(ClusterSettings::decode(&[&bytes[..], &[0]].concat()), None);
    let format = |format| ClusterSettings { format, ..settings() };
    for bad in [
        ClusterSettings { replicas: 0, ..settings() },
        ClusterSettings { replicas: 3, ..settings() },
        ClusterSettings { volumes: 0, ..settings() },
        ClusterSettings { volumes: u16::MAX, ..settings() },
        ClusterSettings { hosts: 0, ..settings() },
        ClusterSettings { hosts: 257, ..settings() },
        ClusterSettings { volume_bytes: 4096, ..settings() },
        format(FormatOptions { lease_nanos: 0, ..small_options() }),
        format(FormatOptions { member_capacity: 1 << 20, ..small_options() }),
        format(FormatOptions { catalog_capacity: 1 << 30, ..small_options() }),
    ] {
        assert!(ClusterState::new(CLUSTER, bad).is_err(), "{bad:?}");
    }
    assert!(ClusterState::new(0, settings()).is_err());
}

#[test]
fn the_memories_of_a_cluster_have_identities_of_their_own() {
    for cluster in [1, u64::MAX, CLUSTER, 0u64.wrapping_sub(0x9e37_79b9_7f4a_7c15)] {
        let ids: BTreeSet<u64> = (0..=u16::MAX).map(|volume| memory_id(cluster, volume)).collect();
        assert_eq!(ids.len(), 1 << 16);
        assert!(!ids.contains(&0));
        assert_eq!(memory_id(cluster, 0), cluster);
    }
}
