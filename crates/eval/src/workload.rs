//! The actions of clients: the paper's mixes (§5.1.3, table "Workloads") and YCSB's.
//!
//! In the paper's mixes, two thirds of inserts update a loaded key, which the skew draws as for lookups. One
//! third insert a new key anywhere in the key range. With [`Demand::updated`], every insert draws its key by
//! the skew instead. A draw of one of the coldest keys, a third of all draws, inserts a new key beside it.
//! YCSB's updates only update.
//!
//! Every client draws from its own seeded generator and inserts its own new keys. So the operations of a run
//! depend only on the seed and the number of clients. Every answer can be checked: a loaded key always
//! exists, a new key never does. Removes, if requested, draw their keys as lookups do. Then a loaded key may
//! or may not exist, and the answers give the number of entries left.
//!
//! A range begins at a key drawn as for a lookup. The paper's ranges have one size; YCSB's have one to that
//! many entries, uniformly. In range-write every second client only writes and the others only read, as half
//! of the paper's threads do. A single client does both.

use crate::keys::Keys;
use crate::zipf::Zipf;
use fastrand::Rng;

sherman_fabric::named! {
    /// A mix of operations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
    pub enum Workload {
        /// The paper's: all inserts.
        WriteOnly => "write-only",
        /// The paper's: half inserts, half lookups.
        WriteIntensive => "write-intensive",
        /// The paper's: 5 % inserts.
        ReadIntensive => "read-intensive",
        /// Lookups only.
        ReadOnly => "read-only",
        /// The paper's: ranges only.
        RangeOnly => "range-only",
        /// The paper's: half inserts, half ranges.
        RangeWrite => "range-write",
        /// YCSB A: half lookups, half updates.
        YcsbA => "ycsb-a",
        /// YCSB B: 95 % lookups, 5 % updates.
        YcsbB => "ycsb-b",
        /// YCSB C: lookups only.
        YcsbC => "ycsb-c",
        /// YCSB D: 95 % lookups of the keys inserted last, 5 % inserts of new keys.
        YcsbD => "ycsb-d",
        /// YCSB E: 95 % short ranges, 5 % inserts of new keys.
        YcsbE => "ycsb-e",
        /// YCSB F: half lookups, half read-modify-writes.
        YcsbF => "ycsb-f",
    }
}

/// One action of a client. Numbers are indexes of [`Keys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Look up an existing key.
    Get(u64),
    /// Insert under an existing key.
    Update(u64),
    /// Insert a new key.
    Insert(u64),
    /// Look up an existing key, then insert under it.
    ReadModifyWrite(u64),
    /// Read the entries from an existing key on.
    Range {
        /// The key.
        from: u64,
        /// The number of entries.
        entries: u64,
    },
    /// Remove a key, which may or may not exist.
    Remove(u64),
}

/// Parts of [`Mix::WHOLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mix {
    get: u32,
    update: u32,
    insert: u32,
    read_modify_write: u32,
    range: u32,
}

impl Mix {
    /// Divisible by 3 for the paper's thirds and by 100 for its percentages.
    const WHOLE: u32 = 600;

    /// The paper's: `percent` inserts, two thirds of which are updates.
    const fn paper(percent: u32) -> Self {
        let inserts = percent * Self::WHOLE / 100;
        let get = Self::WHOLE - inserts;
        Self { get, update: inserts / 3 * 2, insert: inserts / 3, read_modify_write: 0, range: 0 }
    }

    /// Returns the same mix with ranges instead of lookups.
    const fn ranges(self) -> Self {
        Self { get: 0, range: self.get, ..self }
    }

    const fn ycsb(update: u32, insert: u32, read_modify_write: u32) -> Self {
        let part = Self::WHOLE / 100;
        Self {
            get: (100 - update - insert - read_modify_write) * part,
            update: update * part,
            insert: insert * part,
            read_modify_write: read_modify_write * part,
            range: 0,
        }
    }
}

