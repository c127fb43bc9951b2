//! Every schedule of one page: a reader with single READs against a writer with single WRITEs, four lines.
//!
//! The paper's node-level check fails here, and line stamps do not (`docs/LAYOUT.md`). Each line of the page
//! carries the number of the write that stored it. A *check* decides from an image whether the reader accepts
//! it.

use sherman_fabric::{Counters, Endpoint, Fabric, Space, execute};
use sherman_sim::{
    Bounds, Breach, Exhaustive, Knobs, Limits, Outcome, Replay, Report, Sim, SimConfig, TaskHandle, explore,
};
use std::collections::BTreeSet;

const PAGE: u64 = 0x8000;
const LINES: usize = 4;

/// The number in each half of each line.
type Image = [[u64; 2]; LINES];

/// Accepts if the first and last line agree: front and rear version, as in the paper.
fn front_and_rear(image: &Image) -> bool {
    image[0][0] == image[LINES - 1][0]
}

/// Accepts if all lines carry the same stamp.
fn line_stamps(image: &Image) -> bool {
    image.iter().all(|line| line[0] == image[0][0])
}

/// Accepts if all lines carry the same stamp, one bit wide.
fn one_bit_stamps(image: &Image) -> bool {
    image.iter().all(|line| line[0] & 1 == image[0][0] & 1)
}

fn torn(image: &Image) -> bool {
    image.as_flattened().iter().any(|&number| number != image[0][0])
}

fn page(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(LINES * 8)
}

struct World {
    knobs: Knobs,
    writes: u64,
    check: fn(&Image) -> bool,
    /// The largest number of attempts of the reader.
    tries: u64,
}

impl World {
    fn sim(&self) -> Sim {
        let limits = Limits { lists_per_task: self.tries.max(self.writes), ..Limits::default() };
        Sim::new(&SimConfig {
            host_bytes: 64 << 10,
            knobs: self.knobs.clone(),
            limits,
            ..SimConfig::default()
        })
        .unwrap()
    }

    /// Spawns writer and reader. The handle holds the image that the reader accepted.
    fn cast(&self, sim: &mut Sim) -> TaskHandle<Image> {
        let (writer, reader) = (sim.join().unwrap(), sim.join().unwrap());
        let (to_write, to_read) = (writer.endpoint().unwrap(), reader.endpoint().unwrap());
        let (writes, check) = (self.writes, self.check);
        sim.spawn_on(&writer, 0, "writer", async move {
            for number in 1..=writes {
                let mut list = to_write.list(0);
                list.write(Space::Host, PAGE, &page(number));
                let list = execute(&to_write, list, &Counters::default()).await.unwrap();
                to_write.recycle(list);
            }
        });
        sim.spawn_on(&reader, 0, "reader", async move {
            loop {
                let mut list = to_read.list(0);
                let read = list.read(Space::Host, PAGE, LINES as u32 * 64);
                let list = execute(&to_read, list, &Counters::default()).await.unwrap();
                let bytes = list.bytes(read);
                let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
                let image: Image = std::array::from_fn(|line| [number(line * 64), number(line * 64 + 56)]);
                if check(&image) {
                    return image;
                }
                to_read.recycle(list);
            }
        })
    }

    fn accepted(&self, bounds: Bounds) -> (BTreeSet<Image>, Report) {
        let mut accepted = BTreeSet::new();
        let report = explore(
            &mut self.sim(),
            bounds,
            |sim| self.cast(sim),
            |_, handle, _, _| {
                accepted.extend(handle.take());
            },
        );
        assert!(report.finished, "{report:?}");
        (accepted, report)
    }
}

fn ascending() -> Knobs {
    Knobs { write_units_any_order: false, ..Knobs::default() }
}

#[test]
fn front_and_rear_versions_accept_a_torn_page_even_if_writes_ascend() {
    let world = World { knobs: ascending(), writes: 1, check: front_and_rear, tries: 2 };
    let (accepted, _) = world.accepted(Bounds::default());
    let front_old_middle_new_rear_old = [[0; 2], [1; 2], [0; 2], [0; 2]];
    assert!(accepted.contains(&front_old_middle_new_rear_old), "{accepted:?}");
    let any_middle = accepted.iter().filter(|image| image[0][0] == 0 && torn(image)).count();
    // Old front and rear, with every mixture of two middle lines except the untouched one.
    assert_eq!(any_middle, 3);
}

