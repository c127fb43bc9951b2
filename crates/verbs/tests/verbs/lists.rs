//! Tests lists as work requests: how many requests, calls and completions they take, and what happens if
//! queues and buffers are full.

use crate::common::{SCRATCH, has_device, join, outcome, read, run, serve, write};
use sherman_fabric::{Endpoint, FabricError, Space};
use sherman_verbs::address::Mtu;
use sherman_verbs::wire::Wire;
use sherman_verbs::{VerbsEndpoint, VerbsOptions};

fn options() -> VerbsOptions {
    VerbsOptions::default()
}

#[test]
fn a_list_is_one_call_and_one_completion() -> Result<(), FabricError> {
    if !has_device() {
        return Ok(());
    }
    let servers = [serve(0, 1, &options())];
    let fabric = join(&servers, &options()).expect("a cluster");
    let endpoint = fabric.endpoint()?;
    // The lists of an insert: lock and read, then write back and release.
    let mut list = endpoint.list(0);
    let lock = list.cas(Space::OnChip, 8, 0, 7);
    let node = list.read(Space::Host, SCRATCH, 1024);
    let list = run(&endpoint, list)?;
    assert!(list.swapped(lock) && list.old(lock) == 0 && list.bytes(node) == [0; 1024]);
    let mut list = endpoint.list(0);
    list.write(Space::Host, SCRATCH + 64, &[1; 64]);
    list.write(Space::OnChip, 8, &0u64.to_le_bytes());
    run(&endpoint, list)?;
    let small = endpoint.wire();
    println!("an insert: {small:?}");
    let expected = Wire {
        lists: 2,
        work_requests: 4,
        doorbells: 2,
        signalled: 2,
        completions: 2,
        inline_writes: 2,
        bytes_copied: 8 + 1024,
        waited: 0,
    };
    assert_eq!(small, expected);
    let mut list = endpoint.list(0);
    list.write(Space::Host, SCRATCH, &[2; 1000]);
    run(&endpoint, list)?;
    // An empty list sends nothing to the device.
    run(&endpoint, endpoint.list(0))?;
    let large = endpoint.wire();
    assert_eq!((large.lists, large.inline_writes, large.bytes_copied), (3, 2, 2032));
    Ok(())
}

/// Posts `count` lists at once and waits for all.
fn flood(
    endpoint: &VerbsEndpoint,
    count: u64,
    make: impl Fn(u64) -> sherman_fabric::WorkList,
) -> Result<(), FabricError> {
    let tickets: Vec<_> = (0..count).map(|at| endpoint.post(make(at))).collect();
    for ticket in tickets {
        let list = outcome(endpoint, ticket)?;
        endpoint.recycle(list);
    }
    Ok(())
}

#[test]
fn more_lists_than_a_queue_holds_wait_in_order() -> Result<(), FabricError> {
    if !has_device() {
        return Ok(());
    }
    let servers = [serve(0, 1, &options())];
    let fabric = join(&servers, &options()).expect("a cluster");
    let endpoint = fabric.endpoint()?;
    // 600 requests, of which 256 fit: each list adds one to the sum of the lists before it.
    let found = std::cell::RefCell::new(Vec::new());
    let tickets: Vec<_> = (0..300u64)
        .map(|at| {
            let mut list = endpoint.list(0);
            let sum = list.faa(Space::Host, SCRATCH, 1);
            list.write(Space::Host, SCRATCH + 64, &at.to_le_bytes());
            (endpoint.post(list), sum)
        })
        .collect();
    for (ticket, sum) in tickets {
        let list = outcome(&endpoint, ticket)?;
        found.borrow_mut().push(list.old(sum));
    }
    assert_eq!(found.into_inner(), (0..300).collect::<Vec<u64>>());
    assert_eq!(read(&endpoint, 0, SCRATCH + 64)?, 299);
    assert!(endpoint.wire().waited > 0);
    println!("a full queue: {:?}", endpoint.wire());
    Ok(())
}

