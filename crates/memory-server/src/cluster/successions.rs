//! The answers [`Verdict::Inherit`], in case a successor asks again.
//!
//! [`Control`](crate::Control) gives this verdict once, and then [`Verdict::Recover`]. But a request may be
//! carried out twice when the leader changes, and its sender gets the second answer. With `Recover` the
//! former identity's changes in flight would stay in doubt without need.
//!
//! **Why a repeated verdict is safe.** `Inherit` says that nobody has begun to recover the former identity.
//! The successor is its recoverer since the first answer, and stays so while its own lease lasts. So nobody
//! else has begun. The successor has not begun either: it waits for this answer before it goes on. If it did
//! go on, nobody reads a late second answer. Any other request about the former identity ends the repetition.

use super::ClusterState;
use super::bytes::{Put, Reader};
use sherman_fabric::control::Verdict;
use sherman_fabric::{ComputeId, Request, Response};
use std::collections::BTreeMap;

/// An identity: an id, and how often it was issued.
type Identity = (ComputeId, u32);

/// For every id: the incarnation whose successor inherited, and the successor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Successions(BTreeMap<ComputeId, (u32, Identity)>);

impl Successions {
    pub(super) fn ids(&self) -> impl Iterator<Item = ComputeId> + '_ {
        self.0.iter().flat_map(|(&former, &(_, (successor, _)))| [former, successor])
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.put_u32(self.0.len() as u32);
        for (former, (incarnation, (successor, its))) in &self.0 {
            out.put_u16(former.0);
            out.put_u32(*incarnation);
            out.put_u16(successor.0);
            out.put_u32(*its);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let count = reader.u32()?;
        let mut all = BTreeMap::new();
        for _ in 0..count {
            let former = ComputeId(reader.u16()?);
            let entry = (reader.u32()?, (ComputeId(reader.u16()?), reader.u32()?));
            // Ids ascend, so that every state has one snapshot.
            if all.last_key_value().is_some_and(|(last, _)| *last >= former) {
                return None;
            }
            all.insert(former, entry);
        }
        Some(Self(all))
    }
}

impl ClusterState {
    /// Remembers that a successor inherited, and gives it the same verdict again. `response` is the answer of
    /// [`Control`](crate::Control).
    pub(super) fn repeat_inheritance(
        &mut self,
        from: ComputeId,
        request: &Request,
        response: Response,
    ) -> Response {
        let by = (from, self.control.member(from).incarnation);
        match (request, &response) {
            (Request::Succeed { client, incarnation }, Response::Verdict(Verdict::Inherit)) => {
                self.successions.0.insert(*client, (*incarnation, by));
                response
            }
            (Request::Succeed { client, incarnation }, Response::Verdict(Verdict::Recover))
                if self.successions.0.get(client) == Some(&(*incarnation, by)) =>
            {
                Response::Verdict(Verdict::Inherit)
            }
            (
                Request::Succeed { client, .. }
                | Request::Suspect { client }
                | Request::Relieve { client }
                | Request::Condemn { client }
                | Request::FreeId { client },
                _,
            ) => {
                self.successions.0.remove(client);
                response
            }
            _ => response,
        }
    }
}
