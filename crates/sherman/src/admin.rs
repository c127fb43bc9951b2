//! An operator's view of a cluster: members, memory servers, and the decisions that only an operator can
//! take.

use crate::builder::Place;
use crate::catalog::TreeDescription;
use crate::cluster::ServerUsage;
use crate::error::OpenError;
use crate::hosts::{HostStatus, Hosts};
use crate::members::Member;
use crate::url;
use sherman_control::{AdminError, JoinError, Operator};
use sherman_core::Error;
use sherman_fabric::control::Spreading;
use sherman_fabric::{Call, ComputeId, Peer, ServerInfo, ServerStats, calls};

/// An operator of a cluster of processes.
///
/// The operator is not a member. So it works when the member table is full, and when memory servers other
/// than 0 are down. Each call connects, sends its request and disconnects.
///
/// ```no_run
/// let admin = sherman::Admin::open("tcp://10.0.0.1:7000,10.0.0.2:7000")?;
/// for server in admin.servers()? {
///     let problem = server.problem().unwrap_or_default();
///     println!("memory server {} at {}: {problem}", server.id, server.address);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    inner: Operator,
}

/// A memory server: what the control state has recorded about it, and what it answers itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The server's number.
    pub id: u16,
    /// The server's address in the URL.
    pub address: String,
    /// The identity of the server's memory, as recorded in the cluster; `None` until the first client has
    /// joined.
    pub memory: Option<u64>,
    /// Whether the cluster has declared the server lost, or the server has left in order.
    pub lost: bool,
    /// Whether it is a host that has left its cluster in order: other hosts have its copies.
    pub left: bool,
    /// What the server answered, or why it did not answer.
    pub found: Result<FoundServer, OpenError>,
    /// The cluster that the server should belong to.
    cluster: u64,
}

/// The answer of the process at a memory server's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundServer {
    /// Identifies this start of the server: it changes with every restart.
    pub boot: u64,
    /// The identity of the server's memory: it changes when the server restarts without its file.
    pub memory: u64,
    /// The cluster of the server, given by the identity of server 0's memory. `None` until the first client
    /// has joined.
    pub cluster: Option<u64>,
}

impl ServerStatus {
    /// Whether the server answers with the memory that the cluster has recorded.
    pub fn is_intact(&self) -> bool {
        !self.lost && self.problem().is_none()
    }

    /// Readable reason why the server cannot be used; `None` if it can.
    pub fn problem(&self) -> Option<String> {
        if self.lost {
            return Some(if self.left { "has left the cluster" } else { "declared lost" }.to_owned());
        }
        match &self.found {
            Err(error) => Some(error.to_string()),
            Ok(found) if found.cluster.is_some_and(|cluster| cluster != self.cluster) => {
                Some("belongs to another cluster".to_owned())
            }
            Ok(found) if self.memory.is_some_and(|memory| memory != found.memory) => {
                Some("lost its memory: it was restarted empty, or is another server".to_owned())
            }
            Ok(_) => None,
        }
    }
}

fn open_error(error: AdminError) -> OpenError {
    match error {
        AdminError::Connect(error) => error.into(),
        AdminError::Refused(error) => Error::from(error).into(),
    }
}

impl Admin {
    /// Connects to the cluster that `url` names: `tcp://`, `unix:`, `shm:` or `verbs://`, with the parameters
    /// of [`Cluster::open`](crate::Cluster::open).
    ///
    /// # Errors
    /// [`OpenError::BadUrl`] for `embedded:`, because such a cluster is private to the handle that made it.
    /// Otherwise the reason why server 0 is not reachable.
    pub fn open(url: &str) -> Result<Self, OpenError> {
        let options = match url::parse(url)? {
            Place::Embedded(_) | Place::Replicated(_) => {
                let reason = "an embedded cluster is private to its process; name the memory servers of \
                              another cluster, as in \"tcp://10.0.0.1:7000\" or \"unix:/run/sherman/0.sock\"";
                return Err(OpenError::BadUrl { url: url.to_owned(), reason: reason.to_owned() });
            }
            Place::SoftNic(options) | Place::Shm(options) => options,
            #[cfg(feature = "verbs")]
            Place::Verbs(options, _) => options,
        };
        Ok(Self { inner: Operator::open(&options)? })
    }

    fn ask<C: Call>(&self, peer: Peer, call: C) -> Result<C::Reply, OpenError> {
        self.inner.ask(peer, call).map_err(open_error)
    }

    /// All members, sorted by id.
    pub fn members(&self) -> Result<Vec<Member>, OpenError> {
        Ok(self.ask(Peer::Control, calls::Members)?.into_iter().map(Member::from).collect())
    }

    fn table(&self) -> Result<Vec<ServerInfo>, OpenError> {
        self.ask(Peer::Control, calls::Servers)
    }

    /// The hosts and volumes of a cluster of hosts; `None` for other clusters.
    pub fn hosts(&self) -> Result<Option<Hosts>, OpenError> {
        if !self.inner.is_group() {
            return Ok(None);
        }
        Hosts::try_from(self.inner.cluster().map_err(open_error)?).map(Some)
    }

    /// The hosts of a cluster of hosts, as memory servers.
    fn hosts_as_servers(&self, hosts: Hosts) -> Vec<ServerStatus> {
        let cluster = hosts.cluster;
        let status = |host: HostStatus| {
            let id = host.id;
            let found = match host.up {
                true => self.inner.find(id).map_err(OpenError::from),
                false => Err(Error::ServerLost { server: id }.into()),
            };
            let found =
                found.map(|found| FoundServer { boot: found.boot, memory: 0, cluster: Some(cluster) });
            let (lost, left) = (!host.up, !host.up && host.leaving);
            ServerStatus { id, address: host.address, memory: None, lost, left, found, cluster }
        };
        hosts.hosts.into_iter().map(status).collect()
    }

