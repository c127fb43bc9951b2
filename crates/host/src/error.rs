//! Why a host cannot be started.

use crate::folder::FolderProblem;
use crate::options::MOST_HOSTS;
use sherman_consensus::OpenError;
use sherman_control::{Address, ConnectError};
use sherman_fabric::FabricError;
use sherman_layout::FormatError;
use sherman_soft_nic::server::ServeError;
use std::io;
use std::path::PathBuf;

sherman_fabric::errors! {
    /// Why [`RunningHost::start`](crate::RunningHost::start) failed.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum HostError {
        /// The memory server of this process cannot be started.
        Serve(error: ServeError) => "{error}" through error,
        /// An address that is none.
        BadAddress {
            /// The address.
            address: String,
        } => "{address:?} is no address of a host: write tcp://host:port or unix:/path",
        /// The host listens on all addresses of its machine, and does not say under which one it is reached.
        Unspecified {
            /// Where it listens.
            listen: String,
        } => "{listen} means all addresses of this machine: say under which one other hosts reach it \
            (advertise)",
        /// Another memory server answers at the address that the host gives as its own.
        AddressTaken {
            /// The address.
            address: Address,
        } => "another memory server answers at {address}. Say under which address this host is reached",
        /// The settings of the new cluster cannot work.
        Settings(error: FormatError) => "the settings of the new cluster: {error}" because error,
        /// The settings of the new cluster ask for more hosts than a cluster can have.
        TooManyHosts {
            /// How many they ask for.
            asked: u16,
        } => "{asked} hosts are too many: a cluster has at most {MOST_HOSTS}",
        /// No address of a host of the cluster is given.
        NoSeeds => "name at least one other host of the cluster to join",
        /// No host of the cluster can be reached.
        Unreachable {
            /// The address that was tried last.
            address: Address,
            /// Why it cannot be reached.
            error: ConnectError,
        } => "cannot reach the cluster: host at {address}: {error}" because error,
        /// A host speaks another version of the protocol.
        Version {
            /// Its address.
            address: Address,
            /// Both versions.
            error: ConnectError,
        } => "host at {address}: {error}" because error,
        /// A host refuses the connection.
        Connect {
            /// Its address.
            address: Address,
            /// Why.
            error: ConnectError,
        } => "host at {address}: {error}" because error,
        /// A host wants proof of a secret, and this one has none.
        NeedsSecret {
            /// Its address.
            address: Address,
        } => "host at {address} requires the cluster's secret: name its file (--secret-file)",
        /// A memory server answers that is no host.
        NotAHost {
            /// Its address.
            address: Address,
        } => "the memory server at {address} belongs to a cluster without replication: no host can join it",
        /// The hosts that were reached know no leader.
        NoLeader => "the hosts of the cluster answer, but none of them leads it. Are most of them running?",
        /// The hosts belong to another cluster than the one that is meant, or to two clusters.
        OtherCluster {
            /// The address of the host.
            address: Address,
            /// Its cluster.
            found: u64,
            /// The cluster that is meant.
            meant: u64,
        } => "the host at {address} belongs to cluster {found:016x}, not to {meant:016x}",
        /// The host offers too little memory for its copies of the cluster's volumes.
        TooLittleMemory {
            /// Bytes that it offers.
            offered: u64,
        } => "{offered} bytes of memory are too few for this host's copies of the cluster's volumes",
        /// The cluster refuses the host.
        Refused(error: FabricError) => "the cluster refuses this host: {error}" because error,
        /// The leader's answer is not readable.
        Answer {
            /// What is wrong.
            what: &'static str,
        } => "the cluster's answer is not readable: {what}. Is its version another?",
        /// The node of the group cannot be opened.
        Group(error: OpenError) => "{error}" because error,
        /// The folder of the host cannot be used.
        Folder {
            /// The folder.
            path: PathBuf,
            /// What is wrong.
            problem: FolderProblem,
        } => ("{}: {problem}", path.display()) because problem,
        /// The folder has no host.
        NothingKept {
            /// The folder.
            path: PathBuf,
        } => ("there is no host in {}: make a new cluster, or join one", path.display()),
        /// The system has no random numbers.
        NoRandomness(error: getrandom::Error) => "the system has no random numbers: {error}" because error,
        /// The system has no more threads.
        System(error: io::Error) => "cannot start the host: {error}" because error,
    }
}

impl From<ServeError> for HostError {
    fn from(error: ServeError) -> Self {
        Self::Serve(error)
    }
}

impl From<OpenError> for HostError {
    fn from(error: OpenError) -> Self {
        Self::Group(error)
    }
}
