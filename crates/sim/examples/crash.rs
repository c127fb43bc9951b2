//! Runs the crash enumeration by hand.
//!
//! - `crash` enumerates every [`CrashCase`] with every pair of settings.
//! - `crash PLOT HEIGHT SETUP` enumerates one of them.
//! - `crash PLOT HEIGHT SETUP SEED POINT` prints one schedule of it, event by event.
//!
//! SETUP is an index into the list of setups. `BLOW=n` gives volumes two copies, and loses a host at each
//! point. `n` is an index into [`Blow::of_hosts`].

use sherman_sim::Atlas;
use sherman_sim::tree::crash::{Blow, CrashCase, Enumerated, Setup, VictimOp};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<u64>().ok());
    let named = |operation: VictimOp| {
        args.first().is_none_or(|name| name.eq_ignore_ascii_case(&format!("{operation:?}")))
    };
    let setups = Setup::pairwise();
    let mut all = Enumerated::default();
    let began = Instant::now();
    for (operation, height) in VictimOp::all() {
        if !named(operation) || number(1).is_some_and(|wanted| wanted != height as u64) {
            continue;
        }
        for (at, setup) in
            setups.iter().enumerate().filter(|(at, _)| number(2).is_none_or(|wanted| wanted == *at as u64))
        {
            let blow = std::env::var("BLOW").ok().and_then(|at| at.parse::<usize>().ok());
            let blow = blow.map(|at| Blow::of_hosts(2)[at]);
            let setup = if blow.is_some() { setup.replicated() } else { *setup };
            let mut case = CrashCase::new(operation, height, setup);
            if let Some(seed) = number(3) {
                return tell(&mut case, seed, number(4).map(|point| (point, blow.unwrap_or(Blow::DEATH))));
            }
            let enumerated = case.enumerate_blows(0..10, &[blow.unwrap_or(Blow::DEATH)]);
            let Enumerated { points, visited, violated, .. } = enumerated;
            println!("{at}: {case:?}: {points} points, {visited} visited, {violated} violations");
            for violation in enumerated.violations.iter().take(2) {
                println!("    {violation}");
            }
            all.merge(enumerated);
        }
    }
    let Enumerated { points, visited, schedules, violated, .. } = all;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{points} points, {visited} visited, {schedules} schedules, {violated} violations; {seconds:.0} s"
    );
}

fn tell(case: &mut CrashCase, seed: u64, point: Option<(u64, Blow)>) {
    let (run, events) = case.strike(seed, point, true);
    if let Some(atlas) = Atlas::of(&case.fixture().sim, case.fixture().scenario.servers) {
        atlas.tell(&events).iter().for_each(|line| println!("{line}"));
    }
    println!("{run:?}");
    println!("{}", run.violation.map_or(String::new(), |violation| violation.to_string()));
}
