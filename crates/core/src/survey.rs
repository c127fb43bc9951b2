//! Accounts for every place for a node, read directly from a memory server's memory at rest. For tests and
//! simulators.
//!
//! At rest a place is part of one tree, or free. Clients can find every free place (I33, I45), in one of
//! three ways:
//!
//! - The compute server that owns its span has it in its free list.
//! - The hint of its span is set.
//! - No client ever owned its span.

use crate::node::Header;
use sherman_fabric::{ComputeId, GlobalAddress, Memory, Space};
use sherman_layout::{ChunkEntry, Geometry, SpanWord};
use std::collections::{BTreeMap, BTreeSet};

/// What a place for a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// It never held a node.
    Unused,
    /// It held a node that was freed.
    Free,
    /// A node that is not part of a tree yet, and the client that makes it.
    Pending(ComputeId),
    /// A node of a tree.
    Linked,
}

/// A place for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// Its address.
    pub address: GlobalAddress,
    /// What it holds.
    pub content: Content,
    /// Its span: whether it was ever issued, and its owner.
    pub span: SpanWord,
    /// Whether the hint of its span is set.
    pub hinted: bool,
}

/// Returns every place for a node on a server.
pub fn survey(memory: &dyn Memory, geometry: &Geometry, server: u16) -> Vec<Surveyed> {
    let mut places = Vec::new();
    let word = |offset| memory.load_u64(Space::Host, offset);
    for index in 0..geometry.chunks {
        let Some(ChunkEntry::Nodes { class }) = ChunkEntry::from_bits(word(geometry.chunk_entry(index)))
        else {
            continue;
        };
        for number in 0..geometry.spans_in_chunk(class.node_bytes) {
            let span = SpanWord::from_bits(word(geometry.span_entry(index, number))).unwrap_or_default();
            let hinted = word(geometry.span_hint(index, number)) != 0;
            let (offset, bytes) = geometry.span_range(index, class.node_bytes, number);
            for at in (offset..offset + bytes).step_by(class.node_bytes as usize) {
                let mut line = [0; 64];
                memory.load(Space::Host, at, &mut line);
                let content = match Header::decode(&line) {
                    None => Content::Unused,
                    Some(header) if header.flags.free => Content::Free,
                    Some(header) if header.flags.pending => Content::Pending(header.owner),
                    Some(_) => Content::Linked,
                };
                places.push(Surveyed { address: GlobalAddress::new(server, at), content, span, hinted });
            }
        }
    }
    places
}

/// Checks that all `places` are accounted for at rest. `trees` are the nodes of all trees. `believed_free`
/// lists the free places that each present compute server believes it has. Returns an error text if something
/// is wrong.
pub fn account(
    places: &[Surveyed],
    trees: impl IntoIterator<Item = GlobalAddress>,
    believed_free: &BTreeMap<ComputeId, Vec<GlobalAddress>>,
) -> Result<(), String> {
    let mut linked = BTreeSet::new();
    for node in trees {
        if !linked.insert(node) {
            return Err(format!("the node {node} is in two places of the trees"));
        }
    }
    let mut free: BTreeMap<GlobalAddress, ComputeId> = BTreeMap::new();
    for (&client, places) in believed_free {
        for &place in places {
            if let Some(other) = free.insert(place, client) {
                return Err(format!("clients {other} and {client} both have {place} as a free place"));
            }
        }
    }
    for place in places {
        let Surveyed { address, content, span, hinted } = *place;
        let owner = free.remove(&address);
        if let Some(client) = owner.filter(|client| *client != span.owner) {
            return Err(format!(
                "client {client} has {address} as a free place, but client {} owns its span",
                span.owner
            ));
        }
        match (content, linked.remove(&address)) {
            (Content::Linked, true) if owner.is_none() => {}
            (_, true) => {
                return Err(format!(
                    "the node {address} of a tree is {content:?}, and {owner:?} has it as a free place"
                ));
            }
            (Content::Linked, false) => return Err(format!("the node {address} is in no tree")),
            (Content::Pending(maker), false) => {
                return Err(format!("the node {address} of client {maker} stays pending"));
            }
            (Content::Unused | Content::Free, false) => {
                let known = owner.is_some() || hinted || !span.issued;
                let alive = span.owner == ComputeId::NOBODY || believed_free.contains_key(&span.owner);
                if !alive {
                    return Err(format!("client {} owns the span of {address}, but is gone", span.owner));
                }
                if !known {
                    return Err(format!("no client can find the free place {address}"));
                }
            }
        }
    }
    match (linked.first(), free.first_key_value()) {
        (Some(node), _) => Err(format!("the node {node} is not at a place for a node")),
        (None, Some((place, client))) => {
            Err(format!("client {client} has {place} as a free place, which is not a place for a node"))
        }
        (None, None) => Ok(()),
    }
}