#[test]
fn front_and_rear_versions_are_sound_where_a_verb_is_atomic() {
    let knobs = Knobs { verb_atomic: true, ..Knobs::default() };
    let (accepted, report) =
        World { knobs, writes: 3, check: front_and_rear, tries: 3 }.accepted(Bounds::default());
    assert_eq!(report.truncated, 0);
    assert!(accepted.len() == 4 && !accepted.iter().any(torn), "{accepted:?}");
}

#[test]
fn line_stamps_never_accept_a_torn_page() {
    for (knobs, writes, tries) in [(ascending(), 2, 3), (Knobs::default(), 1, 3), (Knobs::default(), 2, 2)] {
        let world = World { knobs, writes, check: line_stamps, tries };
        let (accepted, report) = world.accepted(Bounds::default());
        assert!(!accepted.iter().any(torn), "{accepted:?}");
        assert_eq!(accepted.len() as u64, writes + 1);
        // The reader may fail any number of times. The report counts how often the search stopped following
        // it.
        assert!(report.truncated > 0 && report.states > 1_000 && report.pruned > 0, "{report:?}");
    }
}

#[test]
fn a_stamp_that_wraps_within_a_read_accepts_a_torn_page() {
    let once = World { knobs: Knobs::default(), writes: 1, check: one_bit_stamps, tries: 2 };
    assert!(!once.accepted(Bounds::default()).0.iter().any(torn));
    let twice = World { writes: 2, ..once };
    assert!(twice.accepted(Bounds::default()).0.iter().any(torn));
}

#[test]
fn line_stamps_need_lines_that_do_not_tear() {
    let knobs = Knobs::default().with_breach(Breach::TornUnit);
    let world = World { knobs, writes: 1, check: line_stamps, tries: 1 };
    // With units of 8 bytes there are too many schedules to try all. The first thousands are enough.
    let mut sim = world.sim();
    let found = (0..20_000).any(|seed| {
        sim.rewind();
        let accepted = world.cast(&mut sim);
        let _ = sim.run(&mut sherman_sim::Random::new(seed));
        accepted.take().is_some_and(|image| torn(&image))
    });
    assert!(found);
}

#[test]
fn merging_equal_states_loses_no_outcome() {
    for (check, writes) in [(front_and_rear as fn(&Image) -> bool, 1), (line_stamps, 1)] {
        let world = World { knobs: ascending(), writes, check, tries: 1 };
        let (merged, fewer) = world.accepted(Bounds::default());
        let (all, more) = world.accepted(Bounds { merge: false, ..Bounds::default() });
        assert_eq!(merged, all);
        assert!(fewer.executions * 10 < more.executions, "{fewer:?} against {more:?}");
    }
}

#[test]
fn a_schedule_found_by_search_can_be_replayed_and_read() {
    let world = World { knobs: ascending(), writes: 1, check: front_and_rear, tries: 2 };
    let mut sim = world.sim();
    let mut search = Exhaustive::new(Bounds::default());
    let (picks, hash) = loop {
        assert!(search.begin());
        sim.rewind();
        let accepted = world.cast(&mut sim);
        let run = sim.run(&mut search);
        if accepted.take().is_some_and(|image| torn(&image)) && run.outcome == Outcome::Done {
            break (search.picks(), run.trace_hash);
        }
    };
    sim.rewind();
    sim.record_trace(true);
    let accepted = world.cast(&mut sim);
    let run = sim.run(&mut Replay::new(picks));
    assert!(accepted.take().is_some_and(|image| torn(&image)));
    assert_eq!(run.trace_hash, hash);
    let text: Vec<String> = sim.trace().iter().map(ToString::to_string).collect();
    let fetch = "endpoint 1 on server 0: Fetch list 1 verb 0 unit 0: host 0:0x8000+64";
    assert!(text.iter().any(|line| line.starts_with(fetch)), "{text:#?}");
}
