//! A memory server and its host: full disks, files with wide permissions, options that contradict a file,
//! silent connections, and the log for the operator.

use crate::common::servers::{Server, wait_until};
use crate::common::{command, fresh_path, is_a_time, program, secret_file, sherman, text};
use crate::raw::{Raw, alone};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sherman::Cluster;
use sherman_fabric::calls;
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A directory that is removed with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = fresh_path(name);
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The log lines that need an operator's attention.
fn warnings(log: &str) -> String {
    log.lines().filter(|line| !line.contains("Z info: ")).map(|line| format!("{line}\n")).collect()
}

/// Runs a script in its own mount namespace, with a small disk at `$1` and the command at `$2`. Returns
/// `None` if this host does not allow that.
fn on_a_small_disk(directory: &Path, script: &str) -> Option<Output> {
    let whole = format!("mount -t tmpfs -o size=16m sherman-test \"$1\" || exit 77\n{script}");
    // The second way needs no root on hosts where users may create namespaces.
    for way in [&["--mount"][..], &["--user", "--map-root-user", "--mount"]] {
        let mut command = Command::new("unshare");
        command.args(way).args(["sh", "-c", &whole, "sh"]).arg(directory).arg(program());
        let Ok(output) = command.env_remove("SHERMAN_CLUSTER").output() else { continue };
        // Exit code 1 comes from unshare itself, before the script.
        if !matches!(output.status.code(), Some(1 | 77)) {
            return Some(output);
        }
    }
    println!("LEFT OUT: this host does not allow mounting a tmpfs (unshare, mount)");
    None
}

#[test]
fn a_file_that_does_not_fit_the_disk_is_refused_and_nothing_is_left_of_it() {
    let directory = Directory::new("small-disk");
    let script = r#"
        timeout 10 "$2" serve --listen "unix:$1/s" --memory 64MiB --file "$1/memory" < /dev/null
        echo "code $?"
        ls -A "$1"
    "#;
    let Some(output) = on_a_small_disk(&directory.0, script) else { return };
    let (said, path) = (text(&output.stderr), directory.file("memory"));
    assert_eq!(text(&output.stdout), "code 3\n", "{said}");
    assert!(said.starts_with(&format!("error: --file: the disk has no room for {path}: ")), "{said}");
    assert!(
        said.contains("needs 67711296 more bytes, and 16777216 are free") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn the_folder_of_a_host_that_does_not_fit_the_disk_is_refused_and_nothing_is_left_of_it() {
    let directory = Directory::new("small-disk-of-a-host");
    let script = r#"
        serve() {
            timeout 10 "$2" serve --new-cluster --listen "unix:$1/s" --memory $3 --file "$1/host" \
                --until-stdin-closes < /dev/null > "$1/out"
            echo "code $?"
        }
        serve "$1" "$2" 64MiB
        ls -A "$1"
        mount -o remount,size=128m "$1"
        serve "$1" "$2" 64MiB
        mount -o remount,size=70m "$1"
        serve "$1" "$2" 128MiB
        serve "$1" "$2" 64MiB
    "#;
    let Some(output) = on_a_small_disk(&directory.0, script) else { return };
    let (said, path) = (text(&output.stderr), directory.file("host"));
    assert_eq!(text(&output.stdout), "code 3\nout\ncode 0\ncode 3\ncode 0\n", "{said}");
    let refusal = format!("error: --file: {path}: the disk has no room for the host's memory: ");
    assert_eq!(said.lines().filter(|line| line.starts_with(&refusal)).count(), 2, "{said}");
    assert!(said.contains("67108864 more bytes are needed"), "{said}");
}

#[test]
fn a_sparse_file_gets_its_disk_space_before_it_is_served_or_is_refused_unchanged() {
    let directory = Directory::new("sparse");
    // The server ends at once, because its stdin is closed.
    let script = r#"
        serve() {
            timeout 10 "$2" serve --listen "unix:$1/s" --file "$1/memory" --until-stdin-closes \
                < /dev/null > "$1/out"
            echo "code $?"
        }
        mount -o remount,size=128m "$1"
        serve "$1" "$2"
        cp --sparse=always "$1/memory" "$1/sparse" && mv "$1/sparse" "$1/memory"
        mount -o remount,size=16m "$1"
        before=$(cksum < "$1/memory")
        serve "$1" "$2"
        test "$before" = "$(cksum < "$1/memory")" && echo unchanged
        mount -o remount,size=128m "$1"
        serve "$1" "$2"
        set -- $(du -k "$1/memory"); echo "$1 KiB"
    "#;
    let script = script.replace("--file", "--memory 64MiB --file");
    let Some(output) = on_a_small_disk(&directory.0, &script) else { return };
    let (lines, said) = (text(&output.stdout), text(&output.stderr));
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines[..4], ["code 0", "code 3", "unchanged", "code 0"], "{said}");
    let taken: u64 = lines[4].trim_end_matches(" KiB").parse().expect("a number");
    assert!(taken >= 64 << 10, "{taken} KiB");
    assert!(
        warnings(&said).contains("the disk has no room for ") && warnings(&said).lines().count() == 1,
        "{said}"
    );
}

#[test]
fn a_file_longer_than_the_process_may_make_is_refused() {
    let directory = Directory::new("file-limit");
    let (socket, file) = (format!("unix:{}", directory.file("s")), directory.file("memory"));
    let script = format!(
        "ulimit -f 1000; exec {} serve --listen {socket} --memory 64MiB --file {file} --until-stdin-closes",
        program().display()
    );
    let output = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().expect("a shell");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("may make files of at most") && said.contains(&file) && said.lines().count() == 1,
        "{said}"
    );
    assert!(!Path::new(&file).exists());
}

