//! Random histories: those of an atomic map under a random schedule, and the same with something falsified.

use super::spec::{Map, run};
use fastrand::Rng;
use sherman_sim::history::{Call, Fate, Op, Outcome};

/// The parameters of a history.
#[derive(Clone, Copy)]
pub struct Shape {
    pub clients: usize,
    pub ops: usize,
    pub keys: u64,
    /// Values come from `1..=values`. Few values make many orders possible.
    pub values: u64,
    /// Once in this many moves of a client, its operation fails or loses its outcome.
    pub mishaps: u32,
}

/// Returns a small random shape.
pub fn shape(rng: &mut Rng, max_ops: usize) -> Shape {
    Shape {
        clients: rng.usize(2..=4),
        ops: rng.usize(2..=max_ops),
        keys: rng.u64(1..=2),
        values: rng.u64(1..=4),
        mishaps: 6,
    }
}

/// Returns the initial contents of the map: some of the keys.
pub fn initial(rng: &mut Rng, shape: &Shape) -> Map {
    (0..shape.keys).filter_map(|key| Some((key, maybe(rng, shape.values)?))).collect()
}

/// Returns a history of an atomic map. Some operations never return, and some of these take effect late or
/// never. A few fail.
pub fn valid(rng: &mut Rng, shape: &Shape, initial: &Map) -> Vec<Call> {
    let (mut map, mut calls, mut told) = (initial.clone(), Vec::<Call>::new(), Vec::<Option<Outcome>>::new());
    let mut clients: Vec<Option<usize>> = vec![None; shape.clients];
    let mut adrift: Vec<usize> = Vec::new();
    for time in 0.. {
        if calls.len() == shape.ops && clients.iter().all(Option::is_none) {
            break;
        }
        let client = rng.usize(..shape.clients);
        match clients[client] {
            None if calls.len() < shape.ops => {
                let (key, op) = (rng.u64(..shape.keys), operation(rng, shape.values));
                clients[client] = Some(calls.len());
                calls.push(Call { client: client as u32, key, op, invoked: time, fate: Fate::Pending });
                told.push(None);
            }
            None => {}
            Some(index) => {
                let ends = match (told[index], rng.u32(..2 * shape.mishaps)) {
                    (None, 0) => Some(Fate::Failed),
                    (_, 1) => Some(if rng.bool() { Fate::Pending } else { Fate::Unknown }),
                    (Some(outcome), _) => Some(Fate::Returned { at: time, outcome }),
                    (None, _) => None,
                };
                match ends {
                    None => told[index] = Some(run(&mut map, calls[index].key, calls[index].op)),
                    Some(fate) => {
                        calls[index].fate = fate;
                        clients[client] = None;
                        if told[index].is_none() && fate != Fate::Failed {
                            adrift.push(index);
                        }
                    }
                }
            }
        }
        if !adrift.is_empty() && rng.u32(..6) == 0 {
            let index = adrift.swap_remove(rng.usize(..adrift.len()));
            run(&mut map, calls[index].key, calls[index].op);
        }
    }
    calls
}

fn operation(rng: &mut Rng, values: u64) -> Op {
    let value = rng.u64(1..=values);
    match rng.u32(..10) {
        0..3 => Op::Get,
        3..5 => Op::Insert(value),
        5..7 => Op::Remove,
        7 => Op::InsertIfAbsent(value),
        _ => Op::CompareExchange { expected: maybe(rng, values), new: maybe(rng, values) },
    }
}

/// Returns a value or none, all equally likely.
fn maybe(rng: &mut Rng, values: u64) -> Option<u64> {
    Some(rng.u64(0..=values)).filter(|&value| value > 0)
}

/// Falsifies a history in one place. The history may stay linearizable.
pub fn mutate(rng: &mut Rng, shape: &Shape, calls: &mut [Call]) {
    let index = rng.usize(..calls.len());
    match rng.u32(..8) {
        0..4 => change_outcome(rng, shape, &mut calls[index]),
        4 => swap_times(rng, calls),
        5 => move_return(rng, &mut calls[index]),
        6 => calls[index].fate = Fate::Pending,
        _ => coarsen_clock(calls),
    }
}

fn change_outcome(rng: &mut Rng, shape: &Shape, call: &mut Call) {
    let Fate::Returned { outcome, .. } = &mut call.fate else { return };
    *outcome = match (call.op, rng.u32(..20)) {
        // Sometimes use an outcome that this operation cannot have at all.
        (_, 0) => Outcome::Exchange(Ok(())),
        (_, 1) => Outcome::Value(maybe(rng, shape.values)),
        (Op::CompareExchange { .. }, 2..8) => Outcome::Exchange(Ok(())),
        (Op::CompareExchange { .. }, _) => Outcome::Exchange(Err(maybe(rng, shape.values))),
        _ => Outcome::Value(maybe(rng, shape.values)),
    };
}

/// Swaps the times of two calls.
fn swap_times(rng: &mut Rng, calls: &mut [Call]) {
    let (a, b) = (rng.usize(..calls.len()), rng.usize(..calls.len()));
    let (Fate::Returned { at: end_a, .. }, Fate::Returned { at: end_b, .. }) = (calls[a].fate, calls[b].fate)
    else {
        return;
    };
    let (start_a, start_b) = (calls[a].invoked, calls[b].invoked);
    set_times(&mut calls[a], start_b, end_b);
    set_times(&mut calls[b], start_a, end_a);
}

/// Ends a call early. It may no longer span the moment at which it took effect.
fn move_return(rng: &mut Rng, call: &mut Call) {
    if let Fate::Returned { at, .. } = call.fate {
        let end = rng.u64(call.invoked..=at);
        set_times(call, call.invoked, end);
    }
}

/// Halves all times, so that events of different calls coincide.
fn coarsen_clock(calls: &mut [Call]) {
    for call in calls {
        call.invoked /= 2;
        if let Fate::Returned { at, .. } = &mut call.fate {
            *at /= 2;
        }
    }
}

fn set_times(call: &mut Call, invoked: u64, end: u64) {
    call.invoked = invoked;
    if let Fate::Returned { at, .. } = &mut call.fate {
        *at = end;
    }
}
