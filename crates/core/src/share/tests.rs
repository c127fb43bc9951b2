use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Poll, Wake};

/// Counts its wakes.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A get that waits, with its own waker and buffer.
struct Waiting<'t> {
    share: Share<'t>,
    bell: Arc<Bell>,
    bytes: Vec<u8>,
}

impl<'t> Waiting<'t> {
    /// Asks, and must wait.
    fn new(table: &'t SharedReads, lines: LineRange) -> Self {
        let mut waiting = Self { share: table.share(lines), bell: Arc::default(), bytes: Vec::new() };
        assert!(waiting.poll().is_pending());
        waiting
    }

    fn poll(&mut self) -> Poll<SharedTurn<'t>> {
        self.share.poll(&Waker::from(Arc::clone(&self.bell)), &mut self.bytes)
    }

    fn wakes(&self) -> usize {
        self.bell.0.load(Ordering::Relaxed)
    }

    /// It was woken once, to post the READ.
    fn post(&mut self) -> Posting<'t> {
        assert_eq!(self.wakes(), 1);
        match self.poll() {
            Poll::Ready(SharedTurn::Post(posting)) => posting,
            other => panic!("it should post: {other:?}"),
        }
    }

    /// It was woken once, and has these bytes.
    fn has(&mut self, bytes: &[u8]) {
        assert_eq!(self.wakes(), 1);
        assert!(matches!(self.poll(), Poll::Ready(SharedTurn::Read)));
        assert_eq!(self.bytes, bytes);
    }
}

fn lines(number: u64) -> LineRange {
    LineRange { first: GlobalAddress::new(0, 4096 + 64 * number), bytes: 256 }
}

fn begin(table: &SharedReads, number: u64) -> InFlight<'_> {
    table.begin(lines(number)).expect("few READs are in flight")
}

#[test]
fn a_get_reads_alone_until_two_reads_are_in_flight() {
    let table = SharedReads::new(64);
    let (first, second) = (begin(&table, 0), begin(&table, 0));
    assert!(table.begin(lines(0)).is_none());
    drop(first);
    let third = begin(&table, 0);
    drop((second, third));
    assert!(table.is_idle());
    let off = SharedReads::new(0);
    let many: Vec<_> = (0..9).map(|_| begin(&off, 0)).collect();
    drop(many);
    assert!(off.is_idle());
}

#[test]
fn all_gets_that_wait_when_the_next_read_is_posted_share_it_and_no_later_one_does() {
    let table = SharedReads::new(64);
    let (first, second) = (begin(&table, 0), begin(&table, 0));
    let mut waiting = [(); 3].map(|()| Waiting::new(&table, lines(0)));
    drop(first);
    // The poster is named, but has not posted: a get may still join.
    let mut last = Waiting::new(&table, lines(0));
    let posting = waiting[0].post();
    let mut late = Waiting::new(&table, lines(0));
    posting.deliver(b"new");
    waiting[1].has(b"new");
    waiting[2].has(b"new");
    last.has(b"new");
    // The end of that READ names the late get.
    assert_eq!(waiting[0].wakes(), 1);
    late.post().deliver(b"newer");
    drop(second);
    assert!(table.is_idle());
}

#[test]
fn a_get_that_finds_fewer_reads_when_it_asks_posts_at_once() {
    let table = SharedReads::new(64);
    let mut share = table.share(lines(0));
    let turn = share.poll(Waker::noop(), &mut Vec::new());
    assert!(matches!(turn, Poll::Ready(SharedTurn::Post(_))));
    drop(turn);
    assert!(table.is_idle());
}

#[test]
fn a_poster_that_gives_up_before_it_posts_names_the_next_waiter() {
    let table = SharedReads::new(64);
    let (first, second) = (begin(&table, 0), begin(&table, 0));
    let [one, mut two, three] = [(); 3].map(|()| Waiting::new(&table, lines(0)));
    drop(first);
    assert_eq!(one.wakes(), 1);
    drop((one, three));
    let posting = two.post();
    drop(second);
    posting.deliver(b"x");
    assert!(table.is_idle());
    // The last one that waits leaves nothing behind.
    let (first, second) = (begin(&table, 0), begin(&table, 0));
    let only = Waiting::new(&table, lines(0));
    drop(first);
    drop(only);
    drop(second);
    assert!(table.is_idle());
}

#[test]
fn the_waiters_of_a_read_that_fails_post_their_own() {
    let table = SharedReads::new(64);
    let (first, second) = (begin(&table, 0), begin(&table, 0));
    let [mut one, mut two, mut three] = [(); 3].map(|()| Waiting::new(&table, lines(0)));
    drop((first, second));
    drop(one.post());
    for waiting in [&mut two, &mut three] {
        assert_eq!(waiting.wakes(), 1);
        assert!(matches!(waiting.poll(), Poll::Ready(SharedTurn::Failed)));
    }
    assert!(table.is_idle());
}

#[test]
fn windows_that_share_a_slot_never_share_bytes_and_none_starves() {
    let table = SharedReads::new(1);
    let (first, second) = (begin(&table, 0), begin(&table, 1));
    let [mut one, mut two] = [0, 1].map(|number| Waiting::new(&table, lines(number)));
    let mut three = Waiting::new(&table, lines(0));
    drop(first);
    let posting = one.post();
    assert_eq!(two.wakes(), 0);
    drop(second);
    two.post().deliver(b"1");
    posting.deliver(b"0");
    three.has(b"0");
    assert!(table.is_idle());
}

#[test]
fn a_waiter_that_leaves_after_the_bytes_came_leaves_nothing() {
    let table = SharedReads::new(64);
    let (first, second) = (begin(&table, 0), begin(&table, 0));
    let [mut one, two, three] = [(); 3].map(|()| Waiting::new(&table, lines(0)));
    drop((first, second));
    let posting = one.post();
    drop(two);
    posting.deliver(b"x");
    table.wake_all();
    assert_eq!(three.wakes(), 1);
    assert!(!table.is_idle());
    drop(three);
    assert!(table.is_idle());
}
