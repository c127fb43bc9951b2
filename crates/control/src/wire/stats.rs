//! A server's counters as bytes.
//!
//! The number of counters comes first, so that a later version may add some. A reader skips counters that it
//! does not know, and takes missing ones as 0.

use super::bytes::{Put, Reader, WireError, space_number};
use sherman_fabric::ServerStats;
use sherman_fabric::stats::{HotWord, RefusedCount};

/// The numeric counters, in the order of the wire.
fn numbers(stats: &mut ServerStats) -> [&mut u64; 29] {
    [
        &mut stats.boot,
        &mut stats.uptime_nanos,
        &mut stats.host_bytes,
        &mut stats.on_chip_bytes,
        &mut stats.connections,
        &mut stats.accepted,
        &mut stats.lists,
        &mut stats.lists_failed,
        &mut stats.reads,
        &mut stats.writes,
        &mut stats.cas,
        &mut stats.cas_failed,
        &mut stats.faa,
        &mut stats.bytes_read,
        &mut stats.bytes_written,
        &mut stats.bytes_in,
        &mut stats.bytes_out,
        &mut stats.calls,
        &mut stats.fences,
        &mut stats.ids,
        &mut stats.ids_free,
        &mut stats.members_live,
        &mut stats.members_leaving,
        &mut stats.members_dead,
        &mut stats.members_waiting,
        &mut stats.chunks,
        &mut stats.chunks_used,
        &mut stats.bytes_owned,
        &mut stats.bytes_free,
    ]
}

/// Appends the counters.
pub(super) fn put_stats(out: &mut Vec<u8>, stats: &ServerStats) {
    out.put_u16(stats.server);
    let mut copy = stats.clone();
    out.put_several(&numbers(&mut copy), |out, number| out.put_u64(**number));
    out.put_several(&stats.refused, |out, refused| {
        out.put_text(&refused.reason);
        out.put_u64(refused.count);
    });
    out.put_several(&stats.hottest, |out, hot| {
        out.put_u8(space_number(hot.space));
        out.put_u64(hot.offset);
        out.put_u64(hot.failed);
    });
}

/// Reads the next counters.
pub(super) fn read_stats(reader: &mut Reader<'_>) -> Result<ServerStats, WireError> {
    let mut stats = ServerStats { server: reader.u16()?, ..ServerStats::default() };
    let found = reader.several(8, Reader::u64)?;
    numbers(&mut stats).into_iter().zip(found).for_each(|(number, found)| *number = found);
    stats.refused = reader
        .several(12, |reader| Ok(RefusedCount { reason: reader.text()?.to_owned(), count: reader.u64()? }))?;
    stats.hottest = reader.several(17, |reader| {
        Ok(HotWord { space: reader.space()?, offset: reader.u64()?, failed: reader.u64()? })
    })?;
    Ok(stats)
}
