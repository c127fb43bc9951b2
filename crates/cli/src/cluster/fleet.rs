//! Starts the server processes of a cluster, notices when one ends, and stops them in order.
//!
//! Each server prints one line of JSON with its addresses, and ends when its stdin closes. So no server
//! outlives a starter that is killed, and stopping needs no signal. Each server has its own process group:
//! Ctrl-C reaches only the starter, and the starter stops the servers in order.

use crate::failure::Failure;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// How long a server may take to print its addresses.
const START: Duration = Duration::from_secs(20);
/// How long a server may take to end.
const END: Duration = Duration::from_secs(5);
/// The interval between two checks whether a process has ended.
const STEP: Duration = Duration::from_millis(5);
/// The longest line that a server may print, in bytes.
const MAX_LINE: u64 = 1 << 16;

/// The first line that a server prints.
#[derive(Debug, Deserialize)]
struct Announcement {
    listen: Vec<String>,
}

/// A server process.
#[derive(Debug)]
struct Member {
    id: u16,
    child: Child,
    address: String,
    /// Whether `lost` has already returned this server.
    told: bool,
}

/// Running servers. Dropping the fleet stops them.
#[derive(Debug, Default)]
pub struct Fleet {
    members: Vec<Member>,
}

impl Fleet {
    /// Starts this many servers, each with its command, and waits until all listen. If one does not, stops
    /// all of them.
    pub fn start(
        servers: u16,
        command: impl FnMut(u16) -> Result<Command, Failure>,
    ) -> Result<Self, Failure> {
        let mut fleet = Self::default();
        fleet.add(0..servers, command)?;
        Ok(fleet)
    }

    /// As [`start`](Self::start). All servers but the first one get the address of the first one.
    pub fn start_after_first(
        servers: u16,
        mut command: impl FnMut(u16, Option<&str>) -> Result<Command, Failure>,
    ) -> Result<Self, Failure> {
        let mut fleet = Self::start(1, |id| command(id, None))?;
        let first = fleet.addresses().concat();
        fleet.add(1..servers, |id| command(id, Some(&first)))?;
        Ok(fleet)
    }

    fn add(
        &mut self,
        ids: Range<u16>,
        mut command: impl FnMut(u16) -> Result<Command, Failure>,
    ) -> Result<(), Failure> {
        let (before, mut lines) = (self.members.len(), Vec::new());
        for id in ids {
            let (member, said) = begin(id, command(id)?)?;
            self.members.push(member);
            lines.push(said);
        }
        let deadline = Instant::now() + START;
        for (member, said) in self.members.iter_mut().skip(before).zip(lines) {
            let left = deadline.saturating_duration_since(Instant::now());
            member.address = address(member.id, &said.recv_timeout(left).unwrap_or_default())?;
        }
        Ok(())
    }

    /// Whether any server still runs, as far as [`lost`](Self::lost) has returned those that do not.
    pub fn any_runs(&self) -> bool {
        self.members.iter().any(|member| !member.told)
    }

    /// Returns the addresses of the servers, in order of their ids.
    pub fn addresses(&self) -> Vec<&str> {
        self.members.iter().map(|member| member.address.as_str()).collect()
    }

    /// Returns the process ids of the servers.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.child.id()).collect()
    }

    /// Returns a server that ended by itself, once per server.
    pub fn lost(&mut self) -> Option<(u16, ExitStatus)> {
        self.members.iter_mut().filter(|member| !member.told).find_map(|member| {
            let status = member.child.try_wait().ok().flatten()?;
            member.told = true;
            Some((member.id, status))
        })
    }
}

impl Drop for Fleet {
    /// Stops the last server first, because server 0 keeps the list of members.
    fn drop(&mut self) {
        while let Some(mut member) = self.members.pop() {
            drop(member.child.stdin.take());
            if ended_within(&mut member.child, END).is_none() {
                let _ = member.child.kill();
                let _ = member.child.wait();
            }
        }
    }
}

/// Waits until a process ends, at most for `patience`.
pub fn ended_within(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => sleep(STEP),
            _ => return None,
        }
    }
}

