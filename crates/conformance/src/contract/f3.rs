//! F3: one endpoint's lists to one server execute in order.
//!
//! Three things follow, each with its own scenarios.
//!
//! - *Visibility*: a writer raises a first place, then a second place. An observer reads the second, waits
//!   for that READ, then reads the first, which must be at least as new.
//! - *Program order*: CAS, FAA and READ see what the same endpoint posted before them.
//! - *Fences*: a fenced WRITE does not overtake an earlier READ or atomic. An unfenced WRITE may, and no
//!   scenario depends on whether it does.

use super::actor::{Actor, fill, unit_words, word_at};
use super::report::{Breach, Rule};
use super::scenario::{Cast, Scenario, always, on_chip, role};
use super::stage::Facts;
use sherman_fabric::{Endpoint, Space, WorkList};

/// Units of the first place: several, so that its last unit is late. The second place is the unit after them.
const BODY: u64 = 4;
/// Number of lists in flight. Each writes its own unit.
const SLOTS: u64 = 8;

pub(super) fn scenarios<E: Endpoint + 'static>() -> Vec<Scenario<E>> {
    let scenario = |name, needs, cast| Scenario { rule: Rule::F3, name, needs, cast };
    vec![
        scenario("writes_of_a_list_appear_in_order", always, |_| pair(Order::OneList)),
        scenario("writes_of_two_lists_in_flight_appear_in_order", always, |_| pair(Order::TwoLists)),
        scenario("an_atomic_appears_after_the_write_before_it", always, |_| pair(Order::AtomicLast)),
        scenario("an_on_chip_write_appears_after_a_host_write", on_chip, |_| pair(Order::ChipLast)),
        scenario("a_host_write_appears_after_an_on_chip_write", on_chip, |_| pair(Order::ChipFirst)),
        scenario("many_lists_in_flight_keep_their_order", always, |_| {
            vec![
                role(0, write_slots),
                role(1, |actor| observe_slots(actor, 1)),
                role(0, |actor| observe_slots(actor, 1)),
            ]
        }),
        scenario("an_endpoint_sees_what_it_posted_before", always, |_| {
            vec![role(0, |actor| see_own_verbs(actor, 0)), role(1, |actor| see_own_verbs(actor, 4))]
        }),
        scenario("a_fenced_write_does_not_overtake", always, |_| {
            vec![
                role(0, |actor| write_after_reading(actor, 0)),
                role(1, |actor| write_after_reading(actor, BODY + 1)),
            ]
        }),
    ]
}

/// How the writer posts the writes of the first and the second place.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// Two WRITEs of one list.
    OneList,
    /// Two lists. The second is posted before the first has completed.
    TwoLists,
    /// A WRITE and an FAA or CAS of one list.
    AtomicLast,
    /// A WRITE to host memory, then one to on-chip memory.
    ChipLast,
    /// A WRITE to on-chip memory, then one to host memory.
    ChipFirst,
}

fn pair<E: Endpoint + 'static>(order: Order) -> Cast<E> {
    vec![
        role(0, move |actor| write_pair(actor, order)),
        role(0, move |actor| observe_pair(actor, order)),
        role(1, move |actor| observe_pair(actor, order)),
    ]
}

/// Adds the WRITE of `value` to the first or the second place.
fn add_write(list: &mut WorkList, facts: &Facts, order: Order, second: bool, value: u64) {
    match (order, second) {
        (Order::ChipFirst, false) | (Order::ChipLast, true) => {
            list.write(Space::OnChip, facts.chip(0), &value.to_le_bytes())
        }
        (Order::ChipFirst, true) | (_, false) => {
            list.write(Space::Host, facts.host(0), &fill(value, BODY as usize * facts.unit()))
        }
        (Order::AtomicLast, true) if value.is_multiple_of(2) => list.faa(Space::Host, facts.host(BODY), 1),
        (Order::AtomicLast, true) => list.cas(Space::Host, facts.host(BODY), value - 1, value),
        (_, true) => list.write(Space::Host, facts.host(BODY), &fill(value, facts.unit())),
    };
}

