//! Every number of the NIC model, in one place, each with where it is from.
//!
//! They were fixed before any experiment on the tree was run on the model, and are not changed to please one. Only what the paper
//! measures in isolation (its section 3 and §5.7) and public figures of the NIC and its bus went into them; `docs/EVALUATION.md`
//! shows how they reproduce those, and what a quarter more or less of each does to the results.
//!
//! Times are in picoseconds where rates make them fractions of a nanosecond, else in nanoseconds.

use serde::{Deserialize, Serialize};

/// The model's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// Link speed of a NIC, each way, in bits per nanosecond. Paper §5.1.1: 100 Gbps.
    pub link_gbps: u64,
    /// Bytes a packet carries besides its payload. InfiniBand: local route header 8, base transport header 12, RDMA extended
    /// header 16, invariant and variant checks 6; the switch of the paper (MSB7790) is InfiniBand.
    pub packet_header_bytes: u64,
    /// Payload of a packet at most: InfiniBand's largest MTU, which Sherman's published code asks for.
    pub packet_payload_bytes: u64,
    /// From one NIC's port to the other's: serial-to-parallel and back, cables, one switch of 90 ns (MSB7790's data sheet).
    pub one_way_nanos: u64,
    /// From the CPU's store to the NIC's doorbell until the NIC begins with the list, which comes along with it.
    pub doorbell_nanos: u64,
    /// A WRITE's payload up to this size comes along with the doorbell (inline); a larger one is fetched over PCIe first.
    /// 220 is what published verbs programs ask of such NICs.
    pub inline_bytes: u64,
    /// One PCIe transaction that waits for an answer: a read of host memory by the NIC. Public measurements of PCIe 3.0 on Xeon E5
    /// hosts (Neugebauer et al., SIGCOMM'18) have 400 to 600 ns for a whole round trip of a device with its own buffering; a NIC's
    /// share of a READ's 1.7 µs leaves about 300.
    pub pcie_nanos: u64,
    /// What PCIe 3.0 x16 moves, in bits per nanosecond: 126 on the wire, about 104 of payload.
    pub pcie_gbps: u64,
    /// From the NIC's last byte to the CPU's next poll that sees the completion.
    pub completion_nanos: u64,
    /// The sending side starts a message every so often: 70 million a second. The paper's figure "Performance of RDMA_WRITE" has
    /// more than 50 for small ones.
    pub send_message_picos: u64,
    /// The receiving side takes a message every so often: 125 million a second, since it executes 110 million atomics on chip (paper
    /// §4.3) and cannot take fewer.
    pub receive_message_picos: u64,
    /// Units that process requests at the receiving side, each one request at a time. What waits for anything waits in its unit: the
    /// paper's lock collapse (figure "Performance of RDMA-based exclusive locks") needs that, whatever the number. 16.
    pub units: u64,
    /// A READ or WRITE occupies a unit for so long: with 16 units, 70 million a second (the figure on WRITEs again).
    pub unit_nanos: u64,
    /// Address bits that choose an atomic's bucket: the 12 lowest (paper §3.2.2, after Kalia et al., ATC'16).
    pub bucket_bits: u64,
    /// Transactions over PCIe of an atomic in host memory that stores, one after the other (paper §3.2.2).
    pub atomic_transactions: u64,
    /// Transactions of a CAS that fails (paper §3.2.2).
    pub failed_cas_transactions: u64,
    /// An atomic in on-chip memory occupies a unit for so long: with 16 units, 110 million a second (paper §4.3).
    pub on_chip_unit_picos: u64,
    /// Atomics on one on-chip word follow each other at this distance. Calibrated on the paper's HOCL micro-benchmark alone, by
    /// the step from host to on-chip locks (2.89 times).
    pub on_chip_conflict_nanos: u64,
    /// A control request: a message to the memory server's CPU and back, with its work. Rare: once per chunk.
    pub call_nanos: u64,
    /// A client's CPU builds a list and rings the doorbell.
    pub post_nanos: u64,
    /// For every verb of a list after the first.
    pub post_verb_nanos: u64,
    /// A client's CPU takes a completion from the queue.
    pub poll_nanos: u64,
    /// A client's CPU resumes what waited: a coroutine, or a thread that looks at its place in a local queue.
    pub resume_nanos: u64,
    /// Between two operations: drawing a key, walking the index cache (three to four cache misses of 80 ns), book-keeping.
    pub operation_nanos: u64,
    /// A client's CPU checks and searches a sorted node with a stamp in every line, per line that it fetched.
    pub sorted_line_picos: u64,
    /// The same for an unsorted leaf, all of which is looked at (paper §5.2.1: lookups take 100 ns more).
    pub unsorted_line_picos: u64,
    /// The same for a node with a checksum: CRC at about 1.5 bytes a cycle of 2.2 GHz, and a sorted search.
    pub checksum_line_picos: u64,
}

