//! Lookup: lock-free, one round trip when the cache knows the leaf (paper §4.4, "Lookup operation").

use super::TreeState;
use super::descend::Sibling;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::{Lookup, Node, Position, Reject};
use crate::op::Op;
use sherman_fabric::{Endpoint, GlobalAddress, Space};

pub(super) enum Seen {
    Found,
    Absent,
    Right(Sibling),
    Stale,
}

impl<E: Endpoint> Op<'_, E> {
    /// Looks `key` up. Returns whether it is there; `value` receives its value. Linearizable: the answer was
    /// true at some moment of the call.
    pub async fn get(&self, tree: &TreeState, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        tree.check_key(key)?;
        self.await_open().await?;
        let found = match tree.has_blocks() {
            false => self.get_slot(tree, key, value).await?,
            true => Box::pin(self.get_value(tree, key, value)).await?,
        };
        self.confirm_read().await?;
        Ok(found)
    }

    /// Looks `key` up. Returns whether it is there; `slot` receives what its entry has beyond the key.
    #[inline]
    pub(crate) async fn get_slot(
        &self,
        tree: &TreeState,
        key: &[u8],
        slot: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        match self.get_cached(tree, key, slot).await? {
            Some(found) => Ok(found),
            None => Box::pin(self.search(tree, key, slot)).await,
        }
    }

    /// Reads the leaf that the cache names, with one READ. Returns `None` if the cache names no leaf, or the
    /// leaf gives no answer.
    #[inline]
    async fn get_cached(
        &self,
        tree: &TreeState,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>, Error> {
        let shape = &tree.shape.leaf;
        let Some(at) = self.locate_known(tree, key, 0).filter(|_| !self.times_reads(shape)) else {
            return Ok(None);
        };
        self.worker.compute.check_pointer(at, shape.node_bytes())?;
        if shape.is_hashed() {
            return self.get_lines(tree, at, key, value).await;
        }
        let mut list = self.endpoint().list(at.server());
        let read = list.read(Space::Host, at.offset(), shape.node_bytes() as u32);
        let list = self.execute(list).await?;
        let seen = match Node::open(shape, list.bytes(read), 0) {
            Ok(leaf) => look_up(&leaf, key, value),
            Err(Reject::Torn) => Err(Cause::TornNode),
            Err(Reject::Pending) => Err(Cause::NodePending),
            Err(Reject::Free | Reject::NotThis) => Ok(Seen::Stale),
        };
        self.endpoint().recycle(list);
        match seen {
            Ok(Seen::Found) => return Ok(Some(true)),
            Ok(Seen::Absent) => return Ok(Some(false)),
            Ok(Seen::Right(sibling)) => self.moved_right(tree, &sibling, 0)?,
            Ok(Seen::Stale) => Box::pin(self.lost(tree, key, 0)).await?,
            Err(cause) => Box::pin(self.retry(cause)).await?,
        }
        Ok(None)
    }

    /// Looks `key` up with as many READs and retries as it needs.
    async fn search(&self, tree: &TreeState, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        loop {
            let Some(mut at) = self.locate(tree, key, 0).await? else {
                return Err(Error::Corrupt {
                    address: GlobalAddress::NULL,
                    invariant: "I2: a tree has leaves",
                });
            };
            loop {
                match self.visit(tree, at, 0, |leaf| look_up(leaf, key, value)).await? {
                    Some(Seen::Found) => return Ok(true),
                    Some(Seen::Absent) => return Ok(false),
                    Some(Seen::Right(sibling)) => {
                        self.moved_right(tree, &sibling, 0)?;
                        if self.is_astray(tree, key, 0) {
                            break;
                        }
                        at = sibling.address;
                    }
                    Some(Seen::Stale) | None => {
                        Box::pin(self.lost(tree, key, 0)).await?;
                        break;
                    }
                }
            }
        }
    }
}

fn look_up(leaf: &Node<'_>, key: &[u8], value: &mut Vec<u8>) -> Result<Seen, Cause> {
    seam!(tree::look_up(leaf, key, value));
    match leaf.position(key) {
        Position::Left => Ok(Seen::Stale),
        Position::Right => Ok(Seen::Right(Sibling::of(leaf))),
        Position::Inside => match leaf.find(key) {
            Lookup::Found(slot) => {
                leaf.value_into(slot, value);
                Ok(Seen::Found)
            }
            Lookup::Absent => Ok(Seen::Absent),
            Lookup::Torn => Err(Cause::TornEntry),
        },
    }
}
