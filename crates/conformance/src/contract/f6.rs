//! F6: once a memory server has fenced a client, no verb of that client executes there again.
//!
//! Two endpoints of one victim write without pause, with several lists in flight. After the answer to
//! [`Request::Fence`](sherman_fabric::Request::Fence), their memory must not change. Everything they post
//! must end in [`FabricError::Fenced`](sherman_fabric::FabricError::Fenced). Another client continues as
//! before. Recovery depends on this: it replays a dead client's records, and that client's last WRITEs must
//! not overwrite them (`docs/INVARIANTS.md`).
//!
//! A fence outlives the id. When the victim has been retired everywhere, and another client may have its id,
//! servers still refuse the victim's verbs and requests.

use super::actor::{Actor, fill};
use super::report::{Breach, Rule};
use super::scenario::{Scenario, role, scenario};
use super::stage::Facts;
use sherman_fabric::control::Verdict;
use sherman_fabric::{Call, ComputeId, Endpoint, FabricError, FenceMode, Peer, Space, WorkList, call, calls};
use std::collections::VecDeque;

/// Stage words: the victim's id, whether the fence was answered, and how many lists the victims and the
/// bystander have completed.
const VICTIM: usize = 0;
const ANSWERED: usize = 1;
const COMPLETED: [usize; 2] = [2, 3];
const WENT_ON: usize = 4;

/// The units of each victim, and its number of lists in flight.
const UNITS: u64 = 4;
const IN_FLIGHT: usize = 4;
/// Number of refused lists after which a victim stops.
const IN_VAIN: u32 = 4;

pub(super) fn scenarios<E: Endpoint + 'static>() -> Vec<Scenario<E>> {
    let executes = scenario(Rule::F6, "nothing_of_a_fenced_client_executes", can_fence, |_| {
        vec![
            role(0, fence),
            role(1, |actor| write_until_fenced(actor, 0)),
            role(1, |actor| write_until_fenced(actor, 1)),
            role(2, go_on),
        ]
    });
    let retired =
        scenario(Rule::F6, "a_fenced_client_stays_refused_when_its_id_is_retired", can_fence, |_| {
            vec![role(0, retire), role(1, knock_repeatedly)]
        });
    vec![executes, retired]
}

fn can_fence(facts: &Facts) -> Result<(), &'static str> {
    match facts.caps.fence {
        FenceMode::Revoke => Ok(()),
        FenceMode::DeathOnly => Err("caps.fence is DeathOnly: a live client cannot be fenced"),
    }
}

/// The units of both victims, and the word that each adds to.
async fn victims_memory<E: Endpoint>(actor: &Actor<E>) -> Result<Vec<u8>, Breach> {
    let facts = actor.facts();
    actor.read(Space::Host, facts.host(0), 2 * UNITS as usize * facts.unit()).await
}

async fn fence<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let (facts, stage) = (actor.facts(), actor.stage());
    actor.meet().await;
    let busy = 2 + actor.below(facts.rounds.min(64));
    actor
        .until("the victims to be busy", |stage| COMPLETED.iter().all(|&word| stage.get(word) >= busy))
        .await;
    let client = ComputeId(stage.get(VICTIM) as u16);
    if let Err(error) =
        call(actor.endpoint(), Peer::Volume(facts.server()), calls::Fence { client }, actor.counters()).await
    {
        return Err(actor.breach(format_args!("the request to fence client {client} failed: {error}")));
    }
    stage.set(ANSWERED, 1);
    let at_answer = victims_memory(&actor).await?;
    for _ in 0..facts.rounds.clamp(8, 64) {
        actor.pause().await;
        let later = victims_memory(&actor).await?;
        actor.check(later == at_answer, || format!("client {client} was fenced, but its memory changed"))?;
    }
    let so_far = stage.get(WENT_ON);
    actor.until("the client that was not fenced to go on", |stage| stage.get(WENT_ON) > so_far + 2).await;
    actor.until("the victims to see that they are fenced", |stage| stage.finished() == 2).await;
    let later = victims_memory(&actor).await?;
    actor
        .check(later == at_answer, || format!("client {client} was fenced, but its memory changed later"))?;
    stage.finish();
    Ok(())
}

fn victims_list<E: Endpoint>(actor: &Actor<E>, which: u64, value: u64) -> WorkList {
    let facts = actor.facts();
    let first = which * UNITS;
    let mut list = actor.list();
    let data = fill(value, facts.unit());
    list.write(Space::Host, facts.host(first + actor.below(UNITS - 1)), &data);
    list.faa(Space::Host, facts.host(first + UNITS - 1), 1);
    list.write(Space::Host, facts.host(first + actor.below(UNITS - 1)), &data);
    list
}

