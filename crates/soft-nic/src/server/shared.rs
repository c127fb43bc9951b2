//! The state that all threads of a server share.

use super::Limits;
use super::counters::{Reason, Refusals, ShardCounters, hottest};
use super::error::ServeError;
use super::events;
use super::greet::Member;
use super::mailbox::Mailbox;
use super::remote::Who;
use super::served::{Served, ServedMemory, Serves};
use sherman_control::auth::{self, Secret};
use sherman_control::path::DataPath;
use sherman_control::plane::Mirror;
use sherman_control::wire::{MAX_TRANSFER, MAX_VERBS};
use sherman_embedded::host::Host;
use sherman_fabric::{Caps, ComputeId, FenceMode, ServerStats};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::Instant;

/// F1's unit of atomicity: the embedded backend keeps a sequence lock for each.
pub(super) const LINE: usize = 64;

/// The state that a server's threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) serves: Serves,
    pub(super) secret: Option<Secret>,
    pub(super) tear_reads: bool,
    pub(super) limits: Limits,
    /// The boot number, which identifies this start of the server; never 0.
    pub(super) boot: u64,
    pub(super) counters: Vec<ShardCounters>,
    pub(super) mailboxes: Vec<Arc<Mailbox>>,
    /// Wakes the acceptor when the server stops.
    pub(super) stopper: Mailbox,
    refusals: Refusals,
    /// Connections whose handshake is done.
    connections: AtomicUsize,
    /// Connections whose handshake is not done, including those in mailboxes.
    newcomers: AtomicUsize,
    accepted: AtomicU64,
    /// Bytes that connections make the server hold.
    buffered: AtomicUsize,
    stopping: AtomicBool,
    /// How many fences there were.
    fences: AtomicU64,
    began: Instant,
}

