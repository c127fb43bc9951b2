//! Tests of entries, ids, and dropped trees.

use super::*;
use sherman_layout::testing::{VecMemory, small_options};

const SPEC: TreeSpec =
    TreeSpec { format: 2, key_len: 8, value_len: 16, leaf_bytes: 1024, internal_bytes: 512 };
const ROOT: u64 = 0x0001_0000_0000_2a40;

fn catalog() -> (VecMemory, Geometry, Catalog) {
    let memory = VecMemory::new(64 << 10, 0);
    let geometry = small_options().plan(64 << 10, 0).unwrap();
    Catalog::format(&memory);
    let catalog = Catalog::load(&memory, &geometry).unwrap();
    (memory, geometry, catalog)
}

fn tree(name: &str, id: u32) -> NewTree<'_> {
    NewTree { name, spec: SPEC, types: None, id, root: ROOT }
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
    assert_eq!(catalog.list(&memory).len(), 1);
}

#[test]
fn a_tree_keeps_the_types_it_was_created_with() {
    let (memory, geometry, mut catalog) = catalog();
    let ids = [1, 2, 3].map(|_| catalog.new_tree_id(&memory).unwrap());
    let types = |key| TreeTypes::new(key, "(u64, u32)");
    let typed = |name, id, types| NewTree { types, ..tree(name, id) };
    let (info, created) = catalog.create(&memory, &geometry, typed("orders", ids[0], types("u64"))).unwrap();
    assert_eq!((info.types, created), (types("u64"), true));
    let late = catalog.create(&memory, &geometry, typed("orders", ids[1], types("i64")));
    assert_eq!(late, Ok((info.clone(), false)), "the client compares the types");
    catalog.create(&memory, &geometry, typed("plain", ids[1], None)).unwrap();
    for catalog in [&catalog, &Catalog::load(&memory, &geometry).unwrap()] {
        assert_eq!(catalog.open(&memory, "orders"), Some(&info));
        assert_eq!(catalog.open(&memory, "plain").unwrap().types, None);
    }
    // A tree that takes over the entry of another tree does not inherit its types.
    end(&memory, &info);
    let (again, _) = catalog.create(&memory, &geometry, tree("orders", ids[2])).unwrap();
    assert_eq!((again.types, again.root_word), (None, info.root_word));
    assert_eq!(Catalog::load(&memory, &geometry), Ok(catalog));
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
    let names: Vec<_> = catalog.list(&memory).into_iter().map(|tree| tree.name).collect();
    assert_eq!(names, ["a", "b", "d", &longest]);
    assert_eq!(Catalog::load(&memory, &geometry), Ok(catalog));
}

#[test]
fn a_damaged_catalog_is_refused() {
    let (memory, geometry, mut catalog) = catalog();
    let id = catalog.new_tree_id(&memory).unwrap();
    let types = TreeTypes::new("u64", "i64");
    catalog.create(&memory, &geometry, NewTree { types, ..tree("a", id) }).unwrap();
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

/// Ends a tree as a client does: by its root word.
fn end(memory: &VecMemory, tree: &TreeInfo) {
    memory.store_u64(Space::Host, tree.root_word, 0);
}

#[test]
fn a_tree_is_dropped_only_once_its_root_word_is_null_and_by_its_own_id() {
    let (memory, geometry, mut catalog) = catalog();
    let id = catalog.new_tree_id(&memory).unwrap();
    let (info, _) = catalog.create(&memory, &geometry, tree("a", id)).unwrap();
    let missing = |name: &str| Err(Refusal::NoSuchTree { name: name.to_owned() });
    assert_eq!(catalog.drop_tree(&memory, &geometry, "b", id), missing("b"));
    assert_eq!(catalog.drop_tree(&memory, &geometry, "a", id + 1), missing("a"));
    let alive = catalog.drop_tree(&memory, &geometry, "a", id);
    assert!(matches!(alive, Err(Refusal::BadRequest { .. })), "{alive:?}");
    assert_eq!(catalog.open(&memory, "a"), Some(&info));
    end(&memory, &info);
    assert_eq!(catalog.drop_tree(&memory, &geometry, "a", id), Ok(()));
    assert_eq!(catalog.drop_tree(&memory, &geometry, "a", id), missing("a"));
    assert_eq!(memory.load_u64(Space::Host, info.root_word), 0);
    assert_eq!(Catalog::load(&memory, &geometry), Ok(catalog));
}

#[test]
fn a_tree_whose_root_word_is_null_is_not_found() {
    let (memory, geometry, mut catalog) = catalog();
    let ids = [catalog.new_tree_id(&memory).unwrap(), catalog.new_tree_id(&memory).unwrap()];
    let (a, _) = catalog.create(&memory, &geometry, tree("a", ids[0])).unwrap();
    let (b, _) = catalog.create(&memory, &geometry, tree("b", ids[1])).unwrap();
    end(&memory, &a);
    for catalog in [&catalog, &Catalog::load(&memory, &geometry).unwrap()] {
        assert_eq!(catalog.open(&memory, "a"), None);
        assert_eq!(catalog.list(&memory), std::slice::from_ref(&b));
    }
}

#[test]
fn a_new_tree_takes_the_name_and_the_entry_of_one_that_was_dropped_half_way() {
    let (memory, geometry, mut catalog) = catalog();
    let ids = [1, 2, 3].map(|_| catalog.new_tree_id(&memory).unwrap());
    catalog.create(&memory, &geometry, tree("first", ids[0])).unwrap();
    let (old, _) = catalog.create(&memory, &geometry, tree("a", ids[1])).unwrap();
    end(&memory, &old);
    let refused = catalog.create(&memory, &geometry, tree("a", ids[1]));
    assert!(matches!(refused, Err(Refusal::BadRequest { .. })), "its nodes may still exist: {refused:?}");
    let (new, created) = catalog.create(&memory, &geometry, tree("a", ids[2])).unwrap();
    assert!(created);
    assert_eq!((new.id, new.root_word), (ids[2], old.root_word));
    assert_eq!(memory.load_u64(Space::Host, new.root_word), ROOT);
    let late = catalog.drop_tree(&memory, &geometry, "a", ids[1]);
    assert_eq!(late, Err(Refusal::NoSuchTree { name: "a".to_owned() }), "the dropper of the old one");
    assert_eq!(Catalog::load(&memory, &geometry), Ok(catalog));
}

#[test]
fn trees_dropped_half_way_do_not_fill_the_catalog() {
    let (memory, geometry, mut catalog) = catalog();
    for round in 0..12 {
        let id = catalog.new_tree_id(&memory).unwrap();
        let name = format!("tree {round}");
        let (info, created) = catalog.create(&memory, &geometry, tree(&name, id)).unwrap();
        assert!(created);
        if round >= 3 {
            end(&memory, &info);
        }
        assert_eq!(Catalog::load(&memory, &geometry).as_ref(), Ok(&catalog));
    }
    let names: Vec<_> = catalog.list(&memory).into_iter().map(|tree| tree.name).collect();
    assert_eq!(names, ["tree 0", "tree 1", "tree 2"]);
}
