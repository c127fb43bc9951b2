//! Completion queues and queue pairs, from creation to error.
//!
//! A queue pair starts in RESET and moves to INIT, to RTR (it answers) and to RTS (it asks). Any failure
//! leads to ERR, from which it does not return to work: it is destroyed. After that no device touches its
//! memory.

use super::device::{Device, Opened};
use crate::VerbsError;
use crate::fault::Fault;
use crate::options::INLINE;
use crate::qp_info::QpInfo;
use rdma_mummy_sys as ffi;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// How long an answer may take before a request is sent again: 4.096 µs times two to this power, 67 ms.
const TIMEOUT: u8 = 14;
/// How often a request is sent again. With `TIMEOUT`, the client waits at least half a second before it gives
/// up the other side. Not 7: soft-RoCE takes that as infinite.
const RETRIES: u8 = 6;
/// Completions that one call polls.
const BATCH: usize = 16;

/// A completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    cq: NonNull<ffi::ibv_cq>,
    _opened: Arc<Opened>,
}

// SAFETY: the library locks what its objects share; handles may be used from any thread.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

/// One completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// The id of the request.
    pub(super) id: u64,
    /// The fault, if the request failed.
    pub(super) fault: Option<Fault>,
}

impl CompletionQueue {
    pub(super) fn new(opened: &Arc<Opened>, entries: u32) -> Result<Arc<Self>, VerbsError> {
        let entries = i32::try_from(entries.max(1)).unwrap_or(i32::MAX);
        // SAFETY: the context is open; there is no channel, and so no context for its events.
        let cq =
            unsafe { ffi::ibv_create_cq(opened.context(), entries, ptr::null_mut(), ptr::null_mut(), 0) };
        let cq = NonNull::new(cq).ok_or_else(|| VerbsError::last("make a completion queue"))?;
        Ok(Arc::new(Self { cq, _opened: Arc::clone(opened) }))
    }

    /// Passes every completion that has arrived to `each`.
    pub(super) fn poll(&self, mut each: impl FnMut(Completion)) -> Result<usize, VerbsError> {
        let mut all = 0;
        loop {
            // SAFETY: plain numbers, for which zero is valid.
            let mut found: [ffi::ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
            // SAFETY: the queue is alive and there is room for `BATCH` completions.
            let count = unsafe { ffi::ibv_poll_cq(self.cq.as_ptr(), BATCH as i32, found.as_mut_ptr()) };
            let Ok(count) = usize::try_from(count) else {
                return Err(VerbsError::last("poll a completion queue"));
            };
            for wc in &found[..count.min(BATCH)] {
                each(Completion { id: wc.wr_id, fault: Fault::of_status(wc.status) });
            }
            all += count;
            if count < BATCH {
                return Ok(all);
            }
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: `self` owns it, its queue pairs are gone (they hold an `Arc`), and it is destroyed once.
        unsafe { ffi::ibv_destroy_cq(self.cq.as_ptr()) };
    }
}

/// How requests are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// As structures in a chain: every device supports this.
    Chain,
    /// By one call per request, between a start call and a completing call.
    Calls,
    /// As `Calls`, and the vendor's requests are possible too.
    Raw,
}

/// The queue pair of a reliable connection.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) qp: NonNull<ffi::ibv_qp>,
    /// The handle for posting by calls; none if requests are posted as a chain.
    pub(super) ex: Option<NonNull<ffi::ibv_qp_ex>>,
    /// The handle for posting the vendor's requests.
    pub(super) raw: Option<NonNull<ffi::mlx5dv_qp_ex>>,
    /// The longest WRITE that travels inside its request.
    pub(super) inline: u32,
    _cq: Arc<CompletionQueue>,
    _opened: Arc<Opened>,
}

