//! What explorations try, and where a planted bug is looked for.
//!
//! Most bugs show in what every exploration tries. Some concern one format or one shape of node, or need what is rare
//! there; for those the scenarios drawn are bent, never the adversary and never the checkers.

use super::mix::Mix;
use super::scenario::{STEP_NANOS_OF_CRASHES, Scenario, Shape};
use super::schedule::{Explorer, SEEDS_PER_SCENARIO};
use crate::knobs::Knobs;
use sherman_core::Format;
use sherman_core::mutant::Mutant;

/// Scenarios to be explored.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    format: Option<Format>,
    crashes: bool,
    bend: fn(&mut Scenario),
}

impl Hunt {
    /// What every exploration tries: trees of all formats.
    pub fn everywhere() -> Self {
        Self { format: None, crashes: false, bend: |_| {} }
    }

    /// The same with clients that die and connections that break.
    pub fn with_crashes(self) -> Self {
        Self { crashes: true, ..self }
    }

    /// Where `mutant` is to be found.
    pub fn of(mutant: Mutant) -> Self {
        let lined = Self::everywhere().only(Format::LineStamped);
        match mutant {
            // A reader has to sleep through sixteen writes of one node: it takes writers that do nothing else.
            Mutant::NarrowStamp => Self {
                format: Some(Format::SortedStamped),
                crashes: false,
                bend: |scenario| {
                    scenario.operations = 20;
                    scenario.hot = 3;
                    scenario.sparse = true;
                    scenario.unposted = false;
                    (scenario.first, scenario.then) = (Mix::UPDATE, Mix::UPDATE);
                },
            },
            // Somebody else has to grow the tree, merge the leaf away and shrink the tree again, all between two lists.
            Mutant::GrowthWithoutLane => Self {
                bend: |scenario| {
                    (scenario.shape, scenario.operations) = (Shape::Four, 12);
                    (scenario.loaded, scenario.hot) = (4, 9);
                    (scenario.sparse, scenario.thinned, scenario.unposted) = (false, 0, false);
                    (scenario.first, scenario.then, scenario.opposed) = (Mix::GROW, Mix::SHRINK, true);
                },
                ..lined
            },
            // The maker of a split over two servers has to die when somebody else has split the node again: it takes a full
            // leaf at the right end, which is full again after the first split.
            Mutant::SplitBySibling => Self {
                bend: |scenario| {
                    (scenario.shape, scenario.servers) = (Shape::Four, 2);
                    (scenario.loaded, scenario.hot, scenario.operations) = (4, 9, 4);
                    (scenario.sparse, scenario.thinned, scenario.unposted) = (false, 0, false);
                    (scenario.first, scenario.then) = (Mix::GROW, Mix::GROW);
                },
                ..lined.with_crashes()
            },
            // Only who dies in between, or recovers who did, shows them.
            Mutant::RecordAfterData | Mutant::RecordClearedEarly => Self::everywhere().with_crashes(),
            Mutant::HeaderBeforeSibling
            | Mutant::OutcomeClaimed
            | Mutant::ReplayWithoutFencing
            | Mutant::StallIgnored
            | Mutant::TakeoverWithoutFencing
            | Mutant::SweepBeforeReplay
            | Mutant::SweepsOthers
            | Mutant::IdReissuedEarly
            | Mutant::RecoversBeside
            | Mutant::MergeNotFinished
            | Mutant::GrowthBelieved
            | Mutant::PendingKept
            | Mutant::ActiveUnknown
            | Mutant::FenceLeft
            | Mutant::DoomedRenews
            | Mutant::PrivateLoss
            | Mutant::LeavesDoomed
            | Mutant::ExpiredUnnoticed => lined.with_crashes(),
            // A recovery has to take longer than a renewal can wait: many threads take turns.
            Mutant::RecoversInline => Self {
                bend: |scenario| {
                    (scenario.computes, scenario.threads, scenario.servers) = (3, 4, 2);
                    (scenario.operations, scenario.condemned) = (4, false);
                    scenario.lease_nanos = 540 * STEP_NANOS_OF_CRASHES;
                },
                ..lined.with_crashes()
            },
            // Somebody has to create a tree in the entry of one that two others are dropping.
            Mutant::DropWithoutLane => Self {
                bend: |scenario| {
                    (scenario.catalog, scenario.computes, scenario.threads, scenario.servers) = (true, 3, 1, 1);
                    (scenario.loaded, scenario.operations) = (5, 12);
                },
                ..lined.with_crashes()
            },
            // Somebody has to die while it frees, loads or splits nodes of a tree that is gone.
            Mutant::DropLeftFirst | Mutant::EndedNotReplayed => Self {
                bend: |scenario| {
                    (scenario.shape, scenario.catalog, scenario.loading) = (Shape::Four, true, false);
                    (scenario.computes, scenario.threads, scenario.short) = (3, 2, false);
                    (scenario.loaded, scenario.operations) = (5, 10);
                },
                ..lined.with_crashes()
            },
            // One thread has to load into a tree that is gone, where another thread of its compute server frees it.
            Mutant::LoadWaits => Self {
                bend: |scenario| {
                    (scenario.shape, scenario.catalog, scenario.loading) = (Shape::Four, true, true);
                    (scenario.short, scenario.condemned, scenario.servers) = (false, false, 1);
                    (scenario.computes, scenario.threads) = (3, 2);
                    (scenario.loaded, scenario.operations) = (5, 6);
                },
                ..lined.with_crashes()
            },
            // The place has to lie in a span of whoever frees it.
            Mutant::ReuseBeforeUnlink => Self {
                bend: |scenario| {
                    churn(scenario);
                    scenario.span_places = 4;
                },
                ..lined
            },
            // A place has to be freed and used again within a few lists: nodes come and go, and each span is one place.
            Mutant::StampNotContinued | Mutant::HintBeforeMark => Self { bend: churn, ..lined },
            // Two threads of one compute server have to free a node and to take its span at the same time.
            Mutant::FreedTwice => Self {
                bend: |scenario| {
                    churn(scenario);
                    (scenario.computes, scenario.threads) = (2, 3);
                },
                ..lined
            },
            // One thread has to make a node while another gives back what is not used, since somebody finds no memory.
            Mutant::SpanBackEarly => Self {
                bend: |scenario| {
                    (scenario.shape, scenario.operations) = (Shape::LongEntries, 8);
                    (scenario.loaded, scenario.hot) = (20, 24);
                    (scenario.sparse, scenario.thinned, scenario.unposted) = (false, 0, false);
                    (scenario.first, scenario.then) = (Mix::GROW, Mix::GROW);
                    (scenario.short, scenario.catalog, scenario.computes, scenario.threads) = (true, false, 3, 2);
                },
                ..lined.with_crashes()
            },
            // Somebody has to insert into a tree of several empty leaves between two looks at it.
            Mutant::LoadClears => {
                Self { bend: |scenario| (scenario.catalog, scenario.operations) = (true, 8), ..lined.with_crashes() }
            }
            // Two threads of one compute server have to recover the same member, and another must get its id in between.
            Mutant::StaleVerdict => Self {
                bend: |scenario| (scenario.catalog, scenario.condemned, scenario.servers) = (true, true, 2),
                ..lined.with_crashes()
            },
            _ => lined,
        }
    }

