//! Memory servers whose answers make no sense: told as such, and nothing is lost by asking again.

use crate::{cluster, key, tree, value, worker};
use sherman_core::redo::{Kind, Record};
use sherman_core::{ComputeOptions, Error, Worker};
use sherman_embedded::EmbeddedEndpoint;
use sherman_executor::block_on;
use sherman_fabric::{
    ClientId, Endpoint, FabricError, GlobalAddress, Memory, Request, Response, Space, Ticket, Verdict, WorkList,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::task::{Context, Poll};

/// Which requests are answered by nonsense.
type About = fn(&Request) -> bool;

/// Wraps an endpoint: some requests are answered as if they had been others.
#[derive(Debug)]
struct Lying<E> {
    inner: E,
    about: Cell<About>,
    lies: RefCell<BTreeSet<Ticket>>,
}

impl<E> Lying<E> {
    fn new(inner: E) -> Self {
        Self { inner, about: Cell::new(|_| false), lies: RefCell::default() }
    }
}

forward_clock_and_driver!(Lying);

impl<E: Endpoint> Endpoint for Lying<E> {
    forward_the_rest!();

    fn post(&self, list: WorkList) -> Ticket {
        self.inner.post(list)
    }

    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        self.inner.poll(ticket, cx)
    }

    fn call(&self, server: u16, request: Request) -> Ticket {
        let lie = (self.about.get())(&request);
        let ticket = self.inner.call(server, request);
        if lie {
            self.lies.borrow_mut().insert(ticket);
        }
        ticket
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        let answer = self.inner.poll_call(ticket, cx);
        if answer.is_ready() && self.lies.borrow_mut().remove(&ticket) {
            return Poll::Ready(Ok(Response::Joined { client: ClientId(1) }));
        }
        answer
    }
}

/// Asks for something, first while requests of one kind are answered by nonsense, which must be said, and then again.
fn ask_twice<T>(
    worker: &Worker<Lying<EmbeddedEndpoint>>,
    about: About,
    said: &str,
    ask: impl AsyncFn() -> Result<T, Error>,
) -> T {
    worker.endpoint().about.set(about);
    match block_on(worker.endpoint(), ask()) {
        Err(Error::Unsupported { what }) if what == said => {}
        Err(other) => panic!("{said:?} is what is wrong, not {other:?}"),
        Ok(_) => panic!("{said:?}: nobody noticed"),
    }
    worker.endpoint().about.set(|_| false);
    block_on(worker.endpoint(), ask()).expect("an answer that makes sense")
}

#[test]
fn an_answer_that_makes_no_sense_is_told_and_asking_again_does_what_was_not_done() {
    const CATALOG: &str = "the memory server's answer to a catalog request";
    let cluster = cluster();
    let worker = worker(&cluster.join().expect("a compute server"), ComputeOptions::default(), Lying::new);
    let known = tree(&worker);
    ask_twice(&worker, |asked| *asked == Request::Renew, "the memory server's answer to a renewal", || worker.renew());
    let about: About = |asked| *asked == Request::Members;
    let members = ask_twice(&worker, about, "the memory server's answer about its members", || worker.members());
    assert_eq!(members.len(), 1);
    assert_eq!(ask_twice(&worker, |asked| *asked == Request::ListTrees, CATALOG, || worker.trees()).len(), 1);
    let about: About = |asked| matches!(asked, Request::OpenTree { .. });
    ask_twice(&worker, about, CATALOG, || worker.open_tree("t"));
    let spec = known.info().spec;
    ask_twice(&worker, |asked| *asked == Request::NewTreeId, CATALOG, || worker.tree("another", &spec));
    // The lie is told when the tree is there: asked again, it is opened.
    let about: About = |asked| matches!(asked, Request::CreateTree { .. });
    let third = ask_twice(&worker, about, CATALOG, || worker.tree("third", &spec));
    block_on(worker.endpoint(), worker.op().insert(&known, &key(1), &value(1), &mut Vec::new())).expect("room");
    assert_eq!(third.info().name, "third");
}

#[test]
fn nonsense_about_memory_is_told_before_it_is_used() {
    let cluster = cluster();
    let fabric = cluster.join().expect("a compute server");
    let worker = worker(&fabric, ComputeOptions::default(), Lying::new);
    let spec = sherman_fabric::control::TreeSpec {
        format: 1,
        key_len: 19,
        value_len: 12,
        leaf_bytes: 320,
        internal_bytes: 256,
    };
    let about: About = |asked| matches!(asked, Request::RedoArea { .. });
    ask_twice(&worker, about, "the memory server's answer to a redo request", || worker.tree("t", &spec));
    let other = sherman_fabric::control::TreeSpec { leaf_bytes: 640, ..spec };
    let about: About = |asked| matches!(asked, Request::AllocSpans { .. });
    ask_twice(&worker, about, "the memory server's answer to a request for memory", || worker.tree("u", &other));
}

#[test]
fn a_recovery_that_met_nonsense_is_done_when_asked_again() {
    let abouts: [(About, &str); 4] = [
        (|asked| matches!(asked, Request::OpenTree { .. }), "the memory server's answer to a catalog request"),
        (|asked| matches!(asked, Request::Suspect { .. }), "the memory server's answer to a suspicion"),
        (|asked| *asked == Request::ListTrees, "the memory server's answer to a catalog request"),
        (|asked| matches!(asked, Request::SpansOf { .. }), "the memory server's answer about spans"),
    ];
    for (about, said) in abouts {
        let cluster = cluster();
        let fabric = cluster.join().expect("a compute server");
        let dead = worker(&fabric, ComputeOptions::default(), |plain| plain);
        let left = tree(&dead);
        block_on(dead.endpoint(), dead.op().insert(&left, &key(1), &value(1), &mut Vec::new())).expect("room");
        let spans = dead.compute().census().spans;
        // About a root that was to be replaced, which did not happen: whether it did is asked of the tree.
        let (server, slot) = dead.compute().redo_slots().places()[0];
        let record = Record {
            owner: dead.compute().client(),
            kind: Kind::Replace,
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
        let other = worker(&cluster.join().expect("a compute server"), ComputeOptions::default(), Lying::new);
        let client = dead.compute().client();
        let recovery = ask_twice(&other, about, said, || other.condemn(client));
        // What was asked about spans came when the record was replayed.
        let records = u64::from(!said.contains("spans"));
        assert_eq!((recovery.verdict, recovery.records), (Verdict::Recover, records));
        assert_eq!((recovery.spans, recovery.places), (spans, 0));
    }
}
