//! Lanes of the dead.
//!
//! Nobody but their holder changes a lane that is taken, and the holder is fenced: whatever lane holds its id keeps it until it
//! is swept. Each is given back by a CAS that compares the id, so that no other's lane can be.
//!
//! The lane tables are read whole, once for all dead members together: 256 KiB a server, whatever the size of the cluster. Noting
//! each lane before it is taken would cost every operation a WRITE.

use super::Recoverer;
use crate::error::Error;
use crate::mutant::{Mutant, planted};
use sherman_fabric::{ClientId, Endpoint};
use sherman_memory_server::LaneWidth;

/// Lanes given back by one list.
const LANES_PER_LIST: usize = 32;

impl<E: Endpoint> Recoverer<'_, E> {
    /// Gives back every lane that the dead hold, on every server.
    pub(super) async fn sweep(&mut self) -> Result<(), Error> {
        let going = self.going();
        if going.is_empty() {
            return Ok(());
        }
        for server in 0..self.op.endpoint().servers() {
            self.expect_alive()?;
            let geometry = *self.op.worker.compute.geometry_of(server);
            let lock = geometry.lock;
            let bytes = u64::from(lock.count) * lock.width.bytes();
            let table = self.read_table(server, lock.space, lock.offset, bytes).await?;
            let holder = |lane: &[u8]| match lock.width {
                LaneWidth::Bits16 => u64::from(crate::node::get_u16(lane, 0)),
                LaneWidth::Bits64 => crate::node::get_u64(lane, 0),
            };
            let is_dead = |holder: u64| {
                let id = u16::try_from(holder).map(ClientId).ok();
                id.is_some_and(|id| going.binary_search(&id).is_ok()) || planted(Mutant::SweepsOthers) && holder != 0
            };
            let lanes = table.chunks_exact(lock.width.bytes() as usize).zip(0_u32..);
            let lanes = lanes.map(|(lane, number)| (number, holder(lane))).filter(|(_, holder)| is_dead(*holder));
            let lanes: Vec<(u32, u64)> = lanes.collect();
            for some in lanes.chunks(LANES_PER_LIST) {
                let mut list = self.op.endpoint().list(server);
                for &(lane, holder) in some {
                    let (space, word, mask, shift) = geometry.lane_word(lane);
                    list.masked_cas(space, word, holder << shift, 0, mask);
                    if planted(Mutant::SweepsOthers) {
                        let (at, bytes) = geometry.lane_byte_range(lane);
                        list.write(space, at, &[0; 8][..bytes as usize]);
                    }
                }
                self.execute(list).await?;
            }
            for (_, holder) in lanes {
                if let Some(patient) = self.dead.get_mut(&ClientId(holder as u16)) {
                    patient.report.lanes += 1;
                }
            }
        }
        Ok(())
    }
}
