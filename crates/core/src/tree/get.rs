//! Lookup: lock-free, one round trip when the cache knows the leaf (paper §4.4, "Lookup operation").

use super::TreeState;
use super::descend::Sibling;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::{Lookup, Node, Position};
use crate::op::Op;
use sherman_fabric::{Endpoint, GlobalAddress};

enum Seen {
    Found,
    Absent,
    Right(Sibling),
    Stale,
}

impl<E: Endpoint> Op<'_, E> {
    /// Looks `key` up; `value` receives what is found. Linearizable: the answer was true at some moment of the call.
    pub async fn get(&self, tree: &TreeState, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        tree.check_key(key)?;
        loop {
            let Some(mut at) = self.locate(tree, key, 0).await? else {
                return Err(Error::Corrupt { address: GlobalAddress::NULL, invariant: "I2: a tree has leaves" });
            };
            loop {
                match self.visit(tree, at, 0, |leaf| look_up(leaf, key, value)).await? {
                    Some(Seen::Found) => return Ok(true),
                    Some(Seen::Absent) => return Ok(false),
                    Some(Seen::Right(sibling)) => {
                        self.moved_right(tree, &sibling, 0)?;
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
