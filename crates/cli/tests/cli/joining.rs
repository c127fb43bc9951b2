//! Hosts that cannot join, and folders that cannot be used: each is refused with one sentence and exit code
//! 3, and the cluster's table, its hosts and its members are the same before and after.

use crate::common::servers::{Server, Servers, Transport, wait_until};
use crate::common::{command, fresh_path, sherman, text};
use crate::losses::{open, patient};
use crate::raw::{Raw, introduction};
use sherman::{Admin, ComputeId, HostStatus, Hosts, VolumeStatus};
use sherman_conformance::trees::Failure;
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::{FrameKind, GoodbyeCode, Hello, Introduce, Role, VERSION};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

const TREE: &str = "numbers";
const NEW: [&str; 8] =
    ["--new-cluster", "--replicas", "2", "--hosts", "2", "--volumes", "2", "--volume-memory"];

/// A directory that is removed with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = fresh_path(name);
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Starts a host that listens there. No host is lost here, so one that is away for a while stays present.
    fn host(&self, name: &str, how: &[&str]) -> Server {
        let listen = format!("unix:{}", self.path(name));
        let always = ["--listen", &listen, "--memory", "64MiB", "--chunk", "1MiB", "--detect", "60s"];
        let joins = how.contains(&"--join");
        let args = always.iter().filter(|arg| !joins || !["--chunk", "1MiB"].contains(arg)).chain(how);
        Server::start(args.map(ToString::to_string).collect())
    }

    /// A cluster of two hosts that keep two copies of each volume.
    fn pair(&self, names: [&str; 2], with_files: bool) -> [Server; 2] {
        let files = names.map(|name| self.path(&format!("{name}.folder")));
        let file = |host: usize| if with_files { vec!["--file", &files[host]] } else { Vec::new() };
        let first = self.host(names[0], &[&NEW[..], &["8MiB", "--lease", "1s"], &file(0)].concat());
        let seed = format!("unix:{}", first.address);
        let second = self.host(names[1], &[&["--join", &seed][..], &file(1)].concat());
        let url = url(&[&first, &second]);
        wait_until("two copies", Duration::from_secs(30), || {
            seen(&url).is_some_and(|seen| !seen.volumes.is_empty() && seen.is_whole())
        });
        [first, second]
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What must not change.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    epoch: u64,
    hosts: Vec<HostStatus>,
    volumes: Vec<VolumeStatus>,
    /// The ids of members, and how often each was issued.
    members: Vec<(ComputeId, u32)>,
}

impl Seen {
    fn is_whole(&self) -> bool {
        self.volumes.iter().all(|volume| volume.backup.is_some() && volume.open)
    }
}

/// The cluster, if it answers.
fn seen(url: &str) -> Option<Seen> {
    let admin = Admin::open(url).ok()?;
    let Hosts { epoch, mut hosts, volumes, .. } = admin.hosts().ok()??;
    // A host that has just joined may get its vote meanwhile.
    hosts.iter_mut().for_each(|host| host.votes = false);
    let members = admin.members().ok()?.iter().map(|member| (member.id, member.incarnation)).collect();
    Some(Seen { epoch, hosts, volumes, members })
}

fn url(hosts: &[&Server]) -> String {
    let places: Vec<&str> = hosts.iter().map(|host| host.address.as_str()).collect();
    format!("unix:{}", places.join(","))
}

/// Runs `sherman serve`, which refuses with these words.
fn refused(args: &[&str], words: &[&str]) {
    let mut command = command(&["serve", "--log", "warn", "--until-stdin-closes"]);
    let output = command.args(args).stdin(Stdio::null()).output().expect("the command starts");
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), ""), "{args:?}: {said}");
    assert!(said.starts_with("error: ") && said.lines().count() == 1, "{args:?}: {said}");
    assert!(words.iter().all(|word| said.contains(word)), "{args:?} should say {words:?}: {said}");
}

/// A process that greets with a later version of the protocol.
fn later_version(path: &str) {
    let listener = UnixListener::bind(path).expect("a socket");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let versions = (VERSION + 1, VERSION + 2);
            let hello = Hello {
                version_min: versions.0,
                version_max: versions.1,
                needs_secret: false,
                nonce: [7; 32],
            };
            let mut frame = Vec::new();
            put_frame(&mut frame, FrameKind::Hello, 0, |out| hello.put(out)).expect("a short frame");
            let _ = stream.write_all(&frame);
        }
    });
}

