//! The server's side: its memory, registered once, and a queue pair for each link.
//!
//! The path is exclusive: a NIC's atomics are atomic only among themselves, so this process executes no list.
//!
//! **A fence (F6)** ends all queue pairs of the session. It moves each to the error state, in which it
//! answers nothing more, then resets it. The reset returns only when the device has finished its current work
//! on the pair. The server answers the fence after that, and waits for nothing else. The fence finds a link
//! that is being made meanwhile, or that link finds the session's flag set ([`DataPath`]'s rule). The pair is
//! destroyed when its connection ends. Until then no other pair gets its number, so the last packets of a
//! fenced client reach no other client's pair.
//!
//! **On-chip memory** is the device's own if the device has enough, else words of host memory with a
//! registration of their own. The server's CPU clears lanes when memory is formatted and never touches them
//! again, so it needs no access to the device's memory.
//!
//! **Host memory** is shared by both sides. The CPU stores whole words, into tables that clients only read
//! (chunks, members) and into catalog entries that no client knows yet. Root words and nodes belong to the
//! clients alone. So no word is changed by both.

use super::device::Device;
use super::memory::{Access, DeviceMemory, Registration};
use super::queue::{CompletionQueue, QueuePair};
use crate::VerbsError;
use crate::facts::Chip;
use crate::qp_info::{Answer, QpInfo, RegionKey};
use rustix::net::getsockname;
use sherman_control::path::{Attached, Attaching, DataPath, Link, Stopping};
use sherman_embedded::host::{Host, Session};
use sherman_fabric::{Caps, FabricError, Memory, Refusal, Space};
use sherman_layout::LaneWidth;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The refusal of an offer that is not valid queue-pair information.
const NO_QP_INFO: &str = "the description of the queue pair is malformed";
/// The refusal of a client whose address this server cannot reach.
const NO_WAY: &str = "reach the client's RDMA address";
/// The refusal if the device has no queue pair left.
const NO_PAIR: &str = "make one more queue pair";

/// A memory server's memory, reached through a NIC.
#[derive(Debug)]
pub struct VerbsPath {
    device: Device,
    host: RegionKey,
    chip: RegionKey,
    chip_is: Chip,
    caps: Caps,
    links: Arc<Links>,
    /// Keeps the registered regions alive. Unregistered before the memory is freed.
    _registered: Registered,
    _memory: Arc<Host>,
}

#[derive(Debug)]
struct Registered {
    _host: Registration,
    _chip: Option<Registration>,
    _device: Option<DeviceMemory>,
}

/// The server's ends of links, by client and incarnation.
type Table = BTreeMap<(u16, u32), Vec<Arc<End>>>;

/// The links of every session.
#[derive(Debug, Default)]
struct Links(Mutex<Table>);

impl Links {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change is one insertion or removal, so a poisoned lock still guards a valid value.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server's end of a link: a queue pair, until it is destroyed.
#[derive(Debug)]
struct End(Mutex<Option<Held>>);

#[derive(Debug)]
struct Held {
    pair: QueuePair,
    /// Its session has ended: it must not be connected any more.
    stopped: bool,
}

impl End {
    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        // The value is present or not, so a poisoned lock still guards a valid value.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the queue pair: it answers nothing more.
    fn stop(&self) {
        if let Some(held) = self.held().as_mut() {
            held.stopped = true;
            // If this fails, the queue pair is still reset or destroyed, and the fence is not answered before
            // that.
            let _ = held.pair.end();
        }
    }

    /// Waits until the device has finished with the queue pair: when this returns, nothing of it executes.
    fn quiet(&self) {
        let mut held = self.held();
        if held.as_mut().is_some_and(|held| held.pair.reset().is_err()) {
            *held = None;
        }
    }

    /// Destroys the queue pair.
    fn destroy(&self) {
        drop(self.held().take());
    }
}

impl VerbsPath {
    /// Registers `memory` with `device`: all of its pages are locked from now on.
    ///
    /// # Errors
    /// If the system or the device does not allow it, or the memory lies in a file.
    pub fn new(device: Device, memory: Arc<Host>) -> Result<Self, VerbsError> {
        let region = memory.memory();
        if region.is_in_file() {
            let error = std::io::ErrorKind::Unsupported.into();
            return Err(VerbsError::System { what: "give an RDMA device memory that lies in a file", error });
        }
        let (start, bytes) = region.place(Space::Host);
        // SAFETY: the region does not move as long as `memory` lives, and this path keeps `memory` until
        // after the registration is dropped. The region consists of atomics, and the server's CPU touches
        // only its own words.
        let host = unsafe { Registration::new(&device.opened, start, bytes, Access::Remote) }?;
        let host_place =
            RegionKey { base: start.as_ptr() as u64, bytes: bytes as u64, key: host.remote_key() };
        let on_chip = region.size(Space::OnChip);
        let mut chip_is = device.facts.chip(on_chip, &device.options);
        let mut given = None;
        if chip_is == Chip::Device {
            match DeviceMemory::new(&device.opened, on_chip as usize) {
                Ok(memory) => given = Some(memory),
                Err(error) => {
                    tracing::warn!(%error, "no device memory for lock lanes: they lie in host memory");
                    chip_is = Chip::Host;
                }
            }
        }
        let (mut chip, mut chip_place) =
            (None, given.as_ref().map_or(RegionKey::default(), DeviceMemory::place));
        if chip_is == Chip::Host {
            let (start, bytes) = region.place(Space::OnChip);
            // SAFETY: as above.
            let words = unsafe { Registration::new(&device.opened, start, bytes, Access::Remote) }?;
            chip_place =
                RegionKey { base: start.as_ptr() as u64, bytes: bytes as u64, key: words.remote_key() };
            chip = Some(words);
        }
        let narrow = memory.superblock().geometry.lock.width == LaneWidth::Bits16;
        let caps = device.facts.caps(on_chip, chip_is, narrow);
        Ok(Self {
            device,
            host: host_place,
            chip: chip_place,
            chip_is,
            caps,
            links: Arc::default(),
            _registered: Registered { _host: host, _chip: chip, _device: given },
            _memory: memory,
        })
    }

