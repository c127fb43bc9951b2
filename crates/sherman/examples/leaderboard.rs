//! A leaderboard: players on several threads win points. The best ten are a short range from the end of a
//! tree.
//!
//! There are two trees: one from player to score, and one from (score, player) to nothing, which keeps the
//! order. Threads change scores by `update`, so no point is lost. The second tree is briefly out of date
//! while a player moves.
//!
//! `cargo run -p sherman-tree --example leaderboard`

use sherman::{Cluster, Error, ShortBytes, Tree};
use std::collections::BTreeMap;

type Player = ShortBytes<12>;

/// The two trees of a leaderboard.
#[derive(Clone)]
struct Board {
    scores: Tree<Player, u64>,
    ranking: Tree<(u64, Player), ()>,
}

impl Board {
    fn open(cluster: &Cluster) -> Result<Self, Error> {
        Ok(Self { scores: cluster.tree("scores")?, ranking: cluster.tree("ranking")? })
    }

    /// The work of one thread: `rounds` times, a player wins points.
    fn play(&self, thread: u64, rounds: u64) -> Result<BTreeMap<Player, u64>, Error> {
        let (scores, ranking) = (self.scores.client()?, self.ranking.client()?);
        let mut won = BTreeMap::new();
        for round in 0..rounds {
            // Each thread has its own players, so that no two threads move the same player at once.
            let dice = round.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ thread;
            let player = player(thread, dice % 50);
            let points = 1 + dice % 7;
            let before = scores.update(player, |score| Some(score.unwrap_or(0) + points))?;
            ranking.insert((before.unwrap_or(0) + points, player), ())?;
            if let Some(before) = before {
                ranking.remove((before, player))?;
            }
            *won.entry(player).or_default() += points;
        }
        Ok(won)
    }

    /// The best `count` players. Reads a few leaves from the end of the tree.
    fn top(&self, count: usize) -> Result<Vec<(u64, Player)>, Error> {
        let client = self.ranking.client()?;
        client.range(..).limit(count).rev().map(|entry| Ok(entry?.0)).collect()
    }
}

fn player(thread: u64, number: u64) -> Player {
    Player::try_from(format!("p{thread}-{number}").as_str()).unwrap_or_default()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::open("embedded:?servers=2&memory=64MiB")?;
    let board = Board::open(&cluster)?;
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let board = board.clone();
            std::thread::spawn(move || board.play(thread, 5_000))
        })
        .collect();
    let mut expected: Vec<(u64, Player)> = Vec::new();
    for thread in threads {
        let won = thread.join().map_err(|_| "a player panicked")??;
        expected.extend(won.into_iter().map(|(player, points)| (points, player)));
    }
    expected.sort_unstable_by(|a, b| b.cmp(a));

    let top = board.top(10)?;
    for (place, (score, player)) in top.iter().enumerate() {
        println!("{:>2}. {player:<8} {score:>5}", place + 1);
    }
    assert_eq!(top, expected[..10], "the board is what was played");
    assert_eq!(board.ranking.client()?.len()?, expected.len() as u64, "each player is on it once");
    Ok(())
}