#[test]
fn hosts_that_cannot_join_are_refused_and_change_nothing() -> Result<(), Failure> {
    let directory = Directory::new("joining");
    let pair = directory.pair(["a", "b"], false);
    let other = directory.host("c", &["--new-cluster"]);
    let plain = Servers::start(Transport::Unix, 1, &["--memory", "64MiB", "--chunk", "1MiB"]);
    later_version(&directory.path("later"));
    let first = url(&[&pair[0], &pair[1]]);
    // A member, which must go on.
    let client = open(&first, patient)?.tree::<u64, u64>(TREE)?.client()?;
    client.insert(1, 2)?;
    let before = || (seen(&first).expect("it answers"), seen(&url(&[&other])).expect("it answers"));
    let (ours, others) = before();
    assert_eq!((ours.members.len(), ours.hosts.len(), others.hosts.len()), (1, 2, 1));

    let [at_a, at_b] = [&pair[0], &pair[1]].map(|host| format!("unix:{}", host.address));
    let new = format!("unix:{}", directory.path("new"));
    let (plain_at, later) = (plain.url(), format!("unix:{}", directory.path("later")));
    let mixed = [url(&[&pair[0], &other]), url(&[&other, &pair[0]])];
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--join", &new, "--listen", &new], &["--join", "at least one other host"]),
        (&["--join", &mixed[0], "--listen", &new], &["--join", "belongs to cluster"]),
        (&["--join", &mixed[1], "--listen", &new], &["--join", "belongs to cluster"]),
        (&["--join", &plain_at, "--listen", &new], &["--join", "without replication"]),
        (&["--join", &later, "--listen", &new], &["--join", &later, "versions", "this build speaks version"]),
        (&["--join", &at_a, "--listen", &at_b], &["--listen", "another process listens", "already"]),
        (&["--join", &at_a, "--listen", &new, "--advertise", &at_b], &["--advertise", &at_b]),
        (&["--new-cluster", "--listen", &new, "--advertise", &plain_at], &["--advertise", &plain_at]),
    ];
    for (args, words) in cases {
        refused(&[args, &["--memory", "64MiB"]].concat(), words);
        assert_eq!(before(), (ours.clone(), others.clone()), "{args:?}");
    }
    // A host of a later version comes to this cluster.
    let mut raw = Raw::connect_to(&pair[0].listen());
    let hello = raw.hello();
    let introduce = Introduce { version: VERSION + 1, nonce: [1; 32], role: Role::Newcomer };
    raw.send(&introduction(&introduce, None, &hello));
    assert_eq!(raw.goodbye().code, GoodbyeCode::Version);
    assert_eq!(before(), (ours, others));
    assert_eq!(client.get(1)?, Some(2));
    Ok(())
}

#[test]
fn a_host_without_room_for_its_part_of_a_new_cluster_is_refused() {
    let directory = Directory::new("room");
    let first = directory.host("a", &[&NEW[..], &["8MiB"]].concat());
    let (seed, new) = (url(&[&first]), format!("unix:{}", directory.path("new")));
    let before = seen(&seed).expect("it answers");
    assert_eq!((before.hosts.len(), before.volumes.len()), (1, 0));
    refused(&["--join", &seed, "--listen", &new, "--memory", "12MiB"], &["--memory", "12582912", "too few"]);
    assert_eq!(seen(&seed).expect("it answers"), before);
}

#[test]
fn folders_of_other_hosts_and_of_hosts_that_run_are_refused() -> Result<(), Failure> {
    let directory = Directory::new("strangers");
    let mut pair = directory.pair(["a", "b"], true);
    let other = directory.host("c", &["--new-cluster", "--file", &directory.path("c.folder")]);
    let first = url(&[&pair[0], &pair[1]]);
    open(&first, patient)?.tree::<u64, u64>(TREE)?.client()?.insert(1, 2)?;
    wait_until("nobody is a member", Duration::from_secs(10), || {
        seen(&first).is_some_and(|seen| seen.members.is_empty())
    });
    pair[1].kill();
    // Volumes wait for the second host, which is not lost yet.
    let before = seen(&first).expect("it answers");

    let (own, whole) = (directory.path("b.folder"), directory.path("whole"));
    duplicate(Path::new(&own), Path::new(&whole));
    let at = format!("unix:{}", directory.path("new"));
    let check = |words: &[&str]| {
        let files = files_of(Path::new(&own));
        refused(&["--file", &own, "--listen", &at], words);
        refused(&["--file", &own, "--listen", &at, "--join", &first], words);
        assert_eq!(files_of(Path::new(&own)), files, "{words:?}");
        assert_eq!(seen(&first).expect("it answers"), before, "{words:?}");
        std::fs::remove_dir_all(&own).expect("a folder");
        duplicate(Path::new(&whole), Path::new(&own));
    };
    let copies: Vec<String> = files_of(Path::new(&own))
        .into_iter()
        .filter_map(|(path, _)| path.file_name().and_then(|name| name.to_str()).map(str::to_owned))
        .filter(|name| name.starts_with("copy-"))
        .collect();
    assert_eq!(copies.len(), 2, "{copies:?}");
    let in_own = |name: &str| Path::new(&own).join(name);
    let take = |from: &str, name: &str| {
        std::fs::copy(Path::new(&directory.path(from)).join(name), in_own(name)).expect("a file");
    };

    // The log of another host, and of a host of another cluster.
    ["group.0", "group.1", "group.len"].iter().for_each(|name| take("a.folder", name));
    check(&["--file", "log of the control group", "another host"]);
    ["group.0", "group.1", "group.len"].iter().for_each(|name| take("c.folder", name));
    check(&["--file", "log of the control group", "another host"]);
    std::fs::remove_file(in_own("group.len"))?;
    check(&["--file", "group.len", "missing"]);
    // Memory of another volume, and of another cluster.
    std::fs::copy(in_own(&copies[0]), in_own(&copies[1]))?;
    check(&["--file", &format!("copy {}", &copies[1]["copy-".len()..])]);
    std::fs::copy(Path::new(&directory.path("c.folder")).join("copy-0"), in_own(&copies[0]))?;
    check(&["--file", &format!("copy {}", &copies[0]["copy-".len()..])]);
    // A copy of a folder whose host runs.
    std::fs::remove_dir_all(&own)?;
    duplicate(Path::new(&directory.path("a.folder")), Path::new(&own));
    check(&["--file", "host 0 runs already", &pair[0].address]);

    pair[1].restart();
    wait_until("the host is back", Duration::from_secs(20), || {
        seen(&first).is_some_and(|seen| seen.epoch > before.epoch && seen.is_whole())
    });
    assert_eq!(open(&first, patient)?.tree::<u64, u64>(TREE)?.client()?.get(1)?, Some(2));
    drop(other);
    Ok(())
}

