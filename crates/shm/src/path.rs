//! The server's side: the memory that clients map, their links to it, and the cleanup after clients that die.
//!
//! **Fences (F6)** work as `embedded`'s gates do, with the words in the segment. A list that changes memory
//! makes its slot's turn odd, then reads the slot's flag. The server raises the flag, then reads the turn. At
//! least one of the two reads sees the other side's store: either the list is refused, or the fence waits for
//! it. A list of READs alone reads the flag before and after. Every slot has its own flag, so one word tells
//! its owner everything.
//!
//! **Deaths.** One thread, the *death watcher*, waits for the processes of all links. After a death it
//! repairs the line that the process held, completes the fences that wait for it, and frees its slots. Server
//! 0 ends the lease of every session that has no process left. A process that calls `exec` goes on without
//! its threads; the death watcher treats its links in the same way (`table`).
//!
//! **Stalls.** A live process may be stopped in the middle of a list. The server cannot answer a fence
//! against it, because that list may still continue. It refuses the fence after a while and names the stalled
//! client. Once the process continues or dies, the server answers the next fence.

use crate::error::ServeShmError;
use crate::hold::Own;
use crate::segment::{Geometry, Segment};
use crate::table::{Entry, Process, Table};
use crate::words::{Ask, Reply};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use sherman_control::path::DataPath;
use sherman_control::path::{Attached, Attaching, Link, Stopping};
use sherman_control::wire::{MAX_TRANSFER, MAX_VERBS};
use sherman_embedded::host::{Asker, Host, Session};
use sherman_embedded::memory::Region;
use sherman_fabric::{Caps, ComputeId, FabricError, FenceMode, Memory, Request, Space};
use sherman_layout::{FormatError, FormatOptions};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The memory that a server shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmOptions {
    /// Bytes of host memory, rounded down to whole lines of 64.
    pub memory_bytes: u64,
    /// Bytes of on-chip memory, rounded down to whole words of 8.
    pub on_chip_bytes: u64,
    /// How many links may exist at the same time. Each thread of each client has one.
    pub links: u32,
    /// How long a live client may make no progress in the middle of a change before the server reports it as
    /// stalled. For fences it is at most a quarter of a lease, because the fencing client must renew its own
    /// lease.
    pub patience: Duration,
}

impl Default for ShmOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            on_chip_bytes: 256 << 10,
            links: 4096,
            patience: Duration::from_secs(1),
        }
    }
}

/// Memory that clients map, as a data path of the soft NIC's server.
#[derive(Debug)]
pub struct ShmPath {
    inner: Arc<Inner>,
    death_watcher: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    segment: Arc<Segment>,
    file: File,
    /// The inode number of the file. A process that maps the file shows it in `/proc`.
    inode: u64,
    host: Arc<Host>,
    patience: Duration,
    table: Mutex<Table>,
    /// Wakes the death watcher when there are new processes, or when it must end.
    notifier: OwnedFd,
    ending: AtomicBool,
}

impl ShmPath {
    /// Makes memory and formats it. Returns the host to serve and the path to it.
    pub fn format(
        options: &ShmOptions,
        format: &FormatOptions,
    ) -> Result<(Arc<Host>, Arc<Self>), ServeShmError> {
        Self::make(options, format, |region| Host::format(region, format))
    }

    /// As [`format`](Self::format), for a copy of a volume of `cluster` ([`Host::format_volume`]).
    pub fn format_volume(
        options: &ShmOptions,
        format: &FormatOptions,
        cluster: u64,
    ) -> Result<(Arc<Host>, Arc<Self>), ServeShmError> {
        Self::make(options, format, |region| Host::format_volume(region, format, cluster))
    }

    fn make(
        options: &ShmOptions,
        format: &FormatOptions,
        formatted: impl FnOnce(Region) -> Result<Host, FormatError>,
    ) -> Result<(Arc<Host>, Arc<Self>), ServeShmError> {
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
        let host = Arc::new(formatted(region).map_err(ServeShmError::Format)?);
        let table = Mutex::new(Table::new(&segment).ok_or_else(impossible)?);
        let notifier = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let notifier = notifier.map_err(|error| ServeShmError::Thread(error.into()))?;
        let lease = Duration::from_nanos(format.lease_nanos);
        let (patience, ending) = (options.patience.min(lease / 4), AtomicBool::new(false));
        let inner = Arc::new(Inner {
            segment,
            file,
            inode,
            host: Arc::clone(&host),
            patience,
            table,
            notifier,
            ending,
        });
        let death_watcher = std::thread::Builder::new().name("sherman-death-watcher".to_owned());
        let thread = death_watcher.spawn({
            let inner = Arc::clone(&inner);
            move || inner.watch()
        });
        let death_watcher = Some(thread.map_err(ServeShmError::Thread)?);
        Ok((host, Arc::new(Self { inner, death_watcher })))
    }
}

