//! The queue-pair information that the two ends of a queue pair exchange over the control connection, as
//! bytes.
//!
//! ```text
//! offer (client to server)                      answer (server to client)
//!  0  version        u16                         0  as the offer
//!  2  layer          u8                         44  host: base u64, bytes u64, key u32
//!  3  kind of GID    u8                         64  on-chip: base u64, bytes u64, key u32
//!  4  packet size    u8, a code                 84  where on-chip memory is u8, and 3 bytes of 0
//!  5  reads in flight u8
//!  6  local id       u16
//!  8  queue pair     u32, 24 bits
//! 12  first packet   u32, 24 bits
//! 16  GID            16 bytes
//! 32  12 bytes of 0
//! ```
//!
//! Little-endian. The functions are pure: any bytes give a `QpInfo` or an error, and every invalid field is
//! refused.

use crate::address::{Address, Gid, GidKind, Layer, Mtu};
use crate::facts::Chip;

/// The version of this format.
pub const VERSION: u16 = 1;
/// Bytes of an offer.
pub const OFFER: usize = 44;
/// Bytes of an answer.
pub const ANSWER: usize = 88;
/// Queue pair numbers and packet numbers have 24 bits.
const BITS_24: u32 = 0xff_ffff;

/// One end of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInfo {
    /// Its address.
    pub address: Address,
    /// The largest packet that it accepts.
    pub mtu: Mtu,
    /// READs and atomics in flight: the client offers its limit, the server answers with the agreed number.
    pub rd_atomic: u8,
    /// The number of its queue pair.
    pub queue_pair: u32,
    /// The number of its first packet.
    pub packet: u32,
}

/// A region of memory that verbs may access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionKey {
    /// The address of its first byte, as verbs name it.
    pub base: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The key that a verb must carry.
    pub key: u32,
}

/// The answer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its end of the queue pair.
    pub qp_info: QpInfo,
    /// Its host memory.
    pub host: RegionKey,
    /// Its on-chip memory.
    pub chip: RegionKey,
    /// Where its on-chip memory is.
    pub chip_is: Chip,
}

sherman_fabric::errors! {
    /// Why bytes are not valid queue-pair information.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum QpInfoError {
        /// There are too few or too many bytes.
        Length {
            /// The number of bytes found.
            found: usize,
        } => "{found} bytes are not a description of a queue pair",
        /// The version is unknown.
        Version {
            /// The version found.
            found: u16,
        } => "the description of the queue pair has version {found}, but this build knows version {VERSION}",
        /// A field has an invalid value.
        Field {
            /// Which field.
            what: &'static str,
        } => "the description of the queue pair has an invalid {what}",
    }
}

impl QpInfo {
    /// Encodes it as an offer.
    pub fn encode(&self) -> [u8; OFFER] {
        let mut bytes = [0; OFFER];
        bytes[0..2].copy_from_slice(&VERSION.to_le_bytes());
        bytes[2] = self.address.layer as u8;
        bytes[3] = self.address.kind as u8;
        bytes[4] = self.mtu as u8;
        bytes[5] = self.rd_atomic;
        bytes[6..8].copy_from_slice(&self.address.lid.to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.queue_pair & BITS_24).to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.packet & BITS_24).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.address.gid.0);
        bytes
    }

    /// Decodes an offer.
    pub fn decode(bytes: &[u8]) -> Result<Self, QpInfoError> {
        let bytes: &[u8; OFFER] = bytes.try_into().map_err(|_| QpInfoError::Length { found: bytes.len() })?;
        let version = u16::from_le_bytes([bytes[0], bytes[1]]);
        if version != VERSION {
            return Err(QpInfoError::Version { found: version });
        }
        let bad = |what| QpInfoError::Field { what };
        let layer = match bytes[2] {
            1 => Layer::InfiniBand,
            2 => Layer::Ethernet,
            _ => return Err(bad("layer")),
        };
        let kind = GidKind::from_code(bytes[3].into()).ok_or(bad("kind of GID"))?;
        let mtu = Mtu::from_code(bytes[4]).ok_or(bad("packet size"))?;
        let rd_atomic = bytes[5];
        if rd_atomic == 0 {
            return Err(bad("number of READs in flight"));
        }
        let lid = u16::from_le_bytes([bytes[6], bytes[7]]);
        let (queue_pair, packet) = (u32_at(bytes, 8), u32_at(bytes, 12));
        if queue_pair == 0 || queue_pair > BITS_24 || packet > BITS_24 {
            return Err(bad("queue pair"));
        }
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[16..32]);
        if bytes[32..].iter().any(|&byte| byte != 0) {
            return Err(bad("rest"));
        }
        let address = Address { layer, lid, kind, gid: Gid(gid) };
        Ok(Self { address, mtu, rd_atomic, queue_pair, packet })
    }
}

