//! Broken rules of reads and changes of a tree, and of their records (`crate::seam`).

use super::TreeState;
use super::combine::BatchStep;
use super::drop::Neighbour;
use super::get::Seen;
use super::merge::{MERGE, MergePart, Merged};
use super::range::{Direction, Scan, Took};
use super::separator::Separator;
use super::values::{BlockPart, MadeBlock};
use super::write::{LoggedPart, SplitPart};
use crate::cause::Cause;
use crate::error::Error;
use crate::lock::job::JobResult;
use crate::lock::{Lanes, Locked};
use crate::mutant::{Mutant, planted};
use crate::node::draft::NodePlace;
use crate::node::window::Unfit;
use crate::node::{Header, Lookup, Node, Position, SplitOff, Window};
use crate::op::Op;
use crate::redo::RedoSlot;
use crate::root::RootWord;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Space, WorkList};
use std::ops::ControlFlow;

pub(super) fn look_up(leaf: &Node<'_>, key: &[u8], value: &mut Vec<u8>) -> Option<Result<Seen, Cause>> {
    let position = leaf.position(key);
    if position == Position::Right && planted(Mutant::NoRightStep) {
        return Some(Ok(Seen::Absent));
    }
    if position == Position::Inside || !planted(Mutant::FencesIgnored) {
        return None;
    }
    Some(Ok(match leaf.find(key) {
        Lookup::Found(slot) => {
            leaf.value_into(slot, value);
            Seen::Found
        }
        _ => Seen::Absent,
    }))
}

pub(super) fn is_elsewhere(scan: &Scan, leaf: &Node<'_>) -> Option<Option<Took>> {
    let gap =
        !scan.over && scan.direction == Direction::Forward && leaf.position(&scan.cursor) == Position::Left;
    (gap && planted(Mutant::ScanSkipsGap)).then_some(None)
}

/// Ends a scan at a leaf that has split.
pub(super) fn take(scan: &mut Scan, leaf: &Node<'_>) -> Option<Result<Took, Cause>> {
    let split = !scan.over && leaf.position(&scan.cursor) == Position::Right;
    (split && planted(Mutant::ScanStopsRight)).then(|| {
        scan.over = true;
        Ok(Took::All)
    })
}

pub(super) fn reverse() -> Option<()> {
    planted(Mutant::ScanNotReversed).then_some(())
}

/// Posts the separator of a split before the sibling is written.
pub(super) async fn put_by_split<E: Endpoint>(
    op: &Op<'_, E>,
    tree: &TreeState,
    split: &SplitOff<'_>,
    place: NodePlace,
) -> Option<Result<(), Error>> {
    if planted(Mutant::ParentBeforeSibling) {
        op.post_separator(tree, 1, split.separator.clone(), place.address).await;
    }
    None
}

pub(super) fn is_linked() -> Option<Result<bool, Error>> {
    (planted(Mutant::SeparatorUnverified) || planted(Mutant::ParentBeforeSibling)).then_some(Ok(true))
}

/// Gives the old root's lane back before the growth.
pub(super) async fn grow_under<E: Endpoint>(
    op: &Op<'_, E>,
    tree: &TreeState,
    locked: Locked,
    root: RootWord,
    separator: Separator,
    place: NodePlace,
) -> ControlFlow<Result<bool, Error>, (Locked, Separator)> {
    if !planted(Mutant::GrowthWithoutLane) {
        return ControlFlow::Continue((locked, separator));
    }
    ControlFlow::Break(match op.release(locked.done(op)).await {
        Ok(()) => op.write_root(tree, root, separator, place).await,
        Err(error) => Err(error.into()),
    })
}

/// Writes the root word of a growth whatever it holds.
pub(super) async fn swap_root<E: Endpoint>(
    op: &Op<'_, E>,
    tree: &TreeState,
    record: &[WorkList],
    [old, new]: [RootWord; 2],
) -> Option<Result<bool, FabricError>> {
    // A load also raises the root, but it has a record.
    let grows = record.is_empty() && new.level == old.level + 1;
    if !grows || !planted(Mutant::TornRoot) {
        return None;
    }
    let mut list = op.endpoint().list(tree.info.root_word.server());
    list.write(Space::Host, tree.info.root_word.offset(), &new.to_bits().to_le_bytes());
    Some(op.execute(list).await.map(|list| {
        op.endpoint().recycle(list);
        true
    }))
}

