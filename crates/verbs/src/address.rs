//! Which port and which address: a choice made from a description of what there is, and so tested without any device.
//!
//! **RoCE.** A port has a table of GIDs, most addresses twice: as RoCE v1, which no router passes, and as v2. Preferred is v2 with
//! an IPv4 address, and of several the one that the control connection uses, since it is known to reach the other side; then
//! v2 with a global IPv6 address, with a link-local one, and v1 at last. Both sides must use the same kind: the client
//! chooses, the server follows.
//!
//! **InfiniBand.** A local id is enough inside one subnet; across subnets the GID goes with every packet (GRH).

use crate::options::VerbsOptions;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes that a packet may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    M256 = 1,
    /// 512 bytes.
    M512 = 2,
    /// 1024 bytes.
    M1024 = 3,
    /// 2048 bytes.
    M2048 = 4,
    /// 4096 bytes.
    M4096 = 5,
}

impl Mtu {
    const ALL: [Self; 5] = [Self::M256, Self::M512, Self::M1024, Self::M2048, Self::M4096];

    /// By its number in verbs and on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| *mtu as u8 == code)
    }

    /// By its bytes.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// How many bytes.
    pub fn bytes(self) -> u32 {
        128 << self as u8
    }
}

/// What carries the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layer {
    /// InfiniBand.
    InfiniBand = 1,
    /// Ethernet, under RoCE.
    Ethernet = 2,
}

/// A global id: an address of IPv6, or one of IPv4 in its clothes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The address in it.
    pub fn ip(self) -> IpAddr {
        let ip = Ipv6Addr::from(self.0);
        ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
    }

    /// The subnet's part.
    fn subnet(self) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        [a, b, c, d, e, f, g, h]
    }

    fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(ip: Ipv4Addr) -> Self {
        Self(ip.to_ipv6_mapped().octets())
    }
}

/// What a GID is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand = 0,
    /// RoCE v1.
    RoceV1 = 1,
    /// RoCE v2.
    RoceV2 = 2,
}

impl GidKind {
    /// By its number in verbs and on the wire.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::InfiniBand, Self::RoceV1, Self::RoceV2].into_iter().find(|kind| *kind as u32 == code)
    }
}

/// One line of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index there.
    pub index: u8,
    /// The address.
    pub gid: Gid,
    /// What it is good for.
    pub kind: GidKind,
}

impl GidEntry {
    /// How much it is liked, less being better; `None` if it is of no use.
    fn rank(&self, near: Option<IpAddr>) -> Option<u8> {
        let gid = self.gid;
        if gid == Gid::default() {
            return None;
        }
        Some(match (self.kind, gid.ip()) {
            (GidKind::RoceV2, ip) if near == Some(ip) => 0,
            (GidKind::RoceV2, IpAddr::V4(_)) => 1,
            (GidKind::RoceV2, IpAddr::V6(_)) if !gid.is_link_local() => 2,
            (GidKind::RoceV2, IpAddr::V6(_)) => 3,
            (GidKind::InfiniBand, _) => 4,
            (GidKind::RoceV1, ip) if near == Some(ip) => 5,
            (GidKind::RoceV1, IpAddr::V4(_)) => 6,
            (GidKind::RoceV1, IpAddr::V6(_)) => 7,
        })
    }

    /// Whether packets may go from one to the other.
    fn reaches(&self, kind: GidKind, gid: Gid) -> bool {
        self.kind == kind && self.gid.ip().is_ipv4() == gid.ip().is_ipv4()
    }
}

/// One port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// From 1.
    pub number: u8,
    /// Whether packets may pass.
    pub active: bool,
    /// What carries them.
    pub layer: Layer,
    /// How large they may be.
    pub mtu: Mtu,
    /// The local id of InfiniBand; 0 elsewhere.
    pub lid: u16,
    /// Its addresses.
    pub gids: Vec<GidEntry>,
}

/// A device, as far as the choice of a port needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// Its ports.
    pub ports: Vec<PortInfo>,
}

