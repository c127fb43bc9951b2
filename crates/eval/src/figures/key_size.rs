//! Longer keys (figure 15a and b, §5.6.1).

use super::model::Figure;
use super::paper::{sensitivity as paper, setup};
use super::parts::{self, SKEW, UNIFORM, axis, bars, judged, names, over, point, series, table, tree};
use super::plan::{Outcomes, Scale, Source};
use crate::experiment::{Job, TreeJob};
use crate::variant::Variant;
use crate::workload::Workload;
use sherman::TreeOptions;

/// The figure.
pub(super) const SOURCE: Source = Source { name: "key-size", title: "Longer keys", draw };

const KEYS: [usize; 4] = [16, 64, 256, 1024];
const VARIANTS: [Variant; 3] = [Variant::FgPlus, Variant::Sherman, Variant::Ours];
const SKEWS: [(f64, &str); 2] = [(UNIFORM, "Uniform"), (SKEW, "Skewed, zipf 0.99")];
/// The sizes that a node can have.
const SIZES: std::ops::RangeInclusive<usize> = 256..=65_536;
const LINE: usize = 64;

/// Returns the bytes of leaves and of internal nodes that hold as many entries as the paper's leaves.
/// Internal nodes keep 1 KB while that is enough.
fn node_sizes(variant: Variant, key_size: usize) -> (usize, usize) {
    let options = TreeOptions::new().format(variant.format()).sizes(key_size, setup::VALUE_BYTES);
    let entries = |bytes: usize| options.clone().node_bytes(bytes).entries_per_node().unwrap_or((0, 0));
    let least = |enough: &dyn Fn((usize, usize)) -> bool| {
        SIZES.step_by(LINE).find(|&bytes| enough(entries(bytes))).unwrap_or(*SIZES.end())
    };
    let leaf = least(&|(leaf, _)| leaf >= paper::ENTRIES_PER_LEAF);
    let internal = least(&|(_, internal)| internal >= paper::ENTRIES_PER_LEAF);
    (leaf, internal.max(setup::NODE_BYTES))
}

fn job(scale: &Scale, variant: Variant, key_size: usize, zipf: f64) -> Job {
    let (leaf_size, internal_size) = node_sizes(variant, key_size);
    // A fifth of the keys of the other experiments, as in the paper.
    let keys = scale.keys / (setup::BULK_LOADED_ENTRIES / paper::KEY_SIZE_ENTRIES);
    // Nodes of the longest keys are 36 KB. With the usual number of operations, the nodes touched would not
    // fit into a laptop's memory.
    let operations = if key_size > 256 { scale.operations.div_ceil(4) } else { scale.operations };
    Job::Tree(TreeJob {
        operations,
        keys,
        key_size,
        leaf_size,
        internal_size,
        ..tree(scale, variant, Workload::WriteIntensive, zipf)
    })
}

fn draw(scale: &Scale, outcomes: &dyn Outcomes) -> Figure {
    let panel = |(zipf, title): (f64, &str)| {
        let bar = |variant: Variant| {
            let runs = |key| outcomes.of(&job(scale, variant, key, zipf));
            series(
                variant.name(),
                KEYS.iter().enumerate().map(|(x, &key)| point(x as f64, runs(key), parts::mops)),
            )
        };
        bars(
            title,
            names("bytes of a key", KEYS.map(|key| key.to_string())),
            axis("Mops"),
            VARIANTS.map(bar).into(),
        )
    };
    let gain = |key, zipf| {
        let job = |variant| job(scale, variant, key, zipf);
        over(outcomes, &job(Variant::Sherman), &job(Variant::FgPlus), parts::mops)
    };
    let sizes = KEYS.iter().map(|&key| {
        let cells = VARIANTS.map(|variant| {
            let (leaf, internal) = node_sizes(variant, key);
            format!("{leaf} / {internal}")
        });
        std::iter::once(key.to_string()).chain(cells).collect()
    });
    Figure {
        paper: "Figure 15 (a) and (b), §5.6.1",
        about: "Write-intensive, with a fifth of the entries of the other experiments. Leaves hold 32 \
                entries for every key size, so they grow with the keys. Every operation reads a leaf, so \
                all get slower. Sherman's lead grows, because it does not write a whole leaf back. The \
                paper does not say what happens to internal nodes: here they grow to hold 32 entries, too. \
                The paper names no other cache, so the usual one is used. The longer the keys, the smaller \
                the part of the index that it holds."
            .to_owned(),
        panels: SKEWS.map(panel).into(),
        tables: vec![table(
            "Bytes of a leaf / of an internal node",
            &["key", "fg+", "sherman", "ours"],
            sizes.collect(),
        )],
        claims: vec![
            judged(
                "sensitivity.key_size_uniform.sherman_over_fg_plus_at_16B",
                "uniform, keys of 16 bytes: throughput, sherman over fg+",
                paper::UNIFORM_SHERMAN_OVER_FG_PLUS_AT_16B,
                gain(16, UNIFORM),
                "",
            ),
            judged(
                "sensitivity.key_size_uniform.sherman_over_fg_plus_at_1KB",
                "uniform, keys of 1 KB: throughput, sherman over fg+",
                paper::UNIFORM_SHERMAN_OVER_FG_PLUS_AT_1KB,
                gain(1024, UNIFORM),
                "",
            ),
            judged(
                "sensitivity.key_size_skew.sherman_over_fg_plus_at_1KB",
                "skewed, keys of 1 KB: throughput, sherman over fg+",
                paper::SKEW_SHERMAN_OVER_FG_PLUS_AT_1KB,
                gain(1024, SKEW),
                "",
            ),
        ],
        ..Figure::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_hold_as_many_entries_as_the_paper_s_and_are_no_larger_than_that_takes() {
        for variant in VARIANTS {
            for key in KEYS {
                let (leaf, internal) = node_sizes(variant, key);
                let entries = |leaf: usize, internal: usize| {
                    let options = TreeOptions::new().format(variant.format()).sizes(key, setup::VALUE_BYTES);
                    options.leaf_bytes(leaf).internal_bytes(internal).entries_per_node().expect("legal sizes")
                };
                assert!(entries(leaf, internal) >= (32, 32), "{variant:?}, {key}: {leaf}, {internal}");
                assert!(entries(leaf, internal).1 >= 32, "{variant:?}, {key}: {internal}");
                assert!(entries(leaf - LINE, internal).0 < 32, "{variant:?}, {key}: {leaf}");
                assert!(
                    internal == 1024 || entries(leaf, internal - LINE).1 < 32,
                    "{variant:?}, {key}: {internal}"
                );
            }
        }
    }
}
