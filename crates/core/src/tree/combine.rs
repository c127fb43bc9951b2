//! Changes under one lane, executed together by the holder of the lane.
//!
//! The holder applies the changes one after the other to the lines that it read under the lane. Then it
//! writes every changed line once, with the release in the same list, and hands each operation its result:
//!
//! ```text
//! [CAS lane, READ lines, READ lines, …] · [WRITE line, WRITE line, …, release]
//! ```
//! Changes of one key form a chain: each returns the value that the one before left, and only the last
//! reaches memory. All operations of a batch run at the same time, so any order of them is legal.
//!
//! **If the holder dies**, any subset of the line writes may have landed, and no operation of the batch was
//! acknowledged. That is legal, because each key changes in one line. There is one exception, which leaves
//! the batch: a key that the batch has removed is not inserted again, because it could land in another line.
//! If only that line landed, the key would exist twice.
//!
//! An operation that needs more than its lines (a split, another leaf) leaves the batch too. It goes back to
//! the head of the local queue and goes alone.

use super::TreeState;
use crate::error::Error;
use crate::lock::batch::{Gathered, Lines, TakenJob, give_back};
use crate::lock::job::{Job, JobFailure, JobResult};
use crate::lock::local::Turn;
use crate::node::hashed::window_bytes;
use crate::node::window::{ChangeRule, EntryChange};
use crate::node::{LINE, Shape, Window};
use crate::op::Op;
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Space, WorkList};

/// The lines of one leaf that a batch changes.
struct BatchLeaf {
    at: GlobalAddress,
    /// As large as the leaf. Only the lines that were read count.
    image: Vec<u8>,
    /// The numbers of changed lines.
    dirty: Vec<usize>,
}

/// What a batch did to one key.
struct Applied {
    result: JobResult,
    /// The leaf's number in the batch and the changed line, if anything changed.
    line: Option<(usize, usize)>,
}

/// A step between the READs and the WRITEs of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchStep {
    /// Changes whose lines were read join, and all changes are applied.
    Join,
    /// The list of WRITEs is made. From then on no change can join.
    MakeList,
}

/// The steps in order.
fn batch_steps() -> &'static [BatchStep] {
    seam!(tree::batch_steps());
    &[BatchStep::Join, BatchStep::MakeList]
}

/// Returns the results of the jobs, in the order of the jobs.
fn pair_results(results: Vec<JobResult>) -> Vec<JobResult> {
    seam!(let results = tree::pair_results(results));
    results
}

/// How many entries a remove leaves in the window of its key, and whether the leaf has no other lines.
fn left_by_remove(window: &Window<'_>) -> (usize, bool) {
    (window.len().saturating_sub(1), window.is_whole_leaf())
}

/// The changes of one batch so far.
struct BatchOf<'s> {
    shape: &'s Shape,
    leaves: Vec<BatchLeaf>,
    /// Keys that the batch removed.
    removed: Vec<Vec<u8>>,
}