impl Shared {
    pub(super) fn new(
        serves: Serves,
        secret: Option<Secret>,
        tear_reads: bool,
        limits: Limits,
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> Result<Self, ServeError> {
        let nonce = auth::nonce().map_err(ServeError::NoRandomness)?;
        let (word, _) = nonce.split_first_chunk::<8>().unwrap_or((&[1; 8], &[]));
        Ok(Self {
            serves,
            secret,
            tear_reads,
            limits,
            boot: u64::from_le_bytes(*word).max(1),
            counters: mailboxes.iter().map(|_| ShardCounters::default()).collect(),
            mailboxes,
            stopper: Mailbox::new().map_err(ServeError::System)?,
            refusals: Refusals::new(),
            connections: AtomicUsize::new(0),
            newcomers: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            buffered: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            fences: AtomicU64::new(0),
            began: Instant::now(),
        })
    }

    /// The memory of a plain server.
    pub(super) fn plain(&self) -> Option<&Arc<Served>> {
        match &self.serves {
            Serves::Memory(served) => Some(served),
            Serves::Copies(_) => None,
        }
    }

    /// The capabilities of this server for clients of a memory with `on_chip_bytes` bytes on chip, which is
    /// also reached through `path`.
    pub(super) fn caps(path: Option<&dyn DataPath>, on_chip_bytes: u64) -> Caps {
        if let Some(path) = path {
            return path.caps();
        }
        Caps {
            atomic_unit: LINE as u32,
            crash_unit: LINE as u32,
            verb_atomic: false,
            masked_cas: true,
            write_releases: true,
            lock_read: true,
            on_chip_bytes,
            fence: FenceMode::Revoke,
            // A READ has no upper time bound: its thread may be stopped in the middle.
            shortest_write_nanos: 0,
            max_verbs: MAX_VERBS,
            max_transfer: MAX_TRANSFER,
        }
    }

    /// Counts an accepted connection. Called before a shard gets the connection, because the shard subtracts
    /// it from the newcomers again.
    pub(super) fn accepted(&self) {
        self.accepted.fetch_add(1, Relaxed);
        self.newcomers.fetch_add(1, Relaxed);
    }

    /// Takes back the count of a connection for which no shard had room.
    pub(super) fn turned_away(&self) {
        self.accepted.fetch_sub(1, Relaxed);
        self.newcomers.fetch_sub(1, Relaxed);
    }

    /// The most newcomers of one shard.
    pub(super) fn newcomers_per_shard(&self) -> usize {
        self.limits.max_newcomers.div_ceil(self.mailboxes.len()).max(1)
    }

    /// Gives a newcomer the place of a client. Returns false if no place is free.
    pub(super) fn admit_connection(&self) -> bool {
        let limit = self.limits.max_connections;
        let admitted = self
            .connections
            .fetch_update(Relaxed, Relaxed, |open| (open < limit).then_some(open + 1))
            .is_ok();
        if admitted {
            self.newcomers.fetch_sub(1, Relaxed);
        }
        admitted
    }

    /// Takes the place back: the connection is a newcomer again.
    pub(super) fn unadmit_connection(&self) {
        self.newcomers.fetch_add(1, Relaxed);
        self.connections.fetch_sub(1, Relaxed);
    }

    /// Counts a connection as closed, and its `held` bytes as freed.
    pub(super) fn close_connection(&self, admitted: bool, held: usize) {
        let count = if admitted { &self.connections } else { &self.newcomers };
        count.fetch_sub(1, Relaxed);
        self.buffered.fetch_sub(held, Relaxed);
    }

    /// Records that a connection that held `before` bytes now holds `after`. Returns false if it holds more
    /// than before and all connections together exceed the limit.
    pub(super) fn recharge(&self, before: usize, after: usize) -> bool {
        if after <= before {
            self.buffered.fetch_sub(before - after, Relaxed);
            return true;
        }
        self.buffered.fetch_add(after - before, Relaxed) + (after - before) <= self.limits.max_buffered
    }

    /// Counts a refusal.
    pub(super) fn refused(&self, reason: Reason, who: Option<Who>, detail: impl Display) {
        self.refusals.note(reason, who, detail);
    }

    /// Ends the leases of members of an earlier start of this server, which it refuses. From now on, also
    /// ends the sessions of clients whose ids the tables free. Copies of a host keep no members.
    pub(super) fn take_over_members(self: &Arc<Self>) {
        let Some(served) = self.plain() else { return };
        let shared = Arc::downgrade(self);
        served.host.on_reaped(move |client| {
            if let Some(shared) = shared.upgrade() {
                shared.reaped(client);
            }
        });
        let lost = served.host.lose_all();
        if lost > 0 {
            tracing::info!(lost, "the server restarted: the leases of its earlier clients ended");
        }
    }

    /// Ends the session of `client`, whose id is free. Called with the host's lock held.
    fn reaped(&self, client: ComputeId) {
        if let Some(served) = self.plain() {
            let session = served.incarnations.reap(client);
            events::reaped(client, session);
            self.note_fence();
        }
    }

    /// Handles the end of a member's connection. If it was the last one to server 0, the member is dead or
    /// will not come back. The end of a connection to a copy says nothing: the group decides by leases.
    pub(super) fn disconnected(&self, member: Member, who: Who) {
        let Member { served, gate } = member;
        let session = Arc::clone(gate.session());
        drop(gate);
        if !served.keeps_control() || self.is_stopping() || session.is_connected() {
            return;
        }
        if served.path().is_some_and(|path| path.guards(&session)) {
            return;
        }
        served.host.lose(&session, |tables| {
            let last = !session.is_connected();
            if last {
                let owns = tables.member(session.client()).is_some_and(|member| member.active);
                events::lost(who, session.incarnation(), owns);
            }
            last
        });
    }

    /// Serves a copy. Another memory that was served under this number is served no more.
    pub(super) fn install_copy(&self, copy: u16, memory: ServedMemory) {
        if let Serves::Copies(copies) = &self.serves {
            self.end(copies.install(copy, memory));
        }
    }

    /// The memory of a copy.
    pub(super) fn copy(&self, copy: u16) -> Option<Arc<Host>> {
        match &self.serves {
            Serves::Memory(_) => None,
            Serves::Copies(copies) => copies.get(copy).map(|served| Arc::clone(&served.host)),
        }
    }

    /// Takes the bytes of a copy that is being made.
    pub(super) fn install_filling(&self, copy: u16, memory: ServedMemory) {
        if let Serves::Copies(copies) = &self.serves {
            self.end(copies.install_filling(copy, memory));
        }
    }

    /// Sets the way from a copy to the other copies of its volume.
    pub(super) fn set_mirror(&self, copy: u16, mirror: Option<Arc<dyn Mirror>>) {
        if let Serves::Copies(copies) = &self.serves {
            copies.set_mirror(copy, mirror);
        }
    }

    /// Serves a copy no more.
    pub(super) fn remove_copy(&self, copy: u16) {
        if let Serves::Copies(copies) = &self.serves {
            self.end(copies.remove(copy));
        }
    }

    /// Ends all connections to a memory that is served no more.
    fn end(&self, served: Option<Arc<Served>>) {
        if let Some(served) = served {
            served.end();
            self.note_fence();
        }
    }

    /// Records that a client was fenced, and makes every shard close its connections of that client.
    pub(super) fn note_fence(&self) {
        self.fences.fetch_add(1, SeqCst);
        self.mailboxes.iter().for_each(|mailbox| mailbox.wake());
    }

    /// How many fences there were.
    pub(super) fn fences(&self) -> u64 {
        self.fences.load(SeqCst)
    }

    /// Tells every thread to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        for served in self.serves.all() {
            served.path().into_iter().for_each(|path| path.close());
        }
        self.mailboxes.iter().for_each(|mailbox| mailbox.wake());
        self.stopper.wake();
    }

    /// Whether the server is stopping.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Everything counted so far.
    pub(super) fn stats(&self) -> ServerStats {
        let mut stats = ServerStats {
            server: self.serves.number(),
            boot: self.boot,
            uptime_nanos: u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            connections: (self.connections.load(Relaxed) + self.newcomers.load(Relaxed)) as u64,
            accepted: self.accepted.load(Relaxed),
            refused: self.refusals.counts(),
            hottest: hottest(&self.counters),
            ..ServerStats::default()
        };
        self.serves.all().iter().for_each(|served| served.add_to(&mut stats));
        self.counters.iter().for_each(|shard| shard.add_to(&mut stats));
        stats
    }
}
