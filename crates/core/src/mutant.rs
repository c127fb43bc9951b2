//! Mutants: bugs planted on purpose, to show that tests find them (`docs/TESTING.md`, "Mutants").
//!
//! Each mutant breaks one rule of the protocol. The seam module of the rule's layer has the broken rule
//! (`crate::seam`). This module and the seam modules exist only with the cargo feature `mutants`. A thread
//! [plants](plant) at most one bug at a time, only for itself. So two explorers can look for two bugs at
//! once.
//!
//! Invariants: a mutant breaks one rule, not two. Only this module and the seam modules exist for mutants.

use std::cell::Cell;
use std::marker::PhantomData;

/// Makes the enum, its names and its descriptions from one table.
macro_rules! mutants {
    ($($variant:ident $name:literal $what:literal)*) => {
        /// A rule that can be broken on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Mutant {
            $(#[doc = $what] $variant,)*
        }

        impl Mutant {
            /// All mutants.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What the mutant does wrong.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$variant => $what,)*
                }
            }
        }
    };
}

mutants! {
    FrontRearOnly "front-rear-only" "a reader compares the stamps of the first and the last line alone"
    NarrowStamp "narrow-stamp" "stamps are compared by their last four bits"
    FloorNotRaised "floor-not-raised" "a node that is written whole keeps its floor"
    NoRestamp "no-restamp" "an entry write leaves the stamp of its line as it was"
    MovedUpdate "moved-update" "an update moves its entry to another line"
    TornEntryAbsent "torn-entry-absent" "a key that may be in a torn entry is reported as absent"
    EntryVersionsIgnored "entry-versions-ignored" "an entry of several lines is taken as it was read"
    GhostsExist "ghosts-exist" "entries outside the fences exist"
    PendingIgnored "pending-ignored" "readers ignore the pending mark"
    FreeIgnored "free-ignored" "readers ignore the free mark"
    StampNotContinued "stamp-not-continued" "a place that is used again begins at the first version"
    WindowStampsIgnored "window-stamps-ignored" "a reader of lines does not compare their stamps"
    WindowFencesIgnored "window-fences-ignored" "a reader of lines does not compare the key with their fences"
    DetachedIgnored "detached-ignored" "a reader of lines accepts those of a leaf that is not in the tree"
    LinesNotDetached "lines-not-detached" "a leaf that is pending or free has attached lines"
    SplitKeepsVersion "split-keeps-version" "the left half of a split leaf is rewritten at its old version"
    RelayoutKeepsVersion "relayout-keeps-version" "a leaf that gets a new layout keeps its version"
    DistanceTruncated "distance-truncated" "a dense leaf takes keys that are too far from its low fence"
    FarFenceOpen "far-fence-open" "lines of a dense leaf show a high fence that is too far away as open"
    JoinsTooLate "joins-too-late" "a change joins a batch whose list of writes is made"
    ResultOfAnother "result-of-another" "two operations of a batch get each other's results"
    LeavesTaken "leaves-taken" "an operation whose deadline passes gives up while a holder executes its \
                                change"
    AdoptsEarlierRead "adopts-earlier-read" "a get uses a READ that was posted before the get began"
    OtherLines "other-lines" "a get uses a READ of other lines of its compute server"
    WaitersLeft "waiters-left" "an operation that gives up its READ does not tell those that share it"
    LinkRewritesLines "link-rewrites-lines" "a recoverer that links a leaf also writes lines that are \
                                             attached"
    UnfitMeansAbsent "unfit-means-absent" "a get without a future reports a key as absent if its lines are \
                                           not good"
    RefusedLaneUsed "refused-lane-used" "an insert without a future goes on although the lane is taken"
    ObstacleKeepsLane "obstacle-keeps-lane" "an insert that meets a taken lane keeps the local lock"
    DoneBeforeWrite "done-before-write" "an insert without a future does not wait for its WRITE"
    BegunAgain "begun-again" "an insert whose WRITE it had to wait for begins again"

    ChildServerLost "child-server-lost" "a cached copy has its children's offsets without their servers"
    StaleCopiesKept "stale-copies-kept" "a lookup that was led to a wrong node keeps the copies that led \
                                         there"
    LearntMisplaced "learnt-misplaced" "a cached copy puts a separator that it learns before its left \
                                        neighbour"

    FencesIgnored "fences-ignored" "a lookup does not compare the key with the fences of the leaf that it \
                                    reached"
    NoRightStep "no-right-step" "a lookup does not follow the sibling of a leaf that has split"
    ScanStopsRight "scan-stops-right" "a scan ends at a leaf that has split instead of following its sibling"
    ScanSkipsGap "scan-skips-gap" "a scan takes a leaf that begins beyond its cursor"
    ScanNotReversed "scan-not-reversed" "a scan backwards delivers the entries of each leaf ascending"

    ReleaseBeforeData "release-before-data" "a lane is released before what it protects is written"
    HandoverBeforeCompletion "handover-before-completion" "a lane is handed over before the completion of \
                                                           the last write"
    AnothersLane "anothers-lane" "a client that finds a lane taken sets it free"
    StaleImage "stale-image" "the image read along with a CAS that failed is used under the lane"
    LostWakeUp "lost-wake-up" "the holder of a local lock does not see a waiter in its queue"

    ParentBeforeSibling "parent-before-sibling" "a separator is posted before the sibling is written"
    SeparatorUnverified "separator-unverified" "a separator is posted without looking at its child under the \
                                                parent's lane"
    TornRoot "torn-root" "a growth reads the root word and writes it in two steps"
    GrowthWithoutLane "growth-without-lane" "a growth gives the old root's lane back before it swaps the \
                                             root word"
    LostGrowthLeaks "lost-growth-leaks" "the place of a root that came too late is not given back"

    MergeWithoutParentLane "merge-without-parent-lane" "a merge does not take the parent's lane"
    MergeWithoutLeftLane "merge-without-left-lane" "a merge does not take the left node's lane"
    MergeWithoutRightLane "merge-without-right-lane" "a merge does not take the right node's lane"
    LanesBeforeFreeMark "lanes-before-free-mark" "a merge releases its lanes before the free mark is written"
    NoFreeMark "no-free-mark" "a merge does not mark the node it frees"
    ReuseBeforeUnlink "reuse-before-unlink" "a place is given back before its parent drops the pointer to it"

    HeaderBeforeSibling "header-before-sibling" "a split writes the node before its sibling"
    RecordNotCleared "record-not-cleared" "redo records stay when their changes are done"
    RecordAfterData "record-after-data" "a redo record is written after the data that it describes"
    RecordClearedEarly "record-cleared-early" "a redo record is cleared before the data that it describes is \
                                               written"
    OutcomeClaimed "outcome-claimed" "a change that may have been posted is reported as failed"

    ReplayWithoutFencing "replay-without-fencing" "records are replayed before their owner is fenced"
    StallIgnored "stall-ignored" "a live client that cannot be fenced is recovered nevertheless"
    TakeoverWithoutFencing "takeover-without-fencing" "lanes and places are taken from a client that is not \
                                                       fenced yet"
    SweepBeforeReplay "sweep-before-replay" "lanes are swept before the records are replayed"
    SweepsOthers "sweeps-others" "recovery sweeps every lane that is taken, also lanes of live members"
    IdReissuedEarly "id-reissued-early" "an id is free again before its lanes are swept"
    RecoversBeside "recovers-beside" "a recoverer does not wait until the previous recoverer is fenced"
    SplitBySibling "split-by-sibling" "recovery tells from the node's sibling whether a split happened"
    MergeNotFinished "merge-not-finished" "a merge that was under way is left as it is"
    GrowthBelieved "growth-believed" "a growth that was under way is taken to have happened"
    PendingKept "pending-kept" "nodes that a dead client made and never linked stay pending"
    HintForgotten "hint-forgotten" "a node is freed without setting the hint of its span"
    HintBeforeMark "hint-before-mark" "the hint of a span is set before the node is marked free"
    FreeMarkedAgain "free-marked-again" "recovery marks a node free that its dead client had already freed"
    UnlinkUnlogged "unlink-unlogged" "a recoverer changes the parent of an unfinished merge without a record"
    FreedTwice "freed-twice" "a place is added to the free places although the scan of its new span may have \
                              found it"
    SpanBackEarly "span-back-early" "a span goes back while a node is being made in it"
    ActiveUnknown "active-unknown" "a client takes lanes and spans before control knows that it is active"
    LoadWaits "load-waits" "a load waits for a redo slot without a check that its tree still exists"
    DropLeftFirst "drop-left-first" "of two nodes that one separator leads to, a drop frees the left one \
                                     first"
    FreedAsMerged "freed-as-merged" "a drop that is repeated takes nodes that it has freed for merged ones"
    EndedNotReplayed "ended-not-replayed" "records about a dropped tree are not replayed"
    FenceLeft "fence-left" "an id is freed though volumes still have its fence"
    TerminatedRenews "terminated-renews" "a compute server whose identity has ended goes on renewing its \
                                          lease"
    PrivateLoss "private-loss" "a client skips a memory server that only this client cannot reach, and \
                                continues"
    LeavesTerminated "leaves-terminated" "a compute server that cannot reach a memory server leaves as if it \
                                          owned nothing there"
    RecoversInline "recovers-inline" "the keeper recovers others itself and renews its lease in between"
    StaleVerdict "stale-verdict" "a recovery uses a verdict that is older than another recovery of the same \
                                  member"
    DropWithoutLane "drop-without-lane" "a drop replaces the root word without holding the root's lane"
    RootOverRoot "root-over-root" "a client gives a new tree its first leaf whatever the root word holds"
    LoadClears "load-clears" "a bulk load clears the leaves of a tree that it found empty a moment before"
    ExpiredUnnoticed "expired-unnoticed" "no client recovers members that others wait for or whose lease \
                                          expired"

    LeaseUnchecked "lease-unchecked" "a reader does not look at its lease"
    ClosedUsed "closed-used" "operations use a volume that is closed"
    CopiesNotCompared "copies-not-compared" "recovery does not compare the copies of what a dead client left"
    LeaseCheckedOnce "lease-checked-once" "a client looks at its lease once, not after each operation began"
    LostLanesBelieved "lost-lanes-believed" "recovery judges a split by the lanes of a promoted copy"
    RecordsNotCopied "records-not-copied" "recovery does not give the primary the records that it lacks"
    RootsNotCompared "roots-not-compared" "recovery does not compare the root words of the copies"
    AcknowledgedClosed "acknowledged-closed" "a change is acknowledged while its volume is closed"
    OlderNotAwaited "older-not-awaited" "recovery frees a dropped tree while older identities can change it"
    BlockUnchecked "block-unchecked" "a reader takes whatever a place of blocks holds for the value"
    BlockFreedFirst "block-freed-first" "a replaced block is freed before its entry changes"
    BlockUnlogged "block-unlogged" "no record names a block that is being replaced"
    BlockLinkedLate "block-linked-late" "a block is linked only after the lane of its entry is released"
    BlockElsewhere "block-elsewhere" "a block may lie on another volume than the leaf it is made for"
    BlockNotFreed "block-not-freed" "a replaced block is not freed"
    BlockFreedAgain "block-freed-again" "a recoverer frees what the place of a replaced block holds by now"
    DropFreesOthers "drop-frees-others" "a drop that begins again frees what its blocks' places hold by now"
    BlocksAfterSweep "blocks-after-sweep" "a dead client's lanes are given back before its blocks are settled"
    ReferenceForgotten "reference-forgotten" "a recoverer frees blocks that entries refer to"
}

