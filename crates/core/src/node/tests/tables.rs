//! The figures in `docs/LAYOUT.md`.

use super::*;
use crate::node::hashed::window_bytes;
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

fn document() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/LAYOUT.md");
    std::fs::read_to_string(&path).expect("docs/LAYOUT.md is there")
}

#[test]
fn the_layout_document_gives_the_capacities_there_are() {
    let expected = capacities();
    assert!(document().contains(&expected), "docs/LAYOUT.md should hold this table:\n{expected}");
}

#[test]
fn the_layout_document_shows_the_lines_of_key_7_as_they_are() {
    let document = document();
    let shape = leaf_shape(Format::LineHashed, 8, 8, 1024);
    let window = window_bytes(&shape, &7_u64.to_be_bytes());
    assert_eq!(window, 192..448);
    for image in [super::golden::old_hashed_leaf(), super::golden::hashed_leaf(0)] {
        for at in window.clone().step_by(16) {
            let words = [at, at + 8].map(|at| {
                let bytes: Vec<String> = image[at..at + 8].iter().map(|byte| format!("{byte:02x}")).collect();
                bytes.join(" ")
            });
            let row = format!(" {at}  | {} | {} |", words[0], words[1]);
            assert!(document.contains(&row), "docs/LAYOUT.md should hold this row:\n{row}");
        }
    }
}
