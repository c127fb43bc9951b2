//! Results of schedules: of one, and of many together.

use super::check::Violation;
use super::fixture::Compute;
use super::members::Members;
use super::mishap::Mishap;
use super::script::Record;
use crate::sim::{GroupSeen, Run, Sim};
use serde::Serialize;
use sherman_core::Cause;
use sherman_core::tree::Merges;
use std::fmt;

/// Number of retries by cause, in the order of [`Cause::ALL`].
pub type Causes = [u64; Cause::ALL.len()];

/// The result of one schedule, after its checks.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The events, verbs and trace hash of the run.
    pub run: Run,
    /// Number of tasks that ran.
    pub clients: u32,
    /// Number of nodes created.
    pub splits: u64,
    /// Number of merges.
    pub merges: Merges,
    /// Number of places that were reused.
    pub reused: u64,
    /// Number of scans.
    pub scans: usize,
    /// Height of the tree at the end, in levels.
    pub height: usize,
    /// The most verbs of any operation.
    pub most_verbs: u64,
    /// Number of retries of operations that ended.
    pub causes: Causes,
    /// Number of gets that used the READ of another operation.
    pub shared: u64,
    /// Number of operations that ended without a future.
    pub at_once: u64,
    /// Number of inserts that began without a future and went on as one.
    pub resumed: u64,
    /// The faults that took effect.
    pub crashes: Crashes,
    /// The property that did not hold, if any.
    pub violation: Option<Violation>,
}

/// The faults of a schedule, and their consequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crashes {
    /// Compute servers that died.
    pub deaths: u32,
    /// Compute servers that were fenced, lost a connection, or stopped themselves.
    pub terminated: u32,
    /// Recoveries that finished within the schedule.
    pub recoveries: u64,
    /// Clients that joined again under a new identity.
    pub rejoined: u32,
    /// Whether an id was issued again.
    pub reissued: bool,
    /// Memory servers that restarted, or were planned to restart.
    pub restarts: u32,
    /// Compute servers that alone lost a memory server.
    pub cut_off: u32,
    /// Compute servers that left in order while others continued.
    pub departed: u32,
    /// Requests to the catalog.
    pub catalog: u32,
    /// Copies that were made again.
    pub made: u32,
    /// Hosts that were declared lost within the schedule.
    pub lost: u32,
    /// How often hosts came back with their memory.
    pub returns: u32,
    /// Copies that were to move, volumes whose primary and backup changed places, and hosts that have left.
    pub moved: (u32, u32, u32),
    /// Whether a made copy became a primary.
    pub failed_over: bool,
    /// What happened in the control group.
    pub group: GroupSeen,
}

impl Crashes {
    pub(super) fn of(
        sim: &Sim,
        everyone: &[Compute],
        members: Option<&Members>,
        mishaps: &[Mishap],
        record: &Record,
    ) -> Self {
        let Some(members) = members else { return Self::default() };
        let count = |of: fn(&Mishap) -> bool| mishaps.iter().filter(|mishap| of(mishap)).count() as u32;
        let mut ids: Vec<_> = everyone.iter().map(|compute| compute.fabric.client()).collect();
        ids.sort_unstable();
        let (made, lost) = sim.made_and_lost();
        Self {
            made,
            lost,
            group: sim.group_seen(),
            returns: sim.returns(),
            moved: sim.moved_and_left(),
            failed_over: sim
                .volumes()
                .volumes()
                .iter()
                .any(|entry| entry.primary.is_some_and(|copy| sim.was_made(copy))),
            deaths: everyone.iter().filter(|compute| sim.is_dead(compute.fabric.number())).count() as u32,
            terminated: everyone.iter().filter(|compute| compute.shared.is_terminated()).count() as u32,
            recoveries: everyone.iter().map(|compute| compute.shared.participation().recoveries).sum(),
            rejoined: members.rejoined.get(),
            reissued: ids.windows(2).any(|pair| pair[0] == pair[1]),
            restarts: count(|mishap| matches!(mishap, Mishap::Restart { .. })),
            cut_off: count(|mishap| matches!(mishap, Mishap::CutOff { .. })),
            departed: members.departed.borrow().len() as u32,
            catalog: record.catalog.borrow().len() as u32,
        }
    }
}

