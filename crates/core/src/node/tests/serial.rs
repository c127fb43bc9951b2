//! Versions wrap at 65,535, and the window of legal stamps stays below 2^14 (`docs/LAYOUT.md`).

use super::*;
use crate::node::header::{AT_FLOOR, AT_STAMP};
use crate::node::{LINE, Lookup, Position, Reject, get_u16, put_u16};
use std::collections::BTreeMap;

fn number(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

fn with_stamp(image: &[u8], line: usize, stamp: u16) -> Vec<u8> {
    let mut image = image.to_vec();
    put_u16(&mut image, line * LINE + AT_STAMP, stamp);
    image
}

#[test]
fn a_version_of_65535_is_followed_by_0_and_both_ends_of_the_window_differ() {
    let shape = leaf_shape(Format::LineStamped, 8, 8, 256);
    let mut draft = whole_range(&shape, 0, u16::MAX);
    for key in 0..9 {
        put(&mut draft, &number(key * 10), &[1; 8]);
    }
    draft.split_leaf(&number(5), &[2; 8], place(1));
    assert_eq!((draft.header().version, draft.header().floor), (0, u16::MAX));
    let image = draft.image();
    let stamps: Vec<u16> = (0..4).map(|line| get_u16(image, line * LINE + AT_STAMP)).collect();
    assert!(stamps.contains(&0) && stamps.contains(&u16::MAX), "{stamps:?}");
    for (stamp, legal) in [(0, true), (u16::MAX, true), (1, false), (u16::MAX - 1, false), (1 << 15, false)] {
        let opened = Node::open(&shape, &with_stamp(image, 3, stamp), 0).map(|_| ());
        assert_eq!(opened, if legal { Ok(()) } else { Err(Reject::Torn) }, "stamp {stamp}");
    }
    let header_of_another_time = with_stamp(image, 0, u16::MAX);
    assert_eq!(Node::open(&shape, &header_of_another_time, 0).err(), Some(Reject::Torn));
}

#[test]
fn sorted_formats_wrap_too() {
    for format in Format::ALL {
        let shape = internal_shape(format, 8, 256);
        let mut draft = whole_range(&shape, 1, u16::MAX);
        let mut body = crate::node::SortedBody::empty(&shape);
        body.insert(0, &[0; 8], &[1; 8]);
        for round in 0..3 {
            draft.set_body(&body);
            assert_eq!(draft.header().version, round);
            assert_eq!(seen(&shape, &draft).entries().len(), 1, "{format:?}");
        }
    }
}

/// Fills the leaf with keys just below its high fence and splits it.
fn fill_and_split(shape: &Shape, draft: &mut Draft<'_>, top: &mut u64) -> (Vec<u8>, Patch) {
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let node = draft.node();
    for (key, _) in node.entries() {
        let key: [u8; 8] = key.try_into().expect("8 bytes");
        model.insert(u64::from_be_bytes(key), 0);
    }
    let mut next = *top;
    while model.len() <= shape.capacity() {
        next -= 1;
        if model.insert(next, 0).is_none() && model.len() <= shape.capacity() {
            put(draft, &number(next), &number(next));
        }
    }
    let old = draft.image().to_vec();
    let split = draft.split_leaf(&number(next), &number(next), place(1));
    let separator: [u8; 8] = split.separator.clone().try_into().expect("8 bytes");
    *top = u64::from_be_bytes(separator);
    let expected: Vec<u64> = model.range(..*top).map(|(key, _)| *key).collect();
    let node = Node::open(shape, draft.image(), 0).expect("valid");
    let found: Vec<Vec<u8>> = node.entries().into_iter().map(|(key, _)| key).collect();
    assert_eq!(found, expected.iter().map(|key| number(*key).to_vec()).collect::<Vec<_>>());
    (old, split.left)
}

#[test]
fn a_split_at_the_limit_of_the_window_rewrites_every_line_and_raises_the_floor() {
    let shape = leaf_shape(Format::LineStamped, 8, 8, 256);
    let first = 60_000;
    let mut draft = whole_range(&shape, 0, first);
    let mut top = 1 << 40;
    let (mut rewrites, mut before) = (Vec::new(), Vec::new());
    for splits in 1..=(1 << 14) + 10_u16 {
        let (old, patch) = fill_and_split(&shape, &mut draft, &mut top);
        assert_eq!(draft.header().version, first.wrapping_add(splits));
        if patch.needs_redo(64) {
            assert_eq!(patch.steps(), &[0..shape.node_bytes], "a rewrite is the whole node");
            assert_eq!(draft.header().floor, draft.header().version);
            rewrites.push(splits);
            before = old;
        } else {
            assert_eq!(patch.steps()[0], 0..LINE);
        }
        assert!(draft.header().version.wrapping_sub(draft.header().floor) < 1 << 14);
        if rewrites.last() == Some(&splits) {
            for line in 1..4 {
                let mut mixed = draft.image().to_vec();
                mixed[line * LINE..(line + 1) * LINE]
                    .copy_from_slice(&before[line * LINE..(line + 1) * LINE]);
                assert_eq!(
                    Node::open(&shape, &mixed, 0).err(),
                    Some(Reject::Torn),
                    "an older line {line} is refused"
                );
            }
        }
    }
    assert_eq!(rewrites, [1 << 14], "version - floor never reaches 2^14");
}

/// A reader accepts a torn image if enough changes happen between its fetches that the stamps wrap. Nothing
/// in the image can show that. F8 (`docs/FABRIC.md`) bounds the time, and so the changes, between two fetches
/// of one READ.
#[test]
fn a_torn_image_passes_only_if_49153_changes_or_more_lie_between_its_fetches() {
    let shape = leaf_shape(Format::LineStamped, 8, 8, 256);
    let version: u16 = 30_000;
    let mut image = whole_range(&shape, 0, version).image().to_vec();
    // The widest possible window.
    put_u16(&mut image, AT_FLOOR, version - ((1 << 14) - 1));
    // The reader fetched the header, and then line 3, which the last of `changes` changes rewrote.
    let accepted = |changes: u32| {
        let stamp = (u32::from(version) + changes) as u16;
        Node::open(&shape, &with_stamp(&image, 3, stamp), 0).is_ok()
    };
    let first = (1..=1 << 16).find(|changes| accepted(*changes));
    assert_eq!(first, Some(49_153));
    assert!(accepted(1 << 16) && !accepted((1 << 16) + 1));
}

/// The same for entries of several lines.
#[test]
fn a_torn_entry_of_several_lines_passes_only_after_65536_changes_of_it() {
    let shape = leaf_shape(Format::LineStamped, 8, 100, 1024);
    let mut draft = whole_range(&shape, 0, 1);
    put(&mut draft, &number(5), &[0; 100]);
    let old = draft.image().to_vec();
    let mut accepted = Vec::new();
    for change in 1..=(1_u32 << 16) {
        let patch = put(&mut draft, &number(5), &[change as u8 | 1; 100]);
        let entry = patch.steps()[0].clone();
        let mut mixed = draft.image().to_vec();
        // The reader fetched the first line of the entry before all changes, and the others after.
        let line = entry.start / LINE * LINE..(entry.start / LINE + 1) * LINE;
        mixed[line.clone()].copy_from_slice(&old[line]);
        let node = Node::open(&shape, &mixed, 0).expect("the node itself is whole");
        if matches!(node.find(&number(5)), Lookup::Found(_)) {
            accepted.push(change);
        }
    }
    assert_eq!(accepted, [1 << 16]);
}

#[test]
fn two_level_entry_versions_cycle_from_1_to_15_and_0_stays_the_empty_slot() {
    let shape = leaf_shape(Format::TwoLevel, 8, 8, 256);
    let mut draft = whole_range(&shape, 0, 1);
    let mut versions = Vec::new();
    for round in 0..32_u64 {
        let patch = put(&mut draft, &number(u64::MAX), &number(round));
        let entry = &draft.image()[patch.steps()[0].clone()];
        assert_eq!(entry[0] >> 4, entry[16] & 0x0f, "front and rear agree");
        versions.push(entry[0] >> 4);
        let node = seen(&shape, &draft);
        assert!(matches!(node.find(&number(u64::MAX)), Lookup::Found(_)));
        assert_eq!(node.position(&number(u64::MAX)), Position::Inside);
    }
    let expected: Vec<u8> = (0..32).map(|round| round % 15 + 1).collect();
    assert_eq!(versions, expected);
}
