//! An operator's view of a cluster: members, memory servers, and the decisions that only an operator takes.

use crate::catalog::TreeDescription;
use crate::cluster::ServerUsage;
use crate::error::OpenError;
use crate::members::Member;
use crate::url::Url;
use sherman_core::Error;
use sherman_fabric::{ClientId, Request, Response, ServerInfo, ServerStats};
use sherman_soft_nic::{AdminError, JoinError, SoftNicAdmin};

/// An operator of a cluster of processes.
///
/// It needs no membership. It works when the member table is full and when memory servers other than 0 are down. Each call
/// connects, asks and disconnects.
///
/// ```no_run
/// let admin = sherman::Admin::open("tcp://10.0.0.1:7000,10.0.0.2:7000")?;
/// for server in admin.servers()? {
///     println!("memory server {} at {}: {}", server.id, server.address, server.problem().unwrap_or_default());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    inner: SoftNicAdmin,
}

/// A memory server, as server 0 knows it and as it answers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Its number.
    pub id: u16,
    /// Where the URL says that it is.
    pub address: String,
    /// The identity of its memory, as the cluster knows it; `None` until the first client has joined.
    pub memory: Option<u64>,
    /// Whether the cluster has declared it lost.
    pub lost: bool,
    /// What is there; or why nothing is.
    pub found: Result<FoundServer, OpenError>,
    /// The cluster that it should belong to.
    cluster: u64,
}

/// What answered at a memory server's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundServer {
    /// Which start of the server this is: another number after every restart.
    pub boot: u64,
    /// The identity of its memory: another number after a restart without its file.
    pub memory: u64,
    /// The cluster it belongs to: the identity of server 0's memory. `None` until the first client has joined.
    pub cluster: Option<u64>,
}

impl ServerStatus {
    /// Whether the server answers with the memory that the cluster knows.
    pub fn is_intact(&self) -> bool {
        !self.lost && self.problem().is_none()
    }

