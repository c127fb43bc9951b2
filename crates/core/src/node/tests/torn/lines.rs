//! Readers that read the lines of one key of a hashed leaf and nothing else.
//!
//! Such a reader's operation spans the moments of these lines alone. The tests try all mixtures of the lines
//! of each key, in leaves of all sizes, without sampling. They do not enumerate the moments. Lines with the
//! same bytes give the same answer. The answer is a violation iff there is a gap, a run of moments none of
//! which allows the answer, and each of these lines had its bytes at some moment of the gap.

use super::super::*;
use super::check::{KEYS, Moments, Outcome, Violation, alike, allowed, found};
use super::history::is_stretched;
use super::history::{History, Op, Rule};
use super::{LIFE, assert_none, life, second_hand};
use crate::node::hashed::{AT_LINE_TREE, DENSE, DETACHED, HIGH_OPEN, carries_low, window_bytes, window_of};
use crate::node::header::AT_STAMP;
use crate::node::shape::AT_BITMAP;
use crate::node::{LINE, Lookup, Position, Window, get_u16, put_u16};

/// A plain `cargo test` takes one in this many random histories.
fn part() -> u64 {
    if runs_in_full() { 1 } else { 5 }
}

/// What the reader does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// Nothing.
    Sound,
    /// It does not compare the stamps of the lines.
    IgnoresStamps,
    /// It takes the fences of the lines for the lowest and the highest key.
    IgnoresFences,
    /// It uses detached lines.
    IgnoresMarks,
}

impl Reader {
    /// Changes the lines such that a sound reader sees in them what this reader sees.
    fn sees(self, shape: &Shape, first_line: usize, lines: &mut [u8]) {
        for (number, line) in (first_line..).zip(lines.chunks_exact_mut(LINE)) {
            match self {
                Self::Sound => {}
                Self::IgnoresStamps => put_u16(line, AT_STAMP, 1),
                Self::IgnoresFences => {
                    let marks = get_u16(line, AT_BITMAP) | HIGH_OPEN;
                    put_u16(line, AT_BITMAP, marks);
                    // Nobody can read a dense line without its low fence.
                    if carries_low(shape, number) && marks & DENSE == 0 {
                        line[AT_LINE_TREE - shape.key_len..AT_LINE_TREE].fill(0);
                    }
                }
                Self::IgnoresMarks => {
                    let marks = get_u16(line, AT_BITMAP) & !DETACHED;
                    put_u16(line, AT_BITMAP, marks);
                }
            }
        }
    }
}

fn conclude(shape: &Shape, lines: &[u8], key: &[u8]) -> Option<Outcome> {
    let window = Window::open(shape, lines, key).ok()?;
    let mut value = Vec::new();
    Some(if window.get(key, &mut value) { found(&value) } else { Outcome::Absent })
}

/// One content of a line, and the moments at which the line had it.
struct Content<'h> {
    bytes: &'h [u8],
    moments: Moments,
}

fn contents<'h>(history: &'h History<'_>, line: usize) -> Vec<Content<'h>> {
    let content = |times: Vec<usize>| Content {
        bytes: &history.moments[times[0]].image[line * LINE..(line + 1) * LINE],
        moments: times.iter().fold(0, |moments, time| moments | 1 << time),
    };
    alike(history, line).into_iter().map(content).collect()
}

/// The longest runs of moments that do not allow an outcome.
fn gaps(allowed: Moments, moments: usize) -> Vec<Moments> {
    let mut gaps = vec![0];
    for time in 0..moments {
        let last = gaps.len() - 1;
        if allowed >> time & 1 == 0 {
            gaps[last] |= 1 << time;
        } else if gaps[last] != 0 {
            gaps.push(0);
        }
    }
    gaps.retain(|gap| *gap != 0);
    gaps
}

/// Tries all mixtures of the lines of each key. Returns how many the reader accepts, and the violations: one
/// for each choice of contents and each gap.
fn violations(history: &History<'_>, reader: Reader) -> (u128, Vec<Violation>) {
    let moments = history.moments.len();
    assert!((2..=128).contains(&moments), "{moments} moments are too many");
    let (mut accepted, mut violations) = (0, Vec::new());
    for key in KEYS {
        let bytes = history.key(key);
        let window = window_of(history.shape, &bytes);
        let lines: Vec<Vec<Content<'_>>> = window.clone().map(|line| contents(history, line)).collect();
        let mut known: Vec<(Outcome, Vec<Moments>)> = Vec::new();
        let choices: usize = lines.iter().map(Vec::len).product();
        let mut mixture = Vec::new();
        for number in 0..choices {
            let mut rest = number;
            let choice: Vec<&Content<'_>> = lines
                .iter()
                .map(|contents| {
                    let index = rest % contents.len();
                    rest /= contents.len();
                    &contents[index]
                })
                .collect();
            mixture.clear();
            choice.iter().for_each(|content| mixture.extend_from_slice(content.bytes));
            reader.sees(history.shape, window.start, &mut mixture);
            let Some(outcome) = conclude(history.shape, &mixture, &bytes) else { continue };
            accepted +=
                choice.iter().map(|content| u128::from(content.moments.count_ones())).product::<u128>();
            if !known.iter().any(|(seen, _)| *seen == outcome) {
                known.push((outcome, gaps(allowed(history, key, outcome), moments)));
            }
            for gap in known.iter().filter(|(seen, _)| *seen == outcome).flat_map(|(_, gaps)| gaps) {
                if choice.iter().all(|content| content.moments & gap != 0) {
                    let times = choice
                        .iter()
                        .map(|content| (content.moments & gap).trailing_zeros() as usize)
                        .collect();
                    violations.push(Violation { times, first_line: window.start, key, outcome });
                }
            }
        }
    }
    (accepted, violations)
}

