//! The answers that a range scan may give (the specification of ranges in `docs/TESTING.md`).
//!
//! A scan is not a snapshot: it reads each key of its range once, at a separate moment. So these rules hold
//! for a scan that began at *b*:
//!
//! - Keys come strictly ascending (descending for a backward scan), inside the bounds:
//!   [`Sweep::check_order`].
//! - A pair delivered at *t* was true at some moment of *b..t*.
//! - A key of the range that the scan skipped was absent at some moment between *b* and the delivery of the
//!   next pair (or the scan's end).
//!
//! The last two rules are claims about single keys. [`Sweep::observe`] records them as [`Op::Get`]s over
//! those intervals. The linearizability [`Checker`](super::Checker) then checks them together with all other
//! operations on the key. A scan that ended early claims nothing beyond its last pair.

use crate::history::{Call, ComputeId, Fate, History, Misuse, Op, Outcome};
use std::collections::BTreeSet;
use std::fmt;

/// A scan as its client observed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The client that scanned.
    pub client: ComputeId,
    /// Whether the scan delivers keys in descending order.
    pub backward: bool,
    /// The lowest key of the range.
    pub low: u64,
    /// The highest key of the range.
    pub high: u64,
    /// Time when the scan was called.
    pub began: u64,
    /// The pairs that it delivered.
    pub pairs: Vec<Pair>,
    /// Time when the scan reported its end, or `None` if it failed.
    pub ended: Option<u64>,
}

/// A pair that a scan delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Its key.
    pub key: u64,
    /// Its value.
    pub value: u64,
    /// Time of the delivery.
    pub at: u64,
}

/// An error that no scan may show, whatever other operations do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A key outside the bounds.
    OutOfBounds {
        /// The key.
        key: u64,
    },
    /// A key delivered twice in a row.
    Repeated {
        /// The key.
        key: u64,
    },
    /// A key that must come before the previous one.
    OutOfOrder {
        /// The key.
        key: u64,
        /// The previous key.
        after: u64,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::OutOfBounds { key } => write!(f, "key {key} lies outside the bounds"),
            Flaw::Repeated { key } => write!(f, "key {key} came twice"),
            Flaw::OutOfOrder { key, after } => write!(f, "key {key} came after {after}"),
        }
    }
}

impl Sweep {
    /// Checks bounds, order and repetition, which need only the scan itself.
    pub fn check_order(&self) -> Result<(), Flaw> {
        for (index, &Pair { key, .. }) in self.pairs.iter().enumerate() {
            if key < self.low || key > self.high {
                return Err(Flaw::OutOfBounds { key });
            }
            let Some(before) = index.checked_sub(1).map(|before| self.pairs[before].key) else { continue };
            if before == key {
                return Err(Flaw::Repeated { key });
            }
            if (before > key) != self.backward {
                return Err(Flaw::OutOfOrder { key, after: before });
            }
        }
        Ok(())
    }

