//! Tests of entries, ids, and dropped trees.

use super::*;
use sherman_layout::testing::{VecMemory, small_options};

const SPEC: TreeSpec =
    TreeSpec { format: 2, key_len: 8, value_len: 16, leaf_bytes: 1024, internal_bytes: 512 };

fn catalog() -> (VecMemory, Geometry, Catalog) {
    let memory = VecMemory::new(64 << 10, 0);
    let geometry = Geometry::plan(&small_options().plan(64 << 10, 0).unwrap());
    Catalog::format(&memory);
    let catalog = Catalog::load(&memory, &geometry).unwrap();
    (memory, geometry, catalog)
}

fn tree(name: &str) -> NewTree<'_> {
    NewTree { name, spec: SPEC, types: None }
}

const PRESENT: fn(u16) -> bool = |_| false;

#[test]
fn creating_twice_gives_the_first_tree() {
    let (memory, geometry, mut catalog) = catalog();
    let (info, created) = catalog.create(&memory, &geometry, tree("orders"), PRESENT).unwrap();
    assert!(created);
    let other = NewTree { spec: TreeSpec { key_len: 9, ..SPEC }, ..tree("orders") };
    assert_eq!(catalog.create(&memory, &geometry, other, PRESENT), Ok((info, false)));
    assert_eq!(catalog.list().len(), 1);
}

#[test]
fn a_tree_keeps_the_types_it_was_created_with() {
    let (memory, geometry, mut catalog) = catalog();
    let types = |key| TreeTypes::new(key, "(u64, u32)");
    let typed = |name, types| NewTree { types, ..tree(name) };
    let (info, created) = catalog.create(&memory, &geometry, typed("orders", types("u64")), PRESENT).unwrap();
    assert_eq!((info.types, created), (types("u64"), true));
    let late = catalog.create(&memory, &geometry, typed("orders", types("i64")), PRESENT);
    assert_eq!(late, Ok((info.clone(), false)), "the client compares the types");
    catalog.create(&memory, &geometry, typed("plain", None), PRESENT).unwrap();
    for catalog in [&catalog, &Catalog::load(&memory, &geometry).unwrap()] {
        assert_eq!(catalog.open("orders"), Some(&info));
        assert_eq!(catalog.open("plain").unwrap().types, None);
    }
    // A tree that takes over the entry of another tree does not inherit its types.
    catalog.drop_tree(&memory, &geometry, "orders", info.id).unwrap();
    let (again, _) = catalog.create(&memory, &geometry, tree("orders"), PRESENT).unwrap();
    assert_eq!((again.types, again.root_word), (None, info.root_word));
    assert_eq!(Catalog::load(&memory, &geometry), Ok(catalog));
}

#[test]
fn root_words_are_spread_over_the_volumes_that_are_there() {
    let memory = VecMemory::new(64 << 10, 0);
    let options = sherman_layout::FormatOptions { servers: 3, catalog_capacity: 6, ..small_options() };
    let volume = options.plan(64 << 10, 0).unwrap();
    let geometry = Geometry::plan(&volume);
    Catalog::format(&memory);
    let mut catalog = Catalog::load(&memory, &geometry).unwrap();
    let mut words = Vec::new();
    for name in ["a", "b", "c", "d"] {
        words.push(catalog.create(&memory, &geometry, tree(name), |volume| volume == 1).unwrap().0.root_word);
    }
    assert_eq!(words.iter().map(|word| word.server()).collect::<Vec<_>>(), [0, 2, 0, 2]);
    assert!(words.iter().all(|word| volume.is_root_word(word.offset())));
    let full = catalog.create(&memory, &geometry, tree("e"), |volume| volume == 1);
    assert_eq!(full, Err(Refusal::TooManyTrees), "the other entries have their words on a lost volume");
    let (info, _) = catalog.create(&memory, &geometry, tree("e"), PRESENT).unwrap();
    assert_eq!(info.root_word.server(), 1);
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
    assert_eq!(last.create(&memory, &geometry, tree("t"), PRESENT), Err(Refusal::TooManyTrees));
    assert_eq!(Catalog::load(&memory, &geometry), Ok(last));
}

