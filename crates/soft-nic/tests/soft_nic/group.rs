//! A client of a cluster of hosts, and the sockets of such hosts. The control planes are the test's.

use crate::raw::{FREE, host, start};
use sherman_control::plane::{Answer, Asker, ControlPlane};
use sherman_control::{Address, CopyPlan, JoinOptions, Operator};
use sherman_executor::block_on;
use sherman_fabric::control::Renewal;
use sherman_fabric::group::{Admission, ClusterInfo, HostInfo};
use sherman_fabric::{
    Call, ComputeId, Counters, Endpoint, FabricError, Peer, Refusal, Request, Response, Space, calls, execute,
};
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions};
use sherman_soft_nic::{SoftNicEndpoint, SoftNicFabric};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CLIENT: ComputeId = ComputeId(7);
const CLUSTER: u64 = 500;
const EPOCH: u64 = 3;

/// What all control planes know.
#[derive(Debug, Default)]
struct Known {
    leader: Option<u16>,
    addresses: Vec<String>,
    epoch: u64,
    asked: Vec<(u16, Asker, Request)>,
}

#[derive(Debug)]
struct Plane(u16, Arc<Mutex<Known>>);

impl ControlPlane for Plane {
    fn ask(&self, asker: Asker, request: Request, answer: Answer) {
        let mut known = self.1.lock().unwrap();
        known.asked.push((self.0, asker, request.clone()));
        let leader = known.leader.map(|leader| known.addresses[usize::from(leader)].clone());
        let hosts = || (0u16..).zip(known.addresses.iter().cloned());
        let refuse = |refusal| Err(FabricError::Refused(refusal));
        let said = match request {
            Request::Cluster => {
                let info = |(number, address)| HostInfo {
                    number,
                    incarnation: 1,
                    node: number.into(),
                    address,
                    up: true,
                    voter: true,
                    memory_bytes: 1 << 20,
                    leaving: false,
                };
                Ok(Response::Cluster(Box::new(ClusterInfo {
                    cluster: CLUSTER,
                    host: self.0,
                    leader,
                    hosts: hosts().map(info).collect(),
                    ..ClusterInfo::default()
                })))
            }
            _ if known.leader != Some(self.0) => {
                refuse(Refusal::NotLeader { leader: leader.unwrap_or_default() })
            }
            Request::Join => Ok(Response::Admitted(Box::new(Admission {
                client: CLIENT,
                incarnation: 2,
                cluster: CLUSTER,
                lease_nanos: 3_000_000_000,
                table: vec![1, 2, 3],
                hosts: hosts().collect(),
            }))),
            _ if known.epoch > EPOCH => Err(FabricError::EpochEnded { client: CLIENT }),
            Request::Renew => Ok(Response::Renewed(Renewal::default())),
            Request::ListTrees => Ok(Response::Trees(Vec::new())),
            _ => Ok(Response::Done),
        };
        drop(known);
        // The answer comes from another thread, as that of a group.
        std::thread::spawn(move || answer(said));
    }

    fn receive(&self, _: &[u8]) {}

    fn epoch(&self) -> u64 {
        self.1.lock().unwrap().epoch
    }

    fn cluster(&self) -> u64 {
        CLUSTER
    }

    fn host(&self) -> u16 {
        self.0
    }
}

/// Two hosts: copy 0 is on host 0, and copy 2 on host 1. No volume names copy 1.
fn hosts() -> (Vec<RunningServer>, Arc<Mutex<Known>>, JoinOptions) {
    let known = Arc::new(Mutex::new(Known { leader: Some(0), epoch: EPOCH, ..Known::default() }));
    let mut options = JoinOptions::new(Vec::new());
    options.patience = Duration::from_secs(2);
    let servers = [0u16, 1].map(|number| {
        let plane: Arc<dyn ControlPlane> = Arc::new(Plane(number, Arc::clone(&known)));
        let listen = vec![Listen::Tcp("127.0.0.1:0".into())];
        let server = start(ServerOptions { shards: 2, ..ServerOptions::with_plane(plane, listen) });
        server.install_copy(2 * number, host(0, 1));
        let Listen::Tcp(address) = &server.addresses()[0] else { panic!("a TCP address") };
        options.servers.insert(0, Address::Tcp(address.clone()));
        known.lock().unwrap().addresses.push(format!("tcp://{address}"));
        server
    });
    (servers.into(), known, options)
}

fn decode(table: &[u8]) -> Option<CopyPlan> {
    (table == [1, 2, 3]).then(|| CopyPlan { epoch: EPOCH, copies: vec![Some(0), None, Some(1)] })
}

fn ask<C: Call>(endpoint: &SoftNicEndpoint, peer: Peer, call: C) -> Result<C::Reply, FabricError> {
    block_on(endpoint, sherman_fabric::call(endpoint, peer, call, &Counters::default()))
}

/// Writes a byte to a copy, and reads it.
fn write(endpoint: &SoftNicEndpoint, copy: u16, byte: u8) -> Result<u8, FabricError> {
    let mut list = endpoint.list(copy);
    list.write(Space::Host, FREE, &[byte; 8]);
    let read = list.read(Space::Host, FREE, 8);
    let list = block_on(endpoint, execute(endpoint, list, &Counters::default()))?;
    Ok(list.bytes(read)[7])
}

#[test]
fn a_client_joins_hosts_uses_their_copies_and_leaves_them() {
    let (_servers, known, options) = hosts();
    assert!(SoftNicFabric::is_group(&options).unwrap());
    let fabric = SoftNicFabric::join_group(&options, decode).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    assert_eq!((write(&endpoint, 0, 5), write(&endpoint, 2, 6)), (Ok(5), Ok(6)));
    assert_eq!(write(&endpoint, 1, 7), Err(FabricError::ServerLost { server: 1 }));
    assert!(ask(&endpoint, Peer::Control, calls::Renew).is_ok());
    known.lock().unwrap().leader = Some(1);
    assert!(ask(&endpoint, Peer::Control, calls::Renew).is_ok());
    assert!(ask(&endpoint, Peer::Volume(2), calls::Usage).is_ok());
    let operator = Operator::open(&options).unwrap();
    assert_eq!(operator.ask(Peer::Control, calls::ListTrees).unwrap(), []);
    assert!(operator.ask(Peer::Volume(0), calls::Usage).is_ok());
    drop((endpoint, fabric));
    let member = Asker::Member { client: CLIENT, incarnation: 2 };
    let asked = std::mem::take(&mut known.lock().unwrap().asked);
    let leaves = asked.iter().filter(|(_, _, request)| *request == Request::Leave);
    assert_eq!(leaves.collect::<Vec<_>>(), [&(1, member, Request::Leave)]);
}

#[test]
fn a_client_that_lost_a_host_renews_until_its_epoch_ends() {
    let (mut servers, known, options) = hosts();
    let fabric = SoftNicFabric::join_group(&options, decode).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    assert_eq!(write(&endpoint, 2, 6), Ok(6));
    let gone = servers.pop().unwrap();
    gone.stop();
    gone.join().unwrap();
    assert_eq!(write(&endpoint, 2, 7), Err(FabricError::Disconnected { server: 2 }));
    assert!(ask(&endpoint, Peer::Control, calls::Renew).is_ok());
    known.lock().unwrap().epoch += 1;
    let ended = Err(FabricError::EpochEnded { client: CLIENT });
    assert_eq!(ask(&endpoint, Peer::Control, calls::Renew).map(drop), ended);
    assert_eq!(fabric.explain_break(0), FabricError::Fenced { client: CLIENT });
}
