//! The scenarios that can find a planted bug.
//!
//! Most bugs show in the scenarios of every exploration. Some bugs concern one format or one shape of node,
//! or need rare situations. For those the drawn scenarios are adjusted, but never the adversary and never the
//! checkers.

use super::Hunt;
use crate::sim::Inline;
use crate::tree::mix::Mix;
use crate::tree::scenario::{STEP_NANOS_OF_CRASHES, Scenario, Shape};
use sherman_core::mutant::Mutant;
use sherman_core::{Format, Techniques};

impl Hunt {
    /// Returns the scenarios that can find `mutant`.
    pub fn of(mutant: Mutant) -> Self {
        let lined = Self::everywhere().only(Format::LineStamped);
        let hashed = Self::everywhere().only(Format::LineHashed);
        match mutant {
            Mutant::WindowStampsIgnored | Mutant::WindowFencesIgnored | Mutant::SplitKeepsVersion => hashed,
            // Leaves must change from dense to wide and back.
            Mutant::RelayoutKeepsVersion | Mutant::DistanceTruncated | Mutant::FarFenceOpen => {
                Self { bend: repack, ..hashed }
            }
            // The children of a node must lie on two servers.
            Mutant::ChildServerLost => Self { bend: |scenario| scenario.servers = 2, ..hashed },
            // Readers must find separators that no client could post.
            Mutant::LearntMisplaced => Self { bend: |scenario| scenario.unposted = true, ..hashed },
            // A place must be freed and reused while a cached copy leads to it.
            Mutant::StaleCopiesKept => Self { bend: churn, ..hashed },
            // Several threads of one compute server must change the same lines.
            Mutant::JoinsTooLate | Mutant::ResultOfAnother => Self { bend: crowd, ..hashed },
            // An operation's deadline must pass while the holder of the lane executes it.
            Mutant::LeavesTaken => Self { bend: crowd, ..hashed.with_crashes() },
            // Several gets of one compute server must be in flight at once.
            Mutant::AdoptsEarlierRead | Mutant::WaitersLeft => Self { bend: gather, ..hashed },
            // And they must want different windows that share a slot.
            Mutant::OtherLines => Self {
                bend: |scenario| {
                    gather(scenario);
                    (scenario.shape, scenario.loaded, scenario.hot) = (Shape::WideKeys, 24, 24);
                },
                ..hashed
            },
            // Operations must begin without futures.
            Mutant::UnfitMeansAbsent | Mutant::RefusedLaneUsed | Mutant::ObstacleKeepsLane => {
                Self { bend: at_once, ..hashed }
            }
            Mutant::DoneBeforeWrite | Mutant::BegunAgain => Self { bend: at_once, ..hashed },
            // A place must be freed and reused while a reader has a pointer to it.
            Mutant::DetachedIgnored | Mutant::LinesNotDetached => Self { bend: churn, ..hashed },
            // A client must die while it links a leaf, and another client must change that leaf meanwhile.
            Mutant::LinkRewritesLines => Self {
                bend: |scenario| {
                    churn(scenario);
                    (scenario.computes, scenario.threads, scenario.servers) = (3, 3, 1);
                    (scenario.operations, scenario.lease_nanos) = (16, 100 * STEP_NANOS_OF_CRASHES);
                },
                ..hashed.with_crashes()
            },
            // A reader must wait through sixteen writes of one node. This needs writers that do nothing else.
            Mutant::NarrowStamp => Self {
                format: Some(Format::SortedStamped),
                crashes: false,
                replicas: false,
                group: None,
                trouble: None,
                breach: None,
                values: false,
                bend: |scenario| {
                    scenario.operations = 20;
                    scenario.hot = 3;
                    scenario.sparse = true;
                    scenario.unposted = false;
                    (scenario.first, scenario.then) = (Mix::UPDATE, Mix::UPDATE);
                },
            },
            // Another client must grow the tree, merge the leaf away and shrink the tree again, all between
            // two lists.
            Mutant::GrowthWithoutLane => Self {
                bend: |scenario| {
                    (scenario.shape, scenario.operations) = (Shape::Four, 12);
                    (scenario.loaded, scenario.hot) = (4, 9);
                    (scenario.sparse, scenario.thinned, scenario.unposted) = (false, 0, false);
                    (scenario.first, scenario.then, scenario.opposed) = (Mix::GROW, Mix::SHRINK, true);
                },
                ..lined
            },
            // The client that made a split over two servers must die after another client has split the node
            // again. This needs a full leaf at the right end, which is full again after the first split.
            Mutant::SplitBySibling => Self {
                bend: |scenario| {
                    (scenario.shape, scenario.servers) = (Shape::Four, 2);
                    (scenario.loaded, scenario.hot, scenario.operations) = (4, 9, 4);
                    (scenario.sparse, scenario.thinned, scenario.unposted) = (false, 0, false);
                    (scenario.first, scenario.then) = (Mix::GROW, Mix::GROW);
                },
                ..lined.with_crashes()
            },
            // Only a client that dies in between, or the recovery of that client, shows these bugs.
            Mutant::RecordAfterData | Mutant::RecordClearedEarly => Self::everywhere().with_crashes(),
            Mutant::HeaderBeforeSibling
            | Mutant::OutcomeClaimed
            | Mutant::ReplayWithoutFencing
            | Mutant::StallIgnored
            | Mutant::TakeoverWithoutFencing
            | Mutant::SweepBeforeReplay
            | Mutant::SweepsOthers
            | Mutant::IdReissuedEarly
            | Mutant::RecoversBeside
            | Mutant::MergeNotFinished
            | Mutant::GrowthBelieved
            | Mutant::PendingKept
            | Mutant::ActiveUnknown
            | Mutant::FenceLeft
            | Mutant::TerminatedRenews
            | Mutant::PrivateLoss
            | Mutant::LeavesTerminated
            | Mutant::ExpiredUnnoticed => lined.with_crashes(),
            // A recovery must take longer than a renewal can wait, so many threads take turns.
            Mutant::RecoversInline => Self {
                bend: |scenario| {
                    (scenario.computes, scenario.threads, scenario.servers) = (3, 4, 2);
                    (scenario.operations, scenario.condemned) = (4, false);
                    scenario.lease_nanos = 540 * STEP_NANOS_OF_CRASHES;
                },
                ..lined.with_crashes()
            },
            // A client must create a tree in the catalog entry of a tree that two other clients are dropping.
            Mutant::DropWithoutLane => Self {
                bend: |scenario| {
                    (scenario.catalog, scenario.computes, scenario.threads, scenario.servers) =
                        (true, 3, 1, 1);
                    (scenario.loaded, scenario.operations) = (5, 12);
                },
                ..lined.with_crashes()
            },
            // Two clients must find a new tree without a root.
            Mutant::RootOverRoot => Self {
                bend: |scenario| {
                    (scenario.catalog, scenario.computes, scenario.threads, scenario.servers) =
                        (true, 3, 1, 2);
                    (scenario.loaded, scenario.operations) = (5, 12);
                },
                ..lined.with_crashes()
            },
            // A client must die while it frees, loads or splits nodes of a dropped tree.
            Mutant::FreedAsMerged | Mutant::EndedNotReplayed => Self { bend: drops, ..lined.with_crashes() },
            // One thread must load into a dropped tree while another thread of its compute server frees that
            // tree.
            Mutant::LoadWaits => Self {
                bend: |scenario| {
                    (scenario.shape, scenario.catalog, scenario.loading) = (Shape::Four, true, true);
                    (scenario.short, scenario.condemned, scenario.servers) = (false, false, 1);
                    (scenario.computes, scenario.threads) = (3, 2);
                    (scenario.loaded, scenario.operations) = (5, 6);
                },
                ..lined.with_crashes()
            },
            // The place must lie in a span of the client that frees it.
            Mutant::ReuseBeforeUnlink => Self {
                bend: |scenario| {
                    churn(scenario);
                    scenario.span_places = 4;
                },
                ..lined
            },
            // A place must be freed and reused within a few lists. So nodes are created and freed all the
            // time, and each span is one place.
            Mutant::StampNotContinued | Mutant::HintBeforeMark => Self { bend: churn, ..lined },
            // A client must die between the hint and the end of its record. Another client must reuse the
            // place after the recoverer has read it and before the recoverer writes it. So many threads make
            // and free nodes of several trees, and members recover each other all the time.
            Mutant::FreeMarkedAgain => Self {
                bend: |scenario| {
                    churn(scenario);
                    (scenario.catalog, scenario.condemned, scenario.short) = (true, true, false);
                    (scenario.computes, scenario.threads, scenario.servers) = (3, 3, 1);
                    (scenario.operations, scenario.lease_nanos) = (16, 100 * STEP_NANOS_OF_CRASHES);
                },
                ..lined.with_crashes()
            },
            // A client must die in the middle of a merge, and its recoverer too.
            Mutant::UnlinkUnlogged => Self { bend: churn, ..lined.with_crashes() },
            // One thread of a compute server must free a node while another thread takes its span.
            Mutant::FreedTwice => Self {
                bend: |scenario| {
                    churn(scenario);
                    (scenario.computes, scenario.threads) = (2, 3);
                },
                ..lined
            },
            // One thread must create a node while another thread gives back unused memory, because some
            // client finds no memory. So the loaded entries leave room for a few leaves only.
            Mutant::SpanBackEarly => Self {
                bend: |scenario| {
                    (scenario.shape, scenario.operations) = (Shape::LongEntries, 8);
                    (scenario.loaded, scenario.hot, scenario.span_places) = (68, 24, 4);
                    (scenario.sparse, scenario.thinned, scenario.unposted) = (false, 0, false);
                    (scenario.first, scenario.then) = (Mix::GROW, Mix::GROW);
                    (scenario.short, scenario.catalog, scenario.servers) = (true, false, 1);
                    (scenario.computes, scenario.threads) = (3, 2);
                },
                ..lined.with_crashes()
            },
            // A client must insert into a tree of several empty leaves between two reads of that tree.
            Mutant::LoadClears => Self {
                bend: |scenario| (scenario.catalog, scenario.operations) = (true, 8),
                ..lined.with_crashes()
            },
            // Two threads of one compute server must recover the same member, and another compute server must
            // get its id in between.
            Mutant::StaleVerdict => Self {
                bend: |scenario| (scenario.catalog, scenario.condemned, scenario.servers) = (true, true, 2),
                ..lined.with_crashes()
            },
            // A host must be lost, or a client die between the two halves of a list.
            Mutant::LeaseUnchecked
            | Mutant::LeaseCheckedOnce
            | Mutant::ClosedUsed
            | Mutant::CopiesNotCompared => Self::everywhere().with_replicas().without_catalog(),
            // The client must die in the middle of a split or of a growth, or its host must.
            Mutant::LostLanesBelieved | Mutant::RecordsNotCopied => Self {
                bend: |scenario| {
                    churn(scenario);
                    super::without_catalog(scenario);
                },
                ..Self::everywhere().with_replicas()
            },
            // A block must be freed and its place used again while a reader has a reference to it.
            Mutant::BlockUnchecked => Self { bend: blocks, ..hashed.with_values() },
            Mutant::BlockFreedFirst | Mutant::BlockNotFreed => hashed.with_values(),
            Mutant::BlockElsewhere => Self { bend: |scenario| scenario.servers = 2, ..hashed.with_values() },
            // A client must die while it puts or removes a long value.
            Mutant::BlockUnlogged | Mutant::ReferenceForgotten => hashed.with_values().with_crashes(),
            // And others must replace that value meanwhile.
            Mutant::BlockLinkedLate | Mutant::BlocksAfterSweep | Mutant::BlockFreedAgain => {
                Self { bend: blocks, ..hashed.with_values().with_crashes() }
            }
            Mutant::DropFreesOthers => Self { bend: drops, ..hashed.with_values().with_crashes() },
            _ => lined,
        }
    }
}