/// Asserts that no mixture misleads a reader by lines, and that the lines answer whenever the node would.
fn assert_sound(history: &History<'_>) -> u128 {
    let (accepted, found) = violations(history, Reader::Sound);
    assert_none(&found, history);
    for moment in history.moments.iter().filter(|moment| moment.tree.len() == 1) {
        let Ok(node) = Node::open(history.shape, &moment.image, 0) else { continue };
        for key in KEYS.map(|key| history.key(key)) {
            let by_lines = conclude(history.shape, &moment.image[window_bytes(history.shape, &key)], &key);
            // Lines of a dense leaf do not show where a high fence is that is too far away.
            let far = node.shape.is_dense
                && node.high().is_some()
                && !history.shape.for_keys(&node.low(), Some(&key)).is_dense;
            let inside = node.position(&key) == Position::Inside && !far;
            assert_eq!(by_lines.is_some(), inside, "{key:x?} after {}", moment.after);
            let there = matches!(node.find(&key), Lookup::Found(_));
            assert!(!inside || by_lines.is_some_and(|outcome| (outcome != Outcome::Absent) == there));
        }
    }
    accepted
}

/// Hashed leaves: all lines in one window, windows of 4 of 7 and 15 lines, keys that fit a word or not. Some
/// are dense, some change from dense to wide and back ([`is_stretched`]).
fn hashed_leaves() -> Vec<Shape> {
    let sizes = [
        (8, 8, 256),
        (1, 0, 256),
        (16, 4, 256),
        (8, 8, 320),
        (8, 7, 320),
        (8, 7, 448),
        (8, 8, 512),
        (4, 9, 512),
        (8, 8, 1024),
        (16, 2, 1024),
    ];
    let shapes = sizes.map(|(key, value, bytes)| leaf_shape(Format::LineHashed, key, value, bytes));
    assert!(shapes.iter().all(Shape::is_hashed));
    shapes.to_vec()
}

#[test]
fn no_mixture_of_a_keys_lines_in_a_leafs_whole_life_misleads_a_reader() {
    for shape in hashed_leaves().iter().filter(|shape| shape.payload_len > 0) {
        for version in [1, 0xfffe] {
            let history = life(shape, version, Rule::Sound);
            let accepted = assert_sound(&history);
            assert!(accepted > 10 * history.moments.len() as u128, "only {accepted}");
            for seed in 0..5 {
                let mut history =
                    History::new(shape, version, Rule::Sound, &[10, 20, 50, 60, 61, 62]).shuffled(seed);
                LIFE.into_iter().for_each(|op| history.run(op, false));
                assert_sound(&history);
            }
        }
    }
}

#[test]
fn no_mixture_of_a_keys_lines_in_random_lives_misleads_a_reader() {
    let (mut accepted, mut moments) = (0, 0);
    for shape in &hashed_leaves() {
        for seed in 0..30 / part() {
            let history = History::random(shape, seed, 64);
            accepted += assert_sound(&history);
            moments += history.moments.len();
        }
    }
    let fair = accepted > 100_000 / u128::from(part()) && moments > 10_000 / part() as usize;
    assert!(fair, "{accepted} of {moments} moments");
}

#[test]
fn no_mixture_of_a_keys_lines_in_a_place_that_is_used_again_misleads_a_reader() {
    let (mut accepted, mut moments) = (0, 0);
    for shape in &hashed_leaves() {
        accepted += assert_sound(&second_hand(shape, Rule::Sound));
        // Windows of more lines have more mixtures.
        let seeds = if shape.lines() > 4 { 10 } else { 60 };
        for seed in 0..seeds / part() {
            let history = History::random_place(shape, seed, 128);
            accepted += assert_sound(&history);
            moments += history.moments.len();
        }
    }
    let fair = accepted > 100_000 / u128::from(part()) && moments > 15_000 / part() as usize;
    assert!(fair, "{accepted} of {moments} moments");
}