impl BatchOf<'_> {
    /// Adds lines that were read under the lane.
    fn add(&mut self, lines: &Lines, bytes: &[u8], buffer: impl FnOnce() -> Vec<u8>) {
        let known = self.leaves.iter().position(|leaf| leaf.at == lines.leaf);
        let at = known.unwrap_or_else(|| {
            let mut image = buffer();
            image.clear();
            image.resize(self.shape.node_bytes(), 0);
            self.leaves.push(BatchLeaf { at: lines.leaf, image, dirty: Vec::new() });
            self.leaves.len() - 1
        });
        self.leaves[at].image[lines.range.clone()].copy_from_slice(bytes);
    }

    /// Applies a change to the lines. Returns `None` and changes nothing if the operation must go alone.
    fn apply(&mut self, leaf: GlobalAddress, key: &[u8], rule: ChangeRule<'_>) -> Option<Applied> {
        let at = self.leaves.iter().position(|known| known.at == leaf)?;
        let lines = window_bytes(self.shape, key);
        let window = Window::open(self.shape, &self.leaves[at].image[lines], key).ok()?;
        let mut old = Vec::new();
        let found = window.get_slot(key, &mut old);
        let there = found.is_some();
        let mut result = JobResult::new(there.then_some(old.as_slice()));
        let change = rule.decide(there.then_some(old.as_slice()));
        if change == EntryChange::Nothing {
            return Some(Applied { result, line: None });
        }
        if !there && self.is_removed(key) {
            return None;
        }
        let entry = window.change_found(found, key, change)?;
        let range = entry.range();
        if change == EntryChange::Remove {
            result.removed = Some(left_by_remove(&window));
            self.removed.push(key.to_vec());
        }
        let leaf = &mut self.leaves[at];
        leaf.image[range.clone()].copy_from_slice(entry.bytes());
        let line = range.start / LINE;
        if !leaf.dirty.contains(&line) {
            leaf.dirty.push(line);
        }
        Some(Applied { result, line: Some((at, line)) })
    }

    /// Adds the WRITEs of all changed lines.
    fn push(&self, list: &mut WorkList) {
        for leaf in &self.leaves {
            for &line in &leaf.dirty {
                let range = line * LINE..(line + 1) * LINE;
                list.write(Space::Host, leaf.at.offset() + range.start as u64, &leaf.image[range]);
            }
        }
    }

    /// Whether the batch has removed `key`.
    fn is_removed(&self, key: &[u8]) -> bool {
        self.removed.iter().any(|removed| removed == key)
    }

    /// The failure of a change, after the WRITEs of the batch failed.
    fn failure(&self, applied: &Applied, error: &FabricError, posted: bool) -> JobFailure {
        let line = applied.line.map(|(leaf, line)| {
            let mut bytes = [0; LINE];
            bytes.copy_from_slice(&self.leaves[leaf].image[line * LINE..(line + 1) * LINE]);
            (line * LINE, bytes)
        });
        JobFailure { error: error.clone(), posted, line }
    }
}

impl<'w, E: Endpoint> Op<'w, E> {
    /// Whether changes wait with jobs, and holders execute them.
    #[inline]
    pub(super) fn combines(&self) -> bool {
        let techniques = self.worker.compute.techniques();
        techniques.combining
            && techniques.hierarchical
            && techniques.combine
            && techniques.lock_read
            && self.worker.compute.caps().lock_read
    }

    /// Does the work of [`Op::change_lines`] where changes are combined. The cache names the leaf at `at`.
    #[inline]
    pub(super) async fn change_combined(
        &self,
        tree: &TreeState,
        at: GlobalAddress,
        key: &[u8],
        old: &mut Vec<u8>,
        rule: ChangeRule<'_>,
    ) -> Result<Option<bool>, Error> {
        let shape = &tree.shape.leaf;
        self.worker.compute.check_pointer(at, shape.node_bytes())?;
        if !self.may_take_lanes() {
            Box::pin(self.worker.activate()).await?;
        }
        let lane = self.lane_at(at);
        let own = Lines { leaf: at, range: window_bytes(shape, key) };
        let first = GlobalAddress::new(at.server(), at.offset() + own.range.start as u64);
        self.endpoint().hint(first, own.range.len());
        let grant = match self.worker.compute.local.try_acquire(lane) {
            Some(grant) => grant,
            None => {
                let Some(job) = Job::new(tree.info.id, at, key, rule) else { return Ok(None) };
                match Box::pin(self.queue_with_job(lane, job)).await? {
                    Turn::Granted(grant, _) => grant,
                    Turn::Done(result) => {
                        return Box::pin(self.take_result(tree, at, key, old, result)).await;
                    }
                    Turn::Abandoned => {
                        let client = self.endpoint().client();
                        return Err(Error::after_post(FabricError::Fenced { client }));
                    }
                }
            }
        };
        let lines_of = |job: &Job| Lines { leaf: job.leaf, range: window_bytes(shape, job.key()) };
        let gathered = self.lock_batch(lane, grant, tree.info.id, own, lines_of).await?;
        self.change_gathered(tree, at, gathered, key, old, rule).await
    }

