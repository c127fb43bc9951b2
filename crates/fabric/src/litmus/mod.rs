//! Litmus programs: small loops on real hardware that count how often a rule of the contract is broken.
//!
//! The [contract](crate::contract) asks whether a backend keeps F1–F7 and stops at the first breach. Whether a *NIC* keeps
//! F1–F4 is another question: they rest on what hardware happens to do (`docs/FABRIC.md` gives the sources), so what is wanted
//! is a count, from as many kinds of NIC as there are people to run it. Each program is two participants, each on an endpoint of
//! its own and under an identity of its own, that hammer a few lines of one memory server for a while:
//!
//! - a **violation** is an outcome that the rule forbids: there must be none;
//! - a **weak** outcome is one that the rule allows and that a naive reader would not expect, such as a READ that saw two lines
//!   of two different WRITEs. It shows that the program looks closely enough to see anything at all.
//!
//! What must hold: nobody else uses the memory meanwhile. What may go wrong: a device may show a violation only between two
//! hosts, or once in a day; a clean run is evidence and no proof.

mod atomics;
mod lines;
mod order;
mod stage;

pub use stage::{Count, Place};

use crate::contract::Rule;
use crate::{Caps, Endpoint, Fabric, FabricError};
use stage::Stage;
use std::fmt;
use std::time::Duration;

/// What one participant does.
type Role<E> = fn(&Stage, &E) -> Result<Count, FabricError>;

/// A program.
struct Program<E> {
    about: About,
    needs: fn(&Caps, &Place) -> Result<(), &'static str>,
    roles: [Role<E>; 2],
    /// What is looked at when both have ended.
    after: Option<Role<E>>,
}

/// What a program is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// The rule it looks at.
    pub rule: Rule,
    /// What would be a violation.
    pub violation: &'static str,
    /// What is a weak outcome; empty if there is none.
    pub weak: &'static str,
}

/// What a program found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which program.
    pub about: About,
    /// What it counted; or why it was not run.
    pub outcome: Result<Count, &'static str>,
}

/// Why programs could not be run to their end.
#[derive(Debug)]
pub struct Interrupted {
    /// Which one.
    pub program: &'static str,
    /// What went wrong.
    pub error: FabricError,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.program, self.error)
    }
}

impl std::error::Error for Interrupted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

fn programs<E: Endpoint>() -> Vec<Program<E>> {
    let mut all = lines::programs();
    all.extend(order::programs());
    all.extend(atomics::programs());
    all
}

/// Every program there is, in the order of the rules.
pub fn all() -> Vec<About> {
    [&lines::ABOUT[..], &order::ABOUT, &atomics::ABOUT].concat()
}

/// Runs the programs that `wanted` picks, each for `time`, and tells `found` of each when it has ended.
///
/// The two fabrics are two compute servers of one cluster. `place` is memory that is nobody's: it is left zeroed.
pub fn run<F: Fabric + Sync>(
    fabrics: [&F; 2],
    place: &Place,
    time: Duration,
    wanted: impl Fn(&About) -> bool,
    mut found: impl FnMut(&Finding),
) -> Result<(), Interrupted> {
    for program in programs::<F::Endpoint>().into_iter().filter(|program| wanted(&program.about)) {
        let interrupted = |error| Interrupted { program: program.about.name, error };
        let observer = fabrics[0].endpoint().map_err(interrupted)?;
        let outcome = match (program.needs)(observer.caps(), place) {
            Err(reason) => Err(reason),
            Ok(()) => Ok(once(&program, fabrics, &observer, place, time).map_err(interrupted)?),
        };
        found(&Finding { about: program.about, outcome });
    }
    Ok(())
}

fn once<F: Fabric + Sync>(
    program: &Program<F::Endpoint>,
    fabrics: [&F; 2],
    observer: &F::Endpoint,
    place: &Place,
    time: Duration,
) -> Result<Count, FabricError> {
    stage::clear(place, observer)?;
    let stage = Stage::new(place.clone(), time);
    let counts = std::thread::scope(|scope| {
        let run = |who: usize| {
            let (stage, role, fabric) = (&stage, program.roles[who], fabrics[who]);
            scope.spawn(move || {
                let count = fabric.endpoint().and_then(|endpoint| role(stage, &endpoint));
                // Whoever waits for the other need not.
                if count.is_err() {
                    stage.end();
                }
                count
            })
        };
        let threads = [run(0), run(1)];
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let [first, second] = counts;
    let mut total = first?;
    total.add(second?);
    stage.set_rounds(total.rounds);
    if let Some(after) = program.after {
        total.add(after(&stage, observer)?);
    }
    stage::clear(place, observer)?;
    Ok(total)
}
