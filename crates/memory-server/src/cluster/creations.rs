//! The last creations of trees, in case their senders ask again.
//!
//! A request may be carried out twice when the leader changes. The second answer would be that the tree
//! exists, and its sender would not know that it has created it. Worse, a request that was under way for long
//! could create a tree again that was dropped since. So each request to create a tree has a
//! [`RequestId`], and the state remembers what became of it. The next identity of a process asks again under
//! the same id.
//!
//! **What is remembered** is bounded: the last [`MOST`] requests, and for each client the highest number that
//! was forgotten. A request with such a number is refused: whether it was carried out is not known.

use super::ClusterState;
use super::bytes::{Put, Reader};
use sherman_fabric::control::{CatalogReply, TreeInfo};
use sherman_fabric::{ComputeId, FabricError, GlobalAddress, Refusal, Request, RequestId, Response};
use std::collections::{BTreeMap, VecDeque};

/// How many requests are remembered.
pub(super) const MOST: usize = 256;
/// Why a request is refused whose like was forgotten.
pub(super) const FORGOTTEN: &str = "the request is so old that its outcome is forgotten";
/// Why a request is refused whose id names no client.
const NO_CLIENT: &str = "the request's id names no client";

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// It created a tree: its id, and the address of its root word.
    Tree(u32, GlobalAddress),
    /// It created nothing: the tree existed, or the catalog was full.
    Nothing,
}

/// The last requests, and what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Creations {
    /// The oldest first.
    list: VecDeque<(RequestId, Made)>,
    /// For each client, by incarnation and number, the last request that was forgotten.
    forgotten: BTreeMap<ComputeId, (u32, u64)>,
}

impl Creations {
    fn find(&self, asked: RequestId) -> Option<Made> {
        self.list.iter().rev().find(|(known, _)| *known == asked).map(|(_, made)| *made)
    }

    fn is_forgotten(&self, asked: RequestId) -> bool {
        self.forgotten.get(&asked.client).is_some_and(|last| (asked.incarnation, asked.number) <= *last)
    }

    fn note(&mut self, asked: RequestId, made: Made) {
        self.list.push_back((asked, made));
        if self.list.len() > MOST
            && let Some((oldest, _)) = self.list.pop_front()
        {
            let last = self.forgotten.entry(oldest.client).or_default();
            *last = (*last).max((oldest.incarnation, oldest.number));
        }
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = ComputeId> + '_ {
        self.list.iter().map(|(asked, _)| asked.client).chain(self.forgotten.keys().copied())
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.put_u16(self.list.len() as u16);
        for (RequestId { client, incarnation, number }, made) in &self.list {
            out.put_u16(client.0);
            out.put_u32(*incarnation);
            out.put_u64(*number);
            let (id, word) = match made {
                Made::Tree(id, word) => (*id, word.to_bits()),
                Made::Nothing => (0, 0),
            };
            out.put_u32(id);
            out.put_u64(word);
        }
        out.put_u32(self.forgotten.len() as u32);
        for (client, (incarnation, number)) in &self.forgotten {
            out.put_u16(client.0);
            out.put_u32(*incarnation);
            out.put_u64(*number);
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut creations = Self::default();
        let count = usize::from(reader.u16()?);
        if count > MOST {
            return None;
        }
        for _ in 0..count {
            let asked = read_id(reader)?;
            let made = match (reader.u32()?, reader.u64()?) {
                (0, 0) => Made::Nothing,
                (0, _) => return None,
                (id, word) => Made::Tree(id, GlobalAddress::from_bits(word)),
            };
            if creations.find(asked).is_some() {
                return None;
            }
            creations.list.push_back((asked, made));
        }
        for _ in 0..reader.u32()? {
            let RequestId { client, incarnation, number } = read_id(reader)?;
            // Ids ascend, so that every state has one snapshot.
            if creations.forgotten.last_key_value().is_some_and(|(last, _)| *last >= client) {
                return None;
            }
            creations.forgotten.insert(client, (incarnation, number));
        }
        Some(creations)
    }
}

fn read_id(reader: &mut Reader<'_>) -> Option<RequestId> {
    Some(RequestId { client: ComputeId(reader.u16()?), incarnation: reader.u32()?, number: reader.u64()? })
}

impl ClusterState {
    /// Creates a tree, or repeats the answer to the same request.
    pub(super) fn create_tree(
        &mut self,
        from: ComputeId,
        request: &Request,
        asked: RequestId,
    ) -> Result<Response, FabricError> {
        let bad = |what| Err(Refusal::BadRequest { what }.into());
        if self.identities.epoch(asked.client).is_none() {
            return bad(NO_CLIENT);
        }
        if let Some(made) = self.creations.find(asked) {
            return self.repeat_creation(request, made);
        }
        if self.creations.is_forgotten(asked) {
            return bad(FORGOTTEN);
        }
        let answer = self.control.apply(&self.memory, from, request, self.clock.now);
        match &answer {
            Ok(Response::Tree(CatalogReply { info, created: true })) => {
                self.creations.note(asked, Made::Tree(info.id, info.root_word));
            }
            Ok(_) | Err(Refusal::TooManyTrees) => self.creations.note(asked, Made::Nothing),
            // It is refused whenever it is asked.
            Err(_) => {}
        }
        Ok(answer?)
    }

    /// The answer to a request that was carried out before. One that created nothing creates nothing now:
    /// the sender may have its answer since long. It asks anew if it has not.
    fn repeat_creation(&self, request: &Request, made: Made) -> Result<Response, FabricError> {
        let Request::CreateTree { name, spec, types, .. } = request else {
            return Err(Refusal::BadRequest { what: NO_CLIENT }.into());
        };
        match made {
            Made::Tree(id, root_word) => {
                let info = TreeInfo { id, name: name.clone(), spec: *spec, types: *types, root_word };
                Ok(Response::Tree(CatalogReply { info, created: true }))
            }
            Made::Nothing => match self.trees().into_iter().find(|tree| tree.name == *name) {
                Some(info) => Ok(Response::Tree(CatalogReply { info, created: false })),
                None => Err(Refusal::NoSuchTree { name: name.clone() }.into()),
            },
        }
    }
}
