//! Links of another data path. Each link is one more connection, attached with messages that the path defines
//! (`server::path`).

use super::connect::{ConnectError, receive_exactly, send_all};
use super::peers::Peers;
use super::stream::Stream;
use crate::wire::frame::put_frame;
use crate::wire::{FrameHeader, FrameKind, Goodbye, HEADER_BYTES, WireError, errors};
use rustix::event::PollFlags;
use sherman_fabric::FabricError;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// A link, for as long as it is kept. Dropping it closes its connection, which tells the server that the link
/// has ended.
#[derive(Debug)]
pub struct Attachment {
    stream: Stream,
    reply: Vec<u8>,
    file: Option<OwnedFd>,
}

impl Attachment {
    /// Connects to `server` and attaches a link.
    pub(crate) fn open(peers: &Peers, server: u16, body: &[u8]) -> Result<Self, FabricError> {
        if peers.is_lost(server) {
            return Err(FabricError::ServerLost { server });
        }
        let deadline = Instant::now() + peers.options.connect_timeout;
        let explain = |error: ConnectError| peers.explain(server, &error);
        let stream = peers.connect(server, deadline).map_err(explain)?.stream;
        match exchange(stream, body, deadline).map_err(explain)? {
            // The server is about to stop.
            Err(FabricError::Disconnected { .. }) => Err(peers.explain_break(server)),
            attached => attached,
        }
    }

    /// What the server answered.
    pub fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// The file that came with the answer. Returns it once.
    pub fn take_file(&mut self) -> Option<OwnedFd> {
        self.file.take()
    }

    /// Whether the server has ended the link. After its answer the server sends nothing else.
    pub fn is_over(&self) -> bool {
        !matches!(self.stream.receive(&mut [0]), Ok(None))
    }
}

/// The descriptor becomes readable when the link ends.
impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Sends `body` and receives the answer, or the server's refusal.
fn exchange(
    stream: Stream,
    body: &[u8],
    deadline: Instant,
) -> Result<Result<Attachment, FabricError>, ConnectError> {
    let mut out = Vec::new();
    put_frame(&mut out, FrameKind::Attach, 0, |out| out.extend_from_slice(body))?;
    send_all(&stream, &out, deadline)?;
    stream.wait(PollFlags::IN, deadline).map_err(ConnectError::Unreachable)?;
    let mut head = [0; HEADER_BYTES];
    // A file arrives with the first bytes of its frame.
    let (received, file) = stream.receive_with_file(&mut head).map_err(ConnectError::Unreachable)?;
    receive_exactly(&stream, &mut head[received..], deadline)?;
    let header = FrameHeader::decode(&head)?.ok_or(WireError::Truncated)?;
    if !matches!(header.kind, FrameKind::Attached | FrameKind::Refused | FrameKind::Goodbye) {
        return Err(WireError::Unknown { what: "answer to an attachment", found: header.kind as u64 }.into());
    }
    let mut reply = vec![0; header.len as usize];
    receive_exactly(&stream, &mut reply, deadline)?;
    match header.kind {
        FrameKind::Attached => Ok(Ok(Attachment { stream, reply, file })),
        FrameKind::Refused => Ok(Err(errors::take_error(&reply)?)),
        _ => Err(ConnectError::Goodbye(Goodbye::take(&reply)?)),
    }
}