/// Starts one server. Its first line of output arrives through the channel.
fn begin(id: u16, mut command: Command) -> Result<(Member, Receiver<String>), Failure> {
    let failed =
        |error: std::io::Error| Failure::Runtime(format!("cannot start memory server {id}: {error}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let stdout = child.stdout.take();
    let member = Member { id, child, address: String::new(), told: false };
    let (tell, said) = sync_channel(1);
    let listen = move || {
        let Some(stdout) = stdout else { return };
        let mut lines = BufReader::new(stdout);
        let _ = tell.try_send(first_line(&mut lines));
        // Discard all further output, so that the server never blocks on a full pipe.
        let _ = std::io::copy(&mut lines, &mut std::io::sink());
    };
    match Builder::new().name(format!("sherman-server-{id}")).spawn(listen) {
        Ok(_) => Ok((member, said)),
        Err(error) => {
            // The process belongs to no fleet yet, so this temporary fleet stops it.
            drop(Fleet { members: vec![member] });
            Err(failed(error))
        }
    }
}

fn first_line(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    let _ = lines.by_ref().take(MAX_LINE).read_line(&mut line);
    line
}

fn address(id: u16, said: &str) -> Result<String, Failure> {
    let announced: Option<Announcement> = serde_json::from_str(said).ok();
    let address = announced.and_then(|announced| announced.listen.into_iter().next());
    // If the server ended, it printed the reason on stderr.
    address.ok_or_else(|| Failure::Runtime(format!("memory server {id} did not start")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// A command that prints an address, like a server, and waits until its stdin closes.
    fn obedient(id: u16, then: &str) -> Command {
        shell(&format!("echo '{{\"listen\": [\"unix:/{id}\"]}}'; cat > /dev/null; {then}"))
    }

    #[test]
    fn servers_are_ended_by_the_end_of_their_stdin_the_last_first() {
        let log = std::env::temp_dir().join(format!("sherman-fleet-{}", std::process::id()));
        let path = log.to_str().expect("UTF-8");
        let mut fleet =
            Fleet::start(3, |id| Ok(obedient(id, &format!("echo {id} >> {path}")))).expect("a fleet");
        assert_eq!(fleet.addresses(), ["unix:/0", "unix:/1", "unix:/2"]);
        assert_eq!((fleet.pids().len(), fleet.lost()), (3, None));
        drop(fleet);
        assert_eq!(std::fs::read_to_string(&log).expect("the log"), "2\n1\n0\n");
        std::fs::remove_file(log).expect("the log goes");
    }

    #[test]
    fn if_one_does_not_start_none_stays() {
        let log = std::env::temp_dir().join(format!("sherman-fleet-none-{}", std::process::id()));
        let path = log.to_str().expect("UTF-8");
        let start =
            |id| Ok(if id == 1 { shell("exit 3") } else { obedient(id, &format!("echo {id} >> {path}")) });
        let said = Fleet::start(3, start).expect_err("one is missing").to_string();
        assert!(said.contains("memory server 1 did not start"), "{said}");
        assert_eq!(std::fs::read_to_string(&log).expect("the log"), "2\n0\n", "they were ended in order");
        std::fs::remove_file(log).expect("the log goes");
    }

    #[test]
    fn a_server_that_ends_by_itself_is_noticed_once() {
        let start = |id| {
            Ok(if id == 1 { shell("echo '{\"listen\": [\"x\"]}'; exit 7") } else { obedient(id, "true") })
        };
        let mut fleet = Fleet::start(2, start).expect("a fleet");
        let deadline = Instant::now() + Duration::from_secs(10);
        let lost = loop {
            match fleet.lost() {
                Some(lost) => break lost,
                None => assert!(Instant::now() < deadline, "it is not noticed"),
            }
            sleep(STEP);
        };
        assert_eq!((lost.0, lost.1.code()), (1, Some(7)));
        assert_eq!(fleet.lost(), None);
    }

    #[test]
    fn what_says_nonsense_is_no_server() {
        for said in ["", "hello", "{}", "{\"listen\": []}", "{\"listen\": 7}"] {
            assert!(address(0, said).is_err(), "{said}");
        }
        assert_eq!(
            address(0, "{\"listen\": [\"unix:/a\", \"tcp://b:1\"], \"pid\": 1}"),
            Ok("unix:/a".to_owned())
        );
    }
}