// SAFETY: the library locks what its objects share; a queue pair is posted to through `&mut`.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// Makes a queue pair that asks: up to `depth` requests, with inline WRITEs up to `INLINE` bytes or the
    /// device's limit.
    pub(super) fn asking(
        device: &Device,
        cq: &Arc<CompletionQueue>,
        depth: u32,
        manner: Manner,
    ) -> Result<Self, VerbsError> {
        // The device refuses an inline limit that is too large; there is no other way to find its limit.
        let mut refused = None;
        for inline in [INLINE, 128, 64, 32, 0] {
            match Self::create(&device.opened, cq, depth, inline, manner) {
                Ok(made) => return Ok(made),
                Err(error) => _ = refused.get_or_insert(error),
            }
        }
        Err(refused.unwrap_or(VerbsError::NoDevice))
    }

    /// Makes a queue pair that only answers.
    pub(super) fn answering(device: &Device, cq: &Arc<CompletionQueue>) -> Result<Self, VerbsError> {
        Self::create(&device.opened, cq, 1, 0, Manner::Chain)
    }

    fn create(
        opened: &Arc<Opened>,
        cq: &Arc<CompletionQueue>,
        depth: u32,
        inline: u32,
        manner: Manner,
    ) -> Result<Self, VerbsError> {
        // SAFETY: plain numbers and pointers, for which zero is valid.
        let mut all: ffi::ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        all.send_cq = cq.cq.as_ptr();
        all.recv_cq = cq.cq.as_ptr();
        all.qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
        all.cap = ffi::ibv_qp_cap {
            max_send_wr: depth,
            max_recv_wr: 0,
            max_send_sge: 1,
            max_recv_sge: 0,
            max_inline_data: inline,
        };
        // SAFETY: domain, context and completion queue are alive, and the attributes are filled in.
        let qp = unsafe {
            match manner {
                Manner::Chain => {
                    // The short form of the attributes is the beginning of the long one.
                    ffi::ibv_create_qp(opened.pd(), (&raw mut all).cast())
                }
                Manner::Calls | Manner::Raw => {
                    use ffi::ibv_qp_create_send_ops_flags as ops;
                    use ffi::ibv_qp_init_attr_mask as mask;
                    all.pd = opened.pd();
                    all.comp_mask = (mask::IBV_QP_INIT_ATTR_PD | mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).0;
                    let flags = ops::IBV_QP_EX_WITH_RDMA_WRITE
                        | ops::IBV_QP_EX_WITH_RDMA_READ
                        | ops::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
                        | ops::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
                    all.send_ops_flags = u64::from(flags.0);
                    if manner == Manner::Calls {
                        ffi::ibv_create_qp_ex(opened.context(), &raw mut all)
                    } else {
                        super::masked::create(opened.context(), &mut all)
                    }
                }
            }
        };
        let qp = NonNull::new(qp).ok_or_else(|| VerbsError::last("make a queue pair"))?;
        let (cq, opened) = (Arc::clone(cq), Arc::clone(opened));
        // The device may grant more than requested. The excess is not used, so that all devices behave alike.
        let inline = all.cap.max_inline_data.min(inline);
        let mut made = Self { qp, ex: None, raw: None, inline, _cq: cq, _opened: opened };
        if manner != Manner::Chain {
            // SAFETY: the queue pair was made with operations for calls.
            made.ex = NonNull::new(unsafe { ffi::ibv_qp_to_qp_ex(qp.as_ptr()) });
            let ex = made.ex.ok_or_else(|| VerbsError::last("prepare a queue pair for posts by calls"))?;
            if manner == Manner::Raw {
                // SAFETY: the queue pair was made by the vendor's function.
                made.raw = NonNull::new(unsafe { ffi::mlx5dv_qp_ex_from_ibv_qp_ex(ex.as_ptr()) });
                made.raw.ok_or_else(|| VerbsError::last("prepare a queue pair for a vendor's requests"))?;
            }
        }
        Ok(made)
    }

    /// Its number.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive until `self` is dropped, and its number does not change.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }

    /// Connects it. `own` is the information that the other side got. `gid_index` is the index of this side's
    /// address in the port's table.
    pub(super) fn connect(
        &mut self,
        device: &Device,
        own: &QpInfo,
        gid_index: u8,
        peer: &QpInfo,
    ) -> Result<(), VerbsError> {
        use ffi::ibv_qp_attr_mask as mask;
        let unreachable = crate::address::AddressError::NoGid;
        let global = own.address.needs_gid(&peer.address).ok_or(unreachable)?;
        let access = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ
            | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        let mut attr = attributes(ffi::ibv_qp_state::IBV_QPS_INIT);
        attr.port_num = device.port.number;
        attr.qp_access_flags = access.0;
        let init = mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        self.modify(attr, init, "initialize a queue pair")?;

        let mut attr = attributes(ffi::ibv_qp_state::IBV_QPS_RTR);
        attr.path_mtu = own.mtu.min(peer.mtu) as u32;
        attr.dest_qp_num = peer.queue_pair;
        attr.rq_psn = peer.packet;
        attr.max_dest_rd_atomic = own.rd_atomic.min(peer.rd_atomic);
        attr.min_rnr_timer = 12;
        attr.ah_attr.dlid = peer.address.lid;
        attr.ah_attr.port_num = device.port.number;
        if global {
            attr.ah_attr.is_global = 1;
            attr.ah_attr.grh.dgid = ffi::ibv_gid { raw: peer.address.gid.0 };
            attr.ah_attr.grh.sgid_index = gid_index;
            attr.ah_attr.grh.hop_limit = 64;
        }
        let answers = mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(attr, answers, "connect a queue pair")?;

        let mut attr = attributes(ffi::ibv_qp_state::IBV_QPS_RTS);
        attr.sq_psn = own.packet;
        attr.timeout = TIMEOUT;
        attr.retry_cnt = RETRIES;
        attr.rnr_retry = RETRIES;
        attr.max_rd_atomic = own.rd_atomic.min(peer.rd_atomic);
        let asks = mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(attr, asks, "start a queue pair")
    }

    /// Moves it to the error state: it neither asks nor answers any more.
    pub(super) fn end(&mut self) -> Result<(), VerbsError> {
        let none = ffi::ibv_qp_attr_mask(0);
        self.modify(attributes(ffi::ibv_qp_state::IBV_QPS_ERR), none, "stop a queue pair")
    }

    /// Moves it back to RESET. Returns when the device has finished with it.
    pub(super) fn reset(&mut self) -> Result<(), VerbsError> {
        let none = ffi::ibv_qp_attr_mask(0);
        self.modify(attributes(ffi::ibv_qp_state::IBV_QPS_RESET), none, "reset a queue pair")
    }

    fn modify(
        &mut self,
        mut attr: ffi::ibv_qp_attr,
        mask: ffi::ibv_qp_attr_mask,
        what: &'static str,
    ) -> Result<(), VerbsError> {
        let mask = mask | ffi::ibv_qp_attr_mask::IBV_QP_STATE;
        // SAFETY: the queue pair is alive, and the attributes that the mask names are filled in.
        let code = unsafe { ffi::ibv_modify_qp(self.qp.as_ptr(), &raw mut attr, mask.0 as i32) };
        super::done(code, what)
    }
}

fn attributes(state: ffi::ibv_qp_state::Type) -> ffi::ibv_qp_attr {
    // SAFETY: plain numbers, for which zero is valid.
    let mut attr: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = state;
    attr
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: `self` owns it, and it is destroyed once.
        unsafe { ffi::ibv_destroy_qp(self.qp.as_ptr()) };
    }
}
