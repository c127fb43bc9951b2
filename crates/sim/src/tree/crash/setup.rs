//! Settings of a cluster and its compute servers: every combination, or a few that cover every pair of
//! settings.

use super::super::scenario::{Scenario, Shape};
use crate::rng::Rng;
use crate::sim::Inline;
use sherman_core::{Format, Techniques};
use sherman_layout::{LaneWidth, ReleaseMode};
use std::collections::BTreeSet;
use std::fmt;

/// Number of values of each setting, in the order of [`Setup::of`].
const CHOICES: [usize; 12] = [2, 2, 2, 2, 2, 2, 5, 3, 2, 3, 2, 2];
/// Index of the first setting that is not combined in every way.
const TURNS_FROM: usize = 7;
/// Number of candidate rows for each row that is taken.
const TRIES: usize = 64;

const FORMATS: [Format; 5] =
    [Format::LineHashed, Format::LineStamped, Format::Sorted, Format::SortedStamped, Format::TwoLevel];
const RELEASES: [ReleaseMode; 3] = [ReleaseMode::Write, ReleaseMode::Faa, ReleaseMode::Cas];
const SHAPES: [Shape; 3] = [Shape::Four, Shape::WideKeys, Shape::LongEntries];

type Row = [usize; CHOICES.len()];

/// The fixed settings of a cluster, a tree and its compute servers. All of them write redo records, because
/// the others are not crash-safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The techniques, with `redo`.
    pub techniques: Techniques,
    /// The tree's format.
    pub format: Format,
    /// How lanes are released.
    pub release: ReleaseMode,
    /// The width of lanes.
    pub width: LaneWidth,
    /// The tree's shape.
    pub shape: Shape,
    /// Number of memory servers.
    pub servers: u16,
    /// Copies of each volume.
    pub replicas: u16,
    /// The compute servers whose lists execute inside `post`.
    pub inline: Inline,
}

impl Setup {
    fn of(row: &Row) -> Self {
        let on = |at: usize| row[at] == 1;
        Self {
            techniques: Techniques {
                combine: on(0),
                hierarchical: on(1),
                queue: on(2),
                handover: on(3),
                lock_read: on(4),
                cache: on(5),
                redo: true,
                backoff: true,
                combining: on(11),
                shared_reads: on(11),
                fair: on(11),
            },
            format: FORMATS[row[6]],
            release: RELEASES[row[7]],
            width: if on(8) { LaneWidth::Bits64 } else { LaneWidth::Bits16 },
            // A remove from a hashed leaf of more lines than a key can be in seldom shows that the leaf is
            // small.
            shape: match SHAPES[row[9]] {
                Shape::WideKeys if FORMATS[row[6]] == Format::LineHashed => Shape::Four,
                shape => shape,
            },
            servers: 1 + row[10] as u16,
            replicas: 1,
            inline: Inline::Nobody,
        }
    }

    /// Returns a few setups that together cover every pair of settings. The first is `Techniques::OURS`.
    pub fn pairwise() -> Vec<Self> {
        let mut wanting = BTreeSet::new();
        for (one, ways) in CHOICES.iter().enumerate() {
            for (other, others) in CHOICES.iter().enumerate().skip(one + 1) {
                wanting.extend(
                    (0..*ways).flat_map(|way| (0..*others).map(move |second| (one, way, other, second))),
                );
            }
        }
        let pairs = |row: &Row| {
            let row = *row;
            (0..row.len()).flat_map(move |one| {
                (one + 1..row.len()).map(move |other| (one, row[one], other, row[other]))
            })
        };
        let mut rng = Rng::new(0x5041_4952);
        let mut rows: Vec<Row> = Vec::new();
        let mut next: Row = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1];
        while !wanting.is_empty() {
            pairs(&next).for_each(|pair| {
                wanting.remove(&pair);
            });
            rows.push(next);
            let tried = (0..TRIES).map(|_| CHOICES.map(|ways| rng.below(ways)));
            next = tried
                .max_by_key(|row| pairs(row).filter(|pair| wanting.contains(pair)).count())
                .unwrap_or(next);
            // Random rows may never contain some pair, so set the first missing pair.
            if let Some(&(one, way, other, second)) = wanting.first() {
                (next[one], next[other]) = (way, second);
            }
        }
        rows.iter().map(Self::of).collect()
    }

    /// Returns every combination of techniques with every format. The other settings take turns.
    pub fn all() -> Vec<Self> {
        let (fixed, turns) = CHOICES.split_at(TURNS_FROM);
        let row = |number: usize| {
            let (mut rest, mut row) = (number, [0; CHOICES.len()]);
            for (way, ways) in row.iter_mut().zip(fixed) {
                (*way, rest) = (rest % ways, rest / ways);
            }
            // There are as many turns as combinations of these settings. Their order has no period in common
            // with the rows above.
            let mut rest = number.wrapping_mul(7) % turns.iter().product::<usize>();
            for (way, ways) in row[TURNS_FROM..].iter_mut().zip(turns) {
                (*way, rest) = (rest % ways, rest / ways);
            }
            row
        };
        (0..fixed.iter().product()).map(|number| Self::of(&row(number))).collect()
    }

    /// Returns the same setup with two copies of each volume.
    pub fn replicated(self) -> Self {
        Self { replicas: 2, ..self }
    }

    /// Returns the setups in which operations begin without futures: the default techniques, in every shape
    /// of leaves. The victim's lists execute inside `post`, and so do those of the others or not.
    pub fn inline() -> Vec<Self> {
        let ours = Self::of(&[1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 1]);
        let shapes = [Shape::Four, Shape::Pairs, Shape::LongEntries];
        let all = shapes.iter().zip([Inline::Everybody, Inline::Some, Inline::Some]);
        all.map(|(&shape, inline)| Self { shape, inline, ..ours }).collect()
    }

    /// Returns the scenario of such a cluster, with two other compute servers that survive.
    pub(super) fn scenario(&self, lease_nanos: u64) -> Scenario {
        Scenario {
            shape: self.shape,
            format: self.format,
            techniques: self.techniques,
            servers: self.servers,
            replicas: self.replicas,
            hosts: self.replicas,
            computes: 2,
            threads: 1,
            operations: 3,
            lane_width: self.width,
            release: self.release,
            crashes: true,
            lease_nanos,
            inline: self.inline,
            ..Scenario::default()
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Techniques { combine, hierarchical, queue, handover, lock_read, cache, .. } = self.techniques;
        let named = [
            (combine, "combine"),
            (hierarchical, "hierarchical"),
            (queue, "queue"),
            (handover, "handover"),
            (lock_read, "lock_read"),
            (cache, "cache"),
        ];
        let on: Vec<&str> = named.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect();
        write!(f, "{} {:?}, {:?} by {:?}, ", self.format.name(), self.shape, self.width, self.release)?;
        write!(f, "{} servers, {} copies, with {}", self.servers, self.replicas, on.join("+"))?;
        if self.inline == Inline::Nobody {
            Ok(())
        } else {
            write!(f, ", lists execute inside post: {:?}", self.inline)
        }
    }
}
