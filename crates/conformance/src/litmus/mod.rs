//! Litmus programs: small loops on real hardware that count how often a rule of the contract is broken.
//!
//! The [contract](crate::contract) tests whether a backend keeps F1–F7 and stops at the first breach. Whether
//! a *NIC* keeps F1–F4 is another question. Those rules rest on what hardware happens to do (`docs/FABRIC.md`
//! gives the sources). So these programs give a count, from as many kinds of NIC as users can run them on.
//! Each program has two participants, each with its own endpoint and identity. For a while both access a few
//! lines of one memory server without pause:
//!
//! - a **violation** is an outcome that the rule forbids: there must be none;
//! - a **weak** outcome is allowed by the rule, but a naive reader would not expect it. An example is a READ
//!   that saw two lines of two different WRITEs. It shows that the program looks closely enough to see
//!   anything at all.
//!
//! What must hold: no other client uses the memory meanwhile. What may go wrong: a device may show a
//! violation only between two hosts, or once a day. A clean run is evidence, not proof.

mod atomics;
mod lines;
mod order;
mod stage;

pub use stage::{Count, LitmusSite};

use crate::contract::Rule;
use sherman_fabric::{Caps, Endpoint, Fabric, FabricError};
use stage::Stage;
use std::fmt;
use std::time::Duration;

/// The work of one participant.
type Role<E> = fn(&Stage, &E) -> Result<Count, FabricError>;

/// A program.
struct Program<E> {
    about: About,
    needs: fn(&Caps, &LitmusSite) -> Result<(), &'static str>,
    roles: [Role<E>; 2],
    /// The check after both participants have ended.
    after: Option<Role<E>>,
}

/// The description of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The program's name.
    pub name: &'static str,
    /// The rule that the program tests.
    pub rule: Rule,
    /// The outcome that counts as a violation.
    pub violation: &'static str,
    /// The outcome that counts as weak. Empty if there is none.
    pub weak: &'static str,
}

const fn about(name: &'static str, rule: Rule, violation: &'static str, weak: &'static str) -> About {
    About { name, rule, violation, weak }
}

/// The result of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The program.
    pub about: About,
    /// The program's counts, or the reason why it did not run.
    pub outcome: Result<Count, &'static str>,
}

/// The error that interrupted a program.
#[derive(Debug)]
pub struct Interrupted {
    /// The interrupted program's name.
    pub program: &'static str,
    /// The cause.
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

/// All programs, in the order of the rules.
pub fn all() -> Vec<About> {
    [&lines::ABOUT[..], &order::ABOUT, &atomics::ABOUT].concat()
}

/// Runs the programs that `wanted` picks, each for `time`. Calls `found` after each program.
///
/// The two fabrics are two compute servers of one cluster. `place` is memory that no other client uses. It is
/// zeroed after each program that completes.
pub fn run<F: Fabric + Sync>(
    fabrics: [&F; 2],
    place: &LitmusSite,
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
    place: &LitmusSite,
    time: Duration,
) -> Result<Count, FabricError> {
    stage::clear(place, observer)?;
    let stage = Stage::new(place.clone(), time);
    let counts = std::thread::scope(|scope| {
        let run = |who: usize| {
            let (stage, role, fabric) = (&stage, program.roles[who], fabrics[who]);
            scope.spawn(move || {
                let count = fabric.endpoint().and_then(|endpoint| role(stage, &endpoint));
                // The other participant must not wait for this one.
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