    /// Adds to the history what the scan claims about every key of `keys`, and about every key it delivered.
    /// `keys` should contain all keys that ever existed.
    pub fn observe(&self, history: &mut History, keys: &BTreeSet<u64>) -> Result<(), Misuse> {
        let mut claim = |key, value, at| {
            let fate = Fate::Returned { at, outcome: Outcome::Value(value) };
            history
                .record(Call { client: self.client, key, op: Op::Get, invoked: self.began, fate })
                .map(drop)
        };
        for pair in &self.pairs {
            claim(pair.key, Some(pair.value), pair.at)?;
        }
        if self.low > self.high {
            return Ok(());
        }
        for &key in keys.range(self.low..=self.high) {
            if self.pairs.iter().any(|pair| pair.key == key) {
                continue;
            }
            let beyond = self.pairs.iter().find(|pair| (pair.key < key) == self.backward);
            if let Some(passed) = beyond.map(|pair| pair.at).or(self.ended) {
                claim(key, None, passed)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Checker;
    use super::*;
    use std::collections::BTreeMap;

    /// Keys 1 to 4, each with ten times its number as the value.
    fn initial() -> BTreeMap<u64, u64> {
        (1..=4).map(|key| (key, 10 * key)).collect()
    }

    fn sweep(backward: bool, pairs: &[(u64, u64, u64)]) -> Sweep {
        let pairs = pairs.iter().map(|&(key, value, at)| Pair { key, value, at }).collect();
        Sweep { client: 9, backward, low: 1, high: 4, began: 100, pairs, ended: Some(200) }
    }

    fn call(key: u64, op: Op, invoked: u64, at: u64, value: Option<u64>) -> Call {
        Call { client: 1, key, op, invoked, fate: Fate::Returned { at, outcome: Outcome::Value(value) } }
    }

    fn is_legal(sweep: &Sweep, calls: &[Call]) -> bool {
        let mut history = History::new();
        for &call in calls {
            history.record(call).expect("times that make sense");
        }
        sweep.observe(&mut history, &initial().into_keys().collect()).expect("times that make sense");
        sweep.check_order().is_ok() && Checker::new().check(&history, &initial()).is_linearizable()
    }

    const ALL: [(u64, u64, u64); 4] = [(1, 10, 110), (2, 20, 120), (3, 30, 130), (4, 40, 140)];
    const LLA: [(u64, u64, u64); 4] = [(4, 40, 110), (3, 30, 120), (2, 20, 130), (1, 10, 140)];

    #[test]
    fn a_scan_of_a_quiet_map_is_legal_both_ways() {
        assert!(is_legal(&sweep(false, &ALL), &[]));
        assert!(is_legal(&sweep(true, &LLA), &[]));
    }

    #[test]
    fn a_missed_key_is_caught_and_one_removed_meanwhile_is_not() {
        for (backward, pairs) in [(false, ALL), (true, LLA)] {
            for missed in 0..4 {
                let mut pairs = pairs.to_vec();
                let (key, value, at) = pairs.remove(missed);
                let sweep = sweep(backward, &pairs);
                assert!(!is_legal(&sweep, &[]), "key {key}");
                assert!(is_legal(&sweep, &[call(key, Op::Remove, at - 15, at, Some(value))]), "key {key}");
                let passed = pairs.get(missed).map_or(200, |next| next.2);
                let late = call(key, Op::Remove, passed + 1, passed + 5, Some(value));
                assert!(!is_legal(&sweep, &[late]), "key {key} was removed after the scan had passed it");
            }
        }
    }

    #[test]
    fn a_key_that_was_absent_only_before_the_scan_is_missed() {
        let sweep = sweep(false, &[ALL[0], ALL[2], ALL[3]]);
        let gone = call(2, Op::Remove, 50, 60, Some(20));
        assert!(is_legal(&sweep, &[gone]));
        assert!(!is_legal(&sweep, &[gone, call(2, Op::Insert(21), 70, 80, None)]));
        assert!(is_legal(&sweep, &[gone, call(2, Op::Insert(21), 70, 101, None)]));
    }

    #[test]
    fn a_repeated_key_is_caught() {
        let twice = [ALL[0], ALL[1], ALL[1], ALL[2], ALL[3]];
        assert_eq!(sweep(false, &twice).check_order(), Err(Flaw::Repeated { key: 2 }));
    }

    #[test]
    fn wrong_order_is_caught_both_ways() {
        assert_eq!(sweep(true, &ALL).check_order(), Err(Flaw::OutOfOrder { key: 2, after: 1 }));
        assert_eq!(sweep(false, &LLA).check_order(), Err(Flaw::OutOfOrder { key: 3, after: 4 }));
        let again = [ALL[0], ALL[1], ALL[0], ALL[2], ALL[3]];
        assert_eq!(sweep(false, &again).check_order(), Err(Flaw::OutOfOrder { key: 1, after: 2 }));
    }

    #[test]
    fn a_key_outside_the_bounds_is_caught() {
        let narrow = Sweep { low: 2, ..sweep(false, &ALL) };
        assert_eq!(narrow.check_order(), Err(Flaw::OutOfBounds { key: 1 }));
        assert_eq!(Sweep { high: 3, ..sweep(false, &ALL) }.check_order(), Err(Flaw::OutOfBounds { key: 4 }));
    }

    #[test]
    fn a_value_from_before_the_scan_is_caught() {
        let update = |invoked, at| call(2, Op::Insert(21), invoked, at, Some(20));
        assert!(!is_legal(&sweep(false, &ALL), &[update(50, 60)]));
        assert!(
            is_legal(&sweep(false, &ALL), &[update(50, 101)]),
            "it may have taken effect after the scan began"
        );
    }

    #[test]
    fn a_value_from_after_its_delivery_is_caught() {
        let newer = [ALL[0], (2, 21, 120), ALL[2], ALL[3]];
        assert!(is_legal(&sweep(false, &newer), &[call(2, Op::Insert(21), 119, 150, Some(20))]));
        assert!(!is_legal(&sweep(false, &newer), &[call(2, Op::Insert(21), 121, 150, Some(20))]));
    }

    #[test]
    fn a_value_nobody_wrote_is_caught() {
        assert!(!is_legal(&sweep(false, &[ALL[0], (2, 77, 120), ALL[2], ALL[3]]), &[]));
    }

    #[test]
    fn a_scan_that_ended_early_claims_nothing_beyond_its_last_pair() {
        let early = Sweep { ended: None, ..sweep(false, &ALL[..2]) };
        assert!(is_legal(&early, &[]));
        assert!(!is_legal(&Sweep { ended: Some(200), ..early }, &[]));
        let early = Sweep { ended: None, ..sweep(false, &ALL[1..2]) };
        assert!(!is_legal(&early, &[]), "key 1 was passed over");
    }
}
