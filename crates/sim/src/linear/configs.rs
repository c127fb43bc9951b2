//! Sets of configurations, pruned by dominance.
//!
//! A [`Config`] is one possible past: which of the open operations have taken effect, and the value of the
//! key then. Compare two configurations A and B with the same value and the same mutations done. A dominates
//! B if A has done at least the reads of B and has used no pending operation that B still has. Then every
//! continuation of B also works for A, without the reads already done. The set keeps only A. Without this
//! rule n pending inserts cost n·2ⁿ configurations, with it about n.
//!
//! Most sets hold a handful of configurations and are scanned. A large set is indexed by hash. The hash is
//! fixed, so the order of a set, and with it every report, is the same on every run.

use super::mask::Mask;

/// Sets from this size on are indexed.
const INDEX_FROM: usize = 16;
const NONE: usize = usize::MAX;

/// The open slots by role. Any two roles are disjoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Roles<const N: usize> {
    /// Operations that returned and changed the value.
    pub(super) edges: Mask<N>,
    /// Operations that returned and did not change the value.
    pub(super) reads: Mask<N>,
    /// Operations of unknown outcome.
    pub(super) doubts: Mask<N>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Config<const N: usize> {
    /// The open operations that have taken effect.
    pub(super) done: Mask<N>,
    /// The value of the key.
    pub(super) state: Option<u64>,
    /// The end of this configuration's past in the trail.
    pub(super) trail: usize,
}

impl<const N: usize> Config<N> {
    /// Whether every continuation of `other` is also one of `self`.
    fn covers(&self, other: &Self, roles: &Roles<N>) -> bool {
        self.state == other.state
            && self.done.and(roles.edges) == other.done.and(roles.edges)
            && other.done.and(roles.reads).minus(self.done).is_empty()
            && self.done.and(roles.doubts).minus(other.done).is_empty()
    }
}

/// A set of configurations under one assignment of roles.
#[derive(Clone, Debug, Default)]
pub(super) struct Configs<const N: usize> {
    items: Vec<Config<N>>,
    /// First item of each bucket. Unused below `INDEX_FROM` items.
    heads: Vec<usize>,
    /// Next item of the same bucket.
    links: Vec<usize>,
}

impl<const N: usize> Configs<N> {
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.links.clear();
    }

    pub(super) fn items(&self) -> &[Config<N>] {
        &self.items
    }

    pub(super) fn items_mut(&mut self) -> &mut [Config<N>] {
        &mut self.items
    }

    /// Whether an item covers `config`. Adds the number of items compared to `steps`.
    pub(super) fn covers(&self, config: &Config<N>, roles: &Roles<N>, steps: &mut u64) -> bool {
        let covering = self.find(config, roles, steps, |item| item.covers(config, roles));
        covering.is_some()
    }

    /// Adds a configuration that no item covers.
    pub(super) fn push(&mut self, config: Config<N>, roles: &Roles<N>) {
        self.items.push(config);
        if self.items.len() < INDEX_FROM {
            return;
        }
        if self.items.len() == INDEX_FROM || self.items.len() > self.heads.len() {
            self.index(roles);
        } else {
            self.link(self.items.len() - 1, roles);
        }
    }

    /// Adds a configuration that no item covers. It replaces an item that it covers, if there is one. Do not
    /// use it for sets whose items have already been expanded.
    pub(super) fn push_or_replace(&mut self, config: Config<N>, roles: &Roles<N>, steps: &mut u64) {
        match self.find(&config, roles, steps, |item| config.covers(item, roles)) {
            Some(index) => self.items[index] = config,
            None => self.push(config, roles),
        }
    }

    fn find(
        &self,
        config: &Config<N>,
        roles: &Roles<N>,
        steps: &mut u64,
        wanted: impl Fn(&Config<N>) -> bool,
    ) -> Option<usize> {
        if self.items.len() < INDEX_FROM {
            *steps += self.items.len() as u64;
            return self.items.iter().position(wanted);
        }
        let mut index = self.heads[self.bucket(config, roles)];
        while index != NONE {
            *steps += 1;
            if wanted(&self.items[index]) {
                return Some(index);
            }
            index = self.links[index];
        }
        None
    }

    fn index(&mut self, roles: &Roles<N>) {
        self.heads.clear();
        self.heads.resize((4 * self.items.len()).next_power_of_two(), NONE);
        self.links.clear();
        for index in 0..self.items.len() {
            self.link(index, roles);
        }
    }

    fn link(&mut self, index: usize, roles: &Roles<N>) {
        let bucket = self.bucket(&self.items[index], roles);
        self.links.push(self.heads[bucket]);
        self.heads[bucket] = index;
    }

    /// Hashes the fields that `covers` compares for equality. `heads.len()` is a power of two.
    fn bucket(&self, config: &Config<N>, roles: &Roles<N>) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut hash = config.state.map_or(0, |value| value.wrapping_mul(ODD) ^ ODD);
        for word in config.done.and(roles.edges).words() {
            hash = (hash.rotate_left(23) ^ word).wrapping_mul(ODD);
        }
        (hash ^ (hash >> 32)) as usize & (self.heads.len() - 1)
    }

    /// Bytes allocated, to test that a reused checker stops allocating.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.items.capacity() + self.heads.capacity() + self.links.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles() -> Roles<1> {
        Roles { edges: Mask::EMPTY.with(0), reads: Mask::EMPTY.with(1), doubts: Mask::EMPTY.with(2) }
    }

    fn config(slots: &[usize], value: u64) -> Config<1> {
        let done = slots.iter().fold(Mask::EMPTY, |mask, &slot| mask.with(slot));
        Config { done, state: Some(value), trail: 0 }
    }

    #[test]
    fn more_reads_and_fewer_doubts_cover_the_rest() {
        let covers = |a: &[usize], b: &[usize]| config(a, 5).covers(&config(b, 5), &roles());
        assert!(covers(&[1], &[]) && !covers(&[], &[1]), "a read behind it is no burden");
        assert!(covers(&[], &[2]) && !covers(&[2], &[]), "a pending operation in hand is no burden");
        assert!(!covers(&[0], &[]) && !covers(&[], &[0]), "a mutation done and one to do differ");
        assert!(!covers(&[1, 2], &[]) && !covers(&[], &[1, 2]));
        assert!(!config(&[], 5).covers(&config(&[], 6), &roles()));
    }

    #[test]
    fn a_large_set_finds_what_a_small_one_finds() {
        let (roles, mut set, mut steps) = (roles(), Configs::default(), 0);
        for value in 0..1000 {
            assert!(!set.covers(&config(&[1], value), &roles, &mut steps));
            set.push(config(&[1], value), &roles);
        }
        for value in 0..1000 {
            assert!(set.covers(&config(&[2], value), &roles, &mut steps));
            assert!(!set.covers(&config(&[0], value), &roles, &mut steps));
        }
        set.push_or_replace(config(&[1], 77), &roles, &mut steps);
        assert_eq!(set.items().len(), 1000, "what it covers it replaces");
    }
}
