//! A service on tokio: hundreds of tasks share one handle. The handle is `Send`, `Sync` and cheap to clone.
//!
//! Tasks transfer money between accounts. One `update` takes the amount from an account only if there is
//! enough, and another `update` adds it to the next account. Concurrent tasks neither create nor lose money.
//!
//! `cargo run -p sherman-tree --example tokio_service`

use sherman::{Cluster, Error, Handle, HandleOptions, OpKind};
use std::time::Duration;

const ACCOUNTS: u32 = 500;
const TASKS: u32 = 400;
const TRANSFERS: u32 = 25;
const EACH: u64 = 1_000;

/// The state of a request handler. Each task has a clone.
#[derive(Clone)]
struct Bank {
    accounts: Handle<u32, u64>,
}

impl Bank {
    /// Moves `amount` if the account holds enough. Returns whether it did.
    async fn transfer(&self, from: u32, to: u32, amount: u64) -> Result<bool, Error> {
        let take = move |money: Option<u64>| money.map(|has| has.checked_sub(amount).unwrap_or(has));
        let had = self.accounts.update(from, take).await?;
        if had.unwrap_or(0) < amount {
            return Ok(false);
        }
        self.accounts.update(to, move |money| Some(money.unwrap_or(0) + amount)).await?;
        Ok(true)
    }

    async fn total(&self) -> Result<u64, Error> {
        let mut total = 0;
        let mut accounts = self.accounts.range(..);
        while let Some(account) = accounts.next().await {
            total += account?.1;
        }
        Ok(total)
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::open("embedded:?servers=2&memory=64MiB")?;
    let options = HandleOptions::new().threads(2).queue(128);
    let accounts = cluster.tree::<u32, u64>("accounts")?.handle_with(&options)?;
    let bank = Bank { accounts };
    let opened: Vec<(u32, u64)> = (0..ACCOUNTS).map(|account| (account, EACH)).collect();
    assert!(bank.accounts.insert_many(&opened).await?.iter().all(Option::is_none));

    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let bank = bank.clone();
            tokio::spawn(async move {
                let mut moved = 0;
                for round in 0..TRANSFERS {
                    let from = (task * 31 + round * 17) % ACCOUNTS;
                    let to = (from + 1 + round % 5) % ACCOUNTS;
                    moved += u32::from(bank.transfer(from, to, u64::from(task + round) % 200).await?);
                }
                Ok::<u32, Error>(moved)
            })
        })
        .collect();
    let mut moved = 0;
    for task in tasks {
        moved += task.await??;
    }
    // The future is an ordinary one: the caller can limit its time, or drop it.
    let total = tokio::time::timeout(Duration::from_secs(5), bank.total()).await??;
    let stats = bank.accounts.stats();
    println!("{moved} of {} transfers went through; {total} in all accounts", TASKS * TRANSFERS);
    let (looked, exchanged) =
        (stats.kind(OpKind::Get).operations, stats.kind(OpKind::CompareExchange).operations);
    println!("{looked} lookups and {exchanged} exchanges by two worker threads");
    assert_eq!(total, u64::from(ACCOUNTS) * EACH, "no money was made or lost");
    assert!(moved > 0);
    Ok(())
}
