//! The catalog: on server 0, a 256-byte entry per named tree.
//!
//! An entry begins with the tree's root word (`docs/INVARIANTS.md`), at which every client's descent begins. Clients change
//! it by CAS; the server's CPU stores it once, before the entry exists, and never again, since NIC and CPU atomics do
//! not mix. The rest of the entry is fixed at creation and guarded by a checksum that leaves the root word out.
//!
//! An entry comes into being by its second word, which holds the tree's id: all else is stored before it. Ids come from
//! a counter in the state line and are never issued twice, because every node carries its tree's id to be told from a
//! stale one.
//!
//! A tree ends when a client replaces its root word by null. What is left of it is an entry that nobody finds and whose
//! place may be had: by a [`DropTree`](sherman_fabric::Request::DropTree), or, if whoever nulled the root word died before
//! sending one, by the next tree that takes the name or finds no empty entry. Either clears the second word first, and so
//! the entry, whatever else is still in it. The root word stays null until the entry's next tree is created.

use crate::bytes::{LINE, get_u16, get_u32, get_u64, load_host, put};
use crate::geometry::{CATALOG_ENTRY_BYTES, Geometry, NEXT_TREE_ID_OFFSET};
use crate::server::OpenError;
use sherman_fabric::control::{TreeInfo, TreeSpec};
use sherman_fabric::{Memory, Refusal, Space};
use twox_hash::XxHash3_64;

#[cfg(test)]
mod tests;

/// The longest name in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// The longest key in bytes.
pub const KEY_BYTES_MAX: u16 = 1024;

const ENTRY: usize = CATALOG_ENTRY_BYTES as usize;
const AT_ROOT: usize = 0;
const AT_ID: usize = 8;
const AT_NAME_LEN: usize = 12;
const AT_FORMAT: usize = 14;
const AT_KEY_LEN: usize = 16;
const AT_VALUE_LEN: usize = 20;
const AT_LEAF_BYTES: usize = 24;
const AT_INTERNAL_BYTES: usize = 28;
const AT_CHECKSUM: usize = 56;
const AT_NAME: usize = 64;

const _: () = assert!(AT_ROOT == 0 && AT_ID.is_multiple_of(8) && AT_NAME_LEN + 2 <= AT_ID + 8);
const _: () = assert!(AT_INTERNAL_BYTES + 4 <= AT_CHECKSUM && AT_CHECKSUM + 8 == LINE as usize);
const _: () = assert!(AT_NAME + NAME_BYTES_MAX <= ENTRY);

/// Over everything but the root word and the checksum itself.
fn checksum(entry: &[u8; ENTRY]) -> u64 {
    let mut copy = *entry;
    put(&mut copy, AT_ROOT, [0; 8]);
    put(&mut copy, AT_CHECKSUM, [0; 8]);
    XxHash3_64::oneshot(&copy)
}

fn encode(info: &TreeInfo, root: u64) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    let name = info.name.as_bytes();
    put(&mut entry, AT_ROOT, root.to_le_bytes());
    put(&mut entry, AT_ID, info.id.to_le_bytes());
    put(&mut entry, AT_NAME_LEN, (name.len() as u16).to_le_bytes());
    put(&mut entry, AT_FORMAT, [info.spec.format]);
    put(&mut entry, AT_KEY_LEN, info.spec.key_len.to_le_bytes());
    put(&mut entry, AT_VALUE_LEN, info.spec.value_len.to_le_bytes());
    put(&mut entry, AT_LEAF_BYTES, info.spec.leaf_bytes.to_le_bytes());
    put(&mut entry, AT_INTERNAL_BYTES, info.spec.internal_bytes.to_le_bytes());
    entry[AT_NAME..AT_NAME + name.len()].copy_from_slice(name);
    let sum = checksum(&entry);
    put(&mut entry, AT_CHECKSUM, sum.to_le_bytes());
    entry
}

/// The tree in an entry whose root word lies at `root_word`; `None` if the entry is empty.
fn decode(entry: &[u8; ENTRY], root_word: u64) -> Result<Option<TreeInfo>, &'static str> {
    let id = get_u32(entry, AT_ID);
    if id == 0 {
        return Ok(None);
    }
    if checksum(entry) != get_u64(entry, AT_CHECKSUM) {
        return Err("has a wrong checksum");
    }
    let name = entry[AT_NAME..AT_NAME + NAME_BYTES_MAX].get(..usize::from(get_u16(entry, AT_NAME_LEN)));
    let name = name.and_then(|name| std::str::from_utf8(name).ok()).ok_or("has no proper name")?;
    let spec = TreeSpec {
        format: entry[AT_FORMAT],
        key_len: get_u16(entry, AT_KEY_LEN),
        value_len: get_u32(entry, AT_VALUE_LEN),
        leaf_bytes: get_u32(entry, AT_LEAF_BYTES),
        internal_bytes: get_u32(entry, AT_INTERNAL_BYTES),
    };
    Ok(Some(TreeInfo { id, name: name.to_owned(), spec, root_word }))
}