    /// Where lock lanes lie.
    pub fn chip_is(&self) -> Chip {
        self.chip_is
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Connects the queue pair of `end` to the client's.
    fn connect(&self, end: &End, offer: &QpInfo, near: Option<IpAddr>) -> Result<Answer, FabricError> {
        let Address { address, index } = self.address(offer, near)?;
        let rd_atomic = self.device.facts.rd_atomic(true, &self.device.options).min(offer.rd_atomic);
        let mut held = end.held();
        let Some(Held { pair, stopped: false }) = held.as_mut() else { return Err(unsupported(NO_PAIR)) };
        let (queue_pair, packet) = (pair.number(), super::link::random_packet());
        let qp_info = QpInfo { address, mtu: self.device.mtu(), rd_atomic, queue_pair, packet };
        pair.connect(&self.device, &qp_info, index, offer).map_err(|error| {
            tracing::warn!(%error, ?offer, "cannot link to a client");
            unsupported(NO_WAY)
        })?;
        Ok(Answer { qp_info, host: self.host, chip: self.chip, chip_is: self.chip_is })
    }

    fn address(&self, offer: &QpInfo, near: Option<IpAddr>) -> Result<Address, FabricError> {
        let peer = (offer.address.kind, offer.address.gid);
        let found = self.device.address(near, Some(peer));
        let (address, index) = found.map_err(|_| unsupported(NO_WAY))?;
        Ok(Address { address, index })
    }
}

struct Address {
    address: crate::address::Address,
    index: u8,
}

fn unsupported(what: &'static str) -> FabricError {
    FabricError::Unsupported { what }
}

/// The local address of `socket`.
fn reached_at(socket: BorrowedFd<'_>) -> Option<IpAddr> {
    SocketAddr::try_from(getsockname(socket).ok()?).ok().map(|address| address.ip().to_canonical())
}

impl DataPath for VerbsPath {
    fn caps(&self) -> Caps {
        self.caps.clone()
    }

    fn takes_frames(&self) -> bool {
        false
    }

    fn attach(&self, asking: &Attaching<'_>) -> Result<Attached, FabricError> {
        let offer = QpInfo::decode(asking.body)
            .map_err(|_| FabricError::Refused(Refusal::BadRequest { what: NO_QP_INFO }))?;
        let no_pair = |error: VerbsError| {
            tracing::warn!(%error, "cannot link to a client");
            unsupported(NO_PAIR)
        };
        let cq = CompletionQueue::new(&self.device.opened, 1).map_err(no_pair)?;
        let pair = QueuePair::answering(&self.device, &cq).map_err(no_pair)?;
        let end = Arc::new(End(Mutex::new(Some(Held { pair, stopped: false }))));
        let session = asking.session;
        let key = (session.client().0, session.incarnation());
        self.links.table().entry(key).or_default().push(Arc::clone(&end));
        // From here on a fence finds it; dropping the link removes it from the table.
        let link = PathLink { links: Arc::clone(&self.links), key, end };
        if session.is_over() {
            return Err(FabricError::Fenced { client: session.client() });
        }
        // A fence that came in between has stopped it.
        let answer = self.connect(&link.end, &offer, reached_at(asking.socket)).map_err(|error| {
            if session.is_over() { FabricError::Fenced { client: session.client() } } else { error }
        })?;
        Ok(Attached { reply: answer.encode().to_vec(), file: None, link: Box::new(link) })
    }

    fn stop(&self, session: &Session) -> Box<dyn Stopping> {
        let key = (session.client().0, session.incarnation());
        let ends = self.links.table().get(&key).cloned().unwrap_or_default();
        ends.iter().for_each(|end| end.stop());
        Box::new(Ends(ends))
    }
}

/// The link ends of a session that is being stopped.
#[derive(Debug)]
struct Ends(Vec<Arc<End>>);

impl Stopping for Ends {
    fn is_over(&mut self) -> Result<bool, FabricError> {
        self.0.drain(..).for_each(|end| end.quiet());
        Ok(true)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|end| end.quiet());
    }
}

/// The link that a connection holds.
#[derive(Debug)]
struct PathLink {
    links: Arc<Links>,
    key: (u16, u32),
    end: Arc<End>,
}

impl Link for PathLink {}

impl Drop for PathLink {
    fn drop(&mut self) {
        // Destroyed while a fence can still find it: so no fence is answered before it is gone.
        self.end.destroy();
        let mut table = self.links.table();
        if let Some(ends) = table.get_mut(&self.key) {
            ends.retain(|end| !Arc::ptr_eq(end, &self.end));
            if ends.is_empty() {
                table.remove(&self.key);
            }
        }
    }
}
