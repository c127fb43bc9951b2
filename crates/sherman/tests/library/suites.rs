//! The suites that every backend runs, on memory servers in this process.

use sherman::Cluster;
use sherman_conformance::trees::{Failure, Ledger, Note};
use std::time::Duration;

const URL: &str = "embedded:?servers=3&memory=64MiB&chunk=1MiB";

#[test]
fn operations_do_what_they_do_to_a_map() -> Result<(), Failure> {
    let cluster = Cluster::open(URL)?;
    (0..4).try_for_each(|seed| {
        sherman_conformance::trees::model(&cluster, &format!("model-{seed}"), seed, 4_000)
    })
}

#[test]
fn threads_of_many_compute_servers_lose_nothing() -> Result<(), Failure> {
    let cluster = Cluster::open(URL)?;
    let done = sherman_conformance::trees::stress(
        &|| Ok(cluster.join()?),
        "stress",
        1,
        3,
        2,
        Duration::from_secs(2),
    )?;
    assert!(done.operations > 1_000 && done.increments > 10, "{done:?}");
    Ok(())
}

#[test]
fn ranges_miss_nothing_that_is_there_throughout() -> Result<(), Failure> {
    let cluster = Cluster::open(URL)?;
    let read =
        sherman_conformance::trees::ranges(&|| Ok(cluster.join()?), "ranges", 1, 2, Duration::from_secs(2))?;
    assert!(read > 10, "{read}");
    Ok(())
}

#[test]
fn a_diary_reads_back_as_it_was_written() {
    let notes = [
        Note::Begin { key: 7, value: Some(u64::MAX) },
        Note::Begin { key: 0, value: None },
        Note::Done { key: 7 },
    ];
    for note in notes {
        assert_eq!(note.to_string().parse::<Note>().expect("a line"), note);
    }
    for bad in ["", "put", "put 7", "put x 1", "get 7", "done"] {
        assert!(bad.parse::<Note>().is_err(), "{bad:?}");
    }
}

#[test]
fn what_was_acknowledged_is_lost_if_it_is_not_there() {
    let cluster = sherman::Cluster::open("embedded:?memory=64MiB").expect("a cluster");
    let client = cluster.tree("t").expect("a tree").client().expect("a client");
    let mut ledger = Ledger::default();
    ledger.enter(Note::Begin { key: 1, value: Some(10) });
    ledger.verify(&client).expect("not acknowledged yet");
    assert_eq!((ledger.uncertain(), ledger.acknowledged()), (1, 0));
    ledger.enter(Note::Done { key: 1 });
    assert!(ledger.verify(&client).is_err());
    client.insert(1, 10).expect("an insert");
    ledger.verify(&client).expect("there");
    ledger.enter(Note::Begin { key: 1, value: None });
    ledger.verify(&client).expect("still there");
    client.remove(1).expect("a removal");
    ledger.verify(&client).expect("gone");
    client.insert(1, 11).expect("an insert");
    assert!(ledger.verify(&client).is_err());
}
