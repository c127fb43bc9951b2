//! The control state as the state machine of the group.
//!
//! A node that joins the group has no state until the leader's first snapshot arrives. That snapshot comes
//! before any command: a group's log begins with it.

mod command;

pub use command::encode;

use sherman_consensus::StateMachine;
use sherman_fabric::{FabricError, Refusal, Response};
use sherman_memory_server::cluster::ClusterState;

/// Why a command is refused that cannot be decoded.
const NO_COMMAND: &str = "the control state does not understand the command";

/// The control state of a cluster, or nothing before the first snapshot.
#[derive(Debug, Default)]
pub struct Machine(Option<ClusterState>);

impl Machine {
    /// The state of a cluster.
    pub fn new(state: ClusterState) -> Self {
        Self(Some(state))
    }

    /// The state, once the node has one.
    pub fn state(&self) -> Option<&ClusterState> {
        self.0.as_ref()
    }
}

impl StateMachine for Machine {
    type Answer = Result<Response, FabricError>;

    fn apply(&mut self, _index: u64, command: &[u8]) -> Self::Answer {
        let refused = || FabricError::Refused(Refusal::BadRequest { what: NO_COMMAND });
        let command = command::decode(command).map_err(|_| refused())?;
        self.0.as_mut().ok_or_else(refused)?.apply(&command)
    }

    fn snapshot(&self) -> Vec<u8> {
        self.0.as_ref().map_or_else(Vec::new, ClusterState::snapshot)
    }

    fn restore(&mut self, snapshot: &[u8]) -> bool {
        match ClusterState::restore(snapshot) {
            Some(state) => {
                self.0 = Some(state);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
