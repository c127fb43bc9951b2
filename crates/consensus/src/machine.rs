//! The state that the group replicates.

/// A deterministic state machine. Every node of the group holds one, and applies the same commands in the
/// same order.
///
/// What must hold: the answers and the state follow from the commands alone. An implementation reads no
/// clock, draws no random number, and iterates over nothing whose order differs between processes. Time that
/// a command needs is part of the command.
pub trait StateMachine {
    /// What applying a command returns to the node that proposed it.
    type Answer;

    /// Applies the committed command at `index`. A command that does not make sense is answered as such: it
    /// cannot be refused any more.
    fn apply(&mut self, index: u64, command: &[u8]) -> Self::Answer;

    /// The whole state as bytes.
    fn snapshot(&self) -> Vec<u8>;

    /// Replaces the state by one that [`snapshot`](Self::snapshot) returned, perhaps on another node. Returns
    /// false if the bytes are no such state.
    fn restore(&mut self, snapshot: &[u8]) -> bool;
}
