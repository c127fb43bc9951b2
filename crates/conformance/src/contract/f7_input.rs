//! F7 for input that no server can serve: it ends in a typed error, without a panic, and changes nothing.
//!
//! Each case is a list [WRITE, bad verb, WRITE]. Each run starts at another case. So if a backend's
//! connection does not survive one case, other runs still reach the later cases.

use super::actor::{Actor, uniform};
use super::f7::still_usable;
use super::report::{Breach, Rule};
use super::scenario::{Scenario, always, role, scenario};
use super::stage::Facts;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Peer, Space, VerbId, WorkList, call, calls};

/// The largest list or transfer that is tried. No caller can reach a backend's limit beyond it.
const TRIED: u32 = 1 << 24;

pub(super) fn scenarios<E: Endpoint + 'static>() -> Vec<Scenario<E>> {
    vec![scenario(Rule::F7, "bad_input_is_refused_and_changes_nothing", always, |_| {
        vec![role(0, refuse_all), role(1, |actor| be_undisturbed(actor, 1))]
    })]
}

/// The error that a case must end in.
#[derive(Clone, Copy)]
enum Due {
    Misaligned,
    OutOfBounds,
    TooLarge,
    /// Too large or out of bounds, depending on which the backend checks first.
    TooLargeOrOutOfBounds,
    NoSuchServer,
    Unsupported,
    /// There is no on-chip memory. The access is out of bounds, or not supported.
    NotThere,
}

impl Due {
    fn is(self, error: &FabricError) -> bool {
        use FabricError as E;
        match self {
            Self::Misaligned => matches!(error, E::Misaligned { .. }),
            Self::OutOfBounds => matches!(error, E::OutOfBounds { .. }),
            Self::TooLarge => matches!(error, E::TooLarge { .. }),
            Self::TooLargeOrOutOfBounds => matches!(error, E::TooLarge { .. } | E::OutOfBounds { .. }),
            Self::NoSuchServer => matches!(error, E::NoSuchServer { .. }),
            Self::Unsupported => matches!(error, E::Unsupported { .. }),
            Self::NotThere => matches!(error, E::OutOfBounds { .. } | E::Unsupported { .. }),
        }
    }
}

/// Adds one or more bad verbs.
type Add = fn(&mut WorkList, &Facts) -> VerbId;

fn cases(facts: &Facts) -> Vec<(&'static str, Due, Add)> {
    let caps = &facts.caps;
    let mut cases: Vec<(&'static str, Due, Add)> = vec![
        ("a CAS across words", Due::Misaligned, |list, facts| list.cas(Space::Host, facts.host(1) + 4, 0, 1)),
        ("an FAA at an odd offset", Due::Misaligned, |list, facts| {
            list.faa(Space::Host, facts.host(1) + 1, 1)
        }),
        ("a READ far beyond the end", Due::OutOfBounds, |list, _| {
            list.read(Space::Host, GlobalAddress::OFFSET_LIMIT - 64, 64)
        }),
        ("a READ whose end overflows", Due::OutOfBounds, |list, _| list.read(Space::Host, u64::MAX - 7, 16)),
        ("a READ from the end on", Due::OutOfBounds, |list, facts| {
            list.read(Space::Host, facts.scratch.host_bytes, 8)
        }),
        ("a WRITE across the end", Due::OutOfBounds, |list, facts| {
            list.write(Space::Host, facts.scratch.host_bytes - 8, &[0xee; 16])
        }),
        ("a CAS beyond the end", Due::OutOfBounds, |list, facts| {
            list.cas(Space::Host, facts.scratch.host_bytes.next_multiple_of(8), 0, 1)
        }),
    ];
    if facts.has_chip() {
        cases.push(("an on-chip FAA across words", Due::Misaligned, |list, facts| {
            list.faa(Space::OnChip, facts.chip(0) + 4, 1)
        }));
        cases.push(("an on-chip READ across words", Due::Misaligned, |list, facts| {
            list.read(Space::OnChip, facts.chip(0) + 6, 4)
        }));
        cases.push(("an on-chip WRITE beyond the end", Due::OutOfBounds, |list, facts| {
            list.write(Space::OnChip, facts.caps.on_chip_bytes.next_multiple_of(8), &[1; 8])
        }));
    } else if caps.on_chip_bytes == 0 {
        cases.push(("on-chip memory that is not there", Due::NotThere, |list, _| {
            list.read(Space::OnChip, 0, 8)
        }));
    }
    if caps.max_verbs < TRIED {
        cases.push(("too many verbs", Due::TooLarge, |list, facts| {
            (1..facts.caps.max_verbs).for_each(|_| _ = list.read(Space::Host, facts.host(1), 8));
            list.read(Space::Host, facts.host(1), 8)
        }));
    }
    if caps.max_transfer < TRIED {
        cases.push(("too long a READ", Due::TooLargeOrOutOfBounds, |list, facts| {
            list.read(Space::Host, facts.host(1), facts.caps.max_transfer + 1)
        }));
    }
    if !caps.masked_cas {
        cases.push(("a masked CAS", Due::Unsupported, |list, facts| {
            list.masked_cas(Space::Host, facts.host(1), 0, 1, 0xffff)
        }));
    }
    cases
}

