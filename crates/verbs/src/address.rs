//! Chooses a port and an address from a description of the devices, so that tests need no device.
//!
//! **RoCE.** A port has a table of GIDs. Most addresses are in it twice: as RoCE v1, which no router passes,
//! and as v2. The order of preference is:
//!
//! 1. v2 with the address of the control connection, since it is known to reach the other side;
//! 2. v2 with another IPv4 address;
//! 3. v2 with a global IPv6 address, then with a link-local one;
//! 4. v1.
//!
//! Both sides must use the same kind: the client chooses, the server follows.
//!
//! **InfiniBand.** A local id is enough inside one subnet. Across subnets every packet carries the GID (GRH).

use crate::options::VerbsOptions;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The size of a packet's payload.
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

    /// The size with this number in verbs and on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| *mtu as u8 == code)
    }

    /// The size of this many bytes.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// The size in bytes.
    pub fn bytes(self) -> u32 {
        128 << self as u8
    }
}

/// The link layer that carries the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layer {
    /// InfiniBand.
    InfiniBand = 1,
    /// Ethernet, under RoCE.
    Ethernet = 2,
}

/// A global id: an IPv6 address, or an IPv4 address mapped to IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address in it.
    pub fn ip(self) -> IpAddr {
        let ip = Ipv6Addr::from(self.0);
        ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
    }

    /// The subnet prefix.
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

/// The protocol of a GID.
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
    /// The kind with this number in verbs and on the wire.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::InfiniBand, Self::RoceV1, Self::RoceV2].into_iter().find(|kind| *kind as u32 == code)
    }
}

/// One entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index in the table.
    pub index: u8,
    /// The address.
    pub gid: Gid,
    /// Its protocol.
    pub kind: GidKind,
}

impl GidEntry {
    /// The rank of this entry; lower is better. `None` if the entry is unusable.
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

    /// Whether packets can pass between this entry and a peer's GID.
    fn reaches(&self, kind: GidKind, gid: Gid) -> bool {
        self.kind == kind && self.gid.ip().is_ipv4() == gid.ip().is_ipv4()
    }
}

/// One port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Its number, from 1.
    pub number: u8,
    /// Whether the port can send and receive packets.
    pub active: bool,
    /// Its link layer.
    pub layer: Layer,
    /// The largest packet.
    pub mtu: Mtu,
    /// The local id of InfiniBand; 0 elsewhere.
    pub lid: u16,
    /// Its addresses.
    pub gids: Vec<GidEntry>,
}

/// The part of a device's description that the choice of a port needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// Its ports.
    pub ports: Vec<PortInfo>,
}

sherman_fabric::errors! {
    /// Why no port or no address was found.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum AddressError {
        /// There is no such device.
        NoSuchDevice {
            /// The name asked for.
            name: String,
            /// The names of all devices.
            there_are: Vec<String>,
        } => ("there is no RDMA device {name:?}; there are: {}", there_are.join(", ")),
        /// The device has no such port.
        NoSuchPort {
            /// The port asked for.
            port: u8,
        } => "no usable RDMA device has port {port}",
        /// No port is active.
        NoActivePort => "no port of an RDMA device is active",
        /// The port has no such address.
        NoSuchGid {
            /// The index asked for.
            gid: u8,
        } => "the port has no address with index {gid}",
        /// The port has no address, or none that reaches the address of the other side.
        NoGid => "the port has no address that reaches the other side",
    }
}

/// Chooses a device and one of its ports, by index. Among several active ports it prefers a port with the
/// address `near`, otherwise it takes the first.
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
    let ports =
        ports.flat_map(|(at, device)| device.ports.iter().enumerate().map(move |(p, port)| ((at, p), port)));
    let ports: Vec<_> =
        ports.filter(|(_, port)| options.port.is_none_or(|number| number == port.number)).collect();
    if let (Some(port), true) = (options.port, ports.is_empty()) {
        return Err(AddressError::NoSuchPort { port });
    }
    let active = || ports.iter().filter(|(_, port)| port.active);
    let is_near =
        |port: &PortInfo| near.is_some_and(|near| port.gids.iter().any(|entry| entry.gid.ip() == near));
    let chosen = active().find(|(_, port)| is_near(port)).or_else(|| active().next());
    chosen.map(|&(at, _)| at).ok_or(AddressError::NoActivePort)
}

/// Chooses an address of `port`: the one with the index `asked`, if given. Otherwise it takes the best, and
/// if `peer` is known, the best that reaches `peer`.
pub fn choose_gid(
    port: &PortInfo,
    asked: Option<u8>,
    near: Option<IpAddr>,
    peer: Option<(GidKind, Gid)>,
) -> Result<GidEntry, AddressError> {
    if let Some(gid) = asked {
        return port
            .gids
            .iter()
            .find(|entry| entry.index == gid)
            .copied()
            .ok_or(AddressError::NoSuchGid { gid });
    }
    let fits = |entry: &&GidEntry| peer.is_none_or(|(kind, gid)| entry.reaches(kind, gid));
    let ranked = port.gids.iter().filter(fits).filter_map(|entry| Some((entry.rank(near)?, entry)));
    // Takes the first of the best.
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, entry)| *entry).ok_or(AddressError::NoGid)
}

/// The address of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its link layer.
    pub layer: Layer,
    /// Its local id; 0 under RoCE.
    pub lid: u16,
    /// The protocol of its GID.
    pub kind: GidKind,
    /// Its GID.
    pub gid: Gid,
}

impl Address {
    /// Whether packets between the two must carry GIDs. `None` if the two cannot reach each other.
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
