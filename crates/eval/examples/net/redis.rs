//! The same measurements with Redis, by its own benchmark.

use crate::Transport;
use crate::options::Server;
use crate::processor;
use crate::report::Figure;
use std::error::Error;
use std::process::Command;
use std::time::Duration;

/// Commands choose from this many keys at random: few enough that each SET row writes all of them.
const KEYS: &str = "10000";
/// Ticks per second in which `/proc` counts processor time.
const TICKS: f64 = 100.0;

/// Returns the processor time in seconds of all children that have ended.
fn children() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name is the second field and may contain any character, so the fields after it are counted: the
    // 16th and 17th are needed.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(13).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// Returns commands per second as the benchmark reports them, and the processor time of both sides.
pub(crate) fn run(
    server: &Server,
    transport: Transport,
    depth: u64,
    sets: bool,
    bytes: usize,
) -> Result<Figure, Box<dyn Error>> {
    let requests = if depth > 1 { "200000" } else { "8000" };
    let mut command = Command::new("redis-benchmark");
    match transport {
        Transport::Unix => command.args(["-s", &server.unix]),
        Transport::Tcp => {
            let (host, port) = server.tcp.rsplit_once(':').ok_or("no port")?;
            command.args(["-h", host, "-p", port])
        }
    };
    let (depth, size) = (depth.to_string(), bytes.to_string());
    command.args(["-c", "1", "-P", &depth, "-n", requests, "-r", KEYS, "-d", &size, "--csv"]);
    command.args(["-t", if sets { "set" } else { "get" }]);
    let mut said = String::new();
    let mut figure = processor::between(
        children,
        || processor::of_process(server.pid),
        || {
            let output = command.output()?;
            if !output.status.success() {
                return Err(format!("redis-benchmark: {}", String::from_utf8_lossy(&output.stderr)).into());
            }
            said = String::from_utf8(output.stdout)?;
            Ok(requests.parse()?)
        },
    )?;
    // The benchmark counts time from its first command. Its start-up is not in that time, but is in its
    // processor time.
    let last = said.lines().last().ok_or("redis-benchmark said nothing")?;
    let rate: f64 = last.split(',').nth(1).ok_or("no rate")?.trim_matches('"').parse()?;
    let elapsed = Duration::from_secs_f64(requests.parse::<f64>()? / figure.rate).as_secs_f64();
    let within = requests.parse::<f64>()? / rate;
    figure.client *= elapsed / within;
    figure.server *= elapsed / within;
    figure.rate = rate;
    Ok(figure)
}
