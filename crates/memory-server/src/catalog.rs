//! The catalog: on server 0, a 256-byte entry per named tree.
//!
//! An entry begins with the tree's root word (`docs/INVARIANTS.md`), where every client's descent begins.
//! Clients change the root word by CAS. The server's CPU stores it once, before the entry exists, and never
//! again, since NIC and CPU atomics do not mix. The rest of the entry is fixed at creation. A checksum guards
//! it and leaves the root word out.
//!
//! The store of the second word, which holds the tree's id, creates the entry: everything else is stored
//! before it. Ids come from a counter in the state line and are never issued twice. Every node carries its
//! tree's id, so that a reader can tell it from a stale node.
//!
//! A tree ends when a client replaces its root word by null. No client finds its entry from then on, and the
//! entry can be reused. A [`DropTree`](sherman_fabric::Request::DropTree) clears it. If the client died
//! before it sent one, the next tree that takes the name, or finds no empty entry, clears it. Either clears
//! the second word first, and with that the entry, whatever else is still in it. The root word stays null
//! until the entry's next tree is created.

use crate::bytes::load_host;
use crate::server::OpenError;
use sherman_fabric::control::{TreeInfo, TreeSpec};
use sherman_fabric::{Memory, Refusal, Space, TreeTypes};
use sherman_layout::bytes::{LINE, get_u64, put};
use sherman_layout::catalog::{AT_ID, AT_NAME, ENTRY, NAME_BYTES_MAX, decode, encode};
use sherman_layout::geometry::{Geometry, NEXT_TREE_ID_OFFSET};

#[cfg(test)]
mod tests;

/// The longest key in bytes.
pub const KEY_BYTES_MAX: u16 = 1024;

fn check_spec(spec: &TreeSpec, geometry: &Geometry) -> Result<(), Refusal> {
    let bad = |what| Err(Refusal::BadRequest { what });
    if spec.key_len == 0 || spec.key_len > KEY_BYTES_MAX {
        return bad("key_len is not from 1 to 1024");
    }
    if !geometry.allows_node_bytes(spec.leaf_bytes) || !geometry.allows_node_bytes(spec.internal_bytes) {
        return bad(
            "leaf_bytes or internal_bytes is not a multiple of 64 from 256 to 65536 that fits a chunk",
        );
    }
    // The node format decides how many entries a node must hold. This check refuses only sizes that no format
    // can store.
    if u64::from(spec.key_len) + u64::from(spec.value_len) >= u64::from(spec.leaf_bytes) {
        return bad("an entry does not fit a leaf");
    }
    if u32::from(spec.key_len) >= spec.internal_bytes {
        return bad("a key does not fit an internal node");
    }
    Ok(())
}

/// The catalog and the counter of tree ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Catalog {
    trees: Vec<Option<TreeInfo>>,
    next_tree_id: u64,
}

impl Catalog {
    /// Writes the initial tree id counter of a new server.
    pub(crate) fn format(memory: &dyn Memory) {
        memory.store_u64(Space::Host, NEXT_TREE_ID_OFFSET, 1);
    }

    /// Loads the catalog from memory.
    pub(crate) fn load(memory: &dyn Memory, geometry: &Geometry) -> Result<Self, OpenError> {
        let corrupt =
            |index: u32, what| OpenError::Corrupt { table: "catalog", entry: u64::from(index), what };
        let next_tree_id = memory.load_u64(Space::Host, NEXT_TREE_ID_OFFSET);
        if next_tree_id == 0 || next_tree_id > 1 << 32 {
            return Err(corrupt(0, "cannot be read: the next tree id is impossible"));
        }
        let mut catalog = Self { trees: Vec::new(), next_tree_id };
        let bytes = load_host(memory, geometry.catalog_offset, geometry.catalog_bytes());
        for (entry, index) in bytes.as_chunks::<ENTRY>().0.iter().zip(0u32..) {
            let tree = decode(entry, geometry.root_word(index)).map_err(|what| corrupt(index, what))?;
            if let Some(info) = &tree {
                if u64::from(info.id) >= next_tree_id {
                    return Err(corrupt(index, "has an id that was never issued"));
                }
                if catalog.trees.iter().flatten().any(|other| other.id == info.id || other.name == info.name)
                {
                    return Err(corrupt(index, "repeats an id or a name"));
                }
                check_name(&info.name).map_err(|_| corrupt(index, "has an invalid name"))?;
                check_spec(&info.spec, geometry).map_err(|_| corrupt(index, "has an impossible shape"))?;
            }
            catalog.trees.push(tree);
        }
        Ok(catalog)
    }

    /// A tree id that was never issued before.
    pub(crate) fn new_tree_id(&mut self, memory: &dyn Memory) -> Result<u32, Refusal> {
        let id = u32::try_from(self.next_tree_id).map_err(|_| Refusal::TooManyTrees)?;
        self.next_tree_id += 1;
        memory.store_u64(Space::Host, NEXT_TREE_ID_OFFSET, self.next_tree_id);
        Ok(id)
    }

