//! Many threads and tasks of several compute servers on one key.
//!
//! Every update writes a value that no other update writes, and returns the value before it. So the updates
//! form one chain, and the chain is the order in which they took effect. The order must be legal: an
//! operation that ended before another began comes first. Gets show values of the chain, at legal places too.
//! Operations in that order are linearizable.

use super::preempted::{Gap, Gaps, Preempted};
use super::{Failure, fail};
use sherman::{Cluster, Session, Tree};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The key, and its value before the first update.
const KEY: u64 = 7;
const FIRST: u64 = 0;
/// Of each task's operations, one in this many is a get.
const GETS_ONE_IN: u64 = 4;

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneKey {
    /// Number of updates.
    pub updates: u64,
    /// Number of gets.
    pub gets: u64,
    /// The median duration of all operations.
    pub median: Duration,
    /// The longest duration of any operation.
    pub longest: Duration,
    /// The same without the time for which the operating system kept threads waiting for a processor.
    pub longest_wait: Duration,
    /// How many operations ended during the longest one. Many: others overtook it. Few: all of them waited,
    /// for a thread that the operating system had stopped.
    pub during_longest: u64,
}

/// An operation that was acknowledged. Times are nanoseconds since the beginning.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    began: u64,
    ended: u64,
    /// What it found, and what it wrote unless it is a get.
    found: u64,
    wrote: Option<u64>,
}

/// The operations of one task, in pieces that never move. Growing one vector of all would copy it: while a
/// thread copies the results of its tasks, every operation waits.
#[derive(Debug, Default)]
struct Log(Vec<Vec<Acknowledged>>);

impl Log {
    const PIECE: usize = 1024;

    fn push(&mut self, one: Acknowledged) {
        match self.0.last_mut() {
            Some(piece) if piece.len() < Self::PIECE => piece.push(one),
            _ => {
                let mut piece = Vec::with_capacity(Self::PIECE);
                piece.push(one);
                self.0.push(piece);
            }
        }
    }
}

/// The operations of a thread, and when it waited for a processor.
type Ran = (Vec<Acknowledged>, Vec<Gap>);

/// Runs `computes` compute servers of `threads` threads each, with `tasks` tasks on each thread. All use one
/// key of the tree `name`, which must be new, for the given time.
pub fn one_key(
    open: &(dyn Fn() -> Result<Cluster, Failure> + Sync),
    name: &str,
    computes: u64,
    threads: u64,
    tasks: u64,
    time: Duration,
) -> Result<OneKey, Failure> {
    let worlds: Vec<Cluster> = (0..computes).map(|_| open()).collect::<Result<_, _>>()?;
    let Some(tree) = worlds.first().map(|world| world.tree(name)).transpose()? else {
        return fail("no compute server".to_owned());
    };
    let tree: Tree<u64, u64> = tree;
    tree.client()?.insert(KEY, FIRST)?;
    let began = Instant::now();
    let outcomes: Vec<Result<Ran, Failure>> = std::thread::scope(|scope| {
        let spawn = |number: u64| {
            let world = &worlds[(number % computes) as usize];
            scope.spawn(move || run(&world.tree(name)?.session()?, number * tasks, tasks, began, time))
        };
        let running: Vec<_> = (0..computes * threads).map(spawn).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.map(|outcome| outcome.unwrap_or_else(|_| fail("a thread panicked".to_owned()))).collect()
    });
    let (mut all, mut gaps) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        let (done, waited) = outcome?;
        all.extend(done);
        gaps.extend(waited);
    }
    let gaps = Gaps::new(gaps);
    let last = tree.client()?.get(KEY)?;
    verify(&all, last)?;
    let mut times: Vec<u64> = all.iter().map(|one| one.ended - one.began).collect();
    times.sort_unstable();
    let slowest = all.iter().max_by_key(|one| one.ended - one.began);
    let during = |slow: &Acknowledged| {
        all.iter().filter(|one| (slow.began..slow.ended).contains(&one.ended)).count() as u64
    };
    let wait = |one: &Acknowledged| (one.ended - one.began).saturating_sub(gaps.within(one.began, one.ended));
    let updates = all.iter().filter(|one| one.wrote.is_some()).count() as u64;
    Ok(OneKey {
        updates,
        gets: all.len() as u64 - updates,
        median: Duration::from_nanos(times.get(times.len() / 2).copied().unwrap_or(0)),
        longest: Duration::from_nanos(times.last().copied().unwrap_or(0)),
        longest_wait: Duration::from_nanos(all.iter().map(wait).max().unwrap_or(0)),
        during_longest: slowest.map_or(0, during),
    })
}

/// Runs the tasks of one thread, from number `first` on.
fn run(
    session: &Session<u64, u64>,
    first: u64,
    tasks: u64,
    start: Instant,
    time: Duration,
) -> Result<Ran, Failure> {
    let mut preempted = Preempted::new(start);
    let mut running: Vec<Pin<Box<_>>> =
        (first..first + tasks).map(|number| Box::pin(task(session, number, start, time))).collect();
    // Not joined before the last task ends, for the same reason.
    let mut all = Vec::new();
    session.run(std::future::poll_fn(|cx| {
        preempted.look();
        let mut failure = None;
        running.retain_mut(|task| match task.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(more)) => {
                all.push(more);
                false
            }
            Poll::Ready(Err(error)) => {
                failure.get_or_insert(error);
                false
            }
        });
        match failure {
            Some(error) => Poll::Ready(Err(error)),
            None if running.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }))?;
    let pieces = all.into_iter().flat_map(|log: Log| log.0);
    Ok((pieces.flatten().collect(), preempted.into_gaps()))
}

