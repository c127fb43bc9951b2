//! What the laboratory must give.

use super::*;
use crate::{HotKeys, Variant, Workload};
use sherman_sim::nic::Params;

fn locks(kind: LockKind, zipf: f64) -> LockJob {
    LockJob { kind, locks: 10_240, zipf, compute: 8, threads: 22, operations: 40_000, seed: 1, params: Params::PAPER }
}

fn tree(variant: Variant, zipf: f64) -> TreeJob {
    TreeJob {
        variant,
        workload: Workload::WriteIntensive,
        removes: 0,
        zipf,
        hot: HotKeys::Scattered,
        keys: 1_000_000,
        key_size: 8,
        value_size: 8,
        leaf_size: 1024,
        internal_size: 1024,
        fill: 80,
        compute: 8,
        memory: 8,
        threads: 22,
        coroutines: 1,
        cache_bytes: 8 << 20,
        fill_cache: false,
        range_size: 100,
        operations: 40_000,
        seed: 1,
        params: Params::PAPER,
    }
}

#[test]
fn ablation() {
    for zipf in [0.99, 0.0] {
        for variant in Variant::ALL {
            let began = std::time::Instant::now();
            let now = run(&Job::Tree(tree(variant, zipf))).expect("a result");
            println!(
                "{zipf} {:14} {:.3} Mops, p50 {:.1} p99 {:.1} us, verbs {} splits {:.4} hand {:.3} hit {:.3}; {:.2} Mverbs/s {:.0} kops/s",
                variant.name(),
                now.mops,
                now.all.p50,
                now.all.p99,
                now.verbs,
                now.splits,
                now.handovers,
                now.hit_ratio,
                now.verbs as f64 / began.elapsed().as_secs_f64() / 1e6,
                now.operations as f64 / began.elapsed().as_secs_f64() / 1e3
            );
        }
    }
}
