//! Rewrites whole nodes: merges, emptied leaves, nodes filled at once.
//!
//! Each of these moves entries between lines or removes all of them. So every line is written with the next
//! version and no older line is acceptable (I21). Ghosts (entries outside the fences) are left behind, and
//! entries are in ascending order again.

use super::{Draft, NodePlace};
use crate::node::entry::put_in_line;
use crate::node::hashed::Layout;
use crate::node::order::Scratch;
use crate::node::shape::Body;
use crate::node::{LINE, Node, Patch, Shape, SortedBody, dense, slots};
use sherman_fabric::GlobalAddress;

impl<'s> Draft<'s> {
    /// Creates a node from `entries`: key and payload of each, one after the other, in ascending order, at
    /// most [`Shape::capacity`] of them. If not `pending`, the node is linked from the start, for a caller
    /// that links a tree of nodes at once.
    #[expect(clippy::too_many_arguments, reason = "a node is that many things")]
    pub fn filled(
        shape: &'s Shape,
        level: u8,
        low: &[u8],
        high: Option<&[u8]>,
        sibling: GlobalAddress,
        place: NodePlace,
        entries: &[u8],
        pending: bool,
    ) -> Self {
        let mut draft = Self::new(shape, level, low, high, sibling, place);
        draft.fill_entries(entries);
        if !pending {
            draft.link();
        }
        draft
    }

    /// Stores `entries`, in ascending order, into an empty node at the current version.
    pub(super) fn fill_entries(&mut self, entries: &[u8]) -> Patch {
        if self.shape.is_hashed() {
            let mut layout = Layout::default();
            let fits = layout.fits(self.wide, &self.node().low(), entries);
            assert!(fits, "the caller has checked that the entries fit");
            return self.fill_placed(entries, &layout);
        }
        let shape = self.shape;
        assert!(
            entries.len() <= shape.capacity * shape.entry_len(),
            "a node holds no more than its capacity"
        );
        if let Body::Sorted(_) = shape.body {
            return self.fill(&SortedBody::from_entries(shape, entries));
        }
        let count = entries.len() / shape.entry_len();
        for (number, entry) in entries.chunks_exact(shape.entry_len()).enumerate() {
            let (key, value) = entry.split_at(shape.key_len);
            slots::store(shape, &mut self.image, slots::spread(shape, number, count), key, value);
        }
        self.seal_all()
    }

    /// Stores `entries` in place of all others into a hashed leaf at the current version, where `layout` has
    /// placed them. The low fence is the one that the layout was made for.
    pub(super) fn fill_placed(&mut self, entries: &[u8], layout: &Layout) -> Patch {
        self.pack(entries);
        let shape = self.shape;
        let (each, key_len) = (shape.entry_len(), shape.key_len);
        assert!(layout.slots().len() == entries.len() / each, "the layout is of these entries");
        let Body::Slots { first_line, per_line } = shape.body else { return self.seal_all() };
        let low = dense::base(shape, &self.image);
        let lines = &mut self.image.as_chunks_mut::<LINE>().0[first_line..];
        for (entry, slot) in entries.chunks_exact(each).zip(layout.slots()) {
            let (key, value) = entry.split_at(key_len);
            put_in_line(shape, &mut lines[slot / per_line], slot % per_line, low, key, value);
        }
        self.seal_all()
    }

    /// Empties a hashed leaf, and makes it wide or dense as these entries, in ascending order, require.
    fn pack(&mut self, entries: &[u8]) {
        if self.wide.dense.is_none() {
            return self.wipe();
        }
        let last = entries.len().checked_sub(self.wide.entry_len());
        let last = last.map(|at| &entries[at..at + self.wide.key_len]);
        self.shape = self.wide.for_keys(&self.node().low(), last);
        self.header.flags.dense = self.shape.is_dense;
        // What identifies a dense line has a byte where a wide one has live bits.
        self.wipe();
    }

    /// Removes all entries from an unsorted leaf. Its slots become as if never used.
    pub(super) fn wipe(&mut self) {
        let start = match self.shape.body {
            Body::Slots { first_line, .. } | Body::LongSlots { first_line, .. } => first_line * LINE,
            Body::Nibbled { start } => start,
            Body::Sorted(_) => return,
        };
        self.image[start..].fill(0);
        // Such a leaf does not count its entries. Damage may have left a number that another layout refuses.
        self.header.count = 0;
    }

    /// Removes all entries from a leaf.
    pub fn clear(&mut self) -> Patch {
        self.next_version();
        self.wipe();
        self.fill_entries(&[])
    }

    /// Takes over everything that `right`, the right neighbour, is responsible for: its entries, high fence
    /// and sibling. Returns `None` and changes nothing in these cases: both do not fit into one node, an
    /// entry of either is torn, or `right` does not begin where this node ends.
    pub fn absorb(&mut self, right: &Node<'_>) -> Option<Patch> {
        let left = self.node();
        let same = self.wide.packed(right.shape.is_dense) == Some(right.shape)
            && left.header.level == right.header.level;
        if !same || left.len() + right.len() > self.wide.capacity() || left.high()? != right.low() {
            return None;
        }
        let (mut entries, mut scratch) = (Vec::with_capacity(self.shape.node_bytes), Scratch::default());
        if !left.collect(&[], None, &mut scratch, &mut entries)
            || !right.collect(&[], None, &mut scratch, &mut entries)
        {
            return None;
        }
        let mut layout = self.shape.is_hashed().then(Layout::default);
        if let Some(layout) = &mut layout
            && !layout.fits(self.wide, &left.low(), &entries)
        {
            return None;
        }
        let high = right.high();
        self.shape.fences.store(
            &mut self.image,
            self.shape.key_len,
            &high.unwrap_or_else(|| vec![0; self.shape.key_len]),
        );
        self.header.flags.high_open = right.header.flags.high_open;
        self.header.sibling = right.header.sibling;
        self.next_version();
        Some(match layout {
            Some(layout) => self.fill_placed(&entries, &layout),
            None => {
                self.wipe();
                self.fill_entries(&entries)
            }
        })
    }
}
