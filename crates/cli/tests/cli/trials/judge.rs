//! What must be true of the work of a round, and of the cluster at the end of a trial.

use super::crew::Work;
use super::fleet::Fleet;
use super::{ROUND_KEYS, TREE, key_of};
use crate::common::{sherman, text};
use sherman::{Client, Cluster};
use sherman_conformance::trees::Failure;
use sherman_sim::history::{Fate, History};
use sherman_sim::linear::Checker;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How many keys of earlier rounds are read after each round.
const SAMPLE: usize = 200;
/// How long the cluster may take to recover every worker at the end.
const SETTLES: Duration = Duration::from_secs(20);

/// What is known of all rounds that have ended.
pub struct Judge {
    client: Client<u64, u64>,
    /// Every entry of the tree, apart from those of the present round.
    settled: BTreeMap<u64, u64>,
    random: fastrand::Rng,
    pub total: Total,
}

/// Sums over all rounds.
#[derive(Default)]
pub struct Total {
    pub operations: usize,
    pub unknown: usize,
    pub longest: Duration,
}

/// A round that was judged.
pub struct Judged {
    pub operations: usize,
    pub unknown: usize,
    /// The longest operation, failed ones included, and when it began.
    pub longest: Duration,
    pub longest_began: u64,
}

impl Judge {
    /// Fills the tree of a new cluster with `base`.
    pub fn new(cluster: &Cluster, base: BTreeMap<u64, u64>) -> Result<Self, Failure> {
        let tree = cluster.tree::<u64, u64>(TREE)?;
        tree.bulk_load(base.iter().map(|(key, value)| (*key, *value)), &sherman::BulkOptions::default())?;
        let random = fastrand::Rng::with_seed(11);
        Ok(Self { client: tree.client()?, settled: base, random, total: Total::default() })
    }

    /// Judges the work of a round, whose workers have stopped. The history of every key must have a legal
    /// order that ends with what the key holds now, and no key of an earlier round has changed.
    pub fn judge(&mut self, round: u64, work: &Work) -> Result<Judged, Failure> {
        let (mut history, mut judged) = (History::new(), Judged::of(work));
        for call in &work.calls {
            history.record(*call)?;
            judged.unknown += usize::from(call.fate == Fate::Unknown);
        }
        let mut contents = BTreeMap::new();
        for key in (0..ROUND_KEYS).map(|slot| key_of(round, slot)) {
            contents.extend(self.client.get(key)?.map(|value| (key, value)));
        }
        let verdict = Checker::new().check_final(&mut history, &BTreeMap::new(), &contents);
        if !verdict.is_linearizable() {
            return Err(format!("round {round}: {verdict}\n{:?}\n{:?}", work.events, work.errors).into());
        }
        let keys: Vec<u64> = self.settled.keys().copied().collect();
        for key in (0..SAMPLE).filter_map(|_| self.random.choice(&keys)) {
            let (found, expected) = (self.client.get(*key)?, self.settled.get(key).copied());
            if found != expected {
                return Err(format!("key {key} of an earlier round holds {found:?}, not {expected:?}").into());
            }
        }
        self.settled.extend(contents);
        self.total.operations += judged.operations;
        self.total.unknown += judged.unknown;
        self.total.longest = self.total.longest.max(judged.longest);
        Ok(judged)
    }

    /// Judges the cluster at the end, when no worker is left: the tree has exactly the entries that it must
    /// have, `sherman check` finds no damage, and both copies of every volume are equal.
    pub fn finish(self, fleet: &Fleet) -> Result<Total, Failure> {
        let found: BTreeMap<u64, u64> = self.client.range(..).collect::<Result<_, _>>()?;
        if let Some((key, value)) = self.settled.iter().find(|(key, value)| found.get(key) != Some(value)) {
            return Err(format!("key {key} holds {:?}, not {value}", found.get(key)).into());
        }
        if let Some(key) = found.keys().find(|key| !self.settled.contains_key(key)) {
            return Err(format!("key {key} is there, but was removed or never inserted").into());
        }
        drop(self.client);
        let deadline = Instant::now() + SETTLES;
        loop {
            let check = sherman(&["check", "--cluster", &fleet.url()]);
            if check.status.code() == Some(0) {
                return Ok(self.total);
            }
            if Instant::now() > deadline {
                let (said, why) = (text(&check.stdout), text(&check.stderr));
                return Err(format!("check: {:?}\n{said}\n{why}", check.status.code()).into());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Judged {
    fn of(work: &Work) -> Self {
        let returned = work.calls.iter().filter_map(|call| match call.fate {
            Fate::Returned { at, .. } => Some((at - call.invoked, call.invoked)),
            _ => None,
        });
        let failed = work.errors.iter().map(|(began, ended, _)| (ended.saturating_sub(*began), *began));
        let (longest, longest_began) = returned.chain(failed).max().unwrap_or_default();
        let operations = work.calls.len();
        Self { operations, unknown: 0, longest: Duration::from_nanos(longest), longest_began }
    }
}
