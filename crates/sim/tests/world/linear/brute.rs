//! A simple oracle: it tries every subset of the operations of unknown outcome, in every permutation, on one
//! map.

use super::spec::{Map, run};
use sherman_sim::history::{Call, Fate};

/// Whether some order of some completion of these calls is legal. The cost is factorial, so it takes a
/// handful of calls at most.
pub fn is_linearizable(calls: &[Call], initial: &Map) -> bool {
    let sure = calls.iter().filter(|call| matches!(call.fate, Fate::Returned { .. }));
    let doubts: Vec<&Call> =
        calls.iter().filter(|call| matches!(call.fate, Fate::Pending | Fate::Unknown)).collect();
    let sure: Vec<&Call> = sure.collect();
    (0..1_u32 << doubts.len()).any(|subset| {
        let chosen =
            doubts.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1).map(|(_, call)| *call);
        let mut order: Vec<&Call> = sure.iter().copied().chain(chosen).collect();
        let all = order.len();
        any_permutation(&mut order, all, &mut |order| is_legal(order, initial))
    })
}

/// Heap's algorithm.
fn any_permutation<T>(items: &mut [T], left: usize, accept: &mut impl FnMut(&[T]) -> bool) -> bool {
    if left <= 1 {
        return accept(items);
    }
    for index in 0..left {
        if any_permutation(items, left - 1, accept) {
            return true;
        }
        items.swap(if left.is_multiple_of(2) { index } else { 0 }, left - 1);
    }
    false
}

/// Whether this order respects time and every outcome.
pub fn is_legal(order: &[&Call], initial: &Map) -> bool {
    let in_time = order.iter().enumerate().all(|(index, later)| {
        order[..index]
            .iter()
            .all(|earlier| !matches!(later.fate, Fate::Returned { at, .. } if at < earlier.invoked))
    });
    let mut map = initial.clone();
    in_time
        && order.iter().all(|call| {
            let told = run(&mut map, call.key, call.op);
            !matches!(call.fate, Fate::Returned { outcome, .. } if outcome != told)
        })
}
