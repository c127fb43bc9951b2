//! Gets and inserts of clients whose lists execute inside `post`. They begin without futures, as those of the
//! library do.
//!
//! In most operations other clients run between the units of a list, as other threads do on real memory. So
//! the operation takes its steps one by one ([`sherman_core::tree::now`]). In the others `post` executes the
//! list before it returns. Sometimes it executes a list later, and gives its ticket back: then a future goes
//! on.

use super::script::Script;
use crate::endpoint::VolumeEndpoint;
use crate::rng::Rng;
use sherman_core::tree::now::Now;
use sherman_core::{Error, Op};
use sherman_fabric::Endpoint;
use std::cell::Cell;

/// One in this many operations executes its lists inside `post`.
const AT_ONCE_ONE_IN: u32 = 4;
/// In one of this many operations a list does not execute inside `post`.
const REFUSED_ONE_IN: u32 = 6;

impl Script {
    /// Decides how the next operation executes its lists: all at once, or with others between its units.
    fn plan(&self, endpoint: &VolumeEndpoint) -> Plan {
        let mut rng = Rng::new(self.rng.clone().next_u64() ^ 0x494e_4c49_4e45);
        endpoint.inner().refuse(if rng.one_in(REFUSED_ONE_IN) { 1 + rng.below(2) as u32 } else { 0 });
        if rng.one_in(AT_ONCE_ONE_IN) { Plan::AtOnce } else { Plan::InSteps }
    }

    /// Looks a key up as clients of the library do.
    pub(super) async fn get(
        &self,
        endpoint: &VolumeEndpoint,
        op: &Op<'_, VolumeEndpoint>,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        if !endpoint.executes_inline() {
            return op.get(&self.tree, key, value).await;
        }
        let found = match self.plan(endpoint) {
            Plan::AtOnce => op.get_now(&self.tree, key, value),
            Plan::InSteps => {
                let read = async |first, lines: &mut [u8]| endpoint.inner().run_read(first, lines).await;
                op.get_in_steps(&self.tree, key, value, read).await
            }
        };
        match found {
            Some(found) => {
                count(&self.record.at_once);
                Ok(found)
            }
            None => op.get(&self.tree, key, value).await,
        }
    }

    /// Puts an entry as clients of the library do.
    pub(super) async fn insert(
        &self,
        endpoint: &VolumeEndpoint,
        op: &Op<'_, VolumeEndpoint>,
        key: &[u8],
        value: &[u8],
        old: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        if !endpoint.executes_inline() {
            return op.insert(&self.tree, key, value, old).await;
        }
        let begun = match self.plan(endpoint) {
            Plan::AtOnce => op.insert_at_once(&self.tree, key, value, old),
            Plan::InSteps => {
                let post = async |list| endpoint.inner().run_list(list).await;
                op.insert_in_steps(&self.tree, key, value, old, post).await
            }
        };
        match begun {
            Now::Done(updated) => {
                count(&self.record.at_once);
                Ok(updated)
            }
            Now::No => op.insert(&self.tree, key, value, old).await,
            Now::Begun(begun) => {
                count(&self.record.resumed);
                op.resume_insert(&self.tree, begun, key, value, old).await
            }
        }
    }
}

/// How an operation executes its lists.
#[derive(Clone, Copy)]
enum Plan {
    /// Inside `post`.
    AtOnce,
    /// Unit by unit, with other clients in between.
    InSteps,
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
