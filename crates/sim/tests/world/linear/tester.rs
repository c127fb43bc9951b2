//! The independent checker: stateright's, on the map as a whole.
//!
//! It supports pending operations: those still in flight when it is called. It allows one operation per
//! thread at a time, so calls are distributed to as many threads as overlap. A thread whose call never
//! returns gets no other call.

use super::spec::{Map, run};
use sherman_sim::history::{Call, Fate, Op, Outcome};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

#[derive(Clone)]
struct MapSpec(Map);

impl SequentialSpec for MapSpec {
    type Op = (u64, Op);
    type Ret = Outcome;

    fn invoke(&mut self, (key, op): &Self::Op) -> Outcome {
        run(&mut self.0, *key, *op)
    }
}

/// Returns stateright's verdict on these calls.
pub fn is_linearizable(calls: &[Call], initial: &Map) -> bool {
    // Invocations come before returns of the same time: a tie is an overlap.
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (index, call) in calls.iter().enumerate().filter(|(_, call)| call.fate != Fate::Failed) {
        events.push((call.invoked, false, index));
        if let Fate::Returned { at, .. } = call.fate {
            events.push((at, true, index));
        }
    }
    events.sort_unstable();
    let mut tester = LinearizabilityTester::new(MapSpec(initial.clone()));
    let mut threads: Vec<Option<usize>> = Vec::new();
    for (_, _, index) in events {
        let call = &calls[index];
        if let Some(thread) = threads.iter().position(|&held| held == Some(index)) {
            let Fate::Returned { outcome, .. } = call.fate else {
                unreachable!("only returned calls have two events")
            };
            threads[thread] = None;
            tester.on_return(thread, outcome).expect("the thread has a call in flight");
        } else {
            let thread = threads.iter().position(Option::is_none).unwrap_or_else(|| {
                threads.push(None);
                threads.len() - 1
            });
            threads[thread] = Some(index);
            tester.on_invoke(thread, (call.key, call.op)).expect("the thread has no call in flight");
        }
    }
    tester.is_consistent()
}
