//! The bug that `sherman sim --mutant` plants. Without the feature `mutants` there is no such option, and the
//! command plants nothing.

use crate::sim::report::PlantedReport;
use clap::Args;
use sherman_sim::tree::Hunt;

#[cfg(feature = "mutants")]
pub use with::{PlantArgs, examples, explore_help, replay_help};
#[cfg(not(feature = "mutants"))]
pub use without::{PlantArgs, examples, explore_help, replay_help};

#[cfg(feature = "mutants")]
mod with {
    use super::{Args, Hunt, PlantedReport};
    use sherman_core::mutant::{Guard, Mutant, plant};

    /// The option that plants a bug.
    #[derive(Debug, Args)]
    pub struct PlantArgs {
        /// Plant this bug, in the scenarios that can show it, and stop when it shows; sherman sim explore
        /// --help lists the names
        #[arg(long, value_name = "NAME", value_parser = mutant)]
        mutant: Option<Mutant>,
    }

    impl PlantArgs {
        /// Whether a bug is planted.
        pub fn is_some(&self) -> bool {
            self.mutant.is_some()
        }

        /// Plants the bug for this thread, until the guard is dropped.
        pub fn plant(&self) -> Guard {
            plant(self.mutant)
        }

        /// Returns the scenarios that can show the bug, or all scenarios.
        pub fn hunt(&self) -> Hunt {
            self.mutant.map_or_else(Hunt::everywhere, Hunt::of)
        }

        /// Formats the option for a later command line.
        pub fn again(&self) -> String {
            self.mutant.map_or_else(String::new, |mutant| format!(" --mutant {mutant}"))
        }

        /// Returns the bug, and whether it was found, for the report.
        pub fn report(&self, found: bool) -> Option<PlantedReport> {
            self.mutant.map(|mutant| PlantedReport { name: mutant.name(), what: mutant.what(), found })
        }
    }

    /// Parses the name of a planted bug.
    fn mutant(name: &str) -> Result<Mutant, String> {
        let names = || Mutant::ALL.iter().map(|mutant| mutant.name()).collect::<Vec<_>>().join(", ");
        Mutant::from_name(name)
            .ok_or_else(|| format!("no planted bug has this name; available are {}", names()))
    }

    /// The help of `sherman sim explore` about planted bugs.
    pub fn explore_help() -> String {
        let lines: Vec<String> =
            Mutant::ALL.iter().map(|mutant| format!("  {:<28} {}", mutant.name(), mutant.what())).collect();
        let lines = lines.join("\n");
        format!(
            "
With --mutant the command plants a bug in the tree, and ends when it finds the bug:
{lines}
With --mutant the exit code is 0 if the bug was found, 1 if it was not.
"
        )
    }

    /// The help of `sherman sim replay` about planted bugs.
    pub fn replay_help() -> String {
        "
With --mutant the exit code is 0 if the bug shows in this schedule, 1 if it does not.
"
        .to_owned()
    }

    /// An example of `sherman sim COMMAND`.
    pub fn examples(command: &str) -> String {
        format!("\n  sherman sim {command} --mutant no-free-mark")
    }
}

#[cfg(not(feature = "mutants"))]
mod without {
    use super::{Args, Hunt, PlantedReport};

    /// Nothing is planted.
    pub struct Guard;

    /// No option: no bug can be planted.
    #[derive(Debug, Args)]
    pub struct PlantArgs {}

    impl PlantArgs {
        /// Whether a bug is planted.
        pub fn is_some(&self) -> bool {
            false
        }

        /// Plants nothing.
        pub fn plant(&self) -> Guard {
            Guard
        }

        /// Returns all scenarios.
        pub fn hunt(&self) -> Hunt {
            Hunt::everywhere()
        }

        /// Formats nothing.
        pub fn again(&self) -> String {
            String::new()
        }

        /// Returns no bug.
        pub fn report(&self, _found: bool) -> Option<PlantedReport> {
            None
        }
    }

    /// No help about planted bugs.
    pub fn explore_help() -> String {
        String::new()
    }

    /// No help about planted bugs.
    pub fn replay_help() -> String {
        String::new()
    }

    /// No example.
    pub fn examples(_command: &str) -> String {
        String::new()
    }
}
