//! Several hosts: three memory servers and four clients in network namespaces. The test creates the
//! namespaces and removes them.
//!
//! All four clients write. One client loses packets, one has a long delay, one is cut off for longer than its
//! lease, and one has no fault. At the end no acknowledged change is missing, the client that was cut off has
//! been fenced, and the other clients went on meanwhile.
//!
//! The test needs `ip`, `nft` and the right to create namespaces. If it cannot create them, it prints a
//! message and does nothing.

use crate::common::namespaces::Network;
use crate::common::servers::wait_until;
use crate::common::writers::{TREE, Writer, settle, this_program, verify};
use sherman::{Cluster, Standing};
use sherman_conformance::trees::{Failure, Ledger};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SERVERS: usize = 3;
const CLIENTS: usize = 4;
/// Which client has which fault.
const LOSSY: usize = 0;
const FAR: usize = 1;
const CUT: usize = 2;
const PLAIN: usize = 3;
/// One-way delay of a packet to or from the far client.
const DELAY: Duration = Duration::from_millis(5);
const RELAY: &str = "SHERMAN_TEST_RELAY";

/// Not a test: forwards bytes from port 7000 + n of this host to server n, with a delay.
#[test]
#[ignore = "run as a process of its own by the test beside it"]
fn relay() {
    let servers = std::env::var(RELAY).expect("servers");
    let listeners = servers.split(',').zip(7000..).map(|(server, port)| {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
        let server = server.to_owned();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&server) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let _ = from.set_nodelay(true);
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    pass_on(from, to);
                }
            }
        })
    });
    let listeners: Vec<_> = listeners.collect();
    listeners.into_iter().for_each(|listener| listener.join().expect("a relay never stops listening"));
}

/// Forwards bytes, each [`DELAY`] after its arrival.
fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let (parcels, due) = sync_channel::<(Instant, Vec<u8>)>(1_000);
    std::thread::spawn(move || {
        for (at, bytes) in due {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if parcels.send((Instant::now() + DELAY, buffer[..read].to_vec())).is_err() {
                break;
            }
        }
    });
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that is removed with the test.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn acknowledged(ledger: &Mutex<Ledger>) -> u64 {
    ledger.lock().unwrap_or_else(PoisonError::into_inner).acknowledged()
}

#[test]
fn hosts_that_lose_packets_are_far_away_or_cut_off_lose_nothing_else() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let network = match Network::new(SERVERS + CLIENTS) {
        Ok(network) => network,
        Err(why) => {
            println!("SKIPPED: network namespaces cannot be made here: {why}");
            return Ok(());
        }
    };
    let directory = Directory(std::env::temp_dir().join(format!("sherman-hosts-{}", std::process::id())));
    std::fs::create_dir_all(&directory.0)?;
    let secret = directory.0.join("secret");
    crate::common::write_private(&secret, "a secret of this test alone, long enough\n");
    let secret = secret.to_str().ok_or("a path of text")?;
    let socket = |id: usize| directory.0.join(format!("{id}.sock"));

    let mut servers = Vec::new();
    for id in 0..SERVERS {
        let listen = format!("tcp://{}:7000", Network::address(id));
        let also = format!("unix:{}", socket(id).display());
        let mut command = network.on(id, env!("CARGO_BIN_EXE_sherman").into());
        command.args([
            "serve",
            "--listen",
            &listen,
            "--listen",
            &also,
            "--secret-file",
            secret,
            "--lease",
            "1s",
        ]);
        command.args(["--id", &id.to_string(), "--servers", "3", "--memory", "64MiB", "--chunk", "1MiB"]);
        servers.push(Process(command.stdout(Stdio::null()).spawn()?));
    }
    let addresses: Vec<String> = (0..SERVERS).map(|id| format!("{}:7000", Network::address(id))).collect();
    let url = format!("tcp://{}?secret-file={secret}&patience=2s", addresses.join(","));
    let far_url =
        format!("tcp://127.0.0.1:7000,127.0.0.1:7001,127.0.0.1:7002?secret-file={secret}&patience=2s");
    let sockets: Vec<String> = (0..SERVERS).map(|id| socket(id).display().to_string()).collect();
    // All hosts share the file system, so this process connects through Unix sockets.
    let local = format!("unix:{}?secret-file={secret}", sockets.join(","));
    wait_until("the servers listen", Duration::from_secs(10), || Cluster::open(&local).is_ok());
    let cluster = Cluster::open(&local)?;

    network.lose(SERVERS + LOSSY, 5)?;
    let mut relay = network.on(SERVERS + FAR, this_program());
    relay.args(["--ignored", "--exact", "hosts::relay", "--nocapture"]).env(RELAY, addresses.join(","));
    let relay = Process(relay.stdout(Stdio::null()).spawn()?);
    std::thread::sleep(Duration::from_millis(300));

    let ledgers: Vec<_> = (0..CLIENTS).map(|_| Arc::new(Mutex::new(Ledger::default()))).collect();
    let writers: Vec<Writer> = (0..CLIENTS)
        .map(|client| {
            let url = if client == FAR { &far_url } else { &url };
            Writer::start_by(
                network.on(SERVERS + client, this_program()),
                url,
                client as u64,
                5,
                &ledgers[client],
            )
        })
        .collect();
    wait_until("every client writes", Duration::from_secs(20), || {
        ledgers.iter().all(|ledger| acknowledged(ledger) > 20)
    });

    let id = writers[CUT].id();
    let incarnation = || -> Result<Option<u32>, Failure> {
        let live = |member: &&sherman::Member| member.id == id && member.standing == Standing::Live;
        Ok(cluster.members()?.iter().find(live).map(|member| member.incarnation))
    };
    let before = incarnation()?.ok_or("the client that will be cut off is a member")?;
    network.connect(SERVERS + CUT, false)?;
    let (at_cut, plain_at_cut) = (acknowledged(&ledgers[CUT]), acknowledged(&ledgers[PLAIN]));
    wait_until("the client that is cut off is fenced", Duration::from_secs(10), || {
        incarnation().is_ok_and(|now| now != Some(before))
    });
    wait_until("the others go on", Duration::from_secs(10), || {
        acknowledged(&ledgers[PLAIN]) > plain_at_cut + 1_000
    });
    let while_cut = acknowledged(&ledgers[CUT]);
    network.connect(SERVERS + CUT, true)?;
    wait_until("the client that was cut off comes back", Duration::from_secs(20), || {
        acknowledged(&ledgers[CUT]) > while_cut + 50
    });
    std::thread::sleep(Duration::from_secs(1));

    drop(writers);
    drop(relay);
    settle(&cluster, Duration::from_secs(20))?;
    let (all, uncertain) = verify(&cluster, &ledgers)?;
    let each: Vec<u64> = ledgers.iter().map(|ledger| acknowledged(ledger)).collect();
    println!(
        "acknowledged: {each:?} (lossy, far, cut off, plain), {all} in all; {at_cut} before the cut; \
         {uncertain} keys of unknown outcome; tree {TREE:?} is sound"
    );
    drop(servers);
    Ok(())
}
