//! The possible values of a writer's keys, stored where the writer's death does not affect them.
//!
//! A writer announces each change before it makes it, and reports the acknowledgement afterwards, as lines of
//! text. If the writer is another process, it uses a pipe. A change that was only announced when the writer
//! died may have happened or not. An acknowledged change has happened.

use super::{Failure, fail};
use sherman::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// One line of a writer's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The writer is about to set `key` to `value`, or to remove it if `value` is `None`.
    Begin {
        /// The key.
        key: u64,
        /// The new value.
        value: Option<u64>,
    },
    /// The change of `key` was acknowledged.
    Done {
        /// The key.
        key: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin { key, value: Some(value) } => write!(f, "put {key} {value}"),
            Self::Begin { key, value: None } => write!(f, "del {key}"),
            Self::Done { key } => write!(f, "done {key}"),
        }
    }
}

impl FromStr for Note {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default();
        let mut number = || -> Result<u64, Failure> { Ok(words.next().unwrap_or_default().parse()?) };
        match verb {
            "put" => Ok(Self::Begin { key: number()?, value: Some(number()?) }),
            "del" => Ok(Self::Begin { key: number()?, value: None }),
            "done" => Ok(Self::Done { key: number()? }),
            _ => fail(format!("{line:?} is not a line of a diary")),
        }
    }
}

/// All possible values of each key. A key that was never named holds nothing.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    may_hold: BTreeMap<u64, BTreeSet<Option<u64>>>,
    begun: BTreeMap<u64, Option<u64>>,
    acknowledged: u64,
}

impl Ledger {
    /// Adds a line.
    pub fn enter(&mut self, note: Note) {
        match note {
            Note::Begin { key, value } => {
                self.may_hold.entry(key).or_insert_with(|| [None].into()).insert(value);
                self.begun.insert(key, value);
            }
            Note::Done { key } => {
                if let Some(value) = self.begun.remove(&key) {
                    self.may_hold.insert(key, [value].into());
                    self.acknowledged += 1;
                }
            }
        }
    }

    /// Returns how many changes were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns how many keys have more than one possible value, because their writer died in the middle.
    pub fn uncertain(&self) -> usize {
        self.may_hold.values().filter(|values| values.len() > 1).count()
    }

    /// Looks every key up and compares it with its possible values.
    pub fn verify(&self, client: &Client<u64, u64>) -> Result<(), Failure> {
        for (&key, values) in &self.may_hold {
            let found = client.get(key)?;
            if !values.contains(&found) {
                return fail(format!("key {key} holds {found:?}; it may hold {values:?}"));
            }
        }
        Ok(())
    }
}
