//! A real control group in the simulated world: hosts die, stand still and are cut off, messages are lost and
//! come twice, clocks differ. The group finds out which hosts are lost, and nothing else is lost.

use super::{Caught, hunt, on_two_threads, support};
use sherman_group::mutant::{Mutant, plant};
use sherman_sim::Breach;
use sherman_sim::tree::{Explored, Hunt};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// One in this many of all schedules with crashes has a real control group.
const PART: u64 = 8;
/// The largest number of schedules to search for a planted bug, and the same in a plain `cargo test`.
const MOST: u64 = 20_000;
const PLAIN_MOST: u64 = 400;
/// How many of the planted bugs a plain `cargo test` finds at least.
const PLAIN_FOUND: usize = 3;
/// The first of the seeds.
const SEEDS: u64 = 71 << 32;

fn scenarios() -> Hunt {
    Hunt::everywhere().with_group(3)
}

#[test]
fn a_control_group_that_loses_hosts_loses_nothing_else() {
    let count = support::schedules() / PART;
    let all = Mutex::new(Explored::default());
    on_two_threads(2, |half| {
        let mut explorer = scenarios().explorer();
        let first = SEEDS + half as u64 * (count / 2);
        let explored = explorer.explore(first..first + count / 2);
        all.lock().expect("nobody panicked").merge(explored);
    });
    let explored = all.into_inner().expect("nobody panicked");
    println!("{explored}");
    explored.violations.iter().for_each(|violation| println!("{violation}"));
    assert_eq!(explored.violated, 0);
    let with = explored.with;
    assert!(with.loss > count * 3 / 4, "only {} of {count} schedules lost a host", with.loss);
    assert!(with.led_again > count / 4 && with.host_cut > count / 4, "{with:?}");
    assert!(with.bad_network > count / 4 && with.making > count / 32, "{with:?}");
}

/// A planted bug of the group.
#[derive(Clone, Copy, Debug)]
enum Planted {
    /// Of the node: messages, requests, duties.
    Node(Mutant),
    /// Of hosts.
    Host(Breach),
}

fn search(planted: Planted, most: u64) -> Caught {
    match planted {
        Planted::Node(mutant) => {
            plant(Some(mutant));
            let caught = hunt(scenarios(), most);
            plant(None);
            caught
        }
        Planted::Host(breach) => hunt(scenarios().with_breach(breach), most),
    }
}

#[test]
fn every_planted_bug_of_the_group_is_found() {
    let nodes = Mutant::ALL.iter().copied().map(Planted::Node);
    let hosts = Breach::OF_GROUPS.iter().copied().map(Planted::Host);
    let all: Vec<Planted> = nodes.chain(hosts).collect();
    let found: Mutex<Vec<(Planted, Caught)>> = Mutex::default();
    let most = if support::runs_in_full() { MOST } else { PLAIN_MOST };
    on_two_threads(all.len(), |number| {
        let caught = search(all[number], most);
        found.lock().expect("nobody panicked").push((all[number], caught));
    });
    let found = found.into_inner().expect("nobody panicked");
    for (planted, caught) in &found {
        println!("{planted:?}: {caught:?}");
    }
    let seeds: BTreeSet<u64> = found.iter().filter_map(|(_, caught)| Some((*caught)?.1 - 1)).collect();
    for seed in seeds {
        let violation = scenarios().explorer().run(seed).violation;
        assert!(violation.is_none(), "without the bug: {}", violation.expect("a violation"));
    }
    let missed: Vec<Planted> =
        found.iter().filter(|(_, caught)| caught.is_none()).map(|(planted, _)| *planted).collect();
    let due = if support::runs_in_full() { all.len() } else { PLAIN_FOUND };
    assert!(found.len() - missed.len() >= due, "not found in {most} schedules: {missed:?}");
}