#[test]
fn options_that_a_file_has_fixed_are_refused_by_name_and_otherwise_taken_from_it() {
    let directory = Directory::new("kept");
    let (socket, file) = (format!("unix:{}", directory.file("s")), directory.file("memory"));
    let serve = |more: &[&str]| {
        let all = ["serve", "--listen", &socket, "--file", &file, "--until-stdin-closes"];
        command(&[&all[..], more].concat()).stdin(Stdio::null()).output().expect("it runs")
    };
    let format = ["--memory", "64MiB", "--chunk", "1MiB", "--lease", "300ms", "--id", "1", "--servers", "2"];
    for same in [&format[..], &[], &["--lease", "300000us", "--memory", "65536KiB"], &["--servers", "2"]] {
        let output = serve(same);
        let said = warnings(&text(&output.stderr));
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{same:?}");
        assert!(text(&output.stdout).starts_with("memory server 1 of 2: 67108864 bytes in "), "{same:?}");
    }
    let before = std::fs::read(&file).expect("the file");
    for (other, words) in [
        (
            &["--lease", "1s"][..],
            &["--lease: ", "formatted with --lease 300ms, not 1s", "Leave --lease out"][..],
        ),
        (&["--memory", "1GiB"], &["--memory: ", "--memory 64MiB, not 1GiB"]),
        (&["--on-chip", "64KiB"], &["--on-chip: ", "--on-chip 256KiB, not 64KiB"]),
        (&["--chunk", "8MiB"], &["--chunk: ", "--chunk 1MiB, not 8MiB"]),
        (&["--id", "0"], &["--id: ", "memory server 1 of 2, not memory server 0 of 2"]),
        (&["--servers", "3"], &["--servers: ", "memory server 1 of 2, not memory server 1 of 3"]),
        (&["--cluster-name", "b"], &["--cluster-name: ", "another cluster"]),
    ] {
        let output = serve(other);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{other:?}: {said}");
        assert!(said.lines().count() == 1 && said.contains(&file), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    assert!(before == std::fs::read(&file).expect("the file"), "a refused server changed its file");
}

#[test]
fn a_lease_that_no_client_can_keep_is_refused() {
    for line in [
        &["serve", "--listen", "unix:/no/such/place", "--until-stdin-closes", "--lease", "50ms"][..],
        &["cluster", "up", "--for", "100ms", "--lease", "50ms"],
    ] {
        let output = sherman(line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("error: --lease: 50ms ") && said.contains("100ms to 1h"), "{said}");
    }
}

#[test]
fn files_that_others_may_read_or_write_are_refused_or_warned_of() {
    let secret = secret_file("open-secret", "a secret of this test, long enough\n");
    std::fs::set_permissions(&secret, Permissions::from_mode(0o644)).expect("it is ours");
    let name = secret.to_str().expect("UTF-8");
    let url = format!("unix:/no/such/socket?secret-file={name}");
    for (line, option) in [
        (&["serve", "--listen", "unix:/no/such/place", "--secret-file", name][..], "--secret-file: "),
        (&["get", "7", "--cluster", &url], "--cluster: "),
    ] {
        let output = sherman(line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(option) && said.contains("mode 0644"), "{said}");
        assert!(said.trim_end().ends_with(&format!("Run: chmod 600 {name}")), "{said}");
    }
    std::fs::remove_file(&secret).expect("the file goes");

    let directory = Directory::new("open-file");
    let (socket, file) = (format!("unix:{}", directory.file("s")), directory.file("memory"));
    let line = ["serve", "--listen", &socket, "--memory", "64MiB", "--file", &file];
    let serve = || {
        let mut command = command(&[&line[..], &["--until-stdin-closes"]].concat());
        let output = command.stdin(Stdio::null()).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0));
        warnings(&text(&output.stderr))
    };
    assert_eq!(serve(), "");
    assert_eq!(std::fs::metadata(&file).expect("the file").mode() & 0o777, 0o600);
    for (mode, words) in [(0o644, "may read"), (0o666, "may change")] {
        std::fs::set_permissions(&file, Permissions::from_mode(mode)).expect("it is ours");
        let said = serve();
        assert!(
            said.contains(&format!("{file} has mode 0{mode:o}: other users of this host {words}")),
            "{said}"
        );
        assert!(said.contains(" warn: ") && said.lines().count() == 1, "{said}");
    }
}

