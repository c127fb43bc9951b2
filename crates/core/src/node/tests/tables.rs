//! The figures in `docs/LAYOUT.md`.

use super::*;
use std::path::PathBuf;

/// The capacities of leaves and internal nodes, as a table.
fn capacities() -> String {
    let mut text = String::from("| key | value | node |");
    for format in Format::ALL {
        text += &format!(" `{format:?}` |");
    }
    text += &format!("\n|{}\n", "---:|".repeat(3 + Format::ALL.len()));
    for (key, value, bytes) in [
        (8, 8, 256),
        (8, 8, 512),
        (8, 8, 1024),
        (8, 8, 4096),
        (8, 0, 1024),
        (8, 52, 1024),
        (8, 53, 1024),
        (8, 100, 1024),
        (16, 8, 1024),
        (16, 44, 1024),
        (19, 8, 1024),
        (20, 8, 1024),
        (32, 256, 4096),
        (100, 1000, 16384),
        (1024, 1000, 65536),
    ] {
        text += &format!("| {key} | {value} | {bytes} |");
        for format in Format::ALL {
            let cell = match tree_shape(format, key, value, bytes) {
                Ok(shape) => format!("{} / {}", shape.leaf.capacity(), shape.internal.capacity()),
                Err(_) => "-".to_string(),
            };
            text += &format!(" {cell} |");
        }
        text += "\n";
    }
    text
}

#[test]
fn the_layout_document_gives_the_capacities_there_are() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/LAYOUT.md");
    let document = std::fs::read_to_string(&path).expect("docs/LAYOUT.md is there");
    let expected = capacities();
    assert!(document.contains(&expected), "docs/LAYOUT.md should hold this table:\n{expected}");
}
