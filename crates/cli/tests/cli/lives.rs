//! Clients that die, or vanish before they did anything: how soon the cluster notices, and what they leave
//! behind.

use crate::common::command;
use crate::common::servers::{Servers, Transport, wait_until};
use sherman::{Admin, Cluster, Standing};
use sherman_control::JoinOptions;
use sherman_soft_nic::SoftNicFabric;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// So long that no test waits for it.
const LEASE: Duration = Duration::from_secs(60);
const SERVER: [&str; 6] = ["--memory", "64MiB", "--chunk", "1MiB", "--lease", "60s"];
const TREE: &str = "orders";

/// A member that waits for its input.
fn idle_command(url: &str) -> Child {
    let mut command = command(&["load", "--cluster", url, "--tree", TREE, "-"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts")
}

fn live(admin: &Admin) -> usize {
    let members = admin.members().expect("members");
    members.iter().filter(|member| member.standing == Standing::Live).count()
}

#[test]
fn a_client_that_is_killed_is_noticed_at_once() {
    let _alone = crate::common::alone();
    for transport in [Transport::Tcp, Transport::Unix, Transport::Shm] {
        let servers = Servers::start(transport, 2, &SERVER);
        let url = servers.url();
        let cluster = Cluster::open(&url).expect("a cluster");
        let client = cluster.tree::<u64, u64>(TREE).expect("a tree").client().expect("a client");
        client.insert(1, 1).expect("an insert");
        drop((client, cluster));
        let admin = Admin::open(&url).expect("an operator");
        let noticed = |_| {
            let mut child = idle_command(&url);
            wait_until("it joins", Duration::from_secs(20), || live(&admin) > 0);
            child.kill().expect("it runs");
            let began = Instant::now();
            wait_until("its death is noticed", LEASE / 6, || live(&admin) == 0);
            let took = began.elapsed();
            child.wait().expect("it ends");
            took
        };
        // The fastest of five, because the machine may be busy.
        let fastest = (0..5).map(noticed).min().expect("some");
        assert!(fastest < Duration::from_millis(200), "{transport:?}: {fastest:?}");
    }
}

#[test]
fn clients_that_go_without_leaving_and_did_nothing_leave_nobody_behind_across_a_restart_too() {
    let more = SERVER.into_iter().chain(["--file", "{dir}/{id}.mem"]).collect::<Vec<_>>();
    let mut servers = Servers::start(Transport::Tcp, 1, &more);
    let url = servers.url();
    let options = JoinOptions::new(vec![servers.servers[0].listen().into()]);
    let join = || SoftNicFabric::join(&options).expect("there is a free id");
    let admin = Admin::open(&url).expect("an operator");
    for _ in 0..300 {
        let fabric = join();
        fabric.abandon();
    }
    wait_until("all are gone", LEASE / 6, || admin.members().expect("members").is_empty());
    let kept: Vec<SoftNicFabric> = (0..300).map(|_| join()).collect();
    assert_eq!(live(&admin), kept.len());
    servers.servers[0].kill();
    servers.servers[0].restart();
    assert!(admin.members().expect("members").is_empty(), "no earlier member can come back");
    let began = Instant::now();
    let cluster = Cluster::open(&url).expect("a cluster");
    let client = cluster.tree::<u64, u64>(TREE).expect("a tree").client().expect("a client");
    client.insert(1, 1).expect("an insert");
    assert!(began.elapsed() < LEASE / 6, "{:?}", began.elapsed());
}

#[test]
fn the_server_logs_every_life_with_time_and_peer() {
    let log = std::env::temp_dir().join(format!("sherman-lives-{}.log", std::process::id()));
    let file = std::fs::File::create(&log).expect("a file");
    let socket = std::env::temp_dir().join(format!("sherman-lives-{}.sock", std::process::id()));
    let listen = format!("unix:{}", socket.display());
    let args = ["--listen", &listen].into_iter().chain(SERVER).map(str::to_owned).collect();
    let server = crate::common::servers::Server::start_telling(args, file.into());
    let join = || SoftNicFabric::join(&JoinOptions::new(vec![server.listen().into()])).expect("a cluster");
    drop(join());
    join().abandon();
    let condemned = join();
    Admin::open(&listen).expect("an operator").fence(condemned.client()).expect("a member");
    let read = || std::fs::read_to_string(&log).expect("a log");
    let lines = [
        "a client joined",
        "a client left",
        "the last connection of a client ended; its lease ends",
        "the lease of a client ended on request",
        "a client that owned nothing is gone; its id is free",
    ];
    wait_until("every line", Duration::from_secs(10), || lines.iter().all(|line| read().contains(line)));
    let peer = format!("pid:{}", std::process::id());
    for line in read().lines().filter(|line| lines.iter().any(|event| line.contains(event))) {
        assert!(line.contains(&peer) && line.contains("client"), "{line}");
        let time = line.split_whitespace().next().expect("a word");
        assert!(time.starts_with("20") && time.contains('T'), "{line}");
    }
    drop(server);
    std::fs::remove_file(&log).expect("a log");
    let _ = std::fs::remove_file(&socket);
}
