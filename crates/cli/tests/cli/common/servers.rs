//! Memory servers as separate processes.

use rustix::process::{Pid, Signal, kill_process};
use sherman_soft_nic::server::Listen;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How the servers listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Unix,
    Shm,
    Verbs,
}

/// The transports that every suite runs on.
pub const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Unix, Transport::Shm];

/// One server process. Dropping it kills the process.
pub struct Server {
    args: Vec<String>,
    child: Child,
    /// Where the server listens, as in a URL.
    pub address: String,
}

impl Server {
    /// Starts a server and waits until it listens.
    pub fn start(args: Vec<String>) -> Self {
        let quiet = ["--log".to_owned(), "warn".to_owned()];
        Self::start_telling(args.into_iter().chain(quiet).collect(), Stdio::inherit())
    }

    /// Starts a server that logs to `stderr`.
    pub fn start_telling(args: Vec<String>, stderr: Stdio) -> Self {
        let (child, address) = launch(&args, stderr);
        Self { args, child, address }
    }

    /// Asks the server to end, as an operator does, and waits until it has ended.
    pub fn terminate(&mut self) -> ExitStatus {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, Signal::TERM).expect("it runs");
        self.child.wait().expect("it ends")
    }

    /// Where the server listens.
    pub fn listen(&self) -> Listen {
        match self.address.starts_with('/') {
            true => Listen::Unix(PathBuf::from(&self.address)),
            false => Listen::Tcp(self.address.clone()),
        }
    }

    /// Kills the server as the kernel does: no destructor runs and no last message is sent.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Waits until the server has ended by itself.
    pub fn wait_for_end(&mut self, limit: Duration) -> ExitStatus {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("its status") {
                return status;
            }
            assert!(Instant::now() < end, "it did not end within {limit:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the server again at the same address.
    pub fn restart(&mut self) {
        let mut args = self.args.clone();
        if let Some(tcp) = args.iter_mut().find(|arg| arg.starts_with("tcp://")) {
            *tcp = format!("tcp://{}", self.address);
        }
        let (child, address) = launch(&args, Stdio::inherit());
        assert_eq!(address, self.address);
        self.child = child;
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `sherman serve` and reads the address where it listens.
fn launch(args: &[String], stderr: Stdio) -> (Child, String) {
    let mut child = Command::new(super::program())
        .arg("serve")
        .args(args)
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .expect("the command starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let address = lines.find_map(|line| {
        let line = line.expect("text");
        let url = line.strip_prefix("listening on ")?.to_owned();
        let schemes = ["tcp://", "unix:", "shm:", "verbs://"];
        let place = schemes.into_iter().find_map(|scheme| url.strip_prefix(scheme));
        place.map(str::to_owned)
    });
    (child, address.expect("a server says where it listens"))
}

/// A cluster of server processes.
pub struct Servers {
    pub transport: Transport,
    pub servers: Vec<Server>,
    directory: PathBuf,
}

static CLUSTERS: AtomicU32 = AtomicU32::new(0);

impl Servers {
    /// Starts `count` servers with `more` arguments each. In these arguments `{id}` stands for the server's
    /// number, and `{dir}` for the cluster's own directory.
    pub fn start(transport: Transport, count: u16, more: &[&str]) -> Self {
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("sherman-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let dir = directory.to_str().expect("a path of text").to_owned();
        let one = |id: u16| {
            let listen = match transport {
                Transport::Tcp => "tcp://127.0.0.1:0".to_owned(),
                Transport::Unix => format!("unix:{dir}/{id}.sock"),
                Transport::Shm => format!("shm:{dir}/{id}.sock"),
                Transport::Verbs => "verbs://127.0.0.1:0".to_owned(),
            };
            let own = ["--listen".to_owned(), listen, "--id".to_owned(), id.to_string()];
            let count = ["--servers".to_owned(), count.to_string()];
            let more = more.iter().map(|arg| arg.replace("{id}", &id.to_string()).replace("{dir}", &dir));
            Server::start(own.into_iter().chain(count).chain(more).collect())
        };
        let servers = (0..count).map(one).collect();
        Self { transport, servers, directory }
    }

    /// The URL that opens the cluster.
    pub fn url(&self) -> String {
        let scheme = match self.transport {
            Transport::Tcp => "tcp://",
            Transport::Unix => "unix:",
            Transport::Shm => "shm:",
            Transport::Verbs => "verbs://",
        };
        let addresses: Vec<&str> = self.servers.iter().map(|server| server.address.as_str()).collect();
        format!("{scheme}{}", addresses.join(","))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.servers.clear();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Waits until `holds` returns true. Fails after `limit`.
pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
