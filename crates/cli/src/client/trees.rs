//! `sherman trees`: lists the trees of a cluster, their shapes and their types.

use super::args::TreesArgs;
use super::column::Form;
use crate::failure::Failure;
use crate::output::write;
use serde_json::{Value, json};
use sherman::{Cluster, TreeDescription};
use std::fmt;

/// Lists the trees.
pub fn run(args: &TreesArgs) -> Result<(), Failure> {
    let url = args.target.required()?;
    let cluster = super::open(&url)?;
    let trees = described(&cluster)?;
    let report = json!({ "cluster": url, "trees": trees.iter().map(as_json).collect::<Vec<_>>() });
    write(&Table(&trees), serde_json::to_string_pretty(&report), args.json)
}

/// Returns every tree, by name.
pub fn described(cluster: &Cluster) -> Result<Vec<TreeDescription>, Failure> {
    let described = cluster.trees()?.into_iter().map(TreeDescription::try_from).collect::<Result<_, _>>();
    Ok(described?)
}

/// Returns a tree as JSON.
pub fn as_json(tree: &TreeDescription) -> Value {
    json!({
        "name": tree.name,
        "id": tree.id,
        "format": tree.format.name(),
        "key_size": tree.key_bytes,
        "value_size": if tree.any_length { Value::Null } else { Value::from(tree.value_bytes) },
        "leaf_size": tree.leaf_bytes,
        "internal_size": tree.internal_bytes,
        "entries_per_leaf": tree.entries_per_leaf,
        "entries_per_internal": tree.entries_per_internal,
        "key_type": Form::of_size(tree.key_bytes).name(),
        "value_type": if tree.any_length { Form::Text } else { Form::of_size(tree.value_bytes) }.name(),
        "types": tree.types.map(|types| json!({
            "key": types.key.as_str(),
            "value": types.value.as_str(),
        })),
    })
}

/// What the table shows for the types of a tree that was created without types.
const NO_TYPE: &str = "-";

fn key_type(tree: &TreeDescription) -> String {
    tree.types.map_or(NO_TYPE.to_owned(), |types| types.key.to_string())
}

/// The trees as a table of text.
pub struct Table<'t>(pub &'t [TreeDescription]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(trees) = self;
        if trees.is_empty() {
            return write!(f, "there are no trees");
        }
        let width = trees.iter().map(|tree| tree.name.chars().count()).max().unwrap_or(0).max("tree".len());
        let key_types = trees.iter().map(|tree| key_type(tree).chars().count());
        let key_width = key_types.max().unwrap_or(0).max("key type".len());
        write!(
            f,
            "{:<width$}{:>8}{:>10}{:>10}{:>10}{:>14}{:>16}  {:<14}  {:<key_width$}  value type",
            "tree", "id", "key", "value", "leaf", "internal node", "entries/leaf", "format", "key type"
        )?;
        for tree in *trees {
            let bytes = |bytes: usize| format!("{bytes} B");
            write!(
                f,
                "\n{:<width$}{:>8}{:>10}{:>10}{:>10}{:>14}{:>16}  {:<14}  {:<key_width$}  {}",
                tree.name,
                tree.id,
                bytes(tree.key_bytes),
                if tree.any_length { "any".to_owned() } else { bytes(tree.value_bytes) },
                bytes(tree.leaf_bytes),
                bytes(tree.internal_bytes),
                tree.entries_per_leaf,
                tree.format.name(),
                key_type(tree),
                tree.types.map_or(NO_TYPE.to_owned(), |types| types.value.to_string())
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::cluster;
    use super::*;

    #[test]
    fn trees_are_listed_by_name_with_their_shapes_and_types() {
        let cluster = cluster();
        assert_eq!(Table(&described(&cluster).expect("trees")).to_string(), "there are no trees");
        cluster.tree::<u64, [u8; 24]>("users").expect("a tree");
        cluster.tree::<u64, u64>("orders").expect("a tree");
        let trees = described(&cluster).expect("trees");
        let said = Table(&trees).to_string();
        let lines: Vec<&str> = said.lines().collect();
        assert!(
            lines.len() == 3 && lines[1].starts_with("orders ") && lines[2].starts_with("users "),
            "{said}"
        );
        assert!(lines[2].contains("24 B") && lines[2].contains("15  line-stamped"), "{said}");
        let json = as_json(&trees[1]);
        assert_eq!((json["key_type"].as_str(), json["value_type"].as_str()), (Some("u64"), Some("hex")));
        assert_eq!((json["value_size"].as_u64(), json["entries_per_leaf"].as_u64()), (Some(24), Some(15)));
        assert!(lines[0].ends_with("  format          key type  value type"), "{said}");
        assert!(lines[2].ends_with("  line-stamped    u64       [u8; 24]"), "{said}");
        assert_eq!(json["types"], json!({ "key": "u64", "value": "[u8; 24]" }));
    }

    #[test]
    fn a_tree_of_byte_strings_has_no_types() {
        let cluster = cluster();
        cluster.raw_tree("raw", &sherman::TreeOptions::new()).expect("a tree");
        let trees = described(&cluster).expect("trees");
        assert!(Table(&trees).to_string().ends_with("  line-hashed     -         -"), "{}", Table(&trees));
        assert_eq!(as_json(&trees[0])["types"], Value::Null);
    }
}
