//! Errors and refusals as bytes: the body of `ListFailed` and `Refused`.

use super::bytes::{Put, Reader, WireError, space_number};
use super::words::known;
use sherman_fabric::{ComputeId, FabricError, GlobalAddress, Refusal};

/// Replaces an error for which this version of the protocol has no number.
pub(super) const UNNAMED: &str = "describe its own error";

/// Appends an error.
pub fn put_error(out: &mut Vec<u8>, error: &FabricError) {
    match error {
        FabricError::OutOfBounds { space, address, len } => {
            out.put(&[1, space_number(*space)]);
            out.put_u64(address.to_bits());
            out.put_u64(*len);
        }
        FabricError::Misaligned { space, address } => {
            out.put(&[2, space_number(*space)]);
            out.put_u64(address.to_bits());
        }
        FabricError::TooLarge { asked, limit } => {
            out.put_u8(3);
            out.put_u64(*asked);
            out.put_u64(*limit);
        }
        FabricError::NoSuchServer { server } => put_numbered(out, 4, *server),
        FabricError::Fenced { client } => put_numbered(out, 5, client.0),
        FabricError::ServerLost { server } => put_numbered(out, 6, *server),
        FabricError::Disconnected { server } => put_numbered(out, 7, *server),
        FabricError::Unsupported { what } => put_worded(out, 8, what),
        FabricError::Refused(refusal) => {
            out.put_u8(9);
            put_refusal(out, refusal);
        }
        FabricError::OwnerStalled { client } => put_numbered(out, 10, client.0),
        FabricError::SlowRead { server } => put_numbered(out, 20, *server),
        FabricError::EpochEnded { client } => put_numbered(out, 21, client.0),
        FabricError::NoLeader => out.put_u8(22),
        FabricError::VolumeLost { volume } => put_numbered(out, 23, *volume),
        _ => put_worded(out, 8, UNNAMED),
    }
}

/// Decodes the error that is all of `bytes`.
pub fn take_error(bytes: &[u8]) -> Result<FabricError, WireError> {
    let mut reader = Reader::new(bytes);
    let error = read_error(&mut reader)?;
    reader.finish()?;
    Ok(error)
}

/// Reads the next error.
pub fn read_error(reader: &mut Reader<'_>) -> Result<FabricError, WireError> {
    Ok(match reader.u8()? {
        1 => FabricError::OutOfBounds {
            space: reader.space()?,
            address: GlobalAddress::from_bits(reader.u64()?),
            len: reader.u64()?,
        },
        2 => FabricError::Misaligned {
            space: reader.space()?,
            address: GlobalAddress::from_bits(reader.u64()?),
        },
        3 => FabricError::TooLarge { asked: reader.u64()?, limit: reader.u64()? },
        4 => FabricError::NoSuchServer { server: reader.u16()? },
        5 => FabricError::Fenced { client: ComputeId(reader.u16()?) },
        6 => FabricError::ServerLost { server: reader.u16()? },
        7 => FabricError::Disconnected { server: reader.u16()? },
        8 => FabricError::Unsupported { what: known(reader.text()?) },
        9 => FabricError::Refused(read_refusal(reader)?),
        10 => FabricError::OwnerStalled { client: ComputeId(reader.u16()?) },
        20 => FabricError::SlowRead { server: reader.u16()? },
        21 => FabricError::EpochEnded { client: ComputeId(reader.u16()?) },
        22 => FabricError::NoLeader,
        23 => FabricError::VolumeLost { volume: reader.u16()? },
        other => return Err(WireError::Unknown { what: "error", found: other.into() }),
    })
}

fn put_refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    match refusal {
        Refusal::OutOfMemory => out.put_u8(1),
        Refusal::TooManyMembers => out.put_u8(2),
        Refusal::TooManyTrees => out.put_u8(3),
        Refusal::NoSuchTree { name } => put_worded(out, 4, name),
        Refusal::BadName => out.put_u8(5),
        Refusal::NotHere => out.put_u8(6),
        Refusal::NotAMember { client } => put_numbered(out, 7, client.0),
        Refusal::Fenced { client } => put_numbered(out, 8, client.0),
        Refusal::BadRequest { what } => put_worded(out, 9, what),
        Refusal::Unreachable { server } => put_numbered(out, 10, *server),
        Refusal::OtherCluster { server } => put_numbered(out, 11, *server),
        Refusal::OtherMemory { server } => put_numbered(out, 12, *server),
        Refusal::OtherCount { servers } => put_numbered(out, 13, *servers),
        Refusal::NotLeader { leader } => put_worded(out, 14, leader),
        Refusal::Forming { hosts, expected } => {
            put_numbered(out, 15, *hosts);
            out.put_u16(*expected);
        }
        Refusal::NoSuchHost { host } => put_numbered(out, 16, *host),
        Refusal::LastCopy { volume } => put_numbered(out, 17, *volume),
        Refusal::TooFewHosts { left, replicas } => {
            put_numbered(out, 18, *left);
            out.put_u16(*replicas);
        }
        Refusal::NoRoom { copies, room } => {
            put_numbered(out, 19, *copies);
            out.put_u16(*room);
        }
        Refusal::HostLeft { host } => put_numbered(out, 20, *host),
        _ => put_worded(out, 9, UNNAMED),
    }
}

fn read_refusal(reader: &mut Reader<'_>) -> Result<Refusal, WireError> {
    Ok(match reader.u8()? {
        1 => Refusal::OutOfMemory,
        2 => Refusal::TooManyMembers,
        3 => Refusal::TooManyTrees,
        4 => Refusal::NoSuchTree { name: reader.text()?.to_owned() },
        5 => Refusal::BadName,
        6 => Refusal::NotHere,
        7 => Refusal::NotAMember { client: ComputeId(reader.u16()?) },
        8 => Refusal::Fenced { client: ComputeId(reader.u16()?) },
        9 => Refusal::BadRequest { what: known(reader.text()?) },
        10 => Refusal::Unreachable { server: reader.u16()? },
        11 => Refusal::OtherCluster { server: reader.u16()? },
        12 => Refusal::OtherMemory { server: reader.u16()? },
        13 => Refusal::OtherCount { servers: reader.u16()? },
        14 => Refusal::NotLeader { leader: reader.text()?.to_owned() },
        15 => Refusal::Forming { hosts: reader.u16()?, expected: reader.u16()? },
        16 => Refusal::NoSuchHost { host: reader.u16()? },
        17 => Refusal::LastCopy { volume: reader.u16()? },
        18 => Refusal::TooFewHosts { left: reader.u16()?, replicas: reader.u16()? },
        19 => Refusal::NoRoom { copies: reader.u16()?, room: reader.u16()? },
        20 => Refusal::HostLeft { host: reader.u16()? },
        other => return Err(WireError::Unknown { what: "refusal", found: other.into() }),
    })
}

fn put_numbered(out: &mut Vec<u8>, number: u8, value: u16) {
    out.put_u8(number);
    out.put_u16(value);
}

fn put_worded(out: &mut Vec<u8>, number: u8, text: &str) {
    out.put_u8(number);
    out.put_text(text);
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn every_error_is_decoded_to_what_was_encoded() {
        samples::round_trips(&samples::errors(), put_error, take_error);
    }

    #[test]
    fn garbage_is_never_read_past() {
        samples::garbage(&samples::errors(), put_error, take_error);
    }
}