impl Workload {
    const fn mix(self) -> Mix {
        match self {
            Self::WriteOnly => Mix::paper(100),
            Self::WriteIntensive => Mix::paper(50),
            Self::ReadIntensive => Mix::paper(5),
            Self::ReadOnly | Self::YcsbC => Mix::paper(0),
            Self::RangeOnly => Mix::paper(0).ranges(),
            Self::RangeWrite => Mix::paper(50).ranges(),
            Self::YcsbA => Mix::ycsb(50, 0, 0),
            Self::YcsbB => Mix::ycsb(5, 0, 0),
            Self::YcsbD => Mix::ycsb(0, 5, 0),
            Self::YcsbE => Mix::ycsb(0, 5, 0).ranges(),
            Self::YcsbF => Mix::ycsb(0, 0, 50),
        }
    }

    /// Returns the share of operations that insert a new key.
    pub fn new_keys(self) -> f64 {
        f64::from(self.mix().insert) / f64::from(Mix::WHOLE)
    }

    /// Returns whether it reads ranges.
    pub fn has_ranges(self) -> bool {
        self.mix().range > 0
    }

    /// Returns whether all operations are gets, or all are inserts and updates.
    pub const fn is_of_one_kind(self) -> bool {
        matches!(self, Self::ReadOnly | Self::YcsbC | Self::WriteOnly)
    }

    /// Returns whether it is one of the paper's mixes.
    pub const fn is_paper_s(self) -> bool {
        matches!(
            self,
            Self::WriteOnly | Self::WriteIntensive | Self::ReadIntensive | Self::RangeOnly | Self::RangeWrite
        )
    }

    /// Returns whether lookups favour the keys inserted last.
    const fn reads_latest(self) -> bool {
        matches!(self, Self::YcsbD)
    }
}

crate::parsed_by_name!(Workload, "no workload has this name; available are ");

/// A mix, and the other parameters of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The mix of all operations except removes.
    pub workload: Workload,
    /// Percent of operations that remove a key.
    pub removes: u32,
    /// Entries of a range; for YCSB's ranges, the most.
    pub range_size: u64,
    /// For even keys and the paper's mixes: inserts update keys of ranks below this, and insert new keys
    /// beside the others.
    pub updated: Option<u64>,
}

impl Demand {
    /// Makes a workload without removes, with ranges of a hundred entries.
    pub const fn of(workload: Workload) -> Self {
        Self { workload, removes: 0, range_size: 100, updated: None }
    }
}

/// Generates the actions of one client.
#[derive(Clone, Debug)]
pub struct Generator {
    demand: Demand,
    keys: Keys,
    zipf: Zipf,
    rng: Rng,
    client: u64,
    clients: u64,
    /// The index of the first new key of all clients.
    first_new: u64,
    inserted: u64,
    mix: Mix,
}

impl Generator {
    /// Makes the generator of client number `client` of `clients`. `zipf` must have as many ranks as there
    /// are loaded keys.
    pub fn new(demand: Demand, keys: Keys, zipf: Zipf, seed: u64, client: u64, clients: u64) -> Self {
        debug_assert!(zipf.n() == keys.count() && client < clients);
        // Streams of neighbouring seeds must not overlap. The generator mixes well, so a hash of the pair is
        // enough.
        let rng = Rng::with_seed(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(client).rotate_left(32) ^ seed,
        );
        let mix = match demand.workload {
            Workload::RangeWrite if clients > 1 && client.is_multiple_of(2) => Workload::RangeOnly.mix(),
            Workload::RangeWrite if clients > 1 => Workload::WriteOnly.mix(),
            workload => workload.mix(),
        };
        debug_assert!(demand.updated.is_none() || keys.is_even());
        Self { demand, keys, zipf, rng, client, clients, first_new: keys.count(), inserted: 0, mix }
    }

