//! A ten-line program that inserts in a loop, and commands, continue after any fault of their servers, their
//! connections or themselves.
//!
//! The program is the library's example `endless_inserts`, run as a separate process. It has no code for
//! faults. After each test every number that it printed is in the tree, and an audit of the cluster is clean.

use crate::common::servers::{Servers, Transport, wait_until};
use crate::common::{command, text};
use crate::endless_inserts;
use rustix::process::{Pid, Signal, kill_process};
use sherman::{Cluster, Error, OpenError};
use sherman_conformance::trees::Failure;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_millis(500);
const SERVER: [&str; 8] =
    ["--memory", "128MiB", "--chunk", "1MiB", "--lease", "500ms", "--file", "{dir}/{id}.mem"];
/// How long a program may take to continue.
const GOES_ON: Duration = Duration::from_secs(20);

/// Not a test: the main function of the program.
#[test]
#[ignore = "run as a process of its own by the tests beside it"]
fn inserter() {
    // Ends the line with the test's name.
    println!();
    if let Err(error) = endless_inserts::main() {
        eprintln!("error: {error}");
        std::process::exit(3);
    }
}

/// The running program.
struct Inserter {
    url: String,
    child: Child,
    printed: Arc<AtomicU64>,
    /// How many times the program ended because the outcome of an insert was unknown. The test then started
    /// it again.
    unknown: u64,
}

impl Inserter {
    fn start(url: &str) -> Self {
        let printed = Arc::new(AtomicU64::new(0));
        let child = Self::launch(url, &printed);
        let inserter = Self { url: url.to_owned(), child, printed, unknown: 0 };
        inserter.wait_for_more(100);
        inserter
    }

    fn launch(url: &str, printed: &Arc<AtomicU64>) -> Child {
        let mut command = Command::new(crate::common::writers::this_program());
        command.args(["--ignored", "--exact", "mending::inserter", "--nocapture", "--test-threads", "1"]);
        let first = printed.load(Ordering::Relaxed);
        command.env("SHERMAN_CLUSTER", url).env("NUMBERS", format!("{first}..1000000000"));
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let printed = Arc::clone(printed);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Ok(number) = line.parse::<u64>() {
                    assert_eq!(number, printed.load(Ordering::Relaxed), "one after the other");
                    printed.store(number + 1, Ordering::Release);
                }
            }
        });
        child
    }

    /// Every number below this is acknowledged.
    fn printed(&self) -> u64 {
        self.printed.load(Ordering::Acquire)
    }

    fn wait_for_more(&self, more: u64) {
        let from = self.printed();
        wait_until("the program goes on", GOES_ON, || self.printed() >= from + more);
    }

    /// Waits until the program has printed more, which shows that it continues. Returns how long that took.
    fn goes_on(&mut self) -> Duration {
        let (began, from) = (Instant::now(), self.printed());
        while self.printed() < from + 100 {
            assert!(began.elapsed() < GOES_ON, "the program does not go on");
            if let Ok(Some(status)) = self.child.try_wait() {
                let mut said = String::new();
                let _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
                assert!(said.contains("may or may not have happened"), "{status}: {said}");
                self.unknown += 1;
                self.child = Self::launch(&self.url, &self.printed);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        began.elapsed()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    /// Ends the program. Then checks that the tree holds every number that it printed, and that the cluster
    /// is sound.
    fn verify(mut self, url: &str) -> Result<(), Failure> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let printed = self.printed();
        let cluster = Cluster::open(url)?;
        let client = cluster.open_tree::<u64, u64>("numbers")?.client()?;
        let found: Vec<(u64, u64)> = client.range(..).collect::<Result<_, _>>()?;
        assert!(found.len() as u64 >= printed, "{} of {printed}", found.len());
        assert!(found.into_iter().zip(0..).all(|(entry, number)| entry == (number, number)));
        let me = cluster.id();
        wait_until("all dead clients are recovered", Duration::from_secs(10), || {
            cluster.members().is_ok_and(|members| members.iter().all(|member| member.id == me))
        });
        let audit = cluster.audit()?;
        assert!(audit.is_clean(), "{:?}", audit.findings);
        println!("{printed} inserts, {} of unknown outcome", self.unknown);
        Ok(())
    }
}

impl Drop for Inserter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stop_for(pid: u32, time: Duration) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::STOP).expect("it lives");
    std::thread::sleep(time);
    kill_process(pid, Signal::CONT).expect("it lives");
}

#[test]
fn a_program_goes_on_through_restarts_of_its_servers() -> Result<(), Failure> {
    for transport in [Transport::Tcp, Transport::Unix] {
        let mut servers = Servers::start(transport, 2, &SERVER);
        let url = servers.url();
        let mut program = Inserter::start(&url);
        for (round, killed) in [true, false, true, false].into_iter().enumerate() {
            let server = &mut servers.servers[round / 2];
            match killed {
                true => server.kill(),
                false => drop(server.terminate()),
            }
            std::thread::sleep(Duration::from_millis(200));
            server.restart();
            println!("{transport:?}, round {round}: goes on after {:?}", program.goes_on());
        }
        program.verify(&url)?;
    }
    Ok(())
}

