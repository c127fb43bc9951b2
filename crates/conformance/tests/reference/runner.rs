//! Runs participants on one thread, in an order that depends on a seed.

use super::bug::Bug;
use super::endpoint::SeededEndpoint;
use super::world::World;
use sherman_conformance::contract::{Breach, Harness, Participant, Patience, Scratch};
use sherman_fabric::{Caps, ComputeId};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// The harness of the seeded backend.
pub struct Seeded {
    pub bug: Bug,
    pub caps: Caps,
    pub servers: u16,
    pub rounds: u32,
    pub runs: u32,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Task {
    body: Pin<Box<dyn Future<Output = Result<(), Breach>>>>,
    woken: Arc<Flag>,
}

impl Harness for Seeded {
    type Endpoint = SeededEndpoint;

    fn scratch(&self) -> Scratch {
        super::scratch(&self.caps, self.servers)
    }

    fn rounds(&self) -> u32 {
        self.rounds
    }

    fn runs(&self) -> u32 {
        self.runs
    }

    fn patience(&self) -> Patience {
        Patience { nanos: 20_000_000, polls: 1_000_000 }
    }

    fn run(&self, seed: u64, participants: Vec<Participant<SeededEndpoint>>) -> Result<(), Breach> {
        let world = Rc::new(RefCell::new(World::new(seed, self.bug, self.caps.clone(), self.servers)));
        let start = |participant: Participant<SeededEndpoint>| {
            let client = ComputeId(participant.group() as u16 + 1);
            let endpoint = Rc::new(SeededEndpoint::new(&world, client));
            Task { body: participant.start(endpoint), woken: Arc::new(Flag(AtomicBool::new(true))) }
        };
        let mut tasks: Vec<Task> = participants.into_iter().map(start).collect();
        let mut first = Ok(());
        while !tasks.is_empty() {
            let ready: Vec<usize> =
                (0..tasks.len()).filter(|&task| tasks[task].woken.0.load(Ordering::Relaxed)).collect();
            let choice = world.borrow_mut().rng.usize(..ready.len() + 1);
            if let Some(&task) = ready.get(choice) {
                let Task { body, woken } = &mut tasks[task];
                woken.0.store(false, Ordering::Relaxed);
                let waker = Waker::from(Arc::clone(woken));
                if let Poll::Ready(result) = body.as_mut().poll(&mut Context::from_waker(&waker)) {
                    first = first.and(result);
                    drop(tasks.swap_remove(task));
                }
            } else {
                let mut world = world.borrow_mut();
                if !world.step() && ready.is_empty() {
                    let next = world.timers.iter().map(|timer| timer.0).min();
                    world.now = world.now.max(next.expect("participants tick while they wait"));
                }
                world.fire_timers();
            }
        }
        first
    }
}
