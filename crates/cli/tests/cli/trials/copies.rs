//! `sherman check` compares both copies of every volume. The other trials rely on it.

use super::fleet::{Fleet, Plan};
use super::{TREE, open};
use crate::common::{sherman, text};
use sherman::{AnyFabric, Space};
use sherman_conformance::trees::Failure;
use sherman_executor::block_on;
use sherman_fabric::{Counters, Endpoint, WorkList, execute};
use sherman_layout::{ChunkEntry, SUPERBLOCK_BYTES, Superblock};

/// Where the bytes of a place can differ without making it another node.
const FOURTH_LINE: u64 = 3 * 64;

fn run<E: Endpoint>(endpoint: &E, list: WorkList) -> Result<WorkList, Failure> {
    Ok(block_on(endpoint, execute(endpoint, list, &Counters::default()))?)
}

fn read<E: Endpoint>(endpoint: &E, copy: u16, at: u64, bytes: u32) -> Result<Vec<u8>, Failure> {
    let mut list = endpoint.list(copy);
    let read = list.read(Space::Host, at, bytes);
    Ok(run(endpoint, list)?.bytes(read).to_vec())
}

/// Changes a byte of a node in one copy of a volume, past the protocol. Returns where.
fn damage(url: &str) -> Result<u64, Failure> {
    let AnyFabric::Hosts(fabric, table, _) = AnyFabric::open(url)? else {
        return Err("a cluster of hosts".into());
    };
    // Its servers are copies.
    let endpoint = fabric.endpoint()?;
    for volume in table.volumes() {
        let (primary, backup) = (volume.primary.ok_or("a copy")?, volume.backup.ok_or("two copies")?);
        let superblock = read(&endpoint, primary, 0, SUPERBLOCK_BYTES as u32)?;
        let geometry = Superblock::decode(&superblock)?.geometry;
        for chunk in 0..geometry.chunks {
            let word = read(&endpoint, primary, geometry.chunk_entry(chunk), 8)?;
            let word = u64::from_le_bytes(word.try_into().map_err(|_| "a word")?);
            if !matches!(ChunkEntry::from_bits(word), Some(ChunkEntry::Nodes { .. })) {
                continue;
            }
            let at = geometry.chunks_offset + u64::from(chunk) * geometry.chunk_bytes + FOURTH_LINE;
            let line = read(&endpoint, backup, at, 64)?;
            if line.iter().filter(|byte| **byte != 0).count() > 8 {
                let mut list = endpoint.list(backup);
                list.write(Space::Host, at + 20, &[!line[20]]);
                run(&endpoint, list)?;
                return Ok(at);
            }
        }
    }
    Err("no volume has a node".into())
}

#[test]
fn check_finds_a_copy_that_differs() -> Result<(), Failure> {
    let new = ["--replicas", "2", "--hosts", "2", "--lease", "1s", "--chunk", "1MiB"];
    let fleet = Fleet::start(2, Plan::local(&["--memory", "64MiB"], &new))?;
    let cluster = open(&fleet.url())?;
    let client = cluster.tree::<u64, u64>(TREE)?.client()?;
    let entries: Vec<(u64, u64)> = (0..5_000).map(|key| (key, !key)).collect();
    client.insert_many(&entries)?;
    let check = || sherman(&["check", "--cluster", &fleet.url()]);
    let sound = check();
    assert_eq!(sound.status.code(), Some(0), "{}{}", text(&sound.stdout), text(&sound.stderr));
    let at = damage(&fleet.url())?;
    let found = check();
    let said = text(&found.stdout);
    assert_eq!(found.status.code(), Some(1), "{said}{}", text(&found.stderr));
    assert!(said.contains("I55") && said.contains(&format!("{at:#x}")), "{said}");
    Ok(())
}
