//! The catalog of the control state: a 256-byte entry per named tree.
//!
//! An entry names the address of the tree's root word (`docs/INVARIANTS.md`), where every client's descent
//! begins. The word itself lies in a volume, and clients alone change it, by CAS. So the catalog does not
//! know whether a tree has a root yet, or has ended: clients read that from the word (I53, I54). An entry is
//! fixed at creation, and a checksum guards it.
//!
//! The store of the second word, which holds the tree's id, creates the entry: everything else is stored
//! before it. Ids come from a counter in the state line and are never issued twice. Every node carries its
//! tree's id, so that a reader can tell it from a stale node.
//!
//! Each entry has its own root word, on volume `entry % servers`. An entry whose volume is declared lost gets
//! no new tree.

use crate::bytes::load_host;
use crate::server::OpenError;
use sherman_fabric::control::{TreeInfo, TreeSpec};
use sherman_fabric::{Memory, Refusal, Space, TreeTypes};
use sherman_layout::ControlGeometry as Geometry;
use sherman_layout::bytes::{LINE, get_u64, put};
use sherman_layout::catalog::{AT_ID, AT_NAME, ENTRY, NAME_BYTES_MAX, decode, encode};
use sherman_layout::control::NEXT_TREE_ID_OFFSET;

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
    if u64::from(spec.key_len) + u64::from(spec.slot_len()) >= u64::from(spec.leaf_bytes) {
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
        let bytes = load_host(memory, geometry.catalog_offset(), geometry.catalog_bytes());
        for (entry, index) in bytes.as_chunks::<ENTRY>().0.iter().zip(0u32..) {
            let tree = decode(entry).map_err(|what| corrupt(index, what))?;
            if let Some(info) = &tree {
                if info.root_word != geometry.root_word(index) {
                    return Err(corrupt(index, "names the root word of another entry"));
                }
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
    fn new_tree_id(&mut self, memory: &dyn Memory) -> Result<u32, Refusal> {
        let id = u32::try_from(self.next_tree_id).map_err(|_| Refusal::TooManyTrees)?;
        self.next_tree_id += 1;
        memory.store_u64(Space::Host, NEXT_TREE_ID_OFFSET, self.next_tree_id);
        Ok(id)
    }

    /// The tree named `name`.
    pub(crate) fn open(&self, name: &str) -> Option<&TreeInfo> {
        self.trees.iter().flatten().find(|tree| tree.name == name)
    }

    /// All trees, by name.
    pub(crate) fn list(&self) -> Vec<TreeInfo> {
        let mut trees: Vec<_> = self.trees.iter().flatten().cloned().collect();
        trees.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        trees
    }

    /// Enters a tree and returns it with `true`. If a tree of that name exists, returns that tree with
    /// `false`. `is_lost` tells which volumes are declared lost.
    pub(crate) fn create(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        new: NewTree<'_>,
        is_lost: impl Fn(u16) -> bool,
    ) -> Result<(TreeInfo, bool), Refusal> {
        let NewTree { name, spec, types } = new;
        check_name(name)?;
        if let Some(existing) = self.open(name) {
            return Ok((existing.clone(), false));
        }
        check_spec(&spec, geometry)?;
        let usable = |(index, tree): &(u32, Option<&TreeInfo>)| {
            tree.is_none() && !is_lost(geometry.root_word(*index).server())
        };
        let (index, _) = self.entries().find(usable).ok_or(Refusal::TooManyTrees)?;
        let (id, root_word) = (self.new_tree_id(memory)?, geometry.root_word(index));
        let info = TreeInfo { id, name: name.to_owned(), spec, types, root_word };
        let (entry, at) = (encode(&info), geometry.catalog_entry(index));
        let mut first_line = [0; LINE as usize];
        first_line.copy_from_slice(&entry[..LINE as usize]);
        put(&mut first_line, AT_ID, [0; 8]);
        memory.store(Space::Host, at + AT_NAME as u64, &entry[AT_NAME..]);
        memory.store(Space::Host, at, &first_line);
        memory.store_u64(Space::Host, at + AT_ID as u64, get_u64(&entry, AT_ID));
        self.trees[index as usize] = Some(info.clone());
        Ok((info, true))
    }

    /// Removes the entry of a tree, which has ended, by one word.
    pub(crate) fn drop_tree(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        name: &str,
        id: u32,
    ) -> Result<(), Refusal> {
        let named = |tree: &TreeInfo| tree.name == name && tree.id == id;
        let entry = self.entries().find(|(_, tree)| tree.is_some_and(named));
        let Some((index, _)) = entry else {
            return Err(Refusal::NoSuchTree { name: name.to_owned() });
        };
        self.trees[index as usize] = None;
        memory.store_u64(Space::Host, geometry.catalog_entry(index) + AT_ID as u64, 0);
        Ok(())
    }

    fn entries(&self) -> impl Iterator<Item = (u32, Option<&TreeInfo>)> {
        (0u32..).zip(self.trees.iter().map(Option::as_ref))
    }
}

/// What a tree is created from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTree<'a> {
    pub(crate) name: &'a str,
    pub(crate) spec: TreeSpec,
    pub(crate) types: Option<TreeTypes>,
}

fn check_name(name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX { Err(Refusal::BadName) } else { Ok(()) }
}