async fn write_until_fenced<E: Endpoint>(actor: Actor<E>, which: u64) -> Result<(), Breach> {
    let stage = actor.stage();
    let me = actor.endpoint().client();
    stage.set(VICTIM, u64::from(me.0));
    actor.meet().await;
    let mut in_flight = VecDeque::new();
    let mut fenced = 0;
    for value in 1.. {
        while in_flight.len() < IN_FLIGHT {
            let hopeless = stage.get(ANSWERED) == 1;
            in_flight.push_back((hopeless, actor.post(victims_list(&actor, which, value))));
        }
        let Some((hopeless, posted)) = in_flight.pop_front() else { break };
        match actor.outcome(posted).await {
            Ok(list) => {
                actor
                    .check(!hopeless, || "a list posted after the fence was answered completed".to_owned())?;
                actor.check(fenced == 0, || {
                    "a list completed after an earlier one had been fenced".to_owned()
                })?;
                actor.endpoint().recycle(list);
                stage.add(COMPLETED[which as usize], 1);
                // Leaves room for the fence, which is a single request among many verbs.
                actor.pause().await;
            }
            Err(FabricError::Fenced { client }) if client == me => fenced += 1,
            Err(error) => return Err(actor.breach(format_args!("a fenced client's list ended in: {error}"))),
        }
        if fenced > IN_VAIN {
            break;
        }
    }
    // Lists still in flight are dropped here, not awaited. They must not execute either.
    stage.finish();
    Ok(())
}

/// Runs another client, which is not fenced.
async fn go_on<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let (facts, stage) = (actor.facts(), actor.stage());
    let offset = facts.host(2 * UNITS);
    actor.meet().await;
    for value in 1.. {
        actor.write(Space::Host, offset, &fill(value, facts.unit())).await?;
        let there = actor.word(Space::Host, offset).await?;
        actor.check(there == value, || {
            format!("a client that was not fenced wrote {value} and found {there}")
        })?;
        stage.add(WENT_ON, 1);
        actor.pause().await;
        if stage.finished() == 3 {
            break;
        }
    }
    Ok(())
}

/// Sends a request that the server must grant.
async fn ask<E: Endpoint, C: Call>(actor: &Actor<E>, peer: Peer, request: C) -> Result<C::Reply, Breach> {
    let what = format!("{} at {peer}", C::NAME);
    let answer = call(actor.endpoint(), peer, request, actor.counters()).await;
    answer.map_err(|error| actor.breach(format_args!("{what} failed: {error}")))
}

/// Recovers the victim, without the tree's part: fences and retires it on every volume, then frees its id.
async fn retire<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let stage = actor.stage();
    ask(&actor, Peer::Control, calls::Activate).await?;
    actor.meet().await;
    actor.until("the victim to be busy", |stage| stage.get(COMPLETED[0]) >= 2).await;
    let client = ComputeId(stage.get(VICTIM) as u16);
    ask(&actor, Peer::Control, calls::Condemn { client }).await?;
    let verdict = ask(&actor, Peer::Control, calls::Suspect { client }).await?;
    let appointed = verdict == Verdict::Recover;
    actor.check(appointed, || {
        format!("client {client} was condemned and has no recoverer, but the server answered {verdict:?}")
    })?;
    let servers = actor.endpoint().servers();
    for server in (0..servers).rev() {
        ask(&actor, Peer::Volume(server), calls::Fence { client }).await?;
    }
    for server in (0..servers).rev() {
        ask(&actor, Peer::Volume(server), calls::Retire { client }).await?;
    }
    ask(&actor, Peer::Control, calls::FreeId { client }).await?;
    let at_answer = victims_memory(&actor).await?;
    stage.set(ANSWERED, 1);
    actor.until("the victim to see that it is refused", |stage| stage.finished() == 1).await;
    let later = victims_memory(&actor).await?;
    actor.check(later == at_answer, || format!("client {client} was retired, but its memory changed"))
}

async fn knock_repeatedly<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let (facts, stage) = (actor.facts(), actor.stage());
    let me = actor.endpoint().client();
    stage.set(VICTIM, u64::from(me.0));
    // Only an active client is recovered.
    ask(&actor, Peer::Control, calls::Activate).await?;
    actor.meet().await;
    let mut in_vain = 0;
    for value in 1.. {
        let hopeless = stage.get(ANSWERED) == 1;
        match actor.outcome(actor.post(victims_list(&actor, 0, value))).await {
            Ok(list) => {
                actor.check(!hopeless, || "a list of a retired client completed".to_owned())?;
                actor.endpoint().recycle(list);
                stage.add(COMPLETED[0], 1);
            }
            Err(FabricError::Fenced { client }) if client == me => {}
            Err(error) => return Err(actor.breach(format_args!("a retired client's list ended in: {error}"))),
        }
        actor.pause().await;
        if hopeless {
            let answer =
                call(actor.endpoint(), Peer::Volume(facts.server()), calls::Usage, actor.counters()).await;
            let refused = answer == Err(FabricError::Fenced { client: me });
            actor.check(refused, || format!("a retired client's request was answered: {answer:?}"))?;
            in_vain += 1;
        }
        if in_vain > IN_VAIN {
            break;
        }
    }
    stage.finish();
    Ok(())
}
