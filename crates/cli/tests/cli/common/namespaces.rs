//! Network namespaces that a test makes and removes.

use std::path::PathBuf;
use std::process::Command;

/// Runs a command until it ends. Returns its output if it failed.
fn run(program: &str, args: &str) -> Result<(), String> {
    let output = Command::new(program)
        .args(args.split(' '))
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {args}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// A private network: a switch, and hosts connected to it, each in its own namespace.
pub struct Network {
    prefix: String,
    hosts: usize,
    /// Whether this value removes the namespaces when it is dropped.
    owner: bool,
}

/// Which packets a cut drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Both,
    /// Those that the host would receive.
    In,
    /// Those that the host sends.
    Out,
}

impl Network {
    pub fn new(hosts: usize) -> Result<Self, String> {
        let network = Self { prefix: format!("sherman{}", std::process::id()), hosts, owner: true };
        run("nft", "--version")?;
        let hub = network.hub();
        run("ip", &format!("netns add {hub}"))?;
        run("ip", &format!("-n {hub} link add switch type bridge"))?;
        run("ip", &format!("-n {hub} link set switch up"))?;
        for host in 0..hosts {
            let name = network.host(host);
            run("ip", &format!("netns add {name}"))?;
            run("ip", &format!("-n {name} link set lo up"))?;
            run("ip", &format!("link add eth0 netns {name} type veth peer name port{host} netns {hub}"))?;
            run("ip", &format!("-n {hub} link set port{host} master switch up"))?;
            run("ip", &format!("-n {name} addr add {}/24 dev eth0", Self::address(host)))?;
            run("ip", &format!("-n {name} link set eth0 up"))?;
        }
        Ok(network)
    }

    /// The network that another process has made.
    pub fn of(prefix: &str, hosts: usize) -> Self {
        Self { prefix: prefix.to_owned(), hosts, owner: false }
    }

    /// What [`Network::of`] needs.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.prefix)
    }

    fn host(&self, host: usize) -> String {
        format!("{}-{host}", self.prefix)
    }

    pub fn address(host: usize) -> String {
        format!("10.77.0.{}", 10 + host)
    }

    /// A command that runs `program` on a host.
    pub fn on(&self, host: usize, program: PathBuf) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.host(host)]).arg(program);
        command
    }

    /// Drops this percentage of the packets that reach a host.
    pub fn lose(&self, host: usize, percent: u32) -> Result<(), String> {
        let name = self.host(host);
        let nft = |rule: &str| run("ip", &format!("netns exec {name} nft {rule}"));
        nft("add table inet loss")?;
        nft("add chain inet loss input { type filter hook input priority 0 ; }")?;
        nft(&format!("add rule inet loss input meta l4proto tcp numgen random mod 100 < {percent} drop"))
    }

    /// Drops the packets between a host and `others`, one way or both, until [`Network::heal`].
    pub fn cut(&self, host: usize, others: &[usize], way: Way) -> Result<(), String> {
        let name = self.host(host);
        let nft = |rule: &str| run("ip", &format!("netns exec {name} nft {rule}"));
        let others: Vec<String> = others.iter().map(|other| Self::address(*other)).collect();
        let others = others.join(",");
        nft("add table inet cut")?;
        for (hook, side, dropped) in
            [("input", "saddr", way != Way::Out), ("output", "daddr", way != Way::In)]
        {
            if dropped {
                nft(&format!("add chain inet cut {hook} {{ type filter hook {hook} priority 0 ; }}"))?;
                nft(&format!("add rule inet cut {hook} ip {side} {{{others}}} drop"))?;
            }
        }
        Ok(())
    }

    /// Ends a cut.
    pub fn heal(&self, host: usize) -> Result<(), String> {
        run("ip", &format!("netns exec {} nft delete table inet cut", self.host(host)))
    }

    /// Disconnects a host, or connects it again.
    pub fn connect(&self, host: usize, connected: bool) -> Result<(), String> {
        run("ip", &format!("-n {} link set port{host} {}", self.hub(), if connected { "up" } else { "down" }))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if !self.owner {
            return;
        }
        for host in 0..self.hosts {
            let _ = run("ip", &format!("netns del {}", self.host(host)));
        }
        let _ = run("ip", &format!("netns del {}", self.hub()));
    }
}