    /// Returns the same generator for a tree in which other clients have inserted new keys of indexes below
    /// `first_new`. All clients of a measurement must have the same. New keys beside loaded ones
    /// ([`Demand::updated`]) have indexes of their own.
    pub fn inserting_from(self, first_new: u64) -> Self {
        debug_assert!(first_new >= self.keys.count() && self.demand.updated.is_none());
        Self { first_new, ..self }
    }

    /// Returns the next action. If short keys have no new values left, inserts of new keys become updates.
    #[inline]
    pub fn next_action(&mut self) -> Action {
        if self.demand.removes > 0 && self.rng.u32(0..100) < self.demand.removes {
            return Action::Remove(self.existing());
        }
        let mix = self.mix;
        let dice = self.rng.u32(0..Mix::WHOLE);
        if dice < mix.get {
            return Action::Get(self.existing());
        }
        if dice < mix.get + mix.range {
            return Action::Range { from: self.existing(), entries: self.range_entries() };
        }
        if let Some(updated) = self.demand.updated {
            return self.put(updated);
        }
        if dice < mix.get + mix.range + mix.insert {
            let index = self.own(self.inserted);
            if self.keys.has(index) {
                self.inserted += 1;
                return Action::Insert(index);
            }
        }
        let index = self.existing();
        if mix.read_modify_write > 0 { Action::ReadModifyWrite(index) } else { Action::Update(index) }
    }

    fn range_entries(&mut self) -> u64 {
        match self.demand.workload {
            Workload::YcsbE => self.rng.u64(1..=self.demand.range_size.max(1)),
            _ => self.demand.range_size,
        }
    }

    /// Returns whether a loaded key may have been removed.
    pub fn removes(&self) -> bool {
        self.demand.removes > 0
    }

    /// Returns the number of new keys it has generated.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Returns the keys it draws from.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Returns the `nth` new key of this client.
    fn own(&self, nth: u64) -> u64 {
        self.first_new.saturating_add(nth.saturating_mul(self.clients)).saturating_add(self.client)
    }

    /// Returns an insert whose key the skew draws: an update for one of the hottest keys, otherwise a new key
    /// beside it.
    fn put(&mut self, updated: u64) -> Action {
        let rank = self.zipf.sample(&mut self.rng);
        let turn = self.inserted.saturating_mul(self.clients).saturating_add(self.client).saturating_add(1);
        let index = self.keys.beside(rank, turn);
        if rank < updated || !self.keys.has(index) {
            return Action::Update(rank);
        }
        self.inserted += 1;
        Action::Insert(index)
    }

