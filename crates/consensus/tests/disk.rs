//! The log on disk: what a crash may do to it, what is refused, and real files.

use sherman_consensus::{
    Disk, Event, FileDisk, Group, LogCorrupt, MemoryDisk, Refused, Settings, Start, StateMachine, Stopped,
    perform, read, recover,
};

/// All bytes of all commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bytes(Vec<u8>);

impl StateMachine for Bytes {
    type Answer = usize;

    fn apply(&mut self, _index: u64, command: &[u8]) -> usize {
        self.0.extend_from_slice(command);
        self.0.len()
    }

    fn snapshot(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn restore(&mut self, snapshot: &[u8]) -> bool {
        self.0 = snapshot.to_vec();
        true
    }
}

fn settings() -> Settings {
    Settings { snapshot_entries: 8, ..Settings::new(1, 7) }
}

fn open(disk: &mut impl Disk) -> Result<Group<Bytes>, LogCorrupt> {
    let log = recover(&read(disk).expect("a disk"))?;
    let mut group = Group::open(settings(), Bytes::default(), log, Start::NewGroup, 0).expect("a good log");
    settle(&mut group, disk);
    Ok(group)
}

/// Writes until the group asks for no more. Returns how many proposals were answered.
fn settle(group: &mut Group<Bytes>, disk: &mut impl Disk) -> usize {
    let mut answered = 0;
    loop {
        let output = group.take_output();
        let is_answer = |event: &&Event<usize>| matches!(event, Event::Proposed { result: Ok(_), .. });
        answered += output.events.iter().filter(is_answer).count();
        if output.writes.is_empty() {
            return answered;
        }
        for write in output.writes {
            perform(disk, &write).expect("a disk");
            group.persisted(write.number);
        }
    }
}

/// A disk on which a group of one has committed these commands.
fn written(commands: u8) -> MemoryDisk {
    let mut disk = MemoryDisk::new();
    let mut group = open(&mut disk).expect("a new group");
    for command in 0..commands {
        group.propose(vec![command]).expect("it leads");
        assert_eq!(settle(&mut group, &mut disk), 1, "a group of one answers without ticks");
    }
    disk
}

#[test]
fn a_group_of_one_keeps_all_commands_over_restarts_and_snapshots() {
    let mut disk = MemoryDisk::new();
    for round in 0..40u8 {
        let mut group = open(&mut disk).expect("its own log");
        assert_eq!(group.state().0, (0..round).collect::<Vec<_>>());
        group.propose(vec![round]).expect("it leads");
        assert_eq!(settle(&mut group, &mut disk), 1);
        assert!(group.status().log_entries <= 8 + 1 + settings().keep_entries);
        disk.crash(|_| 0);
    }
    assert!(disk.bytes() < 2_000, "{} bytes", disk.bytes());
}

#[test]
fn a_cut_tail_is_dropped_and_what_was_answered_is_kept() {
    let disk = written(5);
    let segments = read(&mut disk.clone()).expect("a disk in memory");
    for end in 0..200 {
        let mut cut = disk.clone();
        // More that was not synced: cut anywhere, it does no harm.
        let extra: Vec<u8> = segments.concat().into_iter().cycle().take(end).collect();
        cut.append(0, &extra).expect("a disk in memory");
        let group = open(&mut cut).expect("a log with a cut tail");
        assert_eq!(group.state().0, [0, 1, 2, 3, 4], "{end} bytes of garbage");
    }
}

#[test]
fn damage_in_the_middle_is_refused_and_never_passes_for_another_state() {
    let disk = written(7);
    let segments = read(&mut disk.clone()).expect("a disk in memory");
    let (mut refused, mut cut) = (0, 0);
    for (number, segment) in segments.iter().enumerate() {
        for at in 0..segment.len() {
            let mut damaged = disk.clone();
            damaged.damage(number, at, at as u8);
            match open(&mut damaged) {
                Err(
                    LogCorrupt::Damaged { .. } | LogCorrupt::NoBeginning | LogCorrupt::Inconsistent { .. },
                ) => {
                    refused += 1;
                }
                Err(other) => panic!("segment {number}, byte {at}: {other}"),
                Ok(group) => {
                    let state = &group.state().0;
                    assert_eq!(*state, (0..state.len() as u8).collect::<Vec<_>>());
                    // Only what no later record witnesses: the last command at most.
                    assert!(state.len() >= 6, "segment {number}, byte {at}: {} commands", state.len());
                    cut += 1;
                }
            }
        }
    }
    assert!(refused > 200 && cut < refused / 2, "{refused} refused, {cut} cut");
}

#[test]
fn a_log_that_is_lost_or_older_than_promised_is_refused() {
    let old = written(2);
    let new = written(20);
    let segments = |disk: &MemoryDisk| read(&mut disk.clone()).expect("a disk in memory");
    let (old, new) = (segments(&old), segments(&new));
    assert!(recover(&new).is_ok_and(|log| log.is_some_and(|log| log.cut() == 0)));
    let retired = new.iter().position(|segment| segment.len() < 64).expect("a retired segment");
    let mut lost = new.clone();
    lost[1 - retired].clear();
    assert_eq!(recover(&lost), Err(LogCorrupt::NoBeginning));
    let mut older = new;
    older[1 - retired] = old.iter().max_by_key(|segment| segment.len()).expect("two segments").clone();
    assert_eq!(recover(&older), Err(LogCorrupt::NoBeginning));
    assert_eq!(recover(&[Vec::new(), vec![0; 4096]]), Ok(None));
}

#[test]
fn a_node_whose_disk_fails_stops_and_says_so() {
    let mut disk = MemoryDisk::new();
    let mut group = open(&mut disk).expect("a new group");
    let ticket = group.propose(vec![1]).expect("it leads");
    group.storage_failed();
    let events = group.take_output().events;
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Proposed { ticket: is, result: Err(_) } if *is == ticket))
    );
    assert!(events.contains(&Event::Stopped(Stopped::StorageFailed)));
    assert_eq!(group.propose(vec![2]), Err(Refused::Stopped(Stopped::StorageFailed)));
    assert_eq!(group.read(), Err(Refused::Stopped(Stopped::StorageFailed)));
}

#[test]
fn files_keep_the_log_and_belong_to_one_process() {
    let folder = std::env::temp_dir().join(format!("sherman-consensus-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("control");
    for round in 0..20u8 {
        let mut disk = FileDisk::open(&path).expect("two files");
        assert!(FileDisk::open(&path).is_err(), "a second process must not have them");
        let mut group = open(&mut disk).expect("its own log");
        assert_eq!(group.state().0.len(), usize::from(round));
        group.propose(vec![round]).expect("it leads");
        assert_eq!(settle(&mut group, &mut disk), 1);
    }
    assert!(FileDisk::open(&folder.join("missing").join("control")).is_err());
    std::fs::remove_dir_all(&folder).expect("the folder");
}
