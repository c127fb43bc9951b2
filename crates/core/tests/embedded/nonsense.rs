//! Memory servers whose answers make no sense. The client reports that, and a second request loses nothing.

use crate::wrapped::{About, Wrapped};
use crate::{cluster, key, tree, value, worker};
use sherman_core::redo::{Record, RecordKind};
use sherman_core::{ComputeOptions, Error, Worker};
use sherman_executor::block_on;
use sherman_fabric::{FabricError, GlobalAddress, Memory, Request, Space, Verdict};
use std::cell::Cell;

/// Makes a request twice. First, requests of one kind get a nonsense answer, which must be reported. The
/// second time all answers are right.
fn ask_twice<T>(
    worker: &Worker<Wrapped>,
    about: About,
    asked: &str,
    ask: impl AsyncFn() -> Result<T, Error>,
) -> T {
    worker.endpoint().lie_about(about);
    match block_on(worker.endpoint(), ask()) {
        Err(Error::UnexpectedReply { request }) if request == asked => {}
        Err(other) => panic!("the reply to {asked} is wrong, not {other:?}"),
        Ok(_) => panic!("{asked}: no client noticed the wrong reply"),
    }
    worker.endpoint().lie_about(|_| false);
    block_on(worker.endpoint(), ask()).expect("an answer that makes sense")
}

#[test]
fn an_answer_that_makes_no_sense_is_reported_and_asking_again_does_what_was_not_done() {
    let cluster = cluster();
    let worker =
        worker(&cluster.join().expect("a compute server"), ComputeOptions::default(), Wrapped::lying);
    let known = tree(&worker);
    ask_twice(&worker, |asked| *asked == Request::Renew, "Renew", || worker.renew());
    let about: About = |asked| *asked == Request::Members;
    let members = ask_twice(&worker, about, "Members", || worker.members());
    assert_eq!(members.len(), 1);
    assert_eq!(
        ask_twice(&worker, |asked| *asked == Request::ListTrees, "ListTrees", || worker.trees()).len(),
        1
    );
    let about: About = |asked| matches!(asked, Request::OpenTree { .. });
    ask_twice(&worker, about, "OpenTree", || worker.open_tree("t"));
    let spec = known.info().spec;
    // The false answer comes when the tree exists already. The second request opens it.
    let about: About = |asked| matches!(asked, Request::CreateTree { .. });
    let third = ask_twice(&worker, about, "CreateTree", || worker.tree("third", &spec));
    block_on(worker.endpoint(), worker.op().insert(&known, &key(1), &value(1), &mut Vec::new()))
        .expect("room");
    assert_eq!(third.info().name, "third");
}

#[test]
fn nonsense_about_memory_is_reported_before_it_is_used() {
    let cluster = cluster();
    let fabric = cluster.join().expect("a compute server");
    let worker = worker(&fabric, ComputeOptions::default(), Wrapped::lying);
    let spec = sherman_fabric::control::TreeSpec {
        format: 1,
        key_len: 19,
        value_len: 12,
        leaf_bytes: 320,
        internal_bytes: 256,
    };
    let about: About = |asked| matches!(asked, Request::RedoArea);
    ask_twice(&worker, about, "RedoArea", || worker.tree("t", &spec));
    let other = sherman_fabric::control::TreeSpec { leaf_bytes: 640, ..spec };
    let about: About = |asked| matches!(asked, Request::AllocSpans { .. });
    ask_twice(&worker, about, "AllocSpans", || worker.tree("u", &other));
}

#[test]
fn a_recovery_that_met_nonsense_is_done_when_asked_again() {
    let abouts: [(About, &str); 4] = [
        (|asked| matches!(asked, Request::OpenTree { .. }), "OpenTree"),
        (|asked| matches!(asked, Request::Suspect { .. }), "Suspect"),
        (|asked| *asked == Request::ListTrees, "ListTrees"),
        (|asked| matches!(asked, Request::SpansOf { .. }), "SpansOf"),
    ];
    for (about, said) in abouts {
        let cluster = cluster();
        let fabric = cluster.join().expect("a compute server");
        let dead = worker(&fabric, ComputeOptions::default(), |plain| plain);
        let left = tree(&dead);
        block_on(dead.endpoint(), dead.op().insert(&left, &key(1), &value(1), &mut Vec::new()))
            .expect("room");
        let spans = dead.compute().census().spans;
        // A record of a root replacement that did not happen. The recoverer asks the tree whether it did.
        let (server, slot) = dead.compute().redo_slots().places()[0];
        let record = Record {
            owner: dead.compute().client(),
            kind: RecordKind::Replace,
            tree: left.info().id,
            spec: left.info().spec,
            node: GlobalAddress::NULL,
            made: GlobalAddress::NULL,
            version: 1,
            made_version: 1,
            level: 1,
            root: (1, 2),
            pieces: Vec::new(),
        };
        cluster.memory(server).expect("a server").store(Space::Host, slot, &record.encode());
        let other =
            worker(&cluster.join().expect("a compute server"), ComputeOptions::default(), Wrapped::lying);
        let client = dead.compute().client();
        let recovery = ask_twice(&other, about, said, || other.condemn(client));
        // The request for spans came after the record was replayed.
        let records = u64::from(said != "SpansOf");
        assert_eq!((recovery.verdict, recovery.records), (Verdict::Recover, records));
        assert_eq!((recovery.spans, recovery.places), (spans, 0));
    }
}

#[test]
fn an_identity_outlives_a_time_without_a_leader() {
    let cluster = cluster();
    let worker =
        worker(&cluster.join().expect("a compute server"), ComputeOptions::default(), Wrapped::lying);
    worker.endpoint().lie_about(|asked| *asked == Request::Renew);
    worker.endpoint().fail_with(FabricError::NoLeader);
    let looks = Cell::new(0);
    // The keeper looks at `stop` about three times per lease.
    let stop = || looks.replace(looks.get() + 1) > 4;
    assert_eq!(block_on(worker.endpoint(), worker.keep(stop)), Ok(()));
    assert!(!worker.compute().is_terminated() && worker.compute().participation().renewals == 0);
    // Any other failure ends the keeper.
    worker.endpoint().fail_with(FabricError::EpochEnded { client: worker.compute().client() });
    let ended = block_on(worker.endpoint(), worker.keep(|| false));
    assert!(matches!(ended, Err(Error::Fenced { .. })) && worker.compute().is_terminated(), "{ended:?}");
}
