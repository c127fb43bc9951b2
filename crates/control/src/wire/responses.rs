//! Answers to control requests as bytes: the body of an `Answer`.

use super::bytes::{Put, Reader, WireError};
use super::group;
use super::requests::{put_class, put_spec, put_types, read_class, read_spec, read_types};
use super::stats::{put_stats, read_stats};
use sherman_fabric::control::{
    CatalogReply, Extent, MOST_DIGESTS, MOST_EXPIRED, MOST_LISTED, MemberInfo, Renewal, Span, Standing,
    TreeInfo, Usage,
};
use sherman_fabric::{ComputeId, GlobalAddress, Response, ServerInfo, Verdict};

/// Appends an answer. Fails, and appends nothing, if this version of the protocol does not know it.
pub fn put_response(out: &mut Vec<u8>, response: &Response) -> Result<(), WireError> {
    match response {
        Response::Done => out.put_u8(1),
        Response::Joined { client } => {
            out.put_u8(2);
            out.put_u16(client.0);
        }
        Response::Spans(spans) => {
            out.put_u8(3);
            out.put_several(spans, put_span);
        }
        Response::RedoArea(Extent { offset, bytes }) => {
            out.put_u8(4);
            out.put_u64(*offset);
            out.put_u64(*bytes);
        }
        Response::Tree(CatalogReply { info, created }) => {
            out.put_u8(6);
            put_tree(out, info);
            out.put_u8((*created).into());
        }
        Response::Trees(trees) => {
            out.put_u8(7);
            out.put_several(trees, put_tree);
        }
        Response::Usage(Usage { chunks, chunks_used, chunk_bytes, bytes_owned, bytes_free, members }) => {
            out.put_u8(8);
            let numbers = [*chunks, *chunks_used, *chunk_bytes, *bytes_owned, *bytes_free];
            numbers.into_iter().for_each(|number| out.put_u64(number));
            out.put_several(members, |out, member| out.put_u16(member.0));
        }
        Response::Renewed(Renewal { expired, short }) => {
            out.put(&[9, (*short).into()]);
            out.put_several(expired, |out, client| out.put_u16(client.0));
        }
        Response::Verdict(verdict) => {
            out.put_u8(10);
            put_verdict(out, verdict);
        }
        Response::Members(members) => {
            out.put_u8(11);
            out.put_several(members, put_member);
        }
        Response::Stats(stats) => {
            out.put_u8(12);
            put_stats(out, stats);
        }
        Response::Servers(servers) => {
            out.put_u8(13);
            out.put_several(servers, |out, server| {
                out.put_u64(server.memory);
                out.put_u8(server.lost.into());
            });
        }
        Response::Active { incarnation } => {
            out.put_u8(14);
            out.put_u32(*incarnation);
        }
        Response::Volumes(table) => {
            out.put_u8(15);
            out.put_several(table, |out, byte| out.put_u8(*byte));
        }
        Response::Cluster(info) => {
            out.put_u8(16);
            group::put_cluster(out, info);
        }
        Response::Registered(registration) => {
            out.put_u8(17);
            group::put_registration(out, registration);
        }
        Response::Admitted(admission) => {
            out.put_u8(18);
            group::put_admission(out, admission);
        }
        Response::Digests(digests) => {
            out.put_u8(19);
            out.put_several(digests, |out, digest| out.put_u64(*digest));
        }
        _ => return Err(WireError::NoEncoding),
    }
    Ok(())
}

/// Decodes the answer that is all of `bytes`.
pub fn take_response(bytes: &[u8]) -> Result<Response, WireError> {
    let mut reader = Reader::new(bytes);
    let response = read_response(&mut reader)?;
    reader.finish()?;
    Ok(response)
}

