//! Why a host's folder cannot be used.

use sherman_consensus::LogCorrupt;
use sherman_control::Address;
use sherman_embedded::host::HostError as MemoryError;
use std::io;

sherman_fabric::errors! {
    /// Why a host's folder cannot be used. Nothing in it was changed.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum FolderProblem {
        /// The path is no folder.
        NotAFolder => "it is no folder. A host keeps its memory in a folder: name another path",
        /// The folder has other files.
        NotAHost => "the folder has files, but not those of a host. Name a new folder, or an empty one",
        /// Another process uses the folder.
        InUse => "another host uses the folder",
        /// Another version has written the folder.
        OtherVersion {
            /// The version of the folder.
            found: u32,
            /// The version that this build knows.
            known: u32,
        } => "the folder has version {found}, but this build knows version {known}",
        /// The file of the host is damaged.
        Damaged {
            /// What is wrong.
            what: &'static str,
        } => "the file \"host\" in it is damaged: {what}",
        /// The log of the control group is damaged.
        Log(error: LogCorrupt) => "{error}" because error,
        /// The log of the control group belongs to another host, or to a host of another cluster.
        OthersLog => "the log of the control group in it belongs to another host",
        /// The host of the folder runs: this folder is a copy of the one that it uses.
        Runs {
            /// The host.
            host: u16,
            /// Where it answers.
            address: Address,
        } => "host {host} runs already, at {address}: a copy of its folder cannot be used beside it",
        /// A file of the log of the control group is missing.
        NoLog {
            /// Its name.
            name: &'static str,
        } => "the file {name:?} in it is missing",
        /// Nobody knows how long the log of the control group must be.
        LogLength => "the file \"group.len\" in it is damaged or missing",
        /// The memory of a copy cannot be opened.
        Copy {
            /// The copy.
            copy: u16,
            /// Why.
            error: MemoryError,
        } => "copy {copy}: {error}" because error,
        /// The file of a copy has no memory.
        DamagedCopy {
            /// The copy.
            copy: u16,
        } => "the memory of copy {copy} is damaged: its file is too short, or does not begin as it should",
        /// The memory of a copy is missing.
        NoCopy {
            /// The copy.
            copy: u16,
        } => "the memory of copy {copy} is missing",
        /// The machine was started again without the host having ended in order.
        MachineRestarted => "the machine was started again since the folder was used last, and memory in \
            files does not survive that. Remove the folder to start as a new host",
        /// The disk has no room.
        NoSpace {
            /// Bytes that are needed.
            needed: u64,
            /// Bytes that are free.
            free: u64,
        } => "the disk has no room for the host's memory: {needed} more bytes are needed, and {free} are \
            free. Make room, offer less memory, or name a folder on another disk",
        /// The memory is longer than this process may make a file (`ulimit -f`).
        OverLimit {
            /// Bytes that are needed.
            needed: u64,
            /// Bytes that are allowed.
            allowed: u64,
        } => "the host's memory has {needed} bytes, but this process may make files of at most {allowed} \
            bytes: raise the limit (ulimit -f)",
        /// The host offered another amount of memory than its copies have.
        LessMemory {
            /// Bytes that its copies have.
            used: u64,
            /// Bytes offered.
            offered: u64,
        } => "the copies in the folder have {used} bytes, and the host offers only {offered}",
        /// The system refuses something.
        Io {
            /// What.
            what: &'static str,
            /// Why.
            error: io::Error,
        } => "cannot {what}: {error}" because error,
    }
}

impl FolderProblem {
    pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Io { what, error }
    }
}
