//! Measures the cost of round trips on memory that is in no cache:
//! `cargo run --release -p sherman-embedded -F measure --example round_trips`.
//!
//! Each list is filled, executed with [`execute`] and awaited under [`block_on`], as an operation of a
//! blocking client does. "Hot" uses the same nodes over and over. "Cold" uses random nodes out of a region of
//! 1 GiB (`SHERMAN_MIB` sets another size). Where a list READs, the next list depends on the bytes read, as
//! in a descent. So only the backend can overlap anything. Prints nanoseconds per list, the best and the
//! median of many windows.

use sherman_embedded::{EmbeddedCluster, EmbeddedEndpoint, EmbeddedOptions};
use sherman_executor::block_on;
use sherman_fabric::Space::{Host, OnChip};
use sherman_fabric::{Counters, Endpoint, VerbId, WorkList, execute};
use std::error::Error;
use std::time::{Duration, Instant};

const NODE: u64 = 1024;
/// The offset of the first node, behind the server's tables.
const FIRST: u64 = 16 << 20;
const WINDOWS: usize = 300;
const WINDOW: Duration = Duration::from_micros(500);
/// The number of words in the lock table that the lanes come from.
const LANE_WORDS: u64 = 32_768;

/// A random generator. The caller may make its next number depend on bytes that it has read.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

struct Bench {
    endpoint: EmbeddedEndpoint,
    counters: Counters,
    bytes: u64,
}

impl Bench {
    /// Makes one round trip with the verbs that `fill` puts into the list. Returns the last byte of its last
    /// whole-node READ, which is zero.
    fn trip(&self, fill: impl FnOnce(&mut WorkList, &mut dyn FnMut(VerbId))) -> u64 {
        let mut list = self.endpoint.list(0);
        let mut last = None;
        fill(&mut list, &mut |id| last = Some(id));
        match block_on(&self.endpoint, execute(&self.endpoint, list, &self.counters)) {
            Ok(list) => {
                let read = last.map_or(0, |id| u64::from(list.bytes(id)[NODE as usize - 1]));
                self.endpoint.recycle(list);
                read
            }
            Err(error) => panic!("a list failed: {error}"),
        }
    }

    /// Measures the nanoseconds of `operation`, once on the same few nodes and once on random nodes.
    fn row(&self, name: &str, operation: impl Fn(&Self, &mut dyn FnMut() -> u64) -> u64) {
        let nodes = (self.bytes - FIRST) / NODE;
        let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
        let hot = windows(|| {
            let mut next = 0;
            operation(self, &mut || {
                next += 1;
                FIRST + next % 8 * 5 * NODE
            })
        });
        let cold = windows(|| {
            let read = operation(self, &mut || FIRST + rng.next() % nodes * NODE);
            // The byte read is zero, but the processor must wait for it.
            rng.0 += read;
            read
        });
        println!("{name:<44} {:7.1} {:7.1}   {:7.1} {:7.1}", hot.0, hot.1, cold.0, cold.1);
    }
}

/// Returns the best and the median window.
fn windows(mut operation: impl FnMut() -> u64) -> (f64, f64) {
    let mut all = Vec::with_capacity(WINDOWS);
    for _ in 0..WINDOWS {
        let (start, mut count) = (Instant::now(), 0u32);
        while start.elapsed() < WINDOW {
            (0..50).for_each(|_| _ = std::hint::black_box(operation()));
            count += 50;
        }
        all.push(start.elapsed().as_nanos() as f64 / f64::from(count));
    }
    all.sort_unstable_by(f64::total_cmp);
    (all[0], all[WINDOWS / 2])
}

fn reads(bench: &Bench, node: &mut dyn FnMut() -> u64, count: u32, bytes: u32) -> u64 {
    bench.trip(|list, read| {
        for _ in 0..count {
            let id = list.read(Host, node(), bytes);
            if bytes as u64 == NODE {
                read(id);
            }
        }
    })
}

fn rows(bench: &Bench) {
    bench.row("[]", |bench, _| bench.trip(|_, _| ()));
    bench.row("[READ 64 B]", |bench, node| reads(bench, node, 1, 64));
    for count in [1, 2, 4, 8] {
        bench
            .row(&format!("[READ 1 KiB] x {count}, one list"), |bench, node| reads(bench, node, count, 1024));
    }
    // The lane's value is never 1. The CAS fails as cheaply as a CAS can, and leaves no lane taken.
    let lane = |at: u64| (at / NODE).wrapping_mul(0x9e37_79b9_7f4a_7c15) % LANE_WORDS * 8;
    bench.row("[CAS, READ 1 KiB]", |bench, node| {
        bench.trip(|list, read| {
            let at = node();
            list.masked_cas(OnChip, lane(at), 0, 0, 0xffff);
            read(list.read(Host, at, NODE as u32));
        })
    });
    bench.row("[WRITE 20 B, WRITE 2 B on chip]", |bench, node| {
        bench.trip(|list, _| {
            let at = node();
            list.write(Host, at + 300, &[0; 20]);
            list.write(OnChip, lane(at), &[0; 2]);
        })
    });
    bench.row("both: an update with a warm cache", |bench, node| {
        let at = node();
        let seen = bench.trip(|list, read| {
            list.masked_cas(OnChip, lane(at), 0, 1, 0xffff);
            read(list.read(Host, at, NODE as u32));
        });
        bench.trip(|list, _| {
            list.write(Host, at + 300 + seen, &[0; 20]);
            list.write(OnChip, lane(at), &[0; 2]);
        });
        seen
    });
    bench.row("[WRITE 1 KiB]", |bench, node| {
        bench.trip(|list, _| _ = list.write(Host, node(), &[0; NODE as usize]))
    });
}

fn main() -> Result<(), Box<dyn Error>> {
    let mib: u64 = std::env::var("SHERMAN_MIB").map_or(Ok(1024), |text| text.parse())?;
    let bytes = mib << 20;
    let cluster =
        EmbeddedCluster::new(EmbeddedOptions { memory_bytes: bytes, ..EmbeddedOptions::default() })?;
    let endpoint = cluster.join()?.endpoint();
    let bench = Bench { endpoint, counters: Counters::default(), bytes };
    let start = Instant::now();
    for at in (FIRST..bytes).step_by(64 << 10) {
        bench.trip(|list, _| _ = list.write(Host, at, &[0; 64 << 10]));
    }
    println!("{mib} MiB written for the first time in {:?}", start.elapsed());
    println!("{:<44} {:>15}   {:>15}", "nanoseconds: best, median", "hot", "cold");
    rows(&bench);
    Ok(())
}
