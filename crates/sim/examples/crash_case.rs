//! Replays one [`CrashCase`] of the crash enumeration and prints every event: `crash_case TEXT SEED EFFECT`.
//! TEXT is a part of the description in a violation, as in "Drop at height 1 with sorted LongEntries".

use sherman_sim::Atlas;
use sherman_sim::tree::crash::{CrashCase, Setup, VictimOp};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [text, seed, effect] = &args[..] else { return eprintln!("crash_case TEXT SEED EFFECT") };
    let (Ok(seed), Ok(effect)) = (seed.parse(), effect.parse()) else {
        return eprintln!("SEED and EFFECT are numbers");
    };
    for setup in Setup::pairwise() {
        for (operation, height) in VictimOp::usual() {
            let name = format!("{operation:?} at height {height} with {setup}");
            if !name.contains(text) {
                continue;
            }
            println!("{name}");
            let mut case = CrashCase::new(operation, height, setup);
            let (run, events) = case.run(seed, Some(effect), true);
            let fixture = case.fixture();
            if let Some(atlas) = Atlas::of(&fixture.sim, fixture.scenario.servers) {
                atlas.tell(&events).iter().for_each(|line| println!("{line}"));
            }
            println!("{run:?}");
        }
    }
}
