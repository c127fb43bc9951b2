//! The options: where the servers are. The script passes them.

use crate::Transport;
use std::error::Error;
use std::path::PathBuf;

/// A server process and its two addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    /// Its process id.
    pub(crate) pid: u32,
    /// `host:port`.
    pub(crate) tcp: String,
    /// The path of its socket.
    pub(crate) unix: String,
}

impl Server {
    /// Parses `PID,HOST:PORT,PATH`.
    fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        let parts: Vec<&str> = text.splitn(3, ',').collect();
        let &[pid, tcp, unix] = parts.as_slice() else {
            return Err(format!("{text}: a server is PID,HOST:PORT,PATH").into());
        };
        Ok(Self { pid: pid.parse()?, tcp: tcp.to_owned(), unix: unix.to_owned() })
    }

    /// Returns the URL of a cluster that consists of this server.
    pub(crate) fn url(&self, transport: Transport) -> String {
        match transport {
            Transport::Tcp => format!("tcp://{}", self.tcp),
            Transport::Unix => format!("unix:{}", self.unix),
        }
    }
}

/// The options of the command line.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The memory server for raw lists. The program overwrites its memory at random.
    pub(crate) raw: Server,
    /// The memory server for the tree.
    pub(crate) tree: Server,
    /// The Redis server, if there is one.
    pub(crate) redis: Option<Server>,
    /// Where to write the table as JSON.
    pub(crate) json: Option<PathBuf>,
    /// The number of windows of each row.
    pub(crate) windows: usize,
    /// The number of keys of the tree.
    pub(crate) keys: u64,
    /// The names of the rows to measure; none means all.
    pub(crate) only: Vec<String>,
    /// The kind of socket to measure; none means both.
    pub(crate) transport: Option<Transport>,
    /// How many operations to keep in flight; none means all.
    pub(crate) depth: Option<u64>,
}

impl Options {
    pub(crate) fn parse() -> Result<Self, Box<dyn Error>> {
        let mut options = Self { windows: 5, keys: 1_000_000, ..Self::default() };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--raw" => options.raw = Server::parse(&value)?,
                "--tree" => options.tree = Server::parse(&value)?,
                "--redis" => options.redis = Some(Server::parse(&value)?),
                "--json" => options.json = Some(value.into()),
                "--windows" => options.windows = value.parse()?,
                "--keys" => options.keys = value.parse()?,
                "--only" => options.only.push(value),
                "--transport" => options.transport = Some(Transport::parse(&value)?),
                "--depth" => options.depth = Some(value.parse()?),
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        if options.raw.pid == 0 || options.tree.pid == 0 {
            return Err("--raw and --tree are needed: scripts/net-bench starts the servers".into());
        }
        Ok(options)
    }
}