/// Writes the first root of a tree whatever the root word holds.
pub(super) async fn plant_root<E: Endpoint>(
    op: &Op<'_, E>,
    tree: &TreeState,
    root: u64,
) -> Option<Result<bool, FabricError>> {
    if !planted(Mutant::RootOverRoot) {
        return None;
    }
    let mut list = op.endpoint().list(tree.info.root_word.server());
    list.write(Space::Host, tree.info.root_word.offset(), &root.to_le_bytes());
    Some(op.execute(list).await.map(|list| {
        op.endpoint().recycle(list);
        true
    }))
}

/// Lets changes join after the list of writes is made.
pub(super) fn batch_steps() -> Option<&'static [BatchStep]> {
    planted(Mutant::JoinsTooLate).then_some(&[BatchStep::MakeList, BatchStep::Join])
}

/// Gives each operation the result of the next one.
pub(super) fn pair_results(mut results: Vec<JobResult>) -> ControlFlow<Vec<JobResult>, Vec<JobResult>> {
    if planted(Mutant::ResultOfAnother) && !results.is_empty() {
        results.rotate_left(1);
        return ControlFlow::Break(results);
    }
    ControlFlow::Continue(results)
}

pub(super) fn give_back_root() -> Option<()> {
    planted(Mutant::LostGrowthLeaks).then_some(())
}

/// Writes a merge, but reuses its place too early, or releases the lanes before the free mark.
pub(super) async fn write_merge<E: Endpoint>(
    op: &Op<'_, E>,
    tree: &TreeState,
    lanes: Lanes,
    nodes: [GlobalAddress; 3],
    merged: &Merged<'_>,
) -> ControlFlow<Result<(), Error>, Lanes> {
    if planted(Mutant::ReuseBeforeUnlink) {
        let claim = op.claim_merged(tree, nodes, merged);
        op.free_merged(tree, nodes, merged, claim);
        return ControlFlow::Break(op.post_merge(tree, lanes, nodes, merged).await);
    }
    if !planted(Mutant::LanesBeforeFreeMark) {
        return ControlFlow::Continue(lanes);
    }
    let written = async {
        let claim = op.claim_merged(tree, nodes, merged);
        op.post_merge(tree, lanes, nodes, merged).await?;
        for list in
            op.merge_lists(tree, &[MergePart::FreeMark, MergePart::Hint], nodes, merged, &[None, None])
        {
            op.endpoint().recycle(op.execute(list).await?);
        }
        op.free_merged(tree, nodes, merged, claim);
        Ok(())
    };
    ControlFlow::Break(written.await)
}

pub(super) fn merge_parts() -> Option<&'static [MergePart]> {
    use MergePart::{Cleared, FreeMark, Hint, Left, Parent, ParentCleared, ParentRecord, Record};
    const UNMARKED: [MergePart; 6] = [Record, Left, ParentRecord, Parent, ParentCleared, Cleared];
    const HINT_FIRST: [MergePart; MERGE.len()] =
        [Hint, Record, Left, ParentRecord, Parent, ParentCleared, FreeMark, Cleared];
    if planted(Mutant::NoFreeMark) || planted(Mutant::LanesBeforeFreeMark) {
        return Some(&UNMARKED);
    }
    planted(Mutant::HintBeforeMark).then_some(&HINT_FIRST)
}

pub(super) fn logged_parts() -> Option<&'static [LoggedPart]> {
    use LoggedPart::{Cleared, Data, Record};
    if planted(Mutant::RecordAfterData) {
        return Some(&[Data, Record, Cleared]);
    }
    planted(Mutant::RecordClearedEarly).then_some(&[Record, Cleared, Data, Cleared])
}

pub(super) fn split_parts() -> Option<&'static [SplitPart]> {
    use SplitPart::{Cleared, Linked, Node, Record, Sibling};
    planted(Mutant::HeaderBeforeSibling).then_some(&[Record, Node, Sibling, Linked, Cleared])
}

pub(super) fn push_hint() -> Option<()> {
    planted(Mutant::HintForgotten).then_some(())
}

/// Waits for a redo slot without asking whether the tree is still there.
pub(super) async fn wait_for_slot<E: Endpoint>(op: &Op<'_, E>) -> Option<Result<(), Error>> {
    if planted(Mutant::LoadWaits) { Some(op.retry(Cause::RedoSlots).await) } else { None }
}

