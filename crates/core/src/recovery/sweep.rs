//! Lanes of the dead.
//!
//! Nobody but their holder changes a lane that is taken, and the holder is fenced: whatever lane holds its id keeps it until it
//! is swept. Each is given back by a CAS that compares the id, so that no other's lane can be.

use super::Recoverer;
use crate::error::Error;
use crate::mutant::{Mutant, planted};
use sherman_fabric::Endpoint;
use sherman_memory_server::LaneWidth;

/// Lanes given back by one list.
const LANES_PER_LIST: usize = 32;

impl<E: Endpoint> Recoverer<'_, E> {
    /// Gives back every lane that the dead one holds, on every server.
    pub(super) async fn sweep(&mut self) -> Result<(), Error> {
        for server in 0..self.op.endpoint().servers() {
            self.expect_alive()?;
            let geometry = *self.op.worker.compute.geometry_of(server);
            let lock = geometry.lock;
            let bytes = u64::from(lock.count) * lock.width.bytes();
            let table = self.read_table(server, lock.space, lock.offset, bytes).await?;
            let id = u64::from(self.dead.0);
            let holder = |lane: &[u8]| match lock.width {
                LaneWidth::Bits16 => u64::from(crate::node::get_u16(lane, 0)),
                LaneWidth::Bits64 => crate::node::get_u64(lane, 0),
            };
            let holds = |lane: &[u8]| holder(lane) == id || planted(Mutant::SweepsOthers) && holder(lane) != 0;
            let lanes = table.chunks_exact(lock.width.bytes() as usize).zip(0_u32..);
            let lanes: Vec<u32> = lanes.filter(|(lane, _)| holds(lane)).map(|(_, lane)| lane).collect();
            for some in lanes.chunks(LANES_PER_LIST) {
                let mut list = self.op.endpoint().list(server);
                for &lane in some {
                    let (space, word, mask, shift) = geometry.lane_word(lane);
                    list.masked_cas(space, word, id << shift, 0, mask);
                    if planted(Mutant::SweepsOthers) {
                        let (at, bytes) = geometry.lane_byte_range(lane);
                        list.write(space, at, &[0; 8][..bytes as usize]);
                    }
                }
                let outcome = self.op.execute(list).await;
                if let Some(list) = self.unless_lost(server, outcome)? {
                    self.op.endpoint().recycle(list);
                }
            }
            self.report.lanes += lanes.len() as u64;
        }
        Ok(())
    }
}