/// Defines [`Shares`] from one list of events.
macro_rules! shares {
    ($($(#[$note:meta])* $event:ident,)+) => {
        /// A value for each event that a schedule may have: whether it happened, the number of schedules in
        /// which it happened, or their share.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Shares<T> {
            $($(#[$note])* pub $event: T,)+
        }

        impl<T> Shares<T> {
            /// Converts every value.
            pub fn map<U>(self, convert: impl Fn(T) -> U) -> Shares<U> {
                Shares { $($event: convert(self.$event),)+ }
            }
        }

        impl Shares<u64> {
            fn add(&mut self, other: Self) {
                $(self.$event += other.$event;)+
            }
        }
    };
}

shares! {
    /// A node was created.
    split,
    /// Leaves or internal nodes were merged.
    merge,
    /// Internal nodes were merged.
    internal_merge,
    /// The root was replaced by its only child.
    shrink,
    /// A place that had held a node was reused.
    reuse,
    /// A range was scanned.
    scan,
    /// Gets shared a READ.
    shared_read,
    /// An operation ended without a future.
    at_once,
    /// An insert began without a future and went on as one.
    resumed,
    /// A compute server died.
    death,
    /// Two or more compute servers died.
    deaths,
    /// A live compute server was declared dead, or lost a connection.
    terminated,
    /// A member was recovered while others continued.
    recovery,
    /// A client joined again under a new identity.
    rejoin,
    /// An id was issued again.
    reissue,
    /// A memory server restarted.
    restart,
    /// One compute server alone lost a memory server.
    cut_off,
    /// A compute server left in order while others continued.
    departure,
    /// Trees were opened, created or dropped.
    catalog,
    /// A lost copy was made again.
    making,
    /// A host was lost.
    loss,
    /// Two or more hosts were lost.
    losses,
    /// Several hosts led, one after the other.
    led_again,
    /// A host of the control group was cut off.
    host_cut,
    /// A host of the control group stood still.
    host_stood_still,
    /// Messages of the control group were lost or came twice.
    bad_network,
    /// A copy that was made again became the primary of its volume.
    failover_to_made,
    /// A copy was planned to move to another host.
    moving,
    /// A primary and a backup changed places.
    swap,
    /// A host has left in order.
    left,
    /// A host came back with its memory.
    host_returned,
}

/// Totals over many schedules.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// Number of schedules that ran. All of them were checked.
    pub schedules: u64,
    /// Number of schedules with each kind of event.
    pub with: Shares<u64>,
    /// Number of verbs of each schedule.
    pub verbs: Vec<u32>,
    /// Trace hashes, to count distinct schedules.
    pub hashes: Vec<u64>,
    /// Number of schedules with a split or a merge.
    pub split_or_merge: u64,
    /// Number of deaths in total.
    pub crash_points: u64,
    /// The most verbs of any operation.
    pub most_verbs: u64,
    /// Number of retries of operations that ended.
    pub causes: Causes,
    /// The fewest tasks of any schedule.
    pub fewest_clients: u32,
    /// The first few violations.
    pub violations: Vec<Violation>,
    /// Number of all violations.
    pub violated: u64,
}

impl Explored {
    /// Adds one schedule.
    pub fn add(&mut self, seen: Seen) {
        self.fewest_clients =
            if self.schedules == 0 { seen.clients } else { self.fewest_clients.min(seen.clients) };
        self.schedules += 1;
        let Merges { leaves, internal, shrinks } = seen.merges;
        let happened = Shares {
            split: seen.splits > 0,
            merge: leaves + internal > 0,
            internal_merge: internal > 0,
            shrink: shrinks > 0,
            reuse: seen.reused > 0,
            scan: seen.scans > 0,
            shared_read: seen.shared > 0,
            at_once: seen.at_once > 0,
            resumed: seen.resumed > 0,
            death: seen.crashes.deaths > 0,
            deaths: seen.crashes.deaths > 1,
            terminated: seen.crashes.terminated > 0,
            recovery: seen.crashes.recoveries > 0,
            rejoin: seen.crashes.rejoined > 0,
            reissue: seen.crashes.reissued,
            restart: seen.crashes.restarts > 0,
            cut_off: seen.crashes.cut_off > 0,
            departure: seen.crashes.departed > 0,
            catalog: seen.crashes.catalog > 0,
            making: seen.crashes.made > 0,
            loss: seen.crashes.lost > 0,
            losses: seen.crashes.lost > 1,
            led_again: seen.crashes.group.leaders > 1,
            host_cut: seen.crashes.group.cut_off > 0,
            host_stood_still: seen.crashes.group.stood_still > 0,
            bad_network: seen.crashes.group.dropped + seen.crashes.group.doubled > 0,
            failover_to_made: seen.crashes.failed_over,
            moving: seen.crashes.moved.0 > 0,
            swap: seen.crashes.moved.1 > 0,
            left: seen.crashes.moved.2 > 0,
            host_returned: seen.crashes.returns > 0,
        };
        self.with.add(happened.map(u64::from));
        self.crash_points += u64::from(seen.crashes.deaths);
        self.most_verbs = self.most_verbs.max(seen.most_verbs);
        self.add_causes(&seen.causes);
        self.split_or_merge += u64::from(seen.splits > 0 || leaves + internal > 0);
        self.verbs.push(u32::try_from(seen.run.verbs).unwrap_or(u32::MAX));
        self.hashes.push(seen.run.trace_hash);
        self.violated += u64::from(seen.violation.is_some());
        if self.violations.len() < 8 {
            self.violations.extend(seen.violation);
        }
    }

    /// Adds the totals of `other`.
    pub fn merge(&mut self, other: Self) {
        if other.schedules > 0 {
            let fewest = if self.schedules == 0 { u32::MAX } else { self.fewest_clients };
            self.fewest_clients = fewest.min(other.fewest_clients);
        }
        self.schedules += other.schedules;
        self.with.add(other.with);
        self.verbs.extend(other.verbs);
        self.hashes.extend(other.hashes);
        self.split_or_merge += other.split_or_merge;
        self.crash_points += other.crash_points;
        self.most_verbs = self.most_verbs.max(other.most_verbs);
        self.add_causes(&other.causes);
        self.violated += other.violated;
        self.violations.extend(other.violations);
    }

    fn add_causes(&mut self, causes: &Causes) {
        self.causes.iter_mut().zip(causes).for_each(|(sum, times)| *sum += times);
    }

    /// Returns the median number of verbs.
    pub fn median_verbs(&self) -> u32 {
        let mut verbs = self.verbs.clone();
        verbs.sort_unstable();
        verbs.get(verbs.len() / 2).copied().unwrap_or(0)
    }

    /// Returns the number of distinct traces as a share of all schedules.
    pub fn distinct(&self) -> f64 {
        let mut hashes = self.hashes.clone();
        hashes.sort_unstable();
        hashes.dedup();
        hashes.len() as f64 / self.hashes.len().max(1) as f64
    }

    /// Combines all trace hashes into one. The order of the schedules does not matter.
    pub fn trace_hash(&self) -> u64 {
        self.hashes.iter().fold(0, |sum, hash| sum.wrapping_add(*hash))
    }

    /// Returns a number of schedules as a share of all.
    pub fn share(&self, of: u64) -> f64 {
        of as f64 / self.schedules.max(1) as f64
    }
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |of| 100.0 * self.share(of);
        write!(f, "{} schedules, median {} verbs, ", self.schedules, self.median_verbs())?;
        write!(f, "{:.1} % with a split or merge, ", percent(self.split_or_merge))?;
        write!(f, "at least {} clients, {:.2} % distinct; ", self.fewest_clients, 100.0 * self.distinct())?;
        let Shares {
            split, merge, internal_merge, shrink, reuse, scan, shared_read, at_once, resumed, ..
        } = self.with;
        write!(f, "{:.1} % with a split, {:.1} % a merge, ", percent(split), percent(merge))?;
        write!(f, "{:.1} % of internal nodes, {:.1} % a shrink, ", percent(internal_merge), percent(shrink))?;
        write!(f, "{:.1} % a reuse, {:.1} % a scan, ", percent(reuse), percent(scan))?;
        write!(
            f,
            "{:.1} % a shared READ, {:.1} % an operation at once, ",
            percent(shared_read),
            percent(at_once)
        )?;
        write!(f, "{:.1} % one that had to wait; ", percent(resumed))?;
        if self.with.death + self.with.terminated > 0 {
            let Shares { death, deaths, terminated, recovery, rejoin, reissue, .. } = self.with;
            write!(f, "{:.1} % with a death, {:.1} % with several, ", percent(death), percent(deaths))?;
            write!(
                f,
                "{:.1} % with a live client terminated, {:.1} % with a recovery, ",
                percent(terminated),
                percent(recovery)
            )?;
            write!(
                f,
                "{:.1} % with a client that came back, {:.1} % with an id issued again, ",
                percent(rejoin),
                percent(reissue)
            )?;
            let Shares { restart, cut_off, departure, catalog, .. } = self.with;
            write!(
                f,
                "{:.1} % with a restart, {:.1} % with a client cut off, ",
                percent(restart),
                percent(cut_off)
            )?;
            write!(
                f,
                "{:.1} % with a client that left, {:.1} % with other trees, ",
                percent(departure),
                percent(catalog)
            )?;
            let Shares { making, losses, failover_to_made, moving, swap, left, host_returned, .. } =
                self.with;
            if making > 0 {
                write!(f, "{:.1} % with a copy made again, ", percent(making))?;
                write!(f, "{:.1} % with a failover to one, ", percent(failover_to_made))?;
                write!(f, "{:.1} % with several lost hosts, ", percent(losses))?;
            }
            let Shares { loss, led_again, host_cut, host_stood_still, bad_network, .. } = self.with;
            if loss > 0 {
                write!(f, "{:.1} % lost a host, ", percent(loss))?;
            }
            if led_again > 0 {
                write!(f, "{:.1} % had several leaders, ", percent(led_again))?;
                write!(f, "{:.1} % a host cut off, ", percent(host_cut))?;
                write!(f, "{:.1} % a host that stood still, ", percent(host_stood_still))?;
                write!(f, "{:.1} % a bad network, ", percent(bad_network))?;
            }
            if host_returned > 0 {
                write!(f, "{:.1} % with a host that came back, ", percent(host_returned))?;
            }
            if moving > 0 {
                write!(f, "{:.1} % with a copy that moves, ", percent(moving))?;
                write!(f, "{:.1} % with primary and backup exchanged, ", percent(swap))?;
                write!(f, "{:.1} % with a host that left, ", percent(left))?;
            }
            write!(f, "at most {} verbs an operation; ", self.most_verbs)?;
        }
        write!(f, "{} violations", self.violated)
    }
}
