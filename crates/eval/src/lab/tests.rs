//! What the laboratory must give.

use super::*;
use sherman_sim::nic::Params;

fn locks(kind: LockKind, zipf: f64) -> LockJob {
    LockJob { kind, locks: 10_240, zipf, compute: 8, threads: 22, operations: 40_000, seed: 1, params: Params::PAPER }
}

#[test]
fn hocl() {
    for (pcie, conflict) in [(150, 45), (200, 60), (200, 68), (250, 80)] {
        let params = Params { pcie_nanos: pcie, on_chip_conflict_nanos: conflict, ..Params::PAPER };
        println!("pcie {pcie} conflict {conflict}");
        let mut before = Measured::default();
        for kind in [LockKind::Host, LockKind::OnChip, LockKind::Hierarchical, LockKind::Queue, LockKind::Handover] {
            let now = run(&Job::Locks(LockJob { params, ..locks(kind, 0.99) })).expect("a result");
            println!(
                "{kind:?}: {:.3} Mops, p50 {:.1} p99 {:.1} us: {:.2} {:.2} {:.2}",
                now.mops,
                now.all.p50,
                now.all.p99,
                now.mops / before.mops,
                before.all.p50 / now.all.p50,
                before.all.p99 / now.all.p99
            );
            before = now;
        }
    }
}
