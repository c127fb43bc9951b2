//! Commands that run, start or wait while hosts are lost, and commands that name hosts that are not there.

use super::fleet::{Fleet, Plan};
use super::{LONGEST, load_average, open, rounds};
use crate::common::{command, fresh_path, secret_file, sherman, text};
use sherman_conformance::trees::Failure;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HOSTS: usize = 3;
const WHOLE: Duration = Duration::from_secs(20);
/// How long a command may look for a cluster of which no host answers: `connect`, and a second.
const GIVES_UP: Duration = Duration::from_secs(6);
/// A command starts a process and joins, beside what an operation waits.
const COMMAND: Duration = Duration::from_millis(500);
/// Entries of a file.
const ENTRIES: u64 = 60_000;

fn plan() -> Plan {
    let new = ["--replicas", "2", "--hosts", "3", "--volumes", "6", "--volume-memory", "24MiB"];
    Plan::local(&["--memory", "192MiB"], &[&new[..], &["--chunk", "1MiB", "--lease", "1s"]].concat())
}

/// Runs a command, and returns how long it took.
fn timed(line: &[&str]) -> (Output, Duration) {
    let began = Instant::now();
    let output = sherman(line);
    (output, began.elapsed())
}

fn expect_success(what: &str, output: &Output) -> Result<(), Failure> {
    match output.status.code() {
        Some(0) => Ok(()),
        code => Err(format!("{what}: exit code {code:?}: {}", text(&output.stderr)).into()),
    }
}

/// What became of a put: its exit code, `None` if it was killed, and how long it took.
type Puts = BTreeMap<u64, (Option<i32>, Duration, String)>;

/// Puts one key after the other, each by a process of its own, until `stop`. Every fifth process is killed.
fn put_until(stop: &AtomicBool, url: &str) -> Puts {
    let (mut puts, mut random) = (Puts::new(), fastrand::Rng::with_seed(3));
    for key in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let (began, number) = (Instant::now(), key.to_string());
        let mut put = command(&["put", "--cluster", url, "--tree", "puts", "--create", &number, &number]);
        let child = put.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child: Child = child.expect("a command starts");
        if key % 5 == 4 {
            std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
            let _ = child.kill();
        }
        let output = child.wait_with_output().expect("it ends");
        puts.insert(key, (output.status.code(), began.elapsed(), text(&output.stderr)));
    }
    puts
}

#[test]
fn one_shot_puts_go_on_through_losses() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let mut fleet = Fleet::start(HOSTS, plan())?;
    let (url, stop) = (fleet.url(), AtomicBool::new(false));
    let rounds = rounds(1).min(20);
    let puts = std::thread::scope(|scope| -> Result<Puts, Failure> {
        let puts = scope.spawn(|| put_until(&stop, &url));
        let lost = (0..rounds).try_for_each(|round| -> Result<(), Failure> {
            std::thread::sleep(Duration::from_millis(300));
            let host = if round % 3 == 0 { fleet.leader() } else { None }.unwrap_or(round as usize % HOSTS);
            fleet.kill(host);
            fleet.await_whole(WHOLE)?;
            fleet.launch(host)?;
            fleet.await_whole(WHOLE).map(drop)
        });
        stop.store(true, Ordering::SeqCst);
        let puts = puts.join().map_err(|_| "the puts panicked")?;
        lost.map(|()| puts)
    });
    let puts = puts.map_err(|why| format!("{why}\n{}", fleet.logs()))?;
    let failed = puts.iter().find(|(_, (code, ..))| !matches!(code, Some(0) | None));
    assert!(failed.is_none(), "{failed:?}\n{}", fleet.logs());
    let client = open(&fleet.url())?.tree::<u64, u64>("puts")?.client()?;
    for (key, (code, ..)) in &puts {
        let found = client.get(*key)?;
        let right = found == Some(*key) || code.is_none() && found.is_none();
        assert!(right, "key {key} holds {found:?}; its put ended with {code:?}");
    }
    let longest = puts.values().map(|(_, took, _)| *took).max().unwrap_or_default();
    let killed = puts.values().filter(|(code, ..)| code.is_none()).count();
    println!(
        "{} puts, {killed} of them killed, over {rounds} losses: longest {longest:?}, load {}",
        puts.len(),
        load_average()
    );
    assert!(longest <= LONGEST + COMMAND, "{longest:?}");
    let (check, _) = timed(&["check", "--cluster", &fleet.url()]);
    expect_success("check", &check)
}

