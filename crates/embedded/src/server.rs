//! One memory server: its memory, which clients reach by verbs, and the state machine of its CPU behind a
//! lock.

use crate::control_memory::ControlMemory;
use crate::copy::WORD;
use crate::gate::{Flag, Member};
use crate::memory::Region;
use crate::mirror::{self, Recorder};
use sherman_fabric::group::Store;
use sherman_fabric::{ComputeId, FabricError, Request, Response, Seen, Space};
use sherman_layout::{ControlGeometry, FormatError, FormatOptions};
use sherman_memory_server::{Memories, MemoryServer, OpenError, Volume};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker<'m> {
    /// A client that wants to join.
    Nobody,
    /// A member, and its flag on this server.
    Member(&'m Member, &'m Flag),
    /// A member that leaves.
    Leaver(&'m Member, &'m Flag),
}

/// Called for a client whose id the server has freed by itself.
type OnReaped = Box<dyn Fn(ComputeId) + Send + Sync>;

/// A memory server.
pub struct Server {
    memory: Region,
    control_memory: ControlMemory,
    control: Mutex<MemoryServer>,
    on_reaped: Mutex<Option<OnReaped>>,
    /// The epoch and the number of the last stores of the primary's CPU that were made here. `None` once this
    /// copy is the primary. Locked inside `control`.
    followed: Mutex<Option<(u64, u64)>>,
}

