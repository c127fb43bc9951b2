//! Measures the cost of the executor, in nanoseconds:
//!
//! - for one suspend, wake and resume of a task, by the kind of wake and the number of tasks;
//! - for spawning and joining a task;
//! - for `block_on` around a future that is ready at once.
//!
//! Run with `cargo run --release -p sherman-executor -F measure --example overhead`. Each figure is the
//! best of seven windows.

use sherman_executor::{Driver, LocalExecutor, Timers, block_on};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::hint::black_box;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

const WINDOWS: usize = 7;

/// Delivers one completion for each task that waits for one, as a completion queue would.
#[derive(Default)]
struct Completions {
    waiting: RefCell<Vec<Waker>>,
}

impl Driver for Completions {
    fn progress(&self) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        let any = !waiting.is_empty();
        waiting.drain(..).for_each(Waker::wake);
        any
    }

    fn idle_for(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

/// The nanoseconds per operation of the best window. Each window runs `operations` operations.
fn best(operations: usize, mut window: impl FnMut()) -> f64 {
    (0..WINDOWS)
        .map(|_| {
            let start = Instant::now();
            window();
            start.elapsed().as_secs_f64() * 1e9 / operations as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// Lets every task suspend `rounds` times; `suspend` makes sure that the task is woken again.
fn suspensions(tasks: usize, rounds: usize, suspend: impl Fn(&Completions, &Waker) + Clone + 'static) -> f64 {
    let executor = LocalExecutor::new();
    let driver = Rc::new(Completions::default());
    best(tasks * rounds, || {
        for _ in 0..tasks {
            let (driver, suspend, left) = (Rc::clone(&driver), suspend.clone(), Cell::new(rounds));
            drop(executor.spawn(poll_fn(move |cx| {
                if left.get() == 0 {
                    return Poll::Ready(());
                }
                left.set(left.get() - 1);
                suspend(&driver, cx.waker());
                Poll::Pending
            })));
        }
        assert_eq!(executor.drain(&*driver, || false), 0);
    })
}

fn spawn_and_join(tasks: usize) -> f64 {
    let executor = LocalExecutor::new();
    let driver = Completions::default();
    let mut handles = Vec::with_capacity(tasks);
    best(tasks * 100, || {
        for _ in 0..100 {
            handles.extend((0..tasks as u64).map(|n| executor.spawn(async move { n })));
            executor.run_until(&driver, async {
                for handle in handles.drain(..) {
                    black_box(handle.await).expect("the executor is alive");
                }
            });
        }
    })
}

fn main() {
    println!("suspend, wake, resume (ns)   self-wake   kept waker");
    for tasks in [1, 8, 64, 256, 1024] {
        let rounds = 400_000 / tasks;
        let own = suspensions(tasks, rounds, |_, waker| waker.wake_by_ref());
        let kept =
            suspensions(tasks, rounds, |driver, waker| driver.waiting.borrow_mut().push(waker.clone()));
        println!("  {tasks:>5} tasks               {own:>9.1}   {kept:>9.1}");
    }
    println!("spawn, run, join (ns)");
    for tasks in [1, 64, 1024] {
        println!("  {tasks:>5} tasks               {:>9.1}", spawn_and_join(tasks));
    }

    let driver = Completions::default();
    let ready = best(1_000_000, || {
        (0..1_000_000u64).for_each(|n| assert_eq!(block_on(&driver, async { black_box(n) }), n))
    });
    let bare = best(1_000_000, || (0..1_000_000u64).for_each(|n| assert_eq!(black_box(n), n)));
    println!("block_on, ready at once (ns) {ready:>9.1}   (the same loop without it {bare:.1})");

    let timers = Timers::new();
    let waker = Waker::noop();
    let again = best(1_000_000, || (0..1_000_000u64).for_each(|_| timers.insert(black_box(7), waker)));
    println!("timers, asked again (ns)     {again:>9.1}");
}
