use super::scripted::Scripted;
use super::*;
use crate::table::{CopySite, VolumeEntry};
use sherman_fabric::{Progress, Roles, VerbId, execute};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

/// Copies 0 and 3 are volume 0, copies 2, 1 and 4 are volume 1; copy 5 is volume 2 alone.
fn replicated() -> ReplicatedEndpoint<Scripted> {
    let entry = |primary, backup, joining| VolumeEntry { primary, backup, joining, open: true };
    let volumes = vec![
        entry(Some(0), Some(3), None),
        entry(Some(2), Some(1), Some(4)),
        entry(Some(5), None, None),
        entry(None, None, None),
    ];
    let volumes = volumes.into_iter().map(|entry| VolumeEntry { open: entry.primary.is_some(), ..entry });
    let sites = (0..6).map(|host| CopySite { host, incarnation: 0 }).collect();
    let table = VolumeTable::new(1, sites, volumes.collect()).expect("a legal table");
    ReplicatedEndpoint::new(Scripted::new(6), Arc::new(table), LaneTable::OnChip).expect("all copies exist")
}

/// The list of an update: a line, and the release of a lane.
fn update(endpoint: &impl Endpoint, volume: u16) -> WorkList {
    let mut list = endpoint.list(volume);
    list.write(Space::Host, 64, &7_u64.to_le_bytes());
    list.write(Space::OnChip, 2, &[0; 2]);
    list
}

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll(endpoint: &impl Endpoint, ticket: Ticket) -> Poll<Result<WorkList, FabricError>> {
    endpoint.poll(ticket, &mut Context::from_waker(Waker::noop()))
}

fn roles(roles: &[Role]) -> Roles {
    roles.iter().fold(Roles::NONE, |set, &role| set.with(role))
}

fn failed(server: u16, done: &[Role], failed: &[Role]) -> Poll<Result<WorkList, FabricError>> {
    let progress = Progress { done: roles(done), failed: roles(failed) };
    Poll::Ready(Err(FabricError::CopyFailed { server, progress }))
}

/// Compares outcomes: lists have no equality.
fn expect(found: Poll<Result<WorkList, FabricError>>, wanted: Poll<Result<WorkList, FabricError>>) {
    assert_eq!(format!("{found:?}"), format!("{wanted:?}"));
}

#[test]
fn the_primary_gets_its_list_when_the_backup_has_completed_its_own() {
    let endpoint = replicated();
    let ticket = endpoint.post(update(&endpoint, 0));
    assert_eq!(endpoint.inner().posted(), [3], "backup first");
    assert!(poll(&endpoint, ticket).is_pending());
    endpoint.inner().complete(3);
    assert!(endpoint.inner().posted().is_empty());
    assert!(poll(&endpoint, ticket).is_pending());
    assert_eq!(endpoint.inner().posted(), [0]);
    endpoint.inner().complete(0);
    let Poll::Ready(Ok(list)) = poll(&endpoint, ticket) else { panic!("it is complete") };
    assert_eq!((list.server(), list.len()), (0, 2));
    let log = endpoint.inner().log.take();
    assert_eq!(log, ["3: WRITE 64", "0: WRITE 64", "0: WRITE 2"], "the backup has no lanes");
    assert!(matches!(poll(&endpoint, ticket), Poll::Ready(Err(_))), "a ticket is good once");
}

#[test]
fn backup_and_joining_copy_get_theirs_together_and_the_primary_waits_for_both() {
    let endpoint = replicated();
    let ticket = endpoint.post(update(&endpoint, 1));
    assert_eq!(endpoint.inner().posted(), [1, 4]);
    endpoint.inner().complete(4);
    assert!(poll(&endpoint, ticket).is_pending());
    assert_eq!(endpoint.inner().posted(), [1]);
    endpoint.inner().complete(1);
    assert!(poll(&endpoint, ticket).is_pending());
    endpoint.inner().complete(2);
    assert!(matches!(poll(&endpoint, ticket), Poll::Ready(Ok(list)) if list.server() == 1));
}