fn read_response(reader: &mut Reader<'_>) -> Result<Response, WireError> {
    Ok(match reader.u8()? {
        1 => Response::Done,
        2 => Response::Joined { client: ComputeId(reader.u16()?) },
        3 => Response::Spans(reader.at_most("spans", MOST_LISTED, SPAN_BYTES, read_span)?),
        4 => Response::RedoArea(Extent { offset: reader.u64()?, bytes: reader.u64()? }),
        6 => Response::Tree(CatalogReply {
            info: read_tree(reader)?,
            created: reader.flag("flag for a tree that was created")?,
        }),
        7 => Response::Trees(reader.several(TREE_AT_LEAST, read_tree)?),
        8 => Response::Usage(Usage {
            chunks: reader.u64()?,
            chunks_used: reader.u64()?,
            chunk_bytes: reader.u64()?,
            bytes_owned: reader.u64()?,
            bytes_free: reader.u64()?,
            members: reader.several(2, |reader| reader.u16().map(ComputeId))?,
        }),
        9 => {
            let short = reader.flag("flag for a member that lacks memory")?;
            let expired =
                reader.at_most("expired members", MOST_EXPIRED, 2, |reader| reader.u16().map(ComputeId))?;
            Response::Renewed(Renewal { expired, short })
        }
        10 => Response::Verdict(read_verdict(reader)?),
        11 => Response::Members(reader.several(MEMBER_BYTES, read_member)?),
        12 => Response::Stats(Box::new(read_stats(reader)?)),
        13 => Response::Servers(reader.several(SERVER_BYTES, |reader| {
            Ok(ServerInfo { memory: reader.u64()?, lost: reader.flag("flag for a lost server")? })
        })?),
        14 => Response::Active { incarnation: reader.u32()? },
        15 => Response::Volumes(reader.several(1, Reader::u8)?),
        16 => Response::Cluster(Box::new(group::read_cluster(reader)?)),
        17 => Response::Registered(Box::new(group::read_registration(reader)?)),
        18 => Response::Admitted(Box::new(group::read_admission(reader)?)),
        19 => Response::Digests(reader.at_most("digests", MOST_DIGESTS, 8, Reader::u64)?),
        other => return Err(WireError::Unknown { what: "answer", found: other.into() }),
    })
}

const SPAN_BYTES: usize = 5 + 8 + 8 + 1;

fn put_span(out: &mut Vec<u8>, span: &Span) {
    put_class(out, &span.class);
    out.put_u64(span.offset);
    out.put_u64(span.bytes);
    out.put_u8(span.fresh.into());
}

fn read_span(reader: &mut Reader<'_>) -> Result<Span, WireError> {
    let (class, offset, bytes) = (read_class(reader)?, reader.u64()?, reader.u64()?);
    Ok(Span { class, offset, bytes, fresh: reader.flag("flag for a span that was never used")? })
}

/// Bytes of a tree with an empty name and without types.
const TREE_AT_LEAST: usize = 4 + 4 + 15 + 1 + 8;

fn put_tree(out: &mut Vec<u8>, info: &TreeInfo) {
    out.put_u32(info.id);
    out.put_text(&info.name);
    put_spec(out, &info.spec);
    put_types(out, info.types.as_ref());
    out.put_u64(info.root_word.to_bits());
}

fn read_tree(reader: &mut Reader<'_>) -> Result<TreeInfo, WireError> {
    Ok(TreeInfo {
        id: reader.u32()?,
        name: reader.text()?.to_owned(),
        spec: read_spec(reader)?,
        types: read_types(reader)?,
        root_word: GlobalAddress::from_bits(reader.u64()?),
    })
}

fn put_verdict(out: &mut Vec<u8>, verdict: &Verdict) {
    let (number, word) = match verdict {
        Verdict::Alive { lease_left } => (1, *lease_left),
        Verdict::Recover => (2, 0),
        Verdict::Recovering { by } => (3, by.0.into()),
        Verdict::Displaced { by } => (4, by.0.into()),
        Verdict::Gone => (5, 0),
        Verdict::Inherit => (6, 0),
    };
    out.put_u8(number);
    out.put_u64(word);
}

