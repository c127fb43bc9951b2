//! `sherman serve`: one memory server, until it is told to end.

use crate::failure::Failure;
use crate::output::print;
use crate::serve_args::ServeArgs;
use crate::serve_options::ServeOptions;
use crate::serve_start::Server;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Read;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

/// Serves.
pub fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    serve(args).map(|()| ExitCode::SUCCESS)
}

fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let options = args.options()?;
    let end = end(args.until_stdin_closes)?;
    crate::serve_log::to_stderr(options.log);
    raise_file_limit();
    let server = Server::start(&options)?;
    print(&announcement(&options, &server, args.json))?;
    // That nobody is left to say so is an end as well.
    let _ = end.recv();
    server.stop().map_err(|error| Failure::Runtime(error.to_string()))
}

/// Lets the process have as many open files as its user may: every connection is one, and most systems begin with 1,024.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // If the system refuses, fewer clients can connect at a time, and the log says so then.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// What it serves, and where: on one line of JSON, or in words with a line for each address.
fn announcement(options: &ServeOptions, server: &Server, as_json: bool) -> String {
    let (addresses, metrics) = (server.addresses(), server.metrics());
    let ServeOptions { id, servers, memory, .. } = options;
    if as_json {
        let pid = std::process::id();
        let said = json!({
            "server": id, "servers": servers, "listen": addresses, "metrics": metrics, "memory": memory, "pid": pid,
        });
        return format!("{said}\n");
    }
    let file = options.file.as_ref().map_or_else(String::new, |file| format!(" in {}", file.display()));
    let warning = if options.insecure { ", without a secret: whoever reaches it can change everything" } else { "" };
    let listening: String = addresses.iter().map(|address| format!("listening on {address}\n")).collect();
    let metrics = metrics.map_or_else(String::new, |address| format!("metrics at http://{address}/metrics\n"));
    format!("memory server {id} of {servers}: {memory} bytes{file}{warning}\n{metrics}{listening}")
}

/// Tells once when it is time to end: a signal, or, where that is asked for, the end of stdin.
fn end(stdin_too: bool) -> Result<Receiver<()>, Failure> {
    let (tell, told) = sync_channel(2);
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| Failure::Runtime(format!("signals: {error}")))?;
    let on_signal = tell.clone();
    let signalled = move || {
        signals.forever().next();
    };
    watch(signalled, on_signal)?;
    if stdin_too {
        let until_closed = || {
            let mut stdin = std::io::stdin().lock();
            while stdin.read(&mut [0; 256]).is_ok_and(|read| read > 0) {}
        };
        watch(until_closed, tell)?;
    }
    Ok(told)
}

/// Tells when `wait` returns, from a thread of its own.
fn watch(wait: impl FnOnce() + Send + 'static, tell: SyncSender<()>) -> Result<(), Failure> {
    let thread = Builder::new().name("sherman-end".to_owned());
    let spawned = thread.spawn(move || {
        wait();
        // There is room for one of each; who was first is heard.
        let _ = tell.try_send(());
    });
    spawned.map(drop).map_err(|error| Failure::Runtime(format!("the system started no thread: {error}")))
}