/// Lets the threads of one compute server change few keys.
fn crowd(scenario: &mut Scenario) {
    (scenario.computes, scenario.threads, scenario.operations) = (2, 4, 8);
    (scenario.loaded, scenario.hot) = (8, 3);
    (scenario.first, scenario.then) = (Mix::EVEN, Mix::EVEN);
}

/// Lets all operations begin without futures where they can.
fn at_once(scenario: &mut Scenario) {
    scenario.inline = Inline::Everybody;
    scenario.techniques = Techniques { cache: true, ..Techniques::OURS };
}

/// Lets the threads of one compute server read few keys while others change them.
fn gather(scenario: &mut Scenario) {
    crowd(scenario);
    (scenario.techniques.shared_reads, scenario.gets_at_once) = (true, 4);
    scenario.inline = Inline::Nobody;
    (scenario.first, scenario.then) = (Mix::READ_AND_GROW, Mix::READ_AND_GROW);
}

/// Lets clients insert and remove keys that are near to each other and keys that are not.
fn repack(scenario: &mut Scenario) {
    (scenario.shape, scenario.operations) = (Shape::Pairs, 12);
    (scenario.loaded, scenario.hot) = (12, 22);
    (scenario.first, scenario.then) = (Mix::GROW, Mix::EVEN);
}