/// A leaf that splits. Then keys of its right half change.
fn split_left(shape: &Shape, rule: Rule) -> History<'_> {
    let mut history = History::new(shape, 7, rule, &[10, 20, 30, 60]);
    for op in [Op::Split(61), Op::PutInSibling(60), Op::RemoveFromSibling(30), Op::PutInSibling(63)] {
        history.run(op, false);
    }
    history
}

/// A leaf whose place becomes the right half of a split, or of one that never happens.
fn split_right(shape: &Shape, rule: Rule, seed: u64) -> History<'_> {
    let mut history = History::new(shape, 7, rule, &[10, 20, 30, 60]).shuffled(seed);
    history.run(Op::FreeAndSplitInto { low: 15, new: 25 }, false);
    history.run(Op::Put(20), false);
    history
}

fn abandoned(shape: &Shape, rule: Rule, seed: u64) -> History<'_> {
    let mut history = History::new(shape, 7, rule, &[10, 20, 30, 60]).shuffled(seed);
    history.run(Op::FreeAndAbandon { low: 15 }, false);
    history.run(Op::Put(25), false);
    history
}

#[test]
fn no_mixture_of_the_lines_of_either_half_of_a_split_misleads_a_reader() {
    for shape in &hashed_leaves() {
        assert_sound(&split_left(shape, Rule::Sound));
        for seed in 0..12 {
            assert_sound(&split_right(shape, Rule::Sound, seed));
            assert_sound(&abandoned(shape, Rule::Sound, seed));
        }
    }
}

/// Asserts that a history, or one of several, misleads the reader, in leaves of each size.
fn assert_misled<'s, H: IntoIterator<Item = History<'s>>>(
    shapes: &'s [Shape],
    reader: Reader,
    histories: impl Fn(&'s Shape) -> H,
) {
    for shape in shapes.iter().filter(|shape| shape.payload_len > 0 && !is_stretched(shape)) {
        let misled = histories(shape).into_iter().any(|history| !violations(&history, reader).1.is_empty());
        assert!(misled, "this test cannot see what the rule is for: {shape:?}");
    }
}

#[test]
fn a_reader_that_does_not_compare_the_stamps_of_lines_is_misled() {
    assert_misled(&hashed_leaves(), Reader::IgnoresStamps, |shape| [life(shape, 1, Rule::Sound)]);
}

#[test]
fn a_reader_that_ignores_the_fences_of_lines_is_misled() {
    assert_misled(&hashed_leaves(), Reader::IgnoresFences, |shape| [split_left(shape, Rule::Sound)]);
}

#[test]
fn a_reader_that_uses_detached_lines_is_misled() {
    assert_misled(&hashed_leaves(), Reader::IgnoresMarks, |shape| [second_hand(shape, Rule::Sound)]);
    assert_misled(&hashed_leaves(), Reader::IgnoresMarks, |shape| [abandoned(shape, Rule::Sound, 1)]);
}

#[test]
fn an_entry_that_moves_while_the_version_stays_misleads_a_reader() {
    assert_misled(&hashed_leaves(), Reader::Sound, |shape| {
        let mut history = History::new(shape, 7, Rule::EntriesMove, &[10, 20, 30]);
        history.run(Op::Put(20), false);
        history.run(Op::Put(20), false);
        [history]
    });
}

#[test]
fn a_split_that_writes_the_header_alone_misleads_a_reader() {
    assert_misled(&hashed_leaves(), Reader::Sound, |shape| {
        [split_left(shape, Rule::SplitsWriteTheHeaderAlone)]
    });
}

#[test]
fn lines_that_stay_attached_in_a_free_leaf_mislead_a_reader() {
    assert_misled(&hashed_leaves(), Reader::Sound, |shape| [second_hand(shape, Rule::FreeLinesStayAttached)]);
}

#[test]
fn lines_that_are_attached_in_a_pending_leaf_mislead_a_reader() {
    assert_misled(&hashed_leaves(), Reader::Sound, |shape| {
        [abandoned(shape, Rule::PendingLinesAreAttached, 1)]
    });
}

#[test]
fn lines_that_are_attached_after_the_pending_mark_was_cleared_undo_another_clients_write() {
    assert_misled(&hashed_leaves(), Reader::Sound, |shape| [second_hand(shape, Rule::HeaderIsLinkedFirst)]);
}

#[test]
fn a_version_that_does_not_go_on_lets_lines_of_the_places_last_user_mislead_a_reader() {
    // It takes a key that the second leaf has in another line than the first. The lower key can be in the
    // way.
    static PAIRS: [[u8; 2]; 9] =
        [[5, 20], [6, 20], [7, 20], [9, 20], [11, 20], [12, 20], [14, 20], [17, 20], [19, 20]];
    assert_misled(&hashed_leaves(), Reader::Sound, |shape| {
        PAIRS.iter().map(|keys| {
            let mut history = History::new(shape, 7, Rule::ReuseRestartsVersions, &[20, 30, 60]);
            history.run(Op::FreeAndReuse { low: 0, keys }, false);
            history
        })
    });
}
