//! F5: no order holds between endpoints, or between servers. A hand-over needs a completion first, and a
//! completion suffices.
//!
//! The first half is a freedom of the backend, so nothing here relies on it. The second half is a promise. A
//! completed WRITE is visible to every participant that learns of the completion. It also does not land a
//! second time on top of what the next owner wrote.

use super::actor::{Actor, fill, unit_words, word_at};
use super::report::{Breach, Rule};
use super::scenario::{Cast, Scenario, always, role, scenario, two_servers};
use sherman_fabric::{Endpoint, Space};

/// Number of owners that take turns.
const OWNERS: u64 = 3;
/// Units of the data that is handed over.
const BODY: usize = 3;
/// Stage word: the last completed turn.
const TURN: usize = 0;

pub(super) fn scenarios<E: Endpoint + 'static>() -> Vec<Scenario<E>> {
    vec![
        scenario(Rule::F5, "what_completed_is_visible_to_the_next_owner", always, |facts| {
            owners(vec![facts.server()])
        }),
        scenario(Rule::F5, "what_completed_is_visible_on_every_server", two_servers, |facts| {
            owners((0..facts.scratch.servers.min(3)).collect())
        }),
        scenario(Rule::F5, "a_pointer_on_one_server_follows_what_completed_on_another", two_servers, |_| {
            vec![role(0, publish), role(0, follow), role(1, follow)]
        }),
    ]
}

fn owners<E: Endpoint + 'static>(servers: Vec<u16>) -> Cast<E> {
    let one = |index| {
        let servers = servers.clone();
        role(index as usize % 2, move |actor| take_turns(actor, servers))
    };
    (0..OWNERS).map(one).collect()
}

/// In its turn, an owner checks what all earlier turns left on each server, then writes to one of them.
async fn take_turns<E: Endpoint>(actor: Actor<E>, servers: Vec<u16>) -> Result<(), Breach> {
    let (facts, stage) = (actor.facts(), actor.stage());
    let (len, count) = (BODY * facts.unit(), servers.len() as u64);
    actor.meet().await;
    for turn in (1..=facts.rounds_together()).filter(|turn| turn % OWNERS == actor.index()) {
        actor.until("its turn", |stage| stage.get(TURN) == turn - 1).await;
        // About every other turn overwrites without a READ, as early as possible. Its WRITE must land on top
        // of the completed WRITEs, not below them.
        let seen = if actor.below(2) == 0 { &servers[..] } else { &[] };
        for (at, &server) in seen.iter().enumerate() {
            // The last earlier turn on this server, or 0 if there was none.
            let due =
                (1..turn).rev().take(servers.len()).find(|before| before % count == at as u64).unwrap_or(0);
            let bytes = actor.read_from(server, Space::Host, facts.host(0), len).await?;
            actor.check(unit_words(&bytes, facts.unit()).all(|word| word == due), || {
                let found: Vec<_> = unit_words(&bytes, facts.unit()).collect();
                format!("turn {due} had completed on server {server}, turn {turn} finds {found:?}")
            })?;
            if facts.has_chip() {
                let word = word_at(&actor.read_from(server, Space::OnChip, facts.chip(0), 8).await?, 0);
                actor.check(word == due, || {
                    format!("turn {due} had completed, turn {turn} finds {word} on chip")
                })?;
            }
        }
        let mut list = actor.endpoint().list(servers[(turn % count) as usize]);
        list.write(Space::Host, facts.host(0), &fill(turn, len));
        if facts.has_chip() {
            list.write(Space::OnChip, facts.chip(0), &turn.to_le_bytes());
        }
        actor.run(list).await?;
        stage.set(TURN, turn);
    }
    Ok(())
}

async fn publish<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    for value in actor.observed_rounds() {
        actor.write_to(0, Space::Host, facts.host(0), &fill(value, BODY * facts.unit())).await?;
        actor.write_to(1, Space::Host, facts.host(0), &value.to_le_bytes()).await?;
    }
    actor.stage().finish();
    Ok(())
}

async fn follow<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    while actor.looks_on(1) {
        let pointer = word_at(&actor.read_from(1, Space::Host, facts.host(0), 8).await?, 0);
        let bytes = actor.read_from(0, Space::Host, facts.host(0), BODY * facts.unit()).await?;
        let oldest = unit_words(&bytes, facts.unit()).min().unwrap_or(0);
        actor.check(oldest >= pointer, || {
            format!("{pointer} was published after it completed on the other server, but {oldest} is there")
        })?;
    }
    Ok(())
}
