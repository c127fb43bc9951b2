//! Recovery of a compute server that left corrupt data: it ends with a recovery or a typed error.
//!
//! One compute server creates a tree and stops. The target fills its redo slots with records, true and false,
//! about nodes that exist and nodes that do not. It also makes this compute server the holder of some lanes,
//! and damages nodes. Another compute server condemns and recovers it, in at most two attempts. After a
//! recovery the dead compute server holds no lane, and server 0 has forgotten it. The tree itself may be
//! damaged.

use crate::fixture::{Fixture, FixtureWorker, LANES, MOST_LISTS, NODE, SERVERS, join};
use crate::source::Source;
use crate::{Reached, redo};
use sherman_core::redo::Record;
use sherman_core::root::RootWord;
use sherman_core::{Error, Recovery, Techniques};
use sherman_executor::block_on;
use sherman_fabric::{ComputeId, GlobalAddress, Memory, Space, Verdict};

/// No lease expires by itself: these tests check the data that a dead compute server left, not the time of
/// its death.
const LEASE_NANOS: u64 = 3_600_000_000_000;

/// Runs one input.
pub fn run(input: &[u8]) -> Reached {
    let mut source = Source::new(input);
    let mut fixture = Fixture::new(&mut source, LEASE_NANOS);
    fixture.find_nodes();
    let dead = fixture.worker.compute().client();
    let survivor = join(&fixture.cluster, Techniques::OURS);
    for _ in 0..source.below(4) {
        fixture.damage(&mut source);
    }
    for _ in 0..source.below(4) {
        let node = fixture.some_node(&mut source);
        fixture.take_lane(node, dead.0);
    }
    leave_records(&fixture, dead, &mut source);
    if source.byte() & 7 == 0 {
        damage_chunk_table(&fixture, &mut source);
    }
    let mut reached = Reached::Refused;
    for _ in 0..2 {
        survivor.endpoint().allow(MOST_LISTS);
        match condemn(&survivor, dead) {
            Ok(Recovery { verdict: Verdict::Recover, .. }) => {
                reached = Reached::Taken;
                assert!(!holds_lanes(&fixture, dead), "what is recovered holds no lane");
                break;
            }
            Ok(Recovery { verdict, .. }) => panic!("no other client recovers it: {verdict:?}"),
            // A record may name an unknown shape.
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

fn condemn(survivor: &FixtureWorker, dead: ComputeId) -> Result<Recovery, Error> {
    block_on(survivor.endpoint(), survivor.condemn(dead))
}

fn holds_lanes(fixture: &Fixture, client: ComputeId) -> bool {
    let lanes = (0..SERVERS).flat_map(|server| (0..LANES).map(move |lane| (server, lane)));
    lanes.into_iter().any(|(server, lane)| {
        let (space, word, mask, shift) = fixture.geometry.lane_word(lane);
        let memory = fixture.cluster.memory(server).expect("it has so many servers");
        (memory.load_u64(space, word) & mask) >> shift == u64::from(client.0)
    })
}

/// Fills some redo slots of the dead compute server.
fn leave_records(fixture: &Fixture, dead: ComputeId, source: &mut Source<'_>) {
    let slots = fixture.worker.compute().redo_slots().places();
    if slots.is_empty() {
        return;
    }
    let slot_bytes = fixture.geometry.redo_slot_bytes as usize;
    for _ in 0..source.below(6) {
        let (server, offset) = slots[source.below(slots.len())];
        let how = source.byte();
        let mut bytes = match how & 3 {
            0 => redo::slot(source),
            1 => plausible(fixture, dead, source).encode(),
            _ => {
                let mut bytes = plausible(fixture, dead, source).encode();
                source.damage(&mut bytes);
                redo::seal(&mut bytes);
                bytes
            }
        };
        bytes.truncate(slot_bytes);
        fixture.cluster.memory(server).expect("a slot there").store(Space::Host, offset, &bytes);
    }
}

/// Returns a record that mostly refers to existing nodes, as far as the input chooses.
fn plausible(fixture: &Fixture, dead: ComputeId, source: &mut Source<'_>) -> Record {
    let what = source.byte();
    let (node, made, parent) =
        (fixture.some_node(source), fixture.some_node(source), fixture.some_node(source));
    let image = |address: GlobalAddress| {
        let mut image = vec![0; NODE];
        fixture.cluster.memory(address.server()).expect("a node there").load(
            Space::Host,
            address.offset(),
            &mut image,
        );
        image
    };
    let version = |image: &[u8]| u16::from_le_bytes([image[12], image[13]]);
    let (node_image, made_image) = (image(node), image(made));
    let at = fixture.tree.info().root_word;
    let root = fixture.cluster.memory(at.server()).expect("its volume").load_u64(Space::Host, at.offset());
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
        tree: if source.byte() < 240 { fixture.tree.info().id } else { u32::from(source.byte()) },
        spec: if source.byte() < 240 { fixture.tree.info().spec } else { crate::frames::spec(source) },
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

/// Damages an entry of the chunk table, in a way that no server would write.
fn damage_chunk_table(fixture: &Fixture, source: &mut Source<'_>) {
    let memory = fixture.cluster.memory(source.below(2) as u16).expect("two servers");
    let at = fixture.geometry.chunk_entry(source.below(6) as u32);
    let mut word = memory.load_u64(Space::Host, at).to_le_bytes();
    word[source.below(8)] = source.byte();
    memory.store_u64(Space::Host, at, u64::from_le_bytes(word));
}