    /// All memory servers, sorted by number. The call asks the servers one after the other. A server that
    /// does not answer is no error here.
    pub fn servers(&self) -> Result<Vec<ServerStatus>, OpenError> {
        if let Some(hosts) = self.hosts()? {
            return Ok(self.hosts_as_servers(hosts));
        }
        let table = self.table()?;
        let cluster = table.first().map_or(0, |first| first.memory);
        let status = |(info, id): (ServerInfo, u16)| {
            let address =
                self.inner.addresses().get(usize::from(id)).map_or_else(String::new, ToString::to_string);
            let known = |number: u64| Some(number).filter(|number| *number != 0);
            let found = self.inner.find(id).map_err(OpenError::from).map(|found| FoundServer {
                boot: found.boot,
                memory: found.seen.memory,
                cluster: known(found.seen.cluster),
            });
            let (memory, lost) = (known(info.memory), info.lost);
            ServerStatus { id, address, memory, lost, left: false, found, cluster }
        };
        Ok(table.into_iter().zip(0u16..).map(status).collect())
    }

    /// Ends a member's lease now. This call recovers nothing: a live member recovers the fenced one, or the
    /// next client that joins does.
    ///
    /// # Errors
    /// [`Error::Refused`] if no member has this id.
    pub fn fence(&self, id: ComputeId) -> Result<(), OpenError> {
        self.ask(Peer::Control, calls::Condemn { client: id })
    }

    /// Declares that the memory of `server` is permanently gone.
    ///
    /// The lease of every member ends, and all clients join again automatically. From then on no client uses
    /// the server. Its data is lost, operations that need it fail with [`Error::ServerLost`], and new memory
    /// comes from other servers. Nothing undoes this, even if the server comes back.
    ///
    /// # Errors
    /// [`Error::Refused`] for server 0, and if there is no such server.
    pub fn declare_lost(&self, server: u16) -> Result<(), OpenError> {
        self.ask(Peer::Control, calls::DeclareLost { server })
    }

    /// Moves all copies away from a host of a cluster of hosts, and lets it leave. Returns at once; [`hosts`]
    /// says how far that is. Repeating it changes nothing.
    ///
    /// [`hosts`]: Self::hosts
    ///
    /// # Errors
    /// [`Error::Refused`]: there is no such host, or the others cannot take its copies.
    pub fn drain(&self, host: u16) -> Result<(), OpenError> {
        self.ask(Peer::Control, calls::Drain { host, cancel: false })
    }

    /// Lets a host stay that was to leave. Copies that have moved stay where they are.
    ///
    /// # Errors
    /// [`Error::Refused`]: there is no such host, or it has left.
    pub fn cancel_drain(&self, host: u16) -> Result<(), OpenError> {
        self.ask(Peer::Control, calls::Drain { host, cancel: true })
    }

    /// Spreads copies and primaries evenly over the hosts of a cluster of hosts, by their memory. Returns at
    /// once.
    pub fn rebalance(&self, when: Spreading) -> Result<(), OpenError> {
        self.ask(Peer::Control, calls::Rebalance { when })
    }

    /// Asks every server that is not lost and has the memory that the cluster has recorded.
    fn each<T>(
        &self,
        ask: impl Fn(u16) -> Result<T, OpenError>,
    ) -> Result<Vec<Result<T, OpenError>>, OpenError> {
        let answer = |status: ServerStatus| {
            let server = status.id;
            if status.lost {
                return Err(Error::ServerLost { server }.into());
            }
            let found = status.found.clone()?;
            if self.inner.is_group() {
                return ask(server);
            }
            let address = self.inner.addresses().get(usize::from(server)).cloned();
            match (found.cluster, status.memory, address) {
                (Some(other), _, Some(address)) if other != status.cluster => {
                    let first = self.inner.addresses().first().cloned().unwrap_or_else(|| address.clone());
                    Err(JoinError::OtherCluster { server, address, first }.into())
                }
                (_, Some(memory), Some(address)) if memory != found.memory => {
                    Err(JoinError::OtherMemory { server, address }.into())
                }
                _ => ask(server),
            }
        };
        Ok(self.servers()?.into_iter().map(answer).collect())
    }

    /// Memory in use per server, or why a server does not answer.
    pub fn usage(&self) -> Result<Vec<Result<ServerUsage, OpenError>>, OpenError> {
        self.each(|server| self.ask(Peer::Volume(server), calls::Usage).map(ServerUsage::from))
    }

    /// The counters of each memory server since its start, or why it does not answer.
    pub fn stats(&self) -> Result<Vec<Result<ServerStats, OpenError>>, OpenError> {
        self.each(|server| self.ask(Peer::Volume(server), calls::Stats))
    }

    /// The counters of memory server 0 since its start. Server 0 keeps the member table. `None` in a cluster
    /// of hosts, where no single server keeps it.
    pub fn first_stats(&self) -> Result<Option<ServerStats>, OpenError> {
        if self.inner.is_group() { Ok(None) } else { self.ask(Peer::Volume(0), calls::Stats).map(Some) }
    }

    /// All trees, sorted by name.
    ///
    /// # Errors
    /// [`Error::Shape`] if this version does not know the kind of a tree.
    pub fn trees(&self) -> Result<Vec<TreeDescription>, OpenError> {
        let trees = self.ask(Peer::Control, calls::ListTrees)?;
        Ok(trees.into_iter().map(TreeDescription::try_from).collect::<Result<_, _>>()?)
    }
}