fn check_spec(spec: &TreeSpec, geometry: &Geometry) -> Result<(), Refusal> {
    let bad = |what| Err(Refusal::BadRequest { what });
    if spec.key_len == 0 || spec.key_len > KEY_BYTES_MAX {
        return bad("key_len is not from 1 to 1024");
    }
    if !geometry.allows_node_bytes(spec.leaf_bytes) || !geometry.allows_node_bytes(spec.internal_bytes) {
        return bad("leaf_bytes or internal_bytes is not a multiple of 64 from 256 to 65536 that fits a chunk");
    }
    // How many entries a node must hold is the node format's to say; here only what no format could store is refused.
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
    /// Writes the counter of a new server.
    pub(crate) fn format<M: Memory + ?Sized>(memory: &M) {
        memory.store_u64(Space::Host, NEXT_TREE_ID_OFFSET, 1);
    }

    /// The catalog in memory.
    pub(crate) fn load<M: Memory + ?Sized>(memory: &M, geometry: &Geometry) -> Result<Self, OpenError> {
        let corrupt = |index: u32, what| OpenError::Corrupt { table: "catalog", entry: u64::from(index), what };
        let next_tree_id = memory.load_u64(Space::Host, NEXT_TREE_ID_OFFSET);
        if next_tree_id == 0 || next_tree_id > 1 << 32 {
            return Err(corrupt(0, "the next tree id is impossible"));
        }
        let mut catalog = Self { trees: Vec::new(), next_tree_id };
        let bytes = load_host(memory, geometry.catalog_offset, geometry.catalog_bytes());
        for (entry, index) in bytes.as_chunks::<ENTRY>().0.iter().zip(0u32..) {
            let tree = decode(entry, geometry.root_word(index)).map_err(|what| corrupt(index, what))?;
            if let Some(info) = &tree {
                if u64::from(info.id) >= next_tree_id {
                    return Err(corrupt(index, "has an id that was never issued"));
                }
                if catalog.trees.iter().flatten().any(|other| other.id == info.id || other.name == info.name) {
                    return Err(corrupt(index, "repeats an id or a name"));
                }
                check_name(&info.name).map_err(|_| corrupt(index, "has no proper name"))?;
                check_spec(&info.spec, geometry).map_err(|_| corrupt(index, "has an impossible shape"))?;
            }
            catalog.trees.push(tree);
        }
        Ok(catalog)
    }

    /// A tree id that was never issued before.
    pub(crate) fn new_tree_id<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<u32, Refusal> {
        let id = u32::try_from(self.next_tree_id).map_err(|_| Refusal::TooManyTrees)?;
        self.next_tree_id += 1;
        memory.store_u64(Space::Host, NEXT_TREE_ID_OFFSET, self.next_tree_id);
        Ok(id)
    }

    /// The tree named `name`.
    pub(crate) fn open<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<&TreeInfo> {
        self.trees.iter().flatten().find(|tree| tree.name == name && !has_ended(memory, tree))
    }

    /// All trees, by name.
    pub(crate) fn list<M: Memory + ?Sized>(&self, memory: &M) -> Vec<TreeInfo> {
        let mut trees: Vec<_> = self.trees.iter().flatten().filter(|tree| !has_ended(memory, tree)).cloned().collect();
        trees.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        trees
    }

    /// Enters a tree, unless one of that name exists: then that one, and `false`.
    pub(crate) fn create<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        new: NewTree<'_>,
    ) -> Result<(TreeInfo, bool), Refusal> {
        let NewTree { name, spec, id, root } = new;
        check_name(name)?;
        if let Some(existing) = self.open(memory, name) {
            return Ok((existing.clone(), false));
        }
        check_spec(&spec, geometry)?;
        if id == 0 || u64::from(id) >= self.next_tree_id {
            return Err(Refusal::BadRequest { what: "the tree id was never issued" });
        }
        if self.trees.iter().flatten().any(|tree| tree.id == id) {
            return Err(Refusal::BadRequest { what: "the tree id is another tree's" });
        }
        if root == 0 {
            return Err(Refusal::BadRequest { what: "the root word is null" });
        }
        let index = self.place_for(memory, name).ok_or(Refusal::TooManyTrees)?;
        self.clear(memory, geometry, index);
        let info = TreeInfo { id, name: name.to_owned(), spec, root_word: geometry.root_word(index) };
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

    /// Forgets a tree that has ended.
    pub(crate) fn drop_tree<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
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

    /// The entry for a new tree named `name`: what is left of the last tree of that name, since two entries must not
    /// have one name; else an empty one; else what is left of any tree.
    fn place_for<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<u32> {
        let same_name = self.entries().find(|(_, tree)| tree.is_some_and(|tree| tree.name == name));
        let empty = || self.entries().find(|(_, tree)| tree.is_none());
        let left_over = || self.entries().find(|(_, tree)| tree.is_some_and(|tree| has_ended(memory, tree)));
        same_name.or_else(empty).or_else(left_over).map(|(index, _)| index)
    }

    /// Ends an entry, if there is one, by one word.
    fn clear<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, index: u32) {
        if self.trees[index as usize].take().is_some() {
            memory.store_u64(Space::Host, geometry.catalog_entry(index) + AT_ID as u64, 0);
        }
    }
}

/// Whether a client has replaced the root word by null, which no client undoes.
fn has_ended<M: Memory + ?Sized>(memory: &M, tree: &TreeInfo) -> bool {
    memory.load_u64(Space::Host, tree.root_word) == 0
}

/// What a tree is created from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTree<'a> {
    pub(crate) name: &'a str,
    pub(crate) spec: TreeSpec,
    pub(crate) id: u32,
    pub(crate) root: u64,
}

fn check_name(name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX { Err(Refusal::BadName) } else { Ok(()) }
}
