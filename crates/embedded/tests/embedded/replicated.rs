//! Hosts in this process: the fabric contract on the copies, and copies that are made again.

use crate::common::CHIP;
use sherman_conformance::contract::{
    Breach, Harness, Participant, Patience, Report, Scratch, on_threads_of, suite,
};
use sherman_embedded::replicated::{ClusterSettings, CopiesEndpoint};
use sherman_embedded::{Atomicity, EmbeddedError, ReplicatedCluster, ReplicatedFabric, ReplicatedOptions};
use sherman_executor::{Driver, block_on};
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{
    Call, Counters, Endpoint, Fabric, FabricError, Memory, Peer, Refusal, Space, call, calls, execute,
};
use sherman_layout::FormatOptions;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const MEMORY: u64 = 1 << 20;
/// An offset well behind the superblock and the tables, in a chunk that no client allocates.
const SCRATCH: u64 = MEMORY / 2;

fn options(hosts: u16) -> ReplicatedOptions {
    let format = FormatOptions {
        chunk_bytes: MEMORY / 16,
        redo_slot_bytes: 1 << 10,
        redo_area_bytes: 1 << 10,
        member_capacity: 8,
        catalog_capacity: 4,
        // No client renews its lease in these tests.
        lease_nanos: 3_600_000_000_000,
        ..FormatOptions::default()
    };
    let settings = ClusterSettings {
        replicas: 2,
        volumes: hosts,
        hosts,
        volume_bytes: MEMORY,
        on_chip_bytes: CHIP,
        format,
    };
    ReplicatedOptions { settings, host_bytes: 4 * MEMORY, atomicity: Atomicity::Line }
}

fn cluster(hosts: u16) -> Arc<ReplicatedCluster> {
    ReplicatedCluster::new(options(hosts)).expect("a small cluster")
}

/// A compute server whose endpoints reach the copies themselves. Atomics of data are not atomic over two
/// copies, and only lanes and root words need that. So the contract is that of each copy.
struct Copies(ReplicatedFabric);

impl Fabric for Copies {
    type Endpoint = CopiesEndpoint;

    fn endpoint(&self) -> Result<CopiesEndpoint, FabricError> {
        Ok(self.0.copies())
    }
}

struct Hosts;

impl Harness for Hosts {
    type Endpoint = CopiesEndpoint;

    fn scratch(&self) -> Scratch {
        let host = SCRATCH..SCRATCH + 64 * Scratch::HOST_UNITS;
        Scratch { servers: 2, host_bytes: MEMORY, host, on_chip: 0..Scratch::ON_CHIP_BYTES }
    }

    fn rounds(&self) -> u32 {
        300
    }

    fn runs(&self) -> u32 {
        2
    }

    fn patience(&self) -> Patience {
        Patience { nanos: 300_000_000_000, polls: u64::MAX }
    }

    fn run(&self, _: u64, participants: Vec<Participant<CopiesEndpoint>>) -> Result<(), Breach> {
        // Each copy is the primary of a volume: only a primary's CPU answers a fence.
        let mut options = options(2);
        options.settings.replicas = 1;
        let cluster = ReplicatedCluster::new(options).expect("a small cluster");
        on_threads_of(participants, || cluster.join().map(Copies))
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes hours there; the other tests race the same code")]
fn the_copies_of_a_replicated_cluster_keep_the_contract() {
    let report: Report = suite(&Hosts);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.skipped().count(), 0, "{report}");
}

fn ask<E: Endpoint + Driver, C: Call>(endpoint: &E, peer: Peer, request: C) -> Result<C::Reply, FabricError> {
    block_on(endpoint, call(endpoint, peer, request, &Counters::default()))
}

fn write<E: Endpoint + Driver>(
    endpoint: &E,
    volume: u16,
    offset: u64,
    data: &[u8],
) -> Result<(), FabricError> {
    let mut list = endpoint.list(volume);
    list.write(Space::Host, offset, data);
    let list = block_on(endpoint, execute(endpoint, list, &Counters::default()))?;
    endpoint.recycle(list);
    Ok(())
}

/// The scratch bytes of every copy, by volume.
fn scratch(cluster: &ReplicatedCluster) -> BTreeMap<u16, Vec<Vec<u8>>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    cluster.look_at_copies(|volume, _, memory| {
        let mut bytes = vec![0; 4096];
        memory.load(Space::Host, SCRATCH, &mut bytes);
        found.entry(volume).or_default().push(bytes);
    });
    found
}

#[test]
fn every_copy_has_what_is_written_to_a_volume() -> Result<(), FabricError> {
    let cluster = cluster(3);
    let fabric = cluster.join()?;
    let endpoint = fabric.endpoint()?;
    for volume in 0..3 {
        write(&endpoint, volume, SCRATCH + 64, &[volume as u8 + 1; 64])?;
    }
    for (volume, copies) in scratch(&cluster) {
        assert_eq!(copies.len(), 2);
        assert!(copies.iter().all(|bytes| bytes[64..128] == [volume as u8 + 1; 64]), "{volume}");
    }
    Ok(())
}

#[test]
fn a_client_is_fenced_on_every_copy_of_a_volume_and_on_no_other() -> Result<(), FabricError> {
    let cluster = cluster(3);
    let (fabric, other) = (cluster.join()?, cluster.join()?);
    let (endpoint, fencer) = (fabric.copies(), other.endpoint()?);
    let client = fabric.client();
    ask(&fencer, Peer::Volume(0), calls::Fence { client })?;
    let entry = *other.table().volume(0).ok_or(FabricError::NoSuchServer { server: 0 })?;
    for (volume, (_, copy)) in (0..3).flat_map(|volume| {
        let entry = other.table().volume(volume).copied().unwrap_or_default();
        entry.copies().map(|copy| (volume, copy)).collect::<Vec<_>>()
    }) {
        let written = write(&endpoint, copy, SCRATCH, &[1; 64]);
        let fenced = entry.role(copy).is_some();
        let expected = if fenced { Err(FabricError::Fenced { client }) } else { Ok(()) };
        assert_eq!(written, expected, "copy {copy} of volume {volume}");
    }
    Ok(())
}