async fn write_pair<E: Endpoint>(actor: Actor<E>, order: Order) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    for value in actor.observed_rounds() {
        let mut list = actor.list();
        add_write(&mut list, facts, order, false, value);
        if order == Order::TwoLists {
            let first = actor.post(list);
            let mut list = actor.list();
            add_write(&mut list, facts, order, true, value);
            let second = actor.post(list);
            actor.done(first).await?;
            actor.done(second).await?;
        } else {
            add_write(&mut list, facts, order, true, value);
            actor.run(list).await?;
        }
    }
    actor.stage().finish();
    Ok(())
}

async fn observe_pair<E: Endpoint>(actor: Actor<E>, order: Order) -> Result<(), Breach> {
    let facts = actor.facts();
    let body_len = BODY as usize * facts.unit();
    actor.meet().await;
    while actor.looks_on(1) {
        let (second, first) = match order {
            Order::ChipFirst => {
                let body = actor.read(Space::Host, facts.host(0), body_len).await?;
                let newest = unit_words(&body, facts.unit()).max().unwrap_or(0);
                (newest, actor.word(Space::OnChip, facts.chip(0)).await?)
            }
            Order::ChipLast => {
                let second = actor.word(Space::OnChip, facts.chip(0)).await?;
                (second, oldest(&actor, body_len).await?)
            }
            _ => {
                let second = actor.word(Space::Host, facts.host(BODY)).await?;
                (second, oldest(&actor, body_len).await?)
            }
        };
        actor.check(first >= second, || {
            format!(
                "read {second} at the place that is written second, then the older {first} at the place that \
                 is written first"
            )
        })?;
    }
    Ok(())
}

/// The oldest value in the first place.
async fn oldest<E: Endpoint>(actor: &Actor<E>, len: usize) -> Result<u64, Breach> {
    let body = actor.read(Space::Host, actor.facts().host(0), len).await?;
    Ok(unit_words(&body, actor.facts().unit()).min().unwrap_or(0))
}

async fn write_slots<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    for value in actor.observed_rounds() {
        let mut in_flight = Vec::new();
        for slot in 0..SLOTS {
            let mut list = actor.list();
            list.write(Space::Host, facts.host(slot), &fill(value, facts.unit()));
            in_flight.push(actor.post(list));
        }
        for posted in in_flight {
            actor.done(posted).await?;
        }
    }
    actor.stage().finish();
    Ok(())
}

async fn observe_slots<E: Endpoint>(actor: Actor<E>, writers: u64) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    while actor.looks_on(writers) {
        let (one, other) = (actor.below(SLOTS), actor.below(SLOTS));
        let seen = actor.word(Space::Host, facts.host(one)).await?;
        let then = actor.word(Space::Host, facts.host(other)).await?;
        // A slot before `one` was posted earlier in the same generation. A slot after `one` was posted in the
        // generation before.
        let least = if other <= one { seen } else { seen.saturating_sub(1) };
        actor.check(then >= least, || {
            format!(
                "read generation {seen} in slot {one}, then generation {then} in slot {other}, which must \
                 have at least {least}"
            )
        })?;
    }
    Ok(())
}

/// Posts WRITE, CAS and FAA, then verbs that must see them, in one list and in two. Uses the unit `first` and
/// the one after.
async fn see_own_verbs<E: Endpoint>(actor: Actor<E>, first: u64) -> Result<(), Breach> {
    let facts = actor.facts();
    let unit = facts.unit();
    let (data, word) = (facts.host(first), facts.host(first + 1));
    actor.meet().await;
    for round in 1..=facts.rounds_by(2) {
        let value = round * 10;
        let mut list = actor.list();
        list.write(Space::Host, data, &fill(value, unit));
        let read = list.read(Space::Host, data, unit as u32);
        list.write(Space::Host, word, &value.to_le_bytes());
        let cas = list.cas(Space::Host, word, value, value + 1);
        let faa = list.faa(Space::Host, word, 1);
        let again = list.cas(Space::Host, word, value + 2, value + 3);
        let list = actor.run(list).await?;
        let olds = [word_at(list.bytes(read), 0), list.old(cas), list.old(faa), list.old(again)];
        actor.check(olds == [value, value, value + 1, value + 2], || {
            format!("[WRITE {value}, READ, WRITE {value}, CAS, FAA, CAS] found {olds:?}")
        })?;

        let mut list = actor.list();
        list.write(Space::Host, data, &fill(value + 5, unit));
        list.faa(Space::Host, word, 2);
        let first_list = actor.post(list);
        let mut list = actor.list();
        let read = list.read(Space::Host, data, unit as u32);
        let faa = list.faa(Space::Host, word, 0);
        let second_list = actor.post(list);
        actor.done(first_list).await?;
        let list = actor.done(second_list).await?;
        let found = [word_at(list.bytes(read), 0), list.old(faa)];
        actor.check(found == [value + 5, value + 5], || {
            format!("[WRITE {0}, FAA to {0}] in flight, then [READ, FAA] found {found:?}", value + 5)
        })?;
        if facts.caps.lock_read {
            read_after_atomic(&actor, word, value + 5).await?;
        }
    }
    Ok(())
}

