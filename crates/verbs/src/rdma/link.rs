//! The client's end of a link: a queue pair to one server, and the lists in flight on it.

use super::device::Device;
use super::queue::{CompletionQueue, Manner, QueuePair};
use crate::VerbsError;
use crate::fault::Fault;
use crate::plan::Reach;
use crate::qp_info::{Answer, QpInfo, RegionKey};
use crate::slab::Extent;
use sherman_control::Attachment;
use sherman_control::ControlFabric;
use sherman_fabric::{FabricError, Ticket};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

/// A random number for the first packet, so that packets of a former connection are not mistaken for packets
/// of this one.
pub(super) fn random_packet() -> u32 {
    RandomState::new().build_hasher().finish() as u32 & 0xff_ffff
}

/// The id of a completion holds the server above this bit, and the number of its list below.
const SERVER_SHIFT: u32 = 48;

/// The server and the list number in the id of a completion.
pub(super) fn read_id(id: u64) -> (usize, u64) {
    ((id >> SERVER_SHIFT) as usize, id & ((1 << SERVER_SHIFT) - 1))
}

/// A list in flight.
#[derive(Debug)]
pub(super) struct Flying {
    pub(super) ticket: Ticket,
    pub(super) number: u64,
    pub(super) requests: u32,
    pub(super) extent: Extent,
}

/// The parts that exist while the link is connected.
#[derive(Debug)]
pub(super) struct Alive {
    /// First field: the queue pair is destroyed before the server learns of it.
    pub(super) pair: QueuePair,
    pub(super) attachment: Attachment,
}

/// A link to one server.
#[derive(Debug)]
pub(super) struct Link {
    server: u16,
    pub(super) alive: Option<Alive>,
    /// The error of everything that is posted after the link ended.
    pub(super) error: Option<FabricError>,
    /// The fault of the link, until the endpoint has asked the control plane for the cause.
    pub(super) fault: Option<Fault>,
    pub(super) reach: Reach,
    pub(super) host: RegionKey,
    pub(super) chip: RegionKey,
    pub(super) flying: VecDeque<Flying>,
    /// Lists that found no room, in order.
    pub(super) waiting: VecDeque<Ticket>,
    /// Free entries of the send queue.
    pub(super) room: u32,
    number: u64,
    /// When the oldest list in flight became the oldest.
    pub(super) since: u64,
}

impl Link {
    /// Connects to `server`.
    pub(super) fn connect(
        device: &Device,
        control: &ControlFabric,
        server: u16,
        cq: &Arc<CompletionQueue>,
        limits: &LinkLimits,
    ) -> Result<Self, FabricError> {
        let manner = match (limits.masked_cas, device.options.extended) {
            (true, _) => Manner::Raw,
            (false, true) => Manner::Calls,
            (false, false) => Manner::Chain,
        };
        let failed = |error: VerbsError| {
            tracing::warn!(%error, server, "cannot link to a memory server");
            FabricError::Unsupported { what: "make one more queue pair" }
        };
        let mut pair = QueuePair::asking(device, cq, limits.depth, manner).map_err(failed)?;
        let (address, index) = device.address(limits.near, None).map_err(failed)?;
        let rd_atomic = device.facts.rd_atomic(false, &device.options);
        let (queue_pair, packet) = (pair.number(), random_packet());
        let offer = QpInfo { address, mtu: device.mtu(), rd_atomic, queue_pair, packet };
        let attachment = control.attach(server, &offer.encode())?;
        let answer = Answer::decode(attachment.reply()).map_err(|error| {
            tracing::warn!(%error, server, "cannot link to a memory server");
            FabricError::Unsupported { what: "understand the server's queue pair" }
        })?;
        pair.connect(device, &offer, index, &answer.qp_info).map_err(failed)?;
        let reach = Reach {
            server,
            host_bytes: answer.host.bytes,
            chip_bytes: answer.chip.bytes,
            masked_cas: limits.masked_cas,
            inline: pair.inline,
            slab: limits.slab,
        };
        let (host, chip) = (answer.host, answer.chip);
        Ok(Self {
            alive: Some(Alive { pair, attachment }),
            reach,
            host,
            chip,
            ..Self::new(server, limits.depth)
        })
    }

    /// A link that was never connected.
    pub(super) fn ended(server: u16, error: FabricError) -> Self {
        Self { error: Some(error), ..Self::new(server, 0) }
    }

    fn new(server: u16, room: u32) -> Self {
        let none = RegionKey::default();
        let reach = Reach { server, host_bytes: 0, chip_bytes: 0, masked_cas: false, inline: 0, slab: 0 };
        Self {
            server,
            alive: None,
            error: None,
            fault: None,
            reach,
            host: none,
            chip: none,
            flying: VecDeque::new(),
            waiting: VecDeque::new(),
            room,
            number: 0,
            since: 0,
        }
    }

    /// The number of the next list, and the id of its completion.
    pub(super) fn next_number(&mut self) -> (u64, u64) {
        self.number = (self.number + 1) & ((1 << SERVER_SHIFT) - 1);
        (self.number, u64::from(self.server) << SERVER_SHIFT | self.number)
    }

    /// Whether nothing is in flight and nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        self.flying.is_empty() && self.waiting.is_empty()
    }
}

/// The limits of an endpoint's links.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkLimits {
    /// Requests that one queue holds.
    pub(super) depth: u32,
    /// Bytes of the endpoint's registered memory.
    pub(super) slab: u32,
    /// Whether every server and this side support masked CAS.
    pub(super) masked_cas: bool,
    /// The address from which this host reaches the servers.
    pub(super) near: Option<IpAddr>,
}
