//! The litmus programs: a backend that keeps the contract shows no violations, and a backend that breaks a
//! rule shows some.

use sherman_conformance::litmus::{About, Count, Finding, LitmusSite, all, run};
use sherman_embedded::{EmbeddedCluster, EmbeddedEndpoint, EmbeddedFabric, EmbeddedOptions};
use sherman_executor::{Driver, block_on};
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, Fabric, FabricError, Peer, Request, Response, Space, Ticket,
    Verb, WorkList, execute,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const PLACE: LitmusSite = LitmusSite { server: 0, host: 32 << 20, on_chip: Some(128) };

/// The way in which a list is executed wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    Nothing,
    /// A WRITE stores word by word.
    WordByWord,
    /// Verbs execute in reverse order.
    Reversed,
    /// WRITEs execute first, fenced or not.
    WritesFirst,
    /// A CAS or FAA is a READ and a WRITE.
    NotAtomic,
    /// WRITEs of more than a word execute after the next list.
    Late,
}

struct Fabrics(EmbeddedFabric, Wrong);

struct Weak {
    inner: EmbeddedEndpoint,
    wrong: Wrong,
    late: std::cell::RefCell<Vec<(Space, u64, Vec<u8>)>>,
}

impl Fabric for Fabrics {
    type Endpoint = Weak;

    fn endpoint(&self) -> Result<Weak, FabricError> {
        Ok(Weak { inner: self.0.endpoint(), wrong: self.1, late: Default::default() })
    }
}

/// Gives the other thread time to look, so that a violation shows even on few cores.
fn dawdle() {
    std::thread::sleep(Duration::from_micros(1));
}

impl Weak {
    fn alone<T>(&self, fill: impl FnOnce(&mut WorkList) -> T) -> (WorkList, T) {
        let mut list = self.inner.list(PLACE.server);
        let id = fill(&mut list);
        (block_on(&self.inner, execute(&self.inner, list, &Counters::default())).unwrap(), id)
    }

    fn write(&self, space: Space, offset: u64, data: &[u8]) {
        let step = if self.wrong == Wrong::WordByWord && space == Space::Host { 8 } else { data.len() };
        for (index, part) in data.chunks(step).enumerate() {
            self.alone(|list| list.write(space, offset + (index * step) as u64, part));
            if step < data.len() {
                dawdle();
            }
        }
    }

    /// Executes one verb of `list` by itself, wrongly.
    fn step(&self, list: &mut WorkList, index: usize) {
        let (verb, arena) = list.parts_mut(index);
        match verb {
            Verb::Read { space, offset, at, len } => {
                let (done, read) = self.alone(|list| list.read(space, offset, len));
                arena[at as usize..][..len as usize].copy_from_slice(done.bytes(read));
            }
            Verb::Write { space, offset, at, len, .. } => {
                let data = arena[at as usize..][..len as usize].to_vec();
                if self.wrong == Wrong::Late && len > 8 {
                    self.late.borrow_mut().push((space, offset, data));
                } else {
                    self.write(space, offset, &data);
                }
            }
            Verb::Cas { space, offset, compare, swap, mask, .. } => {
                let (done, cas) = self.alone(|list| match self.wrong {
                    Wrong::NotAtomic => list.masked_cas(space, offset, 0, 0, 0),
                    _ => list.masked_cas(space, offset, compare, swap, mask),
                });
                let old = done.old(cas);
                if self.wrong == Wrong::NotAtomic && (old ^ compare) & mask == 0 {
                    dawdle();
                    self.write(space, offset, &((old & !mask) | (swap & mask)).to_le_bytes());
                }
                list.set_old(index, old);
            }
            Verb::Faa { space, offset, add, .. } => {
                let (done, faa) = self.alone(|list| {
                    list.faa(space, offset, if self.wrong == Wrong::NotAtomic { 0 } else { add })
                });
                let old = done.old(faa);
                if self.wrong == Wrong::NotAtomic {
                    dawdle();
                    self.write(space, offset, &old.wrapping_add(add).to_le_bytes());
                }
                list.set_old(index, old);
            }
        }
    }
}

impl Endpoint for Weak {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn servers(&self) -> u16 {
        self.inner.servers()
    }

    fn client(&self) -> ComputeId {
        self.inner.client()
    }

    fn list(&self, server: u16) -> WorkList {
        self.inner.list(server)
    }

    fn recycle(&self, list: WorkList) {
        self.inner.recycle(list);
    }