    /// Makes the holder's own change and the changes that wait, in lines that are read under the lane. Gives
    /// the lane back.
    #[inline]
    pub(super) async fn change_gathered(
        &self,
        tree: &TreeState,
        at: GlobalAddress,
        gathered: Gathered<'w>,
        key: &[u8],
        old: &mut Vec<u8>,
        rule: ChangeRule<'_>,
    ) -> Result<Option<bool>, Error> {
        let shape = &tree.shape.leaf;
        let Ok(window) = Window::open(shape, gathered.locked.image(), key) else {
            Box::pin(self.release_batch(gathered)).await?;
            return Ok(None);
        };
        let found = window.get_slot(key, old);
        let there = found.is_some();
        let change = rule.decide(there.then_some(old.as_slice()));
        let left = (change == EntryChange::Remove).then(|| left_by_remove(&window));
        let entry = window.change_found(found, key, change);
        if let (EntryChange::Put(value), None) = (change, &entry) {
            let Gathered { locked, jobs, .. } = gathered;
            give_back(jobs.into_iter().map(|(job, _)| job));
            return Box::pin(self.insert_whole(tree, locked, key, value, old)).await;
        }
        if !gathered.jobs.is_empty() || self.has_waiters(&gathered) {
            return Box::pin(self.write_batch(tree, gathered, key, old, rule)).await;
        }
        let held = gathered.locked.done(self);
        let Some(entry) = entry else {
            self.release(held).await?;
            return Ok(Some(there));
        };
        self.write_entry(at, held, &entry, change).await?;
        if let Some((entries, all)) = left {
            Box::pin(self.tidy_lines(tree, key, entries, all)).await;
        }
        Ok(Some(there))
    }

    /// Gives jobs and the lane back without a change.
    async fn release_batch(&self, gathered: Gathered<'w>) -> Result<(), FabricError> {
        let Gathered { locked, jobs, .. } = gathered;
        give_back(jobs.into_iter().map(|(job, _)| job));
        self.release(locked.done(self)).await
    }

