//! One connection: received bytes, bytes to send, and how it begins and ends.
//!
//! ```text
//! Greeting ──Introduce──▶ Open ──▶ Closing ──▶ gone
//!     └──────── too slow, refused ────▲
//! ```
//! A connection that ends in order sends `Goodbye` and then nothing more. It skips all further input until
//! the client hangs up or a second has passed. If a socket is closed with unread bytes, the system may
//! discard the bytes sent before.

use super::asked::Asked;
use super::calls::{self, Begun, Call, Wait};
use super::counters::Tally;
use super::execute::{self, List, Stop, Work};
use super::greet::{self, Member, Peer, goodbye, malformed};
use super::input::Input;
use super::mailbox::Token;
use super::out::Out;
use super::remote::{Remote, Who};
use super::shared::Shared;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, send, sendmsg, shutdown};
use sherman_control::path::{Attached, Attaching, Link};
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::group::Fill;
use sherman_control::wire::handshake::Nonce;
use sherman_control::wire::words::NO_PATH;
use sherman_control::wire::{FrameHeader, FrameKind, Goodbye, GoodbyeCode, HEADER_BYTES, errors, requests};
use sherman_embedded::host::Session;
use sherman_fabric::{FabricError, Response};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The phase of a connection's life.
#[derive(Debug)]
pub(super) enum Phase {
    /// The server has sent its greeting with this nonce, and the client has not introduced itself.
    Greeting(Nonce),
    /// It is served.
    Open(Peer),
    /// The server has said goodbye.
    Closing,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    /// Its name in the shard.
    token: Token,
    /// The address or process at the other end.
    pub(super) remote: Remote,
    pub(super) phase: Phase,
    pub(super) input: Input,
    /// Bytes that are not sent yet, or not complete.
    pub(super) out: Option<Out>,
    /// The list that is being received.
    list: Option<List>,
    /// The call that waits, and its tag. Later frames wait until it ends.
    waiting: Option<(u64, Wait)>,
    /// The calls that the control plane is answering. Later frames are served meanwhile, unless there are too
    /// many calls.
    asked: Asked,
    /// Its link of another data path.
    link: Option<Box<dyn Link>>,
    /// The events that it is registered for.
    pub(super) interest: EventFlags,
    /// Bytes that it was last charged for.
    pub(super) charged: usize,
    /// Whether its handshake is done. It then counts as a client, and no longer as a newcomer.
    pub(super) admitted: bool,
    /// When the last frame arrived from a peer that is not a member.
    heard: Instant,
}

