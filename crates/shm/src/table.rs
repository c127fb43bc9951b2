//! The existing links, their slots, and the processes they belong to.
//!
//! **When a slot is free again.** A client that lost its connection, or was fenced, may still use its slot.
//! It must find the flag up. If another client had got the slot meanwhile, the old client would find the flag
//! down. So a slot is free only when its owner has finished it, or is dead.
//!
//! **exec.** A process that calls `exec` keeps its process id, so its pidfd stays silent. But all its threads
//! are gone, perhaps in the middle of a change. Its connections end, because they are close-on-exec. The end
//! of a connection alone proves nothing: a program may close all files that it does not know. But the kernel
//! replaces the address space before it closes the connections.
//!
//! So three facts together prove that no thread can reach the slot any more. A connection has ended. Its
//! owner has not finished the slot. The process maps memory, but not this segment. Then the process has lost
//! its identity too. All its links of that session go at once, although the server sees their connections end
//! one by one, in any order.

use crate::peer::process_of;
use crate::segment::Segment;
use crate::slot::{Flag, JournalSlot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sherman_embedded::host::Session;
use sherman_pages::zeroed::Zeroed;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// A client's process.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    /// Readable when the process has ended.
    fd: OwnedFd,
}

impl Process {
    /// The process at the other end of `socket`. The socket must still be open after the process was found;
    /// otherwise another process may have its id by now.
    pub(crate) fn behind(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let pid = process_of(socket)?;
        let fd = pidfd_open(pid, PidfdFlags::empty())?;
        if is_ready(socket, PollFlags::RDHUP | PollFlags::HUP) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(Self { pid, fd })
    }

    /// Whether the process lives, and has replaced the address space in which it had mapped the file with
    /// number `inode`. False if this cannot be determined, as for a process of another user.
    pub(crate) fn has_moved(&self, inode: u64) -> bool {
        let Ok(maps) = std::fs::read_to_string(format!("/proc/{}/maps", self.pid.as_raw_nonzero())) else {
            return false;
        };
        // A process whose first thread has ended shows an empty file, even if other threads still map memory.
        let moved = !maps.is_empty() && !maps.lines().any(|line| maps_file(line, inode));
        // The process still lives, so its id did not pass to another process meanwhile.
        moved && !self.has_ended()
    }

    /// Whether the process has ended: none of its threads executes anything any more.
    pub(crate) fn has_ended(&self) -> bool {
        is_ready(self.fd.as_fd(), PollFlags::IN)
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether a line of `/proc/PID/maps` describes the file with number `inode`. The fifth field is the inode
/// number.
fn maps_file(line: &str, inode: u64) -> bool {
    line.split_ascii_whitespace().nth(4).is_some_and(|field| field.parse() == Ok(inode))
}

fn is_ready(fd: BorrowedFd<'_>, what: PollFlags) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, what)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}

/// A link.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its slot; 0 if it has none.
    pub(crate) slot: u32,
    pub(crate) session: Arc<Session>,
    pub(crate) process: Arc<Process>,
    /// Whether its owner is dead and its line repaired.
    mended: AtomicBool,
}

impl Entry {
    pub(crate) fn is_mended(&self) -> bool {
        self.mended.load(Acquire)
    }

    fn is_of(&self, session: &Session) -> bool {
        (self.session.client(), self.session.incarnation()) == (session.client(), session.incarnation())
    }
}

/// All links, behind the path's lock.
#[derive(Debug)]
pub(crate) struct Table {
    segment: Arc<Segment>,
    sequence: Zeroed<AtomicU32>,
    host: Zeroed<AtomicU64>,
    links: BTreeMap<u64, Arc<Entry>>,
    /// Links whose connection has ended while their owner may still touch the slot.
    orphans: Vec<Arc<Entry>>,
    free: Vec<u32>,
    /// The lowest slot that was never used.
    fresh: u32,
    next: u64,
    closed: bool,
    /// Lines repaired because their holder died.
    mended: u64,
}

impl Table {
    pub(crate) fn new(segment: &Arc<Segment>) -> Option<Self> {
        Some(Self {
            segment: Arc::clone(segment),
            sequence: segment.sequence()?,
            host: segment.host()?,
            links: BTreeMap::new(),
            orphans: Vec::new(),
            free: Vec::new(),
            fresh: 1,
            next: 0,
            closed: false,
            mended: 0,
        })
    }

    /// Whether `session` has a link, or a process that may still touch one of its slots.
    pub(crate) fn has_links_of(&self, session: &Session) -> bool {
        self.links.values().chain(&self.orphans).any(|entry| entry.is_of(session))
    }

    /// How many lines were repaired.
    pub(crate) fn mended(&self) -> u64 {
        self.mended
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    fn slot(&self, entry: &Entry) -> Option<JournalSlot<'_>> {
        self.segment.slots.get(entry.slot).filter(|_| entry.slot > 0)
    }

    /// Enters a new link, with a slot if `slot` is true; `None` if no slot is left. Links of one process
    /// share one `Process`.
    pub(crate) fn enter(
        &mut self,
        session: &Arc<Session>,
        process: Process,
        slot: bool,
    ) -> Option<(u64, Arc<Entry>)> {
        let known = self.processes().find(|known| known.pid == process.pid && !known.has_ended()).cloned();
        let process = known.unwrap_or_else(|| Arc::new(process));
        let slot = if slot { self.take_slot()? } else { 0 };
        let session = Arc::clone(session);
        let entry = Arc::new(Entry { slot, session, process, mended: AtomicBool::new(false) });
        if let Some(slot) = self.slot(&entry) {
            slot.open(entry.session.client());
        }
        self.next += 1;
        self.links.insert(self.next, Arc::clone(&entry));
        Some((self.next, entry))
    }

    fn take_slot(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            let (free, kept) = std::mem::take(&mut self.orphans)
                .into_iter()
                .partition::<Vec<_>, _>(|entry| self.slot(entry).is_none_or(JournalSlot::is_finished));
            self.free.extend(free.iter().map(|entry| entry.slot));
            self.orphans = kept;
        }
        self.free.pop().or_else(|| {
            let fresh = self.fresh;
            (fresh < self.segment.geometry().slots).then(|| self.fresh += 1).map(|()| fresh)
        })
    }

    /// Removes link `id`, whose connection has ended. Returns whether its owner may still touch the slot.
    pub(crate) fn end(&mut self, id: u64) -> bool {
        let Some(entry) = self.links.remove(&id) else { return false };
        let Some(slot) = self.slot(&entry) else { return false };
        slot.raise(Flag::Ended);
        let finished = slot.is_finished();
        if finished {
            self.free.push(entry.slot);
        } else {
            self.orphans.push(entry);
        }
        !finished
    }

    /// Raises the flags of a session's links. Returns the links that are in the middle of a list, and their
    /// turns.
    pub(crate) fn stop(&self, session: &Session) -> Vec<(Arc<Entry>, u64)> {
        let mut busy = Vec::new();
        for entry in self.all().filter(|entry| entry.is_of(session)) {
            let Some(slot) = self.slot(entry) else { continue };
            slot.raise(Flag::Fenced);
            let turn = slot.turn();
            if !turn.is_multiple_of(2) {
                busy.push((Arc::clone(entry), turn));
            }
        }
        busy
    }

    /// Stops all execution, and refuses new links.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.all().filter_map(|entry| self.slot(entry)).for_each(|slot| slot.raise(Flag::Closed));
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.links.values().chain(&self.orphans)
    }

