//! Commands of the control state as bytes: a number, the time, and the rest by the protocol's own codecs.

use sherman_control::wire::WireError;
use sherman_control::wire::bytes::{Put, Reader};
use sherman_control::wire::group::{put_offer, read_offer};
use sherman_control::wire::requests::{put_request, take_request};
use sherman_fabric::ComputeId;
use sherman_memory_server::cluster::Command;

/// A command as bytes.
///
/// # Errors
/// If it contains a request that the protocol has no bytes for.
pub fn encode(command: &Command) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::new();
    let mut head = |number: u8, now: &u64| {
        out.put_u8(number);
        out.put_u64(*now);
    };
    match command {
        Command::Lead { now } => head(1, now),
        Command::Register { now, offer } => {
            head(2, now);
            put_offer(&mut out, offer);
        }
        Command::HostLost { now, host, incarnation } => {
            head(3, now);
            out.put_u16(*host);
            out.put_u32(*incarnation);
        }
        Command::Join { now } => head(4, now),
        Command::Ask { now, client, incarnation, request } => {
            head(5, now);
            out.put_u16(client.0);
            out.put_u32(*incarnation);
            put_request(&mut out, request)?;
        }
        Command::Operate { now, request } => {
            head(6, now);
            put_request(&mut out, request)?;
        }
        Command::Tick { now } => head(7, now),
        Command::Copied { now, copy } => {
            head(8, now);
            out.put_u16(*copy);
        }
        Command::Settled { now, copy, epoch } => {
            head(9, now);
            out.put_u16(*copy);
            out.put_u64(*epoch);
        }
        Command::AbortMaking { now } => head(10, now),
        Command::HostReturned { now, host, incarnation, offer } => {
            head(20, now);
            out.put_u16(*host);
            out.put_u32(*incarnation);
            put_offer(&mut out, offer);
        }
    }
    Ok(out)
}

/// The command that is all of `bytes`.
pub(super) fn decode(bytes: &[u8]) -> Result<Command, WireError> {
    let mut reader = Reader::new(bytes);
    let (number, now) = (reader.u8()?, reader.u64()?);
    let command = match number {
        1 => Command::Lead { now },
        2 => Command::Register { now, offer: read_offer(&mut reader)? },
        3 => Command::HostLost { now, host: reader.u16()?, incarnation: reader.u32()? },
        4 => Command::Join { now },
        5 => {
            let (client, incarnation) = (ComputeId(reader.u16()?), reader.u32()?);
            Command::Ask { now, client, incarnation, request: take_request(reader.rest())? }
        }
        6 => Command::Operate { now, request: take_request(reader.rest())? },
        7 => Command::Tick { now },
        8 => Command::Copied { now, copy: reader.u16()? },
        9 => Command::Settled { now, copy: reader.u16()?, epoch: reader.u64()? },
        10 => Command::AbortMaking { now },
        20 => {
            let (host, incarnation) = (reader.u16()?, reader.u32()?);
            Command::HostReturned { now, host, incarnation, offer: read_offer(&mut reader)? }
        }
        other => return Err(WireError::Unknown { what: "command", found: other.into() }),
    };
    reader.finish()?;
    Ok(command)
}