    /// Executes the holder's own change, which needs no split, and the jobs. Writes all changed lines and
    /// gives the lane back.
    async fn write_batch(
        &self,
        tree: &TreeState,
        mut gathered: Gathered<'w>,
        key: &[u8],
        old: &mut Vec<u8>,
        rule: ChangeRule<'_>,
    ) -> Result<Option<bool>, Error> {
        let shape = &tree.shape.leaf;
        let at = gathered.locked.address;
        let mut batch = BatchOf { shape, leaves: Vec::with_capacity(1), removed: Vec::new() };
        let own = Lines { leaf: at, range: window_bytes(shape, key) };
        batch.add(&own, gathered.locked.image(), || self.worker.buffer());
        let lines_of = |job: &Job| Lines { leaf: job.leaf, range: window_bytes(shape, job.key()) };
        for (job, read) in &gathered.jobs {
            let lines = lines_of(&job.job);
            batch.add(&lines, gathered.locked.bytes(*read), || self.worker.buffer());
        }
        let mine = batch.apply(at, key, rule);
        let mut list = self.endpoint().list(at.server());
        let (mut done, mut alone): (Vec<(TakenJob<'w>, Applied)>, Vec<TakenJob<'w>>) = Default::default();
        for step in batch_steps() {
            match step {
                BatchStep::Join => {
                    self.join_late(&mut gathered, tree.info.id, &own, lines_of);
                    for (job, _) in gathered.jobs.drain(..) {
                        match batch.apply(job.job.leaf, job.job.key(), job.job.rule()) {
                            Some(applied) => done.push((job, applied)),
                            None => alone.push(job),
                        }
                    }
                }
                BatchStep::MakeList => batch.push(&mut list),
            }
        }
        // Before the release is planned: these operations are waiters again.
        give_back(alone);
        self.count_combined(done.len());
        let written = self.write_back(gathered.locked.done(self), list).await;
        let failed = written.as_ref().err().map(|error| (error, !self.is_unposted()));
        let finish = |mut applied: Applied| {
            applied.result.failed =
                failed.map(|(error, posted)| Box::new(batch.failure(&applied, error, posted)));
            applied.result
        };
        let (jobs, applied): (Vec<_>, Vec<_>) = done.into_iter().unzip();
        let results = pair_results(applied.into_iter().map(finish).collect());
        for (job, result) in jobs.into_iter().zip(results) {
            job.ticket.finish(result);
        }
        let mine = mine.map(finish);
        for leaf in batch.leaves {
            self.worker.keep_buffer(leaf.image);
        }
        match mine {
            Some(result) => self.take_result(tree, at, key, old, result).await,
            None => Ok(None),
        }
    }

    /// Ends an operation whose change was executed in a batch, by this operation or by another one.
    async fn take_result(
        &self,
        tree: &TreeState,
        at: GlobalAddress,
        key: &[u8],
        old: &mut Vec<u8>,
        result: JobResult,
    ) -> Result<Option<bool>, Error> {
        old.clear();
        old.extend_from_slice(result.old());
        if let Some(failure) = result.failed {
            return Err(match failure.line {
                Some((from, bytes)) if failure.posted => {
                    if result.there && result.removed.is_none() {
                        self.note_replaces();
                    }
                    self.in_doubt(failure.error, at, from, &bytes)
                }
                // Nothing was written for this operation.
                _ => failure.error.into(),
            });
        }
        if let Some((entries, all)) = result.removed {
            self.tidy_lines(tree, key, entries, all).await;
        }
        Ok(Some(result.there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::node::draft::NodePlace;
    use crate::node::{Draft, TreeShape};
    use sherman_fabric::ComputeId;
    use sherman_fabric::control::TreeSpec;

    /// A batch with all lines of a leaf that holds the keys 0 to 9, each as its own value.
    fn batch(shape: &Shape) -> BatchOf<'_> {
        let at = GlobalAddress::new(1, 4096);
        let place = NodePlace { address: at, version: 7, owner: ComputeId(3), used: false };
        let entries: Vec<u8> = (0..10_u64).flat_map(|key| [key.to_be_bytes(); 2]).flatten().collect();
        let leaf =
            Draft::filled(shape, 0, &[0; 8], None, GlobalAddress::NULL, place, &entries, false).into_image();
        let mut batch = BatchOf { shape, leaves: Vec::new(), removed: Vec::new() };
        batch.add(&Lines { leaf: at, range: LINE..leaf.len() }, &leaf[LINE..], Vec::new);
        batch
    }

    #[test]
    fn changes_of_one_key_form_a_chain_that_never_moves_the_key() {
        let spec = TreeSpec {
            format: Format::LineHashed.number(),
            key_len: 8,
            value_len: 8,
            leaf_bytes: 1024,
            internal_bytes: 1024,
        };
        let shape = TreeShape::new(&spec, 1).expect("a legal shape").leaf;
        let mut batch = batch(&shape);
        let at = batch.leaves[0].at;
        let key = 4_u64.to_be_bytes();
        let mut apply = |rule| {
            let applied = batch.apply(at, &key, rule)?;
            let old = applied.result.there.then(|| applied.result.old().to_vec());
            Some((old, applied.line.map(|(_, line)| line)))
        };
        let (old, line) = apply(ChangeRule::Put(&[1; 8])).expect("a change");
        assert_eq!(old, Some(key.to_vec()));
        assert_eq!(apply(ChangeRule::PutIfAbsent(&[2; 8])), Some((Some(vec![1; 8]), None)));
        assert_eq!(apply(ChangeRule::Exchange(Some(&[1; 8]), Some(&[3; 8]))), Some((Some(vec![1; 8]), line)));
        assert_eq!(apply(ChangeRule::Remove), Some((Some(vec![3; 8]), line)));
        assert_eq!(apply(ChangeRule::Remove), Some((None, None)));
        // It could land in another line, and a death could leave both.
        assert_eq!(apply(ChangeRule::Put(&[5; 8])), None);
        assert_eq!(batch.leaves[0].dirty.len(), 1);
    }
}
