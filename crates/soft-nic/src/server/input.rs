//! Bytes that are received and not yet decoded.
//!
//! The server receives each connection into its shard's scratch buffer and decodes the bytes there. The
//! connection keeps the remainder, the beginning of a verb or frame, until the rest has arrived. A short
//! remainder is copied to the front of the next receive. A long one (a large WRITE) grows in place, so that
//! it is not copied again and again. The server decodes again only when as many bytes have arrived as the
//! last attempt asked for.

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::OwnedFd;

/// The most bytes of one receive.
pub(super) const RECEIVE: usize = 128 << 10;
/// A remainder up to this length is copied to the front of the next receive.
const SHORT: usize = 4 << 10;
/// Bytes of the scratch buffer.
pub(super) const SCRATCH: usize = SHORT + RECEIVE;

/// The undecoded remainder of the received bytes.
#[derive(Debug, Default)]
pub(super) struct Input {
    rest: Vec<u8>,
    /// How long it must be before it is decoded again; 0 if it can be decoded now.
    needed: usize,
}

/// The result of a receive.
#[derive(Debug)]
pub(super) enum Received {
    /// This many bytes at the beginning of the scratch buffer.
    Scratch(usize),
    /// These bytes.
    Owned(Vec<u8>),
    /// Some bytes, but too few to decode.
    TooLittle,
    /// No bytes have arrived.
    Nothing,
    /// The connection has ended.
    Gone,
}

impl Input {
    /// Receives the available bytes. Adds their number to `bytes`.
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

    /// Keeps the bytes of `all` after the first `used`, until there are `needed` bytes. With `needed` 0 they
    /// can be decoded as they are.
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