#[test]
fn senseless_trees_are_refused_and_change_nothing() {
    let (memory, geometry, mut catalog) = catalog();
    catalog.create(&memory, &geometry, tree("used"), PRESENT).unwrap();
    let (before, bytes) = (catalog.clone(), memory.clone());
    let long = "x".repeat(129);
    for name in ["", &long] {
        assert_eq!(catalog.create(&memory, &geometry, tree(name), PRESENT), Err(Refusal::BadName));
    }
    for spec in [
        TreeSpec { key_len: 0, ..SPEC },
        TreeSpec { key_len: 1025, leaf_bytes: 4096, internal_bytes: 4096, ..SPEC },
        TreeSpec { value_len: 1016, ..SPEC },
        TreeSpec { value_len: u32::MAX, ..SPEC },
        TreeSpec { key_len: 512, ..SPEC },
        TreeSpec { leaf_bytes: 1000, ..SPEC },
        TreeSpec { leaf_bytes: 8192, ..SPEC },
        TreeSpec { internal_bytes: 64, ..SPEC },
    ] {
        let refused = catalog.create(&memory, &geometry, NewTree { spec, ..tree("t") }, PRESENT);
        assert!(matches!(refused, Err(Refusal::BadRequest { .. })), "{spec:?}: {refused:?}");
    }
    assert_eq!((catalog, memory), (before, bytes));
}

#[test]
fn a_full_catalog_refuses_new_trees_and_still_knows_the_old() {
    let (memory, geometry, mut catalog) = catalog();
    let longest = "é".repeat(64);
    for name in ["d", "b", &longest, "a"] {
        catalog.create(&memory, &geometry, tree(name), PRESENT).unwrap();
    }
    let next = catalog.next_tree_id;
    assert_eq!(catalog.create(&memory, &geometry, tree("e"), PRESENT), Err(Refusal::TooManyTrees));
    assert_eq!(catalog.next_tree_id, next, "a refusal changes nothing");
    let again = catalog.create(&memory, &geometry, tree("a"), PRESENT);
    assert_eq!(again.map(|(_, created)| created), Ok(false));
    let names: Vec<_> = catalog.list().into_iter().map(|tree| tree.name).collect();
    assert_eq!(names, ["a", "b", "d", &longest]);
    assert_eq!(Catalog::load(&memory, &geometry), Ok(catalog));
}

#[test]
fn a_damaged_catalog_is_refused() {
    let (memory, geometry, mut catalog) = catalog();
    let types = TreeTypes::new("u64", "i64");
    catalog.create(&memory, &geometry, NewTree { types, ..tree("a") }, PRESENT).unwrap();
    for byte in 0..ENTRY as u64 {
        let copy = memory.clone();
        let at = geometry.catalog_entry(0) + byte;
        let mut old = [0];
        copy.load(Space::Host, at, &mut old);
        copy.store(Space::Host, at, &[old[0] ^ 0x80]);
        assert!(Catalog::load(&copy, &geometry).is_err(), "byte {byte}");
    }
    let moved = memory.clone();
    moved.store(Space::Host, geometry.catalog_entry(1), &load_host(&memory, geometry.catalog_entry(0), 256));
    moved.store(Space::Host, geometry.catalog_entry(0), &[0; 256]);
    assert!(Catalog::load(&moved, &geometry).is_err(), "it names the root word of another entry");
    memory.store_u64(Space::Host, NEXT_TREE_ID_OFFSET, 1);
    assert!(Catalog::load(&memory, &geometry).is_err());
}

#[test]
fn a_tree_is_dropped_by_its_own_id_and_once() {
    let (memory, geometry, mut catalog) = catalog();
    let (info, _) = catalog.create(&memory, &geometry, tree("a"), PRESENT).unwrap();
    let id = info.id;
    let missing = |name: &str| Err(Refusal::NoSuchTree { name: name.to_owned() });
    assert_eq!(catalog.drop_tree(&memory, &geometry, "b", id), missing("b"));
    assert_eq!(catalog.drop_tree(&memory, &geometry, "a", id + 1), missing("a"));
    assert_eq!(catalog.open("a"), Some(&info));
    assert_eq!(catalog.drop_tree(&memory, &geometry, "a", id), Ok(()));
    assert_eq!(catalog.drop_tree(&memory, &geometry, "a", id), missing("a"));
    assert_eq!(Catalog::load(&memory, &geometry).as_ref(), Ok(&catalog));
    let (next, created) = catalog.create(&memory, &geometry, tree("a"), PRESENT).unwrap();
    assert!(created && next.id > id, "no id comes back");
    assert_eq!(next.root_word, info.root_word, "the entry is used again");
    assert_eq!(catalog.drop_tree(&memory, &geometry, "a", id), missing("a"), "the dropper of the old one");
}
