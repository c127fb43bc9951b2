//! Measures how many histories per second the linearizability checker decides, on one core.
//!
//! `cargo run --release -p sherman-sim -F measure --example linear_rate`
//!
//! The histories are those of an atomic map under a random schedule, with three clients and eighteen
//! operations. The first rows are histories like those of the simulator. Each other row varies one parameter.

use sherman_sim::history::{History, Op, Outcome};
use sherman_sim::linear::Checker;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

struct Shape {
    name: &'static str,
    clients: u32,
    ops: usize,
    keys: u64,
    /// One in this many operations never returns.
    crash: Option<u32>,
}

fn main() {
    let base = Shape { name: "18 ops, 3 clients, 4 keys", clients: 3, ops: 18, keys: 4, crash: None };
    let shapes = [
        Shape { name: "18 ops, 3 clients, 3 keys", keys: 3, ..base },
        Shape { name: "18 ops, 3 clients, 4 keys, 1 in 8 pending", crash: Some(8), ..base },
        Shape { name: "18 ops, 3 clients, 1 key", keys: 1, ..base },
        Shape { name: "32 ops, 4 clients, 4 keys", ops: 32, clients: 4, ..base },
        Shape { name: "1000 ops, 16 clients, 4 keys", ops: 1000, clients: 16, ..base },
    ];
    for shape in std::iter::once(&base).chain(&shapes) {
        measure(shape);
    }
}

fn measure(shape: &Shape) {
    let mut rng = fastrand::Rng::with_seed(1);
    let histories: Vec<History> = (0..20_000 / shape.ops).map(|_| atomic(shape, &mut rng)).collect();
    let (mut checker, initial) = (Checker::new(), BTreeMap::new());
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        for history in &histories {
            assert!(checker.check(black_box(history), &initial).is_linearizable());
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    let rate = histories.len() as f64 / best;
    println!("{:45} {:>10.0} histories/s  {:>6.1} M ops/s", shape.name, rate, rate * shape.ops as f64 / 1e6);
}

/// A history of an atomic map: each operation takes effect at some moment between its invocation and its
/// return.
fn atomic(shape: &Shape, rng: &mut fastrand::Rng) -> History {
    let (mut history, mut map) = (History::new(), BTreeMap::new());
    let mut clients = vec![None; shape.clients as usize];
    let (mut invoked, mut open) = (0, 0);
    while invoked < shape.ops || open > 0 {
        let client = rng.u32(0..shape.clients);
        let slot = &mut clients[client as usize];
        match *slot {
            None if invoked < shape.ops => {
                let (key, op) = (rng.u64(0..shape.keys), operation(invoked as u64, rng));
                *slot = Some((history.invoke(client, key, op), key, op, None::<Outcome>));
                invoked += 1;
                open += 1;
            }
            None => {}
            Some((id, key, op, None)) => {
                let (state, told) = op.apply(map.get(&key).copied());
                match state {
                    Some(value) => map.insert(key, value),
                    None => map.remove(&key),
                };
                *slot = Some((id, key, op, Some(told)));
            }
            Some((id, _, _, Some(told))) => {
                let crashes = shape.crash.is_some_and(|one_in| rng.u32(0..one_in) == 0);
                if crashes { history.unknown(id) } else { history.ret(id, told) }
                    .expect("the operation is open");
                *slot = None;
                open -= 1;
            }
        }
    }
    history
}

fn operation(value: u64, rng: &mut fastrand::Rng) -> Op {
    match rng.u32(0..10) {
        0..4 => Op::Get,
        4..7 => Op::Insert(value),
        7..9 => Op::Remove,
        _ => Op::InsertIfAbsent(value),
    }
}
