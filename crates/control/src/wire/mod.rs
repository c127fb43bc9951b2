//! The wire, protocol version 3: the messages between a client and a memory server, as bytes.
//!
//! The bodies of `List` and `ListDone` belong to the data path that sends lists in frames.
//!
//! Pure functions from values to bytes and back: no I/O, no clock, no panic on any input. All integers are
//! little endian. Every message is a **frame**: a header of 16 bytes ([`frame`]), then `len` bytes of body.
//!
//! | module | what |
//! |---|---|
//! | [`frame`] | the header, the kinds of frames, the limits |
//! | [`handshake`] | `Hello`, `Introduce`, `Welcome`, `Goodbye` |
//! | [`requests`], [`responses`] | control requests and their answers |
//! | [`stats`] | a server's counters |
//! | [`errors`] | errors and refusals |
//! | [`words`] | texts that are `&'static str` in this program |
//! | [`bytes`] | how all of them read and write |
//!
//! | client | server | |
//! |---|---|---|
//! | | `Hello` | versions, whether a secret is needed, a nonce |
//! | `Introduce` | | version, role, a nonce, proof of the secret |
//! | | `Welcome` | which server this is, its capabilities, proof of the secret; or `Goodbye` |
//! | `List`* | `ListDone` or `ListFailed` | in order; the tag says which is answered |
//! | `Call`* | `Answer` or `Refused` | not ordered with lists, nor with each other |
//! | `Attach` | `Attached` or `Refused` | a link of another data path; on a Unix socket a file may come with it |
//! | `Group` | | a message of the group, from another host; no answer |
//! | `Fill` | `Answer` or `Refused` | bytes for a copy that is being made, from the host of its primary |
//! | | `Goodbye` | at any time, the last frame |
//!
//! **What must hold.** A decoder never reads past its input, and never allocates more than its input
//! justifies. It refuses inconsistent input: bytes left over, counts that do not fit, unknown numbers. Every
//! encoded value decodes to the same value. A decoded value is *well formed*, no more. The server decides
//! whether an address lies in memory, and whether a client may ask.

pub mod bytes;
pub mod errors;
pub mod frame;
pub mod group;
pub mod handshake;
pub mod requests;
pub mod responses;
pub mod stats;
pub mod words;

#[cfg(test)]
mod samples;

pub use bytes::WireError;
pub use frame::{
    FrameHeader, FrameKind, HEADER_BYTES, MAX_FRAME, MAX_MEMORIES, MAX_REPLY, MAX_SERVERS, MAX_TRANSFER,
    MAX_VERBS, VERSION,
};
pub use handshake::{Also, Goodbye, GoodbyeCode, Hello, Introduce, Role, Welcome};