impl Answer {
    /// Encodes the answer.
    pub fn encode(&self) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        bytes[..OFFER].copy_from_slice(&self.qp_info.encode());
        for (at, place) in [(44, &self.host), (64, &self.chip)] {
            bytes[at..at + 8].copy_from_slice(&place.base.to_le_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&place.bytes.to_le_bytes());
            bytes[at + 16..at + 20].copy_from_slice(&place.key.to_le_bytes());
        }
        bytes[84] = self.chip_is as u8;
        bytes
    }

    /// Decodes an answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, QpInfoError> {
        let bytes: &[u8; ANSWER] =
            bytes.try_into().map_err(|_| QpInfoError::Length { found: bytes.len() })?;
        let qp_info = QpInfo::decode(&bytes[..OFFER])?;
        let place = |at: usize| RegionKey {
            base: u64_at(bytes, at),
            bytes: u64_at(bytes, at + 8),
            key: u32_at(bytes, at + 16),
        };
        let (host, chip) = (place(44), place(64));
        let bad = |what| QpInfoError::Field { what };
        if [host, chip].iter().any(|place| place.base.checked_add(place.bytes).is_none()) {
            return Err(bad("memory"));
        }
        let chip_is = Chip::from_code(bytes[84]).ok_or(bad("on-chip memory"))?;
        if (chip_is == Chip::None) != (chip.bytes == 0) || bytes[85..].iter().any(|&byte| byte != 0) {
            return Err(bad("on-chip memory"));
        }
        Ok(Self { qp_info, host, chip, chip_is })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let gid = Gid(std::array::from_fn(|at| at as u8 + 1));
        let address = Address { layer: Layer::Ethernet, lid: 0x1234, kind: GidKind::RoceV2, gid };
        let qp_info =
            QpInfo { address, mtu: Mtu::M4096, rd_atomic: 16, queue_pair: 0x0a_0b0c, packet: 0xff_fffe };
        let host = RegionKey { base: 0x7f00_0000_0000, bytes: 1 << 30, key: 0xdead_beef };
        let chip = RegionKey { base: 0, bytes: 256 << 10, key: 7 };
        Answer { qp_info, host, chip, chip_is: Chip::Device }
    }

    #[test]
    fn queue_pair_info_is_decoded_to_what_was_encoded() {
        let answer = answer();
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        assert_eq!(QpInfo::decode(&answer.qp_info.encode()), Ok(answer.qp_info));
        let none = Answer { chip: RegionKey::default(), chip_is: Chip::None, ..answer };
        assert_eq!(Answer::decode(&none.encode()), Ok(none));
    }

    #[test]
    fn every_length_but_the_right_one_is_refused() {
        let bytes = answer().encode();
        for len in 0..ANSWER {
            assert_eq!(Answer::decode(&bytes[..len]), Err(QpInfoError::Length { found: len }));
            assert_eq!(QpInfo::decode(&bytes[..len]).is_ok(), len == OFFER);
        }
        assert!(Answer::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
    }

    /// A change of any one byte gives an error or a different value, never the original one.
    #[test]
    fn no_byte_is_without_meaning() {
        let (answer, bytes) = (answer(), answer().encode());
        for at in 0..ANSWER {
            for change in [1, 0x80, 0xff] {
                let mut changed = bytes;
                changed[at] ^= change;
                assert_ne!(Answer::decode(&changed), Ok(answer), "byte {at}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let field = |what| Err(QpInfoError::Field { what });
        let change = |at: usize, value: u8| {
            let mut bytes = answer().encode();
            bytes[at] = value;
            Answer::decode(&bytes)
        };
        assert_eq!(change(0, 9), Err(QpInfoError::Version { found: 9 }));
        assert_eq!(change(2, 3), field("layer"));
        assert_eq!(change(3, 3), field("kind of GID"));
        assert_eq!(change(4, 0), field("packet size"));
        assert_eq!(change(5, 0), field("number of READs in flight"));
        assert_eq!(change(11, 1), field("queue pair"));
        assert_eq!(change(84, 0), field("on-chip memory"));
        assert_eq!(change(84, 3), field("on-chip memory"));
        let beyond = Answer { host: RegionKey { base: u64::MAX, bytes: 2, key: 0 }, ..answer() };
        assert_eq!(Answer::decode(&beyond.encode()), field("memory"));
    }
}