/// Tests the READ that shares a list with a lock's CAS (`docs/INVARIANTS.md`), and a READ that follows an
/// FAA.
async fn read_after_atomic<E: Endpoint>(actor: &Actor<E>, word: u64, now: u64) -> Result<(), Breach> {
    let mut list = actor.list();
    list.cas(Space::Host, word, now, now + 1);
    let after_cas = list.read(Space::Host, word, 8);
    list.faa(Space::Host, word, 1);
    let after_faa = list.read(Space::Host, word, 8);
    let list = actor.run(list).await?;
    let [cas, faa] = [after_cas, after_faa].map(|read| word_at(list.bytes(read), 0));
    // The first READ may fetch as late as the FAA, but never before the CAS.
    let seen = (cas == now + 1 || cas == now + 2) && faa == now + 2;
    actor.check(seen, || format!("[CAS {now} to {}, READ, FAA, READ] read {cas} and {faa}", now + 1))
}

/// Posts a READ and atomics, then a fenced WRITE of the same place, in one list and in two.
async fn write_after_reading<E: Endpoint>(actor: Actor<E>, first: u64) -> Result<(), Breach> {
    let facts = actor.facts();
    let len = BODY as usize * facts.unit();
    let (body, word) = (facts.host(first), facts.host(first + BODY));
    actor.meet().await;
    for round in 0..facts.rounds_by(2) {
        let value = round * 10;
        let mut list = actor.list();
        let read = list.read(Space::Host, body, len as u32);
        let faa = list.faa(Space::Host, word, 1);
        list.write_fenced(Space::Host, body, &fill(value + 5, len));
        list.write_fenced(Space::Host, word, &(value + 5).to_le_bytes());
        let list = actor.run(list).await?;
        let words = |bytes: &[u8]| unit_words(bytes, facts.unit()).collect::<Vec<_>>();
        let (body_read, found) = (words(list.bytes(read)), list.old(faa));
        actor.check(body_read.iter().all(|&word| word == value) && found == value, || {
            format!("[READ, FAA, fenced WRITE] over {value}: the READ found {body_read:?}, the FAA {found}")
        })?;

        let mut list = actor.list();
        let read = list.read(Space::Host, body, len as u32);
        let cas = list.cas(Space::Host, word, value + 5, value + 7);
        let first_list = actor.post(list);
        let mut list = actor.list();
        list.write_fenced(Space::Host, body, &fill(value + 10, len));
        list.write_fenced(Space::Host, word, &(value + 10).to_le_bytes());
        let second_list = actor.post(list);
        let list = actor.done(first_list).await?;
        actor.done(second_list).await?;
        let (body_read, found) = (words(list.bytes(read)), list.old(cas));
        actor.check(body_read.iter().all(|&word| word == value + 5) && found == value + 5, || {
            format!("[READ, CAS], then a fenced WRITE, over {}: {body_read:?} and {found}", value + 5)
        })?;
        let last = actor.word(Space::Host, word).await?;
        actor.check(last == value + 10, || {
            format!("a fenced WRITE of {} was overtaken: {last}", value + 10)
        })?;
    }
    Ok(())
}
