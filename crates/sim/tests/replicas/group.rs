//! A real control group in the simulated world: hosts die, stand still and are cut off, messages are lost and
//! come twice, clocks differ. The group finds out which hosts are lost, and nothing else is lost.

use super::{Caught, hunt, on_two_threads, support};
use sherman_group::mutant::{Mutant, plant};
use sherman_memory_server::mutant as state;
use sherman_sim::Breach;
use sherman_sim::tree::{Explored, Hunt, Trouble};
use std::sync::Mutex;

/// One in this many of all schedules with crashes has a real control group, and the same in a plain
/// `cargo test`.
const PART: u64 = 20;
const PLAIN_PART: u64 = 8;
/// The largest number of schedules to search for a planted bug, and the same in a plain `cargo test`.
const MOST: u64 = 20_000;
const PLAIN_MOST: u64 = 400;
/// How many of the planted bugs a plain `cargo test` finds at least.
const PLAIN_FOUND: usize = 8;
/// The first of the seeds.
const SEEDS: u64 = 71 << 32;

fn scenarios() -> Hunt {
    Hunt::everywhere().with_group(3)
}

#[test]
fn a_control_group_that_loses_hosts_loses_nothing_else() {
    let count = support::schedules() / if support::runs_in_full() { PART } else { PLAIN_PART };
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
    assert!(with.loss > count / 2, "only {} of {count} schedules lost a host", with.loss);
    assert!(with.led_again > count / 4 && with.host_cut > count / 4, "{with:?}");
    assert!(with.bad_network > count / 4 && with.making > count / 32, "{with:?}");
    assert!(with.losses > count / 32 && with.host_returned > count / 16, "{with:?}");
    assert!(with.moving > count / 16 && with.swap > count / 64 && with.left > count / 64, "{with:?}");
    assert!(with.catalog > count / 16, "{with:?}");
}

/// The schedules of one kind of trouble, by hand: `SHERMAN_TROUBLE=moves SHERMAN_SCHEDULES=20000`, and
/// perhaps `SHERMAN_SEED`. With `SHERMAN_SCHEDULES=1` it prints every event.
#[test]
#[ignore = "it is for searches by hand"]
fn one_kind_of_trouble() {
    let named = std::env::var("SHERMAN_TROUBLE").unwrap_or_default();
    let trouble = match named.as_str() {
        "moves" => Trouble::Moves,
        "returns" => Trouble::Returns,
        "two" => Trouble::Two,
        _ => Trouble::Losses,
    };
    let seed = std::env::var("SHERMAN_SEED").map_or(SEEDS, |seed| seed.parse().expect("a number"));
    let count = support::schedules();
    if count == 1 {
        let mut explorer = scenarios().with_trouble(trouble).explorer();
        let (seen, events) = explorer.run_traced(seed, true);
        explorer.tell(&events, None, true).iter().for_each(|line| println!("{line}"));
        return println!("{:?}", seen.violation);
    }
    let all = Mutex::new(Explored::default());
    on_two_threads(2, |half| {
        let mut explorer = scenarios().with_trouble(trouble).explorer();
        let first = seed + half as u64 * (count / 2);
        let explored = explorer.explore(first..first + count / 2);
        all.lock().expect("nobody panicked").merge(explored);
    });
    let explored = all.into_inner().expect("nobody panicked");
    println!("{explored}");
    explored.violations.iter().for_each(|violation| println!("{violation}"));
    assert_eq!(explored.violated, 0);
}

/// A planted bug of the group.
#[derive(Clone, Copy, Debug)]
enum Planted {
    /// Of the node: messages, requests, duties.
    Node(Mutant),
    /// Of the control state.
    State(state::Mutant),
    /// Of hosts.
    Host(Breach),
}

impl Planted {
    fn all() -> Vec<Self> {
        let nodes = Mutant::ALL.iter().copied().map(Self::Node);
        let states = state::Mutant::ALL.iter().copied().map(Self::State);
        let moves = [
            Breach::MoveTrustsFirstCopy,
            Breach::MovedLanesKept,
            Breach::SourceDroppedEarly,
            Breach::LanesLostOnReturn,
        ];
        let hosts = Breach::OF_GROUPS.iter().copied().chain(moves).map(Self::Host);
        nodes.chain(states).chain(hosts).collect()
    }

    /// The trouble of hosts that shows it.
    fn trouble(self) -> Trouble {
        match self {
            Self::State(state::Mutant::SwapsOpen | state::Mutant::SwapsUnquiet) => Trouble::Moves,
            Self::Host(Breach::MoveTrustsFirstCopy | Breach::MovedLanesKept | Breach::SourceDroppedEarly) => {
                Trouble::Moves
            }
            Self::State(state::Mutant::AwaitsNobody) | Self::Host(Breach::LanesLostOnReturn) => {
                Trouble::Returns
            }
            Self::Node(Mutant::DeclaresUnheard) => Trouble::Two,
            _ => Trouble::Losses,
        }
    }

    /// The scenarios that show it, without the bug.
    fn sound(self) -> Hunt {
        let hunt = scenarios().with_trouble(self.trouble());
        match self {
            // Clients must create trees all the time.
            Self::Node(Mutant::CreationsUnnamed) => hunt.with_catalog(),
            _ => hunt.without_catalog(),
        }
    }

    fn search(self, most: u64) -> Caught {
        match self {
            Self::Node(mutant) => drop(plant(Some(mutant))),
            Self::State(mutant) => drop(state::plant(Some(mutant))),
            Self::Host(_) => {}
        }
        let caught = match self {
            Self::Host(breach) => hunt(self.sound().with_breach(breach), most),
            _ => hunt(self.sound(), most),
        };
        plant(None);
        state::plant(None);
        caught
    }
}

#[test]
fn every_planted_bug_of_the_group_is_found() {
    let all = Planted::all();
    let found: Mutex<Vec<(Planted, Caught)>> = Mutex::default();
    let most = if support::runs_in_full() { MOST } else { PLAIN_MOST };
    on_two_threads(all.len(), |number| {
        let caught = all[number].search(most);
        found.lock().expect("nobody panicked").push((all[number], caught));
    });
    let found = found.into_inner().expect("nobody panicked");
    for (planted, caught) in &found {
        println!("{planted:?}: {caught:?}");
    }
    for (planted, caught) in &found {
        let Some((_, count)) = caught else { continue };
        let violation = planted.sound().explorer().run(count - 1).violation;
        assert!(violation.is_none(), "without {planted:?}: {}", violation.expect("a violation"));
    }
    let missed: Vec<Planted> =
        found.iter().filter(|(_, caught)| caught.is_none()).map(|(planted, _)| *planted).collect();
    let due = if support::runs_in_full() { all.len() } else { PLAIN_FOUND };
    assert!(found.len() - missed.len() >= due, "not found in {most} schedules: {missed:?}");
}