fn read_verdict(reader: &mut Reader<'_>) -> Result<Verdict, WireError> {
    let (number, word) = (reader.u8()?, reader.u64()?);
    let unknown = |what, found| WireError::Unknown { what, found };
    let client = || u16::try_from(word).map(ComputeId).map_err(|_| unknown("client", word));
    Ok(match number {
        1 => Verdict::Alive { lease_left: word },
        2 => Verdict::Recover,
        3 => Verdict::Recovering { by: client()? },
        4 => Verdict::Displaced { by: client()? },
        5 => Verdict::Gone,
        6 => Verdict::Inherit,
        other => return Err(unknown("verdict", other.into())),
    })
}

const SERVER_BYTES: usize = 8 + 1;
const MEMBER_BYTES: usize = 2 + 1 + 4 + 8 + 8 + 2;

fn put_member(out: &mut Vec<u8>, member: &MemberInfo) {
    out.put_u16(member.client.0);
    out.put_u8(match member.standing {
        Standing::Live => 1,
        Standing::Leaving => 2,
        Standing::Dead => 3,
    });
    out.put_u32(member.incarnation);
    out.put_u64(member.age);
    out.put_u64(member.lease_left);
    out.put_u16(member.recoverer.0);
}

fn read_member(reader: &mut Reader<'_>) -> Result<MemberInfo, WireError> {
    Ok(MemberInfo {
        client: ComputeId(reader.u16()?),
        standing: match reader.u8()? {
            1 => Standing::Live,
            2 => Standing::Leaving,
            3 => Standing::Dead,
            other => return Err(WireError::Unknown { what: "standing of a member", found: other.into() }),
        },
        incarnation: reader.u32()?,
        age: reader.u64()?,
        lease_left: reader.u64()?,
        recoverer: ComputeId(reader.u16()?),
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn every_answer_is_decoded_to_what_was_encoded() {
        samples::round_trips(
            &samples::responses(),
            |out, each| put_response(out, each).unwrap(),
            take_response,
        );
    }

    #[test]
    fn garbage_is_never_read_past() {
        samples::garbage(&samples::responses(), |out, each| put_response(out, each).unwrap(), take_response);
    }

    #[test]
    fn as_many_spans_as_one_answer_lists_fit_a_frame_and_more_are_refused() {
        let class = sherman_fabric::control::ChunkClass { node_bytes: 256, format: 1 };
        let span = Span { class, offset: u64::MAX, bytes: 1, fresh: true };
        let mut out = Vec::new();
        put_response(&mut out, &Response::Spans(vec![span; MOST_LISTED])).unwrap();
        assert!(out.len() < super::super::frame::MAX_FRAME as usize);
        assert!(take_response(&out).is_ok());
        out.clear();
        put_response(&mut out, &Response::Spans(vec![span; MOST_LISTED + 1])).unwrap();
        assert!(matches!(take_response(&out), Err(WireError::TooLarge { .. })));
    }

    #[test]
    fn a_renewal_that_names_too_many_is_refused() {
        let renewed = |count| Response::Renewed(Renewal { expired: vec![ComputeId(1); count], short: true });
        let mut out = Vec::new();
        put_response(&mut out, &renewed(MOST_EXPIRED)).unwrap();
        assert_eq!(take_response(&out), Ok(renewed(MOST_EXPIRED)));
        out.clear();
        put_response(&mut out, &renewed(MOST_EXPIRED + 1)).unwrap();
        assert!(matches!(take_response(&out), Err(WireError::TooLarge { .. })));
    }

    #[test]
    fn a_list_of_every_possible_member_fits_a_frame() {
        let client = ComputeId(1);
        let member = MemberInfo {
            client,
            standing: Standing::Live,
            incarnation: 1,
            age: 1,
            lease_left: 1,
            recoverer: ComputeId::NOBODY,
        };
        let mut out = Vec::new();
        put_response(&mut out, &Response::Members(vec![member; usize::from(u16::MAX)])).unwrap();
        assert!(out.len() < super::super::frame::MAX_FRAME as usize);
        assert_eq!(out.len(), 5 + usize::from(u16::MAX) * MEMBER_BYTES);
    }
}
