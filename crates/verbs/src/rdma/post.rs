//! Work requests in the library's format. A list is one chain, posted with one doorbell, and only its last
//! request is signalled.

use super::masked;
use super::memory::Buffer;
use super::queue::QueuePair;
use crate::VerbsError;
use crate::plan::{Task, Work};
use crate::qp_info::RegionKey;
use crate::slab::Extent;
use rdma_mummy_sys as ffi;
use sherman_fabric::Space;

/// The data that all requests of a list share.
#[derive(Debug)]
pub(super) struct Batch<'b> {
    /// The id of its completion.
    pub(super) id: u64,
    /// The server's host memory.
    pub(super) host: &'b RegionKey,
    /// The server's on-chip memory.
    pub(super) chip: &'b RegionKey,
    /// Registered memory, and the list's part of it.
    pub(super) buffer: &'b Buffer,
    pub(super) extent: Extent,
    /// The list's own bytes, for WRITEs that travel inside requests.
    pub(super) arena: &'b [u8],
}

impl Batch<'_> {
    /// The remote address of `work`, as verbs name it, and its key.
    fn remote(&self, work: &Work) -> (u64, u32) {
        let place = match work.space {
            Space::Host => self.host,
            Space::OnChip => self.chip,
        };
        (place.base + work.offset, place.key)
    }

    /// The local address of its bytes.
    fn local(&self, work: &Work) -> ffi::ibv_sge {
        let (addr, lkey) = match work.task {
            // The library copies them during the call, and needs no key.
            Task::Inline { at, .. } => (self.arena[at as usize..][..work.len as usize].as_ptr() as u64, 0),
            _ => {
                (self.buffer.address(self.extent.start + work.local), self.buffer.registration().local_key())
            }
        };
        ffi::ibv_sge { addr, length: work.len, lkey }
    }
}

/// Buffers for the structures of a chain, reused from list to list.
#[derive(Default)]
pub(super) struct Chain {
    requests: Vec<ffi::ibv_send_wr>,
    places: Vec<ffi::ibv_sge>,
}

// SAFETY: the pointers in it are set again before each use and not read in between.
unsafe impl Send for Chain {}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain").finish_non_exhaustive()
    }
}

/// The flags of a request.
fn flags(work: &Work, last: bool) -> u32 {
    use ffi::ibv_send_flags as flag;
    let mut flags = 0;
    if last {
        flags |= flag::IBV_SEND_SIGNALED.0;
    }
    if let Task::Inline { .. } = work.task {
        flags |= flag::IBV_SEND_INLINE.0;
    }
    if let Task::Inline { fenced: true, .. } | Task::Write { fenced: true } = work.task {
        flags |= flag::IBV_SEND_FENCE.0;
    }
    flags
}

impl Chain {
    /// Posts `works`, at least one, in order. The caller has checked that there is room.
    pub(super) fn post(
        &mut self,
        pair: &mut QueuePair,
        works: &[Work],
        batch: &Batch<'_>,
    ) -> Result<(), VerbsError> {
        match pair.ex {
            None => self.post_chain(pair, works, batch),
            Some(_) => post_calls(pair, works, batch),
        }
    }

    fn post_chain(
        &mut self,
        pair: &mut QueuePair,
        works: &[Work],
        batch: &Batch<'_>,
    ) -> Result<(), VerbsError> {
        self.places.clear();
        self.places.extend(works.iter().map(|work| batch.local(work)));
        self.requests.clear();
        for (at, work) in works.iter().enumerate() {
            // SAFETY: plain numbers and pointers, for which zero is valid.
            let mut request: ffi::ibv_send_wr = unsafe { std::mem::zeroed() };
            request.wr_id = batch.id;
            request.sg_list = &raw mut self.places[at];
            request.num_sge = 1;
            request.send_flags = flags(work, at + 1 == works.len());
            let (remote_addr, rkey) = batch.remote(work);
            let rdma = ffi::wr_t { rdma: ffi::rdma_t { remote_addr, rkey } };
            let atomic = |compare_add, swap| ffi::wr_t {
                atomic: ffi::atomic_t { remote_addr, compare_add, swap, rkey },
            };
            use ffi::ibv_wr_opcode as op;
            (request.opcode, request.wr) = match work.task {
                Task::Read => (op::IBV_WR_RDMA_READ, rdma),
                Task::Write { .. } | Task::Inline { .. } => (op::IBV_WR_RDMA_WRITE, rdma),
                Task::Cas { compare, swap } => (op::IBV_WR_ATOMIC_CMP_AND_SWP, atomic(compare, swap)),
                Task::Faa { add } => (op::IBV_WR_ATOMIC_FETCH_AND_ADD, atomic(add, 0)),
                // Planned only if both sides support it, and then the queue pair is posted to by calls.
                Task::MaskedCas { .. } => return Err(not_here()),
            };
            self.requests.push(request);
        }
        // Linked only now, when no request moves any more.
        let first = self.requests.as_mut_ptr();
        for at in 1..self.requests.len() {
            // SAFETY: both are elements of the vector.
            unsafe { (*first.add(at - 1)).next = first.add(at) };
        }
        let mut bad = std::ptr::null_mut();
        // SAFETY: the chain and the entries it points to are alive during the call, which keeps none of them.
        // The memory they name is registered and stays until the completion, or travels inside the request.
        let code = unsafe { ffi::ibv_post_send(pair.qp.as_ptr(), first, &raw mut bad) };
        super::done(code, "post work requests")
    }
}

