//! Measures the cost of a READ over loopback, beside a bare loop that moves the same bytes.
//!
//! `cargo run --release -p sherman-soft-nic -F measure --example raw_reads [tcp|unix]`
//!
//! The client is a blocking socket that keeps a number of READs of 1 KiB in flight and reads whatever
//! arrives. The server is either the soft NIC, or a thread that answers each 32 bytes with the same 1040
//! bytes. That thread answers all requests of one receive in one send.
//!
//! Addresses are random, within one megabyte (hot) or within 256 (cold). The bare loop touches no memory, so
//! cold figures do not compare with it. Figures are medians of five, taken in turn. Beside them stands the
//! CPU time of the serving thread for one READ, in nanoseconds, which other work on the machine disturbs
//! less.

use sherman_control::auth;
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::{FrameHeader, FrameKind, HEADER_BYTES, Hello, Introduce, Role, VERSION};
use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::host::Host;
use sherman_embedded::memory::Region;
use sherman_fabric::{Space, WorkList};
use sherman_layout::FormatOptions;
use sherman_soft_nic::server::{Listen, ServerOptions, SoftNicServer};
use sherman_soft_nic::verbs::put_list;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NODE: usize = 1024;
const REQUEST: usize = 32;
const REPLY: usize = HEADER_BYTES + NODE;
const MEMORY: usize = 256 << 20;

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// Answers every request that arrives, without any memory behind the answers.
fn bare(mut stream: impl Stream) {
    let (mut input, output) = (vec![0; 128 << 10], vec![7; REPLY * 4096]);
    let mut rest = 0;
    while let Ok(len) = stream.read(&mut input) {
        if len == 0 {
            return;
        }
        let bytes = rest + len;
        rest = bytes % REQUEST;
        if stream.write_all(&output[..bytes / REQUEST * REPLY]).is_err() {
            return;
        }
    }
}

/// Nanoseconds that all threads with this name have run on a CPU.
fn cpu_time(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten().map(|task| task.path());
    let named =
        tasks.filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.contains(name)));
    let stats = named.filter_map(|task| std::fs::read_to_string(task.join("schedstat")).ok());
    stats.filter_map(|stat| stat.split(' ').next().and_then(|time| time.parse::<u64>().ok())).sum()
}

/// Returns READs per second with `depth` in flight, and the CPU time that each costs the threads with this
/// name.
fn measure(
    stream: &mut dyn Stream,
    name: &str,
    depth: usize,
    reach: usize,
) -> Result<(f64, f64), Box<dyn Error>> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut requests = Vec::new();
    let mut add = |requests: &mut Vec<u8>| {
        let mut list = WorkList::new(0);
        list.read(Space::Host, random.u64(..(reach / NODE) as u64) * NODE as u64, NODE as u32);
        put_list(requests, 1, &mut list).map(drop)
    };
    (0..depth).try_for_each(|_| add(&mut requests))?;
    stream.write_all(&requests)?;
    let mut buffer = vec![0; 256 << 10];
    let (mut bytes, mut done, mut rest) = (0usize, 0usize, 0usize);
    let (began, before) = (Instant::now(), cpu_time(name));
    while began.elapsed() < Duration::from_millis(400) {
        let len = stream.read(&mut buffer)?;
        bytes += len;
        rest += len;
        requests.clear();
        while rest >= REPLY {
            (rest, done) = (rest - REPLY, done + 1);
            add(&mut requests)?;
        }
        stream.write_all(&requests)?;
    }
    let rate = done as f64 / began.elapsed().as_secs_f64();
    let cost = (cpu_time(name) - before) as f64 / done as f64;
    // Receives the replies still in flight, so that the next measurement does not get them.
    let mut left = (done + depth) * REPLY - bytes;
    while left > 0 {
        left -= stream.read(&mut buffer)?;
    }
    Ok((rate, cost))
}

