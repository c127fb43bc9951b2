//! The server's side: memory that clients map, the links they have to it, and what becomes of those that die.
//!
//! **Fences (F6)** are those of `embedded`'s gates, with the words in the segment. A list that changes memory makes its slot's turn
//! odd, then looks at the slot's flag; who fences raises the flag, then looks at the turn. Of the two looks at least one
//! sees the other's store: either the list is refused, or the fence waits for it. A list of READs alone looks at the flag before
//! and after. Every slot has its own flag, so that one word says all that its owner has to know.
//!
//! **Deaths.** One thread, the *undertaker*, waits for the processes of all links. What a dead one held is mended, its fences are
//! over, its slots are free, and server 0 ends the lease of every session that has no process left. A process that calls `exec` lives on
//! without the threads it had; the undertaker treats its links in the same way (`table`).
//!
//! **Stalls.** A fence of a living process that is stopped in the middle of a list cannot be answered, since that list may yet
//! go on. It is refused after a while, with the name of who is to blame; when the process goes on or dies, the next one is answered.

use crate::error::ServeShmError;
use crate::hold::Own;
use crate::segment::{Geometry, Segment};
use crate::table::{Entry, Process, Table};
use crate::words::{Ask, Reply};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use sherman_embedded::host::{Asker, Host, Session};
use sherman_fabric::{Caps, ClientId, FabricError, FenceMode, Memory, Request, Space};
use sherman_memory_server::FormatOptions;
use sherman_soft_nic::server::DataPath;
use sherman_soft_nic::server::path::{Attached, Attaching, Link, Stopping};
use sherman_soft_nic::wire::{MAX_TRANSFER, MAX_VERBS};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What memory is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmOptions {
    /// Bytes of host memory, rounded down to whole lines of 64.
    pub memory_bytes: u64,
    /// Bytes of on-chip memory, rounded down to whole words of 8.
    pub on_chip_bytes: u64,
    /// How many links there may be at the same time: each thread of each client has one.
    pub links: u32,
    /// How long a living client may stand still in the middle of a change before those who wait for it are told so; at most a
    /// quarter of a lease, since who fences it has a lease of its own to renew.
    pub patience: Duration,
}

impl Default for ShmOptions {
    fn default() -> Self {
        Self { memory_bytes: 1 << 30, on_chip_bytes: 256 << 10, links: 4096, patience: Duration::from_secs(1) }
    }
}

/// Memory that clients map, as a data path of the soft NIC's server.
#[derive(Debug)]
pub struct ShmPath {
    inner: Arc<Inner>,
    undertaker: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    segment: Arc<Segment>,
    file: File,
    /// The number of the file: what a process shows that maps it.
    inode: u64,
    host: Arc<Host>,
    patience: Duration,
    table: Mutex<Table>,
    /// Rings for the undertaker when there are new processes, or it is to end.
    bell: OwnedFd,
    ending: AtomicBool,
}

impl ShmPath {
    /// Makes memory and formats it: the host to be served, and the path to it.
    pub fn format(options: &ShmOptions, format: &FormatOptions) -> Result<(Arc<Host>, Arc<Self>), ServeShmError> {
        let geometry = Geometry {
            host_bytes: options.memory_bytes / 64 * 64,
            on_chip_bytes: options.on_chip_bytes / 8 * 8,
            slots: options.links.saturating_add(1),
        };
        let (segment, file) = Segment::make(geometry).map_err(ServeShmError::Memory)?;
        let segment = Arc::new(segment);
        let inode = file.metadata().map_err(ServeShmError::Memory)?.ino();
        let impossible = || ServeShmError::Memory(io::ErrorKind::InvalidInput.into());
        let own = Own::new(&segment, options.patience).ok_or_else(impossible)?;
        let region = segment.parts().and_then(|parts| parts.serve(Box::new(own))).ok_or_else(impossible)?;
        let host = Arc::new(Host::format(region, format).map_err(ServeShmError::Format)?);
        let table = Mutex::new(Table::new(&segment).ok_or_else(impossible)?);
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|error| ServeShmError::Thread(error.into()))?;
        let lease = Duration::from_nanos(format.lease_nanos);
        let (patience, ending) = (options.patience.min(lease / 4), AtomicBool::new(false));
        let inner = Arc::new(Inner { segment, file, inode, host: Arc::clone(&host), patience, table, bell, ending });
        let undertaker = std::thread::Builder::new().name("sherman-undertaker".to_owned());
        let thread = undertaker.spawn({
            let inner = Arc::clone(&inner);
            move || inner.watch()
        });
        let undertaker = Some(thread.map_err(ServeShmError::Thread)?);
        Ok((host, Arc::new(Self { inner, undertaker })))
    }
}

impl ShmPath {
    /// How many lines were mended that their owners had died over.
    pub fn mended(&self) -> u64 {
        self.inner.table().mended()
    }
}

