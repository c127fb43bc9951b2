//! The options of `sherman serve`, and their help.

use crate::failure::Failure;
use crate::serve::config::ServeSettings;
use crate::serve::host::HostServeOptions;
use crate::serve::options::ServeOptions;
use clap::Args;
use std::path::PathBuf;

const SERVE_HELP: &str = "\
Serves memory until SIGINT or SIGTERM. Compute servers read and change the memory themselves. This
process only moves bytes and hands out memory. Server 0 also keeps the members, their leases and the
names of trees.

Cluster: one or more such servers, numbered from 0 in the order of the cluster's URL. Give each
server its --id and the number of --servers.

Security: without a --secret-file the server listens on this host only (127.0.0.1, ::1, Unix
sockets), unless you give --insecure. Connections are authenticated, but traffic is not encrypted.
The server refuses a secret file that others can read (chmod 600).

Replicated cluster: the first host makes it with --new-cluster, every other one joins it with --join and
the address of any host that runs. With two or more --hosts, volumes have two copies, so the cluster
survives the loss of a host. Hosts have no --id. If the cluster has declared a host lost, its process ends
with exit code 3. With --file it starts again as a new host, with empty memory. A host may listen on
shm:/path, too, as its first address: then clients of its machine map its copies.

Shared memory: with --listen shm:/path, compute servers of this host that open the cluster as
shm:/path map the memory. They read and change it with no process in between. Other clients can
connect to the same server as unix:/path, or by TCP if it also listens there.

File: with --file the memory survives the end of the process, but not a power loss or a crash of the
host.
  - A server that is started again with the same file has all acknowledged changes. Clients that
    were connected must join again.
  - The file takes all its disk space when the server starts.
  - A host keeps a folder: its memory, and its part of the cluster's state. Start it again with the same
    command.
  - --memory, --on-chip, --chunk, --lease, --id and --servers are fixed when the file is created.
    When you start the server again, omit them or give the same values.

Log: the server writes to stderr, one line each with time and peer, which clients join, leave, die
and are recovered, and what it refuses. It logs the first refusal of a kind, then at most one per
minute.

RDMA: with --listen verbs://HOST:PORT clients reach the memory through this host's RDMA NIC. They
connect to the NIC at HOST:PORT. The server chooses device, port, address and packet size, unless
the URL has ?device=mlx5_0&port=1&gid=3&mtu=4096. All memory is locked. No other address and no
--file are possible. This needs a build with --features verbs. Hosts of a replicated cluster can do so, too.

Settings file: a TOML file may contain all options under the same names, as in memory = \"8GiB\".
Relative paths start at the directory of the file. The command line overrides the file.

Exit code: 0 if a signal ended the server, 2 for invalid usage, 3 if the operation failed.

Examples:
  sherman serve --listen tcp://127.0.0.1:7000
  sherman serve --listen tcp://0.0.0.0:7000 --secret-file secret --memory 8GiB --id 1 --servers 3
  sherman serve --listen unix:/run/sherman.sock --file /var/lib/sherman/memory
  sherman serve --listen shm:/run/sherman.sock --listen tcp://127.0.0.1:7000
  sherman serve --listen verbs://10.0.0.1:7000 --secret-file secret --memory 8GiB
  sherman serve --new-cluster --hosts 3 --listen tcp://10.0.0.1:7000 --secret-file secret --memory 8GiB
  sherman serve --join tcp://10.0.0.1:7000 --listen tcp://10.0.0.2:7000 --secret-file secret --memory 8GiB
  sherman serve --new-cluster --hosts 2 --listen shm:/run/sherman-0.sock --memory 8GiB
  sherman serve --config /etc/sherman/server.toml";

/// The options of `sherman serve`.
#[derive(Debug, Args)]
#[command(after_long_help = SERVE_HELP, after_help = "Security, files, RDMA and examples: see --help")]
pub struct ServeArgs {
    /// The settings of the server.
    #[command(flatten)]
    pub settings: ServeSettings,

    /// Read settings from this TOML file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// End when stdin closes, too, so that the server does not outlive its parent
    #[arg(long)]
    pub until_stdin_closes: bool,

    /// Print the addresses as JSON, on one line, to stdout
    #[arg(long)]
    pub json: bool,
}

/// What to serve.
#[derive(Debug, PartialEq, Eq)]
pub enum Serving {
    /// A memory server of its own, or of a cluster without replication.
    Server(ServeOptions),
    /// A host of a replicated cluster.
    Host(HostServeOptions),
}

