//! Other policies of eviction, on the lookups that the index cache answered. They show what the choice of
//! victims is worth.
//!
//! A policy holds as many parents of leaves as the cache held, and sees the same lookups. It has only this
//! one level: copies of upper levels are few and rarely evicted.

use fastrand::Rng;
use std::collections::BTreeMap;

/// The hit ratios of other policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Policies {
    /// Evicts the less recently used of two parents picked at random.
    pub two_choices: f64,
    /// Evicts a parent picked at random.
    pub random: f64,
    /// Holds the parents that the counted lookups use most. No policy that does not know them beats it.
    pub best: f64,
}

/// A cache of a fixed number of parents that evicts one of `choices` picked at random.
struct Randomized {
    choices: u32,
    rng: Rng,
    /// Each parent, with the number of the lookup that used it last.
    held: Vec<(u32, u64)>,
    /// One more than the place of each parent in `held`.
    places: Vec<u32>,
    now: u64,
}

impl Randomized {
    fn new(choices: u32, room: usize, parents: usize) -> Self {
        let held = Vec::with_capacity(room);
        Self { choices, rng: Rng::with_seed(1), held, places: vec![0; parents], now: 0 }
    }

    /// Uses a parent. Returns whether it was there.
    fn hits(&mut self, parent: u32) -> bool {
        self.now += 1;
        if let Some(at) = self.places[parent as usize].checked_sub(1) {
            self.held[at as usize].1 = self.now;
            return true;
        }
        let at = if self.held.len() < self.held.capacity() {
            self.held.push((parent, self.now));
            self.held.len() - 1
        } else {
            let (held, rng) = (&self.held, &mut self.rng);
            let picked = (0..self.choices).map(|_| rng.usize(..held.len()));
            let at = picked.min_by_key(|&at| held[at].1).unwrap_or(0);
            self.places[self.held[at].0 as usize] = 0;
            self.held[at] = (parent, self.now);
            at
        };
        self.places[parent as usize] = at as u32 + 1;
        false
    }

    /// Returns the share of hits among `counted` lookups, after `warm_up`.
    fn ratio(mut self, warm_up: &[u32], counted: &[u32]) -> f64 {
        for &parent in warm_up {
            self.hits(parent);
        }
        let hits = counted.iter().filter(|&&parent| self.hits(parent)).count();
        hits as f64 / counted.len() as f64
    }
}

impl Policies {
    /// Computes the hit ratios of caches of `room` parents out of `parents`, at least one.
    pub(super) fn of(room: usize, parents: usize, warm_up: &[u32], counted: &[u32]) -> Self {
        let room = room.clamp(1, parents.max(1));
        let random = |choices| Randomized::new(choices, room, parents).ratio(warm_up, counted);
        Self { two_choices: random(2), random: random(1), best: best(room, counted) }
    }
}

fn best(room: usize, counted: &[u32]) -> f64 {
    let mut uses = BTreeMap::<u32, usize>::new();
    for &parent in counted {
        *uses.entry(parent).or_default() += 1;
    }
    let mut uses: Vec<usize> = uses.into_values().collect();
    uses.sort_unstable_by(|a, b| b.cmp(a));
    uses.iter().take(room).sum::<usize>() as f64 / counted.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_with_room_for_all_hits_and_a_smaller_one_is_between_none_and_the_best() {
        let mut rng = Rng::with_seed(7);
        // Half of the lookups use ten of a thousand parents.
        let mut draw = || if rng.bool() { rng.u32(..10) } else { rng.u32(..1000) };
        let lookups: Vec<u32> = (0..60_000).map(|_| draw()).collect();
        let (warm_up, counted) = lookups.split_at(20_000);
        let all = Policies::of(1000, 1000, warm_up, counted);
        assert_eq!(all, Policies { two_choices: 1.0, random: 1.0, best: 1.0 });
        let few = Policies::of(20, 1000, warm_up, counted);
        assert!(few.random < few.two_choices && few.two_choices < few.best, "{few:?}");
        assert!(few.random > 0.2 && few.best < 0.6, "{few:?}");
    }
}
