//! F4: CAS and FAA are atomic against each other on one server.
//!
//! The scenarios test sums, winners and critical sections. Each goes wrong when one atomic reads, then
//! another changes the word, then the first writes. A backend that mixes atomics by a NIC with atomics by a
//! CPU does exactly that. [`f4_lanes`](super::f4_lanes) tests lanes of a word.

use super::actor::{Actor, fill, unit_words};
use super::report::{Breach, Rule};
use super::scenario::{Cast, Scenario, always, on_chip, role};
use super::stage::Facts;
use sherman_fabric::{Endpoint, Space};

/// Number of contending endpoints, of two compute servers.
const CONTENDERS: usize = 4;

pub(super) fn scenarios<E: Endpoint + 'static>() -> Vec<Scenario<E>> {
    let scenario = |name, needs, cast| Scenario { rule: Rule::F4, name, needs, cast };
    vec![
        scenario("additions_by_many_endpoints_sum_up_in_host_memory", always, |_| contend(Space::Host, add)),
        scenario("additions_by_many_endpoints_sum_up_in_on_chip_memory", on_chip, |_| {
            contend(Space::OnChip, add)
        }),
        scenario("of_concurrent_swaps_in_host_memory_exactly_one_wins", always, |_| {
            contend(Space::Host, race)
        }),
        scenario("of_concurrent_swaps_in_on_chip_memory_exactly_one_wins", on_chip, |_| {
            contend(Space::OnChip, race)
        }),
        scenario("a_lock_in_host_memory_excludes", always, |_| contend(Space::Host, count_under_lock)),
        scenario("a_lock_in_on_chip_memory_excludes", on_chip, |_| contend(Space::OnChip, count_under_lock)),
        scenario("an_atomic_tells_what_it_found", always, |_| vec![role(0, model), role(1, model)]),
    ]
}

fn contend<E: Endpoint + 'static, F>(space: Space, body: fn(Actor<E>, Space) -> F) -> Cast<E>
where
    F: Future<Output = Result<(), Breach>> + 'static,
{
    (0..CONTENDERS).map(|index| role(index % 2, move |actor| body(actor, space))).collect()
}

/// The `index`-th word of `space`. In host memory the words share a unit, as lock words do.
fn word_of(facts: &Facts, space: Space, index: u64) -> u64 {
    match space {
        Space::Host => facts.host(0) + index * 8,
        Space::OnChip => facts.chip(index),
    }
}

/// Adds to one word by FAA, and every fourth time by CAS. The final sum must be exact.
async fn add<E: Endpoint>(actor: Actor<E>, space: Space) -> Result<(), Breach> {
    let facts = actor.facts();
    let word = word_of(facts, space, 0);
    let mut last = 0;
    actor.meet().await;
    for round in 0..facts.rounds {
        loop {
            let mut list = actor.list();
            let by_cas = round % 4 == 3;
            let id = if by_cas { list.cas(space, word, last, last + 1) } else { list.faa(space, word, 1) };
            let list = actor.run(list).await?;
            let (old, added) = (list.old(id), !by_cas || list.swapped(id));
            actor.endpoint().recycle(list);
            actor.check(old >= last, || format!("a word that only grows went from {last} back to {old}"))?;
            last = if added { old + 1 } else { old };
            if added {
                break;
            }
        }
    }
    actor.meet().await;
    let (sum, due) = (actor.word(space, word).await?, facts.rounds * CONTENDERS as u64);
    actor.check(sum == due, || format!("{due} additions of one gave the sum {sum}"))
}

/// The stage word that holds the winner of the `turn`-th race. A later race reuses the word long after the
/// last look at it.
fn winner_word(turn: u64) -> usize {
    (turn % 64) as usize
}

