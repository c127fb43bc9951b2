//! Runs ahead of execution and asks the caches for what will be read.
//!
//! A READ of memory that is in no cache waits for it, line by line; but the READs behind it are known already: they were
//! received together. So while one is executed, the lines of the next ones are asked for. `examples/raw_reads`, 64 in
//! flight on memory that is in no cache, does half as many again with it; on memory that is, a few percent less.
//!
//! It promises nothing and checks little: where it does not understand what follows, it stops.

use crate::wire::{FrameHeader, HEADER_BYTES, Kind, ListDecoder, Next, WireVerb};
use sherman_embedded::host::Turn;

/// READs it is ahead.
const AHEAD: usize = 8;

/// The READs to come.
pub(super) struct Scout<'a> {
    rest: &'a [u8],
    list: Option<ListDecoder>,
    started: bool,
}

impl<'a> Scout<'a> {
    /// Goes ahead of whoever is at the beginning of `input`, in the list that `list` decodes or before the next one.
    pub(super) fn new(input: &'a [u8], list: Option<ListDecoder>) -> Self {
        Self { rest: input, list, started: false }
    }

    /// The next READ is about to be executed.
    #[inline]
    pub(super) fn advance(&mut self, turn: &Turn<'_>) {
        if self.started {
            self.ask(turn);
            return;
        }
        self.started = true;
        // The first is executed at once.
        self.next_read();
        (0..AHEAD).for_each(|_| self.ask(turn));
    }

    #[inline]
    fn ask(&mut self, turn: &Turn<'_>) {
        if let Some(WireVerb::Read { space, offset, len }) = self.next_read() {
            turn.prefetch(space, offset, len as usize);
        }
    }

    #[inline]
    fn next_read(&mut self) -> Option<WireVerb<'a>> {
        loop {
            let Some(list) = &mut self.list else {
                let header = FrameHeader::decode(self.rest).ok().flatten().filter(|header| header.kind == Kind::List);
                let Some(header) = header else {
                    self.rest = &[];
                    return None;
                };
                self.rest = &self.rest[HEADER_BYTES..];
                self.list = Some(ListDecoder::new(&header));
                continue;
            };
            match list.next(self.rest) {
                Ok(Next::Verb { verb, used }) => {
                    self.rest = &self.rest[used..];
                    if let WireVerb::Read { .. } = verb {
                        return Some(verb);
                    }
                }
                Ok(Next::End) => self.list = None,
                Ok(Next::Partial { .. }) | Err(_) => {
                    (self.rest, self.list) = (&[], None);
                    return None;
                }
            }
        }
    }
}
