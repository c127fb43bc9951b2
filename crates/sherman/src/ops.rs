//! The operations, once: what clients, sessions and handles all do, on byte strings, counted and within a deadline.

use crate::cluster::AnyEndpoint;
use crate::stats::{Ledger, OpKind};
use sherman_core::{Error, Op, TreeState, Worker};
use std::time::Duration;

/// A worker, a tree, a ledger and a deadline: all that an operation needs.
#[derive(Clone, Copy)]
pub(crate) struct Ops<'a> {
    pub(crate) worker: &'a Worker<AnyEndpoint>,
    pub(crate) tree: &'a TreeState,
    pub(crate) ledger: &'a Ledger,
    pub(crate) timeout: Duration,
}

impl<'a> Ops<'a> {
    #[inline]
    fn op(&self) -> Op<'a, AnyEndpoint> {
        self.worker.op_within(self.timeout)
    }

    /// Looks `key` up; `value` receives what is found.
    #[inline]
    pub(crate) async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        let op = self.op();
        let found = op.get(self.tree, key, value).await;
        self.ledger.count(found.is_ok().then_some(OpKind::Get), &op);
        found
    }

    /// Puts `value` under `key`; whether the key was there, with its value in `old`.
    #[inline]
    pub(crate) async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        let op = self.op();
        let updated = op.insert(self.tree, key, value, old).await;
        let kind = match updated {
            Ok(true) => Some(OpKind::Update),
            Ok(false) => Some(OpKind::Insert),
            Err(_) => None,
        };
        self.ledger.count(kind, &op);
        updated
    }
}
