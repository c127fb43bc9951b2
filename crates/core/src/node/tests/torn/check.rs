//! Judges what a reader concludes from a mixture of lines.

use super::super::*;
use super::history::History;
use crate::node::{LINE, Lookup, Position, Scratch};
use std::collections::BTreeMap;

/// What a reader concludes about a key. 0 stands for an empty value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Absent,
    Found(u8),
}

/// A conclusion that no moment of the operation allows.
#[derive(Clone, Debug)]
pub(super) struct Violation {
    /// The moment each line was taken from.
    pub(super) times: Vec<usize>,
    /// The number of the first line.
    pub(super) first_line: usize,
    pub(super) key: u8,
    pub(super) outcome: Outcome,
}

impl Violation {
    /// How many moments the operation lasted.
    pub(super) fn span(&self) -> usize {
        let (first, last) = window(&self.times);
        last - first
    }

    /// The violation as text.
    pub(super) fn show(&self, history: &History<'_>) -> String {
        let mut text = format!("key {} is {:?} though at no moment it was so.", self.key, self.outcome);
        for (line, &time) in (self.first_line..).zip(&self.times) {
            text += &format!("\n  line {line} of moment {time}");
        }
        let (first, last) = window(&self.times);
        for time in first..=last {
            let moment = &history.moments[time];
            text += &format!("\n  moment {time}, after {}: {:?}", moment.after, moment.tree);
        }
        text
    }
}

fn window(times: &[usize]) -> (usize, usize) {
    times.iter().fold((usize::MAX, 0), |(first, last), &time| (first.min(time), last.max(time)))
}

pub(super) const KEYS: [u8; 15] = [0, 5, 10, 11, 12, 15, 20, 21, 25, 30, 50, 60, 61, 63, 0xff];

/// A set of moments, as bits.
pub(super) type Moments = u128;

/// Everything that a reader can conclude from an image, each with the moments that allow it. `None` if the
/// reader rejects the image.
type Conclusions = Option<Vec<(u8, Outcome, Moments)>>;

fn conclude(history: &History<'_>, image: &[u8]) -> Conclusions {
    let node = Node::open(history.shape, image, 0).ok()?;
    let mut scanned = Vec::new();
    let scanned = node.collect(&[], None, &mut Scratch::default(), &mut scanned).then_some(scanned);
    assert_eq!(scanned.is_some(), node.entries_whole());
    let mut value = Vec::new();
    let mut conclusions = Vec::new();
    for key in KEYS {
        let bytes = history.key(key);
        if node.position(&bytes) != Position::Inside {
            continue;
        }
        let outcome = match node.find(&bytes) {
            Lookup::Torn => continue,
            Lookup::Absent => Outcome::Absent,
            Lookup::Found(slot) => {
                node.value_into(slot, &mut value);
                found(&value)
            }
        };
        if let Some(scanned) = &scanned {
            let mut entries = scanned.chunks_exact(history.shape.entry_len());
            let met =
                entries.find(|entry| entry[..bytes.len()] == bytes).map(|entry| found(&entry[bytes.len()..]));
            assert_eq!(
                met.is_some(),
                outcome != Outcome::Absent,
                "a scan and a lookup of one image disagree on {key}"
            );
            // If the image shows a key twice, the scan may have returned the other entry.
            if let Some(met) = met.filter(|met| *met != outcome) {
                conclusions.push((key, met, allowed(history, key, met)));
            }
        }
        conclusions.push((key, outcome, allowed(history, key, outcome)));
    }
    Some(conclusions)
}

/// The outcome for a value. A value of mixed bytes was never current, so no moment allows it.
pub(super) fn found(value: &[u8]) -> Outcome {
    let first = value.first().copied().unwrap_or(0);
    Outcome::Found(if value.iter().all(|byte| *byte == first) { first } else { 0xff })
}

