//! An entry of the catalog, on server 0: the address of the root word, the id, the shape, the name and the
//! types of a tree.

use crate::bytes::{LINE, get_u16, get_u32, get_u64, put};
use crate::geometry::CATALOG_ENTRY_BYTES;
use sherman_fabric::control::{TreeInfo, TreeSpec};
use sherman_fabric::tree_types::TYPE_NAME_BYTES_MAX;
use sherman_fabric::{GlobalAddress, TreeTypes};
use twox_hash::XxHash3_64;

/// The longest name in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Bytes of an entry.
pub const ENTRY: usize = CATALOG_ENTRY_BYTES as usize;
const AT_ROOT_WORD: usize = 0;
/// Offset of the word with the id. An entry exists while the id is not 0.
pub const AT_ID: usize = 8;
const AT_NAME_LEN: usize = 12;
const AT_FORMAT: usize = 14;
const AT_KEY_LEN: usize = 16;
const AT_VALUE_LEN: usize = 20;
const AT_LEAF_BYTES: usize = 24;
const AT_INTERNAL_BYTES: usize = 28;
const AT_CHECKSUM: usize = 56;
/// Offset of the name.
pub const AT_NAME: usize = 64;
/// Offsets of the names of the key type and of the value type: a length byte, then the name. Both lengths are
/// 0 in the entry of a tree whose creator gave no types, and in entries made before there were types.
const AT_KEY_TYPE: usize = 192;
const AT_VALUE_TYPE: usize = 224;

const _: () = assert!(AT_ROOT_WORD + 8 <= AT_ID && AT_ID.is_multiple_of(8) && AT_NAME_LEN + 2 <= AT_ID + 8);
const _: () = assert!(AT_INTERNAL_BYTES + 4 <= AT_CHECKSUM && AT_CHECKSUM + 8 == LINE as usize);
const _: () = assert!(AT_NAME + NAME_BYTES_MAX <= AT_KEY_TYPE);
const _: () = assert!(AT_KEY_TYPE + 1 + TYPE_NAME_BYTES_MAX <= AT_VALUE_TYPE);
const _: () = assert!(AT_VALUE_TYPE + 1 + TYPE_NAME_BYTES_MAX <= ENTRY);

/// The checksum over everything but the checksum itself.
fn checksum(entry: &[u8; ENTRY]) -> u64 {
    let mut copy = *entry;
    put(&mut copy, AT_CHECKSUM, [0; 8]);
    XxHash3_64::oneshot(&copy)
}

/// The entry of a tree.
pub fn encode(info: &TreeInfo) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    let name = info.name.as_bytes();
    put(&mut entry, AT_ROOT_WORD, info.root_word.to_bits().to_le_bytes());
    put(&mut entry, AT_ID, info.id.to_le_bytes());
    put(&mut entry, AT_NAME_LEN, (name.len() as u16).to_le_bytes());
    put(&mut entry, AT_FORMAT, [info.spec.format]);
    put(&mut entry, AT_KEY_LEN, info.spec.key_len.to_le_bytes());
    put(&mut entry, AT_VALUE_LEN, info.spec.value_len.to_le_bytes());
    put(&mut entry, AT_LEAF_BYTES, info.spec.leaf_bytes.to_le_bytes());
    put(&mut entry, AT_INTERNAL_BYTES, info.spec.internal_bytes.to_le_bytes());
    entry[AT_NAME..AT_NAME + name.len()].copy_from_slice(name);
    if let Some(TreeTypes { key, value }) = &info.types {
        for (at, name) in [(AT_KEY_TYPE, key.as_str()), (AT_VALUE_TYPE, value.as_str())] {
            entry[at] = name.len() as u8;
            entry[at + 1..at + 1 + name.len()].copy_from_slice(name.as_bytes());
        }
    }
    let sum = checksum(&entry);
    put(&mut entry, AT_CHECKSUM, sum.to_le_bytes());
    entry
}

/// The tree in an entry; `None` if the entry is empty.
pub fn decode(entry: &[u8; ENTRY]) -> Result<Option<TreeInfo>, &'static str> {
    let id = get_u32(entry, AT_ID);
    if id == 0 {
        return Ok(None);
    }
    if checksum(entry) != get_u64(entry, AT_CHECKSUM) {
        return Err("has a wrong checksum");
    }
    let name = entry[AT_NAME..AT_NAME + NAME_BYTES_MAX].get(..usize::from(get_u16(entry, AT_NAME_LEN)));
    let name = name.and_then(|name| std::str::from_utf8(name).ok()).ok_or("has an invalid name")?;
    let spec = TreeSpec {
        format: entry[AT_FORMAT],
        key_len: get_u16(entry, AT_KEY_LEN),
        value_len: get_u32(entry, AT_VALUE_LEN),
        leaf_bytes: get_u32(entry, AT_LEAF_BYTES),
        internal_bytes: get_u32(entry, AT_INTERNAL_BYTES),
    };
    let types = decode_types(entry).ok_or("has an invalid type name")?;
    let root_word = GlobalAddress::from_bits(get_u64(entry, AT_ROOT_WORD));
    Ok(Some(TreeInfo { id, name: name.to_owned(), spec, types, root_word }))
}