#[test]
fn a_dead_host_is_out_of_reach_and_its_volumes_go_on_elsewhere() -> Result<(), FabricError> {
    let cluster = cluster(3);
    let fabric = cluster.join()?;
    let endpoint = fabric.endpoint()?;
    write(&endpoint, 0, SCRATCH, &[7; 64])?;
    let ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ended);
    fabric.on_epoch_end(move || told.store(true, SeqCst));
    cluster.lose_host(0)?;
    assert!(ended.load(SeqCst), "the identity ends with its epoch");
    // Volume 0 has its primary on host 0. Its list cannot be completed, and no request is served.
    assert!(matches!(write(&endpoint, 0, SCRATCH, &[8; 64]), Err(FabricError::CopyFailed { server: 0, .. })));
    let client = fabric.client();
    assert_eq!(ask(&endpoint, Peer::Control, calls::Renew), Err(FabricError::EpochEnded { client }));
    let refused = ask(&endpoint, Peer::Volume(1), calls::Usage);
    assert_eq!(refused, Err(FabricError::EpochEnded { client }));

    let next = cluster.join()?;
    let table = next.table();
    assert!(!table.all_open() && table.epoch() > fabric.table().epoch());
    assert!(
        table
            .sites()
            .iter()
            .enumerate()
            .all(|(copy, site)| { site.host != 0 || table.of_copy(copy as u16).is_none() })
    );
    // The backup has what was acknowledged, and perhaps what was not.
    let mut list = next.endpoint()?.list(0);
    let read = list.read(Space::Host, SCRATCH, 64);
    let reader = next.endpoint()?;
    let list = block_on(&reader, execute(&reader, list, &Counters::default()))?;
    assert!(list.bytes(read) == [7; 64] || list.bytes(read) == [8; 64]);
    Ok(())
}

#[test]
fn a_host_that_is_declared_lost_and_lives_on_serves_its_former_clients() -> Result<(), FabricError> {
    let cluster = cluster(3);
    let (fabric, endpoint) = (cluster.join()?, cluster.join()?.endpoint()?);
    write(&endpoint, 0, SCRATCH, &[7; 64])?;
    cluster.declare_lost(0)?;
    let mut list = endpoint.list(0);
    let read = list.read(Space::Host, SCRATCH, 64);
    let list = block_on(&endpoint, execute(&endpoint, list, &Counters::default()))?;
    assert_eq!(list.bytes(read), [7; 64], "nobody can fence a client there");
    // Only the lease protects such a reader, and it is not granted any more.
    let client = fabric.client();
    let renewed = ask(&fabric.endpoint()?, Peer::Control, calls::Renew);
    assert_eq!(renewed.map(drop), Err(FabricError::EpochEnded { client }));
    Ok(())
}

#[test]
fn lost_copies_are_made_again_on_a_new_host() -> Result<(), FabricError> {
    let cluster = cluster(2);
    let fabric = cluster.join()?;
    let endpoint = fabric.endpoint()?;
    // Chunks of nodes are copied, others are not.
    let class = ChunkClass { node_bytes: 1024, format: 1 };
    ask(&endpoint, Peer::Control, calls::Activate)?;
    let spans = ask(&endpoint, Peer::Volume(0), calls::AllocSpans { class, count: 1 })?;
    write(&endpoint, 0, spans[0].offset, &[9; 64])?;
    drop((endpoint, fabric));
    cluster.lose_host(0)?;
    assert!(!cluster.is_whole());
    let added = cluster.add_host()?;
    assert_eq!(added, 2);
    let began = Instant::now();
    while !cluster.is_whole() {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", cluster.info());
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut bytes = BTreeMap::<u16, Vec<Vec<u8>>>::new();
    cluster.look_at_copies(|volume, _, memory| {
        let mut found = vec![0; 64];
        memory.load(Space::Host, spans[0].offset, &mut found);
        bytes.entry(volume).or_default().push(found);
    });
    assert_eq!(bytes[&0], [[9; 64], [9; 64]]);
    Ok(())
}

#[test]
fn impossible_clusters_are_refused() {
    let new = |change: fn(&mut ReplicatedOptions)| {
        let mut options = options(2);
        change(&mut options);
        ReplicatedCluster::new(options).map(drop).expect_err("impossible")
    };
    let small = new(|options| options.host_bytes = MEMORY);
    assert_eq!(small, EmbeddedError::HostTooSmall { offered: MEMORY, needed: 2 * MEMORY });
    let three = new(|options| options.settings.replicas = 3);
    assert!(matches!(three, EmbeddedError::Format { .. }), "{three}");
    let tiny = new(|options| options.settings.volume_bytes = 100);
    assert!(matches!(tiny, EmbeddedError::Format { .. }), "{tiny}");
    let huge = new(|options| options.settings.volume_bytes = u64::MAX);
    assert!(matches!(huge, EmbeddedError::TooMuchMemory { .. }), "{huge}");
    let unknown = cluster(2).lose_host(9);
    assert!(matches!(unknown, Err(FabricError::Refused(Refusal::BadRequest { .. }))), "{unknown:?}");
}