/// Why no port or no address was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// There is no such device.
    NoSuchDevice {
        /// The name asked for.
        name: String,
        /// Those there are.
        there_are: Vec<String>,
    },
    /// The device has no such port.
    NoSuchPort {
        /// The port asked for.
        port: u8,
    },
    /// No port is active.
    NoActivePort,
    /// The port has no such address.
    NoSuchGid {
        /// The index asked for.
        gid: u8,
    },
    /// The port has no address, or none that reaches the other side's.
    NoGid,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchDevice { name, there_are } => {
                write!(f, "there is no RDMA device {name:?}; there are: {}", there_are.join(", "))
            }
            Self::NoSuchPort { port } => write!(f, "no RDMA device that may be used has a port {port}"),
            Self::NoActivePort => write!(f, "no port of an RDMA device is active"),
            Self::NoSuchGid { gid } => write!(f, "the port has no address with index {gid}"),
            Self::NoGid => write!(f, "the port has no address that reaches the other side"),
        }
    }
}

impl std::error::Error for AddressError {}

/// Indices of the device and its port to use. Of several active ports the one with the address `near` is preferred, else the
/// first.
pub fn choose_port(
    devices: &[DeviceInfo],
    options: &VerbsOptions,
    near: Option<IpAddr>,
) -> Result<(usize, usize), AddressError> {
    let named = |device: &DeviceInfo| options.device.as_ref().is_none_or(|name| *name == device.name);
    if let Some(name) = &options.device
        && !devices.iter().any(named)
    {
        let there_are = devices.iter().map(|device| device.name.clone()).collect();
        return Err(AddressError::NoSuchDevice { name: name.clone(), there_are });
    }
    let ports = devices.iter().enumerate().filter(|(_, device)| named(device));
    let ports = ports.flat_map(|(at, device)| device.ports.iter().enumerate().map(move |(p, port)| ((at, p), port)));
    let ports: Vec<_> = ports.filter(|(_, port)| options.port.is_none_or(|number| number == port.number)).collect();
    if let (Some(port), true) = (options.port, ports.is_empty()) {
        return Err(AddressError::NoSuchPort { port });
    }
    let active = || ports.iter().filter(|(_, port)| port.active);
    let is_near = |port: &PortInfo| near.is_some_and(|near| port.gids.iter().any(|entry| entry.gid.ip() == near));
    let chosen = active().find(|(_, port)| is_near(port)).or_else(|| active().next());
    chosen.map(|&(at, _)| at).ok_or(AddressError::NoActivePort)
}

/// The address of `port` to use: the one asked for, else the best, and only one that reaches `peer` if that is known.
pub fn choose_gid(
    port: &PortInfo,
    asked: Option<u8>,
    near: Option<IpAddr>,
    peer: Option<(GidKind, Gid)>,
) -> Result<GidEntry, AddressError> {
    if let Some(gid) = asked {
        return port.gids.iter().find(|entry| entry.index == gid).copied().ok_or(AddressError::NoSuchGid { gid });
    }
    let fits = |entry: &&GidEntry| peer.is_none_or(|(kind, gid)| entry.reaches(kind, gid));
    let ranked = port.gids.iter().filter(fits).filter_map(|entry| Some((entry.rank(near)?, entry)));
    // The first of the best.
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, entry)| *entry).ok_or(AddressError::NoGid)
}

/// Where a queue pair is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// What carries its packets.
    pub layer: Layer,
    /// Its local id; 0 under RoCE.
    pub lid: u16,
    /// What its GID is good for.
    pub kind: GidKind,
    /// Its GID.
    pub gid: Gid,
}

impl Address {
    /// Whether packets between the two must carry GIDs. `None` if they cannot reach each other.
    pub fn needs_gid(&self, peer: &Self) -> Option<bool> {
        match (self.layer, peer.layer) {
            (Layer::Ethernet, Layer::Ethernet) => (self.kind == peer.kind).then_some(true),
            (Layer::InfiniBand, Layer::InfiniBand) => {
                Some(self.lid == 0 || peer.lid == 0 || self.gid.subnet() != peer.gid.subnet())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
