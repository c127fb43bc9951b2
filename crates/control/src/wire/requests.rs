//! Control requests as bytes: the body of a `Call`.

use super::bytes::{Put, Reader, WireError};
use super::group::{
    PROGRESS, STORE_AT_LEAST, put_offer, put_progress, put_store, read_offer, read_progress, read_store,
};
use sherman_fabric::control::{ChunkClass, MOST_FREED, Spreading, TreeSpec};
use sherman_fabric::{ComputeId, Request, RequestId, TreeTypes, TypeName};

/// Appends a request. Fails, and appends nothing, if this version of the protocol does not know it.
pub fn put_request(out: &mut Vec<u8>, request: &Request) -> Result<(), WireError> {
    match request {
        Request::Join => out.put_u8(1),
        Request::Leave => out.put_u8(2),
        Request::AllocSpans { class, count } => {
            out.put_u8(3);
            put_class(out, class);
            out.put_u16(*count);
        }
        Request::FreeSpans { spans } if spans.len() > MOST_FREED => {
            let (asked, limit) = (spans.len() as u64, MOST_FREED as u64);
            return Err(WireError::TooLarge { what: "spans to give back", asked, limit });
        }
        Request::FreeSpans { spans } => {
            out.put_u8(4);
            out.put_several(spans, |out, (offset, free)| {
                out.put_u64(*offset);
                out.put_u8((*free).into());
            });
        }
        Request::RedoArea => out.put_u8(5),
        Request::CreateTree { name, spec, types, asked: RequestId { client, incarnation, number } } => {
            out.put_u8(6);
            out.put_text(name);
            put_spec(out, spec);
            put_types(out, types.as_ref());
            out.put_u16(client.0);
            out.put_u32(*incarnation);
            out.put_u64(*number);
        }
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
        Request::SpansOf { client, from } => {
            put_whom(out, 17, *client);
            out.put_u64(*from);
        }
        Request::Retire { client } => put_whom(out, 18, *client),
        Request::Members => out.put_u8(19),
        Request::Stats => out.put_u8(20),
        Request::Servers => out.put_u8(21),
        Request::DeclareLost { server } => {
            out.put_u8(22);
            out.put_u16(*server);
        }
        Request::Relieve { client } => put_whom(out, 23, *client),
        Request::Short => out.put_u8(24),
        Request::Succeed { client, incarnation } => {
            put_whom(out, 25, *client);
            out.put_u32(*incarnation);
        }
        Request::Activate => out.put_u8(26),
        Request::Release => out.put_u8(27),
        Request::FreeId { client } => put_whom(out, 28, *client),
        Request::Volumes => out.put_u8(29),
        Request::Mirror { copy, epoch, number, stores, fenced } => {
            out.put_u8(30);
            out.put_u16(*copy);
            out.put_u64(*epoch);
            out.put_u64(*number);
            out.put_several(stores, put_store);
            out.put_u16(fenced.unwrap_or(ComputeId::NOBODY).0);
        }
        Request::Cluster => out.put_u8(32),
        Request::Register { offer } => {
            out.put_u8(33);
            put_offer(out, offer);
        }
        Request::Alive { host, incarnation, progress } => {
            out.put_u8(34);
            out.put_u16(*host);
            out.put_u32(*incarnation);
            out.put_several(progress, put_progress);
        }
        Request::Copied { copy } => {
            out.put_u8(35);
            out.put_u16(*copy);
        }
        Request::Settled { copy, epoch } => {
            out.put_u8(36);
            out.put_u16(*copy);
            out.put_u64(*epoch);
        }
        Request::Digest { copy, offset, len } => {
            out.put_u8(37);
            out.put_u16(*copy);
            out.put_u64(*offset);
            out.put_u32(*len);
        }
        Request::Drain { host, cancel } => {
            out.put_u8(38);
            out.put_u16(*host);
            out.put_u8((*cancel).into());
        }
        Request::Rebalance { when } => {
            out.put_u8(39);
            out.put_u8(match when {
                Spreading::Now => 1,
                Spreading::Always => 2,
                Spreading::Never => 3,
            });
        }
        Request::Return { host, incarnation, offer } => {
            out.put_u8(44);
            out.put_u16(*host);
            out.put_u32(*incarnation);
            put_offer(out, offer);
        }
        _ => return Err(WireError::NoEncoding),
    }
    Ok(())
}