impl Params {
    /// The machines of the paper.
    pub const PAPER: Self = Self {
        link_gbps: 100,
        packet_header_bytes: 42,
        packet_payload_bytes: 4096,
        one_way_nanos: 300,
        doorbell_nanos: 150,
        inline_bytes: 220,
        pcie_nanos: 300,
        pcie_gbps: 104,
        completion_nanos: 200,
        send_message_picos: 14_286,
        receive_message_picos: 8_000,
        units: 16,
        unit_nanos: 230,
        bucket_bits: 12,
        atomic_transactions: 2,
        failed_cas_transactions: 1,
        on_chip_unit_picos: 145_455,
        on_chip_conflict_nanos: 90,
        call_nanos: 5_000,
        post_nanos: 150,
        post_verb_nanos: 40,
        poll_nanos: 100,
        resume_nanos: 50,
        operation_nanos: 500,
        sorted_line_picos: 12_000,
        unsorted_line_picos: 18_000,
        checksum_line_picos: 30_000,
    };

    /// Every parameter by name, with a way to change it.
    #[allow(clippy::type_complexity, reason = "a table of names and field accessors")]
    pub const FIELDS: [(&'static str, fn(&mut Self) -> &mut u64); 27] = [
        ("link_gbps", |p| &mut p.link_gbps),
        ("packet_header_bytes", |p| &mut p.packet_header_bytes),
        ("packet_payload_bytes", |p| &mut p.packet_payload_bytes),
        ("one_way_nanos", |p| &mut p.one_way_nanos),
        ("doorbell_nanos", |p| &mut p.doorbell_nanos),
        ("inline_bytes", |p| &mut p.inline_bytes),
        ("pcie_nanos", |p| &mut p.pcie_nanos),
        ("pcie_gbps", |p| &mut p.pcie_gbps),
        ("completion_nanos", |p| &mut p.completion_nanos),
        ("send_message_picos", |p| &mut p.send_message_picos),
        ("receive_message_picos", |p| &mut p.receive_message_picos),
        ("units", |p| &mut p.units),
        ("unit_nanos", |p| &mut p.unit_nanos),
        ("bucket_bits", |p| &mut p.bucket_bits),
        ("atomic_transactions", |p| &mut p.atomic_transactions),
        ("failed_cas_transactions", |p| &mut p.failed_cas_transactions),
        ("on_chip_unit_picos", |p| &mut p.on_chip_unit_picos),
        ("on_chip_conflict_nanos", |p| &mut p.on_chip_conflict_nanos),
        ("call_nanos", |p| &mut p.call_nanos),
        ("post_nanos", |p| &mut p.post_nanos),
        ("post_verb_nanos", |p| &mut p.post_verb_nanos),
        ("poll_nanos", |p| &mut p.poll_nanos),
        ("resume_nanos", |p| &mut p.resume_nanos),
        ("operation_nanos", |p| &mut p.operation_nanos),
        ("sorted_line_picos", |p| &mut p.sorted_line_picos),
        ("unsorted_line_picos", |p| &mut p.unsorted_line_picos),
        ("checksum_line_picos", |p| &mut p.checksum_line_picos),
    ];
}

impl Default for Params {
    fn default() -> Self {
        Self::PAPER
    }
}
