//! Which incarnation of each client id may be served here (F6).
//!
//! The memory server's tables know ids; a fence is of one incarnation, and for ever. So the book keeps, per id, the
//! session of the latest incarnation that came, and a **floor**: incarnations below it are over. An incarnation ends by a
//! fence, by its retirement or by its own leave, and then the floor rises above it.
//!
//! **What must hold.** The book is changed only behind the host's lock, so that what it says and what the tables say belong
//! together; its own lock is taken inside that one and never the other way round.
//!
//! **What it cannot know.** A server other than 0 learns of an incarnation when it connects. One that was fenced and
//! retired before it came here is let in if it comes late. It does no harm: a compute server posts nothing before server 0
//! has confirmed, *after* all its connections were made, that it is still a member.

use super::path::{DataPath, Ending};
use super::remote::Remote;
use sherman_embedded::host::Session;
use sherman_fabric::{ClientId, FabricError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of one id.
#[derive(Debug)]
struct Entry {
    session: Arc<Session>,
    floor: u32,
    /// Where its first connection came from.
    remote: Remote,
}

/// The sessions by id. At most one per id that the cluster has.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: Mutex<BTreeMap<ClientId, Entry>>,
    /// What has to be stopped too when a session ends.
    path: Option<Arc<dyn DataPath>>,
}

impl Book {
    /// An empty book of a server with this data path.
    pub(super) fn new(path: Option<Arc<dyn DataPath>>) -> Self {
        Self { path, ..Self::default() }
    }

    /// The server's data path.
    pub(super) fn path(&self) -> Option<&dyn DataPath> {
        self.path.as_deref()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ClientId, Entry>> {
        // Every change is one insertion or one store, so what a poisoned lock guards is still right.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of this incarnation, made if it is the first connection of it, and whether that ended an earlier one; `Fenced` if the
    /// incarnation is over.
    /// Behind the host's lock, and only for an id that its tables do not call fenced.
    pub(super) fn admit(
        &self,
        client: ClientId,
        incarnation: u32,
        remote: Remote,
    ) -> Result<(Arc<Session>, bool), FabricError> {
        let mut entries = self.entries();
        let (floor, succeeds) = match entries.get(&client) {
            Some(entry) if incarnation < entry.floor || incarnation < entry.session.incarnation() => {
                return Err(FabricError::Fenced { client });
            }
            Some(entry) if incarnation == entry.session.incarnation() => {
                let over = entry.session.is_over();
                let session = (Arc::clone(&entry.session), false);
                return if over { Err(FabricError::Fenced { client }) } else { Ok(session) };
            }
            Some(entry) => {
                // Its predecessor has left or was retired and is over; should it not be, it is now.
                entry.session.fence();
                self.path().map(|path| path.stop(&entry.session));
                (entry.floor, true)
            }
            None => (0, false),
        };
        let session = Arc::new(Session::new(client, incarnation)?);
        entries.insert(client, Entry { session: Arc::clone(&session), floor, remote });
        Ok((session, succeeds))
    }

    /// Ends the incarnation that has the id now, if one is known here. What it has in progress is in the answer.
    pub(super) fn fence(&self, client: ClientId) -> Option<Ending> {
        let mut entries = self.entries();
        let entry = entries.get_mut(&client)?;
        entry.floor = entry.floor.max(entry.session.incarnation().saturating_add(1));
        Some(Ending::new(entry.session.fence(), self.path(), &entry.session))
    }

    /// Ends the incarnation that has had the id until now, and owned nothing: nobody waits for what it has in progress. Its number, and
    /// where it came from.
    pub(super) fn reap(&self, client: ClientId) -> Option<(u32, Remote)> {
        self.fence(client)?;
        self.entries().get(&client).map(|entry| (entry.session.incarnation(), entry.remote))
    }

    /// Ends `session` at its own wish.
    pub(super) fn leave(&self, session: &Session) -> Ending {
        Ending::new(session.leave(), self.path(), session)
    }

    /// `session` has gone by itself.
    pub(super) fn gone(&self, session: &Session) {
        if let Some(entry) = self.entries().get_mut(&session.client()) {
            entry.floor = entry.floor.max(session.incarnation().saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(3);
    const FENCED: FabricError = FabricError::Fenced { client: CLIENT };

    #[test]
    fn connections_of_one_incarnation_share_a_session() {
        let book = Book::default();
        let one = book.admit(CLIENT, 5, Remote::Unknown).unwrap().0;
        assert!(Arc::ptr_eq(&one, &book.admit(CLIENT, 5, Remote::Unknown).unwrap().0));
        assert!(!Arc::ptr_eq(&one, &book.admit(ClientId(4), 5, Remote::Unknown).unwrap().0));
    }

    #[test]
    fn a_fence_ends_one_incarnation_for_ever_and_not_the_next() {
        let book = Book::default();
        let old = book.admit(CLIENT, 5, Remote::Unknown).unwrap().0;
        assert_eq!(book.fence(CLIENT).unwrap().is_over(), Ok(true));
        assert!(old.is_fenced());
        assert_eq!(book.admit(CLIENT, 5, Remote::Unknown).err(), Some(FENCED));
        let new = book.admit(CLIENT, 6, Remote::Unknown).unwrap().0;
        assert!(!new.is_over());
        for late in [0, 4, 5] {
            assert_eq!(book.admit(CLIENT, late, Remote::Unknown).err(), Some(FENCED));
        }
        assert!(!new.is_over());
        assert!(book.fence(ClientId(9)).is_none());
    }

    #[test]
    fn who_has_gone_does_not_come_back_and_its_successor_stops_what_is_left_of_it() {
        let book = Book::default();
        let old = book.admit(CLIENT, 1, Remote::Unknown).unwrap().0;
        book.gone(&old);
        assert_eq!(book.admit(CLIENT, 1, Remote::Unknown).err(), Some(FENCED));
        assert!(!old.is_over());
        assert!(book.admit(CLIENT, 2, Remote::Unknown).is_ok());
        assert!(old.is_over());
        // The late farewell of the old one does not end the new one.
        book.gone(&old);
        assert!(book.admit(CLIENT, 2, Remote::Unknown).is_ok());
    }
}