/// The types in an entry: `Some(None)` if it has none, `None` if it has only one or an invalid name.
fn decode_types(entry: &[u8; ENTRY]) -> Option<Option<TreeTypes>> {
    let name = |at: usize| {
        let bytes = entry[at + 1..at + 1 + TYPE_NAME_BYTES_MAX].get(..usize::from(entry[at]))?;
        std::str::from_utf8(bytes).ok()
    };
    match (name(AT_KEY_TYPE)?, name(AT_VALUE_TYPE)?) {
        ("", "") => Some(None),
        (key, value) => TreeTypes::new(key, value).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: TreeSpec =
        TreeSpec { format: 2, key_len: 8, value_len: 16, leaf_bytes: 1024, internal_bytes: 512 };
    const ROOT_WORD: GlobalAddress = GlobalAddress::from_bits(0x0001_0000_0000_2a40);

    fn info(types: Option<TreeTypes>) -> TreeInfo {
        TreeInfo { id: 7, name: "orders".to_owned(), spec: SPEC, types, root_word: ROOT_WORD }
    }

    #[track_caller]
    fn assert_golden(info: TreeInfo, golden: &str) {
        let image = encode(&info);
        let mut rows = image.chunks(16).map(|row| row.iter().map(|b| format!("{b:02x}")).collect::<String>());
        for row in golden.lines() {
            assert_eq!(rows.next().as_deref(), Some(row));
        }
        assert_eq!(rows.next(), None);
        assert_eq!(decode(&image), Ok(Some(info)));
    }

    #[test]
    fn the_golden_image_of_an_entry_without_types_does_not_change() {
        assert_golden(info(None), include_str!("golden/catalog_entry.hex"));
    }

    #[test]
    fn the_golden_image_of_an_entry_with_types_does_not_change() {
        let types = TreeTypes::new("(u64, u32)", "LongestNameInCatalogé#0123abcd");
        assert_golden(info(types), include_str!("golden/catalog_entry_with_types.hex"));
    }

    #[test]
    fn every_pair_of_type_names_is_decoded_to_what_was_encoded() {
        let longest = "x".repeat(TYPE_NAME_BYTES_MAX);
        let names = ["u", "[u8; 16]", "Straße", &longest];
        for (key, value) in names.iter().flat_map(|key| names.map(|value| (key, value))) {
            let types = TreeTypes::new(key, value);
            assert!(types.is_some());
            assert_eq!(decode(&encode(&info(types))), Ok(Some(info(types))));
        }
    }

    #[test]
    fn an_entry_with_an_invalid_type_name_is_refused() {
        let with = |at: usize, byte: u8| {
            let mut entry = encode(&info(TreeTypes::new("u64", "i64")));
            entry[at] = byte;
            let sum = checksum(&entry);
            put(&mut entry, AT_CHECKSUM, sum.to_le_bytes());
            decode(&entry)
        };
        for at in [AT_KEY_TYPE, AT_VALUE_TYPE] {
            for (what, at, byte) in [
                ("only one type", at, 0),
                ("a name that is too long", at, 32),
                ("a name that is too long", at, 255),
                ("a name that is not UTF-8", at + 1, 0xff),
            ] {
                assert_eq!(with(at, byte), Err("has an invalid type name"), "{what} at {at}");
            }
            assert_eq!(with(at, 3), Ok(Some(info(TreeTypes::new("u64", "i64")))));
        }
    }

    #[test]
    fn random_entries_never_panic() {
        let mut rng = fastrand::Rng::with_seed(11);
        let info = info(TreeTypes::new("u64", "i64"));
        let (mut taken, mut refused) = (0, 0);
        for round in 0..200_000 {
            let mut entry = encode(&info);
            let from = if round % 2 == 0 { 0 } else { rng.usize(..ENTRY) };
            rng.fill(&mut entry[from..]);
            if round % 4 == 1 {
                put(&mut entry, AT_NAME_LEN, rng.u16(..).to_le_bytes());
            }
            if round % 4 == 3 {
                entry[AT_KEY_TYPE] = rng.u8(..3);
                entry[AT_VALUE_TYPE] = rng.u8(..3);
            }
            let sum = checksum(&entry);
            put(&mut entry, AT_CHECKSUM, sum.to_le_bytes());
            match decode(&entry) {
                Ok(Some(info)) => {
                    taken += 1;
                    assert_eq!(decode(&encode(&info)), Ok(Some(info)));
                }
                Ok(None) => {}
                Err(_) => refused += 1,
            }
        }
        assert!(taken > 1_000 && refused > 1_000, "{taken} {refused}");
    }
}