/// What became of the stores of a primary's CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made<T> {
    /// They were made.
    Now(T),
    /// They had been made before.
    Before,
    /// This copy takes no stores of their sender, because there is a newer table.
    Refused,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("memory", &self.memory)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Formats fresh memory, under a random identity unless the options name one.
    pub(crate) fn format(mut memory: Region, options: &FormatOptions) -> Result<Self, FormatError> {
        let memory_id = if options.memory_id == 0 { draw_identity() } else { options.memory_id };
        let options = FormatOptions { memory_id, ..*options };
        let bytes = if options.server == 0 { ControlGeometry::bytes_of(&options) } else { 0 };
        let no_room = FormatError::TooSmall { memory: 0, minimum: bytes };
        let control_memory = memory.take_control().or_else(|| ControlMemory::new(bytes)).ok_or(no_room)?;
        let memories = Memories { volume: &memory, control: &control_memory };
        let control = memory.formatting(|| MemoryServer::format(memories, &options))?;
        Ok(Self {
            memory,
            control_memory,
            control: Mutex::new(control),
            on_reaped: Mutex::new(None),
            followed: Mutex::new(Some((0, 0))),
        })
    }

    /// Formats fresh memory as a volume of `cluster`, without control state.
    pub(crate) fn format_volume(
        memory: Region,
        options: &FormatOptions,
        cluster: u64,
    ) -> Result<Self, FormatError> {
        let no_room = FormatError::TooSmall { memory: 0, minimum: 0 };
        let control_memory = ControlMemory::new(0).ok_or(no_room)?;
        let mut volume = memory.formatting(|| Volume::format(&memory, options))?;
        if !volume.adopt(&memory, cluster) {
            let what = "volume 0 has the identity of another cluster";
            return Err(FormatError::BadGeometry { what });
        }
        let control = MemoryServer { volume, control: None };
        Ok(Self {
            memory,
            control_memory,
            control: Mutex::new(control),
            on_reaped: Mutex::new(None),
            followed: Mutex::new(Some((0, 0))),
        })
    }

    /// Makes a copy the primary of its volume: zeroes its lanes, and opens its memory again.
    pub(crate) fn promote(&self) -> Result<(), OpenError> {
        self.change(|tables, memories| {
            *self.followed.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let lock = tables.geometry().lock;
            for word in (0..lock.table_bytes()).step_by(WORD) {
                memories.volume.store_u64(lock.space, lock.offset + word, 0);
            }
            tables.volume = Volume::promote(memories.volume)?;
            Ok(())
        })
    }

    /// Opens a copy of a volume that was formatted before.
    pub(crate) fn open_volume(memory: Region) -> Result<Self, OpenError> {
        let empty = OpenError::Truncated { space: Space::Host, found: 0, expected: 8 };
        let control_memory = ControlMemory::new(0).ok_or(empty)?;
        let control = MemoryServer { volume: Volume::open(&memory)?, control: None };
        Ok(Self {
            memory,
            control_memory,
            control: Mutex::new(control),
            on_reaped: Mutex::new(None),
            followed: Mutex::new(Some((0, 0))),
        })
    }

    /// Takes no stores of another CPU any more: this copy is the primary already.
    pub(crate) fn lead(&self) {
        self.change(|_, _| *self.followed.lock().unwrap_or_else(PoisonError::into_inner) = None);
    }

    /// Makes a primary another copy of its volume: from now on it takes the stores of another CPU. Its tables
    /// are out of date from then on.
    pub(crate) fn demote(&self) {
        let _control = self.control();
        *self.followed.lock().unwrap_or_else(PoisonError::into_inner) = Some((0, 0));
    }

    /// Opens memory that was formatted before.
    pub(crate) fn open(mut memory: Region, control: Option<ControlMemory>) -> Result<Self, OpenError> {
        let empty = OpenError::Truncated { space: Space::Host, found: 0, expected: 8 };
        let control_memory =
            control.or_else(|| memory.take_control()).or_else(|| ControlMemory::new(0)).ok_or(empty)?;
        let control = MemoryServer::open(Memories { volume: &memory, control: &control_memory })?;
        Ok(Self {
            memory,
            control_memory,
            control: Mutex::new(control),
            on_reaped: Mutex::new(None),
            followed: Mutex::new(Some((0, 0))),
        })
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Region {
        &self.memory
    }

    /// The memories that the CPU's state machines use.
    pub(crate) fn memories(&self) -> Memories<'_> {
        Memories { volume: &self.memory, control: &self.control_memory }
    }

    /// Lets the server's CPU answer. Work that depends on the order of answers happens in `then`, before the
    /// server looks at another request.
    pub(crate) fn handle<T>(
        &self,
        asker: Asker<'_>,
        request: &Request,
        now: impl FnOnce() -> u64,
        then: impl FnOnce(&MemoryServer, Response) -> T,
    ) -> Result<T, FabricError> {
        let mut control = self.control();
        let response = Self::answer(&mut control, self.memories(), asker, request, now());
        self.settle(&mut control);
        Ok(then(&control, response?))
    }

    /// As [`Server::handle`]. `then` also gets the stores that the CPU has made to host memory, in order.
    pub(crate) fn handle_recorded<T>(
        &self,
        asker: Asker<'_>,
        request: &Request,
        then: impl FnOnce(&MemoryServer, Response, Vec<Store>) -> T,
    ) -> Result<T, FabricError> {
        let recorder = Recorder::new(&self.memory);
        let memories = Memories { volume: &recorder, control: &self.control_memory };
        // `then` runs under the lock, and has to: the other copies must make the stores in the same order.
        let mut control = self.control();
        let response = Self::answer(&mut control, memories, asker, request, 0)?;
        Ok(then(&control, response, recorder.into_stores()))
    }

    /// Makes the stores of the primary's CPU, unless they were made before or this copy is the primary now.
    /// `then` runs under the lock.
    pub(crate) fn make_stores<T>(
        &self,
        (epoch, number): (u64, u64),
        stores: &[Store],
        then: impl FnOnce() -> T,
    ) -> Result<Made<T>, FabricError> {
        let _control = self.control();
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.is_none_or(|last| epoch < last.0) {
            return Ok(Made::Refused);
        }
        if followed.is_some_and(|last| (epoch, number) <= last) {
            return Ok(Made::Before);
        }
        mirror::apply(&self.memory, stores)?;
        *followed = Some((epoch, number));
        Ok(Made::Now(then()))
    }

    /// Answers under the lock.
    fn answer(
        control: &mut MemoryServer,
        memories: Memories<'_>,
        asker: Asker<'_>,
        request: &Request,
        now: u64,
    ) -> Result<Response, FabricError> {
        // The flags are checked under the lock. This incarnation may meanwhile have been fenced and its id
        // retired, or have left. Then the state machine would take it for the next incarnation.
        let (from, over) = match asker {
            Asker::Nobody => (ComputeId::NOBODY, false),
            Asker::Member(member, flag) => (member.client, flag.is_over()),
            Asker::Leaver(member, flag) => (member.client, flag.is_fenced()),
        };
        if over {
            return Err(FabricError::Fenced { client: from });
        }
        Ok(control.handle(memories, from, request, now)?)
    }

    /// Lets the server's CPU issue an id to a client that found `seen`. `then` is called as by
    /// [`Server::handle`].
    pub(crate) fn join<T>(
        &self,
        seen: &[Option<Seen>],
        now: impl FnOnce() -> u64,
        then: impl FnOnce(&MemoryServer, ComputeId) -> T,
    ) -> Result<T, FabricError> {
        let mut control = self.control();
        let client = control.join_seeing(self.memories(), seen, now());
        self.settle(&mut control);
        Ok(then(&control, client?))
    }

    /// Registers `then` for every client whose id the server frees by itself. `then` runs under the lock,
    /// before the id is issued again. Only the last registration counts.
    pub(crate) fn on_reaped(&self, then: OnReaped) {
        *self.on_reaped.lock().unwrap_or_else(PoisonError::into_inner) = Some(then);
    }

    /// Ends the sessions of clients whose ids were freed.
    fn settle(&self, control: &mut MemoryServer) {
        let reaped = control.take_reaped();
        if !reaped.is_empty()
            && let Some(then) = &*self.on_reaped.lock().unwrap_or_else(PoisonError::into_inner)
        {
            reaped.into_iter().for_each(then);
        }
    }

    /// Lets the server's CPU answer an operator.
    pub(crate) fn administer(
        &self,
        request: &Request,
        now: impl FnOnce() -> u64,
    ) -> Result<Response, FabricError> {
        let mut control = self.control();
        let response = control.administer(self.memories(), request, now());
        self.settle(&mut control);
        Ok(response?)
    }

    /// Lets `change` change the server's tables while no request is being answered.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut MemoryServer, Memories<'_>) -> T) -> T {
        let mut control = self.control();
        let changed = change(&mut control, self.memories());
        self.settle(&mut control);
        changed
    }

    /// Lets `look` see the server's tables while no request is being answered.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&MemoryServer) -> T) -> T {
        look(&self.control())
    }

    /// Whether the server's tables say that `client` is fenced here.
    pub(crate) fn is_fenced(&self, client: ComputeId) -> bool {
        self.look(|tables| tables.is_fenced(client))
    }

    fn control(&self) -> MutexGuard<'_, MemoryServer> {
        // The state machine stores before it changes its own tables, and no request makes it panic. So the
        // data under a poisoned lock is still right.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A random number that is not 0. Returns 0 if the system gives no random numbers, and no format accepts 0.