#[test]
fn more_bytes_than_are_registered_wait_too() -> Result<(), FabricError> {
    if !has_device() {
        return Ok(());
    }
    let servers = [serve(0, 1, &options())];
    let fabric = join(&servers, &options()).expect("a cluster");
    let endpoint = fabric.endpoint()?;
    let large = |at: u64| {
        let mut list = endpoint.list(0);
        list.write(Space::Host, SCRATCH, &vec![at as u8; 256 << 10]);
        list.read(Space::Host, SCRATCH, 256 << 10);
        list
    };
    flood(&endpoint, 12, large)?;
    assert!(endpoint.wire().waited > 0, "{:?}", endpoint.wire());
    let mut list = endpoint.list(0);
    (0..5).for_each(|_| _ = list.read(Space::Host, 0, 1 << 20));
    assert!(matches!(run(&endpoint, list), Err(FabricError::TooLarge { .. })));
    assert_eq!(read(&endpoint, 0, SCRATCH)?, u64::from_le_bytes([11; 8]));
    Ok(())
}

/// Does the same work under any limits of the device.
fn work(options: &VerbsOptions) -> Result<(), FabricError> {
    let servers = [serve(0, 2, options), serve(1, 2, options)];
    let fabric = join(&servers, options).expect("a cluster");
    let endpoint = fabric.endpoint()?;
    for server in 0..2 {
        let data: Vec<u8> = (0..70_001u32).map(|at| (at * 31 / 7) as u8).collect();
        let mut list = endpoint.list(server);
        list.write(Space::Host, SCRATCH + 3, &data);
        let back = list.read(Space::Host, SCRATCH + 3, data.len() as u32);
        let list = run(&endpoint, list)?;
        assert!(list.bytes(back) == data, "what was written is read");
        flood(&endpoint, 40, |_| {
            let mut list = endpoint.list(server);
            list.read(Space::Host, SCRATCH, 3000);
            list.faa(Space::Host, SCRATCH + (128 << 10), 1);
            list.read(Space::Host, SCRATCH, 3000);
            list.faa(Space::OnChip, 16, 1);
            list
        })?;
        assert_eq!(read(&endpoint, server, SCRATCH + (128 << 10))?, 40);
    }
    Ok(())
}

#[test]
fn one_read_in_flight_is_enough() -> Result<(), FabricError> {
    if has_device() { work(&VerbsOptions { rd_atomic: Some(1), ..options() }) } else { Ok(()) }
}

#[test]
fn packets_may_be_small() -> Result<(), FabricError> {
    if !has_device() {
        return Ok(());
    }
    for mtu in [Mtu::M256, Mtu::M1024] {
        work(&VerbsOptions { mtu: Some(mtu), ..options() })?;
    }
    Ok(())
}

#[test]
fn lock_lanes_may_lie_in_host_memory() -> Result<(), FabricError> {
    if has_device() { work(&VerbsOptions { chip_in_host: true, ..options() }) } else { Ok(()) }
}

#[test]
fn a_device_and_an_address_may_be_named() -> Result<(), FabricError> {
    if !has_device() {
        return Ok(());
    }
    let any = sherman_verbs::Device::open(&options(), None).expect("a device");
    let named = VerbsOptions { device: Some(any.name().to_owned()), port: Some(1), ..options() };
    work(&named)?;
    for wrong in [
        VerbsOptions { device: Some("nowhere".to_owned()), ..options() },
        VerbsOptions { port: Some(99), ..options() },
    ] {
        let refused = sherman_verbs::Device::open(&wrong, None).expect_err("there is none").to_string();
        assert!(refused.contains("nowhere") || refused.contains("99"), "{refused}");
    }
    Ok(())
}

#[test]
fn what_an_endpoint_posted_last_is_executed_though_it_is_dropped() -> Result<(), FabricError> {
    if !has_device() {
        return Ok(());
    }
    let servers = [serve(0, 1, &options())];
    let fabric = join(&servers, &options()).expect("a cluster");
    let endpoint = fabric.endpoint()?;
    for at in 0..300u64 {
        let mut list = endpoint.list(0);
        list.write(Space::Host, SCRATCH, &vec![at as u8; 300]);
        list.write(Space::Host, SCRATCH + 1024, &at.to_le_bytes());
        let ticket = endpoint.post(list);
        endpoint.forget(ticket);
    }
    drop(endpoint);
    let next = fabric.endpoint()?;
    assert_eq!(read(&next, 0, SCRATCH + 1024)?, 299);
    assert_eq!(next.wire().lists, 1);
    write(&next, 0, SCRATCH, 1)
}
