//! Masked CAS: a request of one vendor (mlx5), built by hand, and tested before use.
//!
//! Verbs has no such operation. mlx5 devices have it, if their firmware allows it, and libmlx5 can post a
//! request as bytes:
//!
//! ```text
//!  0  control   operation and modifier, queue pair and length in 16 bytes, signalled
//! 16  remote    address, key
//! 32  operands  swap, compare, bits of swap, bits of compare
//! 64  local     length, key, address of what was found
//! ```
//!
//! All of it is big-endian. This code was **never run on a device** that has the operation. So before it uses
//! a port, the client connects a queue pair to itself and swaps 16 bits of a word in its own memory. It uses
//! masked CAS only if the word and the answer are correct.

use super::device::Device;
use super::memory::{Access, Buffer};
use super::post::{Batch, Chain};
use super::queue::{CompletionQueue, Manner, QueuePair};
use crate::VerbsError;
use crate::plan::{Task, Work};
use crate::qp_info::{QpInfo, RegionKey};
use crate::slab::Extent;
use rdma_mummy_sys as ffi;
use sherman_fabric::Space;
use std::time::{Duration, Instant};

/// The operation's number.
const MASKED_CAS: u32 = 0x14;
/// Its modifier: extended, on eight bytes.
const EIGHT_BYTES: u32 = 8 | (3 - 2);
/// Asks for a completion.
const SIGNALLED: u32 = 2 << 2;
/// Its length in units of 16 bytes.
const UNITS: u32 = 5;
/// How long each step of the test may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// The operands of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Swap {
    pub(super) compare: u64,
    pub(super) swap: u64,
    pub(super) mask: u64,
}

/// The request as bytes.
#[derive(Debug, PartialEq, Eq)]
#[repr(align(16))]
pub(super) struct Request(pub(super) [u8; 16 * UNITS as usize]);

/// Builds the request. The library fills in its index in the queue.
pub(super) fn request(
    pair: u32,
    signalled: bool,
    remote: (u64, u32),
    swap: Swap,
    local: &ffi::ibv_sge,
) -> Request {
    let mut bytes = [0; 80];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &(EIGHT_BYTES << 24 | MASKED_CAS).to_be_bytes());
    put(4, &(pair << 8 | UNITS).to_be_bytes());
    put(8, &(if signalled { SIGNALLED } else { 0 }).to_be_bytes());
    put(16, &remote.0.to_be_bytes());
    put(24, &remote.1.to_be_bytes());
    put(32, &swap.swap.to_be_bytes());
    put(40, &swap.compare.to_be_bytes());
    put(48, &swap.mask.to_be_bytes());
    put(56, &swap.mask.to_be_bytes());
    put(64, &local.length.to_be_bytes());
    put(68, &local.lkey.to_be_bytes());
    put(72, &local.addr.to_be_bytes());
    Request(bytes)
}

/// Makes a queue pair that accepts the vendor's requests; null if that is not possible.
///
/// # Safety
/// As of `ibv_create_qp_ex`: everything that the attributes name is alive.
pub(super) unsafe fn create(
    context: *mut ffi::ibv_context,
    all: &mut ffi::ibv_qp_init_attr_ex,
) -> *mut ffi::ibv_qp {
    // SAFETY: plain numbers, for which zero is valid.
    let mut vendor: ffi::mlx5dv_qp_init_attr = unsafe { std::mem::zeroed() };
    vendor.comp_mask = u64::from(ffi::mlx5dv_qp_init_attr_mask::MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS.0);
    vendor.send_ops_flags = u64::from(ffi::mlx5dv_qp_create_send_ops_flags::MLX5DV_QP_EX_WITH_RAW_WQE.0);
    // SAFETY: as the caller promises; the library refuses a device of another vendor.
    unsafe { ffi::mlx5dv_create_qp(context, all, &raw mut vendor) }
}

/// Tests whether the device performs a masked CAS correctly.
pub(super) fn works(device: &Device) -> bool {
    match attempt(device) {
        Ok(works) => works,
        Err(error) => {
            tracing::debug!(device = device.name(), %error, "the device has no masked CAS");
            false
        }
    }
}

fn attempt(device: &Device) -> Result<bool, VerbsError> {
    let cq = CompletionQueue::new(&device.opened, 16)?;
    let mut pair = QueuePair::asking(device, &cq, 8, Manner::Raw)?;
    let (address, index) = device.address(None, None)?;
    let own = QpInfo { address, mtu: device.mtu(), rd_atomic: 1, queue_pair: pair.number(), packet: 0 };
    pair.connect(device, &own, index, &own)?;
    let mut buffer = Buffer::new(&device.opened, 64, Access::Remote)?;
    let word = 0x0011_2233_4455_6677_u64;
    buffer.put(0, &word.to_ne_bytes());
    let place = RegionKey { base: buffer.address(0), bytes: 8, key: buffer.registration().remote_key() };
    let mut chain = Chain::default();
    let mask = 0xffff << 16;
    // The first must not swap, because a bit under the mask differs. The second must, because only other bits
    // differ.
    for (compare, swap, after) in
        [(0x4454 << 16, 0, word), (!mask | 0x4455 << 16, 0xabcd << 16, 0x0011_2233_abcd_6677)]
    {
        let before = buffer.word(0);
        let task = Task::MaskedCas { compare, swap, mask };
        let work = Work { verb: 0, space: Space::Host, offset: 0, len: 8, local: 0, task };
        let extent = Extent { start: 8, len: 8 };
        let batch = Batch { id: compare, host: &place, chip: &place, buffer: &buffer, extent, arena: &[] };
        chain.post(&mut pair, &[work], &batch)?;
        let (began, mut outcome) = (Instant::now(), None);
        while outcome.is_none() {
            cq.poll(|completion| outcome = Some(completion.fault))?;
            if began.elapsed() > PATIENCE {
                return Ok(false);
            }
        }
        if outcome != Some(None) || (buffer.word(0), buffer.word(8)) != (after, before) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_put_together_as_the_vendor_lays_it_out() {
        let local = ffi::ibv_sge { addr: 0x1122_3344_5566_7788, length: 8, lkey: 0xaabb_ccdd };
        let swap = Swap { compare: 1, swap: 2, mask: 0xffff };
        let Request(bytes) = request(0x00ab_cdef, true, (0x0102_0304_0506_0708, 0x0a0b_0c0d), swap, &local);
        let expected: [&[u8]; 5] = [
            &[9, 0, 0, 0x14, 0xab, 0xcd, 0xef, 5, 0, 0, 0, 8, 0, 0, 0, 0],
            &[1, 2, 3, 4, 5, 6, 7, 8, 0xa, 0xb, 0xc, 0xd, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
            &[0, 0, 0, 8, 0xaa, 0xbb, 0xcc, 0xdd, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88],
        ];
        assert_eq!(bytes[..], expected.concat());
        let Request(quiet) = request(1, false, (0, 0), swap, &local);
        assert_eq!(quiet[8..12], [0; 4]);
    }
}
