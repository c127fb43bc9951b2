//! Every planted bug is found.

use sherman_core::mutant::{Mutant, plant};
use sherman_sim::tree::{Hunt, Property};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

struct Caught {
    mutant: Mutant,
    by: Option<(String, String)>,
    schedules: u64,
    seconds: f64,
}

fn hunt(mutant: Mutant, most: u64) -> Caught {
    let began = Instant::now();
    let _guard = plant(Some(mutant));
    let mut explorer = Hunt::of(mutant).explorer();
    let mut by = None;
    let mut schedules = 0;
    for seed in 0..most {
        schedules += 1;
        match catch_unwind(AssertUnwindSafe(|| explorer.run(seed))) {
            Ok(seen) => by = seen.violation.map(|violation| (format!("{:?}", violation.property), violation.what)),
            Err(_) => by = Some(("panic".into(), String::new())),
        }
        if by.is_some() {
            break;
        }
    }
    Caught { mutant, by, schedules, seconds: began.elapsed().as_secs_f64() }
}

#[test]
fn every_planted_bug_is_found() {
    let most: u64 = std::env::var("MOST").ok().and_then(|most| most.parse().ok()).unwrap_or(20_000);
    let only = std::env::var("ONLY").ok();
    let todo: Vec<Mutant> =
        Mutant::ALL.iter().copied().filter(|m| only.as_ref().is_none_or(|only| m.name() == only)).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(&mutant) = todo.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let caught = hunt(mutant, most);
                    let (by, what) = caught.by.unwrap_or_default();
                    println!(
                        "{:28} {:10} {:>8} {:.1}s {:.100}",
                        caught.mutant.name(),
                        by,
                        caught.schedules,
                        caught.seconds,
                        what
                    );
                }
            });
        }
    });
    let _ = Property::Walk;
}
