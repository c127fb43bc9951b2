//! Several gets that one thread has in flight at once.

use super::script::Script;
use crate::endpoint::VolumeEndpoint;
use crate::history::Op;
use sherman_core::Worker;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// A get that begins when the task has run `after` times, and is dropped when it has run `until` times.
struct Planned<F> {
    after: u32,
    until: u32,
    get: Option<Pin<Box<F>>>,
}

impl Script {
    /// Runs several gets at once, mostly of `key`. Drops some of them before they end, as a caller may.
    pub(super) async fn get_at_once(&mut self, worker: &Worker<VolumeEndpoint>, key: u64) {
        let gets = 4 + self.rng.below((self.scenario.gets_at_once as usize).saturating_sub(3));
        let mut plans = Vec::with_capacity(gets);
        for _ in 0..gets {
            let other = self.scenario.first_hot() + self.rng.below(self.scenario.hot as usize) as u64;
            let key = if self.rng.one_in(4) { other } else { key };
            let after = self.rng.below(4) as u32;
            let until = if self.rng.one_in(4) { after + 1 + self.rng.below(3) as u32 } else { u32::MAX };
            plans.push((key, after, until));
        }
        let script = &*self;
        let mut planned: Vec<_> = plans
            .into_iter()
            .map(|(key, after, until)| Planned {
                after,
                until,
                get: Some(Box::pin(script.call(worker, key, Op::Get))),
            })
            .collect();
        let mut runs = 0;
        poll_fn(|cx| {
            loop {
                let mut began = false;
                for plan in &mut planned {
                    if plan.until <= runs {
                        plan.get = None;
                    } else if plan.after <= runs
                        && let Some(get) = &mut plan.get
                    {
                        began = true;
                        if get.as_mut().poll(cx).is_ready() {
                            plan.get = None;
                        }
                    }
                }
                runs += 1;
                if planned.iter().all(|plan| plan.get.is_none()) {
                    return Poll::Ready(());
                }
                // If no get has begun, no event will wake this task.
                let pending = planned.iter().any(|plan| plan.get.is_some() && plan.after < runs);
                if began && pending {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }
}
