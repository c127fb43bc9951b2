//! Bytes received and not yet understood.
//!
//! A connection is received into its shard's scratch buffer and understood there. What is left, the beginning of a verb
//! or frame, is kept with the connection until the rest has come: a short one is put in front of what is received next,
//! a long one (a large WRITE) grows where it is, so that nothing is copied again and again. Nothing is looked at before
//! there is as much as the last look asked for.

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::OwnedFd;

/// Bytes received at a time.
pub(super) const RECEIVE: usize = 128 << 10;
/// A remainder up to this length is put in front of what is received next.
const SHORT: usize = 4 << 10;
/// Bytes of the scratch buffer.
pub(super) const SCRATCH: usize = SHORT + RECEIVE;

/// What is left of what was received.
#[derive(Debug, Default)]
pub(super) struct Input {
    rest: Vec<u8>,
    /// How long it must be before it is worth a look; 0 if it is.
    needed: usize,
}

/// What was received.
#[derive(Debug)]
pub(super) enum Received {
    /// So many bytes are at the beginning of the scratch buffer.
    Scratch(usize),
    /// These.
    Owned(Vec<u8>),
    /// Something, but not enough to be worth a look.
    TooLittle,
    /// Nothing: there is nothing.
    Nothing,
    /// Nothing, and nothing more will come.
    Gone,
}

impl Input {
    /// Receives what there is. Adds its length to `bytes`.
    pub(super) fn receive(&mut self, socket: &OwnedFd, scratch: &mut [u8], bytes: &mut u64) -> Received {
        if self.needed == 0 && !self.rest.is_empty() {
            return Received::Owned(std::mem::take(&mut self.rest));
        }
        let kept = self.rest.len();
        if kept > SHORT {
            self.rest.reserve_exact(self.needed.saturating_sub(kept).max(1));
            let got = recv(socket, spare_capacity(&mut self.rest), RecvFlags::DONTWAIT);
            return match Self::outcome(got.map(|(got, _)| got), bytes) {
                Ok(_) if self.rest.len() < self.needed => Received::TooLittle,
                Ok(_) => Received::Owned(std::mem::take(&mut self.rest)),
                Err(none) => none,
            };
        }
        scratch[..kept].copy_from_slice(&self.rest);
        let got = recv(socket, &mut scratch[kept..kept + RECEIVE], RecvFlags::DONTWAIT);
        match Self::outcome(got.map(|(got, _)| got), bytes) {
            Ok(got) if kept + got < self.needed => {
                self.rest.extend_from_slice(&scratch[kept..kept + got]);
                Received::TooLittle
            }
            Ok(got) => {
                self.rest = Vec::new();
                Received::Scratch(kept + got)
            }
            Err(none) => none,
        }
    }

    fn outcome(got: rustix::io::Result<usize>, bytes: &mut u64) -> Result<usize, Received> {
        match got {
            Ok(0) => Err(Received::Gone),
            Ok(got) => {
                *bytes += got as u64;
                Ok(got)
            }
            Err(Errno::AGAIN | Errno::INTR) => Err(Received::Nothing),
            Err(_) => Err(Received::Gone),
        }
    }

    /// Keeps what is left of `all` behind its first `used` bytes, until there are `needed`; 0 if they are worth a look as
    /// they are.
    pub(super) fn keep(&mut self, all: &[u8], used: usize, needed: usize) {
        let rest = &all[used..];
        self.rest = Vec::new();
        self.rest.extend_from_slice(rest);
        self.needed = if rest.is_empty() { 0 } else { needed };
    }

    /// Bytes of memory that it holds.
    pub(super) fn held(&self) -> usize {
        self.rest.capacity()
    }
}
