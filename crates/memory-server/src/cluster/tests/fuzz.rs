//! Random commands: two instances agree, snapshots lose nothing, and a model of what clients believe holds.

use super::*;
use fastrand::Rng;
use sherman_fabric::RequestId;
use sherman_fabric::control::Spreading;
use std::collections::BTreeMap;

/// An identity as its client has it.
#[derive(Clone, Copy, Debug)]
struct Believer {
    client: ComputeId,
    incarnation: u32,
    epoch: u64,
    /// Until when it counts on its lease, by the state's clock.
    until: u64,
    /// Whether it has ended itself.
    ended: bool,
}

#[derive(Debug, Default)]
struct Model {
    now: u64,
    boots: u64,
    next: Option<Command>,
    /// The ids that keep volumes closed.
    targets: Vec<ComputeId>,
    /// The hosts of primaries.
    primaries: Vec<u16>,
    /// The makings, and the epoch.
    makings: Vec<Making>,
    epoch: u64,
    believers: Vec<Believer>,
    answers: BTreeMap<&'static str, u64>,
}

impl Model {
    fn somebody(&self, rng: &mut Rng) -> (ComputeId, u32) {
        let recent = self.believers.len().saturating_sub(12);
        match rng.choice(&self.believers[recent..]) {
            Some(believer) if rng.u32(..8) > 0 => (believer.client, believer.incarnation),
            _ => (ComputeId(rng.u16(..20)), rng.u32(..3)),
        }
    }

    fn request(&self, rng: &mut Rng) -> Request {
        let (client, incarnation) = self.somebody(rng);
        let spec = TreeSpec { format: 1, key_len: 8, value_len: 8, leaf_bytes: 1024, internal_bytes: 1024 };
        match rng.u32(..24) {
            0..=5 => Request::Renew,
            6 | 7 => Request::Activate,
            8 => Request::Leave,
            9 => Request::Depart,
            10..=13 => Request::Suspect { client },
            14 | 15 => Request::Succeed { client, incarnation },
            16 | 17 => Request::FreeId { client },
            18 => Request::Relieve { client },
            19 => Request::Condemn { client },
            20 => Request::Short,
            21 => {
                let asked = RequestId { client, incarnation, number: rng.u64(..8) };
                Request::CreateTree { name: format!("t{}", rng.u32(..6)), spec, types: None, asked }
            }
            22 => rng.choice([Request::ListTrees, Request::Volumes, Request::RedoArea]).unwrap(),
            23 if rng.bool() => Request::Drain { host: rng.u16(..60), cancel: rng.bool() },
            _ if rng.u32(..6) == 0 => Request::DeclareLost { server: rng.u16(..60) },
            _ => Request::Servers,
        }
    }

    /// An operator moves copies.
    fn planned(&self, rng: &mut Rng) -> Request {
        let host = rng.choice(&self.primaries).copied().filter(|_| rng.u32(..4) > 0).unwrap_or(rng.u16(..60));
        match rng.u32(..8) {
            0..=3 => Request::Drain { host, cancel: false },
            4 => Request::Drain { host, cancel: true },
            5 | 6 => Request::Rebalance { when: Spreading::Now },
            _ => Request::Rebalance { when: rng.choice([Spreading::Always, Spreading::Never]).unwrap() },
        }
    }