/// The moments at which `outcome` was true of `key`.
pub(super) fn allowed(history: &History<'_>, key: u8, outcome: Outcome) -> Moments {
    let mut bits = 0;
    for (time, moment) in history.moments.iter().enumerate() {
        let is_so = moment.tree.iter().any(|tree| match (tree.get(&key), outcome) {
            (None, Outcome::Absent) => true,
            (Some(_), Outcome::Found(_)) if history.shape.payload_len == 0 => true,
            (Some(held), Outcome::Found(found)) => *held == found,
            _ => false,
        });
        bits |= Moments::from(is_so) << time;
    }
    bits
}

fn against(times: &[usize], conclusions: &[(u8, Outcome, Moments)], into: &mut Vec<Violation>) {
    let (first, last) = window(times);
    let lasted = (Moments::MAX >> (127 - last)) & (Moments::MAX << first);
    for &(key, outcome, allowed) in conclusions {
        if allowed & lasted == 0 {
            into.push(Violation { times: times.to_vec(), first_line: 0, key, outcome });
        }
    }
}

fn mixture(history: &History<'_>, times: &[usize]) -> Vec<u8> {
    let line = |(line, &time): (usize, &usize)| &history.moments[time].image[line * LINE..(line + 1) * LINE];
    times.iter().enumerate().map(line).collect::<Vec<_>>().concat()
}

/// The violations of one mixture.
pub(super) fn judge(history: &History<'_>, times: &[usize]) -> Vec<Violation> {
    let mut found = Vec::new();
    if let Some(conclusions) = conclude(history, &mixture(history, times)) {
        against(times, &conclusions, &mut found);
    }
    found
}

/// Tries *all* mixtures of a node of four lines. Returns how many a reader accepts, and the violations among
/// them.
pub(super) fn violations(history: &History<'_>) -> (usize, Vec<Violation>) {
    let moments = history.moments.len();
    assert!(history.shape.lines() == 4 && (2..=64).contains(&moments), "{moments} moments are too many");
    let [heads, firsts, seconds, thirds] = std::array::from_fn(|line| alike(history, line));
    let (mut accepted, mut found) = (0, Vec::new());
    for choice in product([&heads, &firsts, &seconds, &thirds]) {
        // One conclusion is valid for all moments that share these bytes.
        let image = mixture(history, &choice.map(|times| times[0]));
        let Some(conclusions) = conclude(history, &image) else { continue };
        for times in product(choice) {
            accepted += 1;
            against(&times.map(|time| *time), &conclusions, &mut found);
        }
    }
    (accepted, found)
}

/// Groups the moments into classes. All moments of a class have the same bytes in `line`.
pub(super) fn alike(history: &History<'_>, line: usize) -> Vec<Vec<usize>> {
    let mut classes: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (time, moment) in history.moments.iter().enumerate() {
        classes.entry(&moment.image[line * LINE..(line + 1) * LINE]).or_default().push(time);
    }
    classes.into_values().collect()
}

/// Every combination of one element from each vector.
fn product<T>(of: [&Vec<T>; 4]) -> impl Iterator<Item = [&T; 4]> {
    let [a, b, c, d] = of;
    a.iter().flat_map(move |a| {
        b.iter().flat_map(move |b| c.iter().flat_map(move |c| d.iter().map(move |d| [a, b, c, d])))
    })
}

/// Like [`violations`], for nodes of more lines: tries `count` random mixtures within short spans.
pub(super) fn violations_among_samples(
    history: &History<'_>,
    seed: u64,
    count: usize,
) -> (usize, Vec<Violation>) {
    let mut numbers = Numbers(seed);
    let moments = history.moments.len();
    assert!(moments <= 64, "{moments} moments are too many");
    let (mut accepted, mut found) = (0, Vec::new());
    for _ in 0..count {
        let first = numbers.below(moments);
        let span = 1 + numbers.below(moments - first).min(numbers.below(24));
        let times: Vec<usize> = (0..history.shape.lines()).map(|_| first + numbers.below(span)).collect();
        if let Some(conclusions) = conclude(history, &mixture(history, &times)) {
            accepted += 1;
            against(&times, &conclusions, &mut found);
        }
    }
    (accepted, found)
}