/// A file of entries from `first` on.
fn entries(first: u64) -> std::io::Result<std::path::PathBuf> {
    let path = fresh_path("entries.csv");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
    (first..first + ENTRIES).try_for_each(|key| writeln!(file, "{},{key}", key * 7919 % 1_000_003))?;
    file.flush()?;
    Ok(path)
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Each command that reads or writes many entries runs while a host is killed.
#[test]
fn long_commands_go_on_through_losses() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let mut fleet = Fleet::start(HOSTS, plan())?;
    let url = fleet.url();
    let (loaded, more) = (entries(0)?, entries(ENTRIES)?);
    let (load, _) = timed(&["load", "--cluster", &url, "--tree", "t", "--create", path(&loaded)]);
    expect_success("load", &load)?;
    let dumped = fresh_path("dumped.csv");
    let lines: [&[&str]; 4] = [
        &["load", "--cluster", &url, "--tree", "t", path(&more)],
        &["dump", "--cluster", &url, "--tree", "t", path(&dumped)],
        &["scan", "--cluster", &url, "--tree", "t"],
        &["check", "--cluster", &url],
    ];
    for (at, line) in lines.into_iter().enumerate() {
        let began = Instant::now();
        let child = command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        // Reads its output, so that it never waits for a reader.
        let ended = std::thread::spawn(move || (child.wait_with_output(), began.elapsed()));
        std::thread::sleep(Duration::from_millis(30 + 40 * (at as u64 % 2)));
        let host = at % HOSTS;
        fleet.kill(host);
        let copied = fleet.await_whole(WHOLE);
        let (output, took) = ended.join().map_err(|_| "a thread panicked")?;
        let output = output?;
        copied.map_err(|why| format!("{}: {why}\n{}", line[0], fleet.logs()))?;
        expect_success(line[0], &output).map_err(|why| format!("{why}\n{}", fleet.logs()))?;
        println!("{} over a loss: {took:?}, load {}", line[0], load_average());
        fleet.launch(host)?;
        fleet.await_whole(WHOLE)?;
        if line[0] == "scan" {
            let rows = text(&output.stdout).lines().filter(|line| !line.starts_with("key")).count() as u64;
            assert_eq!(rows, 2 * ENTRIES, "{}", text(&output.stderr));
        }
    }
    let rows = std::fs::read_to_string(&dumped)?.lines().filter(|line| !line.starts_with("key")).count();
    assert_eq!(rows as u64, 2 * ENTRIES);
    Ok(())
}

/// Commands that start right after a loss, an idle client, and a client that names hosts that are gone.
#[test]
fn clients_that_meet_a_loss_at_any_moment_go_on() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let mut fleet = Fleet::start(HOSTS, plan())?;
    let url = fleet.url();
    let idle = open(&url)?;
    let client = idle.tree::<u64, u64>("t")?.client()?;
    client.insert(7, 700)?;
    for (round, line) in [
        &["get", "7", "--tree", "t"][..],
        &["put", "7", "700", "--tree", "t"],
        &["scan", "--tree", "t"],
        &["stats"],
        &["servers"],
        &["members"],
        &["trees"],
        &["check"],
    ]
    .into_iter()
    .take(if rounds(1) > 1 { usize::MAX } else { 3 })
    .enumerate()
    {
        // The first host that the URL names is lost, then the others.
        let host = round % HOSTS;
        fleet.kill(host);
        let (output, took) = timed(&[line, &["--cluster", &url]].concat());
        println!("{} right after the loss of host {host}: {took:?}, load {}", line[0], load_average());
        expect_success(line[0], &output).map_err(|why| format!("{why}\n{}", fleet.logs()))?;
        assert!(took <= LONGEST + COMMAND, "{}: {took:?}", line[0]);
        fleet.await_whole(WHOLE)?;
        let began = Instant::now();
        assert_eq!(client.get(7)?, Some(700), "the idle client");
        println!("an idle client after the loss: {:?}", began.elapsed());
        assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
        fleet.launch(host)?;
        fleet.await_whole(WHOLE)?;
    }
    Ok(())
}

/// What cannot succeed fails in a bounded time, and says why.
#[test]
fn commands_that_cannot_reach_a_cluster_say_why() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let secret = secret_file("trial-secret", "a secret of this trial alone, long enough\n");
    let other = secret_file("other-secret", "not the secret of this trial, but long\n");
    let mut plan = plan();
    plan.every.extend(["--secret-file".to_owned(), path(&secret).to_owned()]);
    plan.parameters = format!("?secret-file={}", path(&secret));
    let mut fleet = Fleet::start(HOSTS, plan)?;
    let refused = |url: &str, words: &[&str]| {
        let (output, took) = timed(&["get", "7", "--tree", "t", "--cluster", url]);
        let said = text(&output.stderr);
        println!("{took:?}: {}", said.trim_end());
        assert_eq!(output.status.code(), Some(3), "{url}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{url}: {said}");
        assert!(took <= GIVES_UP, "{url}: {took:?}");
    };
    let bare = |host: usize| format!("tcp://{}", fleet.address(host));
    refused(&bare(0), &["secret-file="]);
    refused(&format!("{}?secret-file={}", bare(0), path(&other)), &["secret"]);
    refused(&format!("tcp://127.0.0.1:1{}", fleet.parameters), &["127.0.0.1:1", "refused"]);

    // A host with another secret does not take part.
    let seeds = bare(1);
    let join = ["serve", "--join", &seeds, "--listen", "tcp://127.0.0.1:0", "--memory", "192MiB"];
    for (given, word) in [(Some(&other), "secret"), (None, "secret")] {
        let secret = given.map_or(vec![], |given| vec!["--secret-file", path(given)]);
        let (output, took) = timed(&[&join[..], &secret].concat());
        let said = text(&output.stderr);
        println!("{took:?}: {}", said.trim_end());
        assert!(output.status.code() == Some(3) && said.contains(word), "{said}");
        assert!(took <= GIVES_UP, "{took:?}");
    }
    assert_eq!(fleet.present(), Some(HOSTS), "nobody else is a host");

    // Two of three hosts die at once: nobody leads, and nothing hangs.
    let (all, dead) = (fleet.url(), fleet.url_of([0, 1]));
    fleet.kill(0);
    fleet.kill(1);
    refused(&dead, &["refused"]);
    refused(&all, &["no leader"]);
    Ok(())
}