    fn post(&self, mut list: WorkList) -> Ticket {
        if self.wrong == Wrong::Nothing {
            return self.inner.post(list);
        }
        let late = self.late.take();
        let is_write = |verb: &Verb| matches!(verb, Verb::Write { .. });
        let mut order: Vec<usize> = (0..list.len()).collect();
        match self.wrong {
            Wrong::Reversed => order.reverse(),
            Wrong::WritesFirst => order.sort_by_key(|index| !is_write(&list.verbs()[*index])),
            _ => {}
        }
        let several = order.len() > 1;
        for index in order {
            self.step(&mut list, index);
            if several {
                dawdle();
            }
        }
        dawdle();
        for (space, offset, data) in late {
            self.write(space, offset, &data);
        }
        // The list posted here changes nothing more. The results come from the wrong execution.
        let empty = self.inner.list(list.server());
        let ticket = self.inner.post(empty);
        DONE.with(|done| done.borrow_mut().push((ticket, list)));
        ticket
    }

    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        let polled = self.inner.poll(ticket, cx);
        let ours = DONE.with(|done| {
            let mut done = done.borrow_mut();
            done.iter().position(|(known, _)| *known == ticket).map(|at| done.swap_remove(at).1)
        });
        match ours {
            Some(list) if polled.is_ready() => Poll::Ready(Ok(list)),
            _ => polled,
        }
    }

    fn forget(&self, ticket: Ticket) {
        self.inner.forget(ticket);
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        self.inner.call(peer, request)
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        self.inner.poll_call(ticket, cx)
    }

    fn counters(&self) -> &Counters {
        self.inner.counters()
    }
}

thread_local! {
    /// Lists that were executed wrongly, by the ticket of the list posted in their place. Thread-local,
    /// because an endpoint stays on its thread.
    static DONE: std::cell::RefCell<Vec<(Ticket, WorkList)>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Clock for Weak {
    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.inner.wake_at(at, waker);
    }
}

impl Driver for Weak {
    fn progress(&self) -> bool {
        self.inner.progress()
    }

    fn idle_for(&self) -> Option<Duration> {
        self.inner.idle_for()
    }
}

fn findings(wrong: Wrong, millis: u64, wanted: impl Fn(&About) -> bool) -> Vec<Finding> {
    let cluster =
        EmbeddedCluster::new(EmbeddedOptions { memory_bytes: 64 << 20, ..Default::default() }).unwrap();
    let [one, two] = [(); 2].map(|()| Fabrics(Arc::clone(&cluster).join().unwrap(), wrong));
    let mut findings = Vec::new();
    run([&one, &two], &PLACE, Duration::from_millis(millis), wanted, |found| findings.push(found.clone()))
        .unwrap();
    findings
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_backend_that_keeps_the_contract_violates_nothing() {
    let findings = findings(Wrong::Nothing, 100, |_| true);
    assert_eq!(findings.len(), all().len());
    for Finding { about, outcome } in findings {
        let Count { rounds, violations, first, .. } = outcome.expect("it needs nothing that is not here");
        assert!(rounds > 100, "{about:?}: {rounds} rounds");
        assert_eq!(violations, 0, "{about:?}: {first:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn every_program_sees_the_rule_broken_that_it_looks_at() {
    let expected = [
        (Wrong::WordByWord, "whole-lines"),
        (Wrong::WordByWord, "part-of-a-line"),
        (Wrong::Reversed, "write-then-write"),
        (Wrong::WritesFirst, "fenced-write"),
        (Wrong::NotAtomic, "faa-sum"),
        (Wrong::Late, "lists-in-order"),
    ];
    let mut seen = BTreeSet::new();
    let mut missing = Vec::new();
    // A violation shows when two threads run at the same time. On a busy machine that takes longer.
    for millis in [80, 160, 320, 640, 1280] {
        for wrong in [Wrong::WordByWord, Wrong::Reversed, Wrong::WritesFirst, Wrong::NotAtomic, Wrong::Late] {
            // A program that has seen a rule broken runs again only if it must see this way of breaking it.
            let wanted = |about: &About| {
                let must = expected.contains(&(wrong, about.name));
                !seen.iter().any(|(how, name)| *name == about.name && (!must || *how == wrong))
            };
            for Finding { about, outcome } in findings(wrong, millis, wanted) {
                if let Ok(count) = outcome
                    && count.violations > 0
                {
                    assert!(count.first.is_some());
                    seen.insert((wrong, about.name));
                }
            }
        }
        let silent = |name: &str| !seen.iter().any(|(_, seen)| *seen == name);
        missing = all().iter().map(|about| about.name).filter(|name| silent(name)).collect();
        missing.extend(expected.iter().filter(|each| !seen.contains(each)).map(|(_, name)| name));
        if missing.is_empty() {
            return;
        }
    }
    panic!("nothing made {missing:?} speak: {seen:?}");
}
