//! A machine's NIC: its link and its PCIe bus in each direction, its processing units, and its buckets of
//! atomics.

use super::events::MOST_BUCKET_BITS;
use super::params::Params;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Picoseconds per nanosecond.
pub(super) const NANO: u64 = 1000;

/// Durations derived from the parameters, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub params: Params,
    link_byte: u64,
    pcie_byte: u64,
    pub one_way: u64,
    pub doorbell: u64,
    pub pcie: u64,
    pub completion: u64,
    pub unit: u64,
    pub on_chip_conflict: u64,
}

impl Timing {
    pub(super) fn new(params: Params) -> Self {
        // Time per byte of 8 bits at this rate. At least one picosecond, so that time passes.
        let byte = |gbps: u64| (8 * NANO).div_ceil(gbps.max(1));
        Self {
            params,
            link_byte: byte(params.link_gbps),
            pcie_byte: byte(params.pcie_gbps),
            one_way: params.one_way_nanos * NANO,
            doorbell: params.doorbell_nanos * NANO,
            pcie: params.pcie_nanos * NANO,
            completion: params.completion_nanos * NANO,
            unit: params.unit_nanos * NANO,
            on_chip_conflict: params.on_chip_conflict_nanos * NANO,
        }
    }

    /// Returns how long a message with this payload occupies a link.
    pub(super) fn wire(&self, payload: u64) -> u64 {
        let packets = payload.div_ceil(self.params.packet_payload_bytes.max(1)).max(1);
        (payload + packets * self.params.packet_header_bytes) * self.link_byte
    }

    /// Returns how long the payload of one WRITE takes to arrive.
    pub(super) fn landing(&self, payload: u64) -> u64 {
        payload * self.link_byte
    }

    /// Returns how long this payload occupies PCIe in its direction, with the headers of its packets.
    pub(super) fn dma(&self, payload: u64) -> u64 {
        self.pcie_packets(payload, payload.div_ceil(self.params.pcie_payload_bytes.max(1)).max(1))
    }

    /// Returns how long the requests for this payload occupy PCIe towards the host.
    pub(super) fn dma_request(&self, payload: u64) -> u64 {
        self.pcie_packets(0, payload.div_ceil(self.params.pcie_request_bytes.max(1)).max(1))
    }

    /// Returns how long work requests of these many bytes each occupy PCIe from the host.
    pub(super) fn ring(&self, requests: impl Iterator<Item = u64>) -> u64 {
        let block = self.params.work_request_bytes.max(1);
        let blocks = requests.map(|bytes| bytes.div_ceil(block).max(1)).sum::<u64>();
        self.pcie_packets(blocks * block, blocks)
    }

    fn pcie_packets(&self, payload: u64, packets: u64) -> u64 {
        (payload + packets * self.params.pcie_header_bytes) * self.pcie_byte
    }
}

/// A resource that serves one request at a time, in order of arrival.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Server(u64);

impl Server {
    /// Starts a request that arrives at `at`, or when the resource is free. Returns the start time. Callers
    /// come in the order of their times: a request that announced itself early would block earlier ones.
    pub(super) fn begin(&mut self, at: u64, duration: u64) -> u64 {
        let begin = at.max(self.0);
        self.0 = begin + duration;
        begin
    }
}

/// Atomics on addresses that the NIC treats as equal. They execute one at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    /// For host memory: whether an atomic is executing. `waiting` holds the others, each of which occupies a
    /// processing unit.
    pub busy: bool,
    pub waiting: VecDeque<u32>,
    /// For on-chip memory, where durations are known in advance.
    pub on_chip: Server,
}

/// The NIC of one machine.
#[derive(Debug)]
pub(super) struct Machine {
    pub send: Server,
    pub receive: Server,
    /// PCIe from the NIC to host memory: what the NIC writes, and its requests to read.
    pub to_host: Server,
    /// PCIe from the host to the NIC: what the NIC reads, and what CPUs hand to it.
    pub from_host: Server,
    /// End times of busy units, where known.
    busy: BinaryHeap<Reverse<u64>>,
    /// Number of free units.
    free: u64,
    /// Verbs that wait for a unit.
    pub waiting: VecDeque<u32>,
    /// Whether an event is planned for the next free unit.
    pub watched: bool,
    pub buckets: Vec<Bucket>,
}

impl Machine {
    pub(super) fn new(params: &Params) -> Self {
        Self {
            send: Server::default(),
            receive: Server::default(),
            to_host: Server::default(),
            from_host: Server::default(),
            busy: BinaryHeap::new(),
            free: params.units.max(1),
            waiting: VecDeque::new(),
            watched: false,
            buckets: vec![Bucket::default(); 1 << params.bucket_bits.clamp(3, MOST_BUCKET_BITS)],
        }
    }

    /// Takes a unit for a verb that begins now. Returns false if no unit is free.
    pub(super) fn take_unit(&mut self, now: u64) -> bool {
        while self.busy.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.busy.pop();
            self.free += 1;
        }
        let got = self.free > 0;
        self.free -= u64::from(got);
        got
    }

    /// Marks a taken unit as free from `at` on.
    pub(super) fn free_unit_at(&mut self, at: u64) {
        self.busy.push(Reverse(at));
    }

    /// Returns when the next unit with a known end time becomes free.
    pub(super) fn next_free(&self) -> Option<u64> {
        self.busy.peek().map(|Reverse(end)| *end)
    }
}
