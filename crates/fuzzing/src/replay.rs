//! Recovery of a compute server that left lies behind: it ends, in a recovery or in a typed error.
//!
//! One compute server makes a tree and goes silent. Its redo slots are filled with records, of nodes that there are and of
//! others, true and false; lanes are its own; nodes are damaged. Another condemns and recovers it, twice. Recovered means
//! that no lane is its any more and that server 0 has forgotten it, whatever the tree is worth then.

use crate::lab::{LANES, Lab, LabWorker, MOST_LISTS, NODE, SERVERS, join};
use crate::source::Source;
use crate::{Reached, redo};
use sherman_core::redo::Record;
use sherman_core::root::RootWord;
use sherman_core::{Error, Recovery, Techniques};
use sherman_executor::block_on;
use sherman_fabric::{ClientId, GlobalAddress, Memory, Space, Verdict};

/// Nobody's lease runs out by itself: these tests are about what is left behind, not about when.
const LEASE_NANOS: u64 = 3_600_000_000_000;

/// Runs one input.
pub fn run(input: &[u8]) -> Reached {
    let mut source = Source::new(input);
    let mut lab = Lab::new(&mut source, LEASE_NANOS);
    lab.find_nodes();
    let dead = lab.worker.compute().client();
    let survivor = join(&lab.cluster, Techniques::OURS);
    for _ in 0..source.below(4) {
        lab.damage(&mut source);
    }
    for _ in 0..source.below(4) {
        let node = lab.some_node(&mut source);
        lab.take_lane(node, dead.0);
    }
    leave_records(&lab, dead, &mut source);
    if source.byte() & 7 == 0 {
        damage_chunk_table(&lab, &mut source);
    }
    let mut reached = Reached::Refused;
    for _ in 0..2 {
        survivor.endpoint().allow(MOST_LISTS);
        match condemn(&survivor, dead) {
            Ok(Recovery { verdict: Verdict::Recover, .. }) => {
                reached = Reached::Taken;
                assert!(!holds_lanes(&lab, dead), "what is recovered holds no lane");
                break;
            }
            Ok(Recovery { verdict, .. }) => panic!("nobody else recovers it: {verdict:?}"),
            // A record may name a shape that nobody knows.
            Err(Error::Corrupt { .. } | Error::Timeout { .. } | Error::Shape(_)) => {}
            Err(other) => panic!("a lie must not lead to {other:?}"),
        }
    }
    if reached == Reached::Taken {
        let members = block_on(survivor.endpoint(), survivor.members()).expect("server 0 answers");
        assert!(members.iter().all(|member| member.client != dead), "what is recovered is forgotten");
    }
    reached
}

fn condemn(survivor: &LabWorker, dead: ClientId) -> Result<Recovery, Error> {
    block_on(survivor.endpoint(), survivor.condemn(dead))
}

fn holds_lanes(lab: &Lab, client: ClientId) -> bool {
    let lanes = (0..SERVERS).flat_map(|server| (0..LANES).map(move |lane| (server, lane)));
    lanes.into_iter().any(|(server, lane)| {
        let (space, word, mask, shift) = lab.geometry.lane_word(lane);
        let memory = lab.cluster.memory(server).expect("it has so many servers");
        (memory.load_u64(space, word) & mask) >> shift == u64::from(client.0)
    })
}

/// Fills some redo slots of the dead one.
fn leave_records(lab: &Lab, dead: ClientId, source: &mut Source<'_>) {
    let slots = lab.worker.compute().redo_slots().places();
    if slots.is_empty() {
        return;
    }
    let slot_bytes = lab.geometry.redo_slot_bytes as usize;
    for _ in 0..source.below(6) {
        let (server, offset) = slots[source.below(slots.len())];
        let how = source.byte();
        let mut bytes = match how & 3 {
            0 => redo::slot(source),
            1 => plausible(lab, dead, source).encode(),
            _ => {
                let mut bytes = plausible(lab, dead, source).encode();
                source.damage(&mut bytes);
                redo::seal(&mut bytes);
                bytes
            }
        };
        bytes.truncate(slot_bytes);
        lab.cluster.memory(server).expect("a slot there").store(Space::Host, offset, &bytes);
    }
}

/// A record that speaks of what there is, as far as the input wants it.
fn plausible(lab: &Lab, dead: ClientId, source: &mut Source<'_>) -> Record {
    let what = source.byte();
    let (node, made, parent) = (lab.some_node(source), lab.some_node(source), lab.some_node(source));
    let image = |address: GlobalAddress| {
        let mut image = vec![0; NODE];
        lab.cluster.memory(address.server()).expect("a node there").load(Space::Host, address.offset(), &mut image);
        image
    };
    let version = |image: &[u8]| u16::from_le_bytes([image[12], image[13]]);
    let (node_image, made_image) = (image(node), image(made));
    let root = lab.cluster.memory(0).expect("server 0").load_u64(Space::Host, lab.tree.info().root_word);
    let kind = redo::KINDS[usize::from(what) % redo::KINDS.len()];
    let pieces = match source.byte() % 4 {
        0 => Vec::new(),
        1 => vec![(0, node_image.clone())],
        2 => vec![(0, made_image.clone())],
        _ => vec![(u32::from(source.byte()), source.bytes(64))],
    };
    let after = RootWord { address: made, level: source.byte() & 3 }.to_bits();
    Record {
        owner: dead,
        kind,
        tree: if source.byte() < 240 { lab.tree.info().id } else { u32::from(source.byte()) },
        spec: if source.byte() < 240 { lab.tree.info().spec } else { crate::frames::spec(source) },
        node,
        made,
        version: version(&node_image).wrapping_add(u16::from(source.byte() & 1)),
        made_version: version(&made_image),
        level: if source.byte() < 240 { node_image[2] } else { source.byte() },
        root: match source.byte() % 4 {
            0 => (parent.to_bits(), u64::from(version(&image(parent)).wrapping_add(1))),
            1 => (root, after),
            2 => (after, root),
            _ => (source.u64(), root),
        },
        pieces,
    }
}

/// Entries of the chunk table that no server would write.
fn damage_chunk_table(lab: &Lab, source: &mut Source<'_>) {
    let memory = lab.cluster.memory(source.below(2) as u16).expect("two servers");
    let at = lab.geometry.chunk_entry(source.below(6) as u32);
    let mut word = memory.load_u64(Space::Host, at).to_le_bytes();
    word[source.below(8)] = source.byte();
    memory.store_u64(Space::Host, at, u64::from_le_bytes(word));
}
