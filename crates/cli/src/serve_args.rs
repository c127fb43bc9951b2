//! The options of `sherman serve`, and their help.

use crate::failure::Failure;
use crate::serve_config::ServeSettings;
use crate::serve_options::ServeOptions;
use clap::Args;
use std::path::PathBuf;

const SERVE_HELP: &str = "\
Serves memory until it is ended by SIGINT or SIGTERM. Compute servers read and change it themselves; this process only moves
bytes, hands out memory and, if it is server 0, keeps members, leases and the names of trees.

A cluster is one or more such servers, numbered from 0 in the order of its URL. Each is told its --id and how many --servers
there are. Without a --secret-file it listens on this host only (127.0.0.1, ::1, Unix sockets), unless --insecure says
otherwise; traffic is authenticated on connecting, not encrypted.

Where it listens on shm:/path, compute servers of this host that open the cluster as shm:/path map the memory and read and
change it with no process in between. Others can connect to the same server as unix:/path, or by TCP if it listens there too.

With --file the memory outlives the process: a server that is started again with the same file has all that was acknowledged.
Who was connected before must join again. It does not outlive a power loss or a crash of the host. The file takes all its disk
space when the server starts. --memory, --on-chip, --chunk, --lease, --id and --servers are fixed when the file is made:
leave them out, or give the same values, when you start the server again.

The file of --secret-file must not be readable by others (chmod 600), or the server refuses it.

The server tells on stderr, one line each with time and peer, which clients join, leave, die and are recovered, and what it
refuses: the first of a kind, then at most one a minute.

With --listen verbs://HOST:PORT clients reach the memory through this host's RDMA NIC; HOST:PORT is where they are connected to it.
Device, port, address and packet size are found out unless the URL says ?device=mlx5_0&port=1&gid=3&mtu=4096. All memory is
locked; nothing else can be listened on, and there is no --file. Needs a build with --features verbs.

All options can stand in a file of TOML under the same names, as in memory = \"8GiB\"; relative paths there begin beside it.
What the command line says wins.

Exit code: 0 if a signal ended it, 2 for invalid usage, 3 if the operation failed.

Examples:
  sherman serve --listen tcp://127.0.0.1:7000
  sherman serve --listen tcp://0.0.0.0:7000 --secret-file secret --memory 8GiB --id 1 --servers 3
  sherman serve --listen unix:/run/sherman.sock --file /var/lib/sherman/memory
  sherman serve --listen shm:/run/sherman.sock --listen tcp://127.0.0.1:7000
  sherman serve --listen verbs://10.0.0.1:7000 --secret-file secret --memory 8GiB
  sherman serve --config /etc/sherman/server.toml";

/// The options of `sherman serve`.
#[derive(Debug, Args)]
#[command(after_long_help = SERVE_HELP, after_help = "What a server does, security, files and examples: see --help")]
pub struct ServeArgs {
    /// What it is told.
    #[command(flatten)]
    pub settings: ServeSettings,

    /// Read settings from this file of TOML
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// End when stdin is closed, too, so that the server does not outlive its parent
    #[arg(long)]
    pub until_stdin_closes: bool,

    /// Print where it listens as JSON, on one line, to stdout
    #[arg(long)]
    pub json: bool,
}

impl ServeArgs {
    /// The server they ask for.
    pub fn options(&self) -> Result<ServeOptions, Failure> {
        let from_file = match &self.config {
            Some(path) => ServeSettings::from_file(path)?,
            None => ServeSettings::default(),
        };
        ServeOptions::new(self.settings.clone().over(from_file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use crate::serve_log::LogLevel;
    use clap::Parser;
    use std::time::Duration;

    fn options(line: &[&str]) -> Result<ServeOptions, Failure> {
        let arguments = Arguments::try_parse_from([&["sherman", "serve"], line].concat());
        match arguments.map(|arguments| arguments.command) {
            Ok(Command::Serve(args)) => args.options(),
            Ok(_) => panic!("serve is serve"),
            Err(error) => Err(Failure::of_parse(&error).expect("no call for help")),
        }
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
        assert!(said.starts_with("error: --config: ") && said.contains("`speed`") && said.contains("line 1"), "{said}");
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
            (&[], "--listen"),
        ] {
            let failure = options(line).expect_err("refused");
            assert!(matches!(&failure, Failure::Usage(said) if said.contains(option)), "{line:?}: {failure}");
        }
    }
}
