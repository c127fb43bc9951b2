//! Clients in processes of their own that die or stop between two stores to one line.
//!
//! Such a client is this test program again, started at its test `child`. An environment variable says what
//! it must do.

use crate::{ShmEndpoint, ShmFabric, ShmOptions, ShmPath};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};
use sherman_control::path::DataPath;
use sherman_control::{Address, JoinOptions};
use sherman_executor::block_on;
use sherman_fabric::{
    Call, ComputeId, Counters, Endpoint, FabricError, Memory, Peer, Space, Verdict, WorkList, call, calls,
    execute,
};
use sherman_layout::FormatOptions;
use sherman_soft_nic::SoftNicFabric;
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions, SoftNicServer};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// The environment variable with a child's orders: the server's socket and the action.
const ORDERS: &str = "SHERMAN_SHM_CHILD";
const MEMORY: u64 = 1 << 20;
const LINES: u64 = 200;
/// Where the lines lie that children write: after the tables, in chunks that no client requests.
const AT: u64 = MEMORY / 2;
const PATIENCE: Duration = Duration::from_millis(300);
const KILLS: u64 = 250;
const LIMIT: Duration = Duration::from_secs(40);

/// The action to take between two stores to a line.
static MIDWAY: AtomicU32 = AtomicU32::new(NOTHING);
const NOTHING: u32 = 0;
const DIE: u32 = 1;
const STOP: u32 = 2;
const EXEC: u32 = 3;
/// Closes every file and continues.
const CLOSE: u32 = 4;

/// Runs when a line is saved and about to change. Changes a part of the line.
pub(crate) fn midway(words: &[AtomicU64]) {
    let what = MIDWAY.swap(NOTHING, Relaxed);
    if what == NOTHING {
        return;
    }
    words[..3].iter().for_each(|word| word.store(u64::MAX, Relaxed));
    let signal = match what {
        DIE => Signal::KILL,
        STOP => Signal::STOP,
        EXEC => {
            println!("execs");
            let error = Command::new("sleep").arg("60").stdout(Stdio::null()).exec();
            panic!("no sleep: {error}");
        }
        _ => {
            println!("closes");
            close_all();
            std::thread::sleep(2 * PATIENCE);
            return;
        }
    };
    kill_process(getpid(), signal).unwrap();
    // Another thread may receive the signal; then this thread stops a moment later.
    std::thread::sleep(Duration::from_millis(200));
}

/// Closes every file except the standard ones, as daemons do. Each descriptor then refers to `/dev/null`. The
/// reason is a thread of this process that may close its files at any time (`watch`): the standard library
/// aborts a process that closes a descriptor twice.
#[allow(unsafe_code)]
fn close_all() {
    let null = std::fs::File::open("/dev/null").unwrap();
    for fd in (3..256).filter(|fd| *fd != null.as_raw_fd()) {
        // SAFETY: no memory depends on these files, and every descriptor that was open stays open, for its
        // owner to close.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) >= 0 {
                libc::dup3(null.as_raw_fd(), fd, libc::O_CLOEXEC);
            }
        }
    }
}

struct Served {
    path: Arc<ShmPath>,
    socket: PathBuf,
    server: RunningServer,
}

fn serve() -> Served {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let socket = std::env::temp_dir().join(format!("sherman-shm-kill-{}-{number}.sock", std::process::id()));
    let format = FormatOptions {
        chunk_bytes: MEMORY / 16,
        redo_slot_bytes: 1 << 10,
        redo_area_bytes: 1 << 10,
        member_capacity: 8,
        catalog_capacity: 4,
        lease_nanos: 60_000_000_000,
        ..FormatOptions::default()
    };
    let options = ShmOptions { memory_bytes: MEMORY, on_chip_bytes: 128, links: 16, patience: PATIENCE };
    let (host, path) = ShmPath::format(&options, &format).unwrap();
    let data_path = Some(Arc::clone(&path) as Arc<dyn DataPath>);
    let options =
        ServerOptions { path: data_path, ..ServerOptions::new(host, vec![Listen::Unix(socket.clone())]) };
    Served { path, socket, server: SoftNicServer::start(options).unwrap() }
}

