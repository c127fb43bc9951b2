//! Which incarnation of each client id the server may serve (F6).
//!
//! The memory server's tables know ids, but a fence ends one incarnation, permanently. So [`Incarnations`]
//! keeps for each id the session of its latest incarnation, and a **floor**: all incarnations below it are
//! over. An incarnation ends by a fence, by its retirement or by its own leave. Then the floor rises above
//! it.
//!
//! **What must hold.** [`Incarnations`] changes only while the host's lock is held, so that it agrees with
//! the tables. Its own lock is taken inside the host's lock, never the other way round.
//!
//! **What it cannot know.** A server other than 0 learns of an incarnation when it connects. An incarnation
//! that was fenced and retired before that is admitted here if it connects late. This is harmless: a compute
//! server posts nothing before server 0 has confirmed that it is still a member, *after* all its connections
//! were made. A copy of a host refuses it by its epoch.

use super::ending::Ending;
use super::remote::Remote;
use sherman_control::path::DataPath;
use sherman_embedded::host::Session;
use sherman_fabric::{ComputeId, FabricError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state of one id.
#[derive(Debug)]
struct Entry {
    session: Arc<Session>,
    floor: u32,
    /// The origin of its first connection.
    remote: Remote,
}

/// The sessions by id, at most one per id of the cluster.
#[derive(Debug, Default)]
struct Entries {
    by_id: BTreeMap<ComputeId, Entry>,
    /// Whether the memory is served no more.
    ended: bool,
}

/// The sessions of one memory.
#[derive(Debug, Default)]
pub(super) struct Incarnations {
    entries: Mutex<Entries>,
    /// The data path, which must also stop a session that ends.
    path: Option<Arc<dyn DataPath>>,
}

impl Incarnations {
    /// Makes an empty set for a server with this data path.
    pub(super) fn new(path: Option<Arc<dyn DataPath>>) -> Self {
        Self { path, ..Self::default() }
    }

    /// The server's data path.
    pub(super) fn path(&self) -> Option<&dyn DataPath> {
        self.path.as_deref()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Every change is one insertion or a few stores, so the data behind a poisoned lock is still valid.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session of this incarnation, and whether it ended an earlier one. Its first connection
    /// makes the session. The error is `Fenced` if the incarnation is over.
    ///
    /// Call it with the host's lock held, and only for an id that the tables do not call fenced.
    pub(super) fn admit(
        &self,
        client: ComputeId,
        incarnation: u32,
        remote: Remote,
    ) -> Result<(Arc<Session>, bool), FabricError> {
        let mut entries = self.entries();
        if entries.ended {
            return Err(FabricError::Fenced { client });
        }
        let (floor, succeeds) = match entries.by_id.get(&client) {
            Some(entry) if incarnation < entry.floor || incarnation < entry.session.incarnation() => {
                return Err(FabricError::Fenced { client });
            }
            Some(entry) if incarnation == entry.session.incarnation() => {
                let over = entry.session.is_over();
                let session = (Arc::clone(&entry.session), false);
                return if over { Err(FabricError::Fenced { client }) } else { Ok(session) };
            }
            Some(entry) => {
                // The predecessor has left or was retired, so it is over. If it is not, this ends it.
                entry.session.fence();
                self.path().map(|path| path.stop(&entry.session));
                (entry.floor, true)
            }
            None => (0, false),
        };
        let session = Arc::new(Session::new(client, incarnation)?);
        entries.by_id.insert(client, Entry { session: Arc::clone(&session), floor, remote });
        Ok((session, succeeds))
    }

    /// Ends the current incarnation of the id, if this server knows one. Returns its work in progress.
    pub(super) fn fence(&self, client: ComputeId) -> Option<Ending> {
        let mut entries = self.entries();
        let entry = entries.by_id.get_mut(&client)?;
        entry.floor = entry.floor.max(entry.session.incarnation().saturating_add(1));
        Some(Ending::new(entry.session.fence(), self.path(), &entry.session))
    }

    /// The work in progress of the current incarnation of the id, if it was fenced.
    pub(super) fn fenced(&self, client: ComputeId) -> Option<Ending> {
        let entries = self.entries();
        let session = &entries.by_id.get(&client)?.session;
        session.is_fenced().then(|| Ending::new(session.fence(), self.path(), session))
    }

    /// Ends the last incarnation of the id, which owned nothing, so nothing waits for its work in progress.
    /// Returns its number and origin.
    pub(super) fn reap(&self, client: ComputeId) -> Option<(u32, Remote)> {
        self.fence(client)?;
        self.entries().by_id.get(&client).map(|entry| (entry.session.incarnation(), entry.remote))
    }

    /// Ends all sessions, and admits none any more. Nothing waits for their work in progress.
    pub(super) fn end(&self) {
        let mut entries = self.entries();
        entries.ended = true;
        for entry in entries.by_id.values() {
            entry.session.fence();
            self.path().map(|path| path.stop(&entry.session));
        }
    }

    /// Ends `session` at its own request.
    pub(super) fn leave(&self, session: &Session) -> Ending {
        Ending::new(session.leave(), self.path(), session)
    }

    /// Records that `session` has left.
    pub(super) fn gone(&self, session: &Session) {
        if let Some(entry) = self.entries().by_id.get_mut(&session.client()) {
            entry.floor = entry.floor.max(session.incarnation().saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ComputeId = ComputeId(3);
    const FENCED: FabricError = FabricError::Fenced { client: CLIENT };

    #[test]
    fn connections_of_one_incarnation_share_a_session() {
        let incarnations = Incarnations::default();
        let one = incarnations.admit(CLIENT, 5, Remote::Unknown).unwrap().0;
        assert!(Arc::ptr_eq(&one, &incarnations.admit(CLIENT, 5, Remote::Unknown).unwrap().0));
        assert!(!Arc::ptr_eq(&one, &incarnations.admit(ComputeId(4), 5, Remote::Unknown).unwrap().0));
    }

    #[test]
    fn a_fence_ends_one_incarnation_permanently_and_not_the_next() {
        let incarnations = Incarnations::default();
        let old = incarnations.admit(CLIENT, 5, Remote::Unknown).unwrap().0;
        assert_eq!(incarnations.fence(CLIENT).unwrap().is_over(), Ok(true));
        assert!(old.is_fenced());
        assert_eq!(incarnations.admit(CLIENT, 5, Remote::Unknown).err(), Some(FENCED));
        let new = incarnations.admit(CLIENT, 6, Remote::Unknown).unwrap().0;
        assert!(!new.is_over());
        for late in [0, 4, 5] {
            assert_eq!(incarnations.admit(CLIENT, late, Remote::Unknown).err(), Some(FENCED));
        }
        assert!(!new.is_over());
        assert!(incarnations.fence(ComputeId(9)).is_none());
    }

    #[test]
    fn a_memory_that_is_served_no_more_ends_and_refuses_every_client() {
        let incarnations = Incarnations::default();
        let one = incarnations.admit(CLIENT, 5, Remote::Unknown).unwrap().0;
        let other = incarnations.admit(ComputeId(4), 1, Remote::Unknown).unwrap().0;
        incarnations.leave(&other);
        incarnations.end();
        assert!(one.is_fenced() && other.is_fenced());
        for incarnation in [5, 6] {
            assert_eq!(incarnations.admit(CLIENT, incarnation, Remote::Unknown).err(), Some(FENCED));
        }
        assert!(incarnations.admit(ComputeId(9), 1, Remote::Unknown).is_err());
    }

    #[test]
    fn an_ended_incarnation_does_not_come_back_and_its_successor_stops_its_sessions() {
        let incarnations = Incarnations::default();
        let old = incarnations.admit(CLIENT, 1, Remote::Unknown).unwrap().0;
        incarnations.gone(&old);
        assert_eq!(incarnations.admit(CLIENT, 1, Remote::Unknown).err(), Some(FENCED));
        assert!(!old.is_over());
        assert!(incarnations.admit(CLIENT, 2, Remote::Unknown).is_ok());
        assert!(old.is_over());
        // A late goodbye of the old incarnation does not end the new one.
        incarnations.gone(&old);
        assert!(incarnations.admit(CLIENT, 2, Remote::Unknown).is_ok());
    }
}
