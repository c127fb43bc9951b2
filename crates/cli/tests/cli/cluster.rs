//! `sherman serve` and `sherman cluster up` with real processes.

use crate::common::{command, fresh_path, secret_file, sherman, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A running command and its output. Dropping it kills the command if it still runs.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: &str) {
        send_signal(self.child.id().into(), signal);
    }

    /// Waits until the command ends and returns its exit code.
    fn code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("its status") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal. It does not use the program `kill`, because a small system does not have it.
fn send_signal(pid: u64, signal: &str) {
    let signal = match signal {
        "-KILL" => Signal::KILL,
        "-TERM" => Signal::TERM,
        "-INT" => Signal::INT,
        other => panic!("{other}"),
    };
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, signal).expect("it runs");
}

/// Whether a memory server sends its hello at this address.
fn greets(address: &str) -> bool {
    let mut hello = [0; 16];
    let read = match address.strip_prefix("unix:").or(address.strip_prefix("shm:")) {
        Some(path) => UnixStream::connect(path).and_then(|mut stream| stream.read_exact(&mut hello)),
        None => {
            let host = address.strip_prefix("tcp://").expect("an address");
            TcpStream::connect(host).and_then(|mut stream| stream.read_exact(&mut hello))
        }
    };
    read.is_ok()
}

fn is_alive(pid: u64) -> bool {
    // A zombie (ended, but not yet waited for) still has a `stat` file.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_server_serves_until_a_signal_ends_it() {
    for (signal, scheme) in [("-TERM", "unix"), ("-INT", "unix"), ("-TERM", "shm")] {
        let socket = fresh_path(&format!("serve{signal}.sock"));
        let listen = format!("{scheme}:{}", socket.display());
        let mut server = Running::start(command(&[
            "serve",
            "--json",
            "--listen",
            "tcp://127.0.0.1:0",
            "--listen",
            &listen,
            "--memory",
            "64MiB",
        ]));
        let said: Value = serde_json::from_str(&server.line()).expect("JSON");
        assert_eq!((said["server"].as_u64(), said["servers"].as_u64()), (Some(0), Some(1)));
        assert_eq!(said["pid"].as_u64(), Some(u64::from(server.child.id())));
        let tcp = said["listen"][0].as_str().expect("an address").to_owned();
        assert_eq!(said["listen"][1].as_str(), Some(listen.as_str()));
        assert!(greets(&tcp) && greets(&listen), "{said}");
        server.signal(signal);
        assert_eq!(server.code(), Some(0), "{signal}");
        assert!(!greets(&tcp) && !socket.exists(), "{signal}: it has ended in order");
    }
}

#[test]
fn a_server_says_in_words_what_it_serves_and_ends_with_its_stdin() {
    let listen = format!("unix:{}", fresh_path("words.sock").display());
    let line = [
        "serve",
        "--listen",
        &listen,
        "--memory",
        "64MiB",
        "--id",
        "1",
        "--servers",
        "3",
        "--until-stdin-closes",
    ];
    let mut server = Running::start(command(&line));
    assert_eq!(server.line(), "memory server 1 of 3: 67108864 bytes");
    assert_eq!(server.line(), format!("listening on {listen}"));
    drop(server.child.stdin.take());
    assert_eq!(server.code(), Some(0));
}

#[test]
fn an_idle_server_takes_next_to_no_processor_time() {
    for scheme in ["unix", "shm"] {
        takes_next_to_no_processor_time(&format!("{scheme}:{}", fresh_path("idle.sock").display()));
    }
}

fn takes_next_to_no_processor_time(listen: &str) {
    let mut server = Running::start(command(&["serve", "--listen", listen, "--memory", "64MiB"]));
    server.line();
    let ticks = |pid: u32| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
        fields[11].parse::<u64>().expect("user time") + fields[12].parse::<u64>().expect("system time")
    };
    std::thread::sleep(Duration::from_millis(300));
    let before = ticks(server.child.id());
    std::thread::sleep(Duration::from_secs(1));
    // Linux counts a hundred ticks per second.
    assert!(ticks(server.child.id()) - before <= 2);
}

#[test]
fn a_file_is_opened_again_by_its_own_server_alone() {
    let (file, socket) = (fresh_path("memory"), fresh_path("file.sock"));
    let (path, listen) = (file.to_str().expect("UTF-8").to_owned(), format!("unix:{}", socket.display()));
    let line = ["serve", "--listen", &listen, "--memory", "64MiB", "--file", &path];
    let begin = |more: &[&str]| Running::start(command(&[&line[..], more].concat()));
    let mut first = begin(&[]);
    assert_eq!(first.line(), format!("memory server 0 of 1: 67108864 bytes in {path}"));
    let second = format!("unix:{}", fresh_path("second.sock").display());
    for (more, words) in [
        (&["--memory", "64MiB", "--file", &path, "--listen", &second][..], "--file: "),
        (&["--memory", "64MiB", "--listen", &listen], "--listen: another process listens on "),
    ] {
        let refused = sherman(&[&["serve"], more].concat());
        assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains(words), "{}", text(&refused.stderr));
    }
    first.signal("-KILL");
    assert_eq!(first.code(), None);
    let mut again = begin(&[]);
    assert!(again.line().contains("memory server 0 of 1"), "after a death, the socket left behind included");
    drop(again);
    for (more, words) in [
        (&["--id", "1", "--servers", "2"][..], "memory server 0 of 1"),
        (&["--cluster-name", "b"], "another cluster"),
    ] {
        let refused = sherman(&[&line[..], more].concat());
        assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains(words), "{}", text(&refused.stderr));
    }
    std::fs::remove_file(file).expect("the file goes");
}