fn options(socket: &str) -> JoinOptions {
    JoinOptions::new(vec![Address::Unix(socket.into())])
}

impl Served {
    fn join(&self) -> ShmEndpoint {
        let endpoint = ShmFabric::join(&options(self.socket.to_str().unwrap())).unwrap().endpoint().unwrap();
        become_writer(&endpoint);
        endpoint
    }

    fn spawn(&self, what: &str) -> Running {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "tests::child"])
            .env(ORDERS, format!("{} {what}", self.socket.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut running = Running { child, stdout, client: ComputeId::NOBODY };
        running.client = ComputeId(running.heard("client ").parse().unwrap());
        running
    }
}

/// A running child.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    client: ComputeId,
}

impl Running {
    /// Reads lines until one begins with `start`, and returns the rest of that line.
    fn heard(&mut self, start: &str) -> String {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            if let Some(rest) = line.trim_end().strip_prefix(start) {
                return rest.to_owned();
            }
            line.clear();
        }
        panic!("the child never said {start:?}");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn post(endpoint: &ShmEndpoint, fill: impl FnOnce(&mut WorkList)) -> Result<WorkList, FabricError> {
    let mut list = endpoint.list(0);
    fill(&mut list);
    block_on(endpoint, execute(endpoint, list, &Counters::default()))
}

/// Does as a client does before its first write: the client may then recover others, and must be recovered
/// itself.
fn become_writer(endpoint: &impl Endpoint) {
    assert!(ask(endpoint, calls::Activate).is_ok());
}

fn ask<C: Call>(endpoint: &impl Endpoint, request: C) -> Result<C::Reply, FabricError> {
    block_on(endpoint, call(endpoint, Peer::Control, request, &Counters::default()))
}

fn write(endpoint: &ShmEndpoint, line: u64, byte: u8) -> Result<(), FabricError> {
    post(endpoint, |list| _ = list.write(Space::Host, AT + line * 64, &[byte; 64])).map(drop)
}

fn read(endpoint: &ShmEndpoint, line: u64) -> Result<[u8; 64], FabricError> {
    let mut read = None;
    let list = post(endpoint, |list| read = Some(list.read(Space::Host, AT + line * 64, 64)))?;
    Ok(list.bytes(read.unwrap()).try_into().unwrap())
}

/// Does nothing unless the environment variable is set.
#[test]
fn child() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let (socket, what) = orders.rsplit_once(' ').unwrap();
    let fabric = ShmFabric::join(&options(socket)).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    become_writer(&endpoint);
    println!("\nclient {}", fabric.client());
    match what {
        "die" => MIDWAY.store(DIE, Relaxed),
        "stop" => MIDWAY.store(STOP, Relaxed),
        "exec" => MIDWAY.store(EXEC, Relaxed),
        "close" => MIDWAY.store(CLOSE, Relaxed),
        _ => {
            std::thread::scope(|scope| {
                for seed in 1..=2 {
                    let endpoint = fabric.endpoint().unwrap();
                    scope.spawn(move || write_repeatedly(&endpoint, seed));
                }
                println!("ready");
                std::thread::sleep(2 * LIMIT);
                std::process::exit(1);
            });
        }
    }
    write(&endpoint, 7, 2).unwrap();
    if what == "close" {
        println!("went on");
        std::process::exit(0);
    }
    println!("wrote {:?}", write(&endpoint, 8, 2).err());
}

/// Writes lines that can be checked: each line has one byte value throughout. In lines that are written in
/// part, the rest stays zero.
fn write_repeatedly(endpoint: &ShmEndpoint, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed ^ u64::from(std::process::id()));
    for byte in (1..=u8::MAX).cycle() {
        let line = random.u64(..LINES - 2);
        let covered = covered(line);
        let (offset, bytes) = if line < LINES / 2 { (covered.start as u64, covered) } else { (0, 0..128) };
        let written = post(endpoint, |list| {
            list.write(Space::Host, AT + line * 64 + offset, &[byte; 128][bytes]);
        });
        written.unwrap();
    }
}

