//! Explores interleavings of threads of one compute server that share READs.
//!
//! The memory is one counter, which only grows. A READ loads it. A get that began when the counter had a
//! value must return that value or a later one (I52). Under loom a park has no time-out, so a waiter that no
//! thread tells about its round is a deadlock, which loom reports.
//!
//! Loom runs all threads of a model as coroutines. So a test can also plant a bug for all of them.

use super::*;
use loom::model::Builder;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use sherman_executor::{Driver, block_on};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

const LINES: LineRange = LineRange { first: GlobalAddress::new(0, 4096), bytes: 8 };

struct Nothing;

impl Driver for Nothing {
    fn progress(&self) -> bool {
        false
    }
    fn idle_for(&self) -> Option<Duration> {
        None
    }
}

/// A compute server, and the only lines that it reads.
struct World {
    table: SharedReads,
    memory: AtomicU64,
}

impl World {
    /// Leaked, so that threads can borrow from it. A model makes one of these.
    fn new() -> &'static Self {
        Box::leak(Box::new(Self { table: SharedReads::new(1), memory: AtomicU64::new(0) }))
    }

    fn read(&self) -> u64 {
        // Relaxed: only the table orders the READ of one thread after the beginning of another's get.
        self.memory.load(Ordering::Relaxed)
    }

    fn write(&self) {
        self.memory.fetch_add(1, Ordering::Relaxed);
    }

    fn begin(&'static self) -> InFlight<'static> {
        self.table.begin(LINES).expect("few READs are in flight")
    }

    /// Looks the lines up, by an own READ or by one that it shares.
    fn get(&'static self) {
        let began = self.read();
        let found = match self.table.begin(LINES) {
            Some(_in_flight) => self.read(),
            None => self.wait(self.table.share(LINES)),
        };
        assert!(found >= began, "began at {began}, found {found}");
    }

    /// Waits for a turn, and takes it.
    fn wait(&'static self, share: Share<'static>) -> u64 {
        match self.turn(share) {
            (SharedTurn::Post(posting), _) => {
                let found = self.read();
                posting.deliver(&found.to_le_bytes());
                found
            }
            (SharedTurn::Read, bytes) => u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
            (SharedTurn::Failed, _) => self.read(),
        }
    }

    fn finish(&'static self, share: Share<'static>) {
        self.wait(share);
    }

    fn turn(&'static self, mut share: Share<'static>) -> (SharedTurn<'static>, Vec<u8>) {
        let mut bytes = Vec::new();
        let turn = block_on(&Nothing, poll_fn(|cx| share.poll(cx.waker(), &mut bytes)));
        (turn, bytes)
    }

    /// Returns a get that waits already.
    fn waiting(&'static self) -> Share<'static> {
        let mut share = self.table.share(LINES);
        assert!(matches!(share.poll(Waker::noop(), &mut Vec::new()), Poll::Pending));
        share
    }
}

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn gets_that_arrive_while_reads_end_never_use_a_read_from_before_they_began() {
    explore(2, || {
        let world = World::new();
        let (first, second) = (world.begin(), world.begin());
        let gets = [(); 2].map(|()| thread::spawn(|| world.get()));
        world.write();
        drop(first);
        world.write();
        drop(second);
        join(gets);
        assert!(world.table.is_idle());
    });
}

#[test]
fn a_get_that_arrives_while_a_round_is_posted_waits_for_the_next() {
    explore(3, || {
        let world = World::new();
        let (first, second) = (world.begin(), world.begin());
        let poster = world.waiting();
        drop(first);
        let threads = [
            thread::spawn(move || world.finish(poster)),
            thread::spawn(|| {
                world.write();
                world.get();
            }),
        ];
        drop(second);
        join(threads);
        assert!(world.table.is_idle());
    });
}

#[test]
fn three_threads_count_their_reads_and_the_table_is_idle_at_the_end() {
    explore(2, || {
        let world = World::new();
        let gets = [(); 2].map(|()| thread::spawn(|| world.get()));
        world.write();
        world.get();
        join(gets);
        assert!(world.table.is_idle());
    });
}

#[test]
fn a_waiter_gives_up_while_it_is_named_and_the_next_is_served_all_the_same() {
    explore(3, || {
        let world = World::new();
        let (first, second) = (world.begin(), world.begin());
        let (leaver, stayer) = (world.waiting(), world.waiting());
        let threads = [thread::spawn(move || drop(leaver)), thread::spawn(move || world.finish(stayer))];
        drop(first);
        drop(second);
        join(threads);
        assert!(world.table.is_idle());
    });
}

#[test]
fn the_only_waiter_gives_up_while_reads_end() {
    explore(4, || {
        let world = World::new();
        let (first, second) = (world.begin(), world.begin());
        let leaver = world.waiting();
        let threads = [thread::spawn(move || drop(leaver)), thread::spawn(move || drop(first))];
        drop(second);
        join(threads);
        assert!(world.table.is_idle());
    });
}

#[test]
fn a_poster_gives_up_after_it_has_closed_its_round() {
    explore(3, || {
        let world = World::new();
        let (first, second) = (world.begin(), world.begin());
        let (poster, sharer) = (world.waiting(), world.waiting());
        let threads =
            [thread::spawn(move || drop(world.turn(poster))), thread::spawn(move || world.finish(sharer))];
        drop(first);
        drop(second);
        join(threads);
        assert!(world.table.is_idle());
    });
}

/// The models can fail. A deadlock, as with the planted bug `waiters-left`, aborts the process, so no test
/// expects it.
#[cfg(feature = "mutants")]
mod planted {
    use super::*;
    use crate::mutant::{Mutant, plant};

    #[test]
    #[should_panic(expected = "began at")]
    fn a_get_that_joins_a_posted_round_is_found() {
        let _planted = plant(Some(Mutant::AdoptsEarlierRead));
        a_get_that_arrives_while_a_round_is_posted_waits_for_the_next();
    }
}