#[test]
fn servers_that_cannot_be_are_refused() {
    let secret = secret_file("short-secret", "x");
    let secret = secret.to_str().expect("UTF-8");
    for (code, line, words) in [
        (2, &["--listen", "tcp://0.0.0.0:0"][..], "--insecure"),
        (2, &["--listen", "unix:/a", "--secret-file", "/no/such/file"], "--secret-file: "),
        (2, &["--listen", "unix:/a", "--secret-file", secret], "--secret-file: "),
        (2, &["--listen", "unix:/a", "--memory", "1MiB"], "--memory: "),
        (2, &["--listen", "shm:/a", "--memory", "1MiB"], "--memory: "),
        (2, &["--listen", "shm:/a", "--file", "f"], "--file: "),
        (2, &["--listen", "unix:/a", "--config", "/no/such/file"], "--config: /no/such/file"),
        (3, &["--listen", "unix:/no/such/place/a.sock", "--memory", "64MiB"], "--listen: "),
        (3, &["--listen", "unix:/dev/null", "--memory", "64MiB"], "--listen: /dev/null"),
    ] {
        let output = sherman(&[&["serve"], line].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line:?}: {stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(words), "{line:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{line:?}");
    }
    std::fs::remove_file(secret).expect("the file goes");
}

#[test]
fn a_cluster_is_up_until_a_signal_and_leaves_nothing_behind() {
    let url_file = fresh_path("url");
    let name = url_file.to_str().expect("UTF-8");
    for (kind, scheme) in [("--unix", "unix:"), ("--tcp", "tcp://"), ("--shm", "shm:")] {
        let line =
            ["cluster", "up", "--servers", "3", kind, "--memory", "64MiB", "--json", "--url-file", name];
        let mut up = Running::start(command(&line));
        let said: Value = serde_json::from_str(&up.line()).expect("JSON");
        let servers = said["servers"].as_array().expect("servers").clone();
        assert_eq!(servers.len(), 3);
        let addresses: Vec<&str> =
            servers.iter().map(|server| server["address"].as_str().expect("one")).collect();
        assert!(addresses.iter().all(|address| greets(address)), "{said}");
        let hosts: Vec<&str> =
            addresses.iter().map(|address| address.strip_prefix(scheme).expect(scheme)).collect();
        assert_eq!(said["url"].as_str(), Some(format!("{scheme}{}", hosts.join(",")).as_str()));
        let written = std::fs::read_to_string(&url_file).expect("the file");
        assert_eq!(Some(written.trim_end()), said["url"].as_str());
        up.signal("-TERM");
        assert_eq!(up.code(), Some(0), "{kind}");
        assert!(!url_file.exists() && !addresses.iter().any(|address| greets(address)), "{kind}");
        assert!(servers.iter().all(|server| !is_alive(server["pid"].as_u64().expect("a pid"))), "{kind}");
        if kind != "--tcp" {
            assert!(!Path::new(hosts[0]).parent().expect("a directory").exists(), "its directory has gone");
        }
    }
}

#[test]
fn a_replicated_cluster_is_up_although_one_of_its_servers_dies() {
    for kind in ["--tcp", "--shm"] {
        let size = ["cluster", "up", "--servers", "3", "--replicas", "2", "--memory", "64MiB"];
        let mut up = Running::start(command(&[&size[..], &[kind, "--lease", "1s", "--json"]].concat()));
        let said: Value = serde_json::from_str(&up.line()).expect("JSON");
        let url = said["url"].as_str().expect("a URL").to_owned();
        let ask = |line: &[&str]| {
            let output = sherman(&[line, &["--cluster", &url]].concat());
            assert_eq!(output.status.code(), Some(0), "{kind} {line:?}: {}", text(&output.stderr));
            text(&output.stdout)
        };
        ask(&["put", "7", "700", "--tree", "orders", "--create"]);
        send_signal(said["servers"][1]["pid"].as_u64().expect("a pid"), "-KILL");
        assert_eq!(ask(&["get", "7"]).trim(), "700", "{kind}");
        ask(&["put", "8", "800"]);
        assert!(ask(&["check"]).contains("orders"), "{kind}");
        assert!(is_alive(up.child.id().into()), "{kind}");
        up.signal("-TERM");
        assert_eq!(up.code(), Some(0), "{kind}");
    }
    let few = sherman(&["cluster", "up", "--servers", "1", "--replicas", "2"]);
    assert_eq!(few.status.code(), Some(2));
    assert!(text(&few.stderr).starts_with("error: --servers: "), "{}", text(&few.stderr));
}