fn covered(line: u64) -> std::ops::Range<usize> {
    if line < LINES / 2 && !line.is_multiple_of(2) { 5..61 } else { 0..64 }
}

fn is_torn(line: u64, bytes: &[u8; 64]) -> bool {
    let covered = covered(line);
    let outside = bytes[..covered.start].iter().chain(&bytes[covered.end..]);
    !bytes[covered.clone()].iter().all(|byte| *byte == bytes[covered.start])
        || outside.copied().any(|byte| byte != 0)
}

fn standing(endpoint: &ShmEndpoint, client: ComputeId) -> u64 {
    let Ok(members) = ask(endpoint, calls::Members) else { panic!() };
    members.iter().find(|member| member.client == client).unwrap().lease_left
}

/// Recovers a client whose lease has ended, as a survivor does.
fn recover(endpoint: &ShmEndpoint, client: ComputeId) {
    let begun = Instant::now();
    while ask(endpoint, calls::Suspect { client }) != Ok(Verdict::Recover) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the lease of the dead client runs on");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ask(endpoint, calls::Fence { client }), Ok(()));
    assert_eq!(ask(endpoint, calls::Retire { client }), Ok(()));
    assert_eq!(ask(endpoint, calls::FreeId { client }), Ok(()));
}

#[test]
fn a_line_whose_writer_dies_between_two_stores_is_as_it_was() {
    let served = serve();
    let endpoint = served.join();
    write(&endpoint, 7, 1).unwrap();
    let mut child = served.spawn("die");
    let begun = Instant::now();
    child.child.wait().unwrap();
    // The reader waits until the line is repaired, and no longer.
    assert_eq!(read(&endpoint, 7), Ok([1; 64]));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(served.path.mended(), 1);
    // The lease is one minute, but it has already ended.
    recover(&endpoint, child.client);
    write(&endpoint, 7, 3).unwrap();
    assert_eq!((read(&endpoint, 7), read(&endpoint, 8)), (Ok([3; 64]), Ok([0; 64])));
}

