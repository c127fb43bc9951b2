//! Where a planted bug is looked for: scenarios in which it can show at all.
//!
//! Most bugs show in what every exploration tries. Some concern one format or one shape of node, or need what is rare
//! there; for those the scenarios drawn are bent, never the adversary and never the checkers.

use super::mix::Mix;
use super::scenario::Scenario;
use super::schedule::Explorer;
use crate::knobs::Knobs;
use sherman_core::Format;
use sherman_core::mutant::Mutant;

/// The scenarios in which a bug is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    /// The format of the trees.
    pub format: Format,
    bend: fn(&mut Scenario),
}

impl Hunt {
    /// What every exploration of this format tries.
    pub fn everywhere(format: Format) -> Self {
        Self { format, bend: |_| {} }
    }

    /// Where `mutant` is to be found.
    pub fn of(mutant: Mutant) -> Self {
        let hunt = Self::everywhere(Format::LineStamped);
        match mutant {
            // A reader has to sleep through sixteen writes of one node: it takes writers that do nothing else.
            Mutant::NarrowStamp => Self {
                format: Format::SortedStamped,
                bend: |scenario| {
                    scenario.operations = 20;
                    scenario.hot = 3;
                    scenario.sparse = true;
                    scenario.unposted = false;
                    (scenario.first, scenario.then) = (Mix::UPDATE, Mix::UPDATE);
                },
            },
            _ => hunt,
        }
    }

    /// An explorer of these scenarios.
    pub fn explorer(self) -> Explorer {
        let choose = move |draw| {
            let mut scenario = Scenario::drawn(draw, self.format);
            (self.bend)(&mut scenario);
            scenario
        };
        Explorer::new(choose, Knobs::swarm)
    }
}