#[test]
fn a_program_goes_on_when_a_server_was_stopped_for_two_leases() -> Result<(), Failure> {
    // With the default patience the program's operations only wait. With a short patience its connections
    // break.
    for parameters in ["", "?patience=200ms&connect=1s"] {
        let servers = Servers::start(Transport::Tcp, 2, &SERVER);
        let url = servers.url() + parameters;
        let mut program = Inserter::start(&url);
        for server in [0, 1] {
            stop_for(servers.servers[server].pid(), 2 * LEASE);
            println!("server {server}, {parameters:?}: goes on after {:?}", program.goes_on());
        }
        program.verify(&servers.url())?;
    }
    Ok(())
}

#[test]
fn a_program_that_was_stopped_for_two_leases_goes_on_as_another_member() -> Result<(), Failure> {
    let servers = Servers::start(Transport::Tcp, 2, &SERVER);
    let survivor = Cluster::open(&servers.url())?;
    let mut program = Inserter::start(&servers.url());
    for round in 0..3 {
        let recoveries = survivor.participation().recoveries;
        program.signal(Signal::STOP);
        std::thread::sleep(2 * LEASE);
        wait_until("the survivor recovers it", Duration::from_secs(10), || {
            survivor.participation().recoveries > recoveries
        });
        program.signal(Signal::CONT);
        println!("round {round}: goes on after {:?}", program.goes_on());
    }
    drop(survivor);
    program.verify(&servers.url())
}

/// A connection to a server that the test can cut and restore.
struct Cable {
    address: String,
    state: Arc<Mutex<(bool, Vec<TcpStream>)>>,
    ended: Arc<AtomicBool>,
}

impl Cable {
    fn to(target: String) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let state = Arc::new(Mutex::new((true, Vec::new())));
        let ended = Arc::new(AtomicBool::new(false));
        let (shared, over) = (Arc::clone(&state), Arc::clone(&ended));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let mut state = shared.lock().expect("whole");
                // While the cable is cut, each new connection is closed at once.
                let (true, Ok(server)) = (state.0, TcpStream::connect(&target)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) =
                        (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                state.1.extend([client, server]);
            }
        });
        Ok(Self { address, state, ended })
    }

    fn cut_for(&self, time: Duration) {
        let streams = {
            let mut state = self.state.lock().expect("whole");
            state.0 = false;
            std::mem::take(&mut state.1)
        };
        for stream in streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
        std::thread::sleep(time);
        self.state.lock().expect("whole").0 = true;
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.cut_for(Duration::ZERO);
        let _ = TcpStream::connect(&self.address);
    }
}

#[test]
fn a_program_goes_on_after_cuts_of_its_connections() -> Result<(), Failure> {
    let servers = Servers::start(Transport::Tcp, 2, &SERVER);
    let cables: Vec<Cable> =
        servers.servers.iter().map(|server| Cable::to(server.address.clone())).collect::<Result<_, _>>()?;
    let addresses: Vec<&str> = cables.iter().map(|cable| cable.address.as_str()).collect();
    let mut program = Inserter::start(&format!("tcp://{}", addresses.join(",")));
    for (cable, seconds) in [(0, 0.0), (1, 0.3), (1, 5.0)] {
        cables[cable].cut_for(Duration::from_secs_f64(seconds));
        println!("cable {cable} cut for {seconds} s: goes on after {:?}", program.goes_on());
    }
    program.verify(&servers.url())
}

#[test]
fn a_server_that_comes_back_empty_is_refused_at_once() -> Result<(), Failure> {
    for count in [1, 2] {
        let mut servers = Servers::start(Transport::Tcp, count, &SERVER[..6]);
        let refusals: Arc<Mutex<Vec<OpenError>>> = Arc::default();
        let told = Arc::clone(&refusals);
        let options = sherman::ClusterOptions::new().on_event(move |event| {
            if let sherman::Event::GaveUp { reason, .. } = event {
                told.lock().expect("whole").push(reason.clone());
            }
        });
        let cluster = Cluster::open_with(&servers.url(), options)?;
        let client = cluster.tree::<u64, u64>("t")?.client()?;
        client.insert(1, 1)?;
        let last = usize::from(count) - 1;
        servers.servers[last].kill();
        servers.servers[last].restart();
        let words = format!("memory server {last} at");
        for call in
            [|cluster: &Cluster| cluster.audit().map(drop), |cluster: &Cluster| cluster.trees().map(drop)]
        {
            let began = Instant::now();
            let refused = call(&cluster);
            let named = |error: &Error| error.to_string().contains(&words);
            assert!(
                matches!(&refused, Err(error @ Error::NotRejoined { .. }) if named(error)),
                "{refused:?}"
            );
            assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        }
        let refused = client.get(1);
        assert!(matches!(&refused, Err(Error::NotRejoined { .. })), "{refused:?}");
        // The cluster calls the listener after operations have failed.
        wait_until("told once", Duration::from_secs(10), || refusals.lock().expect("whole").len() == 1);
    }
    Ok(())
}

