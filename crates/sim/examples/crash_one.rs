//! Runs one death.
use sherman_sim::tree::crash::{Play, Plot, Setup};
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let wanted = std::env::var("SETUP").unwrap();
    for (plot, height) in Plot::usual() {
        if format!("{plot:?}") != std::env::var("PLOT").unwrap() || height as u64 != args[0] { continue; }
        for setup in Setup::pairwise() {
            if setup.to_string() != wanted { continue; }
            let mut play = Play::new(plot, height, setup);
            let (performance, events) = play.run(args[1], Some(args[2]), true);
            println!("{:?}", performance.violation.map(|v| v.to_string()));
            if let Some(atlas) = sherman_sim::Atlas::of(&play.lab().sim, 2) { atlas.tell(&events).iter().for_each(|l| println!("{l}")); }
        }
    }
}
