//! The memory server's own process, where other processes map its memory: its access to a line whose holder
//! has stalled.

use super::{Holder, Lines, Stalled, pieces};
use crate::copy::{Line, load_part, store_part};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// The holder for a memory server's own process, where other processes map its memory too.
pub trait Keeper: Holder<Stalled = Stalled> + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// `line` as it was before its holder began to change it, if the holder saved it.
    fn saved(&self, line: usize) -> Option<Line>;
}

/// Accesses of the server's own CPU, which cannot be refused.
impl Lines {
    /// As [`read`](Self::read), but for a line whose holder has stalled it reads the line as it was before
    /// the change. Meanwhile no other client can read the line. Its holder, alive or dead, leaves either the
    /// old line or its whole change.
    pub(crate) fn read_as_keeper(&self, keeper: &dyn Keeper, offset: usize, into: &mut [u8]) {
        for piece in pieces(offset, into.len()) {
            let bytes = &mut into[piece.bytes];
            if self.read_piece(keeper, piece.line, piece.skip, bytes).is_err() {
                match keeper.saved(piece.line) {
                    Some(line) => bytes.copy_from_slice(&line[piece.skip..piece.skip + bytes.len()]),
                    None => load_part(self.line(piece.line), piece.skip, bytes),
                }
            }
        }
    }

    /// As [`write`](Self::write), but into a line whose holder has stalled it stores word by word. In the
    /// lines of a server's tables, clients change only single words that the server does not store to
    /// (`docs/LAYOUT.md`). So neither undoes the other.
    pub(crate) fn write_as_keeper(&self, keeper: &dyn Keeper, offset: usize, from: &[u8]) {
        for piece in pieces(offset, from.len()) {
            let bytes = &from[piece.bytes];
            if self.write_piece(keeper, piece.line, piece.skip, bytes).is_err() {
                store_part(self.line(piece.line), piece.skip, bytes);
            }
        }
    }
}
