//! A memory server's tables: if the memory opens, the server answers, and the memory opens again after any
//! requests.

use crate::source::Source;
use crate::{Reached, superblock};
use sherman_fabric::control::{ChunkClass, TreeSpec};
use sherman_fabric::{ComputeId, Memory, Request, RequestId, Seen, Space, TreeTypes};
use sherman_layout::control::{CONTROL_BLOCK_BYTES, STATE_OFFSET};
use sherman_layout::testing::{VecMemory, small_options};
use sherman_layout::{ControlGeometry, FormatOptions, SUPERBLOCK_BYTES};
use sherman_memory_server::{Memories, MemoryServer, OpenError};
use twox_hash::XxHash3_64;

const HOST: usize = 64 << 10;
const ON_CHIP: usize = 512;
const ENTRY: usize = 256;
const AT_ID: usize = 8;
const AT_CHECKSUM: usize = 56;
/// Upper bound on the requests before the damage, and on those after it.
const REQUESTS: usize = 24;

/// Runs one input.
pub fn run(input: &[u8]) -> Reached {
    let mut source = Source::new(input);
    let how = source.byte();
    let options = FormatOptions { server: u16::from(how & 1), servers: 2, ..small_options() };
    let control = VecMemory::new(ControlGeometry::bytes_of(&options) as usize, 0);
    let (volume, control) = (&VecMemory::new(HOST, ON_CHIP), &control);
    let memories = Memories { volume, control };
    let mut server = MemoryServer::format(memories, &options).expect("these options fit");
    let geometry = *server.geometry();
    let mut now = 1;
    for _ in 0..source.below(REQUESTS) {
        ask(&mut server, memories, &mut source, &mut now);
    }
    let of_control = ControlGeometry::plan(&geometry);
    let tables = [
        (0, SUPERBLOCK_BYTES as u64),
        (SUPERBLOCK_BYTES as u64, 64),
        (geometry.client_offset, geometry.client_table_bytes()),
        (geometry.chunk_table_offset, geometry.chunk_table_bytes()),
        (0, geometry.chunks_offset),
    ];
    damage(volume, &tables, how, &mut source);
    if how & 1 == 0 {
        let tables = [
            (0, CONTROL_BLOCK_BYTES as u64),
            (STATE_OFFSET, 64),
            (of_control.member_offset(), of_control.member_table_bytes()),
            (of_control.catalog_offset(), of_control.catalog_bytes()),
            (of_control.server_offset(), of_control.server_table_bytes()),
            (0, of_control.bytes()),
        ];
        damage(control, &tables, how, &mut source);
    }
    if how & 4 != 0 {
        let mut block = vec![0; SUPERBLOCK_BYTES];
        volume.load(Space::Host, 0, &mut block);
        superblock::seal(&mut block);
        volume.store(Space::Host, 0, &block);
    }
    if how & 8 != 0 {
        seal_catalog(control, &of_control);
    }
    match MemoryServer::open(memories) {
        Ok(mut server) => {
            for _ in 0..source.below(REQUESTS) {
                ask(&mut server, memories, &mut source, &mut now);
            }
            let _ = server.trees();
            if let Err(error) = MemoryServer::open(memories) {
                panic!("a memory that opened does not open again after requests: {error}");
            }
            Reached::Taken
        }
        Err(OpenError::Superblock(_) | OpenError::Truncated { .. } | OpenError::Corrupt { .. }) => {
            Reached::Refused
        }
        Err(other) => panic!("an unknown error: {other}"),
    }
}