/// Every participant tries to swap (turn, any winner) for (turn + 1, itself). Each turn has one winner, and
/// all losers see the same winner.
async fn race<E: Endpoint>(actor: Actor<E>, space: Space) -> Result<(), Breach> {
    let (facts, stage) = (actor.facts(), actor.stage());
    let (word, me) = (word_of(facts, space, 0), actor.index() + 1);
    let mut now = 0;
    for turn in 1..=facts.rounds_together() {
        let next = turn << 16 | me;
        let mut list = actor.list();
        let cas = list.cas(space, word, now, next);
        let list = actor.run(list).await?;
        now = if list.swapped(cas) { next } else { list.old(cas) };
        if list.swapped(cas) {
            let other = stage.add(winner_word(turn), next);
            actor.check(other == 0, || format!("turn {turn} was won by {me} and by {}", other & 0xffff))?;
        }
        actor.meet().await;
        let won = stage.get(winner_word(turn));
        actor.check(now == won, || format!("turn {turn} was won with {won:#x}, but {me} saw {now:#x}"))?;
        let there = actor.word(space, word).await?;
        actor
            .check(there == won, || format!("turn {turn} was won with {won:#x}, but {there:#x} is there"))?;
        actor.meet().await;
        stage.set(winner_word(turn), 0);
    }
    Ok(())
}

/// Increments a counter of two units by plain verbs under a lock. Releases as the tree does: data and release
/// in one list, by WRITE if `caps.write_releases`, else by CAS.
async fn count_under_lock<E: Endpoint>(actor: Actor<E>, space: Space) -> Result<(), Breach> {
    let facts = actor.facts();
    let (lock, me) = (word_of(facts, space, 1), actor.index() + 1);
    let (data, len, rounds) = (facts.host(2), 2 * facts.unit(), facts.rounds_by(4));
    let same = |bytes: &[u8]| {
        let mut words = unit_words(bytes, facts.unit());
        words.next().filter(|&first| words.all(|word| word == first))
    };
    actor.meet().await;
    for _ in 0..rounds {
        loop {
            let mut list = actor.list();
            let cas = list.cas(space, lock, 0, me);
            let list = actor.run(list).await?;
            if list.swapped(cas) {
                break;
            }
            actor.endpoint().recycle(list);
            actor.pause().await;
        }
        let bytes = actor.read(Space::Host, data, len).await?;
        let Some(count) = same(&bytes) else {
            let found: Vec<_> = unit_words(&bytes, facts.unit()).collect();
            return Err(
                actor.breach(format_args!("under the lock the two units of the counter are {found:?}"))
            );
        };
        let mut list = actor.list();
        list.write(Space::Host, data, &fill(count + 1, len));
        if facts.caps.write_releases {
            list.write(space, lock, &0_u64.to_le_bytes());
            actor.run(list).await?;
        } else {
            let release = list.cas(space, lock, me, 0);
            let list = actor.run(list).await?;
            let found = list.old(release);
            actor.check(found == me, || format!("held the lock as {me}, released it and found {found}"))?;
        }
    }
    actor.meet().await;
    let (count, due) = (same(&actor.read(Space::Host, data, len).await?), rounds * CONTENDERS as u64);
    actor.check(count == Some(due), || format!("{due} increments under a lock gave the count {count:?}"))
}

/// Compares random atomics on the participant's own words with a model: the value that each found, and the
/// words that a failed CAS must not change.
async fn model<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let facts = actor.facts();
    let spaces = if facts.has_chip() { &[Space::Host, Space::OnChip][..] } else { &[Space::Host] };
    let mut words = [0_u64; 4];
    actor.meet().await;
    for _ in 0..facts.rounds {
        let mine = actor.below(2) as usize;
        let which = actor.below(spaces.len() as u64) as usize;
        let (space, model) = (spaces[which], &mut words[2 * which + mine]);
        let offset = word_of(facts, space, 2 * actor.index() + mine as u64);
        let mask = if facts.caps.masked_cas { 0xffff_u64 << (16 * actor.below(4)) } else { u64::MAX };
        let mask = if actor.below(2) == 0 { u64::MAX } else { mask };
        let (right, swap) = (actor.below(3) > 0, actor.below(u64::MAX));
        let mut list = actor.list();
        let (id, new) = match actor.below(3) {
            0 => (list.faa(space, offset, swap), model.wrapping_add(swap)),
            _ => {
                let compare = if right { *model } else { !*model };
                let new = if right { *model & !mask | swap & mask } else { *model };
                (list.masked_cas(space, offset, compare, swap, mask), new)
            }
        };
        let found = actor.run(list).await?.old(id);
        actor.check(found == *model, || {
            format!("{space:?} word was {model:#x}, an atomic found {found:#x}")
        })?;
        *model = new;
        let there = actor.word(space, offset).await?;
        actor.check(there == new, || {
            format!("{space:?} word became {new:#x} by an atomic, {there:#x} is there")
        })?;
    }
    Ok(())
}
