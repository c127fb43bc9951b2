//! Running many schedules: every one of a small world, or one for each of many seeds.

use crate::scheduler::{Bounds, Exhaustive, Report, Scheduler};
use crate::sim::{Outcome, Run, Sim};

/// Runs every schedule within `bounds`. For each, `cast` spawns the tasks on a world at its checkpoint, and `look` sees the
/// end: also of executions that were pruned or cut, since what their tasks have done by then was really reachable.
pub fn explore<T>(
    sim: &mut Sim,
    bounds: Bounds,
    mut cast: impl FnMut(&mut Sim) -> T,
    mut look: impl FnMut(&mut Sim, T, &Run, &Exhaustive),
) -> Report {
    let mut search = Exhaustive::new(bounds);
    while search.begin() {
        sim.rewind();
        let cast = cast(sim);
        let run = sim.run(&mut search);
        if matches!(run.outcome, Outcome::StepLimit | Outcome::ListLimit) {
            search.truncate();
        }
        look(sim, cast, &run, &search);
    }
    search.report()
}

/// Runs one schedule for each seed: `prepare` rewinds the world as the seed has it and spawns the tasks, `schedule` makes
/// the scheduler, `look` checks the end. If any of them panics, the seed is printed.
pub fn for_seeds<T, S: Scheduler>(
    sim: &mut Sim,
    seeds: impl IntoIterator<Item = u64>,
    mut prepare: impl FnMut(&mut Sim, u64) -> T,
    mut schedule: impl FnMut(u64) -> S,
    mut look: impl FnMut(&mut Sim, T, &Run),
) {
    for seed in seeds {
        let announced = Announce(seed);
        let cast = prepare(sim, seed);
        let run = sim.run(&mut schedule(seed));
        look(sim, cast, &run);
        drop(announced);
    }
}

/// Says which seed it was when a schedule panics.
pub(crate) struct Announce(pub u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the schedule that failed has seed {}", self.0);
        }
    }
}