/// Overwrites tables.
fn damage(memory: &VecMemory, tables: &[(u64, u64)], how: u8, source: &mut Source<'_>) {
    for _ in 0..source.below(4) {
        let (offset, len) = tables[source.below(tables.len())];
        let mut bytes = vec![0; len as usize];
        memory.load(Space::Host, offset, &mut bytes);
        if how & 2 == 0 {
            source.damage(&mut bytes);
        } else {
            // A word that another entry may hold: the tables consist mostly of words.
            let word =
                u64::from(source.byte()) | u64::from(source.u16()) << 16 | u64::from(source.byte()) << 40;
            let at = source.below(bytes.len() / 8) * 8;
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        memory.store(Space::Host, offset, &bytes);
    }
}

fn seal_catalog(memory: &VecMemory, geometry: &ControlGeometry) {
    for index in 0..geometry.catalog_capacity {
        let mut entry = [0; ENTRY];
        memory.load(Space::Host, geometry.catalog_entry(index), &mut entry);
        if entry[AT_ID..AT_ID + 4] != [0; 4] {
            let mut bare = entry;
            bare[AT_CHECKSUM..AT_CHECKSUM + 8].fill(0);
            let sum = XxHash3_64::oneshot(&bare);
            memory.store_u64(Space::Host, geometry.catalog_entry(index) + AT_CHECKSUM as u64, sum);
        }
    }
}

/// Sends one request of some client at some later time. The answer does not matter.
fn ask(server: &mut MemoryServer, memory: Memories<'_>, source: &mut Source<'_>, now: &mut u64) {
    let from = ComputeId(source.below(20) as u16);
    let request = request(source);
    *now += 1 << source.below(34);
    match from.0 {
        18 => _ = server.administer(memory, &request, *now),
        19 => {
            let seen =
                Seen { memory: u64::from(source.byte()), cluster: u64::from(source.byte() % 2) * 0x5eed };
            let _ = server.join_seeing(memory, &[None, Some(seen)], *now);
            let _ = (server.adopt(memory, seen.cluster), server.lost());
        }
        _ => _ = server.handle(memory, from, &request, *now),
    }
    if source.byte() == 0 {
        server.lose(memory, from);
    }
    let _ = (server.take_reaped(), server.spans_owned(from));
    let _ =
        (server.is_fenced(from), server.client(from), server.member(from), server.chunk(u32::from(from.0)));
}

fn request(source: &mut Source<'_>) -> Request {
    let kind = source.byte();
    let client = ComputeId(source.below(20) as u16);
    let name = || ["a", "b", "", "orders"][usize::from(client.0) % 4].to_owned();
    match kind % 29 {
        0..=2 => Request::Join,
        3 => Request::Leave,
        4..=5 => Request::AllocSpans {
            class: ChunkClass { node_bytes: 64 * (3 + source.below(40) as u32), format: source.byte() % 3 },
            count: u16::from(source.byte() % 8),
        },
        6 => {
            let one = |source: &mut Source<'_>| (256 * source.below(320) as u64, source.byte() & 1 == 0);
            Request::FreeSpans { spans: (0..source.below(4)).map(|_| one(source)).collect() }
        }
        7 => Request::RedoArea,
        8..=9 => Request::CreateTree {
            name: name(),
            spec: TreeSpec {
                format: 1,
                key_len: u16::from(source.byte()),
                value_len: u32::from(source.byte()),
                leaf_bytes: 64 * u32::from(source.byte()),
                internal_bytes: 1024,
            },
            types: TreeTypes::new(&name(), "u64"),
            asked: RequestId::default(),
        },
        10 => Request::Activate,
        11 => Request::OpenTree { name: name() },
        12 => Request::ListTrees,
        13 => Request::DropTree { name: name(), id: source.below(6) as u32 },
        14 => Request::Fence { client },
        15 => Request::Usage,
        16 => Request::Renew,
        17 => Request::Depart,
        18 => Request::Suspect { client },
        19 => Request::Condemn { client },
        20 => Request::SpansOf { client, from: 0 },
        21 => Request::Servers,
        22 => Request::DeclareLost { server: client.0 },
        23 => Request::Short,
        24 => Request::Succeed { client, incarnation: u32::from(source.byte() % 4) },
        25 => Request::Relieve { client },
        26 => Request::Release,
        27 => Request::FreeId { client },
        _ if kind & 1 == 0 => Request::Members,
        _ => Request::Retire { client },
    }
}
