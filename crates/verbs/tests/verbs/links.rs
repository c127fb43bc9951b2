//! Tests which clients get a link and which do not.

use crate::common::{SCRATCH, has_device, join, options as join_options, read, serve, write};
use sherman_control::path::{Attaching, DataPath};
use sherman_embedded::host::{Host, Session};
use sherman_embedded::{Atomicity, copy::CopyPath, memory::Region};
use sherman_executor::block_on;
use sherman_fabric::{ComputeId, Counters, Endpoint, FabricError, Refusal, Space, execute};
use sherman_layout::FormatOptions;
use sherman_soft_nic::SoftNicFabric;
use sherman_soft_nic::server::{Listen, ServerOptions, SoftNicServer};
use sherman_verbs::address::{Address, Gid, GidKind, Layer, Mtu};
use sherman_verbs::qp_info::QpInfo;
use sherman_verbs::{Device, VerbsJoinError, VerbsOptions, VerbsPath};
use std::os::fd::AsFd;
use std::sync::Arc;

#[test]
fn lists_in_frames_are_refused_where_a_nic_serves() {
    if !has_device() {
        return;
    }
    let servers = [serve(0, 1, &VerbsOptions::default())];
    let fabric = SoftNicFabric::join(&join_options(&servers)).expect("the control plane is open");
    let endpoint = fabric.endpoint().expect("an endpoint");
    let mut list = endpoint.list(0);
    list.write(Space::Host, SCRATCH, &[1; 8]);
    let refused = block_on(&endpoint, execute(&endpoint, list, &Counters::default()));
    assert!(refused.is_err(), "a list in a frame was executed");
    let nic = join(&servers, &VerbsOptions::default()).expect("a cluster").endpoint().expect("an endpoint");
    assert_eq!(read(&nic, 0, SCRATCH), Ok(0));
}

#[test]
fn malformed_queue_pair_info_gets_no_link() {
    if !has_device() {
        return;
    }
    let servers = [serve(0, 1, &VerbsOptions::default())];
    let fabric = SoftNicFabric::join(&join_options(&servers)).expect("the control plane is open");
    for body in [&[][..], &[0; 44], &[0xff; 44], &[1; 43], &[7; 1000]] {
        let refused = fabric.attach(0, body).expect_err("no link");
        assert!(matches!(refused, FabricError::Refused(Refusal::BadRequest { .. })), "{refused}");
    }
    let nic = join(&servers, &VerbsOptions::default()).expect("a cluster").endpoint().expect("an endpoint");
    assert_eq!(write(&nic, 0, SCRATCH, 1), Ok(()));
}

/// A client asks for a link after its session has ended. It gets none: the flag is set.
#[test]
fn a_session_that_is_over_gets_no_link() {
    if !has_device() {
        return;
    }
    let region = Region::new(64 << 20, 256 << 10, Atomicity::Line, CopyPath::fastest()).expect("memory");
    let host = Arc::new(Host::format(region, &FormatOptions::default()).expect("a server"));
    let device = Device::open(&VerbsOptions::default(), None).expect("a device");
    let path = VerbsPath::new(device, host).expect("registered memory");
    let session = Arc::new(Session::new(ComputeId(3), 1).expect("a session"));
    session.fence();
    assert!(path.stop(&session).is_over().expect("nothing is in its way"));
    let address = Address { layer: Layer::Ethernet, lid: 0, kind: GidKind::RoceV2, gid: Gid([1; 16]) };
    let offer = QpInfo { address, mtu: Mtu::M1024, rd_atomic: 1, queue_pair: 17, packet: 0 };
    let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let asking = Attaching { session: &session, body: &offer.encode(), socket: socket.as_fd() };
    let refused = path.attach(&asking).expect_err("no link");
    assert_eq!(refused, FabricError::Fenced { client: ComputeId(3) });
}

#[test]
fn a_server_without_a_nic_says_so() {
    if !has_device() {
        return;
    }
    let region = Region::new(64 << 20, 256 << 10, Atomicity::Line, CopyPath::fastest()).expect("memory");
    let host = Arc::new(Host::format(region, &FormatOptions::default()).expect("a server"));
    let options = ServerOptions::new(host, vec![Listen::Tcp("127.0.0.1:0".to_owned())]);
    let servers = [SoftNicServer::start(options).expect("a server")];
    match join(&servers, &VerbsOptions::default()) {
        Err(error @ VerbsJoinError::Attach(_)) => println!("{error}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_clients_exclude_each_other_by_a_lane() {
    if !has_device() {
        return;
    }
    const ROUNDS: u64 = 60;
    let servers = [serve(0, 1, &VerbsOptions::default())];
    std::thread::scope(|scope| {
        for me in 1..=2u64 {
            let servers = &servers;
            scope.spawn(move || {
                let fabric = join(servers, &VerbsOptions::default()).expect("a cluster");
                let endpoint = fabric.endpoint().expect("an endpoint");
                for _ in 0..ROUNDS {
                    let count = loop {
                        let mut list = endpoint.list(0);
                        let lock = list.cas(Space::OnChip, 0, 0, me);
                        let count = list.read(Space::Host, SCRATCH, 8);
                        let list = crate::common::run(&endpoint, list).expect("a round trip");
                        if list.swapped(lock) {
                            break u64::from_le_bytes(list.bytes(count).try_into().expect("eight bytes"));
                        }
                        std::thread::yield_now();
                    };
                    let mut list = endpoint.list(0);
                    list.write(Space::Host, SCRATCH, &(count + 1).to_le_bytes());
                    list.write(Space::OnChip, 0, &0u64.to_le_bytes());
                    crate::common::run(&endpoint, list).expect("a round trip");
                }
            });
        }
    });
    let fabric = join(&servers, &VerbsOptions::default()).expect("a cluster");
    assert_eq!(read(&fabric.endpoint().expect("an endpoint"), 0, SCRATCH), Ok(2 * ROUNDS));
}