impl Drop for ShmPath {
    fn drop(&mut self) {
        self.inner.table().close();
        self.inner.ending.store(true, SeqCst);
        self.inner.ring();
        if let Some(undertaker) = self.undertaker.take() {
            // A panic was told by its own message.
            let _ = undertaker.join();
        }
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Whatever panics while it is locked leaves at worst a slot that is never used again.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // If it cannot be rung it has been rung very often.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// The undertaker.
    fn watch(&self) {
        while !self.ending.load(SeqCst) {
            let processes = self.table().each_process();
            let mut fds = vec![PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)];
            fds.extend(processes.iter().map(|process| PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)));
            if poll(&mut fds, None).is_err() {
                // A signal, or no memory for a moment.
                std::thread::yield_now();
                continue;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready.first() == Some(&true) {
                let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            }
            for (process, _) in processes.iter().zip(ready.iter().skip(1)).filter(|(_, ready)| **ready) {
                let sessions = self.table().bury(process);
                self.condemn(sessions);
            }
            // The table is not locked while files of /proc are read.
            let orphans = self.table().each_orphan();
            for orphans in orphans.iter().filter(|of| of.first().is_some_and(|one| one.process.has_moved(self.inode))) {
                let sessions = self.table().bury_moved(orphans);
                self.condemn(sessions);
            }
        }
    }

    /// Ends the leases of sessions that have no process left.
    fn condemn(&self, sessions: Vec<Arc<Session>>) {
        for session in sessions {
            // In its own name: a session that is over is refused, though its id may be another's by now. Other servers than 0
            // refuse it too.
            let request = Request::Condemn { client: session.client() };
            let ended = self.host.handle(Asker::Member(&session), &request, || self.host.now(), |_, _| ());
            if ended.is_ok() {
                tracing::warn!(client = session.client().0, "the process of a client died; its lease ends");
            }
        }
    }
}

impl DataPath for ShmPath {
    fn caps(&self) -> Caps {
        Caps {
            atomic_unit: 64,
            crash_unit: 64,
            verb_atomic: false,
            masked_cas: true,
            write_releases: true,
            lock_read: true,
            on_chip_bytes: self.inner.host.memory().size(Space::OnChip),
            fence: FenceMode::Revoke,
            // A READ has no upper bound: its thread may be stopped in the middle.
            shortest_write_nanos: 0,
            // Lists in frames are told the same.
            max_verbs: MAX_VERBS,
            max_transfer: MAX_TRANSFER,
        }
    }

    fn takes_frames(&self) -> bool {
        true
    }

    fn attach(&self, asking: &Attaching<'_>) -> Result<Attached, FabricError> {
        let ask = Ask::decode(asking.body).ok_or(FabricError::Unsupported { what: "share memory in such words" })?;
        let process = Process::behind(asking.socket);
        let process =
            process.map_err(|_| FabricError::Unsupported { what: "share memory with a process of another host" })?;
        let file = match ask {
            Ask::Memory => Some(self.inner.file.try_clone().map_err(|_| NO_MORE_FILES)?.into()),
            Ask::Slot => None,
        };
        let mut table = self.inner.table();
        if table.is_closed() {
            return Err(FabricError::Disconnected { server: self.inner.host.superblock().server });
        }
        let entered = table.enter(asking.session, process, ask == Ask::Slot);
        let (id, entry) = entered.ok_or_else(|| {
            let limit = u64::from(self.inner.segment.geometry().slots - 1);
            FabricError::TooLarge { asked: limit + 1, limit }
        })?;
        drop(table);
        let link = Box::new(ShmLink { id, inner: Arc::clone(&self.inner) });
        // `stop` finds the link by now, or the flag was raised before.
        if asking.session.is_over() {
            // Nobody ever hears of this slot.
            if let Some(slot) = self.inner.segment.slots.get(entry.slot) {
                slot.finish();
            }
            return Err(FabricError::Fenced { client: asking.session.client() });
        }
        self.inner.ring();
        let reply = Reply { geometry: *self.inner.segment.geometry(), slot: entry.slot };
        Ok(Attached { reply: reply.encode(), file, link })
    }

    fn stop(&self, session: &Session) -> Box<dyn Stopping> {
        let busy = self.inner.table().stop(session);
        let inner = Arc::clone(&self.inner);
        Box::new(Stop { busy, inner, client: session.client(), since: Instant::now() })
    }

    /// Its process may go on though its connections have ended, and then only its end counts.
    fn guards(&self, session: &Session) -> bool {
        self.inner.table().has_links_of(session)
    }

    fn close(&self) {
        self.inner.table().close();
    }
}

const NO_MORE_FILES: FabricError = FabricError::Unsupported { what: "share its memory: too many files are open" };

/// What a connection holds.
#[derive(Debug)]
struct ShmLink {
    id: u64,
    inner: Arc<Inner>,
}

impl Link for ShmLink {}

impl Drop for ShmLink {
    fn drop(&mut self) {
        let orphaned = self.inner.table().end(self.id);
        if orphaned {
            self.inner.ring();
        }
    }
}

/// Lists that were in progress when a flag went up.
#[derive(Debug)]
struct Stop {
    busy: Vec<(Arc<Entry>, u64)>,
    inner: Arc<Inner>,
    client: ClientId,
    since: Instant,
}

impl Stopping for Stop {
    fn is_over(&mut self) -> Result<bool, FabricError> {
        let slots = &self.inner.segment.slots;
        let goes_on = |entry: &Entry, turn: u64| slots.get(entry.slot).is_some_and(|slot| slot.turn() == turn);
        self.busy.retain(|(entry, turn)| !entry.is_mended() && goes_on(entry, *turn));
        if self.busy.is_empty() {
            return Ok(true);
        }
        if self.since.elapsed() > self.inner.patience {
            return Err(FabricError::OwnerStalled { client: self.client });
        }
        Ok(false)
    }
}