    fn command(&mut self, rng: &mut Rng) -> Command {
        if let Some(next) = self.next.take().filter(|_| rng.u32(..4) > 0) {
            return next;
        }
        self.now += rng.u64(..LEASE / 8);
        if rng.u32(..100) == 0 {
            // Long enough for another pause that is for moves alone.
            self.now += 2 * LEASE;
        }
        let now = if rng.u32(..20) == 0 { self.now / 2 } else { self.now };
        if rng.u32(..6) == 0 && !self.makings.is_empty() {
            return self.report(now, rng);
        }
        match rng.u32(..64) {
            0 => {
                self.now = rng.u64(..1 << 40);
                Command::Lead { now: self.now }
            }
            1..=3 => {
                self.boots += 1;
                let boot = 1 + rng.u64(..self.boots);
                let address = format!("unix:/{}", rng.u32(..12));
                Command::Register { now, offer: HostOffer { address, boot, ..offer(boot) } }
            }
            4 => {
                let host = rng.choice(&self.primaries).copied().unwrap_or(1);
                let host = if rng.bool() { host } else { rng.u16(..60) };
                let incarnation = if rng.u32(..8) > 0 { u32::from(host) + 1 } else { rng.u32(..60) };
                Command::HostLost { now, host, incarnation }
            }
            32 => {
                self.boots += 1;
                let (host, boot) = (rng.u16(..(self.boots as u16).min(60)), 1000 + self.boots);
                let offer = HostOffer { keeps: rng.bool(), ..offer(boot) };
                Command::HostReturned { now, host, incarnation: u32::from(host) + 1, offer }
            }
            5..=14 => Command::Join { now },
            15..=20 => Command::Tick { now },
            24..=31 if !self.targets.is_empty() => {
                // The youngest member recovers somebody who keeps volumes closed.
                let (client, incarnation) =
                    self.believers.last().map_or((ComputeId(1), 1), |last| (last.client, last.incarnation));
                let dead = self.targets[rng.usize(..self.targets.len())];
                let request = Request::FreeId { client: dead };
                self.next = Some(Command::Ask { now, client, incarnation, request });
                Command::Ask { now, client, incarnation, request: Request::Suspect { client: dead } }
            }
            21 => Command::Operate { now, request: self.planned(rng) },
            22 | 23 => Command::Operate { now, request: self.request(rng) },
            _ => {
                let (client, incarnation) = self.somebody(rng);
                let request = self.request(rng);
                // Recoverers usually end what they begin.
                if let Request::Suspect { client: dead } | Request::Succeed { client: dead, .. } = request {
                    let request = Request::FreeId { client: dead };
                    self.next = Some(Command::Ask { now, client, incarnation, request });
                }
                Command::Ask { now, client, incarnation, request }
            }
        }
    }

    /// A host reports on a copy, or the leader loses its patience.
    fn report(&self, now: u64, rng: &mut Rng) -> Command {
        let copy = match rng.choice(&self.makings) {
            Some(making) if rng.u32(..8) > 0 => making.copy,
            _ => rng.u16(..60),
        };
        match rng.u32(..16) {
            0 => Command::AbortMaking { now },
            1..=7 => Command::Copied { now, copy },
            8 => Command::Settled { now, copy, epoch: rng.u64(..self.epoch + 2) },
            _ => Command::Settled { now, copy, epoch: self.epoch },
        }
    }