impl Mutant {
    /// The mutant with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
    }
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

thread_local! {
    static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Restores this thread's previous mutant when dropped.
#[derive(Debug)]
#[must_use = "the bug is gone when the guard is dropped"]
pub struct Guard {
    before: Option<Mutant>,
    /// Keeps the guard on this thread: only the thread that planted the bug may remove it.
    here: PhantomData<*const ()>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        PLANTED.set(self.before);
    }
}

/// Plants a bug, or none, for this thread, until the guard is dropped.
pub fn plant(mutant: Option<Mutant>) -> Guard {
    Guard { before: PLANTED.replace(mutant), here: PhantomData }
}

/// Whether this thread has this bug planted.
#[inline(always)]
pub(crate) fn planted(mutant: Mutant) -> bool {
    PLANTED.get() == Some(mutant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_words_and_lead_back() {
        for &mutant in Mutant::ALL {
            assert_eq!(Mutant::from_name(mutant.name()), Some(mutant));
            assert!(
                mutant.name().chars().all(|letter| letter.is_ascii_lowercase() || letter == '-'),
                "{mutant}"
            );
            assert!(!mutant.what().ends_with('.') && mutant.what().len() < 110, "{mutant}");
        }
        assert_eq!(Mutant::from_name("none"), None);
    }

    #[test]
    fn a_bug_is_planted_for_one_thread_and_until_its_guard_goes() {
        let outer = plant(Some(Mutant::NoFreeMark));
        {
            let _inner = plant(None);
            assert!(!planted(Mutant::NoFreeMark));
        }
        assert!(planted(Mutant::NoFreeMark) && !planted(Mutant::TornRoot));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!planted(Mutant::NoFreeMark)));
        });
        drop(outer);
        assert!(!planted(Mutant::NoFreeMark));
    }
}
