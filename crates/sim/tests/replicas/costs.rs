//! Counts what two copies of a volume cost: one more round trip for a list that writes, and its bytes twice.

use sherman_core::{Format, Techniques};
use sherman_fabric::{Endpoint, Tally};
use sherman_sim::Knobs;
use sherman_sim::tree::{Caches, Compute, Fixture, Scenario};

/// The number of keys.
const LOADED: u64 = 40;
/// The bytes that release a lane. Lanes exist at the primary alone.
const RELEASE: u64 = 2;

/// A warm tree on two hosts, with this many copies of its volume.
fn fixture(format: Format, replicas: u16) -> (Fixture, Compute) {
    let scenario = Scenario {
        format,
        techniques: Techniques::OURS,
        loaded: LOADED,
        caches: Caches::Warm,
        replicas,
        hosts: if replicas > 1 { 2 } else { Scenario::default().hosts },
        ..Scenario::default()
    };
    let mut fixture = Fixture::new(scenario, Knobs::default());
    let compute = fixture.join();
    let renewed = {
        let worker = compute.worker();
        fixture.quiet(async move { worker.renew().await })
    };
    assert_eq!(renewed.expect("a member"), []);
    fixture.load(&compute, (0..LOADED).map(|key| (2 * key, key)));
    fixture.warm(&compute, (0..LOADED).map(|key| 2 * key));
    (fixture, compute)
}

/// An operation on a key.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Get,
    /// A get of a key that does not exist.
    Miss,
    Update,
    Remove,
    /// An insert of a key that was just removed.
    Insert,
    /// An insert that finds its key, and changes nothing.
    Refused,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Get, Self::Miss, Self::Update, Self::Remove, Self::Insert, Self::Refused];

    /// Whether it writes data.
    fn changes(self) -> bool {
        matches!(self, Self::Update | Self::Remove | Self::Insert)
    }
}

/// Runs an operation. Returns what the operation says that it cost, and what its endpoint counted.
fn cost(fixture: &mut Fixture, compute: &Compute, kind: Kind, number: u64) -> [Tally; 2] {
    let worker = compute.worker();
    let op = worker.op();
    let number = if matches!(kind, Kind::Miss) { 2 * number + 1 } else { 2 * number };
    let (key, value) = (fixture.scenario.key(number), fixture.scenario.value(99));
    let (mut old, tree) = (Vec::new(), &compute.tree);
    let found = fixture.quiet(async {
        match kind {
            Kind::Get | Kind::Miss => op.get(tree, &key, &mut old).await,
            Kind::Update | Kind::Insert => op.insert(tree, &key, &value, &mut old).await,
            Kind::Remove => op.remove(tree, &key, &mut old).await,
            Kind::Refused => op.insert_if_absent(tree, &key, &value, &mut old).await,
        }
    });
    let expected = !matches!(kind, Kind::Miss | Kind::Insert);
    assert_eq!(found.expect("a quiet tree"), expected, "{kind:?}");
    [op.tally(), worker.endpoint().counters().read()]
}

#[test]
fn a_get_takes_one_round_trip_and_a_change_three_that_write_its_bytes_twice() {
    for format in [Format::LineHashed, Format::LineStamped] {
        let (mut one, compute_of_one) = fixture(format, 1);
        let (mut two, compute_of_two) = fixture(format, 2);
        for number in [0, 11, 39] {
            for kind in Kind::ALL {
                let [single, counted] = cost(&mut one, &compute_of_one, kind, number);
                assert_eq!(single, counted, "{format:?} {kind:?}");
                let [double, counted] = cost(&mut two, &compute_of_two, kind, number);
                assert_eq!(double, counted, "{format:?} {kind:?}");
                let what = format!("{format:?} {kind:?}: {single:?}, {double:?}");
                let reads = |tally: &Tally| (tally.reads, tally.bytes_read, tally.atomics);
                assert_eq!(reads(&single), reads(&double), "{what}");
                match kind {
                    Kind::Get | Kind::Miss => assert_eq!((single.round_trips, double), (1, single), "{what}"),
                    // It takes the lane and gives it back, and changes nothing.
                    Kind::Refused => assert_eq!((single.round_trips, double), (2, single), "{what}"),
                    _ => {
                        assert!(kind.changes());
                        assert_eq!((single.round_trips, double.round_trips), (2, 3), "{what}");
                        assert_eq!((single.writes, double.writes), (2, 3), "{what}");
                        let data = single.bytes_written - RELEASE;
                        assert_eq!(double.bytes_written, 2 * data + RELEASE, "{what}");
                    }
                }
            }
        }
    }
}
