//! F4 for lanes: 16-bit locks, four to a word, taken by masked CAS (paper §4.3).
//!
//! Each participant has its own lane of the word. So its CAS always finds the lane as it left it, whatever
//! happens in the other lanes. If a backend's masked CAS or 2-byte release WRITE rewrites the whole word, it
//! loses a neighbour's change.

use super::actor::Actor;
use super::report::{Breach, Rule};
use super::scenario::{Cast, Scenario, on_chip, role, scenario};
use super::stage::Facts;
use sherman_fabric::{Endpoint, Space};

const LANES: usize = 4;
const LANE_BITS: u64 = 16;
const LANE: u64 = (1 << LANE_BITS) - 1;

pub(super) fn scenarios<E: Endpoint + 'static>() -> Vec<Scenario<E>> {
    vec![
        scenario(Rule::F4, "lanes_of_a_host_word_do_not_disturb_each_other", masked, |_| lanes(Space::Host)),
        scenario(
            Rule::F4,
            "lanes_of_an_on_chip_word_do_not_disturb_each_other",
            |facts| masked(facts).and_then(|()| on_chip(facts)),
            |_| lanes(Space::OnChip),
        ),
    ]
}

fn masked(facts: &Facts) -> Result<(), &'static str> {
    if facts.caps.masked_cas { Ok(()) } else { Err("CAS has no mask") }
}

fn lanes<E: Endpoint + 'static>(space: Space) -> Cast<E> {
    (0..LANES).map(|index| role(index % 2, move |actor| take_and_release(actor, space))).collect()
}

async fn take_and_release<E: Endpoint>(actor: Actor<E>, space: Space) -> Result<(), Breach> {
    let facts = actor.facts();
    let word = if space == Space::Host { facts.host(0) } else { facts.chip(0) };
    let shift = actor.index() * LANE_BITS;
    let (mask, held) = (LANE << shift, (actor.index() + 1) << shift);
    actor.meet().await;
    for _ in 0..facts.rounds {
        // The bits outside the mask are noise, and a backend must ignore them.
        let noise = actor.below(u64::MAX) & !mask;
        let mut list = actor.list();
        let take = list.masked_cas(space, word, noise, held | !mask, mask);
        let old = actor.run(list).await?.old(take);
        actor.check(old & mask == 0, || {
            format!("lane {} was free, CAS found the word {old:#x}", actor.index())
        })?;
        actor.check(lanes_make_sense(old), || {
            format!("the lanes of {old:#x} hold values that no client wrote")
        })?;

        let mut list = actor.list();
        if facts.caps.write_releases && actor.below(4) > 0 {
            list.write(space, word + shift / 8, &0_u16.to_le_bytes());
            actor.run(list).await?;
        } else {
            let release = list.masked_cas(space, word, held | noise, noise, mask);
            let old = actor.run(list).await?.old(release);
            actor.check(old & mask == held, || {
                format!("lane {} was held, CAS found {old:#x}", actor.index())
            })?;
        }
    }
    actor.meet().await;
    let word = actor.word(space, word).await?;
    actor.check(word == 0, || format!("every lane was released, but the word is {word:#x}"))
}

/// Whether each lane is free or shows its only user.
fn lanes_make_sense(word: u64) -> bool {
    (0..LANES as u64).all(|lane| {
        let found = word >> (lane * LANE_BITS) & LANE;
        found == 0 || found == lane + 1
    })
}