fn draw_identity() -> u64 {
    // 0 has a chance of one in 2^64, so one more draw is enough.
    let draw = || getrandom::u64().unwrap_or(0);
    Some(draw()).filter(|drawn| *drawn != 0).unwrap_or_else(draw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::CopyPath;
    use crate::line::Atomicity;

    #[test]
    fn what_an_old_incarnation_sent_late_is_refused_though_its_id_is_another_s() {
        let region = Region::new(64 << 10, 0, Atomicity::Line, CopyPath::fastest()).unwrap();
        let locks = sherman_layout::LockOptions { space: sherman_fabric::Space::Host, ..Default::default() };
        let format = FormatOptions {
            chunk_bytes: 4096,
            redo_slot_bytes: 512,
            redo_area_bytes: 1024,
            member_capacity: 2,
            catalog_capacity: 1,
            locks: sherman_layout::LockOptions { lanes: Some(64), ..locks },
            ..FormatOptions::default()
        };
        let server = Server::format(region, &format).unwrap();
        let joined = server.handle(Asker::Nobody, &Request::Join, || 0, |_, response| response);
        let Ok(Response::Joined { client }) = joined else { panic!("{joined:?}") };
        let [old, left, present] = [(); 3].map(|()| Member::new(client, 1).unwrap());
        old.fence(0);
        left.leave();
        let ask = |asker| server.handle(asker, &Request::Usage, || 0, |_, _| ());
        for gone in [&old, &left] {
            assert_eq!(ask(Asker::Member(gone, gone.flag(0))), Err(FabricError::Fenced { client }));
        }
        assert_eq!(ask(Asker::Leaver(&old, old.flag(0))), Err(FabricError::Fenced { client }));
        assert_eq!(ask(Asker::Leaver(&left, left.flag(0))), Ok(()));
        assert_eq!(ask(Asker::Member(&present, present.flag(0))), Ok(()));
    }
}