fn not_here() -> VerbsError {
    VerbsError::System { what: "post a masked CAS", error: std::io::ErrorKind::Unsupported.into() }
}

/// Posts by calls, between a start call and a completing call that rings the doorbell.
fn post_calls(pair: &mut QueuePair, works: &[Work], batch: &Batch<'_>) -> Result<(), VerbsError> {
    let Some(ex) = pair.ex.map(std::ptr::NonNull::as_ptr) else { return Err(not_here()) };
    if pair.raw.is_none() && works.iter().any(|work| matches!(work.task, Task::MaskedCas { .. })) {
        return Err(not_here());
    }
    // SAFETY: the queue pair is alive, was made with all these operations, and no other code posts to it
    // (`&mut`). The memory that requests name is registered and stays until the completion, or is copied by
    // the call.
    unsafe {
        ffi::ibv_wr_start(ex);
        for (at, work) in works.iter().enumerate() {
            let flags = flags(work, at + 1 == works.len());
            (*ex).wr_id = batch.id;
            // The call that sets the bytes already makes them inline. Soft-RoCE needs the flag as well, and
            // other devices ignore it.
            (*ex).wr_flags = flags;
            let (remote, key) = batch.remote(work);
            let local = batch.local(work);
            match work.task {
                Task::Read => ffi::ibv_wr_rdma_read(ex, key, remote),
                Task::Write { .. } | Task::Inline { .. } => ffi::ibv_wr_rdma_write(ex, key, remote),
                Task::Cas { compare, swap } => ffi::ibv_wr_atomic_cmp_swp(ex, key, remote, compare, swap),
                Task::Faa { add } => ffi::ibv_wr_atomic_fetch_add(ex, key, remote, add),
                Task::MaskedCas { compare, swap, mask } => {
                    if let Some(raw) = pair.raw {
                        let signalled = flags & ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 != 0;
                        let swap = masked::Swap { compare, swap, mask };
                        let request = masked::request(pair.number(), signalled, (remote, key), swap, &local);
                        ffi::mlx5dv_wr_raw_wqe(raw.as_ptr(), request.0.as_ptr().cast());
                    }
                    // The request already contains its local address.
                    continue;
                }
            }
            match work.task {
                Task::Inline { .. } => {
                    ffi::ibv_wr_set_inline_data(ex, local.addr as *mut _, work.len as usize)
                }
                _ => ffi::ibv_wr_set_sge(ex, local.lkey, local.addr, local.length),
            }
        }
        super::done(ffi::ibv_wr_complete(ex), "post work requests")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ffi::ibv_send_flags as flag;

    /// On soft-RoCE no request overtakes another, so only this test shows that the fence flag is set.
    #[test]
    fn fences_inline_bytes_and_the_last_request_are_flagged() {
        let work = |task| Work { verb: 0, space: Space::Host, offset: 0, len: 8, local: 0, task };
        let (signalled, inline, fence) =
            (flag::IBV_SEND_SIGNALED.0, flag::IBV_SEND_INLINE.0, flag::IBV_SEND_FENCE.0);
        for (task, expected) in [
            (Task::Read, 0),
            (Task::Write { fenced: false }, 0),
            (Task::Write { fenced: true }, fence),
            (Task::Inline { fenced: false, at: 0 }, inline),
            (Task::Inline { fenced: true, at: 0 }, inline | fence),
            (Task::Cas { compare: 0, swap: 1 }, 0),
            (Task::Faa { add: 1 }, 0),
        ] {
            assert_eq!(flags(&work(task), false), expected, "{task:?}");
            assert_eq!(flags(&work(task), true), expected | signalled, "{task:?}");
        }
    }
}