#[test]
fn a_command_runs_with_the_cluster_and_its_status_is_ours() {
    let up = ["cluster", "up", "--servers", "2", "--memory", "64MiB", "--"];
    let dump = "echo \"$SHERMAN_CLUSTER\"; test -S \"${SHERMAN_CLUSTER##*,}\" || exit 9; exit 7";
    let output = sherman(&[&up[..], &["sh", "-c", dump]].concat());
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let url = text(&output.stdout);
    assert!(
        url.starts_with("unix:/") && url.contains("server-0.sock,/") && url.lines().count() == 1,
        "{url}"
    );
    let socket = url.trim_end().rsplit_once(',').expect("two servers").1;
    assert!(!Path::new(socket).exists());
    assert_eq!(sherman(&[&up[..], &["true"]].concat()).status.code(), Some(0));
    assert_eq!(sherman(&[&up[..], &["sh", "-c", "kill -KILL $$"]].concat()).status.code(), Some(137));
    let missing = sherman(&[&up[..], &["/no/such/program"]].concat());
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/no/such/program"), "{}", text(&missing.stderr));
}

#[test]
fn a_cluster_ends_by_itself_after_its_time_or_with_its_starter() {
    let line = ["cluster", "up", "--servers", "2", "--memory", "64MiB"];
    let output = sherman(&[&line[..], &["--for", "100ms"]].concat());
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1);

    let dir = fresh_path("killed");
    let mut up =
        Running::start(command(&[&line[..], &["--json", "--dir", dir.to_str().expect("UTF-8")]].concat()));
    let said: Value = serde_json::from_str(&up.line()).expect("JSON");
    let pids: Vec<u64> = (0..2).map(|at| said["servers"][at]["pid"].as_u64().expect("a pid")).collect();
    assert!(pids.iter().all(|&pid| is_alive(pid)));
    up.signal("-KILL");
    assert_eq!(up.code(), None);
    until("servers outlive the process that started them", || !pids.iter().any(|&pid| is_alive(pid)));
    // The servers removed their sockets. The killed command could not remove the directory.
    std::fs::remove_dir(&dir).expect("it is empty");
}

#[test]
fn a_server_that_dies_ends_the_cluster_with_an_error() {
    let mut command = command(&["cluster", "up", "--servers", "2", "--memory", "64MiB", "--json"]);
    command.stderr(Stdio::piped());
    let mut up = Running::start(command);
    let said: Value = serde_json::from_str(&up.line()).expect("JSON");
    send_signal(said["servers"][1]["pid"].as_u64().expect("a pid"), "-KILL");
    assert_eq!(up.code(), Some(3));
    let mut stderr = String::new();
    up.child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("UTF-8");
    assert!(stderr.starts_with("error: memory server 1 ended by itself: signal: 9"), "{stderr}");
}

#[test]
fn clusters_that_cannot_be_are_refused() {
    for (code, line, words) in [
        (2, &["--servers", "0"][..], "--servers"),
        (2, &["--servers", "65"], "--servers"),
        (2, &["--unix", "--tcp"], "--tcp"),
        (2, &["--unix", "--shm"], "--shm"),
        (2, &["--shm", "--tcp"], "--tcp"),
        (2, &["--memory", "lots"], "--memory"),
        (2, &["--dir", "/no/such/parent/x"], "--dir: "),
        (2, &["--secret-file", "/no/such/file"], "--secret-file: "),
        (2, &["--for", "1s", "--", "true"], "--for"),
        (3, &["--memory", "1MiB"], "memory server 0 did not start"),
    ] {
        let output = sherman(&[&["cluster", "up"], line].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line:?}: {stderr}");
        assert!(stderr.contains(words) && output.stdout.is_empty(), "{line:?}: {stderr}");
    }
}

#[test]
fn a_secret_reaches_servers_and_url() {
    let secret = secret_file("url-secret", "a secret of more than thirty-two bytes, to be sure\n");
    let name = secret.to_str().expect("UTF-8");
    let output = sherman(&[
        "cluster",
        "up",
        "--tcp",
        "--memory",
        "64MiB",
        "--secret-file",
        name,
        "--",
        "sh",
        "-c",
        "echo $SHERMAN_CLUSTER",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let url = text(&output.stdout);
    assert!(
        url.trim_end().ends_with(&format!("?secret-file={name}")) && url.starts_with("tcp://127.0.0.1:"),
        "{url}"
    );
    std::fs::remove_file(secret).expect("the file goes");
}