#[test]
fn an_operation_waits_for_a_server_no_longer_than_its_deadline() -> Result<(), Failure> {
    let mut servers = Servers::start(Transport::Unix, 1, &SERVER);
    let cluster = Cluster::open(&servers.url())?;
    let client = cluster.tree::<u64, u64>("t")?.client()?;
    client.insert(1, 1)?;
    servers.servers[0].kill();
    for millis in [100, 700] {
        let began = Instant::now();
        let outcome = client.within(Duration::from_millis(millis)).get(1);
        let (took, limit) = (began.elapsed(), Duration::from_millis(millis + 500));
        let refused = matches!(
            &outcome,
            Err(error @ Error::NotRejoined { .. }) if error.to_string().contains("Is it running?")
        );
        assert!(refused && took < limit, "{outcome:?} after {took:?}");
    }
    servers.servers[0].restart();
    assert_eq!(client.get(1)?, Some(1));
    Ok(())
}

/// Runs a command with pipes.
fn piped(args: &[&str], url: &str) -> Child {
    let mut command = command(&[args, &["--cluster", url]].concat());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

/// Writes `rows` rows of a load. Neighbouring rows have distant keys, so that many operations are in flight.
fn write_rows(input: &mut impl Write, rows: Range<u64>, all: u64) {
    for row in rows {
        writeln!(input, "{},{row}", row * 7_919 % all).expect("the command reads");
    }
    input.flush().expect("the command reads");
}

#[test]
fn a_load_waits_for_a_server_that_is_away_for_seconds() -> Result<(), Failure> {
    const ROWS: u64 = 300_000;
    let full = std::env::var_os("SHERMAN_KILLS").is_some();
    let mut servers = Servers::start(Transport::Tcp, 2, &SERVER);
    let url = servers.url();
    let mut load = piped(&["load", "-", "--tree", "rows", "--create"], &url);
    let mut input = load.stdin.take().expect("piped");
    write_rows(&mut input, 0..ROWS / 3, ROWS);
    for round in 1..3 {
        // The command reads no more rows than fit into a batch and a pipe, so it is inserting now.
        std::thread::sleep(Duration::from_millis(50));
        servers.servers[2 - round as usize].kill();
        std::thread::sleep(if full { Duration::from_secs(3) } else { 3 * LEASE });
        servers.servers[2 - round as usize].restart();
        write_rows(&mut input, round * ROWS / 3..(round + 1) * ROWS / 3, ROWS);
    }
    drop(input);
    let output = load.wait_with_output()?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("300,000 entries loaded"), "{}", text(&output.stdout));

    // It waits no longer than the user asked for.
    let mut load = piped(&["load", "-", "--tree", "rows", "--timeout", "1.5"], &url);
    let mut input = load.stdin.take().expect("piped");
    write_rows(&mut input, 0..ROWS / 3, ROWS);
    servers.servers[1].kill();
    let began = Instant::now();
    drop(input);
    let output = load.wait_with_output()?;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("could not join the cluster again within 1.") && said.contains("memory server 1 at")
    );
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    Ok(())
}

#[test]
fn load_dump_scan_check_and_bench_go_on_after_restarts() -> Result<(), Failure> {
    const ROWS: u64 = 200_000;
    let mut servers = Servers::start(Transport::Unix, 2, &SERVER);
    let url = servers.url();
    let mut restart = |round: usize| {
        let server = &mut servers.servers[round % 2];
        server.kill();
        std::thread::sleep(Duration::from_millis(100));
        server.restart();
    };
    let mut load = piped(&["load", "-", "--tree", "rows", "--create"], &url);
    let mut input = load.stdin.take().expect("piped");
    for round in 0..4 {
        write_rows(&mut input, round * ROWS / 4..(round + 1) * ROWS / 4, ROWS);
        if round < 3 {
            restart(round as usize);
        }
    }
    drop(input);
    let output = load.wait_with_output()?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("200,000 entries loaded"), "{}", text(&output.stdout));

    for words in [
        &["dump", "-", "--tree", "rows", "--no-header"][..],
        &["scan", "--tree", "rows", "--limit", "1000000"],
    ] {
        let mut child = piped(words, &url);
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let first: Vec<String> = lines.by_ref().take(1_000).collect::<Result<_, _>>().expect("text");
        restart(0);
        restart(1);
        let rest: Vec<String> = lines.collect::<Result<_, _>>().expect("text");
        let output = child.wait_with_output()?;
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
        let key =
            |line: &String| line.split([',', '\t', ' ']).next().and_then(|word| word.parse::<u64>().ok());
        let keys: Vec<u64> = first.iter().chain(&rest).filter_map(key).collect();
        assert!(keys.iter().copied().eq(0..ROWS), "{words:?}: {} rows", keys.len());
    }

    let check = piped(&["check"], &url);
    std::thread::sleep(Duration::from_millis(30));
    restart(0);
    let output = check.wait_with_output()?;
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));

    let bench =
        piped(&["bench", "--keys", "20k", "--seconds", "3", "--threads", "2", "--coroutines", "16"], &url);
    std::thread::sleep(Duration::from_millis(1_500));
    restart(1);
    let output = bench.wait_with_output()?;
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    Ok(())
}
