//! The wire, protocol version 2: what a client and a memory server say to each other, as bytes.
//!
//! Pure functions from values to bytes and back: no I/O, no clock, no panic on any input. All integers are little endian.
//! Every message is a **frame**: a header of 16 bytes ([`frame`]), then `len` bytes of body.
//!
//! | module | what |
//! |---|---|
//! | [`frame`] | the header, the kinds of frames, the limits |
//! | [`handshake`] | `Hello`, `Introduce`, `Welcome`, `Goodbye` |
//! | [`verbs`] | a work list as the body of a `List`; its results as the body of a `ListDone` |
//! | [`requests`], [`responses`] | control requests and their answers |
//! | [`stats`] | a server's counters |
//! | [`errors`] | errors and refusals |
//! | [`words`] | texts that are `&'static str` in this program |
//! | [`bytes`] | how all of them read and write |
//!
//! | client | server | |
//! |---|---|---|
//! | | `Hello` | versions, whether a secret is needed, a nonce |
//! | `Introduce` | | version, who it is, a nonce, proof of the secret |
//! | | `Welcome` | which server this is, what it can do, proof of the secret; or `Goodbye` |
//! | `List`* | `ListDone` or `ListFailed` | in order; the tag says which is answered |
//! | `Call`* | `Answer` or `Refused` | not ordered with lists, nor with each other |
//! | `Attach` | `Attached` or `Refused` | a link of another data path; on a Unix socket a file may come with it |
//! | | `Goodbye` | at any time, the last frame |
//!
//! **What must hold.** A decoder never reads past the bytes it is given, never allocates more than those bytes justify,
//! and refuses what does not add up: bytes left over, counts that do not fit, unknown numbers. What is encoded here is
//! decoded to the same value. What is decoded is *well formed*, no more: whether an address lies in memory, whether a
//! client may ask, is for the server.

pub mod bytes;
pub mod errors;
pub mod frame;
pub mod handshake;
pub mod requests;
pub mod responses;
pub mod stats;
pub mod verbs;
pub mod words;

#[cfg(test)]
mod samples;

pub use bytes::WireError;
pub use frame::{FrameHeader, HEADER_BYTES, Kind, MAX_FRAME, MAX_REPLY, MAX_SERVERS, MAX_TRANSFER, MAX_VERBS, VERSION};
pub use handshake::{Goodbye, GoodbyeCode, Hello, Introduce, Role, Welcome};
pub use verbs::{ListDecoder, Next, WireVerb};