    /// The processes of all links, with repetitions.
    fn processes(&self) -> impl Iterator<Item = &Arc<Process>> {
        self.all().map(|entry| &entry.process)
    }

    /// Every process, once.
    pub(crate) fn each_process(&self) -> Vec<Arc<Process>> {
        let mut each: Vec<_> = self.processes().cloned().collect();
        each.sort_unstable_by_key(Arc::as_ptr);
        each.dedup_by_key(|process| Arc::as_ptr(process));
        each
    }

    /// The links whose connection ended before their owner had finished the slot, grouped by process.
    pub(crate) fn each_orphan(&self) -> Vec<Vec<Arc<Entry>>> {
        let mut each: Vec<_> =
            self.orphans.iter().filter(|entry| self.is_unfinished(entry)).cloned().collect();
        each.sort_by_key(|entry| Arc::as_ptr(&entry.process));
        each.chunk_by(|one, next| Arc::ptr_eq(&one.process, &next.process)).map(<[_]>::to_vec).collect()
    }

    fn is_unfinished(&self, entry: &Entry) -> bool {
        self.slot(entry).is_some_and(|slot| !slot.is_finished())
    }

    /// Repairs and removes everything that `process`, which has ended, left behind. Returns the sessions that
    /// have no other link.
    pub(crate) fn reap(&mut self, process: &Arc<Process>) -> Vec<Arc<Session>> {
        let dead = self.take(|entry| Arc::ptr_eq(&entry.process, process));
        self.mend(&dead)
    }

    /// Does the same for a process that has called `exec` and left `orphans` behind. It removes the process's
    /// links of the same sessions, even if the server has not yet seen all their connections end. Other
    /// sessions may belong to the program that the process runs now.
    pub(crate) fn reap_moved(&mut self, orphans: &[Arc<Entry>]) -> Vec<Arc<Session>> {
        // A live program finishes its slots before it unmaps the memory, and those slots may have new owners
        // by now.
        let is_left = |entry: &Arc<Entry>| {
            orphans.iter().any(|orphan| Arc::ptr_eq(orphan, entry)) && self.is_unfinished(entry)
        };
        let left: Vec<_> = self.orphans.iter().filter(|entry| is_left(entry)).cloned().collect();
        let dead = self.take(|entry| {
            left.iter()
                .any(|orphan| Arc::ptr_eq(&orphan.process, &entry.process) && entry.is_of(&orphan.session))
        });
        self.mend(&dead)
    }

