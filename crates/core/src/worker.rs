//! A thread of a compute server: its endpoint, and the state that the threads share.

use crate::compute::ComputeServer;
use crate::membership::Pulse;
use crate::op::Op;
use crate::tree::range::Scan;
use sherman_fabric::Endpoint;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

/// One thread's access to the cluster. Not shared between threads; any number of operations may be in flight
/// on it.
#[derive(Debug)]
pub struct Worker<E: Endpoint> {
    pub(crate) endpoint: E,
    pub(crate) compute: Arc<ComputeServer>,
    buffers: RefCell<Vec<Vec<u8>>>,
    /// Finished scans, whose buffers the next scans use.
    #[expect(clippy::vec_box, reason = "a scan stays in its box from one range to the next")]
    scans: RefCell<Vec<Box<Scan>>>,
    pub(crate) pulse: Arc<Pulse>,
    /// When its operations stop waiting, regardless of their own deadlines.
    cutoff: Cell<u64>,
}

/// The most finished scans that a worker keeps.
const KEPT_SCANS: usize = 4;
/// The most buffers a worker keeps for its next operations: the number in flight where throughput matters.
const KEPT_BUFFERS: usize = 64;

impl<E: Endpoint> Worker<E> {
    /// Creates a worker of `compute` that uses `endpoint`.
    pub fn new(endpoint: E, compute: Arc<ComputeServer>) -> Self {
        let pulse = compute.pulse();
        Self {
            endpoint,
            compute,
            buffers: RefCell::default(),
            scans: RefCell::default(),
            pulse,
            cutoff: Cell::new(u64::MAX),
        }
    }

    /// Its endpoint.
    pub fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// The compute server it belongs to.
    pub fn compute(&self) -> &Arc<ComputeServer> {
        &self.compute
    }

    /// Returns a buffer for a node or a value, a recycled one if available.
    #[inline]
    pub fn buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a buffer for later.
    #[inline]
    pub fn keep_buffer(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < KEPT_BUFFERS {
            buffers.push(buffer);
        }
    }

    pub(crate) fn kept_scan(&self) -> Option<Box<Scan>> {
        self.scans.borrow_mut().pop()
    }

    pub(crate) fn keep_scan(&self, scan: Box<Scan>) {
        let mut scans = self.scans.borrow_mut();
        if scans.len() < KEPT_SCANS {
            scans.push(scan);
        }
    }

    /// When its operations stop waiting, in nanoseconds of the endpoint's clock. `u64::MAX` if only their own
    /// deadlines count.
    pub(crate) fn cutoff(&self) -> u64 {
        self.cutoff.get()
    }

    /// Makes every operation in flight stop waiting after `patience`, or at its own deadline if that is
    /// earlier. For a caller whose batch has already failed. `None` removes the limit.
    pub fn cut_short(&self, patience: Option<Duration>) {
        self.cutoff.set(patience.map_or(u64::MAX, |patience| {
            self.endpoint.now().saturating_add(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX))
        }));
    }

    /// Creates an operation with the compute server's default deadline.
    pub fn op(&self) -> Op<'_, E> {
        self.op_within(self.compute.timeout())
    }

    /// Creates an operation that gives up after `timeout` of waiting.
    pub fn op_within(&self, timeout: Duration) -> Op<'_, E> {
        Op::new(self, timeout)
    }
}

impl<E: Endpoint> Drop for Worker<E> {
    /// Ends the identity if an operation was dropped while it held a lane, because its thread panicked or its
    /// future was dropped. Recovery then frees the lane.
    fn drop(&mut self) {
        if self.pulse.holds() {
            self.compute.terminate();
        }
    }
}
