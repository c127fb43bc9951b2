//! The scenarios of explorations. With the feature `mutants` also those that can find a planted bug.

#[cfg(feature = "mutants")]
mod directed;
#[cfg(feature = "mutants")]
mod mutants;

#[cfg(feature = "mutants")]
pub use directed::{Directed, DirectedSchedule};

use super::scenario::{SMALL_CACHE, Scenario};
use super::schedule::{Explorer, SEEDS_PER_SCENARIO};
use super::trouble::Trouble;
use crate::knobs::{Breach, Knobs};
use sherman_core::Format;

/// The scenarios to explore.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    format: Option<Format>,
    crashes: bool,
    replicas: bool,
    group: Option<u16>,
    trouble: Option<Trouble>,
    breach: Option<Breach>,
    values: bool,
    bend: fn(&mut Scenario),
}

impl Hunt {
    /// Returns the scenarios of every exploration: trees of all formats.
    pub fn everywhere() -> Self {
        Self {
            format: None,
            crashes: false,
            replicas: false,
            group: None,
            trouble: None,
            breach: None,
            values: false,
            bend: |_| {},
        }
    }

    /// Returns the same scenarios with clients that die and connections that break.
    pub fn with_crashes(self) -> Self {
        Self { crashes: true, ..self }
    }

    /// Returns the same scenarios with clients that die, volumes in two copies, and hosts that are lost.
    pub fn with_replicas(self) -> Self {
        Self { crashes: true, replicas: true, ..self }
    }

    /// Returns the same scenarios with values of any length.
    pub fn with_values(self) -> Self {
        Self { values: true, ..self }
    }

    /// Whether values have any length.
    pub fn values(self) -> bool {
        self.values
    }

    /// Returns the same scenarios without trees that come and go.
    pub fn without_catalog(self) -> Self {
        Self { bend: without_catalog, ..self }
    }

    /// Returns the same scenarios, all with trees that come and go.
    pub fn with_catalog(self) -> Self {
        Self { bend: with_catalog, ..self }
    }

    /// Returns the same scenarios with volumes in two copies, on so many hosts that form a real control
    /// group.
    pub fn with_group(self, hosts: u16) -> Self {
        Self { group: Some(hosts), ..self.with_replicas() }
    }

    /// Returns the same scenarios with this trouble of the hosts of a control group.
    pub fn with_trouble(self, trouble: Trouble) -> Self {
        Self { trouble: Some(trouble), ..self }
    }

    /// Returns the same scenarios in a world that breaks a rule on purpose.
    pub fn with_breach(self, breach: Breach) -> Self {
        Self { breach: Some(breach), ..self }
    }

    /// Returns the same scenarios with trees of one format.
    pub fn only(self, format: Format) -> Self {
        Self { format: Some(format), ..self }
    }

    /// Returns the same scenarios with index caches that hold two or three nodes.
    pub fn with_small_caches(self) -> Self {
        Self { bend: small_caches, ..self }
    }

    /// Returns the format of the trees, or `None` if the scenarios use all formats.
    pub fn format(self) -> Option<Format> {
        self.format
    }

    /// Whether clients die.
    pub fn crashes(self) -> bool {
        self.crashes
    }

    /// Whether volumes have two copies, and hosts are lost.
    pub fn replicas(self) -> bool {
        self.replicas
    }

    /// The number of hosts of the control group, if there is a real one.
    pub fn group(self) -> Option<u16> {
        self.group
    }

    /// Returns the format of scenario number `draw`. Half of the scenarios have the default format.
    fn drawn(self, draw: u64) -> Format {
        self.format.unwrap_or(match draw % 8 {
            0..=3 => Format::LineHashed,
            4 => Format::LineStamped,
            5 => Format::Sorted,
            6 => Format::SortedStamped,
            _ => Format::TwoLevel,
        })
    }

    /// Returns an explorer of these scenarios.
    pub fn explorer(self) -> Explorer {
        let choose = move |draw| {
            let format = self.drawn(draw);
            let drawn = match (self.crashes, self.replicas) {
                (_, true) => Scenario::drawn_with_replicas,
                (true, false) => Scenario::drawn_with_crashes,
                (false, false) => Scenario::drawn,
            };
            let mut scenario = match self.group {
                Some(hosts) => Scenario::drawn_with_group(draw, format, hosts, self.trouble),
                None => drawn(draw, format),
            };
            (self.bend)(&mut scenario);
            if self.values { scenario.with_values() } else { scenario }
        };
        // The paper's format needs verbs that are atomic as a whole.
        let knobs = move |seed| {
            let verb_atomic = self.drawn(seed / SEEDS_PER_SCENARIO) == Format::TwoLevel;
            let swarm = if self.crashes { Knobs::swarm_with_crashes } else { Knobs::swarm };
            Knobs { verb_atomic, breach: self.breach, ..swarm(seed) }
        };
        Explorer::new(choose, knobs)
    }
}

/// Leaves clients one tree.
fn without_catalog(scenario: &mut Scenario) {
    (scenario.catalog, scenario.loading) = (false, false);
}

/// Lets clients create, open and drop trees.
fn with_catalog(scenario: &mut Scenario) {
    scenario.catalog = true;
}

/// Makes the index caches evict, in trees with several internal nodes.
fn small_caches(scenario: &mut Scenario) {
    scenario.cache_bytes = SMALL_CACHE;
    scenario.loaded = scenario.loaded.max(40);
    scenario.hot = scenario.hot.max(24);
}