#[test]
fn lists_without_data_go_to_the_primary_alone() {
    let endpoint = replicated();
    let mut list = endpoint.list(0);
    list.masked_cas(Space::OnChip, 0, 0, 1, 0xffff);
    let read = list.read(Space::Host, 64, 8);
    list.faa(Space::OnChip, 8, 1);
    endpoint.inner().set_word(0, Space::Host, 64, 99);
    let ticket = endpoint.post(list);
    assert_eq!(endpoint.inner().posted(), [0]);
    endpoint.inner().complete(0);
    let Poll::Ready(Ok(list)) = poll(&endpoint, ticket) else { panic!("it is complete") };
    assert_eq!(list.bytes(read)[0], 99);
    // A volume with one copy, whose number is another than the copy's.
    let ticket = endpoint.post(update(&endpoint, 2));
    assert_eq!(endpoint.inner().posted(), [5]);
    endpoint.inner().complete(5);
    assert!(matches!(poll(&endpoint, ticket), Poll::Ready(Ok(list)) if list.server() == 2));
}

#[test]
fn lanes_in_host_memory_are_at_the_primary_alone() {
    let endpoint = replicated();
    let lanes = LaneTable::Host { offset: 64, bytes: 64 };
    let endpoint = ReplicatedEndpoint::new(Scripted::new(6), Arc::clone(endpoint.table()), lanes);
    let endpoint = endpoint.expect("all copies exist");
    let mut list = endpoint.list(0);
    for offset in [56, 64, 120, 128] {
        list.write(Space::Host, offset, &[1; 8]);
    }
    endpoint.inner().inline.set(true);
    let ticket = endpoint.post(list);
    assert!(matches!(poll(&endpoint, ticket), Poll::Ready(Ok(_))));
    let log = endpoint.inner().log.take();
    assert_eq!(&log[..2], ["3: WRITE 56", "3: WRITE 128"]);
    assert_eq!(&log[2..], ["0: WRITE 56", "0: WRITE 64", "0: WRITE 120", "0: WRITE 128"]);
}

fn swap(endpoint: &impl Endpoint) -> (WorkList, VerbId) {
    let mut list = endpoint.list(0);
    list.write(Space::Host, 128, &[9; 8]);
    let cas = list.cas(Space::Host, 64, 10, 11);
    (list, cas)
}

#[test]
fn a_root_word_changes_at_the_backup_first() {
    let endpoint = replicated();
    endpoint.inner().inline.set(true);
    for copy in [0, 3] {
        endpoint.inner().set_word(copy, Space::Host, 64, 10);
    }
    let (list, cas) = swap(&endpoint);
    let ticket = endpoint.post(list);
    let Poll::Ready(Ok(list)) = poll(&endpoint, ticket) else { panic!("it is complete") };
    assert!(list.swapped(cas));
    assert_eq!([0, 3].map(|copy| endpoint.inner().word(copy, Space::Host, 64)), [11, 11]);
    let log = endpoint.inner().log.take();
    assert_eq!(log, ["3: WRITE 128", "3: CAS 64", "0: WRITE 128", "0: CAS 64"]);
}

#[test]
fn a_cas_that_the_backup_refuses_ends_its_list() {
    let endpoint = replicated();
    endpoint.inner().inline.set(true);
    endpoint.inner().set_word(0, Space::Host, 64, 10);
    endpoint.inner().set_word(3, Space::Host, 64, 12);
    let (list, cas) = swap(&endpoint);
    let ticket = endpoint.post(list);
    let Poll::Ready(Ok(list)) = poll(&endpoint, ticket) else { panic!("it is complete") };
    assert_eq!((list.swapped(cas), list.old(cas), list.server()), (false, 12, 0));
    assert_eq!(endpoint.inner().word(0, Space::Host, 64), 10, "nothing was posted to the primary");
    assert_eq!(endpoint.inner().log.take(), ["3: WRITE 128", "3: CAS 64"]);
}