/// Goes through the handshake.
fn join(stream: &mut dyn Stream) -> Result<(), Box<dyn Error>> {
    let frame = |stream: &mut dyn Stream| -> Result<Vec<u8>, Box<dyn Error>> {
        let mut head = [0; HEADER_BYTES];
        stream.read_exact(&mut head)?;
        let header = FrameHeader::decode(&head)?.ok_or("no header")?;
        let mut body = vec![0; header.len as usize];
        stream.read_exact(&mut body)?;
        Ok(body)
    };
    let hello = Hello::take(&frame(stream)?)?;
    let introduce =
        Introduce { version: VERSION, nonce: auth::nonce()?, role: Role::Join { seen: vec![None] } };
    let mut out = Vec::new();
    let sign = |covered: &[u8]| auth::client_mac(None, covered, &hello.nonce);
    put_frame(&mut out, FrameKind::Introduce, 0, |out| introduce.put(out, sign))?;
    stream.write_all(&out)?;
    frame(stream).map(drop)
}

fn main() -> Result<(), Box<dyn Error>> {
    let unix = std::env::args().any(|argument| argument == "unix");
    let path = |name: &str| -> PathBuf {
        std::env::temp_dir().join(format!("sherman-{name}-{}", std::process::id()))
    };
    let region = Region::new(MEMORY, 256 << 10, Atomicity::Line, CopyPath::fastest()).ok_or("no memory")?;
    for offset in (0..MEMORY as u64).step_by(4096) {
        region.write(Space::Host, offset, &[1]).map_err(|bad| format!("{bad:?}"))?;
    }
    let host = Arc::new(Host::format(region, &FormatOptions::default())?);
    let listen = if unix { Listen::Unix(path("nic")) } else { Listen::Tcp("127.0.0.1:0".into()) };
    let server = SoftNicServer::start(ServerOptions::new(host, vec![listen]))?;
    let mut ours: Box<dyn Stream> = match &server.addresses()[0] {
        Listen::Tcp(address) => Box::new(nodelay(TcpStream::connect(address)?)?),
        Listen::Unix(path) => Box::new(UnixStream::connect(path)?),
    };
    join(&mut *ours)?;
    let mut plain: Box<dyn Stream> = if unix {
        let listener = UnixListener::bind(path("bare"))?;
        let stream = UnixStream::connect(path("bare"))?;
        let accepted = listener.accept()?.0;
        std::fs::remove_file(path("bare"))?;
        std::thread::Builder::new().name("bare".into()).spawn(move || bare(accepted))?;
        Box::new(stream)
    } else {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = nodelay(TcpStream::connect(listener.local_addr()?)?)?;
        let accepted = nodelay(listener.accept()?.0)?;
        std::thread::Builder::new().name("bare".into()).spawn(move || bare(accepted))?;
        Box::new(stream)
    };
    println!("READ of {NODE} bytes, {}: median of 5", if unix { "unix" } else { "tcp" });
    for (what, reach) in [("hot", 1 << 20), ("cold", MEMORY)] {
        for depth in [1, 8, 64, 256] {
            let mut taken = [(); 4].map(|()| Vec::new());
            for _ in 0..5 {
                let bare = measure(&mut *plain, "bare", depth, reach)?;
                let ours = measure(&mut *ours, "sherman-shard", depth, reach)?;
                taken.iter_mut().zip([bare.0, ours.0, bare.1, ours.1]).for_each(|(all, one)| all.push(one));
            }
            taken.iter_mut().for_each(|all| all.sort_by(f64::total_cmp));
            let [bare, ours, bare_cost, cost] = taken.map(|all| all[2]);
            print!("{what:>4} {depth:>4} in flight: bare {bare:>9.0}/s   soft NIC {ours:>9.0}/s   ");
            println!("ratio {:.2}   CPU {bare_cost:>6.0} and {cost:>6.0} ns", ours / bare);
        }
    }
    Ok(())
}

fn nodelay(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}
