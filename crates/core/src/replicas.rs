//! What a compute server knows about the copies of volumes (`docs/REPLICATION.md`).
//!
//! A compute server takes the table of volumes when it joins, and uses exactly that table until its identity
//! ends (rule E). Everything here is `None` without replication, and then costs nothing.
//!
//! - **Closed volumes (E5).** Operations begin only when every volume is open. A volume closes between two
//!   epochs alone, so an identity that has seen all volumes open never waits again. Recovery does not wait:
//!   it is what opens them.
//! - **Reads (R2, R3).** A host that was declared lost may still answer READs. So a result that rests on
//!   READs alone counts only if the lease is valid after the operation began. The client counts its lease
//!   from the moment at which it sent the renewal (L1), and by less than the control state does (L2).

use crate::cause::Cause;
use crate::compute::ComputeServer;
use crate::error::Error;
use crate::op::Op;
use sherman_fabric::{Endpoint, Peer, Role, calls};
use sherman_replica::VolumeTable;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The client counts on this part of the lease less than the control state grants. It bounds the drift of
/// their clocks: 1/8 allows for 6 % between them.
const DRIFT_PART: u64 = 8;
/// How many times per lease an operation asks whether closed volumes are open.
const LOOKS_PER_LEASE: u64 = 32;
/// The longest pause between two such questions, in nanoseconds.
const LONGEST_PAUSE: u64 = 100_000_000;

/// The table of a compute server, and its lease.
#[derive(Debug)]
pub(crate) struct Replicas {
    table: Arc<VolumeTable>,
    /// Whether some volume was closed when this compute server looked last.
    closed: AtomicBool,
    lease_until: AtomicU64,
}

impl Replicas {
    /// The state of a compute server that has just joined; `None` without replication.
    pub(crate) fn new(table: Arc<VolumeTable>) -> Option<Self> {
        let closed = AtomicBool::new(!table.all_open());
        (table.epoch() > 0).then(|| Self { table, closed, lease_until: AtomicU64::new(0) })
    }

    /// The table.
    pub(crate) fn table(&self) -> &Arc<VolumeTable> {
        &self.table
    }

    /// Notes a renewal that was sent at `sent` and granted (L1).
    pub(crate) fn renewed(&self, sent: u64, lease: u64) {
        self.lease_until.fetch_max(sent.saturating_add(lease - lease / DRIFT_PART), Relaxed);
    }

    /// Whether the lease is valid at `now`, by the client's own clock.
    fn is_valid(&self, now: u64) -> bool {
        seam!(replicas::is_valid(self));
        now < self.lease_until.load(Relaxed)
    }
}

impl ComputeServer {
    /// The table of volumes that it uses; `None` without replication.
    pub fn volumes(&self) -> Option<&Arc<VolumeTable>> {
        self.replicas.as_ref().map(Replicas::table)
    }

    /// Whether some volume is closed, as far as this compute server knows.
    #[inline]
    pub(crate) fn has_closed(&self) -> bool {
        self.replicas.as_ref().is_some_and(|replicas| replicas.closed.load(Acquire))
    }

    /// Whether the lanes of a volume's former holders were lost with its former primary. That is so while the
    /// volume is closed. Afterwards nobody of an older epoch is left.
    pub(crate) fn lost_lanes(&self, volume: u16) -> bool {
        seam!(replicas::lost_lanes());
        let entry = self.volumes().and_then(|table| table.volume(volume));
        self.has_closed() && entry.is_some_and(|entry| !entry.open)
    }

    /// Whether a volume has a backup.
    pub(crate) fn has_backup(&self, volume: u16) -> bool {
        let entry = self.volumes().and_then(|table| table.volume(volume));
        entry.is_some_and(|entry| entry.copy(Role::Backup).is_some())
    }
}

impl<E: Endpoint> Op<'_, E> {
    /// Waits until every volume is open, or until the deadline. An operation calls it before its first list.
    #[inline]
    pub(crate) async fn await_open(&self) -> Result<(), Error> {
        if self.recovers() || !self.worker.compute.has_closed() {
            return Ok(());
        }
        Box::pin(self.look_until_open()).await
    }

    async fn look_until_open(&self) -> Result<(), Error> {
        seam!(replicas::look_until_open());
        let pause = (self.worker.compute.geometry().lease_nanos / LOOKS_PER_LEASE).min(LONGEST_PAUSE);
        loop {
            let bytes = self.call(Peer::Control, calls::Volumes).await?;
            let table =
                VolumeTable::decode(&bytes).map_err(|_| Error::UnexpectedReply { request: "Volumes" })?;
            if table.all_open() {
                if let Some(replicas) = &self.worker.compute.replicas {
                    replicas.closed.store(false, Release);
                }
                return Ok(());
            }
            self.note(Cause::VolumeClosed)?;
            let until = self.endpoint().now().saturating_add(pause).min(self.deadline());
            sherman_fabric::sleep_until(self.endpoint(), until).await;
        }
    }

    /// Checks that a result that rests on READs alone may be returned (R2). A lease that is not valid by the
    /// client's clock is renewed: the answer says whether this compute server was a member after the
    /// operation began (R3).
    #[inline]
    pub(crate) async fn confirm_read(&self) -> Result<(), Error> {
        match &self.worker.compute.replicas {
            Some(replicas) => Box::pin(self.confirm(replicas)).await,
            None => Ok(()),
        }
    }

    async fn confirm(&self, replicas: &Replicas) -> Result<(), Error> {
        if self.worker.compute.is_terminated() {
            return Err(Error::Fenced { client: self.client() });
        }
        if replicas.is_valid(self.endpoint().now()) {
            return Ok(());
        }
        let expired = self.worker.renew().await?;
        self.worker.compute.membership.suspect_all(&expired);
        Ok(())
    }
}

#[cfg(feature = "mutants")]
pub(crate) mod seam;