    fn existing(&mut self) -> u64 {
        let rank = self.zipf.sample(&mut self.rng);
        if !self.demand.workload.reads_latest() {
            return rank;
        }
        // The latest keys that this client knows: its own, newest first, then the loaded keys, last first.
        match self.inserted.checked_sub(rank + 1) {
            Some(nth) => self.own(nth),
            None => self.keys.count() - 1 - (rank - self.inserted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::HotKeys;
    use std::collections::BTreeSet;

    fn generator(workload: Workload, keys: u64, theta: f64, client: u64, clients: u64) -> Generator {
        let keys = Keys::new(keys, 8, HotKeys::Scattered).expect("legal keys");
        let zipf = Zipf::new(keys.count(), theta).expect("a legal skew");
        Generator::new(Demand::of(workload), keys, zipf, 1, client, clients)
    }

    /// Returns the shares of gets, updates, inserts, read-modify-writes, ranges and removes among 60,000
    /// actions, in percent.
    fn shares(generator: &mut Generator) -> [f64; 6] {
        let mut counts = [0.0; 6];
        for _ in 0..60_000 {
            let kind = match generator.next_action() {
                Action::Get(_) => 0,
                Action::Update(_) => 1,
                Action::Insert(_) => 2,
                Action::ReadModifyWrite(_) => 3,
                Action::Range { .. } => 4,
                Action::Remove(_) => 5,
            };
            counts[kind] += 1.0 / 600.0;
        }
        counts
    }

    #[test]
    fn mixes_are_those_of_the_paper_and_of_ycsb() {
        for (workload, expected) in [
            (Workload::WriteOnly, [0.0, 66.7, 33.3, 0.0, 0.0]),
            (Workload::WriteIntensive, [50.0, 33.3, 16.7, 0.0, 0.0]),
            (Workload::ReadIntensive, [95.0, 3.3, 1.7, 0.0, 0.0]),
            (Workload::ReadOnly, [100.0, 0.0, 0.0, 0.0, 0.0]),
            (Workload::RangeOnly, [0.0, 0.0, 0.0, 0.0, 100.0]),
            (Workload::RangeWrite, [0.0, 33.3, 16.7, 0.0, 50.0]),
            (Workload::YcsbA, [50.0, 50.0, 0.0, 0.0, 0.0]),
            (Workload::YcsbB, [95.0, 5.0, 0.0, 0.0, 0.0]),
            (Workload::YcsbC, [100.0, 0.0, 0.0, 0.0, 0.0]),
            (Workload::YcsbD, [95.0, 0.0, 5.0, 0.0, 0.0]),
            (Workload::YcsbE, [0.0, 0.0, 5.0, 0.0, 95.0]),
            (Workload::YcsbF, [50.0, 0.0, 0.0, 50.0, 0.0]),
        ] {
            let shares = shares(&mut generator(workload, 1000, 0.5, 0, 1));
            for (share, expected) in shares.into_iter().zip(expected.into_iter().chain([0.0])) {
                assert!(
                    (share - expected).abs() < if expected == 0.0 { 1e-9 } else { 1.0 },
                    "{workload:?}: {share}"
                );
            }
            assert!((workload.new_keys() * 100.0 - expected[2]).abs() < 0.1);
            assert_eq!(workload.has_ranges(), expected[4] > 0.0);
        }
    }

    #[test]
    fn in_range_write_half_of_the_clients_write_and_the_others_read() {
        let shares =
            |client, clients| shares(&mut generator(Workload::RangeWrite, 1000, 0.5, client, clients));
        assert_eq!(shares(0, 4)[4].round(), 100.0);
        assert_eq!(shares(3, 4)[1].round() + shares(3, 4)[2].round(), 100.0);
        assert_eq!(shares(0, 1)[4].round(), 50.0);
    }

    #[test]
    fn removes_take_their_share_of_every_mix() {
        let mut removing = generator(Workload::WriteIntensive, 1000, 0.5, 0, 1);
        removing.demand.removes = 20;
        for (share, expected) in shares(&mut removing).into_iter().zip([40.0, 26.7, 13.3, 0.0, 0.0, 20.0]) {
            assert!((share - expected).abs() < 1.0, "{share} for {expected}");
        }
        removing.demand.removes = 100;
        assert_eq!(shares(&mut removing)[..5], [0.0; 5]);
    }

    #[test]
    fn the_paper_s_ranges_have_one_size_and_those_of_ycsb_all_up_to_it() {
        let sizes = |workload| {
            let mut generator = generator(workload, 1000, 0.5, 0, 1);
            generator.demand.range_size = 10;
            let mut sizes = BTreeSet::new();
            for _ in 0..1000 {
                if let Action::Range { entries, .. } = generator.next_action() {
                    sizes.insert(entries);
                }
            }
            sizes
        };
        assert_eq!(sizes(Workload::RangeOnly), BTreeSet::from([10]));
        assert_eq!(sizes(Workload::RangeWrite), BTreeSet::from([10]));
        assert_eq!(sizes(Workload::YcsbE), (1..=10).collect());
    }

    #[test]
    fn clients_insert_keys_that_nobody_else_does_and_use_none_before_it_is_there() {
        for workload in Workload::ALL {
            let mut all_new = BTreeSet::new();
            for client in 0..3 {
                let mut generator = generator(workload, 100, 0.99, client, 3);
                let mut known: BTreeSet<u64> = (0..100).collect();
                for _ in 0..5_000 {
                    match generator.next_action() {
                        Action::Insert(index) => {
                            assert!(
                                known.insert(index) && all_new.insert(index),
                                "{workload:?}: {index} again"
                            );
                        }
                        Action::Get(index)
                        | Action::Update(index)
                        | Action::ReadModifyWrite(index)
                        | Action::Remove(index)
                        | Action::Range { from: index, .. } => {
                            assert!(known.contains(&index), "{workload:?}: {index} is not there");
                        }
                    }
                }
                assert_eq!(generator.inserted() as usize + 100, known.len());
            }
        }
    }

    #[test]
    fn all_inserts_may_follow_the_skew_the_coldest_third_with_new_keys() {
        for (hot, theta) in
            [(HotKeys::Scattered, 0.99), (HotKeys::Clustered, 0.99), (HotKeys::Scattered, 0.0)]
        {
            let keys = Keys::even(10_000, 8, hot).expect("legal keys");
            let zipf = Zipf::new(10_000, theta).expect("a legal skew");
            let updated = zipf.ranks_of_share(2.0 / 3.0);
            let demand = Demand { updated: Some(updated), ..Demand::of(Workload::WriteOnly) };
            let (mut new, mut hottest) = (BTreeSet::new(), 0);
            for client in 0..2 {
                let mut generator = Generator::new(demand, keys, zipf, 1, client, 2);
                for _ in 0..9_000 {
                    match generator.next_action() {
                        Action::Insert(index) => {
                            assert!(
                                keys.has(index) && index >= keys.count() && new.insert(index),
                                "{hot:?}: {index}"
                            );
                        }
                        Action::Update(rank) => {
                            assert!(rank < updated);
                            hottest += u64::from(rank == 0);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            let share = |count: u64| count as f64 / 18_000.0;
            assert!((share(new.len() as u64) - 1.0 / 3.0).abs() < 0.03, "{hot:?}: {}", new.len());
            assert!((share(hottest) - zipf.share_of_first(1)).abs() < 0.02, "{hot:?}: {hottest}");
        }
    }

    #[test]
    fn ycsb_d_reads_what_was_inserted_last() {
        let mut generator = generator(Workload::YcsbD, 10_000, 0.99, 0, 1);
        let recent = (0..100_000).filter(|_| match generator.next_action() {
            Action::Get(index) => index + 100 >= 10_000 + generator.inserted(),
            _ => false,
        });
        assert!(recent.count() > 45_000);
    }

    #[test]
    fn when_short_keys_run_out_inserts_become_updates() {
        let keys = Keys::new(250, 1, HotKeys::Scattered).expect("legal keys");
        let zipf = Zipf::new(250, 0.0).expect("a legal skew");
        let mut generator = Generator::new(Demand::of(Workload::WriteOnly), keys, zipf, 1, 0, 1);
        let new = (0..10_000).filter(|_| matches!(generator.next_action(), Action::Insert(_))).count();
        assert_eq!((new, generator.inserted()), (6, 6));
    }

    #[test]
    fn a_seed_and_a_client_number_decide_everything() {
        let actions = |client| {
            let mut generator = generator(Workload::WriteIntensive, 1000, 0.99, client, 4);
            (0..100).map(|_| generator.next_action()).collect::<Vec<_>>()
        };
        assert_eq!(actions(1), actions(1));
        assert_ne!(actions(1), actions(2));
    }

    #[test]
    fn names_lead_back_to_workloads() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
        }
        let error = "write-sometimes".parse::<Workload>().expect_err("unknown");
        assert!(error.starts_with("no workload has this name; available are write-only, write-intensive"));
    }
}