/// Lets clients drop trees that others use.
fn drops(scenario: &mut Scenario) {
    (scenario.shape, scenario.catalog, scenario.loading) = (Shape::Four, true, false);
    (scenario.computes, scenario.threads, scenario.short) = (3, 2, false);
    (scenario.loaded, scenario.operations) = (5, 10);
}

/// Lets clients replace few long values all the time, in spans of one place.
fn blocks(scenario: &mut Scenario) {
    (scenario.gets_at_once, scenario.inline) = (1, Inline::Nobody);
    (scenario.shape, scenario.operations) = (Shape::Pairs, 12);
    (scenario.loaded, scenario.hot, scenario.span_places) = (4, 3, 1);
    (scenario.sparse, scenario.thinned, scenario.unposted) = (false, 0, false);
    (scenario.first, scenario.then, scenario.opposed) = (Mix::UPDATE, Mix::EVEN, true);
}

/// Makes leaves split and merge all the time, in spans of one place. Gets take little of that time.
fn churn(scenario: &mut Scenario) {
    (scenario.gets_at_once, scenario.inline) = (1, Inline::Nobody);
    (scenario.shape, scenario.operations) = (Shape::Four, 12);
    (scenario.loaded, scenario.hot, scenario.span_places) = (8, 12, 1);
    (scenario.sparse, scenario.thinned, scenario.unposted) = (false, 0, false);
    (scenario.first, scenario.then, scenario.opposed) = (Mix::GROW, Mix::SHRINK, true);
}