async fn refuse_all<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let facts = actor.facts();
    let cases = cases(facts);
    let (before, bad, after) = (facts.host(0), facts.host(1), facts.host(2));
    // The bytes before the end of memory do not belong to the suite. So they are compared, not expected to be
    // zero.
    let last_word = actor.word(Space::Host, facts.scratch.host_bytes - 8).await?;
    actor.meet().await;
    for turn in 0..cases.len() {
        let (name, due, add) = cases[(turn + facts.run() as usize) % cases.len()];
        let mut list = actor.list();
        list.write(Space::Host, before, &[1; 8]);
        add(&mut list, facts);
        list.write(Space::Host, after, &[1; 8]);
        refuse(&actor, name, due, list).await?;
        if !still_usable(&actor, facts.host(3), turn as u64 + 1).await? {
            break;
        }
        let unchanged = actor.read(Space::Host, bad, 2 * facts.unit()).await?;
        actor.check(uniform(&unchanged) == Some(0), || format!("{name} was refused, but changed memory"))?;
        let last = actor.word(Space::Host, facts.scratch.host_bytes - 8).await?;
        actor.check(last == last_word, || format!("{name} was refused, but changed the last word"))?;
    }
    let nowhere = actor.endpoint().servers();
    let mut list = WorkList::new(nowhere);
    list.read(Space::Host, before, 8);
    refuse(&actor, "a list to no server", Due::NoSuchServer, list).await?;
    let answer = call(actor.endpoint(), Peer::Volume(nowhere), calls::Usage, actor.counters()).await;
    let refused = matches!(&answer, Err(error) if Due::NoSuchServer.is(error));
    actor.check(refused, || format!("a request to no server was answered by {answer:?}"))?;
    actor.stage().finish();
    Ok(())
}

async fn refuse<E: Endpoint>(actor: &Actor<E>, name: &str, due: Due, list: WorkList) -> Result<(), Breach> {
    match actor.outcome(actor.post(list)).await {
        Ok(_) => Err(actor.breach(format_args!("{name} was not refused"))),
        Err(error) if due.is(&error) => Ok(()),
        Err(error) => Err(actor.breach(format_args!("{name} was refused with the wrong error: {error}"))),
    }
}

/// Runs another client, which works on while the first one misbehaves.
async fn be_undisturbed<E: Endpoint>(actor: Actor<E>, misbehaving: u64) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    for value in 1.. {
        actor.write(Space::Host, facts.host(4), &u64::to_le_bytes(value)).await?;
        let found = actor.word(Space::Host, facts.host(4)).await?;
        actor.check(found == value, || {
            format!("wrote {value} beside a client's bad lists and found {found}")
        })?;
        if actor.stage().finished() >= misbehaving {
            break;
        }
    }
    Ok(())
}
