//! Hosts whose process ended, and that come back with their memory (I4).

use super::*;

fn back(host: u16, boot: u64) -> Command {
    let offer = HostOffer { address: "tcp://elsewhere:1".into(), keeps: true, ..offer(boot) };
    Command::HostReturned { now: 3, host, incarnation: u32::from(host) + 1, offer }
}

#[test]
fn a_host_that_returns_keeps_its_numbers_and_copies_in_a_new_epoch() {
    let mut state = formed();
    let member = state.admit(1);
    state.activate(1, &member);
    let (volumes, copies) = (state.table().volumes().to_vec(), state.copies_on(1));
    let registration = registered(state.apply(&back(1, 9)).unwrap());
    let numbers = (registration.host, registration.incarnation, registration.node);
    assert_eq!(numbers, (1, 2, 2));
    assert_eq!(registration.hosts[1].address, "tcp://elsewhere:1");
    assert!(state.host(1).unwrap().keeps && !state.host(0).unwrap().keeps);
    // Its copies and lanes are as they were. So nothing is closed, but everybody joins again.
    assert_eq!((state.table().epoch(), state.table().volumes()), (2, &volumes[..]));
    assert_eq!((state.copies_on(1), state.makings()), (copies, &[][..]));
    assert_eq!(state.ask(4, &member, Request::Renew), ended(&member));
    let heir = state.admit(4);
    let Admission { client, incarnation, .. } = member;
    let verdict = state.ask(4, &heir, Request::Succeed { client, incarnation });
    assert_eq!(verdict, Ok(Response::Verdict(Verdict::Inherit)));
    // The same process asks again.
    let before = state.snapshot();
    registered(state.apply(&back(1, 9)).unwrap());
    assert_eq!(state.table().epoch(), 2);
    assert_eq!(state.snapshot().len(), before.len());
    // And the next one.
    registered(state.apply(&back(1, 10)).unwrap());
    assert_eq!(state.table().epoch(), 3);
    assert_eq!(ClusterState::restore(&state.snapshot()).unwrap().snapshot(), state.snapshot());
}

#[test]
fn a_host_that_was_declared_lost_does_not_return() {
    let mut state = formed();
    state.lose(2, 1);
    let table = Arc::clone(state.table());
    assert_eq!(state.apply(&back(1, 9)), Err(FabricError::ServerLost { server: 1 }));
    assert_eq!(state.apply(&back(7, 9)), Err(FabricError::ServerLost { server: 7 }));
    let other = Command::HostReturned { now: 3, host: 2, incarnation: 7, offer: offer(9) };
    assert_eq!(state.apply(&other), Err(FabricError::ServerLost { server: 2 }));
    assert_eq!(state.table(), &table);
}

#[test]
fn an_offer_that_makes_no_sense_does_not_return() {
    let mut state = formed();
    let before = state.table().epoch();
    for offer in [
        HostOffer { boot: 0, ..offer(9) },
        HostOffer { address: String::new(), ..offer(9) },
        HostOffer { cluster: 8, ..offer(9) },
    ] {
        let refused = state.apply(&Command::HostReturned { now: 3, host: 1, incarnation: 2, offer });
        assert!(matches!(refused, Err(FabricError::Refused(Refusal::BadRequest { .. }))), "{refused:?}");
    }
    assert_eq!((state.table().epoch(), state.host(1).unwrap().boot), (before, 2));
}

#[test]
fn a_closed_volume_stays_closed_when_its_host_returns() {
    let mut state = formed();
    let member = state.admit(1);
    state.activate(1, &member);
    state.lose(2, 0);
    let closed = (0..).zip(state.table().volumes()).find(|(_, entry)| !entry.open).unwrap().0;
    let host = state.host_of(state.table().volume(closed).unwrap().primary.unwrap()).unwrap();
    registered(state.apply(&back(host, 9)).unwrap());
    assert_eq!(state.table().epoch(), 3);
    assert!(!state.table().volume(closed).unwrap().open);
    let heir = state.admit(4);
    let Admission { client, incarnation, .. } = member;
    state.ask(4, &heir, Request::Succeed { client, incarnation }).unwrap();
    state.ask(4, &heir, Request::FreeId { client }).unwrap();
    assert!(state.is_open());
}

#[test]
fn copies_on_a_host_that_returns_are_made_anew_if_they_were_not_complete() {
    let mut state = formed();
    state.lose(2, 0);
    let making = state.makings()[0];
    let host = state.host_of(making.copy).unwrap();
    registered(state.apply(&back(host, 9)).unwrap());
    assert!(state.makings().iter().all(|other| other.copy != making.copy));
    assert!(state.makings().iter().any(|other| other.volume == making.volume));
}