/// Clears a tree that was empty a moment before.
pub(super) async fn collapse<E: Endpoint>(op: &Op<'_, E>, tree: &TreeState) -> Option<Result<(), Error>> {
    if !planted(Mutant::LoadClears) {
        return None;
    }
    let cleared = async {
        if op.is_empty(tree).await? {
            op.worker.clear(tree).await?;
        }
        Ok(())
    };
    cleared.await.err().map(Err)
}

/// Replaces the root word without the root's lane.
pub(super) async fn end_tree<E: Endpoint>(
    op: &Op<'_, E>,
    tree: &TreeState,
    slot: &Option<RedoSlot>,
) -> Option<Result<RootWord, Error>> {
    if !planted(Mutant::DropWithoutLane) {
        return None;
    }
    let ended = async {
        loop {
            tree.forget_root();
            let root = op.root(tree).await?;
            if op.swap_out(tree, root, slot).await.map_err(Error::after_post)? {
                return Ok(root);
            }
            op.retry(Cause::RootMoved).await?;
        }
    };
    Some(ended.await)
}

/// Answers a get from lines that are not good.
pub(super) fn answer(window: &Result<Window<'_>, Unfit>) -> Option<Option<bool>> {
    (window.is_err() && planted(Mutant::UnfitMeansAbsent)).then_some(Some(false))
}

pub(super) fn took_lane() -> Option<bool> {
    planted(Mutant::RefusedLaneUsed).then_some(true)
}

pub(super) fn waits_for_write() -> Option<bool> {
    planted(Mutant::DoneBeforeWrite).then_some(false)
}

pub(super) fn is_over() -> Option<bool> {
    planted(Mutant::BegunAgain).then_some(false)
}

/// Keeps the local lock.
pub(super) fn lane_refused() -> Option<()> {
    planted(Mutant::ObstacleKeepsLane).then_some(())
}

pub(super) fn right_to_left() -> Option<()> {
    planted(Mutant::DropLeftFirst).then_some(())
}

pub(super) fn gone_neighbour() -> Option<Neighbour> {
    planted(Mutant::FreedAsMerged).then_some(Neighbour::MergedAway)
}

pub(crate) fn clear() -> Option<()> {
    planted(Mutant::RecordNotCleared).then_some(())
}

pub(crate) fn after_post(source: &FabricError) -> Option<Error> {
    planted(Mutant::OutcomeClaimed).then(|| source.clone().into())
}

/// The parts of a list that replaces a reference, in a wrong order or without some of them.
pub(super) fn block_parts() -> Option<&'static [BlockPart]> {
    use BlockPart::{Cleared, Entry, Freed, Linked, Record};
    if planted(Mutant::BlockFreedFirst) {
        return Some(&[Record, Freed, Entry, Linked, Cleared]);
    }
    planted(Mutant::BlockUnlogged).then_some(&[Entry, Linked, Freed])
}

/// Puts a block on any volume.
pub(super) fn is_beside() -> Option<bool> {
    planted(Mutant::BlockElsewhere).then_some(true)
}

/// Links a block only when the lane of its entry is released.
pub(super) fn push_links() -> Option<()> {
    planted(Mutant::BlockLinkedLate).then_some(())
}

/// Links the block now.
pub(super) async fn end_made<E: Endpoint>(
    op: &Op<'_, E>,
    made: &MadeBlock,
    done: bool,
) -> Option<Result<(), Error>> {
    if !(done && made.armed && planted(Mutant::BlockLinkedLate)) {
        return None;
    }
    let mut list = op.endpoint().list(made.place.address.server());
    list.write(Space::Host, made.place.address.offset(), &made.line);
    let linked = op.execute(list).await;
    op.worker.compute.alloc.linked(made.class, made.place.address);
    Some(linked.map(drop).map_err(Error::from))
}

/// Leaves a block that nothing refers to as it is.
pub(super) fn push_free() -> Option<()> {
    planted(Mutant::BlockNotFreed).then_some(())
}

/// Frees whatever the places of a dropped tree's blocks hold.
pub(super) fn is_that_block(header: &Header) -> Option<bool> {
    (planted(Mutant::DropFreesOthers) && !header.flags.free).then_some(true)
}
