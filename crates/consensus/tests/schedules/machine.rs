//! The state machine of the schedules: it remembers which commands it has applied, and where.

use sherman_consensus::StateMachine;
use std::cell::RefCell;
use std::rc::Rc;

/// What nodes have applied since the world looked: index, and the hash of all commands up to it.
pub(crate) type Applied = Rc<RefCell<Vec<(u64, u64)>>>;

/// A list of commands. A command is a number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    pub(crate) commands: Vec<u64>,
    /// Hash of all commands and their places.
    pub(crate) hash: u64,
    /// The place of the last command.
    pub(crate) last: u64,
    pub(crate) seen: Applied,
}

impl StateMachine for Machine {
    /// The command, and its index.
    type Answer = (u64, u64);

    fn apply(&mut self, index: u64, command: &[u8]) -> Self::Answer {
        let command = command.try_into().map_or(u64::MAX, u64::from_le_bytes);
        self.commands.push(command);
        self.hash = mix(mix(self.hash, index), command);
        self.last = index;
        self.seen.borrow_mut().push((self.last, self.hash));
        (command, index)
    }

    fn snapshot(&self) -> Vec<u8> {
        let words = [self.last, self.hash].into_iter().chain(self.commands.iter().copied());
        words.flat_map(u64::to_le_bytes).collect()
    }

    fn restore(&mut self, snapshot: &[u8]) -> bool {
        let mut words = snapshot.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let (Some(last), Some(hash)) = (words.next(), words.next()) else { return false };
        (self.last, self.hash, self.commands) = (last, hash, words.collect());
        let mut seen = self.seen.borrow_mut();
        seen.retain(|(index, _)| *index < last);
        if last > 0 {
            seen.push((last, hash));
        }
        true
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ 0xa076_1d64_78bd_642f) * u128::from(word ^ 0xe703_7ed1_a0b4_28db);
    (product as u64) ^ ((product >> 64) as u64)
}