impl ServeArgs {
    /// Returns the checked options of the server or host.
    pub fn options(&self) -> Result<Serving, Failure> {
        let from_file = match &self.config {
            Some(path) => ServeSettings::from_file(path)?,
            None => ServeSettings::default(),
        };
        let settings = self.settings.clone().over(from_file);
        match HostServeOptions::new(&settings)? {
            Some(host) => Ok(Serving::Host(host)),
            None => ServeOptions::new(settings).map(Serving::Server),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use crate::serve::log::LogLevel;
    use clap::Parser;
    use std::time::Duration;

    fn serving(line: &[&str]) -> Result<Serving, Failure> {
        let arguments = Arguments::try_parse_from([&["sherman", "serve"], line].concat());
        match arguments.map(|arguments| arguments.command) {
            Ok(Command::Serve(args)) => args.options(),
            Ok(_) => panic!("serve is serve"),
            Err(error) => Err(Failure::of_parse(&error).expect("no call for help")),
        }
    }

    fn options(line: &[&str]) -> Result<ServeOptions, Failure> {
        match serving(line)? {
            Serving::Server(options) => Ok(options),
            Serving::Host(host) => panic!("{host:?} is no plain server"),
        }
    }

    #[test]
    fn a_host_is_served_only_if_the_line_says_so() {
        let host = ["--listen", "unix:/a", "--new-cluster", "--memory", "1GiB"];
        assert!(matches!(serving(&host), Ok(Serving::Host(_))));
        let host = ["--listen", "unix:/a", "--join", "tcp://a:7000", "--memory", "1GiB"];
        assert!(matches!(serving(&host), Ok(Serving::Host(_))));
        assert!(matches!(serving(&host[..2]), Ok(Serving::Server(_))));
    }

    #[test]
    fn every_option_reaches_the_server() {
        let options = options(&[
            "--listen",
            "tcp://0.0.0.0:7000",
            "--listen",
            "unix:/a",
            "--memory",
            "2GiB",
            "--on-chip",
            "64KiB",
            "--id",
            "1",
            "--servers",
            "2",
            "--cluster-name",
            "c",
            "--secret-file",
            "s",
            "--metrics",
            "127.0.0.1:9",
            "--file",
            "f",
            "--threads",
            "3",
            "--chunk",
            "1MiB",
            "--lease",
            "200ms",
            "--log",
            "warn",
        ])
        .expect("options");
        let listen = ["tcp://0.0.0.0:7000", "unix:/a"].map(|text| text.parse().expect("an address")).to_vec();
        let expected = ServeOptions {
            listen,
            memory: 2 << 30,
            on_chip: 64 << 10,
            id: 1,
            servers: 2,
            cluster_name: "c".to_owned(),
            secret_file: Some("s".into()),
            insecure: false,
            metrics: Some("127.0.0.1:9".parse().expect("an address")),
            file: Some("f".into()),
            threads: Some(3),
            chunk: 1 << 20,
            lease: Duration::from_millis(200),
            log: LogLevel::Warn,
            tear_reads: false,
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn a_file_is_read_and_overruled() {
        let path = std::env::temp_dir().join(format!("sherman-serve-{}.toml", std::process::id()));
        std::fs::write(&path, "listen = 'unix:a.sock'\nmemory = '2GiB'\nservers = 3\n").expect("a file");
        let name = path.to_str().expect("UTF-8");
        let read = options(&["--config", name, "--id", "2", "--memory", "1GiB"]).expect("options");
        assert_eq!((read.id, read.servers, read.memory), (2, 3, 1 << 30));
        assert_eq!(read.listen[0].to_string(), format!("unix:{}/a.sock", std::env::temp_dir().display()));
        std::fs::write(&path, "speed = 'max'\n").expect("a file");
        let said = options(&["--config", name]).expect_err("an unknown key").to_string();
        assert!(
            said.starts_with("error: --config: ") && said.contains("`speed`") && said.contains("line 1"),
            "{said}"
        );
        std::fs::remove_file(&path).expect("the file goes");
        let said = options(&["--config", name]).expect_err("no file").to_string();
        assert!(said.contains("--config: ") && said.contains(name), "{said}");
    }

    #[test]
    fn what_cannot_be_is_refused_by_the_option_at_fault() {
        for (line, option) in [
            (&["--listen", "7000"][..], "--listen"),
            (&["--listen", "unix:/a", "--memory", "lots"], "--memory"),
            (&["--listen", "unix:/a", "--metrics", "here"], "--metrics"),
            (&["--listen", "unix:/a", "--lease", "3"], "--lease"),
            (&["--listen", "unix:/a", "--id", "65536"], "--id"),
            (&["--listen", "tcp://0.0.0.0:1"], "--listen"),
            (&["--listen", "unix:/a", "--replicas", "2"], "--replicas"),
            (&["--listen", "unix:/a", "--join", "a:7000"], "--join"),
            (&["--listen", "unix:/a", "--new-cluster", "--id", "0"], "--id"),
            (&[], "--listen"),
        ] {
            let failure = serving(line).expect_err("refused");
            assert!(matches!(&failure, Failure::Usage(said) if said.contains(option)), "{line:?}: {failure}");
        }
    }
}
