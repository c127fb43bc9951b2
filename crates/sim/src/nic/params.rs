//! All parameters of the NIC model, in one place, each with its source.
//!
//! The values were fixed before any experiment with the tree ran on the model, and are not adjusted to fit
//! one. They come only from isolated measurements of the paper (its section 3 and §5.7) and from public
//! figures of the NIC and its bus. `docs/EVALUATION.md` shows how they reproduce those measurements, and how
//! a change of each by a quarter affects the results.
//!
//! Times are in picoseconds where a rate gives fractions of a nanosecond, else in nanoseconds.

use serde::{Deserialize, Serialize};

/// Defines the parameters: each with its source, its name and its value on the paper's machines.
macro_rules! params {
    ($($(#[$source:meta])* $name:ident = $value:literal,)+) => {
        /// The model's parameters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Params {
            $($(#[$source])* pub $name: u64,)+
        }

        impl Params {
            /// The parameters of the paper's machines.
            pub const PAPER: Self = Self { $($name: $value,)+ };

            /// Returns every parameter by name, with a way to change it.
            #[allow(clippy::type_complexity, reason = "a table of names and field accessors")]
            pub const FIELDS: [(&'static str, fn(&mut Self) -> &mut u64); [$($value),+].len()] =
                [$((stringify!($name), |params| &mut params.$name)),+];
        }
    };
}

params! {
    /// Link speed of a NIC, each way, in bits per nanosecond. Paper §5.1.1: 100 Gbps.
    link_gbps = 100,
    /// Header and trailer bytes of a packet. InfiniBand: local route header 8, base transport header 12, RDMA
    /// extended header 16, invariant and variant checks 6. The switch of the paper (MSB7790) is InfiniBand.
    packet_header_bytes = 42,
    /// Largest payload of a packet: InfiniBand's largest MTU, which Sherman's published code uses.
    packet_payload_bytes = 4096,
    /// Time from one NIC's port to the other's: serial-to-parallel and back, cables, one switch of 90 ns
    /// (MSB7790's data sheet).
    one_way_nanos = 300,
    /// Time from the CPU's store to the NIC's doorbell until the NIC starts the list. The list travels with
    /// the doorbell.
    doorbell_nanos = 150,
    /// A WRITE's payload up to this size travels with the doorbell (inline). The NIC fetches a larger payload
    /// over PCIe first. Published verbs programs request 220 bytes from such NICs.
    inline_bytes = 220,
    /// Duration of one PCIe transaction that waits for an answer: the NIC reads data from the host's
    /// last-level cache. Public measurements of PCIe 3.0 on Xeon E5 hosts (Neugebauer et al., SIGCOMM'18)
    /// show 400 to 600 ns for devices with buffering of their own. The steps of the paper's HOCL
    /// micro-benchmark (§5.7) need 130 to 200. The value is the highest that these steps allow, and the
    /// lowest that is plausible.
    pcie_nanos = 200,
    /// Rate of PCIe 3.0 x16 in each direction, in bits per nanosecond: 126.0 after encoding, 113.7 after
    /// acknowledgements, flow control and clock compensation (the model of Neugebauer et al., SIGCOMM'18,
    /// `pcie-bench/pcie-model`, for 16 lanes and packets of 256 bytes). With the headers below, 104 of
    /// payload.
    pcie_gbps = 114,
    /// Bytes of a PCIe packet besides its payload: framing, sequence number and checksum 8, header with a
    /// 64-bit address 16 (the same source). Packets that answer a read have 4 bytes less, which the model
    /// does not distinguish.
    pcie_header_bytes = 24,
    /// Largest payload of a PCIe packet: 256, the usual setting of Xeon E5 hosts (the same source).
    pcie_payload_bytes = 256,
    /// The most bytes that one PCIe read request asks for: 512, the usual setting (the same source).
    pcie_request_bytes = 512,
    /// Bytes of a block in which the CPU hands work requests to the NIC. Each block is one PCIe packet. This
    /// is the block of a ConnectX-5's send queue (`MLX5_SEND_WQE_BB` in rdma-core), and a line of the CPU's
    /// write-combining buffer.
    work_request_bytes = 64,
    /// Bytes of an entry of the completion queue, one for each list (`mlx5_cqe64` in rdma-core).
    completion_bytes = 64,
    /// Time from the NIC's last byte to the CPU's next poll that sees the completion.
    completion_nanos = 200,
    /// Interval at which the sending side starts messages: 70 million per second. The paper's figure
    /// "Performance of RDMA_WRITE" shows more than 50 million for small ones. The answer to a READ is such a
    /// message too: it has the packets of a WRITE of the same bytes.
    send_message_picos = 14_286,
    /// The same interval after the answer to an atomic. The NIC answers 110 million on-chip atomics per
    /// second (paper §4.3), so an answer cannot take longer.
    atomic_answer_picos = 9_090,
    /// Interval at which the receiving side accepts messages: 125 million per second. It executes 110 million
    /// on-chip atomics (paper §4.3), so it cannot accept fewer.
    receive_message_picos = 8_000,
    /// Number of units that process requests at the receiving side, each one request at a time. A request
    /// that waits for anything keeps its unit: the paper's lock collapse (figure "Performance of RDMA-based
    /// exclusive locks") needs that, whatever the number. 16.
    units = 16,
    /// Time that a READ or WRITE occupies a unit: with 16 units, 70 million per second (the figure on WRITEs
    /// again).
    unit_nanos = 230,
    /// Number of address bits that select an atomic's bucket: the 12 lowest (paper §3.2.2, after Kalia et
    /// al., ATC'16).
    bucket_bits = 12,
    /// Sequential PCIe transactions of an atomic in host memory that stores (paper §3.2.2).
    atomic_transactions = 2,
    /// PCIe transactions of a CAS that fails (paper §3.2.2).
    failed_cas_transactions = 1,
    /// Time that an atomic in on-chip memory occupies a unit: with 16 units, 110 million per second (paper
    /// §4.3).
    on_chip_unit_picos = 145_455,
    /// Interval between atomics on the same on-chip word. Calibrated only on the paper's HOCL
    /// micro-benchmark: its steps from host to on-chip locks (2.89 times) and from there to hierarchical
    /// locks (3.85 times).
    on_chip_conflict_nanos = 60,
    /// Duration of a control request: a message to the memory server's CPU and back, with its work. It is
    /// rare: once per chunk.
    call_nanos = 5_000,
    /// CPU time of a client to build a list and ring the doorbell.
    post_nanos = 150,
    /// CPU time for every verb of a list after the first.
    post_verb_nanos = 40,
    /// CPU time of a client to take a completion from the queue.
    poll_nanos = 100,
    /// CPU time of a client to resume a waiting coroutine, or a thread that checks its place in a local
    /// queue.
    resume_nanos = 50,
    /// CPU time between two operations: drawing a key, walking the index cache (three to four cache misses of
    /// 80 ns), bookkeeping.
    operation_nanos = 500,
    /// CPU time per fetched line to check and search a sorted node with a stamp in every line.
    sorted_line_picos = 12_000,
    /// The same for an unsorted leaf: the client compares all of some fifty entries instead of six, 2 ns
    /// each.
    unsorted_line_picos = 18_000,
    /// The same for a node with a checksum: CRC at about 1.5 bytes per cycle at 2.2 GHz, and a sorted search.
    checksum_line_picos = 30_000,
    /// CPU time to sort the entries of an unsorted leaf, for a scan or a split, besides that of each entry.
    /// `crates/core/src/node/counting_sort.rs` takes 63, 182, 204, 268, 317 and 384 ns for 9, 36, 45, 60, 75
    /// and 90 entries in random slots on a recent server (its test `what_a_sort_costs`). This time and the
    /// next add up to that. A third of it is copying, which is left in: the paper's cores have only 2.2 GHz.
    /// All unsorted formats pay the same, although the sort for two-level leaves is slower.
    sort_nanos = 50,
    /// CPU time to sort one entry (see above).
    sort_entry_picos = 3_600,
}

impl Params {
    /// Changes the parameter `name`. Returns false if there is none of that name.
    pub fn set(&mut self, name: &str, value: u64) -> bool {
        let field = Self::FIELDS.into_iter().find(|field| field.0 == name);
        field.map(|(_, field)| *field(self) = value).is_some()
    }
}

impl Default for Params {
    fn default() -> Self {
        Self::PAPER
    }
}