/// More connections than a server has room for.
const SILENT: usize = 4_300;

#[test]
fn thousands_of_silent_connections_keep_no_client_out() {
    let _alone = crate::common::alone();
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 2 * SILENT as u64) {
        println!(
            "LEFT OUT: a process may have {:?} open files, and {} are needed",
            limit.maximum,
            2 * SILENT
        );
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("as much as is allowed");
    // Not TCP: there the kernel delays new connections for seconds while its queue is full.
    let socket = fresh_path("silent.sock");
    let listen = format!("unix:{}", socket.display());
    let args = ["--listen", &listen, "--memory", "64MiB"].map(str::to_owned).to_vec();
    let mut server = Server::start_telling(args, Stdio::null());
    let url = listen.clone();
    let early = Cluster::open(&url).expect("it opens");
    let tree = early.tree::<u64, u64>("t").expect("a tree");
    let silent: Vec<_> = (0..SILENT).map(|_| UnixStream::connect(&socket).expect("it listens")).collect();
    let late = Cluster::open(&url).expect("there is a place");
    late.tree::<u64, u64>("t")
        .expect("the tree")
        .client()
        .expect("one more connection")
        .insert(7, 700)
        .expect("it works");
    assert_eq!(tree.client().expect("one more connection").get(7).expect("it works"), Some(700));
    drop((silent, tree, early, late));
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn the_log_shows_joins_departures_deaths_and_recoveries_with_time_and_peer() {
    let log = fresh_path("log");
    let args = ["--listen", "tcp://127.0.0.1:0", "--memory", "64MiB", "--chunk", "1MiB", "--lease", "300ms"];
    let stderr = Stdio::from(File::create(&log).expect("a file"));
    let mut server = Server::start_telling(args.map(str::to_owned).to_vec(), stderr);
    let url = format!("tcp://{}", server.address);
    let lines = || -> Vec<String> {
        std::fs::read_to_string(&log).expect("the log").lines().map(str::to_owned).collect()
    };
    let tells = |words: &str| {
        wait_until(words, Duration::from_secs(20), || lines().iter().any(|line| line.contains(words)))
    };

    let done = sherman(&["put", "7", "700", "--tree", "t", "--create", "--cluster", &url]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    tells("info: a client joined client=1 incarnation=1 peer=127.0.0.1:");
    tells("info: a client left");
    // The victim dies and owns something. The survivor recovers it.
    let (mut victim, _) = Raw::enter_to(&server.listen(), None, alone()).expect("it joins");
    assert!(victim.call(calls::Activate).is_ok() && victim.call(calls::RedoArea).is_ok());
    drop(victim);
    let survivor = Cluster::open(&url).expect("it opens");
    for words in [
        "warn: the last connection of a client ended; its lease ends client=",
        "info: the recovery of a client begins client=",
        "info: a client was fenced client=",
        "info: a client was recovered and retired client=",
    ] {
        tells(words);
    }
    drop(survivor);
    for line in lines() {
        assert!(line.split_once(' ').is_some_and(|(time, _)| is_a_time(time)), "{line}");
        // A server has no peer when it starts.
        let starts = [": serving ", "the limit of open files limits connections"];
        let named = line.contains(" peer=127.0.0.1:") || starts.iter().any(|words| line.contains(words));
        assert!(named, "{line}");
    }
    assert_eq!(server.terminate().code(), Some(0));
    std::fs::remove_file(&log).expect("the file goes");
}