/// Decodes the request that is all of `bytes`.
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
        3 => Request::AllocSpans { class: read_class(reader)?, count: reader.u16()? },
        4 => {
            let one = |reader: &mut Reader<'_>| {
                Ok((reader.u64()?, reader.flag("flag for a span with free places")?))
            };
            Request::FreeSpans { spans: reader.at_most("spans to give back", MOST_FREED, 9, one)? }
        }
        5 => Request::RedoArea,
        6 => Request::CreateTree {
            name: reader.text()?.to_owned(),
            spec: read_spec(reader)?,
            types: read_types(reader)?,
            asked: read_request_id(reader)?,
        },
        8 => Request::OpenTree { name: reader.text()?.to_owned() },
        9 => Request::ListTrees,
        10 => Request::DropTree { name: reader.text()?.to_owned(), id: reader.u32()? },
        11 => Request::Fence { client: read_client(reader)? },
        12 => Request::Usage,
        13 => Request::Renew,
        14 => Request::Depart,
        15 => Request::Suspect { client: read_client(reader)? },
        16 => Request::Condemn { client: read_client(reader)? },
        17 => Request::SpansOf { client: read_client(reader)?, from: reader.u64()? },
        18 => Request::Retire { client: read_client(reader)? },
        19 => Request::Members,
        20 => Request::Stats,
        21 => Request::Servers,
        22 => Request::DeclareLost { server: reader.u16()? },
        23 => Request::Relieve { client: read_client(reader)? },
        24 => Request::Short,
        25 => Request::Succeed { client: read_client(reader)?, incarnation: reader.u32()? },
        26 => Request::Activate,
        27 => Request::Release,
        28 => Request::FreeId { client: read_client(reader)? },
        29 => Request::Volumes,
        30 => Request::Mirror {
            copy: reader.u16()?,
            epoch: reader.u64()?,
            number: reader.u64()?,
            stores: reader.several(STORE_AT_LEAST, read_store)?,
            fenced: Some(read_client(reader)?).filter(|client| *client != ComputeId::NOBODY),
        },
        32 => Request::Cluster,
        33 => Request::Register { offer: read_offer(reader)? },
        34 => Request::Alive {
            host: reader.u16()?,
            incarnation: reader.u32()?,
            progress: reader.several(PROGRESS, read_progress)?,
        },
        35 => Request::Copied { copy: reader.u16()? },
        36 => Request::Settled { copy: reader.u16()?, epoch: reader.u64()? },
        37 => Request::Digest { copy: reader.u16()?, offset: reader.u64()?, len: reader.u32()? },
        38 => Request::Drain { host: reader.u16()?, cancel: reader.flag("flag for a drain that ends")? },
        39 => Request::Rebalance {
            when: match reader.u8()? {
                1 => Spreading::Now,
                2 => Spreading::Always,
                3 => Spreading::Never,
                other => return Err(WireError::Unknown { what: "spreading", found: other.into() }),
            },
        },
        44 => {
            let (host, incarnation) = (reader.u16()?, reader.u32()?);
            Request::Return { host, incarnation, offer: read_offer(reader)? }
        }
        other => return Err(WireError::Unknown { what: "request", found: other.into() }),
    })
}

fn put_whom(out: &mut Vec<u8>, number: u8, client: ComputeId) {
    out.put_u8(number);
    out.put_u16(client.0);
}

fn read_request_id(reader: &mut Reader<'_>) -> Result<RequestId, WireError> {
    Ok(RequestId { client: read_client(reader)?, incarnation: reader.u32()?, number: reader.u64()? })
}

fn read_client(reader: &mut Reader<'_>) -> Result<ComputeId, WireError> {
    reader.u16().map(ComputeId)
}

pub(super) fn put_class(out: &mut Vec<u8>, class: &ChunkClass) {
    out.put_u32(class.node_bytes);
    out.put_u8(class.format);
}

pub(super) fn read_class(reader: &mut Reader<'_>) -> Result<ChunkClass, WireError> {
    Ok(ChunkClass { node_bytes: reader.u32()?, format: reader.u8()? })
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

pub(super) fn put_types(out: &mut Vec<u8>, types: Option<&TreeTypes>) {
    out.put_u8(types.is_some().into());
    for name in types.iter().flat_map(|types| [&types.key, &types.value]) {
        out.put_text(name.as_str());
    }
}

pub(super) fn read_types(reader: &mut Reader<'_>) -> Result<Option<TreeTypes>, WireError> {
    if !reader.flag("flag for a tree with types")? {
        return Ok(None);
    }
    let mut name = || {
        let text = reader.text()?;
        let unknown = WireError::Unknown { what: "length of a type name", found: text.len() as u64 };
        TypeName::new(text).ok_or(unknown)
    };
    Ok(Some(TreeTypes { key: name()?, value: name()? }))
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
        let types = TreeTypes::new(&"x".repeat(31), &"x".repeat(31));
        let asked = RequestId::default();
        let create = Request::CreateTree { name: "x".repeat(128), spec, types, asked };
        put_request(&mut out, &create).unwrap();
        let most = super::super::frame::MAX_CALL as usize;
        assert!(out.len() < most / 2);
        out.clear();
        put_request(&mut out, &Request::FreeSpans { spans: vec![(u64::MAX, true); MOST_FREED] }).unwrap();
        assert!(out.len() < most);
    }

    #[test]
    fn a_type_name_of_a_wrong_length_is_refused() {
        for (key, value) in [("", "u64"), ("u64", ""), (&"x".repeat(32)[..], "u64"), ("u64", &"x".repeat(99))]
        {
            let mut bytes = vec![1];
            bytes.put_text(key);
            bytes.put_text(value);
            let refused = read_types(&mut Reader::new(&bytes));
            assert!(matches!(refused, Err(WireError::Unknown { .. })), "{key:?} {value:?}: {refused:?}");
        }
        assert!(read_types(&mut Reader::new(&[2])).is_err());
        assert_eq!(read_types(&mut Reader::new(&[0])), Ok(None));
    }

    #[test]
    fn more_spans_than_one_request_gives_back_are_neither_sent_nor_taken() {
        let spans = vec![(64, true); MOST_FREED + 1];
        let mut out = vec![7];
        let too_many = put_request(&mut out, &Request::FreeSpans { spans: spans.clone() });
        assert!(matches!(too_many, Err(WireError::TooLarge { .. })) && out == [7]);
        let mut hostile = vec![4];
        hostile.put_several(&spans, |out, (offset, free)| {
            out.put_u64(*offset);
            out.put_u8((*free).into());
        });
        assert!(matches!(take_request(&hostile), Err(WireError::TooLarge { .. })));
        let mut claims = vec![4];
        claims.put_u32(u32::MAX);
        assert!(matches!(take_request(&claims), Err(WireError::TooLarge { .. })));
        claims.truncate(1);
        claims.put_u32(MOST_FREED as u32);
        assert_eq!(take_request(&claims), Err(WireError::Truncated));
    }
}
