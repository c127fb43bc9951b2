//! Frees the nodes of a dropped tree only when no identity of an older epoch can change them (rule X7,
//! `docs/REPLICATION.md`).
//!
//! A drop frees nodes that any client may have changed. Lanes keep those clients away, and a recoverer takes
//! the lane of each node before it frees it. But the lanes of a promoted copy are all free, while an identity
//! of an older epoch may hold a lane at the lost host, which may be alive. It changes the backup first, which
//! is the promoted copy. So until it is fenced it may split a node that is free already. And a record of such
//! a split, replayed after the node was freed, would tell of a split that happened.
//!
//! While volumes are closed, only identities of older epochs have redo areas: all others wait. So the client
//! words of all volumes say whom to wait for.

use super::Recoverer;
use super::copies::record_of;
use crate::cause::Cause;
use crate::error::Error;
use crate::node::get_u64;
use crate::op::Op;
use crate::redo::{Record, RecordKind};
use sherman_fabric::{ComputeId, Endpoint, Peer, Space, calls};
use sherman_layout::ClientWord;
use sherman_replica::VolumeTable;

/// Whether a record calls for a change of nodes of this tree that a drop must not meet half made.
fn changes_nodes(record: &Record, tree: u32) -> bool {
    use RecordKind::{Grow, Image, Merge, Split};
    record.tree == tree && matches!(record.kind, Grow | Image | Merge | Split)
}

impl<E: Endpoint> Recoverer<'_, E> {
    /// Waits until no client of an older epoch other than `dead` can change nodes of `tree`, for as long as
    /// `op` waits. Does nothing where all volumes are open.
    pub(super) async fn await_older(
        &mut self,
        op: &Op<'_, E>,
        tree: u32,
        dead: ComputeId,
    ) -> Result<(), Error> {
        seam!(recovery::await_older());
        while self.op.worker.compute.has_closed() && self.are_closed().await? {
            if !self.older_may_change(tree, dead).await? {
                break;
            }
            op.retry(Cause::VolumeClosed).await?;
        }
        Ok(())
    }

    /// Whether the control state says that a volume is closed.
    async fn are_closed(&self) -> Result<bool, Error> {
        let bytes = self.op.call(Peer::Control, calls::Volumes).await?;
        let table = VolumeTable::decode(&bytes).map_err(|_| Error::UnexpectedReply { request: "Volumes" })?;
        Ok(!table.all_open())
    }

    /// Whether a client other than `dead` is not fenced on some volume, or has a record about `tree`.
    async fn older_may_change(&mut self, tree: u32, dead: ComputeId) -> Result<bool, Error> {
        for volume in 0..self.op.endpoint().servers() {
            let geometry = *self.op.worker.compute.geometry_of(volume);
            let (at, bytes) = (geometry.client_offset, geometry.client_table_bytes());
            let table = self.read_table(volume, Space::Host, at, bytes).await?;
            for (word, id) in table.chunks_exact(8).zip(0_u16..) {
                let word = ClientWord::from_bits(get_u64(word, 0)).unwrap_or_default();
                let (client, Some(area)) = (ComputeId(id), word.redo_area) else { continue };
                if client == dead {
                    continue;
                }
                if !word.fenced || self.has_record_about(tree, client, volume, area).await? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether a client has a record on a volume that calls for a change of nodes of `tree`.
    async fn has_record_about(
        &mut self,
        tree: u32,
        client: ComputeId,
        volume: u16,
        area: u64,
    ) -> Result<bool, Error> {
        let slots = self.op.worker.compute.geometry_of(volume).redo_stretches(area);
        if self.op.worker.compute.has_backup(volume) {
            let pairs = self.read_pairs(volume, &slots).await?;
            let records = pairs.iter().filter_map(|pair| record_of(&pair.primary, &pair.backup, client));
            return Ok(records.into_iter().any(|(record, _)| changes_nodes(&record, tree)));
        }
        let slots = self.read_all(volume, Space::Host, &slots).await?;
        let records = slots.iter().filter_map(|slot| Record::decode(slot));
        Ok(records.into_iter().any(|record| record.owner == client && changes_nodes(&record, tree)))
    }
}
