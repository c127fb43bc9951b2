//! Checks whether a verb can be executed at all.

use sherman_fabric::{Caps, FabricError, GlobalAddress, Space, Verb};

/// Checks a verb for `server`, whose spaces have the given sizes.
pub(crate) fn check_verb(
    caps: &Caps,
    server: u16,
    verb: &Verb,
    size: impl Fn(Space) -> u64,
) -> Result<(), FabricError> {
    let (space, offset, len, aligned) = match *verb {
        Verb::Read { space, offset, len, .. } | Verb::Write { space, offset, len, .. } => {
            let limit = u64::from(caps.max_transfer);
            if u64::from(len) > limit {
                return Err(FabricError::TooLarge { asked: u64::from(len), limit });
            }
            let is_read = matches!(verb, Verb::Read { .. });
            (space, offset, u64::from(len), space.allows(offset, u64::from(len), is_read))
        }
        Verb::Cas { space, offset, mask, .. } => {
            if mask != u64::MAX && !caps.masked_cas {
                return Err(FabricError::Unsupported { what: "compare under a mask" });
            }
            (space, offset, 8, offset.is_multiple_of(8))
        }
        Verb::Faa { space, offset, .. } => (space, offset, 8, offset.is_multiple_of(8)),
    };
    let address = GlobalAddress::saturating(server, offset);
    if offset.checked_add(len).is_none_or(|end| end > size(space)) {
        return Err(FabricError::OutOfBounds { space, address, len });
    }
    if aligned { Ok(()) } else { Err(FabricError::Misaligned { space, address }) }
}