    /// The tree named `name`.
    pub(crate) fn open(&self, memory: &dyn Memory, name: &str) -> Option<&TreeInfo> {
        self.trees.iter().flatten().find(|tree| tree.name == name && !has_ended(memory, tree))
    }

    /// All trees, by name.
    pub(crate) fn list(&self, memory: &dyn Memory) -> Vec<TreeInfo> {
        let mut trees: Vec<_> =
            self.trees.iter().flatten().filter(|tree| !has_ended(memory, tree)).cloned().collect();
        trees.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        trees
    }

    /// Enters a tree and returns it with `true`. If a tree of that name exists, returns that tree with
    /// `false`.
    pub(crate) fn create(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        new: NewTree<'_>,
    ) -> Result<(TreeInfo, bool), Refusal> {
        let NewTree { name, spec, types, id, root } = new;
        check_name(name)?;
        if let Some(existing) = self.open(memory, name) {
            return Ok((existing.clone(), false));
        }
        check_spec(&spec, geometry)?;
        if id == 0 || u64::from(id) >= self.next_tree_id {
            return Err(Refusal::BadRequest { what: "the tree id was never issued" });
        }
        if self.trees.iter().flatten().any(|tree| tree.id == id) {
            return Err(Refusal::BadRequest { what: "another tree has this tree id" });
        }
        if root == 0 {
            return Err(Refusal::BadRequest { what: "the root word is null" });
        }
        let index = self.place_for(memory, name).ok_or(Refusal::TooManyTrees)?;
        self.clear(memory, geometry, index);
        let root_word = geometry.root_word(index);
        let info = TreeInfo { id, name: name.to_owned(), spec, types, root_word };
        let (entry, at) = (encode(&info, root), geometry.catalog_entry(index));
        let mut first_line = [0; LINE as usize];
        first_line.copy_from_slice(&entry[..LINE as usize]);
        put(&mut first_line, AT_ID, [0; 8]);
        memory.store(Space::Host, at + AT_NAME as u64, &entry[AT_NAME..]);
        memory.store(Space::Host, at, &first_line);
        memory.store_u64(Space::Host, at + AT_ID as u64, get_u64(&entry, AT_ID));
        self.trees[index as usize] = Some(info.clone());
        Ok((info, true))
    }

    /// Removes the entry of a tree that has ended.
    pub(crate) fn drop_tree(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        name: &str,
        id: u32,
    ) -> Result<(), Refusal> {
        let named = |tree: &TreeInfo| tree.name == name && tree.id == id;
        let entry = self.entries().find(|(_, tree)| tree.is_some_and(named));
        let Some((index, Some(tree))) = entry else {
            return Err(Refusal::NoSuchTree { name: name.to_owned() });
        };
        if !has_ended(memory, tree) {
            return Err(Refusal::BadRequest { what: "the root word of the tree to drop is not null" });
        }
        self.clear(memory, geometry, index);
        Ok(())
    }

    fn entries(&self) -> impl Iterator<Item = (u32, Option<&TreeInfo>)> {
        (0u32..).zip(self.trees.iter().map(Option::as_ref))
    }

    /// The entry for a new tree named `name`. First choice is the entry of an ended tree of that name, since
    /// two entries must not have one name. Otherwise it is an empty entry, or else the entry of any ended
    /// tree.
    fn place_for(&self, memory: &dyn Memory, name: &str) -> Option<u32> {
        let same_name = self.entries().find(|(_, tree)| tree.is_some_and(|tree| tree.name == name));
        let empty = || self.entries().find(|(_, tree)| tree.is_none());
        let left_over = || self.entries().find(|(_, tree)| tree.is_some_and(|tree| has_ended(memory, tree)));
        same_name.or_else(empty).or_else(left_over).map(|(index, _)| index)
    }

    /// Clears an entry, if there is one, by one word.
    fn clear(&mut self, memory: &dyn Memory, geometry: &Geometry, index: u32) {
        if self.trees[index as usize].take().is_some() {
            memory.store_u64(Space::Host, geometry.catalog_entry(index) + AT_ID as u64, 0);
        }
    }
}

/// Whether a client has replaced the root word by null. No client undoes that.
fn has_ended(memory: &dyn Memory, tree: &TreeInfo) -> bool {
    memory.load_u64(Space::Host, tree.root_word) == 0
}

/// What a tree is created from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTree<'a> {
    pub(crate) name: &'a str,
    pub(crate) spec: TreeSpec,
    pub(crate) types: Option<TreeTypes>,
    pub(crate) id: u32,
    pub(crate) root: u64,
}

fn check_name(name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX { Err(Refusal::BadName) } else { Ok(()) }
}
