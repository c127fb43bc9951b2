//! Clears the spans of a dead member, and finishes its drops.
//!
//! A client makes nodes only in spans that it owns. It keeps a span until every node that it began there is
//! part of a tree or free. So the nodes that a dead client made in vain lie in its own spans, pending and
//! with its id. Marked free, such a node belongs to its span again. The span has no owner once the dead
//! client is retired.
//!
//! A tree that the dead client dropped may have nodes anywhere. They are reached from the node that the
//! record names, which is freed last (`Worker::free_subtree`).

use super::Recoverer;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::mark::mark_free;
use crate::node::{Header, LINE};
use crate::op::Op;
use sherman_fabric::control::Span;
use sherman_fabric::{Call, ComputeId, Endpoint, Peer, Space, WorkList, calls};
use std::time::Duration;

impl<E: Endpoint> Recoverer<'_, E> {
    /// Marks the nodes that `dead` made in vain as free.
    pub(super) async fn clear_spans(&mut self, dead: ComputeId) -> Result<(), Error> {
        seam!(recovery::free_made());
        for server in 0..self.op.endpoint().servers() {
            let mut from = 0;
            while let Some(next) = self.clear_page(dead, server, from).await? {
                from = next;
            }
        }
        Ok(())
    }

    /// Returns a page of the spans that `dead` owns on a server, from the offset `from` on.
    pub(super) async fn spans_of(
        &mut self,
        dead: ComputeId,
        server: u16,
        from: u64,
    ) -> Result<Vec<Span>, Error> {
        self.expect_alive()?;
        let answer = self.op.call(Peer::Volume(server), calls::SpansOf { client: dead, from }).await;
        let Some(spans) = self.unless_lost(server, answer)? else { return Ok(Vec::new()) };
        let is_sound = |span: &Span| {
            let node = u64::from(span.class.node_bytes);
            let memory = self.op.worker.compute.is_memory(server, span.offset, span.bytes);
            memory && span.offset >= from && span.bytes > 0 && node > 0 && span.bytes.is_multiple_of(node)
        };
        if spans.iter().all(is_sound) {
            return Ok(spans);
        }
        Err(calls::SpansOf::UNEXPECTED.into())
    }

    /// Marks the nodes that `dead` made in vain as free, in one page of its spans. Returns where the next
    /// page begins, if there is one.
    async fn clear_page(&mut self, dead: ComputeId, server: u16, from: u64) -> Result<Option<u64>, Error> {
        let spans = self.spans_of(dead, server, from).await?;
        let Some(last) = spans.last() else { return Ok(None) };
        let next = last.offset + last.bytes;
        let mut places: Vec<(u64, u32)> = Vec::new();
        for span in &spans {
            let offsets = (span.offset..span.offset + span.bytes).step_by(span.class.node_bytes as usize);
            places.extend(offsets.map(|offset| (offset, LINE as u32)));
        }
        let lines = self.read_all(server, Space::Host, &places).await?;
        let (mut marked, mut lists): (u64, Vec<WorkList>) = (0, Vec::new());
        let most = self.op.endpoint().caps().max_verbs.max(1) as usize;
        for ((offset, _), mut line) in places.into_iter().zip(lines) {
            let made = Header::decode(&line)
                .is_some_and(|header| header.flags.pending && !header.flags.free && header.owner == dead);
            if !made {
                continue;
            }
            // The header line suffices. The lines of a pending leaf are detached if its place held a node
            // before. Otherwise they are attached, but no pointer leads there (I49).
            let _ = mark_free(&mut line, dead);
            if lists.last().is_none_or(|list| list.len() >= most) {
                lists.push(self.op.endpoint().list(server));
            }
            if let Some(list) = lists.last_mut() {
                list.write(Space::Host, offset, &line);
            }
            marked += 1;
        }
        let outcome = self.op.execute_all(lists).await;
        let Some(lists) = self.unless_lost(server, outcome)? else { return Ok(None) };
        lists.into_iter().for_each(|list| self.op.endpoint().recycle(list));
        if let Some(patient) = self.dead.get_mut(&dead) {
            patient.report.spans += spans.len() as u64;
            patient.report.places += marked;
        }
        Ok(Some(next))
    }

    /// Frees the remaining nodes of trees that `dead` dropped, and clears the records of these drops.
    pub(super) async fn finish_drops(&mut self, dead: ComputeId) -> Result<(), Error> {
        let drops =
            self.dead.get_mut(&dead).map(|patient| std::mem::take(&mut patient.drops)).unwrap_or_default();
        // Long enough to suspect the client that it waits for, but no longer.
        let patience = Duration::from_nanos(self.op.worker.compute.geometry().lease_nanos / 2);
        let worker = self.op.worker;
        let op = || Op::to_recover(worker, patience);
        for (tree, found) in drops {
            let root = (found.record.node, found.record.level);
            if self.lost.contains(&root.0.server()) {
                continue;
            }
            match worker.free_subtree(&tree, root, &op, &mut 0).await {
                // It waits for another member that may be dead. That member comes next, and then this one
                // again.
                Err(Error::Timeout { .. }) => return Err(self.op.timed_out(Cause::NodePending)),
                // The node that led on is lost with its server.
                Err(Error::ServerLost { .. } | Error::VolumeLost { .. }) => {}
                outcome => outcome?,
            }
            self.clear(&found).await?;
        }
        Ok(())
    }
}
