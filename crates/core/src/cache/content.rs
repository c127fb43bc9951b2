//! The contents of a copy outside its slot, for writers: its entries, and the words that they become.

use super::layout::{ChildCode, GROUP, GROUP_KEYS, LINE_WORDS, Layout, key_word};
use crate::node::{SortedBody, get_u64};

/// The entries of a copy, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The words of each key, one key after the other.
    pub keys: Vec<u64>,
    pub children: Vec<u64>,
}

/// The fences of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fences {
    /// The words of the low fence.
    pub low: Vec<u64>,
    /// The words of the high fence, or of the low one if there is none.
    pub high: Vec<u64>,
}

impl Fences {
    pub(super) fn new(low: &[u8], high: Option<&[u8]>, layout: &Layout) -> Self {
        let words = |key: &[u8]| words_of(key, layout).collect();
        Self { low: words(low), high: words(high.unwrap_or(low)) }
    }
}

/// The words that a copy stores besides its head line.
#[derive(Debug)]
pub(super) struct Encoded {
    pub code: ChildCode,
    pub base: u64,
    /// The sample of each group, if a key is one word.
    pub samples: Vec<u64>,
    pub run: Vec<u64>,
}

impl Encoded {
    /// Lines of its run.
    pub(super) fn lines(&self) -> usize {
        self.run.len().div_ceil(LINE_WORDS)
    }
}

/// The words of `key`.
pub(super) fn words_of(key: &[u8], layout: &Layout) -> impl Iterator<Item = u64> {
    (0..layout.key_words).map(|index| key_word(key, index))
}

impl Content {
    pub(super) fn of(body: &SortedBody, layout: &Layout) -> Self {
        Self {
            keys: (0..body.len()).flat_map(|index| words_of(body.key(index), layout)).collect(),
            children: (0..body.len()).map(|index| get_u64(body.payload(index), 0)).collect(),
        }
    }

    /// Inserts an entry before `index`.
    pub(super) fn insert(&mut self, index: usize, key: &[u8], child: u64, layout: &Layout) {
        let at = index * layout.key_words;
        self.keys.splice(at..at, words_of(key, layout));
        self.children.insert(index, child);
    }

    pub(super) fn encode(&self, fences: &Fences, layout: &Layout) -> Encoded {
        let (code, base) = ChildCode::of(&self.children);
        let mut run = Vec::with_capacity(layout.run_lines(self.children.len(), code.bytes) * LINE_WORDS);
        if layout.key_words != 1 {
            run.extend(fences.low.iter().chain(&fences.high).chain(&self.keys));
            push_children(&mut run, code, base, &self.children);
            return Encoded { code, base, samples: Vec::new(), run };
        }
        for (keys, children) in self.keys.chunks(GROUP).zip(self.children.chunks(GROUP)) {
            // Unused keys are all ones, so that a search passes none of them without passing all others.
            run.extend((1..=GROUP_KEYS).map(|index| keys.get(index).copied().unwrap_or(u64::MAX)));
            let end = run.len() + code.bytes;
            push_children(&mut run, code, base, children);
            run.resize(end, 0);
        }
        Encoded { code, base, samples: self.keys.iter().copied().step_by(GROUP).collect(), run }
    }
}

/// Appends the children's codes, one after the other without a gap.
fn push_children(run: &mut Vec<u64>, code: ChildCode, base: u64, children: &[u64]) {
    let start = run.len();
    let width = code.bytes * 8;
    run.resize(start + (children.len() * width).div_ceil(64), 0);
    for (index, &child) in children.iter().enumerate() {
        let (at, shift) = (start + index * width / 64, (index * width % 64) as u32);
        let placed = u128::from(code.encode(base, child)) << shift;
        run[at] |= placed as u64;
        if let Some(next) = run.get_mut(at + 1) {
            *next |= (placed >> 64) as u64;
        }
    }
}
