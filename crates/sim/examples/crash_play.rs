//! Replays one play of the enumeration of deaths and prints every event: `crash_play TEXT SEED EFFECT`, where TEXT is a part of what a
//! violation says of its play, as in "Drop at height 1 with sorted LongEntries".

use sherman_sim::Atlas;
use sherman_sim::tree::crash::{Play, Plot, Setup};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [text, seed, effect] = &args[..] else { return eprintln!("crash_play TEXT SEED EFFECT") };
    let (Ok(seed), Ok(effect)) = (seed.parse(), effect.parse()) else {
        return eprintln!("SEED and EFFECT are numbers");
    };
    for setup in Setup::pairwise() {
        for (plot, height) in Plot::usual() {
            let name = format!("{plot:?} at height {height} with {setup}");
            if !name.contains(text) {
                continue;
            }
            println!("{name}");
            let mut play = Play::new(plot, height, setup);
            let (performance, events) = play.run(seed, Some(effect), true);
            let lab = play.lab();
            if let Some(atlas) = Atlas::of(&lab.sim, lab.scenario.servers) {
                atlas.tell(&events).iter().for_each(|line| println!("{line}"));
            }
            println!("{performance:?}");
        }
    }
}
