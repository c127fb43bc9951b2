//! Crash enumeration by hand: `crash` enumerates every play with every pair of settings; `crash PLOT HEIGHT SETUP` one of them,
//! and `crash PLOT HEIGHT SETUP SEED POINT` tells one schedule of it event by event. A setup is a number.

use sherman_sim::Atlas;
use sherman_sim::tree::crash::{Enumerated, Play, Plot, Setup};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<u64>().ok());
    let named = |plot: Plot| args.first().is_none_or(|name| name.eq_ignore_ascii_case(&format!("{plot:?}")));
    let setups = Setup::pairwise();
    let mut all = Enumerated::default();
    let began = Instant::now();
    for (plot, height) in Plot::all() {
        if !named(plot) || number(1).is_some_and(|wanted| wanted != height as u64) {
            continue;
        }
        for (at, setup) in
            setups.iter().enumerate().filter(|(at, _)| number(2).is_none_or(|wanted| wanted == *at as u64))
        {
            let mut play = Play::new(plot, height, *setup);
            if let Some(seed) = number(3) {
                return tell(&mut play, seed, number(4));
            }
            let enumerated = play.enumerate(0..10);
            let Enumerated { points, visited, violated, .. } = enumerated;
            println!("{at}: {play:?}: {points} points, {visited} visited, {violated} violations");
            for violation in enumerated.violations.iter().take(2) {
                println!("    {violation}");
            }
            all.merge(enumerated);
        }
    }
    let Enumerated { points, visited, schedules, violated, .. } = all;
    let seconds = began.elapsed().as_secs_f64();
    println!("{points} points, {visited} visited, {schedules} schedules, {violated} violations; {seconds:.0} s");
}

fn tell(play: &mut Play, seed: u64, point: Option<u64>) {
    let (performance, events) = play.run(seed, point, true);
    if let Some(atlas) = Atlas::of(&play.lab().sim, play.lab().scenario.servers) {
        atlas.tell(&events).iter().for_each(|line| println!("{line}"));
    }
    println!("{performance:?}");
    println!("{}", performance.violation.map_or(String::new(), |violation| violation.to_string()));
}
