//! Schedules meet every cause of a retry. A cause that no schedule meets is dead code, or its test is
//! missing.

use super::adversary::explore;
use sherman_core::{Cause, Format};
use sherman_sim::Knobs;
use sherman_sim::tree::{Causes, Explorer, Hunt, Mix, Scenario, Shape};

/// Only the library's `update` meets these, because it retries by itself: `crates/sherman/tests/bad_input.rs`
/// shows it. Only clients that came back after the loss of a host meet closed volumes. The schedules do not
/// count the retries of such clients, but the planted bug `closed-used` shows that they wait.
const ABOVE: [Cause; 2] = [Cause::ValueChanged, Cause::VolumeClosed];

/// So many threads of a compute server change their own leaves, all by logged writes, that redo slots run
/// out.
fn crowd() -> Explorer {
    let choose = |draw| Scenario {
        shape: Shape::WideKeys,
        threads: 12,
        operations: 4,
        loaded: 40,
        hot: 40,
        thinned: 0,
        unposted: false,
        first: Mix::UPDATE,
        then: Mix::UPDATE,
        ..Scenario::drawn_with_crashes(draw, Format::Sorted)
    };
    Explorer::new(choose, Knobs::swarm_with_crashes)
}

/// So many inserts into so little memory that clients wait for others to give memory back.
fn tight() -> Explorer {
    let choose = |draw| Scenario {
        shape: Shape::WideKeys,
        servers: 1,
        computes: 3,
        threads: 2,
        operations: 16,
        loaded: 24,
        hot: 200,
        first: Mix::GROW,
        then: Mix::GROW,
        catalog: false,
        loading: false,
        short: true,
        ..Scenario::drawn_with_crashes(draw, Format::LineStamped)
    };
    Explorer::new(choose, Knobs::swarm_with_crashes)
}

/// Trees of the paper's format, where READs tear and so may take too long: its readers check the clock.
fn timed() -> Explorer {
    let choose =
        |draw| Scenario { allow_torn_reads: true, ..Scenario::drawn_with_crashes(draw, Format::TwoLevel) };
    Explorer::new(choose, Knobs::swarm_with_crashes)
}

#[test]
fn every_cause_of_a_retry_occurs_in_schedules_with_crashes() {
    let usual = explore("causes", 40 << 32, 6_400, || Hunt::everywhere().with_crashes().explorer());
    let crowd = explore("causes, a crowd", 41 << 32, 256, crowd);
    let tight = explore("causes, little memory", 43 << 32, 2_048, tight);
    // These readers may get wrong answers, which another test covers.
    let timed = explore("causes, timed READs", 42 << 32, 640, timed);
    for explored in [&usual, &crowd, &tight] {
        assert!(explored.violations.is_empty(), "{}", explored.violations[0]);
    }
    let mut causes = Causes::default();
    for explored in [&usual, &crowd, &tight, &timed] {
        causes.iter_mut().zip(explored.causes).for_each(|(sum, times)| *sum += times);
    }
    for cause in Cause::ALL {
        println!("{:>8} {}", causes[cause as usize], cause.name());
    }
    let never: Vec<&str> = Cause::ALL
        .into_iter()
        .filter(|&cause| causes[cause as usize] == 0 && !ABOVE.contains(&cause))
        .map(Cause::name)
        .collect();
    assert!(never.is_empty(), "no schedule met {never:?}");
}