#[test]
fn a_list_executes_although_nobody_polls_it() {
    // Not polled, forgotten before the first half completes, forgotten after it.
    for forget in [None, Some(false), Some(true)] {
        let endpoint = replicated();
        let ticket = endpoint.post(update(&endpoint, 0));
        if forget == Some(false) {
            endpoint.forget(ticket);
        }
        endpoint.inner().complete(3);
        if forget == Some(true) {
            endpoint.forget(ticket);
        }
        endpoint.progress();
        assert_eq!(endpoint.inner().posted(), [0]);
        endpoint.inner().complete(0);
        assert_eq!(endpoint.inner().word(0, Space::Host, 64), 7);
        assert_eq!(poll(&endpoint, ticket).map(|done| done.is_ok()), Poll::Ready(forget.is_none()));
        assert!(endpoint.state.borrow().halves.is_empty());
    }
}

#[test]
fn the_task_that_waits_is_woken_for_both_halves() {
    let endpoint = replicated();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    let ticket = endpoint.post(update(&endpoint, 0));
    assert!(endpoint.poll(ticket, &mut cx).is_pending());
    endpoint.inner().complete(3);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    // Another task's work posts the second half. The waiting task must watch that one now.
    endpoint.progress();
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    assert!(endpoint.poll(ticket, &mut cx).is_pending());
    endpoint.inner().complete(0);
    assert_eq!(woken.0.load(Ordering::Relaxed), 3);
    assert!(endpoint.poll(ticket, &mut cx).is_ready());
}

#[test]
fn an_error_says_how_far_the_list_got() {
    use Role::{Backup, Joining, Primary};
    for executes in [false, true] {
        // The backup fails: nothing is posted to the primary.
        let endpoint = replicated();
        endpoint.inner().inline.set(true);
        endpoint.inner().broken.borrow_mut().insert(3, executes);
        let ticket = endpoint.post(update(&endpoint, 0));
        expect(poll(&endpoint, ticket), failed(0, &[], &[Backup]));
        assert_eq!(endpoint.inner().word(0, Space::Host, 64), 0);
        assert!(endpoint.refuses(0) && !endpoint.refuses(2));
        // The primary fails.
        let endpoint = replicated();
        endpoint.inner().inline.set(true);
        endpoint.inner().broken.borrow_mut().insert(0, executes);
        let ticket = endpoint.post(update(&endpoint, 0));
        expect(poll(&endpoint, ticket), failed(0, &[Backup], &[Primary]));
        // A READ says only that the volume cannot be reached.
        let mut list = endpoint.list(0);
        list.read(Space::Host, 0, 8);
        let ticket = endpoint.post(list);
        expect(poll(&endpoint, ticket), Poll::Ready(Err(FabricError::Disconnected { server: 0 })));
        // One of two parts of the first half fails, and the other is waited for.
        let endpoint = replicated();
        endpoint.inner().broken.borrow_mut().insert(4, executes);
        let ticket = endpoint.post(update(&endpoint, 1));
        endpoint.inner().complete(4);
        assert!(poll(&endpoint, ticket).is_pending());
        endpoint.inner().complete(1);
        expect(poll(&endpoint, ticket), failed(1, &[Backup], &[Joining]));
        assert!(endpoint.inner().posted().is_empty());
    }
}

#[test]
fn one_copy_can_be_reached_alone() {
    let endpoint = replicated();
    endpoint.inner().inline.set(true);
    for (role, copy) in [(Role::Primary, 2), (Role::Backup, 1), (Role::Joining, 4)] {
        let mut list = update(&endpoint, 1);
        list.set_reach(Reach::Only(role));
        assert_eq!(endpoint.cost(&list), list.tally());
        let ticket = endpoint.post(list);
        assert!(matches!(poll(&endpoint, ticket), Poll::Ready(Ok(list)) if list.server() == 1));
        assert_eq!(endpoint.inner().log.take(), [format!("{copy}: WRITE 64"), format!("{copy}: WRITE 2")]);
    }
    let mut list = update(&endpoint, 0);
    list.set_reach(Reach::Only(Role::Joining));
    let ticket = endpoint.post(list);
    assert!(matches!(poll(&endpoint, ticket), Poll::Ready(Err(FabricError::Unsupported { .. }))));
}