    /// What clients learn from an answer. `was` is the epoch before the command.
    fn learn(
        &mut self,
        command: &Command,
        answer: &Result<Response, FabricError>,
        was: u64,
        state: &ClusterState,
    ) {
        let until = state.now() + LEASE;
        match (command, answer) {
            (_, Ok(Response::Admitted(admission))) => {
                assert_eq!(admission.table, state.table().encode());
                self.believers.push(Believer {
                    client: admission.client,
                    incarnation: admission.incarnation,
                    epoch: state.table().epoch(),
                    until,
                    ended: false,
                });
            }
            (Command::Ask { client, incarnation, request, .. }, Ok(_)) => {
                let who = |believer: &&mut Believer| (believer.client, believer.incarnation);
                let asker = (*client, *incarnation);
                let believer = self.believers.iter_mut().find(|believer| who(believer) == asker);
                let believer = believer.expect("only an id that was issued gets answers");
                let former = matches!(request, Request::DeclareLost { .. });
                assert!(former || believer.epoch == was, "E1: {command:?}");
                match request {
                    Request::Renew => believer.until = until,
                    Request::Leave | Request::Depart => believer.ended = true,
                    Request::Succeed { client, incarnation } => {
                        let former = (*client, *incarnation);
                        let former = self.believers.iter_mut().find(|believer| who(believer) == former);
                        former.into_iter().for_each(|former| former.ended = true);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        let held = state.leftovers().filter(|leftover| state.needs_tick() && leftover.held);
        self.targets = held.map(|leftover| leftover.client).collect();
        if !state.makings().is_empty() {
            let ids = (1..=state.control.geometry().member_capacity as u16).map(ComputeId);
            let dead = |id: &ComputeId| {
                let member = state.member(*id);
                member.state != MemberState::Free && !member.is_alive(state.now())
            };
            self.targets.extend(ids.filter(dead));
        }
        (self.makings, self.epoch) = (state.makings().to_vec(), state.table().epoch());
        let primaries = state.table().volumes().iter().filter_map(|entry| entry.primary);
        self.primaries = primaries.filter_map(|copy| state.host_of(copy)).collect();
        let answered = match answer {
            Ok(_) => "done",
            Err(FabricError::EpochEnded { .. }) => "ended",
            Err(FabricError::Fenced { .. }) => "fenced",
            Err(_) => "refused",
        };
        *self.answers.entry(answered).or_default() += 1;
    }

    /// E6, L2: what must hold when volumes open. `paused` says whether they were closed for makings.
    fn check_opening(&self, command: &Command, before: &VolumeTable, paused: bool, state: &ClusterState) {
        let table = state.table();
        assert!(table.epoch() >= before.epoch());
        assert!(table.sites().starts_with(before.sites()), "copies keep their numbers");
        let opened =
            |(was, is): (&sherman_replica::VolumeEntry, &sherman_replica::VolumeEntry)| !was.open && is.open;
        if before.epoch() == 0 || !before.volumes().iter().zip(table.volumes()).any(opened) {
            return;
        }
        // Both leave the primaries as they were. Identities of the pause changed nothing (J5), and those
        // before it use the same copies (J6).
        let last = match command {
            Command::AbortMaking { .. } => return,
            Command::HostReturned { .. } => table.epoch(),
            _ if is_loss(command) => table.epoch(),
            _ if paused => table.epoch() - 1,
            // Volumes that open may be closed again at once, for others to change places (J3).
            _ => before.epoch(),
        };
        for believer in self.believers.iter().filter(|believer| believer.epoch < last) {
            assert!(believer.ended || believer.until <= state.now(), "{believer:?} counts on its lease");
            let entry = state.member(believer.client);
            let gone = entry.state == MemberState::Free || entry.incarnation != believer.incarnation;
            assert!(gone, "{believer:?} is not recovered");
        }
    }
}

fn is_loss(command: &Command) -> bool {
    let request = match command {
        Command::HostLost { .. } => return true,
        Command::Ask { request, .. } | Command::Operate { request, .. } => request,
        _ => return false,
    };
    matches!(request, Request::DeclareLost { .. })
}

/// J1, J5: makings are on hosts without a copy, and a table names a new copy only when it was settled in the
/// epoch before. Primary and backup change places only while nobody of an older epoch is left.
fn check_makings(command: &Command, before: &ClusterState, state: &ClusterState) -> bool {
    let table = state.table();
    assert!(state.makings().len() <= table.volumes().len());
    assert!(state.makings_are_legal(), "{command:?}: {:?}", state.makings);
    assert!(!state.quiet() || state.is_closed_for_makings());
    if before.table.volumes().is_empty() || is_loss(command) {
        return false;
    }
    let mut made = false;
    for (volume, (was, is)) in (0..).zip(before.table.volumes().iter().zip(table.volumes())) {
        if (was.primary, was.backup) == (is.primary, is.backup) {
            continue;
        }
        made = true;
        assert!(!state.has_closed_volumes());
        let making = before.makings().iter().find(|making| making.volume == volume);
        let Some(making) = making else {
            assert_eq!((was.primary, was.backup), (is.backup, is.primary), "a swap");
            assert!(before.makings.swaps.contains(&volume) || !before.is_closed_for_makings());
            assert!(
                state
                    .leftovers()
                    .all(|left| state.identities.epoch(left.client) >= Some(before.table.epoch()))
            );
            continue;
        };
        assert_eq!(table.epoch(), before.table.epoch() + 1);
        assert!(!was.open);
        match making.replaces {
            None => assert_eq!((is.primary, is.backup), (was.primary, Some(making.copy))),
            copy if copy == was.primary => {
                assert_eq!((is.primary, is.backup), (Some(making.copy), was.backup))
            }
            _ => assert_eq!((is.primary, is.backup), (was.primary, Some(making.copy))),
        }
        // Time has passed since.
        let mut then = before.clone();
        then.clock.advance(command.now());
        assert!(then.quiet());
        let &Command::Settled { copy: reported, epoch, .. } = command else { panic!("named by {command:?}") };
        assert_eq!(epoch, before.table.epoch());
        let settled = |making: &Making| match making.phase {
            Phase::Planned => false,
            Phase::Copied => making.copy == reported,
            Phase::Settled => true,
        };
        assert!(before.makings().iter().all(settled));
    }
    made
}

/// After the last fault: members recover others, hosts report, and time passes, until nothing changes.
fn repair(state: &mut ClusterState, model: &mut Model) {
    for round in 0..60 {
        model.now += 2 * LEASE;
        let now = model.now;
        state.apply(&Command::Tick { now }).unwrap();
        if let Ok(Response::Admitted(recoverer)) = state.apply(&Command::Join { now }) {
            for client in (1..=state.control.geometry().member_capacity as u16).map(ComputeId) {
                let _ = state.ask(now, &recoverer, Request::Suspect { client });
                let _ = state.ask(now, &recoverer, Request::FreeId { client });
            }
            let _ = state.ask(now, &recoverer, Request::Leave);
        }
        for Making { copy, .. } in state.makings().to_vec() {
            let epoch = state.table().epoch();
            let report = match round % 2 {
                0 => Command::Copied { now, copy },
                _ => Command::Settled { now, copy, epoch },
            };
            let before = state.clone();
            assert_eq!(state.apply(&report), Ok(Response::Done));
            check_makings(&report, &before, state);
        }
    }
}

/// Whether every volume with a primary has all the copies that the hosts allow, and is open, and whether
/// every host that shall leave has left if it can.
fn check_repaired(state: &ClusterState) {
    assert_eq!(state.makings(), []);
    assert!(!state.needs_tick() && !state.makings.spreading);
    let stay = state.hosts.candidates().iter().filter(|host| !host.leaving).count();
    let copies = usize::from(state.settings().replicas).min(stay);
    for entry in state.table().volumes().iter().filter(|entry| entry.primary.is_some()) {
        assert!(entry.open && entry.copies().count() >= copies);
    }
    let leaving = state.hosts.present().filter(|host| host.leaving);
    let full = leaving.filter(|host| !state.copies_on(host.number).is_empty()).count();
    assert!(full == 0 || stay < usize::from(state.settings().replicas), "{full} hosts have not left");
}

fn state_for(seed: u64) -> ClusterState {
    let volumes = [1, 2, 5][seed as usize % 3];
    let hosts = [1, 3, 5, 8][seed as usize / 2 % 4];
    let replicas = 1 + u8::from(!seed.is_multiple_of(7));
    let settings = ClusterSettings { volumes, hosts, replicas, ..settings() };
    let mut state = ClusterState::new(CLUSTER, settings).unwrap();
    // Half of the clusters are formed from the start.
    (0..hosts)
        .filter(|_| seed.is_multiple_of(2))
        .for_each(|host| drop(state.register_host(1 << 40 | u64::from(host))));
    state
}

#[test]
fn random_commands_give_every_replica_the_same_state_and_keep_the_rules() {
    let mut answers = BTreeMap::new();
    let (mut openings, mut closings) = (0, 0);
    let (mut made, mut pauses, mut repaired) = (0, 0, 0);
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let (mut state, mut other) = (state_for(seed), state_for(seed));
        let mut model = Model::default();
        for step in 0..400 {
            let command = model.command(&mut rng);
            let (before, copy) = (Arc::clone(state.table()), state.clone());
            let (old, was_closed) = (state.now(), state.needs_tick());
            let answer = state.apply(&command);
            assert_eq!(other.apply(&command), answer, "{command:?}");
            assert_eq!(state.reaped(), other.reaped());
            assert!(state.now() >= old);
            model.learn(&command, &answer, before.epoch(), &state);
            model.check_opening(&command, &before, copy.is_closed_for_makings(), &state);
            made += u64::from(check_makings(&command, &copy, &state));
            pauses += u64::from(state.is_closed_for_makings() && !copy.is_closed_for_makings());
            closings += u64::from(!was_closed && state.needs_tick());
            openings +=
                u64::from(was_closed && !state.needs_tick() && before.epoch() == state.table().epoch());
            if rng.u32(..40) == 0 {
                let snapshot = state.snapshot();
                assert_eq!(other.snapshot(), snapshot, "seed {seed}, step {step}");
                other = ClusterState::restore(&snapshot).expect("a state's own snapshot");
                assert_eq!(other.snapshot(), snapshot);
                assert_eq!((other.hosts(), other.table()), (state.hosts(), state.table()));
            }
        }
        repair(&mut state, &mut model);
        if state.table().lost().next().is_none() {
            check_repaired(&state);
            repaired += 1;
        }
        model.answers.into_iter().for_each(|(name, count)| *answers.entry(name).or_insert(0) += count);
    }
    println!("{answers:?}, {openings} openings of {closings}");
    println!("{made} openings with new copies of {pauses} pauses, {repaired} clusters repaired");
    assert!(made > 30 && pauses > made && repaired > 30, "{made} of {pauses}, {repaired}");
    assert!(openings > 50, "volumes closed and opened {openings} times");
    assert!(answers.len() == 4 && answers.values().all(|&count| count > 500), "{answers:?}");
}

/// A state with some of everything.
fn rich() -> ClusterState {
    let mut rng = Rng::with_seed(7);
    let mut state = formed();
    let mut model = Model { boots: 3, ..Model::default() };
    for _ in 0..80 {
        let command = model.command(&mut rng);
        let lossy = matches!(command, Command::HostLost { .. });
        let was = state.table().epoch();
        let answer = if lossy { continue } else { state.apply(&command) };
        model.learn(&command, &answer, was, &state);
    }
    state.lose(model.now, 1);
    let heir = state.admit(model.now);
    let client = state.leftovers().find(|left| left.held).expect("somebody was a member").client;
    let incarnation = state.member(client).incarnation;
    state.ask(model.now, &heir, Request::Succeed { client, incarnation }).unwrap();
    for copy in state.makings().iter().map(|making| making.copy).take(1).collect::<Vec<_>>() {
        state.apply(&Command::Copied { now: model.now, copy }).unwrap();
    }
    assert!(!state.makings().is_empty());
    state
}

#[test]
fn a_cut_snapshot_is_refused() {
    let bytes = rich().snapshot();
    assert!(ClusterState::restore(&bytes).is_some());
    for len in (0..bytes.len()).rev().step_by(3) {
        assert!(ClusterState::restore(&bytes[..len]).is_none(), "{len} of {}", bytes.len());
    }
    assert!(ClusterState::restore(&[&bytes[..], &[0]].concat()).is_none());
}

#[test]
fn a_changed_snapshot_is_refused_or_gives_a_state_that_works() {
    let bytes = rich().snapshot();
    let mut rng = Rng::with_seed(1);
    let (mut refused, mut taken) = (0, 0);
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1 << rng.u32(..8);
        let Some(mut state) = ClusterState::restore(&other) else {
            refused += 1;
            continue;
        };
        taken += 1;
        let mut model = Model { boots: 50, ..Model::default() };
        for _ in 0..10 {
            let _ = state.apply(&model.command(&mut rng));
        }
        let again = state.snapshot();
        assert_eq!(ClusterState::restore(&again).map(|state| state.snapshot()), Some(again), "byte {at}");
    }
    println!("{refused} refused, {taken} taken of {}", bytes.len());
    assert!(refused > 100 && taken > 100);
}
