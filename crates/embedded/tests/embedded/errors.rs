//! Bad input is an error, never a panic, and a list stops at its first bad verb (F7).

use crate::common::{CHIP, MEMORY, SCRATCH, ask, cluster, options, read_word, run, write};
use sherman_embedded::{Atomicity, EmbeddedCluster, EmbeddedError, EmbeddedOptions, MAX_SERVERS};
use sherman_fabric::{
    Endpoint, Fabric, FabricError, GlobalAddress, Peer, Request, Response, Space, Ticket, calls,
};
use sherman_layout::FormatError;
use std::task::{Context, Poll, Waker};

fn refused(options: EmbeddedOptions) -> EmbeddedError {
    EmbeddedCluster::new(options).expect_err("refused")
}

#[test]
fn a_cluster_that_cannot_be_says_why() {
    assert_eq!(refused(options(0)), EmbeddedError::NoServers);
    let asked = MAX_SERVERS + 1;
    assert_eq!(refused(options(asked)), EmbeddedError::TooManyServers { asked, limit: MAX_SERVERS });
    let small = EmbeddedOptions { memory_bytes: 1000, ..options(2) };
    let error = refused(small);
    assert!(
        matches!(
            error,
            EmbeddedError::Format { server: 0, error: FormatError::TooSmall { memory: 960, .. } }
        ),
        "{error}"
    );
    let limit = GlobalAddress::OFFSET_LIMIT;
    for bytes in [u64::MAX, limit + 1] {
        let absurd = EmbeddedOptions { memory_bytes: bytes, ..options(1) };
        assert_eq!(refused(absurd), EmbeddedError::TooMuchMemory { bytes, limit });
    }
}

/// AddressSanitizer needs `ASAN_OPTIONS=allocator_may_return_null=1` for this.
#[cfg(not(miri))]
#[test]
fn a_system_without_enough_memory_says_so() {
    let bytes = 1 << 47;
    let absurd = EmbeddedOptions { memory_bytes: bytes, ..options(1) };
    assert_eq!(refused(absurd), EmbeddedError::OutOfMemory { server: 0, bytes });
}

#[cfg(not(miri))]
#[test]
fn memory_that_is_not_used_costs_nothing() {
    // Far more than most machines have. Only the tables are ever touched.
    let options = EmbeddedOptions { memory_bytes: 16 << 30, ..options(2) };
    let cluster = EmbeddedCluster::new(options).unwrap();
    let endpoint = cluster.join().unwrap().endpoint();
    write(&endpoint, Space::Host, (16 << 30) - 64, &[7; 64]).unwrap();
    assert_eq!(read_word(&endpoint, Space::Host, (16 << 30) - 8), Ok(0x0707_0707_0707_0707));
}

#[test]
fn a_list_stops_at_its_first_bad_verb() {
    let cluster = cluster(1);
    let endpoint = cluster.join().unwrap().endpoint();
    let mut list = endpoint.list(0);
    list.write(Space::Host, SCRATCH, &[1; 8]);
    list.write(Space::Host, MEMORY - 4, &[2; 8]);
    list.write(Space::Host, SCRATCH + 8, &[3; 8]);
    let address = GlobalAddress::new(0, MEMORY - 4);
    assert_eq!(
        run(&endpoint, list).err(),
        Some(FabricError::OutOfBounds { space: Space::Host, address, len: 8 })
    );
    assert_eq!(read_word(&endpoint, Space::Host, SCRATCH), Ok(0x0101_0101_0101_0101));
    assert_eq!(read_word(&endpoint, Space::Host, SCRATCH + 8), Ok(0));
    assert_eq!(read_word(&endpoint, Space::Host, MEMORY - 8), Ok(0));
}

