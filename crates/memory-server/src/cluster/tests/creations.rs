//! Requests to create a tree that come twice.

use super::*;
use crate::cluster::creations::{FORGOTTEN, MOST};
use sherman_fabric::RequestId;
use sherman_fabric::control::CatalogReply;

/// The name of a member's request.
pub(super) fn name_of(who: &Admission, number: u64) -> RequestId {
    RequestId { client: who.client, incarnation: who.incarnation, number }
}

fn create(name: &str, asked: RequestId) -> Request {
    let spec = TreeSpec { format: 1, key_len: 8, value_len: 8, leaf_bytes: 1024, internal_bytes: 1024 };
    Request::CreateTree { name: name.into(), spec, types: None, asked }
}

fn tree(answer: Result<Response, FabricError>) -> CatalogReply {
    match answer {
        Ok(Response::Tree(reply)) => reply,
        other => panic!("no tree: {other:?}"),
    }
}

#[test]
fn a_repeated_creation_gets_its_first_answer_also_from_the_next_identity_and_after_a_restart() {
    let mut state = formed();
    let (member, other) = (state.admit(0), state.admit(0));
    let request = create("t", name_of(&member, 1));
    let first = tree(state.ask(1, &member, request.clone()));
    assert!(first.created);
    // Another request is another one.
    assert!(!tree(state.ask(1, &member, create("t", name_of(&member, 2)))).created);
    assert!(!tree(state.ask(1, &other, create("t", name_of(&other, 1)))).created);
    state = ClusterState::restore(&state.snapshot()).unwrap();
    assert_eq!(tree(state.ask(2, &member, request.clone())), first);
    // The host of a copy is lost: the identity ends, and the next one of its process asks again.
    state.lose(2, 2);
    assert_eq!(state.ask(3, &member, request.clone()), ended(&member));
    let next = state.admit(3);
    assert_eq!(tree(state.ask(3, &next, request)), first);
    assert_eq!(state.trees().len(), 1);
}

#[test]
fn a_late_creation_does_not_create_what_was_dropped_since() {
    let mut state = formed();
    let member = state.admit(0);
    let created = create("t", name_of(&member, 1));
    let found = create("t", name_of(&member, 2));
    let id = tree(state.ask(1, &member, created.clone())).info.id;
    assert!(!tree(state.ask(1, &member, found.clone())).created);
    assert_eq!(state.ask(1, &member, Request::DropTree { name: "t".into(), id }), Ok(Response::Done));
    assert_eq!(tree(state.ask(2, &member, created)).info.id, id);
    let missing = Refusal::NoSuchTree { name: "t".into() };
    assert_eq!(state.ask(2, &member, found), Err(missing.into()));
    assert!(state.trees().is_empty());
}

#[test]
fn what_is_remembered_is_bounded_and_what_is_forgotten_is_refused() {
    let mut state = formed();
    let member = state.admit(0);
    let first = tree(state.ask(1, &member, create("t", name_of(&member, 1))));
    let ask = |state: &mut ClusterState, number| state.ask(1, &member, create("t", name_of(&member, number)));
    (2..=MOST as u64).for_each(|number| assert!(!tree(ask(&mut state, number)).created));
    let full = state.snapshot().len();
    assert_eq!(tree(ask(&mut state, 1)), first);
    (0..10).for_each(|more| assert!(!tree(ask(&mut state, MOST as u64 + 1 + more)).created));
    assert!(state.snapshot().len() < full + 64);
    let restored = ClusterState::restore(&state.snapshot()).unwrap();
    for state in [&mut state, &mut restored.clone()] {
        assert_eq!(ask(state, 1), Err(Refusal::BadRequest { what: FORGOTTEN }.into()));
        assert!(!tree(ask(state, 11)).created);
    }
    // A name of nobody is refused.
    let nobody = RequestId { client: ComputeId(99), incarnation: 1, number: 1 };
    let refused = state.ask(1, &member, create("t", nobody));
    assert!(matches!(refused, Err(FabricError::Refused(Refusal::BadRequest { .. }))), "{refused:?}");
}
