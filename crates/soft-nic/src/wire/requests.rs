//! Control requests as bytes: the body of a `Call`.

use super::bytes::{Put, Reader, WireError};
use sherman_fabric::control::{ChunkClass, TreeSpec};
use sherman_fabric::{ClientId, Request};

/// Appends a request. Fails, having appended nothing, if this version of the protocol does not know it.
pub fn put_request(out: &mut Vec<u8>, request: &Request) -> Result<(), WireError> {
    match request {
        Request::Join => out.put_u8(1),
        Request::Leave => out.put_u8(2),
        Request::AllocChunk { class } => {
            out.put_u8(3);
            out.put_u32(class.node_bytes);
            out.put_u8(class.format);
        }
        Request::FreeChunk { offset } => {
            out.put_u8(4);
            out.put_u64(*offset);
        }
        Request::RedoArea => out.put_u8(5),
        Request::CreateTree { name, spec, id, root } => {
            out.put_u8(6);
            out.put_text(name);
            put_spec(out, spec);
            out.put_u32(*id);
            out.put_u64(*root);
        }
        Request::NewTreeId => out.put_u8(7),
        Request::OpenTree { name } => {
            out.put_u8(8);
            out.put_text(name);
        }
        Request::ListTrees => out.put_u8(9),
        Request::DropTree { name, id } => {
            out.put_u8(10);
            out.put_text(name);
            out.put_u32(*id);
        }
        Request::Fence { client } => put_whom(out, 11, *client),
        Request::Usage => out.put_u8(12),
        Request::Renew => out.put_u8(13),
        Request::Depart => out.put_u8(14),
        Request::Suspect { client } => put_whom(out, 15, *client),
        Request::Condemn { client } => put_whom(out, 16, *client),
        Request::TakeOver { client } => put_whom(out, 17, *client),
        Request::Retire { client } => put_whom(out, 18, *client),
        Request::Members => out.put_u8(19),
        Request::Stats => out.put_u8(20),
        Request::Relieve { client } => put_whom(out, 23, *client),
        Request::Servers => out.put_u8(21),
        Request::DeclareLost { server } => {
            out.put_u8(22);
            out.put_u16(*server);
        }
        _ => return Err(WireError::NoEncoding),
    }
    Ok(())
}

/// The request that is all of `bytes`.
pub fn take_request(bytes: &[u8]) -> Result<Request, WireError> {
    let mut reader = Reader::new(bytes);
    let request = read_request(&mut reader)?;
    reader.finish()?;
    Ok(request)
}

fn read_request(reader: &mut Reader<'_>) -> Result<Request, WireError> {
    Ok(match reader.u8()? {
        1 => Request::Join,
        2 => Request::Leave,
        3 => Request::AllocChunk { class: ChunkClass { node_bytes: reader.u32()?, format: reader.u8()? } },
        4 => Request::FreeChunk { offset: reader.u64()? },
        5 => Request::RedoArea,
        6 => Request::CreateTree {
            name: reader.text()?.to_owned(),
            spec: read_spec(reader)?,
            id: reader.u32()?,
            root: reader.u64()?,
        },
        7 => Request::NewTreeId,
        8 => Request::OpenTree { name: reader.text()?.to_owned() },
        9 => Request::ListTrees,
        10 => Request::DropTree { name: reader.text()?.to_owned(), id: reader.u32()? },
        11 => Request::Fence { client: read_client(reader)? },
        12 => Request::Usage,
        13 => Request::Renew,
        14 => Request::Depart,
        15 => Request::Suspect { client: read_client(reader)? },
        16 => Request::Condemn { client: read_client(reader)? },
        17 => Request::TakeOver { client: read_client(reader)? },
        18 => Request::Retire { client: read_client(reader)? },
        19 => Request::Members,
        20 => Request::Stats,
        23 => Request::Relieve { client: read_client(reader)? },
        21 => Request::Servers,
        22 => Request::DeclareLost { server: reader.u16()? },
        other => return Err(WireError::Unknown { what: "request", found: other.into() }),
    })
}

fn put_whom(out: &mut Vec<u8>, number: u8, client: ClientId) {
    out.put_u8(number);
    out.put_u16(client.0);
}

fn read_client(reader: &mut Reader<'_>) -> Result<ClientId, WireError> {
    reader.u16().map(ClientId)
}

pub(super) fn put_spec(out: &mut Vec<u8>, spec: &TreeSpec) {
    out.put_u8(spec.format);
    out.put_u16(spec.key_len);
    out.put_u32(spec.value_len);
    out.put_u32(spec.leaf_bytes);
    out.put_u32(spec.internal_bytes);
}

pub(super) fn read_spec(reader: &mut Reader<'_>) -> Result<TreeSpec, WireError> {
    Ok(TreeSpec {
        format: reader.u8()?,
        key_len: reader.u16()?,
        value_len: reader.u32()?,
        leaf_bytes: reader.u32()?,
        internal_bytes: reader.u32()?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn every_request_is_decoded_to_what_was_encoded() {
        samples::round_trips(&samples::requests(), |out, each| put_request(out, each).unwrap(), take_request);
    }

    #[test]
    fn garbage_is_never_read_past() {
        samples::garbage(&samples::requests(), |out, each| put_request(out, each).unwrap(), take_request);
    }

    #[test]
    fn the_longest_request_fits_a_call() {
        let spec = TreeSpec { format: 0, key_len: 8, value_len: 8, leaf_bytes: 1024, internal_bytes: 1024 };
        let mut out = Vec::new();
        put_request(&mut out, &Request::CreateTree { name: "x".repeat(128), spec, id: 1, root: 1 }).unwrap();
        assert!(out.len() < super::super::frame::MAX_CALL as usize / 2);
    }
}
