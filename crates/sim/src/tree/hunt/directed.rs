//! Schedules made for planted bugs that drawn schedules seldom show.
//!
//! Each plan enumerates one operation: something happens after each of its effects. The drawn scenarios have
//! all these operations too, but seldom the right moment.

use crate::tree::check::Violation;
use crate::tree::crash::{Blow, CrashCase, Setup, VictimOp};
use crate::tree::mix::Mix;
use crate::tree::scenario::Shape;
use sherman_core::Format;
use sherman_core::mutant::Mutant;

/// Gets alone.
const READ: Mix = Mix { gets: 1, inserts: 0, removes: 0, inserts_if_absent: 0, exchanges: 0, ranges: 0 };

/// An operation, and what happens after each of its effects.
struct Plan {
    case: CrashCase,
    blows: Vec<Blow>,
    /// The first seed.
    first: u64,
}

/// The schedules for one planted bug.
pub struct Directed {
    plans: Vec<Plan>,
}

/// One schedule of a [`Directed`] search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectedSchedule {
    plan: usize,
    seed: u64,
    strike: Option<(u64, Blow)>,
}

impl std::fmt::Debug for Directed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.plans.iter().map(|plan| &plan.case)).finish()
    }
}

impl Directed {
    /// Returns the schedules for `mutant`, if some are made for it.
    pub fn of(mutant: Mutant) -> Option<Self> {
        let death = || vec![Blow::DEATH];
        let plans = match mutant {
            // A client must die while it frees the two leaves below one separator.
            Mutant::DropLeftFirst => vec![Plan {
                case: CrashCase::new(VictimOp::DropUnposted, 2, setup(Format::LineStamped)),
                blows: death(),
                first: 0,
            }],
            // A host must be lost to the client and to the control state, but not to a reader.
            Mutant::AcknowledgedClosed => vec![Plan {
                case: CrashCase::new(VictimOp::Update, 1, setup(Format::LineHashed).replicated())
                    .with_others(READ, 40, 1, true),
                blows: (0..2)
                    .map(|host| Blow { host: Some(host), lives: true, parts: true, ..Blow::default() })
                    .collect(),
                first: 0,
            }],
            // A client must die between the two CASes of a root word.
            Mutant::RootsNotCompared => vec![Plan {
                case: CrashCase::new(VictimOp::Growth, 1, setup(Format::LineHashed).replicated()),
                blows: death(),
                first: 0,
            }],
            // Another client must change the tree at the lost host after the drop was finished.
            Mutant::OlderNotAwaited => vec![Plan {
                case: CrashCase::new(VictimOp::Drop, 3, two_servers().replicated()),
                blows: vec![Blow { host: Some(0), lives: true, ..Blow::default() }],
                first: 764,
            }],
            _ => return None,
        };
        Some(Self { plans })
    }

    /// Runs schedules one after the other until one of them violates something, but at most `most`. Returns
    /// it, the violation, and the number of schedules.
    pub fn search(&mut self, most: u64) -> Option<(DirectedSchedule, Violation, u64)> {
        let mut count = 0;
        for number in 0.. {
            for plan in 0..self.plans.len() {
                let seed = self.plans[plan].first + number;
                let schedule = DirectedSchedule { plan, seed, strike: None };
                count += 1;
                let undisturbed = self.plans[plan].case.run(seed, None, false).0;
                if let Some(violation) = undisturbed.violation {
                    return Some((schedule, violation, count));
                }
                for point in 1..=undisturbed.effects {
                    for blow in self.plans[plan].blows.clone() {
                        if count >= most {
                            return None;
                        }
                        let schedule = DirectedSchedule { strike: Some((point, blow)), ..schedule };
                        count += 1;
                        if let Some(violation) = self.run(schedule) {
                            return Some((schedule, violation, count));
                        }
                    }
                }
            }
        }
        None
    }

    /// Runs one schedule.
    pub fn run(&mut self, schedule: DirectedSchedule) -> Option<Violation> {
        let DirectedSchedule { plan, seed, strike } = schedule;
        self.plans[plan].case.strike(seed, strike, false).0.violation
    }
}

/// The setup in which enumeration shows most often that a drop must wait: two memory servers and no local
/// locks.
fn two_servers() -> Setup {
    let all = Setup::pairwise();
    let wanted = |setup: &&Setup| {
        setup.servers == 2 && setup.format == Format::SortedStamped && setup.shape == Shape::Four
    };
    all.iter().find(wanted).copied().unwrap_or(all[0])
}

/// The default techniques, on one memory server, in the smallest leaves.
fn setup(format: Format) -> Setup {
    Setup { format, shape: Shape::Four, servers: 1, ..Setup::pairwise()[0] }
}