#[test]
fn widths_and_alignments_are_checked() {
    let cluster = cluster(1);
    let endpoint = cluster.join().unwrap().endpoint();
    let outcome = |fill: &dyn Fn(&mut sherman_fabric::WorkList)| {
        let mut list = endpoint.list(0);
        fill(&mut list);
        run(&endpoint, list).map(drop)
    };
    let misaligned =
        |space, offset| Err(FabricError::Misaligned { space, address: GlobalAddress::new(0, offset) });
    use Space::{Host, OnChip};
    assert_eq!(outcome(&|list| _ = list.cas(Host, SCRATCH + 4, 0, 1)), misaligned(Host, SCRATCH + 4));
    assert_eq!(outcome(&|list| _ = list.faa(OnChip, 12, 1)), misaligned(OnChip, 12));
    for (offset, len) in [(1, 2), (2, 4), (4, 8), (0, 3), (4, 16), (8, 12), (8, 0), (6, 4)] {
        assert_eq!(outcome(&|list| _ = list.read(OnChip, offset, len)), misaligned(OnChip, offset));
        assert_eq!(
            outcome(&|list| _ = list.write(OnChip, offset, &vec![1; len as usize])),
            misaligned(OnChip, offset)
        );
    }
    assert_eq!(outcome(&|list| _ = list.write(OnChip, 8, &[1; 16])), misaligned(OnChip, 8));
    for (offset, len) in [(1, 1), (2, 2), (4, 4), (8, 16), (CHIP - 8, 8)] {
        assert_eq!(outcome(&|list| _ = list.read(OnChip, offset, len)), Ok(()));
    }
    for offset in [MEMORY, MEMORY + 8, GlobalAddress::OFFSET_LIMIT, u64::MAX - 7, u64::MAX] {
        let error = outcome(&|list| _ = list.read(Host, offset, 8));
        assert!(matches!(error, Err(FabricError::OutOfBounds { len: 8, .. })), "{offset}: {error:?}");
        let error = outcome(&|list| _ = list.cas(OnChip, offset, 0, 0));
        assert!(matches!(error, Err(FabricError::OutOfBounds { len: 8, .. })), "{offset}: {error:?}");
    }
    let limit = u64::from(endpoint.caps().max_transfer);
    if !cfg!(miri) {
        let asked = limit + 1;
        assert_eq!(
            outcome(&|list| _ = list.read(Host, 0, asked as u32)),
            Err(FabricError::TooLarge { asked, limit })
        );
        assert_eq!(outcome(&|list| _ = list.read(Host, 0, limit as u32)), Ok(()));
    }
    assert_eq!(outcome(&|list| _ = list.read(Host, MEMORY, 0)), Ok(()));
    assert_eq!(outcome(&|_| ()), Ok(()));
    let many = outcome(&|list| (0..65).for_each(|_| _ = list.faa(Host, SCRATCH, 1)));
    assert_eq!(many, Err(FabricError::TooLarge { asked: 65, limit: 64 }));
    assert_eq!(read_word(&endpoint, Host, SCRATCH), Ok(0));
}

#[test]
fn a_ticket_is_answered_once_and_in_kind() {
    let cluster = cluster(1);
    let endpoint = cluster.join().unwrap().endpoint();
    let mut cx = Context::from_waker(Waker::noop());
    let (list, call) = (endpoint.post(endpoint.list(0)), endpoint.call(Peer::Volume(0), Request::Usage));
    assert!(matches!(endpoint.poll(call, &mut cx), Poll::Ready(Err(FabricError::Unsupported { .. }))));
    assert!(matches!(endpoint.poll_call(list, &mut cx), Poll::Ready(Err(FabricError::Unsupported { .. }))));
    assert!(matches!(endpoint.poll(list, &mut cx), Poll::Ready(Ok(_))));
    assert!(matches!(endpoint.poll(list, &mut cx), Poll::Ready(Err(_))));
    assert!(matches!(endpoint.poll_call(call, &mut cx), Poll::Ready(Ok(Response::Usage { .. }))));
    assert!(matches!(endpoint.poll_call(call, &mut cx), Poll::Ready(Err(_))));
    assert!(matches!(endpoint.poll(Ticket(123 << 32), &mut cx), Poll::Ready(Err(_))));
    let forgotten = endpoint.post(endpoint.list(0));
    endpoint.forget(forgotten);
    endpoint.forget(forgotten);
    assert!(matches!(endpoint.poll(forgotten, &mut cx), Poll::Ready(Err(_))));
}

#[cfg(not(miri))]
#[test]
fn a_list_without_room_for_its_outcome_is_not_executed() {
    let cluster = cluster(1);
    let endpoint = cluster.join().unwrap().endpoint();
    let mut cx = Context::from_waker(Waker::noop());
    let waiting: Vec<_> = (0..1 << 16).map(|_| endpoint.post(endpoint.list(0))).collect();
    let mut list = endpoint.list(0);
    list.faa(Space::Host, SCRATCH, 1);
    let lost = endpoint.post(list);
    assert!(matches!(endpoint.poll(lost, &mut cx), Poll::Ready(Err(FabricError::TooLarge { .. }))));
    waiting.into_iter().for_each(|ticket| endpoint.forget(ticket));
    assert_eq!(read_word(&endpoint, Space::Host, SCRATCH), Ok(0));
}

#[test]
fn unknown_servers_and_requests_are_refused() {
    let cluster = cluster(2);
    let fabric = cluster.join().unwrap();
    let endpoint = Fabric::endpoint(&fabric).unwrap();
    assert_eq!(run(&endpoint, endpoint.list(2)).err(), Some(FabricError::NoSuchServer { server: 2 }));
    assert_eq!(ask(&endpoint, Peer::Volume(9), calls::Usage), Err(FabricError::NoSuchServer { server: 9 }));
    assert!(matches!(ask(&endpoint, Peer::Volume(1), calls::ListTrees), Err(FabricError::Refused(_))));
    assert!(write(&endpoint, Space::Host, SCRATCH, &[1]).is_ok());
}

#[test]
fn caps_say_what_was_asked_for() {
    let caps = |atomicity| {
        let cluster = EmbeddedCluster::new(EmbeddedOptions { atomicity, ..options(1) }).unwrap();
        cluster.caps().clone()
    };
    assert!(!caps(Atomicity::Line).verb_atomic);
    assert!(caps(Atomicity::Verb).verb_atomic);
    assert_eq!((caps(Atomicity::Line).atomic_unit, caps(Atomicity::Line).on_chip_bytes), (64, CHIP));
}