#[test]
fn bad_volumes_give_typed_errors() {
    let endpoint = replicated();
    let ticket = endpoint.post(update(&endpoint, 3));
    expect(poll(&endpoint, ticket), Poll::Ready(Err(FabricError::VolumeLost { volume: 3 })));
    let ticket = endpoint.post(update(&endpoint, 9));
    expect(poll(&endpoint, ticket), Poll::Ready(Err(FabricError::NoSuchServer { server: 9 })));
    let mut cx = Context::from_waker(Waker::noop());
    let ticket = endpoint.call(Peer::Volume(9), Request::Usage);
    assert_eq!(
        endpoint.poll_call(ticket, &mut cx),
        Poll::Ready(Err(FabricError::NoSuchServer { server: 9 }))
    );
    let table = Arc::clone(endpoint.table());
    let few = ReplicatedEndpoint::new(Scripted::new(3), table, LaneTable::OnChip);
    assert_eq!(few.err(), Some(FabricError::NoSuchServer { server: 3 }));
}

#[test]
fn calls_go_to_the_primary_or_to_control() {
    let endpoint = replicated();
    let mut cx = Context::from_waker(Waker::noop());
    let ticket = endpoint.call(Peer::Volume(1), Request::Usage);
    assert_eq!(
        endpoint.poll_call(ticket, &mut cx),
        Poll::Ready(Ok(Response::Joined { client: ComputeId(2) }))
    );
    let ticket = endpoint.call(Peer::Control, Request::Renew);
    assert_eq!(
        endpoint.poll_call(ticket, &mut cx),
        Poll::Ready(Ok(Response::Joined { client: ComputeId(0) }))
    );
    endpoint.inner().broken.borrow_mut().insert(2, false);
    let ticket = endpoint.call(Peer::Volume(1), Request::Usage);
    assert_eq!(
        endpoint.poll_call(ticket, &mut cx),
        Poll::Ready(Err(FabricError::Disconnected { server: 1 }))
    );
}

/// Runs a list to its end on a backend that executes inside `post`.
fn run(endpoint: &impl Endpoint, list: WorkList) -> WorkList {
    let counters = Counters::default();
    let mut list = pin!(execute(endpoint, list, &counters));
    match list.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(list)) => list,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_update_costs_three_round_trips_and_its_bytes_twice() {
    let endpoint = replicated();
    endpoint.inner().inline.set(true);
    let mut lock = endpoint.list(0);
    lock.masked_cas(Space::OnChip, 0, 0, 1, 0xffff);
    lock.read(Space::Host, 64, 8);
    run(&endpoint, lock);
    run(&endpoint, update(&endpoint, 0));
    let tally = endpoint.counters().read();
    assert_eq!((tally.round_trips, tally.reads, tally.atomics), (3, 1, 1));
    assert_eq!((tally.writes, tally.bytes_written), (3, 8 + 8 + 2));
    let (swap, _) = swap(&endpoint);
    assert_eq!((endpoint.cost(&swap).round_trips, endpoint.cost(&swap).atomics), (2, 2));
}

#[test]
fn without_replication_everything_passes_through() {
    let table = Arc::new(VolumeTable::single(2));
    let endpoint = ReplicatedEndpoint::new(Scripted::new(2), table, LaneTable::OnChip).expect("two copies");
    let plain = Scripted::new(2);
    let post = |endpoint: &dyn Fn(WorkList) -> Ticket, list| endpoint(list);
    for volume in [1, 0] {
        let ticket = post(&|list| endpoint.post(list), update(&endpoint, volume));
        assert_eq!(
            ticket,
            post(&|list| plain.post(list), update(&plain, volume)),
            "the backend's own ticket"
        );
        for backend in [endpoint.inner(), &plain] {
            backend.complete(volume);
        }
        let [found, wanted] = [poll(&endpoint, ticket), poll(&plain, ticket)];
        expect(found, wanted);
        assert_eq!(endpoint.cost(&update(&endpoint, volume)), plain.cost(&update(&plain, volume)));
    }
    assert_eq!(endpoint.inner().log.take(), plain.log.take());
    assert!(endpoint.state.borrow().halves.is_empty());
}
