use super::*;
use crate::{Cluster, TreeOptions};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use std::task::{Wake, Waker};

fn tree() -> crate::Tree<u64, u64> {
    Cluster::open("embedded:?memory=64MiB").expect("a cluster").tree("t").expect("a tree")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}

/// Makes operations wait until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Drop for Gate {
    /// A failing test must not block its workers.
    fn drop(&mut self) {
        self.open();
    }
}

impl Gate {
    fn open(&self) {
        let waiting = {
            let mut gate = self.0.lock().expect("not poisoned");
            gate.0 = true;
            std::mem::take(&mut gate.1)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    async fn pass(&self) {
        poll_fn(|cx| {
            let mut gate = self.0.lock().expect("not poisoned");
            if gate.0 {
                return Poll::Ready(());
            }
            gate.1.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Whether an operation waits at the gate.
    fn is_besieged(&self) -> bool {
        !self.0.lock().expect("not poisoned").1.is_empty()
    }
}

/// An operation that occupies a worker until the gate opens.
fn occupy(handle: &Handle<u64, u64>, gate: &Gate) -> Queued<()> {
    let at = gate.clone();
    let blocked = handle.queue(async move |_| {
        at.pass().await;
        Ok(())
    });
    wait_until(|| gate.is_besieged());
    blocked
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn wait_until(done: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(std::time::Instant::now() < end, "it never happened");
        std::thread::yield_now();
    }
}

#[test]
fn handles_and_their_futures_go_anywhere() {
    fn goes_anywhere<T: Send + Sync + Clone + 'static>(_: &T) {}
    fn can_be_spawned<T: Send + 'static>(_: &T) {}
    let handle = tree().handle().expect("a handle");
    goes_anywhere(&handle);
    can_be_spawned(&handle.get(1));
    can_be_spawned(&handle.insert(1, 2));
}

#[test]
fn thousands_of_tasks_share_a_handle() {
    const TASKS: u64 = 4_000;
    let tree = tree();
    let handle =
        tree.handle_with(&HandleOptions::new().threads(2).queue(64).in_flight(16)).expect("a handle");
    runtime().block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|key| {
                let handle = handle.clone();
                tokio::spawn(async move {
                    assert_eq!(handle.insert(key, key * 2).await, Ok(None));
                    assert_eq!(handle.get(key).await, Ok(Some(key * 2)));
                    // All tasks write this key.
                    handle.insert(TASKS, key).await.map(|_| ())
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.expect("no panic"), Ok(()));
        }
    });
    let stats = handle.stats();
    assert_eq!(stats.kind(crate::OpKind::Get).operations, TASKS);
    assert_eq!(stats.kind(crate::OpKind::Insert).operations, TASKS + 1);
    assert_eq!(stats.kind(crate::OpKind::Update).operations, TASKS - 1);
    drop(handle);
    assert_eq!(tree.walk().expect("a sound tree").entries.len() as u64, TASKS + 1);
}

#[test]
fn a_full_queue_makes_its_callers_wait_in_order() {
    let tree = tree();
    let options = HandleOptions::new().queue(2).in_flight(1);
    let handle = tree.handle_with(&options).expect("a handle");
    let gate = Gate::default();
    let blocked = occupy(&handle, &gate);
    let mut inserts: Vec<_> = (0..6_u64).map(|key| handle.insert(key, key)).collect();
    assert_eq!(handle.workers.queue.len(), (2, 4), "operations start with the call");
    // Insert 1 was accepted, so dropping it detaches it. Insert 3 still waits, so dropping it withdraws it.
    drop(inserts.remove(3));
    drop(inserts.remove(1));
    assert_eq!(handle.workers.queue.len(), (2, 3));
    gate.open();
    runtime().block_on(async {
        assert_eq!(blocked.await, Ok(()));
        for insert in inserts {
            assert_eq!(insert.await, Ok(None));
        }
        let mut found = Vec::new();
        for key in 0..6 {
            found.push(handle.get(key).await.expect("an answer").is_some());
        }
        assert_eq!(found, [true, true, true, false, true, true]);
    });
}

#[test]
fn what_was_queued_is_done_when_the_last_handle_is_dropped() {
    let tree = tree();
    let handle = tree.handle_with(&HandleOptions::new().queue(4).in_flight(1)).expect("a handle");
    let gate = Gate::default();
    let blocked = occupy(&handle, &gate);
    // Some inserts are accepted and some wait. Some futures are dropped while the handle lives, the others
    // outlive it.
    let mut inserts: Vec<_> = (0..8_u64).map(|key| handle.insert(key, key)).collect();
    let outliving = inserts.split_off(2);
    drop(inserts);
    let (clone, queue) = (handle.clone(), Arc::clone(&handle.workers.queue));
    drop(handle);
    let dropper = std::thread::spawn(move || drop(clone));
    std::thread::sleep(Duration::from_millis(20));
    assert!(!dropper.is_finished(), "it waits for what is in flight");
    assert!(matches!(queue.push(Box::new(|_| ())), Pushed::Refused(_)), "nothing new is accepted");
    gate.open();
    dropper.join().expect("no panic");
    runtime().block_on(async {
        assert_eq!(blocked.await, Ok(()));
        for insert in outliving {
            assert_eq!(insert.await, Ok(None));
        }
    });
    assert_eq!(tree.walk().expect("a sound tree").entries.len(), 8);
}

#[test]
fn operations_fail_clearly_once_the_workers_are_gone() {
    let tree = tree();
    let handle = tree.handle_with(&HandleOptions::new().in_flight(2)).expect("a handle");
    let gate = Gate::default();
    let _blocked = occupy(&handle, &gate);
    let fatal = handle.queue::<()>(async move |_| panic!("on purpose"));
    let _queued = handle.insert(1, 1);
    gate.open();
    runtime().block_on(async {
        assert_eq!(fatal.await, Err(Error::SessionDropped), "it may have changed something");
        // The worker is ending.
        wait_until(|| poll(&mut handle.get(1)) == Poll::Ready(Err(Error::HandleClosed)));
        assert_eq!(handle.insert(2, 2).await, Err(Error::HandleClosed));
    });
}

#[test]
fn a_panic_of_the_callers_is_the_callers() {
    let tree = tree();
    let handle = tree.handle().expect("a handle");
    runtime().block_on(async {
        assert_eq!(handle.insert(1, 1).await, Ok(None));
        let update = handle.update(1, |_| panic!("on purpose"));
        let panic = tokio::spawn(update).await.expect_err("it panicked").into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
        assert_eq!(handle.get(1).await, Ok(Some(1)), "nothing was changed, and the worker lives");
        assert_eq!(handle.update(1, |value| value.map(|value| value + 2)).await, Ok(Some(1)));
        assert_eq!(handle.get(1).await, Ok(Some(3)));
    });
}

#[test]
fn a_worker_may_drop_the_last_handle_itself() {
    struct Owner(Mutex<Option<RawHandle>>, AtomicUsize);
    impl Wake for Owner {
        fn wake(self: Arc<Self>) {
            let handle = self.0.lock().expect("not poisoned").take();
            drop(handle);
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let tree = Cluster::open("embedded:?memory=64MiB").expect("a cluster").raw_tree("t", &TreeOptions::new());
    let handle = tree.expect("a tree").handle().expect("a handle");
    let gate = Gate::default();
    let at = gate.clone();
    let mut operation = pin!(handle.queue(async move |_| {
        at.pass().await;
        Ok(7)
    }));
    let owner = Arc::new(Owner(Mutex::new(Some(handle)), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&owner));
    assert!(operation.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    gate.open();
    wait_until(|| owner.1.load(Ordering::SeqCst) == 1);
    assert_eq!(operation.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(7)));
}

#[cfg(target_os = "linux")]
#[test]
fn workers_with_nothing_to_do_take_no_time() {
    /// Clock ticks used by threads with this name.
    fn ticks(name: &str) -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
        let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
        let of_name = stats.filter(|stat| stat.contains(&format!("({name})")));
        of_name
            .map(|stat| stat.split(' ').skip(13).take(2).map(|field| field.parse().unwrap_or(0)).sum::<u64>())
            .sum()
    }
    let tree = tree();
    // With twelve threads, the last one has a name that no other test uses.
    let handle = tree.handle_with(&HandleOptions::new().threads(12)).expect("a handle");
    runtime().block_on(handle.insert(1, 1)).expect("room");
    std::thread::sleep(Duration::from_millis(50));
    let before = ticks("sherman-11");
    std::thread::sleep(Duration::from_millis(300));
    assert!(ticks("sherman-11") - before <= 1, "an idle worker ran");
}

#[test]
fn a_handle_has_its_own_deadline() {
    let handle = tree().handle().expect("a handle");
    let quick = handle.within(Duration::from_millis(3));
    assert_eq!((quick.timeout(), handle.timeout()), (Duration::from_millis(3), Duration::from_secs(10)));
    assert_eq!(runtime().block_on(quick.insert(1, 1)), Ok(None));
}