/// The next step with the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Further {
    /// Wait until this many bytes in total have arrived.
    Need(usize),
    /// Send the assembled replies first.
    Send,
    /// Wait for a call to end.
    Wait,
    /// Nothing: the connection ends.
    Closing,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, token: Token, nonce: Nonce) -> Self {
        Self {
            token,
            remote: Remote::of(&socket),
            socket,
            phase: Phase::Greeting(nonce),
            input: Input::default(),
            out: None,
            list: None,
            waiting: None,
            asked: Asked::default(),
            link: None,
            interest: EventFlags::IN,
            charged: 0,
            admitted: false,
            heard: Instant::now(),
        }
    }

    /// When to close it if it stays silent; `None` if it may stay silent permanently.
    pub(super) fn idle_until(&self, idle_time: Duration) -> Option<Instant> {
        // A peer that waits for an answer is not silent.
        let silent_since = || if self.asked.is_empty() { self.heard } else { Instant::now() };
        matches!(self.phase, Phase::Open(Peer::Admin | Peer::Newcomer)).then(|| silent_since() + idle_time)
    }

    /// Removes the connection from its member's session.
    pub(super) fn leave_session(&mut self, shared: &Shared) {
        let who = self.who();
        // Before the session: the path's remaining links decide whether the session ends.
        self.link = None;
        if let Phase::Open(Peer::Member(members)) = std::mem::replace(&mut self.phase, Phase::Closing) {
            members.into_all().into_iter().for_each(|member| shared.disconnected(member, who));
        }
    }

    /// The peer at the other end, as far as it is known.
    pub(super) fn who(&self) -> Who {
        let client = match &self.phase {
            Phase::Open(Peer::Member(members)) => Some(members.current().gate.session().client()),
            Phase::Open(Peer::Control { client, .. }) => Some(*client),
            _ => None,
        };
        Who { remote: self.remote, client }
    }

    /// Decodes and executes `input`. Returns how many bytes of it were used.
    pub(super) fn advance(&mut self, work: &mut Work<'_>, input: &[u8], out: &mut Out) -> (usize, Further) {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            let (more, stop) = match &mut self.phase {
                Phase::Open(Peer::Member(members)) if members.current().served.takes_frames() => {
                    let (Member { served, gate }, memory) = members.current_mut();
                    execute::lists(work, &served.host, gate, memory, &mut self.list, rest, out)
                }
                phase @ (Phase::Open(_) | Phase::Greeting(_)) => match FrameHeader::decode(rest) {
                    // A client that has not introduced itself may not send longer frames.
                    Ok(Some(header))
                        if matches!(phase, Phase::Greeting(_)) && header.kind != FrameKind::Introduce =>
                    {
                        (0, Stop::Bye(goodbye(GoodbyeCode::Malformed)))
                    }
                    Ok(Some(header)) if header.kind == FrameKind::List => (0, execute::not_allowed()),
                    Ok(Some(header)) => (0, Stop::Other(header)),
                    Ok(None) => (0, Stop::Need(HEADER_BYTES)),
                    Err(error) => (0, Stop::Bye(malformed(error))),
                },
                Phase::Closing => return (input.len(), Further::Closing),
            };
            used += more;
            let header = match stop {
                Stop::Need(needed) => return (used, Further::Need(needed)),
                Stop::Full => return (used, Further::Send),
                Stop::Other(header) if header.kind == FrameKind::List => {
                    if let Err(goodbye) = self.choose(&header) {
                        self.say_goodbye(work.shared, &goodbye, out);
                        return (input.len(), Further::Closing);
                    }
                    continue;
                }
                Stop::Fenced => {
                    self.say_goodbye(work.shared, &goodbye(GoodbyeCode::Fenced), out);
                    return (input.len(), Further::Closing);
                }
                Stop::Bye(goodbye) => {
                    self.say_goodbye(work.shared, &goodbye, out);
                    return (input.len(), Further::Closing);
                }
                Stop::Other(header) => header,
            };
            let whole = HEADER_BYTES + header.len as usize;
            let Some(body) = input[used..].get(HEADER_BYTES..whole) else {
                return (used, Further::Need(whole));
            };
            used += whole;
            if let Err(goodbye) = self.other(work, &header, body, out) {
                self.say_goodbye(work.shared, &goodbye, out);
            }
            if self.is_blocked() {
                return (used, Further::Wait);
            }
        }
    }

    /// Handles a frame that is not a list.
    fn other(
        &mut self,
        work: &mut Work<'_>,
        header: &FrameHeader,
        body: &[u8],
        out: &mut Out,
    ) -> Result<(), Goodbye> {
        if !matches!(self.phase, Phase::Open(Peer::Member(_))) {
            self.heard = Instant::now();
        }
        self.choose(header)?;
        let who = self.who();
        match (&mut self.phase, header.kind) {
            (Phase::Greeting(nonce), FrameKind::Introduce) => {
                let mut frame = Vec::new();
                // Reserves the place first: a client must not join and then find no place.
                if !work.shared.admit_connection() {
                    return Err(goodbye(GoodbyeCode::TooManyConnections));
                }
                let introduced = greet::introduce(work.shared, self.remote, body, nonce, &mut frame);
                self.admitted = introduced.is_ok();
                if !self.admitted {
                    work.shared.unadmit_connection();
                }
                let peer = introduced?;
                self.phase = Phase::Open(peer);
                out.put(&frame);
                Ok(())
            }
            (Phase::Open(Peer::Host { plane, .. }), FrameKind::Group) => {
                plane.receive(body);
                Ok(())
            }
            (Phase::Open(Peer::Host { connection, .. }), FrameKind::Fill) => {
                let fill = Fill::take(body).map_err(malformed)?;
                out.put(&calls::frame(header.tag, &calls::fill(work.shared, *connection, &fill)));
                Ok(())
            }
            (Phase::Open(Peer::Member(members)), FrameKind::Also) => {
                let mut frame = Vec::new();
                greet::also(work.shared, self.remote, body, members, &mut frame)?;
                out.put(&frame);
                Ok(())
            }
            (Phase::Open(peer), FrameKind::Call) => {
                let request = requests::take_request(body).map_err(malformed)?;
                let fence = matches!(request, sherman_fabric::Request::Fence { .. });
                let begun = calls::begin(work.shared, who, peer, request);
                work.tally.calls += 1;
                work.tally.fences += u64::from(fence);
                match begun {
                    Begun::Here(call) => self.conclude(work.shared, header.tag, call, out),
                    Begun::Passed(plane, asker, request) => {
                        self.asked.add(header.tag, body.len());
                        plane.ask(asker, request, work.mailbox.answer(self.token, header.tag));
                    }
                }
                Ok(())
            }
            (Phase::Open(Peer::Member(members)), FrameKind::Attach) if self.link.is_none() => {
                let Member { served, gate } = members.current();
                let none = FabricError::Unsupported { what: NO_PATH };
                let asking = Attaching { session: gate.session(), body, socket: self.socket.as_fd() };
                match served.path().ok_or(none).and_then(|path| path.attach(&asking)) {
                    Ok(attached) => self.link(header.tag, attached, out),
                    Err(error) => {
                        let mut frame = Vec::new();
                        // An error is much shorter than the limit of a frame.
                        let _ = put_frame(&mut frame, FrameKind::Refused, header.tag, |out| {
                            errors::put_error(out, &error)
                        });
                        out.put(&frame);
                        Ok(())
                    }
                }
            }
            _ => Err(goodbye(GoodbyeCode::Malformed)),
        }
    }

    /// Gives the client its link.
    fn link(&mut self, tag: u64, attached: Attached, out: &mut Out) -> Result<(), Goodbye> {
        let Attached { reply, file, link } = attached;
        let mut frame = Vec::new();
        put_frame(&mut frame, FrameKind::Attached, tag, |out| out.extend_from_slice(&reply))
            .map_err(malformed)?;
        match file {
            None => out.put(&frame),
            // The file goes with the first bytes of the frame. A client that attaches waits for the answer,
            // so normally nothing else is unsent. A client that does not wait gets a goodbye.
            Some(file) if out.is_empty() => {
                let files = [file.as_fd()];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                control.push(SendAncillaryMessage::ScmRights(&files));
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                match sendmsg(&self.socket, &[IoSlice::new(&frame)], &mut control, flags) {
                    Ok(sent) => out.put(&frame[sent..]),
                    Err(_) => return Err(goodbye(GoodbyeCode::Internal)),
                }
            }
            Some(_) => return Err(goodbye(GoodbyeCode::Malformed)),
        }
        self.link = Some(link);
        Ok(())
    }

    /// Answers a call, or lets it wait.
    fn conclude(&mut self, shared: &Shared, tag: u64, call: Call, out: &mut Out) {
        let answer = match call {
            Call::Waiting(wait) => {
                self.waiting = Some((tag, wait));
                return;
            }
            Call::Answered(answer) => answer,
        };
        out.put(&calls::frame(tag, &answer));
        // The refusal comes from this session, which is over, and not from the tables' record of its id.
        // Nothing of this session will ever execute again.
        let over = self.session().is_some_and(Session::is_over);
        if answer.is_err() && over {
            self.say_goodbye(shared, &goodbye(GoodbyeCode::Fenced), out);
        }
    }

    /// The session of a member's connection.
    fn session(&self) -> Option<&Session> {
        match &self.phase {
            Phase::Open(Peer::Member(members)) => Some(members.current().gate.session()),
            _ => None,
        }
    }

    /// The following lists or calls are for the memory that `header` names.
    fn choose(&mut self, header: &FrameHeader) -> Result<(), Goodbye> {
        let there = match &mut self.phase {
            Phase::Open(Peer::Member(members)) => members.choose(header.memory),
            _ => header.memory == 0,
        };
        if there { Ok(()) } else { Err(goodbye(GoodbyeCode::Malformed)) }
    }

    /// Whether one of its sessions was fenced.
    pub(super) fn is_fenced(&self) -> bool {
        match &self.phase {
            Phase::Open(Peer::Member(members)) => {
                members.all().iter().any(|member| member.gate.session().is_fenced())
            }
            _ => false,
        }
    }

    /// Whether a call waits that the shard must check again.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether later frames must wait for calls.
    pub(super) fn is_blocked(&self) -> bool {
        self.waiting.is_some() || self.asked.is_full()
    }

    /// Whether later frames must wait for the control plane.
    pub(super) fn waits_for_plane(&self) -> bool {
        self.asked.is_full()
    }

    /// Checks the waiting call again. Returns whether no call waits any more.
    pub(super) fn look_again(&mut self, shared: &Shared, out: &mut Out) -> bool {
        if let Some((tag, wait)) = self.waiting.take() {
            self.conclude(shared, tag, wait.look(), out);
        }
        self.waiting.is_none()
    }

    /// Takes the control plane's answer to call `tag`. Returns whether the connection still waits for it.
    pub(super) fn take_answer(
        &mut self,
        tag: u64,
        answer: &Result<Response, FabricError>,
        out: &mut Out,
    ) -> bool {
        let waits = self.asked.remove(tag);
        if waits {
            self.heard = Instant::now();
            out.put_before(&calls::frame(tag, answer));
        }
        waits
    }

    /// Bytes of memory that its undecoded input and its unanswered calls hold.
    pub(super) fn held(&self) -> usize {
        self.input.held() + self.asked.held()
    }

    /// Begins to end the connection, and counts why.
    pub(super) fn say_goodbye(&mut self, shared: &Shared, goodbye: &Goodbye, out: &mut Out) {
        if goodbye.code != GoodbyeCode::ShuttingDown {
            let (says, who) = (goodbye.code.says(), Some(self.who()));
            match &goodbye.error {
                Some(error) => shared.refused(goodbye.code.into(), who, format_args!("{says}: {error}")),
                None => shared.refused(goodbye.code.into(), who, says),
            }
        }
        self.leave_session(shared);
        out.drop_frame();
        let mut frame = Vec::new();
        // A goodbye is much shorter than the limit of a frame.
        let _ = put_frame(&mut frame, FrameKind::Goodbye, 0, |out| goodbye.put(out));
        out.put(&frame);
        (self.phase, self.list, self.waiting) = (Phase::Closing, None, None);
        self.input = Input::default();
        self.asked.clear();
    }

    /// Sends all bytes that are ready. Returns whether it sent all of them, or the error that ended the
    /// connection.
    pub(super) fn send(&self, out: &mut Out, tally: &mut Tally) -> Result<bool, Errno> {
        while !out.ready().is_empty() {
            match send(&self.socket, out.ready(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => {
                    tally.bytes_out += sent as u64;
                    out.advance(sent);
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        if matches!(self.phase, Phase::Closing) {
            // Nothing follows the goodbye. It does not matter if the client is already gone.
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
        Ok(true)
    }
}