async fn task(
    session: &Session<u64, u64>,
    number: u64,
    start: Instant,
    time: Duration,
) -> Result<Log, Failure> {
    let nanos = || start.elapsed().as_nanos() as u64;
    let mut all = Log::default();
    for count in 1.. {
        let began = nanos();
        if began >= time.as_nanos() as u64 {
            break;
        }
        let new = (number + 1) << 40 | count;
        let wrote = !(count + number).is_multiple_of(GETS_ONE_IN);
        let found = if wrote { session.insert(KEY, new).await? } else { session.get(KEY).await? };
        let Some(found) = found else { return fail(format!("task {number} found no value")) };
        all.push(Acknowledged { began, ended: nanos(), found, wrote: wrote.then_some(new) });
    }
    Ok(all)
}

/// Checks that the operations are linearizable, and that the key has the value of the last update.
fn verify(all: &[Acknowledged], last: Option<u64>) -> Result<(), Failure> {
    let mut after: BTreeMap<u64, Acknowledged> = BTreeMap::new();
    for one in all.iter().filter(|one| one.wrote.is_some()) {
        if let Some(other) = after.insert(one.found, *one) {
            return fail(format!("two updates found the same value: {one:?}, {other:?}"));
        }
    }
    // Each update with its place in the chain. The first value has place 0.
    let (mut place, mut value) = (BTreeMap::from([(FIRST, 0_u64)]), FIRST);
    let mut order: Vec<(u64, Acknowledged)> = Vec::with_capacity(all.len());
    while let Some(next) = after.remove(&value) {
        let Some(wrote) = next.wrote else { break };
        value = wrote;
        place.insert(value, 2 * place.len() as u64);
        order.push((2 * (place.len() as u64 - 1), next));
    }
    if let Some(lost) = after.values().next() {
        return fail(format!("{} updates found a value that was never there: {lost:?}", after.len()));
    }
    if last != Some(value) {
        return fail(format!("the key has the value {last:?}, and the last update wrote {value}"));
    }
    // A get comes between the update whose value it shows and the next one.
    for one in all.iter().filter(|one| one.wrote.is_none()) {
        let Some(at) = place.get(&one.found) else {
            return fail(format!("a get shows a value that nobody wrote: {one:?}"));
        };
        order.push((at + 1, *one));
    }
    in_real_time(order)
}

/// Checks that no operation ended before another began that has a lower place. Operations of one place (gets
/// of one value) may have any order.
fn in_real_time(mut order: Vec<(u64, Acknowledged)>) -> Result<(), Failure> {
    order.sort_unstable_by_key(|(place, one)| (*place, one.began));
    let mut earliest_end: Option<Acknowledged> = None;
    for group in order.chunk_by(|one, other| one.0 == other.0).rev() {
        for (_, one) in group {
            if let Some(later) = earliest_end
                && later.ended < one.began
            {
                return fail(format!("{later:?} ended before {one:?} began, and took effect after it"));
            }
        }
        for (_, one) in group {
            if earliest_end.is_none_or(|known| one.ended < known.ended) {
                earliest_end = Some(*one);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(began: u64, ended: u64, found: u64, wrote: u64) -> Acknowledged {
        Acknowledged { began, ended, found, wrote: Some(wrote) }
    }

    fn get(began: u64, ended: u64, found: u64) -> Acknowledged {
        Acknowledged { began, ended, found, wrote: None }
    }

    #[test]
    fn legal_orders_pass_and_all_others_fail() {
        let chain = [update(1, 5, FIRST, 10), update(2, 9, 10, 20), update(10, 12, 20, 30)];
        assert!(verify(&chain, Some(30)).is_ok());
        let with = |one: Acknowledged| chain.iter().copied().chain([one]).collect::<Vec<_>>();
        for legal in [get(1, 2, FIRST), get(3, 4, 10), get(11, 13, 20), get(4, 9, 20)] {
            assert!(verify(&with(legal), Some(30)).is_ok(), "{legal:?}");
        }
        // An earlier value after a later one was acknowledged, a value that is not written yet, and one that
        // nobody wrote.
        for wrong in [get(6, 7, FIRST), get(10, 11, 10), get(13, 14, 20), get(1, 9, 30), get(1, 2, 4)] {
            assert!(verify(&with(wrong), Some(30)).is_err(), "{wrong:?}");
        }
        // Two gets one after the other that go back.
        let back = [get(2, 3, 20), get(4, 5, 10)];
        assert!(verify(&chain.iter().copied().chain(back).collect::<Vec<_>>(), Some(30)).is_err());
        // A lost update, two updates of one value, updates against their order in time.
        assert!(verify(&chain[..2], Some(10)).is_err());
        assert!(verify(&with(update(1, 9, 10, 40)), Some(30)).is_err());
        assert!(verify(&with(update(1, 9, 50, 40)), Some(30)).is_err());
        assert!(verify(&[update(5, 6, FIRST, 1), update(1, 2, 1, 2)], Some(2)).is_err());
    }
}
