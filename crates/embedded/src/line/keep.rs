//! A memory server's own process, where others map its memory: what it does about a line whose holder has stalled.

use super::{Holder, Lines, Stalled, pieces};
use crate::copy::{Line, load_part, store_part};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// The holder for a memory server's own process, where others map its memory too.
pub trait Keeper: Holder<Stalled = Stalled> + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// `line` as it was before whoever holds it began to change it, if it was saved.
    fn saved(&self, line: usize) -> Option<Line>;
}

/// What the server's own CPU does, which cannot be refused.
impl Lines {
    /// As [`read`](Self::read): of a line whose holder has stalled it reads
    /// what was there before. Nobody else can read the line meanwhile, and what its holder leaves, alive or dead, is that or its
    /// change as a whole.
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

    /// As [`write`](Self::write): into a line whose holder has stalled it
    /// stores word by word. What clients change in the lines of a server's tables are single words that it does not store to
    /// (`docs/LAYOUT.md`), so neither undoes the other.
    pub(crate) fn write_as_keeper(&self, keeper: &dyn Keeper, offset: usize, from: &[u8]) {
        for piece in pieces(offset, from.len()) {
            let bytes = &from[piece.bytes];
            if self.write_piece(keeper, piece.line, piece.skip, bytes).is_err() {
                store_part(self.line(piece.line), piece.skip, bytes);
            }
        }
    }
}
