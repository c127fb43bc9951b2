//! F4 and completion: lanes share words without disturbing each other, and later READs see completed WRITEs.

use crate::common::{SCRATCH, cluster, read_word, run, write};
use sherman_embedded::EmbeddedEndpoint;
use sherman_fabric::{Endpoint, Space, WorkList};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

/// Long enough for threads to overlap on a machine with fewer cores than threads.
const ROUNDS: u64 = if cfg!(miri) { 10 } else { 300_000 };

/// Threads take and release 16-bit lanes of one word by masked CAS and plain WRITE. Each thread has its own
/// lane.
fn lanes_of_one_word(space: Space, offset: u64) {
    let cluster = cluster(1);
    let fabric = cluster.join().unwrap();
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for lane in 0..3u64 {
            let (fabric, start) = (&fabric, &start);
            scope.spawn(move || {
                let endpoint = fabric.endpoint();
                start.wait();
                let (shift, mask) = (16 * lane, 0xffff << (16 * lane));
                for round in 1..=ROUNDS {
                    let owner = round % 1000 + 1;
                    let mut list = endpoint.list(0);
                    let take = list.masked_cas(space, offset, 0, owner << shift, mask);
                    let look = list.read(space, offset + 2 * lane, 2);
                    let list = run(&endpoint, list).unwrap();
                    assert!(list.swapped(take), "another client changed lane {lane}: {:#x}", list.old(take));
                    assert_eq!(list.bytes(look), (owner as u16).to_le_bytes());
                    endpoint.recycle(list);
                    write(&endpoint, space, offset + 2 * lane, &[0, 0]).unwrap();
                }
            });
        }
        let endpoint = fabric.endpoint();
        start.wait();
        for round in 1..=ROUNDS {
            let mut list = endpoint.list(0);
            let add = list.faa(space, offset, 1 << 48);
            let list = run(&endpoint, list).unwrap();
            assert_eq!(list.old(add) >> 48, (round - 1) & 0xffff);
            endpoint.recycle(list);
        }
    });
    let endpoint = fabric.endpoint();
    assert_eq!(read_word(&endpoint, space, offset), Ok((ROUNDS & 0xffff) << 48));
}

#[test]
fn lanes_of_an_on_chip_word_do_not_lose_each_other() {
    lanes_of_one_word(Space::OnChip, 64);
}

#[test]
fn lanes_of_a_host_word_do_not_lose_each_other() {
    lanes_of_one_word(Space::Host, SCRATCH + 8);
}

fn finish(endpoint: &EmbeddedEndpoint, list: WorkList) -> WorkList {
    let ticket = endpoint.post(list);
    match endpoint.poll(ticket, &mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done.unwrap(),
        Poll::Pending => panic!("verbs finish inline"),
    }
}

/// Each of two endpoints writes its own word and then reads the other's. At least one must see the other's
/// WRITE.
fn one_of_two_sees_the_other(one_list: bool) {
    let cluster = cluster(1);
    let fabric = cluster.join().unwrap();
    // Far apart, so that not even their sequence words share a cache line.
    let words = [SCRATCH, SCRATCH + SCRATCH / 2];
    let seen = [AtomicU64::new(0), AtomicU64::new(0)];
    let turns = [AtomicU64::new(0), AtomicU64::new(0)];
    let meet = |me: usize, turn: u64| {
        turns[me].store(turn, Ordering::SeqCst);
        let mut spins = 0;
        while turns[1 - me].load(Ordering::SeqCst) < turn {
            spins += 1;
            if cfg!(miri) || spins > 200 {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    };
    let play = |me: usize| {
        let endpoint = fabric.endpoint();
        for round in 1..=ROUNDS {
            let mut list = endpoint.list(0);
            list.write(Space::Host, words[me], &round.to_le_bytes());
            let mut look = endpoint.list(0);
            let read = if one_list { &mut list } else { &mut look }.read(Space::Host, words[1 - me], 8);
            meet(me, 2 * round - 1);
            // The thread that arrives last at the meeting leaves it first. The loop gives both threads many
            // different head starts.
            (0..round * [7, 11][me] % 512).for_each(|i| _ = std::hint::black_box(i));
            // Posted and polled directly, so that the two lists follow each other as closely as possible.
            let mut done = finish(&endpoint, list);
            if !one_list {
                endpoint.recycle(std::mem::replace(&mut done, finish(&endpoint, look)));
            }
            let other = u64::from_le_bytes(done.bytes(read).try_into().unwrap());
            endpoint.recycle(done);
            seen[me].store(other, Ordering::SeqCst);
            meet(me, 2 * round);
            let other = seen.each_ref().map(|word| word.load(Ordering::SeqCst));
            assert!(other.contains(&round), "round {round}: both missed the other's WRITE: {other:?}");
        }
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| play(1));
        play(0);
        other.join().unwrap();
    });
}

#[test]
fn a_completed_write_is_seen_by_every_later_read() {
    one_of_two_sees_the_other(false);
}

#[test]
fn a_write_is_done_before_the_next_read_of_its_list() {
    one_of_two_sees_the_other(true);
}
