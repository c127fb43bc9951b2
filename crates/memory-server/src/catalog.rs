//! The catalog: on server 0, a 256-byte entry per named tree.
//!
//! An entry begins with the tree's root word (`docs/INVARIANTS.md`), at which every client's descent begins. Clients change
//! it by CAS; the server's CPU stores it once, before the entry exists, and never again, since NIC and CPU atomics do
//! not mix. The rest of the entry is fixed at creation and guarded by a checksum that leaves the root word out.
//!
//! An entry comes into being by its second word, which holds the tree's id: all else is stored before it. Ids come from
//! a counter in the state line and are never issued twice, because every node carries its tree's id to be told from a
//! stale one.

use crate::bytes::{LINE, get_u16, get_u32, get_u64, load_host, put};
use crate::geometry::{CATALOG_ENTRY_BYTES, Geometry, NEXT_TREE_ID_OFFSET};
use crate::server::OpenError;
use sherman_fabric::control::{TreeInfo, TreeSpec};
use sherman_fabric::{Memory, Refusal, Space};
use twox_hash::XxHash3_64;

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
    pub(crate) fn open(&self, name: &str) -> Option<&TreeInfo> {
        self.trees.iter().flatten().find(|tree| tree.name == name)
    }

    /// All trees, by name.
    pub(crate) fn list(&self) -> Vec<TreeInfo> {
        let mut trees: Vec<_> = self.trees.iter().flatten().cloned().collect();
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
        if let Some(existing) = self.open(name) {
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
        let free = self.trees.iter().zip(0u32..).find(|(tree, _)| tree.is_none());
        let (_, index) = free.ok_or(Refusal::TooManyTrees)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{VecMemory, small_options};

    const SPEC: TreeSpec = TreeSpec { format: 2, key_len: 8, value_len: 16, leaf_bytes: 1024, internal_bytes: 512 };
    const ROOT: u64 = 0x0001_0000_0000_2a40;

    fn catalog() -> (VecMemory, Geometry, Catalog) {
        let memory = VecMemory::new(64 << 10, 0);
        let geometry = small_options().plan(64 << 10, 0).unwrap();
        Catalog::format(&memory);
        let catalog = Catalog::load(&memory, &geometry).unwrap();
        (memory, geometry, catalog)
    }

    fn tree(name: &str, id: u32) -> NewTree<'_> {
        NewTree { name, spec: SPEC, id, root: ROOT }
    }

    #[test]
    fn the_golden_image_of_an_entry_does_not_change() {
        let info = TreeInfo { id: 7, name: "orders".to_owned(), spec: SPEC, root_word: 0 };
        let image = encode(&info, ROOT);
        let mut rows = image.chunks(16).map(|row| row.iter().map(|b| format!("{b:02x}")).collect::<String>());
        for row in include_str!("golden/catalog_entry.hex").lines() {
            assert_eq!(rows.next().as_deref(), Some(row));
        }
        assert_eq!(rows.next(), None);
        assert_eq!(decode(&image, 0), Ok(Some(info)));
    }

    #[test]
    fn creating_twice_gives_the_first_tree() {
        let (memory, geometry, mut catalog) = catalog();
        let (first, second) = (catalog.new_tree_id(&memory).unwrap(), catalog.new_tree_id(&memory).unwrap());
        let (info, created) = catalog.create(&memory, &geometry, tree("orders", first)).unwrap();
        assert!(created);
        assert_eq!(memory.load_u64(Space::Host, info.root_word), ROOT);
        let other = NewTree { spec: TreeSpec { key_len: 9, ..SPEC }, root: 64, ..tree("orders", second) };
        assert_eq!(catalog.create(&memory, &geometry, other), Ok((info, false)));
        assert_eq!(catalog.list().len(), 1);
    }

    #[test]
    fn the_server_never_stores_to_a_root_word_again() {
        let (memory, geometry, mut catalog) = catalog();
        let id = catalog.new_tree_id(&memory).unwrap();
        let (info, _) = catalog.create(&memory, &geometry, tree("a", id)).unwrap();
        memory.store_u64(Space::Host, info.root_word, 4096);
        catalog.create(&memory, &geometry, tree("a", id)).unwrap();
        let id = catalog.new_tree_id(&memory).unwrap();
        catalog.create(&memory, &geometry, tree("b", id)).unwrap();
        assert_eq!(memory.load_u64(Space::Host, info.root_word), 4096);
        assert_eq!(Catalog::load(&memory, &geometry), Ok(catalog));
    }

    #[test]
    fn tree_ids_are_never_issued_twice_even_after_a_restart() {
        let (memory, geometry, mut catalog) = catalog();
        assert_eq!((catalog.new_tree_id(&memory), catalog.new_tree_id(&memory)), (Ok(1), Ok(2)));
        let mut again = Catalog::load(&memory, &geometry).unwrap();
        assert_eq!(again.new_tree_id(&memory), Ok(3));
        memory.store_u64(Space::Host, NEXT_TREE_ID_OFFSET, u64::from(u32::MAX));
        let mut last = Catalog::load(&memory, &geometry).unwrap();
        assert_eq!(last.new_tree_id(&memory), Ok(u32::MAX));
        assert_eq!(last.new_tree_id(&memory), Err(Refusal::TooManyTrees));
        assert_eq!(Catalog::load(&memory, &geometry), Ok(last));
    }

    #[test]
    fn senseless_trees_are_refused_and_change_nothing() {
        let (memory, geometry, mut catalog) = catalog();
        let id = catalog.new_tree_id(&memory).unwrap();
        let used = catalog.new_tree_id(&memory).unwrap();
        catalog.create(&memory, &geometry, tree("used", used)).unwrap();
        let (before, bytes) = (catalog.clone(), memory.clone());
        let long = "x".repeat(129);
        for name in ["", &long] {
            assert_eq!(catalog.create(&memory, &geometry, tree(name, id)), Err(Refusal::BadName));
        }
        let shaped = |spec| NewTree { spec, ..tree("t", id) };
        for bad in [
            shaped(TreeSpec { key_len: 0, ..SPEC }),
            shaped(TreeSpec { key_len: 1025, leaf_bytes: 4096, internal_bytes: 4096, ..SPEC }),
            shaped(TreeSpec { value_len: 1016, ..SPEC }),
            shaped(TreeSpec { value_len: u32::MAX, ..SPEC }),
            shaped(TreeSpec { key_len: 512, ..SPEC }),
            shaped(TreeSpec { leaf_bytes: 1000, ..SPEC }),
            shaped(TreeSpec { leaf_bytes: 8192, ..SPEC }),
            shaped(TreeSpec { internal_bytes: 64, ..SPEC }),
            tree("t", 0),
            tree("t", used),
            tree("t", used + 1),
            NewTree { root: 0, ..tree("t", id) },
        ] {
            let refused = catalog.create(&memory, &geometry, bad);
            assert!(matches!(refused, Err(Refusal::BadRequest { .. })), "{bad:?}: {refused:?}");
        }
        assert_eq!((catalog, memory), (before, bytes));
    }

    #[test]
    fn a_full_catalog_refuses_new_trees_and_still_knows_the_old() {
        let (memory, geometry, mut catalog) = catalog();
        let longest = "é".repeat(64);
        for name in ["d", "b", &longest, "a"] {
            let id = catalog.new_tree_id(&memory).unwrap();
            catalog.create(&memory, &geometry, tree(name, id)).unwrap();
        }
        let id = catalog.new_tree_id(&memory).unwrap();
        assert_eq!(catalog.create(&memory, &geometry, tree("e", id)), Err(Refusal::TooManyTrees));
        assert_eq!(catalog.create(&memory, &geometry, tree("a", id)).map(|(_, created)| created), Ok(false));
        let names: Vec<_> = catalog.list().into_iter().map(|tree| tree.name).collect();
        assert_eq!(names, ["a", "b", "d", &longest]);
        assert_eq!(Catalog::load(&memory, &geometry), Ok(catalog));
    }

    #[test]
    fn a_damaged_catalog_is_refused() {
        let (memory, geometry, mut catalog) = catalog();
        let id = catalog.new_tree_id(&memory).unwrap();
        catalog.create(&memory, &geometry, tree("a", id)).unwrap();
        for byte in 8..ENTRY as u64 {
            let copy = memory.clone();
            let at = geometry.catalog_entry(0) + byte;
            let mut old = [0];
            copy.load(Space::Host, at, &mut old);
            copy.store(Space::Host, at, &[old[0] ^ 0x80]);
            assert!(Catalog::load(&copy, &geometry).is_err(), "byte {byte}");
        }
        let twice = memory.clone();
        twice.store(Space::Host, geometry.catalog_entry(1), &load_host(&memory, geometry.catalog_entry(0), 256));
        assert!(Catalog::load(&twice, &geometry).is_err());
        memory.store_u64(Space::Host, NEXT_TREE_ID_OFFSET, 1);
        assert!(Catalog::load(&memory, &geometry).is_err());
    }

    #[test]
    fn random_entries_never_panic() {
        let mut rng = fastrand::Rng::with_seed(11);
        let info = TreeInfo { id: 7, name: "orders".to_owned(), spec: SPEC, root_word: 0 };
        for round in 0..200_000 {
            let mut entry = encode(&info, ROOT);
            let from = if round % 2 == 0 { 0 } else { rng.usize(..ENTRY) };
            rng.fill(&mut entry[from..]);
            if round % 4 == 1 {
                put(&mut entry, AT_NAME_LEN, rng.u16(..).to_le_bytes());
            }
            let sum = checksum(&entry);
            put(&mut entry, AT_CHECKSUM, sum.to_le_bytes());
            let _ = decode(&entry, 0);
        }
    }
}