    /// Why the server cannot be used, for people; `None` if it can.
    pub fn problem(&self) -> Option<String> {
        if self.lost {
            return Some("declared lost".to_owned());
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

impl Admin {
    /// Connects to the cluster that `url` names: `tcp://`, `unix:`, `shm:` or `verbs://`, with the parameters of
    /// [`Cluster::open`](crate::Cluster::open).
    ///
    /// # Errors
    /// [`OpenError::BadUrl`] for `embedded:`: such a cluster is private to the handle that made it. Otherwise why server 0 cannot
    /// be reached.
    pub fn open(url: &str) -> Result<Self, OpenError> {
        let options = match Url::parse(url)? {
            Url::Embedded(_) => {
                let reason = "a cluster in this process is private to it; name the memory servers of a cluster of \
                              processes, as in \"tcp://10.0.0.1:7000\" or \"unix:/run/sherman/0.sock\"";
                return Err(OpenError::BadUrl { url: url.to_owned(), reason: reason.to_owned() });
            }
            Url::SoftNic(options) | Url::Shm(options) => options,
            #[cfg(feature = "verbs")]
            Url::Verbs(options, _) => options,
        };
        Ok(Self { inner: SoftNicAdmin::open(&options)? })
    }

    fn ask(&self, server: u16, request: &Request) -> Result<Response, OpenError> {
        self.inner.ask(server, request).map_err(|error| match error {
            AdminError::Connect(error) => error.into(),
            AdminError::Refused(error) => Error::from(error).into(),
            _ => unexpected(),
        })
    }

    /// Every member, by id.
    pub fn members(&self) -> Result<Vec<Member>, OpenError> {
        match self.ask(0, &Request::Members)? {
            Response::Members(members) => Ok(members.into_iter().map(Member::from).collect()),
            _ => Err(unexpected()),
        }
    }

    fn table(&self) -> Result<Vec<ServerInfo>, OpenError> {
        match self.ask(0, &Request::Servers)? {
            Response::Servers(servers) => Ok(servers),
            _ => Err(unexpected()),
        }
    }

    /// Every memory server, by number. Each is asked in turn; a server that does not answer is no error here.
    pub fn servers(&self) -> Result<Vec<ServerStatus>, OpenError> {
        let table = self.table()?;
        let cluster = table.first().map_or(0, |first| first.memory);
        let status = |(info, id): (ServerInfo, u16)| {
            let address = self.inner.addresses().get(usize::from(id)).map_or_else(String::new, ToString::to_string);
            let known = |number: u64| Some(number).filter(|number| *number != 0);
            let found = self.inner.find(id).map_err(OpenError::from).map(|found| FoundServer {
                boot: found.boot,
                memory: found.seen.memory,
                cluster: known(found.seen.cluster),
            });
            ServerStatus { id, address, memory: known(info.memory), lost: info.lost, found, cluster }
        };
        Ok(table.into_iter().zip(0u16..).map(status).collect())
    }

    /// Ends a member's lease now. Nothing of it is recovered by this call: a member that is alive does that, or the next to join.
    ///
    /// # Errors
    /// [`Error::Refused`] if nobody has this id.
    pub fn fence(&self, id: ClientId) -> Result<(), OpenError> {
        self.ask(0, &Request::Condemn { client: id }).map(drop)
    }

    /// Declares that the memory of `server` is gone for good.
    ///
    /// The lease of every member ends: all clients join again, by themselves. From then on the server is not used: whatever
    /// lay there is lost, operations that need it fail with [`Error::ServerLost`], and new memory comes from other servers. Nothing
    /// undoes this, even if the server comes back.
    ///
    /// # Errors
    /// [`Error::Refused`] for server 0, and if there is no such server.
    pub fn declare_lost(&self, server: u16) -> Result<(), OpenError> {
        self.ask(0, &Request::DeclareLost { server }).map(drop)
    }

    /// Asks every server that is not lost and has the memory that the cluster knows.
    fn each<T>(&self, ask: impl Fn(u16) -> Result<T, OpenError>) -> Result<Vec<Result<T, OpenError>>, OpenError> {
        let answer = |status: ServerStatus| {
            let server = status.id;
            if status.lost {
                return Err(Error::ServerLost { server }.into());
            }
            let found = status.found.clone()?;
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

    /// Memory in use, server by server; or why a server does not say.
    pub fn usage(&self) -> Result<Vec<Result<ServerUsage, OpenError>>, OpenError> {
        self.each(|server| match self.ask(server, &Request::Usage)? {
            Response::Usage { chunks, chunks_used, chunk_bytes, bytes_owned, bytes_free, .. } => {
                Ok(ServerUsage { chunks, chunks_used, chunk_bytes, bytes_owned, bytes_free })
            }
            _ => Err(unexpected()),
        })
    }

    /// What each memory server has counted since it was started; or why it does not say.
    pub fn stats(&self) -> Result<Vec<Result<ServerStats, OpenError>>, OpenError> {
        self.each(|server| match self.ask(server, &Request::Stats)? {
            Response::Stats(stats) => Ok(*stats),
            _ => Err(unexpected()),
        })
    }

    /// What memory server 0 has counted since it was started: it keeps the members.
    pub fn first_stats(&self) -> Result<ServerStats, OpenError> {
        match self.ask(0, &Request::Stats)? {
            Response::Stats(stats) => Ok(*stats),
            _ => Err(unexpected()),
        }
    }

    /// Every tree, by name.
    ///
    /// # Errors
    /// [`Error::Shape`] if one is of a kind that this version does not know.
    pub fn trees(&self) -> Result<Vec<TreeDescription>, OpenError> {
        match self.ask(0, &Request::ListTrees)? {
            Response::Trees(trees) => Ok(trees.into_iter().map(TreeDescription::try_from).collect::<Result<_, _>>()?),
            _ => Err(unexpected()),
        }
    }
}

fn unexpected() -> OpenError {
    Error::Unsupported { what: "the memory server's answer to an operator" }.into()
}
