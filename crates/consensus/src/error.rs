//! Why the group refuses a request, or cannot go on.

use crate::NodeId;

sherman_fabric::errors! {
    /// Why a request was refused. Nothing was changed.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Refused {
        /// Another node leads, or none does.
        NotLeader {
            /// The leader that this node knows, if any. The caller may ask it instead.
            hint: Option<NodeId>,
        } => ("this node does not lead the control group{}", hint_text(*hint)),
        /// The leader hands its office to another node and takes no proposals meanwhile.
        Transferring => "the leader is handing over: ask again in a moment",
        /// Too many requests wait for an answer.
        TooManyPending {
            /// How many may wait.
            limit: usize,
        } => "{limit} requests wait for the control group already: ask again later",
        /// The command is too long.
        TooLarge {
            /// Its length in bytes.
            bytes: usize,
            /// How long it may be.
            limit: usize,
        } => "the command has {bytes} bytes, at most {limit} are allowed",
        /// A change of the members is under way.
        ChangePending => "another change of the members is under way: ask again when it is done",
        /// The change does not fit the members.
        BadChange {
            /// The node to change.
            node: NodeId,
            /// What is wrong.
            what: &'static str,
        } => "cannot change node {node}: {what}",
        /// The node has stopped.
        Stopped(why: Stopped) => "{why}" because why,
    }
}

sherman_fabric::errors! {
    /// Why a node of the group has stopped. It answers no more; the other nodes go on without it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Stopped {
        /// The caller said that a write failed. What the disk has is unknown.
        StorageFailed => "the log of the control group cannot be written",
        /// A snapshot from the leader does not fit the state machine.
        BadSnapshot {
            /// The index of the snapshot.
            index: u64,
        } => "the leader's snapshot at index {index} is not readable here",
        /// A committed entry is not readable.
        BadEntry {
            /// The index of the entry.
            index: u64,
        } => "the committed entry {index} is not readable here",
        /// The log does not have what this node has promised to keep: it was lost or replaced.
        LogLost {
            /// The last index of the log.
            last: u64,
            /// The index that the leader knows to be here.
            expected: u64,
        } => "the log ends at index {last}, but the leader knows of index {expected}: was it replaced?",
        /// A rule of Raft is broken on this node: the algorithm found a state that cannot be.
        Broken => "the control group found a state that cannot be, and stopped",
    }
}

sherman_fabric::errors! {
    /// Why a message from another node was not taken. The node goes on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum BadMessage {
        /// The bytes are not a message.
        Malformed {
            /// What is wrong.
            what: &'static str,
        } => "not a message of the control group: {what}",
        /// The sender speaks another version of the format.
        OtherVersion {
            /// The version of the message.
            found: u8,
        } => "the message has format {found}, this build speaks another",
        /// The message is for another node.
        OtherNode {
            /// The node that the message is for.
            to: NodeId,
        } => "the message is for node {to}",
    }
}

sherman_fabric::errors! {
    /// Why a log cannot be read: something that was durable is lost or damaged.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum LogCorrupt {
        /// A record that was durable is not readable.
        Damaged {
            /// Which segment.
            segment: usize,
            /// Where the record begins.
            offset: u64,
        } => "segment {segment} of the control log is damaged at byte {offset}, before its end",
        /// No segment has a readable beginning.
        NoBeginning => "no segment of the control log has a readable beginning",
        /// The records contradict each other.
        Inconsistent {
            /// What is wrong.
            what: &'static str,
        } => "the control log contradicts itself: {what}",
    }
}

sherman_fabric::errors! {
    /// Why a node cannot be opened. Nothing was written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum OpenError {
        /// The settings cannot work.
        BadSettings {
            /// What is wrong.
            what: &'static str,
        } => "the settings of the control group cannot work: {what}",
        /// The state machine does not understand the snapshot in the log.
        BadSnapshot => "the snapshot in the control log is not readable: was it written by another version?",
        /// Raft does not accept the log.
        BadLog => "the control log makes no sense",
    }
}

fn hint_text(hint: Option<NodeId>) -> String {
    hint.map_or_else(|| "; no leader is known".to_owned(), |leader| format!("; node {leader} does"))
}