impl ShmPath {
    /// How many lines were repaired after their holder died.
    pub fn mended(&self) -> u64 {
        self.inner.table().mended()
    }
}

impl Drop for ShmPath {
    fn drop(&mut self) {
        self.inner.table().close();
        self.inner.ending.store(true, SeqCst);
        self.inner.ring();
        if let Some(death_watcher) = self.death_watcher.take() {
            // The panic has already printed its own message.
            let _ = death_watcher.join();
        }
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic while the lock is held can at worst leave a slot that is never used again.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // The write fails only if the counter is full, and then the death watcher is awake anyway.
        let _ = rustix::io::write(&self.notifier, &1u64.to_ne_bytes());
    }

    /// The loop of the death watcher.
    fn watch(&self) {
        while !self.ending.load(SeqCst) {
            let processes = self.table().each_process();
            let mut fds = vec![PollFd::from_borrowed_fd(self.notifier.as_fd(), PollFlags::IN)];
            fds.extend(
                processes.iter().map(|process| PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)),
            );
            if poll(&mut fds, None).is_err() {
                // A signal, or a temporary lack of memory.
                std::thread::yield_now();
                continue;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready.first() == Some(&true) {
                let _ = rustix::io::read(&self.notifier, &mut [0; 8]);
            }
            for (process, _) in processes.iter().zip(ready.iter().skip(1)).filter(|(_, ready)| **ready) {
                let sessions = self.table().reap(process);
                self.condemn(sessions);
            }
            // Reads files in /proc, so the table must not be locked.
            let orphans = self.table().each_orphan();
            for orphans in
                orphans.iter().filter(|of| of.first().is_some_and(|one| one.process.has_moved(self.inode)))
            {
                let sessions = self.table().reap_moved(orphans);
                self.condemn(sessions);
            }
        }
    }

    /// Ends the leases of sessions that have no process left.
    fn condemn(&self, sessions: Vec<Arc<Session>>) {
        for session in sessions {
            // Asks in the session's own name: the host refuses a session that is over, even if a new client
            // has its id by now. Servers other than 0 refuse the request too.
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
            // A READ has no upper time bound: its thread may be stopped in the middle.
            shortest_write_nanos: 0,
            // Lists in frames have the same limits.
            max_verbs: MAX_VERBS,
            max_transfer: MAX_TRANSFER,
        }
    }

    fn takes_frames(&self) -> bool {
        true
    }

    fn attach(&self, asking: &Attaching<'_>) -> Result<Attached, FabricError> {
        let ask = Ask::decode(asking.body)
            .ok_or(FabricError::Unsupported { what: "understand the client's request for shared memory" })?;
        let process = Process::behind(asking.socket);
        let process = process
            .map_err(|_| FabricError::Unsupported { what: "share memory with a process on another host" })?;
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
        // From here on `stop` finds the link; an earlier `stop` has already raised the flag.
        if asking.session.is_over() {
            // The client never learns of this slot, so it is free at once.
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

    /// The process may go on after its connections have ended. As long as it has links, only the end of the
    /// process counts.
    fn guards(&self, session: &Session) -> bool {
        self.inner.table().has_links_of(session)
    }

    fn close(&self) {
        self.inner.table().close();
    }
}

const NO_MORE_FILES: FabricError =
    FabricError::Unsupported { what: "share its memory: too many files are open" };

/// The link that a connection holds.
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

/// Lists that were in progress when the flag was raised.
#[derive(Debug)]
struct Stop {
    busy: Vec<(Arc<Entry>, u64)>,
    inner: Arc<Inner>,
    client: ComputeId,
    since: Instant,
}

impl Stopping for Stop {
    fn is_over(&mut self) -> Result<bool, FabricError> {
        let slots = &self.inner.segment.slots;
        let goes_on =
            |entry: &Entry, turn: u64| slots.get(entry.slot).is_some_and(|slot| slot.turn() == turn);
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
