//! What explorations try, and where a planted bug is looked for.
//!
//! Most bugs show in what every exploration tries. Some concern one format or one shape of node, or need what is rare
//! there; for those the scenarios drawn are bent, never the adversary and never the checkers.

use super::mix::Mix;
use super::scenario::Scenario;
use super::schedule::{Explorer, SEEDS_PER_SCENARIO};
use crate::knobs::Knobs;
use sherman_core::Format;
use sherman_core::mutant::Mutant;

/// Scenarios to be explored.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    format: Option<Format>,
    bend: fn(&mut Scenario),
}

impl Hunt {
    /// What every exploration tries: trees of all formats.
    pub fn everywhere() -> Self {
        Self { format: None, bend: |_| {} }
    }

    /// Where `mutant` is to be found.
    pub fn of(mutant: Mutant) -> Self {
        match mutant {
            // A reader has to sleep through sixteen writes of one node: it takes writers that do nothing else.
            Mutant::NarrowStamp => Self {
                format: Some(Format::SortedStamped),
                bend: |scenario| {
                    scenario.operations = 20;
                    scenario.hot = 3;
                    scenario.sparse = true;
                    scenario.unposted = false;
                    (scenario.first, scenario.then) = (Mix::UPDATE, Mix::UPDATE);
                },
            },
            _ => Self { format: Some(Format::LineStamped), ..Self::everywhere() },
        }
    }

    /// The same with trees of one format.
    pub fn only(self, format: Format) -> Self {
        Self { format: Some(format), ..self }
    }

    /// The seed to begin with.
    pub fn first_seed(self) -> u64 {
        0
    }

    /// The format of the trees; `None` if they have all of them.
    pub fn format(self) -> Option<Format> {
        self.format
    }

    /// The format of scenario number `draw`: half of them have the default.
    fn drawn(self, draw: u64) -> Format {
        self.format.unwrap_or(match draw % 8 {
            0..=3 => Format::LineStamped,
            4 | 5 => Format::Sorted,
            6 => Format::SortedStamped,
            _ => Format::TwoLevel,
        })
    }

    /// An explorer of these scenarios.
    pub fn explorer(self) -> Explorer {
        let choose = move |draw| {
            let mut scenario = Scenario::drawn(draw, self.drawn(draw));
            (self.bend)(&mut scenario);
            scenario
        };
        // The paper's format is for verbs that are atomic as a whole.
        let knobs = move |seed| {
            let verb_atomic = self.drawn(seed / SEEDS_PER_SCENARIO) == Format::TwoLevel;
            Knobs { verb_atomic, ..Knobs::swarm(seed) }
        };
        Explorer::new(choose, knobs)
    }
}
