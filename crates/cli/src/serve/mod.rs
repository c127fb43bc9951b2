//! `sherman serve`: runs one memory server or one host until a signal, or the end of stdin, stops it.

pub mod args;
pub mod config;
pub mod group_text;
pub mod host;
pub mod host_file;
pub mod kept;
pub mod log;
pub mod options;
pub mod start;
pub mod verbs;

use crate::failure::Failure;
use crate::output::print;
use crate::serve::args::{ServeArgs, Serving};
use crate::serve::options::ServeOptions;
use crate::serve::start::Server;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Read;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

/// Runs the server.
pub fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    serve(args).map(|()| ExitCode::SUCCESS)
}

fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let options = args.options()?;
    let (tell, end) = end(args.until_stdin_closes)?;
    let log = match &options {
        Serving::Server(server) => server.log,
        Serving::Host(host) => host.log,
    };
    crate::serve::log::to_stderr(log);
    raise_file_limit();
    let options = match options {
        Serving::Server(options) => options,
        Serving::Host(options) => return host::serve(&options, args.json, tell, &end),
    };
    drop(tell);
    let server = Server::start(&options)?;
    print(&announcement(&options, &server, args.json))?;
    // The server also stops if all senders are gone.
    let _ = end.recv();
    server.stop().map_err(|error| Failure::Runtime(error.to_string()))
}

/// Raises the limit of open files to the user's maximum. Every connection is one open file, and most systems
/// start with a limit of 1,024.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // If the system refuses, fewer clients can connect at a time. The log then reports it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Describes the server and its addresses: one line of JSON, or text with one line per address.
fn announcement(options: &ServeOptions, server: &Server, as_json: bool) -> String {
    let (addresses, metrics) = (server.addresses(), server.metrics());
    let ServeOptions { id, servers, memory, .. } = options;
    if as_json {
        let pid = std::process::id();
        let said = json!({
            "server": id,
            "servers": servers,
            "listen": addresses,
            "metrics": metrics,
            "memory": memory,
            "pid": pid,
        });
        return format!("{said}\n");
    }
    let file = options.file.as_ref().map_or_else(String::new, |file| format!(" in {}", file.display()));
    let warning = if options.insecure {
        ", without a secret: every client that reaches it can change all data"
    } else {
        ""
    };
    let listening: String = addresses.iter().map(|address| format!("listening on {address}\n")).collect();
    let metrics =
        metrics.map_or_else(String::new, |address| format!("metrics at http://{address}/metrics\n"));
    format!("memory server {id} of {servers}: {memory} bytes{file}{warning}\n{metrics}{listening}")
}

/// Returns a channel that signals the end: after a signal, or with `stdin_too` when stdin closes. Others may
/// signal the end, too.
fn end(stdin_too: bool) -> Result<(SyncSender<()>, Receiver<()>), Failure> {
    let (tell, told) = sync_channel(3);
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::Runtime(format!("cannot catch signals: {error}")))?;
    let on_signal = tell.clone();
    let signalled = move || {
        signals.forever().next();
    };
    watch(signalled, on_signal)?;
    let also = tell.clone();
    if stdin_too {
        let until_closed = || {
            let mut stdin = std::io::stdin().lock();
            while stdin.read(&mut [0; 256]).is_ok_and(|read| read > 0) {}
        };
        watch(until_closed, tell)?;
    }
    Ok((also, told))
}

/// Waits on a new thread, and sends when `wait` returns.
fn watch(wait: impl FnOnce() + Send + 'static, tell: SyncSender<()>) -> Result<(), Failure> {
    let thread = Builder::new().name("sherman-end".to_owned());
    let spawned = thread.spawn(move || {
        wait();
        // The channel has room for all messages; the receiver takes only the first.
        let _ = tell.try_send(());
    });
    spawned.map(drop).map_err(|error| Failure::Runtime(format!("cannot start a thread: {error}")))
}