/// The files of a folder with their bytes. The rest of a copy is too long to compare.
fn files_of(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<(PathBuf, Vec<u8>)> = paths
        .filter(|path| !path.ends_with("room"))
        .map(|path| {
            let bytes = std::fs::read(&path).expect("a file");
            (path, bytes)
        })
        .collect();
    files.sort();
    files
}

fn duplicate(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a new folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.ends_with("room") {
            // The next start takes it again.
            continue;
        }
        std::fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("a disk with room");
    }
}

#[test]
fn a_single_host_may_ask_for_two_copies_and_gets_them_when_another_one_joins() -> Result<(), Failure> {
    let directory = Directory::new("single");
    let first = directory.host("a", &["--new-cluster", "--replicas", "2", "--hosts", "1", "--lease", "1s"]);
    let alone = url(&[&first]);
    let client = open(&alone, patient)?.tree::<u64, u64>(TREE)?.client()?;
    (0..1_000).try_for_each(|key| client.insert(key, key + 1).map(drop))?;
    let stats = text(&sherman(&["stats", "--cluster", &alone]).stdout);
    assert!(stats.contains("one copy"), "{stats}");
    let _second = directory.host("b", &["--join", &alone]);
    wait_until("second copies", Duration::from_secs(30), || seen(&alone).is_some_and(|seen| seen.is_whole()));
    for key in 0..1_000 {
        assert_eq!(client.get(key)?, Some(key + 1));
    }
    let check = sherman(&["check", "--cluster", &alone]);
    assert!(check.status.success(), "{}{}", text(&check.stdout), text(&check.stderr));
    Ok(())
}

#[test]
fn a_host_takes_memory_when_it_is_used() -> Result<(), Failure> {
    const OFFERED: u64 = 16 << 20;
    let directory = Directory::new("thin");
    let listen = format!("unix:{}", directory.path("a"));
    let args = ["--new-cluster", "--memory", "16GiB", "--listen", &listen];
    let host = Server::start(args.map(str::to_owned).to_vec());
    open(&listen, patient)?.tree::<u64, u64>(TREE)?.client()?.insert(1, 2)?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid()))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("a line")?;
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse()?;
    assert!(kilobytes < OFFERED / 16, "{kilobytes} kB of {OFFERED}");
    Ok(())
}

#[test]
fn a_client_that_leaves_while_the_table_changes_leaves_nothing_behind() -> Result<(), Failure> {
    let directory = Directory::new("leaving");
    let first = directory.host("a", &["--new-cluster", "--replicas", "2", "--hosts", "1", "--lease", "2s"]);
    let alone = url(&[&first]);
    let client = open(&alone, patient)?.tree::<u64, u64>(TREE)?.client()?;
    client.insert(1, 2)?;
    let before = seen(&alone).ok_or("it answers")?;
    let _second = directory.host("b", &["--join", &alone]);
    // The client does not know yet that its epoch has ended.
    wait_until("a new table", Duration::from_secs(20), || {
        seen(&alone).is_some_and(|seen| seen.epoch > before.epoch)
    });
    drop(client);
    // Nobody is left who could recover it.
    wait_until("second copies and no members", Duration::from_secs(30), || {
        seen(&alone).is_some_and(|seen| seen.is_whole() && seen.members.is_empty())
    });
    assert_eq!(open(&alone, patient)?.tree::<u64, u64>(TREE)?.client()?.get(1)?, Some(2));
    Ok(())
}
