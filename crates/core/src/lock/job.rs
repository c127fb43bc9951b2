//! A change that waits for a lane, described so that the holder of the lane can execute it, and its result.
//!
//! Both have a fixed size: only trees with hashed leaves combine changes, and their entries are short. So a
//! waiting operation allocates nothing.

use crate::node::LINE;
use crate::node::window::ChangeRule;
use sherman_fabric::{FabricError, GlobalAddress};

/// Room for a key and two values of a hashed leaf.
const ROOM: usize = 56;

/// A byte string of a bounded length.
#[derive(Clone, Copy, Debug)]
struct Short {
    bytes: [u8; ROOM],
    len: u8,
}

impl Short {
    const EMPTY: Self = Self { bytes: [0; ROOM], len: 0 };

    /// Adds bytes. Returns where they lie, or `None` if there is no room.
    fn push(&mut self, bytes: &[u8]) -> Option<(u8, u8)> {
        let from = usize::from(self.len);
        self.bytes.get_mut(from..from + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len() as u8;
        Some((from as u8, self.len))
    }

    fn get(&self, (from, to): (u8, u8)) -> &[u8] {
        &self.bytes[usize::from(from)..usize::from(to)]
    }
}

/// The rule of a job. Values are ranges of its bytes.
#[derive(Clone, Copy, Debug)]
enum JobRule {
    Put((u8, u8)),
    PutIfAbsent((u8, u8)),
    Remove,
    Exchange(Option<(u8, u8)>, Option<(u8, u8)>),
}

/// A change of one key of a hashed leaf.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The tree.
    pub(crate) tree: u32,
    /// The leaf that the cache named.
    pub(crate) leaf: GlobalAddress,
    rule: JobRule,
    key: (u8, u8),
    bytes: Short,
}

impl Job {
    /// Describes a change. Returns `None` if its key and values are too long, which those of a hashed leaf
    /// are not.
    pub(crate) fn new(tree: u32, leaf: GlobalAddress, key: &[u8], rule: ChangeRule<'_>) -> Option<Self> {
        let mut bytes = Short::EMPTY;
        let key = bytes.push(key)?;
        let mut push = |value: Option<&[u8]>| match value {
            Some(value) => bytes.push(value).map(Some),
            None => Some(None),
        };
        let rule = match rule {
            ChangeRule::Put(value) => JobRule::Put(push(Some(value))??),
            ChangeRule::PutIfAbsent(value) => JobRule::PutIfAbsent(push(Some(value))??),
            ChangeRule::Remove => JobRule::Remove,
            ChangeRule::Exchange(expected, new) => JobRule::Exchange(push(expected)?, push(new)?),
        };
        Some(Self { tree, leaf, rule, key, bytes })
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.bytes.get(self.key)
    }

    pub(crate) fn rule(&self) -> ChangeRule<'_> {
        let value = |range| self.bytes.get(range);
        match self.rule {
            JobRule::Put(new) => ChangeRule::Put(value(new)),
            JobRule::PutIfAbsent(new) => ChangeRule::PutIfAbsent(value(new)),
            JobRule::Remove => ChangeRule::Remove,
            JobRule::Exchange(expected, new) => ChangeRule::Exchange(expected.map(value), new.map(value)),
        }
    }
}

/// How a job ended.
#[derive(Clone, Debug)]
pub struct JobResult {
    /// Whether the key was there.
    pub(crate) there: bool,
    old: Short,
    /// For a remove that happened: the entries that it left in the lines of its key, and whether the leaf has
    /// no other lines.
    pub(crate) removed: Option<(usize, bool)>,
    /// Why the change may not have happened. Boxed: failures are rare.
    pub(crate) failed: Option<Box<JobFailure>>,
}

/// A batch whose WRITEs failed.
#[derive(Clone, Debug)]
pub(crate) struct JobFailure {
    pub(crate) error: FabricError,
    /// Whether anything was posted. If not, nothing has changed.
    pub(crate) posted: bool,
    /// The line that carries the change, at its offset in the leaf. `None` if the job changed nothing.
    pub(crate) line: Option<(usize, [u8; LINE])>,
}

impl JobResult {
    /// The result of a job that found `old` under its key.
    pub(crate) fn new(old: Option<&[u8]>) -> Self {
        let mut short = Short::EMPTY;
        let stored = old.is_some_and(|old| short.push(old).is_some());
        Self { there: stored, old: short, removed: None, failed: None }
    }

    /// The value that the key had.
    pub(crate) fn old(&self) -> &[u8] {
        self.old.get((0, self.old.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_keeps_its_key_and_its_rule() {
        let leaf = GlobalAddress::new(1, 4096);
        let (key, one, other) = ([7; 8], [1; 20], [2; 20]);
        for rule in [
            ChangeRule::Put(&one),
            ChangeRule::PutIfAbsent(&[]),
            ChangeRule::Remove,
            ChangeRule::Exchange(None, Some(&one)),
            ChangeRule::Exchange(Some(&one), None),
            ChangeRule::Exchange(Some(&one), Some(&other)),
        ] {
            let job = Job::new(3, leaf, &key, rule).expect("it fits");
            assert_eq!((job.tree, job.leaf, job.key(), job.rule()), (3, leaf, &key[..], rule));
        }
        assert!(Job::new(3, leaf, &[7; 30], ChangeRule::Put(&[1; 27])).is_none());
        assert_eq!(JobResult::new(Some(&one)).old(), one);
        assert!(!JobResult::new(None).there);
    }
}
