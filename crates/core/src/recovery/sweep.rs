//! Gives back the lanes of dead members.
//!
//! Only its holder changes a lane that is taken, and the holder is fenced. So a lane with a dead member's id
//! keeps that id until it is swept. A CAS that compares the id gives each lane back, so a sweep cannot free
//! the lane of another client.
//!
//! The recoverer reads the lane tables whole, once for all dead members together: 256 KiB per server,
//! whatever the size of the cluster. A note of each lane before it is taken would cost every operation a
//! WRITE.

use super::Recoverer;
use crate::error::Error;
use sherman_fabric::{ComputeId, Endpoint};
use sherman_layout::LaneWidth;

/// Lanes that one list gives back.
const LANES_PER_LIST: usize = 32;

/// Whether the holder of a lane is one of the `dead` members, which are in order.
fn is_dead(holder: u64, dead: &[ComputeId]) -> bool {
    seam!(recovery::is_dead(holder));
    let id = u16::try_from(holder).map(ComputeId).ok();
    id.is_some_and(|id| dead.binary_search(&id).is_ok())
}

impl<E: Endpoint> Recoverer<'_, E> {
    /// Gives back every lane that a dead member holds, on every server.
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
            let lanes = table.chunks_exact(lock.width.bytes() as usize).zip(0_u32..);
            let lanes = lanes
                .map(|(lane, number)| (number, holder(lane)))
                .filter(|(_, holder)| is_dead(*holder, &going));
            let lanes: Vec<(u32, u64)> = lanes.collect();
            for some in lanes.chunks(LANES_PER_LIST) {
                let mut list = self.op.endpoint().list(server);
                for &(lane, holder) in some {
                    let (space, word, mask, shift) = geometry.lane_word(lane);
                    list.masked_cas(space, word, holder << shift, 0, mask);
                }
                self.execute(list).await?;
            }
            for (_, holder) in lanes {
                if let Some(patient) = self.dead.get_mut(&ComputeId(holder as u16)) {
                    patient.report.lanes += 1;
                }
            }
        }
        Ok(())
    }
}
