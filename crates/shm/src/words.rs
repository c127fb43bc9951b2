//! The messages that attach a link (`sherman_control::path`).

use crate::segment::Geometry;

/// The version of these messages.
const VERSION: u8 = 1;
/// Bytes of a reply.
const REPLY: usize = 8 + 8 + 4 + 4;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The memory itself. The server watches this client's process for as long as the connection lasts.
    Memory,
    /// A slot.
    Slot,
}

impl Ask {
    pub(crate) fn encode(self) -> [u8; 2] {
        [VERSION, self as u8]
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        match body {
            [VERSION, 0] => Some(Self::Memory),
            [VERSION, 1] => Some(Self::Slot),
            _ => None,
        }
    }
}

/// The server's reply: the sizes of the memory, and the client's slot there. The slot is 0 if the client
/// asked for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) geometry: Geometry,
    pub(crate) slot: u32,
}

impl Reply {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Geometry { host_bytes, on_chip_bytes, slots } = self.geometry;
        let mut bytes = Vec::with_capacity(REPLY);
        bytes.extend(host_bytes.to_le_bytes());
        bytes.extend(on_chip_bytes.to_le_bytes());
        bytes.extend(slots.to_le_bytes());
        bytes.extend(self.slot.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (host, rest) = bytes.split_first_chunk()?;
        let (on_chip, rest) = rest.split_first_chunk()?;
        let (slots, rest) = rest.split_first_chunk()?;
        let (slot, rest) = rest.split_first_chunk()?;
        let geometry = Geometry {
            host_bytes: u64::from_le_bytes(*host),
            on_chip_bytes: u64::from_le_bytes(*on_chip),
            slots: u32::from_le_bytes(*slots),
        };
        rest.is_empty().then_some(Self { geometry, slot: u32::from_le_bytes(*slot) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_nothing_else_is() {
        for ask in [Ask::Memory, Ask::Slot] {
            assert_eq!(Ask::decode(&ask.encode()), Some(ask));
        }
        for bad in [&[][..], &[1], &[1, 2], &[2, 0], &[1, 0, 0]] {
            assert_eq!(Ask::decode(bad), None);
        }
        let reply = Reply { geometry: Geometry { host_bytes: 1 << 40, on_chip_bytes: 8, slots: 9 }, slot: 7 };
        let bytes = reply.encode();
        assert_eq!((bytes.len(), Reply::decode(&bytes)), (REPLY, Some(reply)));
        assert_eq!(Reply::decode(&bytes[1..]), None);
        assert_eq!(Reply::decode(&[bytes, vec![0]].concat()), None);
    }
}