#[test]
fn a_client_stopped_between_two_stores_is_named_to_waiters_and_may_go_on() {
    let served = serve();
    let endpoint = served.join();
    let frames = SoftNicFabric::join(&options(served.socket.to_str().unwrap())).unwrap().endpoint().unwrap();
    write(&endpoint, 7, 1).unwrap();
    let mut child = served.spawn("stop");
    waitpid(Some(child.pid()), WaitOptions::UNTRACED).unwrap();
    let stalled = FabricError::OwnerStalled { client: child.client };
    for _ in 0..2 {
        let begun = Instant::now();
        assert_eq!(read(&endpoint, 7), Err(stalled.clone()));
        assert_eq!(write(&endpoint, 7, 5), Err(stalled.clone()));
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
    // All other lines stay usable.
    write(&endpoint, 6, 4).unwrap();
    assert_eq!(read(&endpoint, 6), Ok([4; 64]));
    assert_ne!(standing(&endpoint, child.client), 0);
    // Lists in frames get the same error, and the server's own CPU finds the saved content.
    let mut list = frames.list(0);
    list.read(Space::Host, AT + 7 * 64, 64);
    let refused = block_on(&frames, execute(&frames, list, &Counters::default()));
    assert_eq!(refused.err(), Some(stalled.clone()));
    let mut bytes = [0; 64];
    served.server.host().unwrap().memory().load(Space::Host, AT + 7 * 64, &mut bytes);
    assert_eq!(bytes, [1; 64]);
    kill_process(child.pid(), Signal::CONT).unwrap();
    assert_eq!(child.heard("wrote "), "None");
    assert_eq!((read(&endpoint, 7), read(&endpoint, 8)), (Ok([2; 64]), Ok([2; 64])));
    assert_eq!(served.path.mended(), 0);
}

#[test]
fn a_fence_of_a_stopped_client_is_refused_and_holds_when_it_goes_on() {
    let served = serve();
    let endpoint = served.join();
    let mut child = served.spawn("stop");
    let client = child.client;
    waitpid(Some(child.pid()), WaitOptions::UNTRACED).unwrap();
    assert_eq!(ask(&endpoint, calls::Condemn { client }), Ok(()));
    let stalled = Err(FabricError::OwnerStalled { client });
    assert_eq!(ask(&endpoint, calls::Fence { client }), stalled);
    kill_process(child.pid(), Signal::CONT).unwrap();
    // The list in flight completes, and nothing after it executes.
    assert_eq!(child.heard("wrote "), format!("{:?}", Some(FabricError::Fenced { client })));
    assert_eq!(ask(&endpoint, calls::Fence { client }), Ok(()));
    assert_eq!((read(&endpoint, 7), read(&endpoint, 8)), (Ok([2; 64]), Ok([0; 64])));
}

#[test]
fn a_line_of_a_stopped_client_that_is_killed_is_repaired_and_the_client_fenced() {
    let served = serve();
    let endpoint = served.join();
    write(&endpoint, 7, 1).unwrap();
    let mut child = served.spawn("stop");
    waitpid(Some(child.pid()), WaitOptions::UNTRACED).unwrap();
    assert!(read(&endpoint, 7).is_err());
    child.child.kill().unwrap();
    child.child.wait().unwrap();
    assert_eq!(read(&endpoint, 7), Ok([1; 64]));
    recover(&endpoint, child.client);
    assert_eq!(served.path.mended(), 1);
}

/// The process keeps its process id, so no pidfd shows that all its threads are gone.
#[test]
fn a_line_whose_writer_calls_exec_between_two_stores_is_as_it_was() {
    let served = serve();
    let endpoint = served.join();
    write(&endpoint, 7, 1).unwrap();
    let mut child = served.spawn("exec");
    child.heard("execs");
    let begun = Instant::now();
    while served.path.mended() == 0 && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(child.child.try_wait().unwrap().is_none(), "it runs on as another program");
    assert_eq!(read(&endpoint, 7), Ok([1; 64]));
    recover(&endpoint, child.client);
    write(&endpoint, 7, 3).unwrap();
    assert_eq!((read(&endpoint, 7), served.path.mended()), (Ok([3; 64]), 1));
}

/// A program may close files that it does not know. Its threads then continue, even in the middle of a
/// change.
#[test]
fn a_line_whose_writer_has_closed_its_connections_is_left_to_it() {
    let served = serve();
    let endpoint = served.join();
    write(&endpoint, 7, 1).unwrap();
    let mut child = served.spawn("close");
    child.heard("closes");
    child.heard("went on");
    child.child.wait().unwrap();
    assert_eq!((read(&endpoint, 7), served.path.mended()), (Ok([2; 64]), 0));
}

#[test]
fn no_line_is_torn_by_writers_that_are_killed() {
    let served = serve();
    let endpoint = served.join();
    let (begun, mut random) = (Instant::now(), fastrand::Rng::with_seed(std::process::id().into()));
    let mut kills = 0;
    while kills < KILLS && begun.elapsed() < LIMIT {
        let mut child = served.spawn("write");
        child.heard("ready");
        std::thread::sleep(Duration::from_micros(random.u64(..4_000)));
        child.child.kill().unwrap();
        child.child.wait().unwrap();
        kills += 1;
        for line in 0..LINES {
            let bytes = read(&endpoint, line).unwrap();
            assert!(!is_torn(line, &bytes), "line {line} after {kills} kills: {bytes:?}");
        }
        recover(&endpoint, child.client);
    }
    println!("{kills} kills in {:?}, {} of them over a line", begun.elapsed(), served.path.mended());
    assert!(kills >= 50, "{kills} kills in {LIMIT:?}: this machine is too busy to tell anything");
    assert!(served.path.mended() > 0, "no kill met a line");
}
