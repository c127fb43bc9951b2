//! What a node of the group asks of its caller, and tells it.

use crate::NodeId;
use crate::disk::Write;
use crate::error::{Refused, Stopped};

/// Names a proposal, a read or a change of the members until its result. Unique within one run of a node.
pub type Ticket = u64;

/// A message to another node. The network may lose, repeat, delay and reorder it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The node to send it to.
    pub to: NodeId,
    /// Its bytes, for `Group::receive` there.
    pub bytes: Vec<u8>,
}

/// Everything that a node asks and tells since the last time.
#[derive(Debug)]
pub struct Output<A> {
    /// Writes to execute in this order. The caller reports each one by `Group::persisted`.
    pub writes: Vec<Write>,
    /// Messages to send, in any order. They wait for no write: the group holds back the ones that do.
    pub messages: Vec<Envelope>,
    /// What has happened, in order.
    pub events: Vec<Event<A>>,
}

impl<A> Default for Output<A> {
    fn default() -> Self {
        Self { writes: Vec::new(), messages: Vec::new(), events: Vec::new() }
    }
}

/// What has happened at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<A> {
    /// The result of a proposal. `Ok`: the command is committed and applied, and this is the state machine's
    /// answer.
    Proposed {
        /// Which proposal.
        ticket: Ticket,
        /// Its result.
        result: Result<A, Unanswered>,
    },
    /// The result of a read. `Ok`: the state of this node is now at least as new as it was anywhere when the
    /// read was asked, until the caller's next call to the group.
    Read {
        /// Which read.
        ticket: Ticket,
        /// Its result.
        result: Result<(), Refused>,
    },
    /// The result of a change of the members.
    Changed {
        /// Which change.
        ticket: Ticket,
        /// Its result.
        result: Result<(), Unanswered>,
    },
    /// The group has these members now.
    Members(Members),
    /// The node knows another leader, or none.
    Leader {
        /// The term.
        term: u64,
        /// The leader.
        leader: Option<NodeId>,
    },
    /// This node leads in `term`, and its state has everything that was committed before. A lease that an
    /// earlier leader granted counts from now on (L3).
    Leading {
        /// The term.
        term: u64,
    },
    /// The node has stopped.
    Stopped(Stopped),
}

sherman_fabric::errors! {
    /// Why a proposal has no answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Unanswered {
        /// Another command took its place in the log. The command was not and will not be executed.
        Superseded => "another leader's command took its place: it was not executed",
        /// The node lost sight of the command. It may have been executed, or may be later.
        Unknown => "the outcome is unknown",
    }
}

/// The members of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The nodes whose majority decides, in order.
    pub voters: Vec<NodeId>,
    /// The nodes that follow without a vote, in order.
    pub learners: Vec<NodeId>,
}

/// A change of the members, one node at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a node that follows without a vote.
    AddLearner(NodeId),
    /// Gives a learner a vote. It must have nearly the whole log.
    Promote(NodeId),
    /// Removes a node. The leader cannot remove itself: it hands over first.
    Remove(NodeId),
}

impl Change {
    /// The node that changes.
    pub fn node(self) -> NodeId {
        match self {
            Self::AddLearner(node) | Self::Promote(node) | Self::Remove(node) => node,
        }
    }
}
