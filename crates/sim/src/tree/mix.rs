//! The operations of clients, and how often each occurs.

use crate::rng::Rng;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Reads a key.
    Get,
    /// Inserts or updates a key.
    Insert,
    /// Removes a key.
    Remove,
    /// Inserts a key if it is absent.
    InsertIfAbsent,
    /// Exchanges the value that the client last saw, sometimes for nothing.
    CompareExchange,
    /// Scans a range, forwards or backwards.
    Range,
}

/// Number of operations of each kind, out of sixteen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Number of gets.
    pub gets: u32,
    /// Number of inserts.
    pub inserts: u32,
    /// Number of removes.
    pub removes: u32,
    /// Number of inserts of absent keys.
    pub inserts_if_absent: u32,
    /// Number of compare-and-exchanges.
    pub exchanges: u32,
    /// Number of scans.
    pub ranges: u32,
}

impl Mix {
    /// All kinds of operations.
    pub const EVEN: Self =
        Self { gets: 3, inserts: 3, removes: 4, inserts_if_absent: 2, exchanges: 2, ranges: 2 };
    /// Makes leaves split.
    pub const GROW: Self =
        Self { gets: 2, inserts: 8, removes: 1, inserts_if_absent: 2, exchanges: 1, ranges: 2 };
    /// Makes leaves empty.
    pub const SHRINK: Self =
        Self { gets: 2, inserts: 1, removes: 9, inserts_if_absent: 0, exchanges: 2, ranges: 2 };
    /// Half inserts and half gets: readers of nodes that change.
    pub const READ_AND_GROW: Self =
        Self { gets: 8, inserts: 8, removes: 0, inserts_if_absent: 0, exchanges: 0, ranges: 0 };
    /// Inserts, and a few gets.
    pub const UPDATE: Self =
        Self { gets: 3, inserts: 13, removes: 0, inserts_if_absent: 0, exchanges: 0, ranges: 0 };

    /// Draws one operation.
    pub fn draw(&self, rng: &mut Rng) -> Asked {
        let kinds = [
            (self.gets, Asked::Get),
            (self.inserts, Asked::Insert),
            (self.removes, Asked::Remove),
            (self.inserts_if_absent, Asked::InsertIfAbsent),
            (self.exchanges, Asked::CompareExchange),
            (self.ranges, Asked::Range),
        ];
        let mut left = rng.below(kinds.iter().map(|(weight, _)| *weight as usize).sum());
        for (weight, asked) in kinds {
            match left.checked_sub(weight as usize) {
                Some(rest) => left = rest,
                None => return asked,
            }
        }
        Asked::Get
    }
}