    /// The same with trees of one format.
    pub fn only(self, format: Format) -> Self {
        Self { format: Some(format), ..self }
    }

    /// The format of the trees; `None` if they have all of them.
    pub fn format(self) -> Option<Format> {
        self.format
    }

    /// Whether clients die.
    pub fn crashes(self) -> bool {
        self.crashes
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
            let format = self.drawn(draw);
            let drawn = if self.crashes { Scenario::drawn_with_crashes } else { Scenario::drawn };
            let mut scenario = drawn(draw, format);
            (self.bend)(&mut scenario);
            scenario
        };
        // The paper's format is for verbs that are atomic as a whole.
        let knobs = move |seed| {
            let verb_atomic = self.drawn(seed / SEEDS_PER_SCENARIO) == Format::TwoLevel;
            let swarm = if self.crashes { Knobs::swarm_with_crashes } else { Knobs::swarm };
            Knobs { verb_atomic, ..swarm(seed) }
        };
        Explorer::new(choose, knobs)
    }
}

/// Leaves split and merge all the time, in spans of one place.
fn churn(scenario: &mut Scenario) {
    (scenario.shape, scenario.operations) = (Shape::Four, 12);
    (scenario.loaded, scenario.hot, scenario.span_places) = (8, 12, 1);
    (scenario.sparse, scenario.thinned, scenario.unposted) = (false, 0, false);
    (scenario.first, scenario.then, scenario.opposed) = (Mix::GROW, Mix::SHRINK, true);
}
