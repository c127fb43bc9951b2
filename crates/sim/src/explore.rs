//! Runs many schedules: every schedule of a small world, or one schedule per seed.

use crate::scheduler::{Bounds, Exhaustive, Report, Scheduler};
use crate::sim::{Outcome, Run, Sim};

/// Runs every schedule within `bounds`. For each schedule, `spawn` spawns the tasks on a world at its
/// checkpoint, and `look` checks the end. `look` also sees pruned and cut executions, because the state that
/// their tasks reached is really reachable.
pub fn explore<T>(
    sim: &mut Sim,
    bounds: Bounds,
    mut spawn: impl FnMut(&mut Sim) -> T,
    mut look: impl FnMut(&mut Sim, T, &Run, &Exhaustive),
) -> Report {
    let mut search = Exhaustive::new(bounds);
    while search.begin() {
        sim.rewind();
        let spawned = spawn(sim);
        let run = sim.run(&mut search);
        if matches!(run.outcome, Outcome::StepLimit | Outcome::ListLimit) {
            search.truncate();
        }
        look(sim, spawned, &run, &search);
    }
    search.report()
}

/// Runs one schedule per seed. `prepare` rewinds the world with the settings of the seed and spawns the
/// tasks, `schedule` makes the scheduler, and `look` checks the end. If any of them panics, the seed is
/// printed.
pub fn for_seeds<T, S: Scheduler>(
    sim: &mut Sim,
    seeds: impl IntoIterator<Item = u64>,
    mut prepare: impl FnMut(&mut Sim, u64) -> T,
    mut schedule: impl FnMut(u64) -> S,
    mut look: impl FnMut(&mut Sim, T, &Run),
) {
    for seed in seeds {
        let announced = Announce(seed);
        let spawned = prepare(sim, seed);
        let run = sim.run(&mut schedule(seed));
        look(sim, spawned, &run);
        drop(announced);
    }
}

/// Prints the seed if the schedule panics.
pub(crate) struct Announce(pub u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the schedule that failed has seed {}", self.0);
        }
    }
}