    /// Removes the matching links and orphans from the table.
    fn take(&mut self, is_dead: impl Fn(&Entry) -> bool) -> Vec<Arc<Entry>> {
        let mut dead: Vec<_> =
            self.links.extract_if(.., |_, entry| is_dead(entry)).map(|(_, entry)| entry).collect();
        dead.extend(self.orphans.extract_if(.., |entry| is_dead(entry)));
        dead
    }

    /// Repairs the lines of links whose owners are dead, and frees their slots. Returns the sessions that
    /// have no other link.
    fn mend(&mut self, dead: &[Arc<Entry>]) -> Vec<Arc<Session>> {
        for entry in dead {
            if let Some(slot) = self.slot(entry) {
                slot.raise(Flag::Fenced);
                if slot.mend(entry.slot, &self.sequence, &self.host) {
                    self.mended += 1;
                    tracing::info!(
                        client = entry.session.client().0,
                        "repaired a line that a dead client held"
                    );
                }
                self.free.push(entry.slot);
            }
            entry.mended.store(true, Release);
        }
        let mut sessions: Vec<Arc<Session>> = Vec::new();
        for session in dead.iter().map(|entry| &entry.session) {
            let alone = self.all().all(|entry| !entry.is_of(session));
            if alone && !sessions.iter().any(|known| Arc::ptr_eq(known, session)) {
                sessions.push(Arc::clone(session));
            }
        }
        sessions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Geometry;
    use sherman_fabric::ComputeId;

    fn table() -> Table {
        let (segment, _) =
            Segment::make(Geometry { host_bytes: 1 << 12, on_chip_bytes: 64, slots: 8 }).unwrap();
        Table::new(&Arc::new(segment)).unwrap()
    }

    fn session(client: u16) -> Arc<Session> {
        Arc::new(Session::new(ComputeId(client), 1).unwrap())
    }

    /// Enters a link of this process.
    fn enter(table: &mut Table, session: &Arc<Session>, slot: bool) -> (u64, Arc<Entry>) {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        table.enter(session, Process::behind(one.as_fd()).unwrap(), slot).unwrap()
    }

    /// Acts as the death watcher does when the only process with orphans has called `exec`.
    fn reap_moved(table: &mut Table) -> Vec<ComputeId> {
        let orphans = table.each_orphan();
        assert_eq!(orphans.len(), 1);
        table.reap_moved(&orphans[0]).iter().map(|session| session.client()).collect()
    }

    #[test]
    fn after_exec_a_session_ends_in_whatever_order_its_connections_do() {
        // Three links: one to the memory, which has no slot, and those of two endpoints.
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for seen in 1..=3 {
                let (mut table, old, new) = (table(), session(1), session(2));
                let links = [false, true, true].map(|slot| enter(&mut table, &old, slot).0);
                // The program that the process runs now has joined too.
                let (_, next) = enter(&mut table, &new, true);
                for link in &order[..seen] {
                    table.end(links[*link]);
                }
                if order[..seen] == [0] {
                    assert!(table.each_orphan().is_empty(), "a link without a slot proves nothing");
                    continue;
                }
                assert_eq!(reap_moved(&mut table), [ComputeId(1)], "{order:?}, {seen} seen");
                for link in &order[seen..] {
                    assert!(!table.end(links[*link]));
                }
                assert!(table.each_orphan().is_empty());
                assert!(!next.is_mended() && table.all().all(|entry| Arc::ptr_eq(entry, &next)));
                let mut free = table.free.clone();
                free.sort_unstable();
                assert_eq!(free, [1, 2], "{order:?}, {seen} seen");
            }
        }
    }

    /// The process finishes its slots and unmaps the memory while the death watcher examines it.
    #[test]
    fn a_program_that_finishes_its_slots_meanwhile_has_not_called_exec() {
        for reused in [false, true] {
            let (mut table, old) = (table(), session(1));
            enter(&mut table, &old, false);
            let (id, entry) = enter(&mut table, &old, true);
            assert!(table.end(id));
            let orphans = table.each_orphan();
            table.slot(&entry).unwrap().finish();
            if reused {
                assert_eq!(enter(&mut table, &session(2), true).1.slot, entry.slot);
            }
            assert!(table.reap_moved(&orphans[0]).is_empty());
            assert_eq!((entry.is_mended(), table.links.len()), (false, 1 + usize::from(reused)));
        }
    }

    #[test]
    fn a_mapping_is_known_by_the_number_of_its_file() {
        let line = "7f12c0000000-7f12c0200000 rw-s 00200000 00:01 1036                       \
                    /memfd:sherman-memory (deleted)";
        assert!(maps_file(line, 1036) && !maps_file(line, 103) && !maps_file(line, 200_000));
        assert!(
            !maps_file("7ffd6a1e0000-7ffd6a201000 rw-p 00000000 00:00 0  [stack]", 1036) && !maps_file("", 0)
        );
    }
}
