//! What a node refuses, and with which error.

use sherman_consensus::{
    BadMessage, Change, Group, MAX_VOTERS, MemoryDisk, OpenError, Refused, Settings, Start, StateMachine,
    perform,
};

/// A machine without state.
struct Nothing;

impl StateMachine for Nothing {
    type Answer = ();

    fn apply(&mut self, _index: u64, _command: &[u8]) {}

    fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restore(&mut self, _snapshot: &[u8]) -> bool {
        true
    }
}

fn open(settings: Settings, start: Start) -> Group<Nothing> {
    Group::open(settings, Nothing, None, start, 0).expect("a new log")
}

fn settle(group: &mut Group<Nothing>) {
    let mut disk = MemoryDisk::new();
    loop {
        let writes = group.take_output().writes;
        if writes.is_empty() {
            return;
        }
        for write in writes {
            perform(&mut disk, &write).expect("a disk in memory");
            group.persisted(write.number);
        }
    }
}

fn leader() -> Group<Nothing> {
    let mut group = open(Settings::new(1, 0), Start::NewGroup);
    settle(&mut group);
    group
}

#[test]
fn a_node_that_joins_waits_and_refuses_requests() {
    let mut group = open(Settings::new(2, 0), Start::Join);
    settle(&mut group);
    for tick in 1..100 {
        group.tick(tick * Settings::new(2, 0).tick);
        assert!(group.take_output().messages.is_empty(), "it asks nobody for a vote");
    }
    assert_eq!(group.propose(vec![1]), Err(Refused::NotLeader { hint: None }));
    assert_eq!(group.read(), Err(Refused::NotLeader { hint: None }));
    assert_eq!(group.change(Change::Remove(1)), Err(Refused::NotLeader { hint: None }));
}

#[test]
fn requests_that_wait_are_bounded_and_commands_too() {
    let settings = Settings { max_pending: 3, max_command: 10, ..Settings::new(1, 0) };
    let mut group = open(settings, Start::NewGroup);
    for _ in 0..3 {
        group.propose(vec![0; 10]).expect("room for three");
    }
    assert_eq!(group.propose(vec![0]), Err(Refused::TooManyPending { limit: 3 }));
    assert_eq!(group.propose(vec![0; 11]), Err(Refused::TooLarge { bytes: 11, limit: 10 }));
    settle(&mut group);
    group.propose(vec![0]).expect("room again");
}

#[test]
fn a_disk_that_is_far_behind_makes_the_node_refuse_proposals() {
    let settings = Settings { max_unsynced: 4 << 10, ..Settings::new(1, 0) };
    let mut group = open(settings, Start::NewGroup);
    let refused = (0..1000).find_map(|_| group.propose(vec![0; 100]).err());
    assert!(matches!(refused, Some(Refused::TooManyPending { .. })), "{refused:?}");
}

#[test]
fn changes_that_do_not_fit_the_members_are_refused() {
    let mut group = leader();
    let mut refuse = |change, what| match group.change(change) {
        Err(Refused::BadChange { what: found, .. }) => assert!(found.contains(what), "{found}"),
        other => panic!("{change:?}: {other:?}"),
    };
    refuse(Change::AddLearner(1), "member already");
    refuse(Change::AddLearner(0), "from 1");
    refuse(Change::Promote(2), "no learner");
    refuse(Change::Remove(2), "no member");
    refuse(Change::Remove(1), "it leads");
    group.change(Change::AddLearner(2)).expect("a new member");
    assert_eq!(group.change(Change::AddLearner(3)), Err(Refused::ChangePending));
    settle(&mut group);
    assert_eq!(group.status().members.learners, [2]);
    let behind = group.change(Change::Promote(2));
    assert!(matches!(behind, Err(Refused::BadChange { what, .. }) if what.contains("lacks")), "{behind:?}");
    assert_eq!(group.transfer(2), Err(Refused::BadChange { node: 2, what: "it has no vote" }));
    for node in 3..2 + MAX_VOTERS as u64 {
        group.change(Change::AddLearner(node)).expect("a learner");
        settle(&mut group);
    }
    let many = group.change(Change::AddLearner(99));
    assert!(matches!(many, Err(Refused::BadChange { what, .. }) if what.contains("too many")), "{many:?}");
}

#[test]
fn messages_that_are_none_change_nothing() {
    let mut group = leader();
    let before = group.status();
    assert!(matches!(group.receive(&[]), Err(BadMessage::Malformed { .. })));
    assert!(matches!(group.receive(&[9, 0]), Err(BadMessage::OtherVersion { found: 9 })));
    assert!(matches!(
        group.receive(&[1; 200]),
        Err(BadMessage::Malformed { .. } | BadMessage::OtherNode { .. })
    ));
    assert_eq!(group.status(), before);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let wrong = [
        Settings::new(0, 0),
        Settings { tick: 0, ..Settings::new(1, 0) },
        Settings { election_ticks: 2, ..Settings::new(1, 0) },
        Settings { max_pending: 0, ..Settings::new(1, 0) },
    ];
    for settings in wrong {
        let opened = Group::open(settings, Nothing, None, Start::NewGroup, 0).map(|_| ());
        assert!(matches!(opened, Err(OpenError::BadSettings { .. })), "{opened:?}");
    }
}
