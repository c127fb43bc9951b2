//! The queue through which other threads reach a shard. It brings new connections, and answers of the control
//! plane.

use rustix::event::{EventfdFlags, eventfd};
use sherman_control::plane::Answer;
use sherman_fabric::{FabricError, Refusal, Response};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names a connection of a shard. `uses` counts the connections that had the same index before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) index: u32,
    pub(super) uses: u32,
}

impl Token {
    /// Its number in events.
    pub(super) fn number(self) -> u64 {
        u64::from(self.index) | u64::from(self.uses) << 32
    }

    /// The token with this number.
    pub(super) fn of(number: u64) -> Self {
        Self { index: number as u32, uses: (number >> 32) as u32 }
    }
}

/// The answer to a call of a connection, which may have ended meanwhile.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) token: Token,
    /// The call.
    pub(super) tag: u64,
    pub(super) answer: Result<Response, FabricError>,
}

/// What a shard finds in its mailbox.
#[derive(Debug, Default)]
pub(super) struct Mail {
    pub(super) sockets: Vec<OwnedFd>,
    /// At most one for each call that was passed to the control plane.
    pub(super) replies: Vec<Reply>,
}

/// A shard's mailbox.
#[derive(Debug)]
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    notifier: OwnedFd,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        let notifier = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { mail: Mutex::default(), notifier })
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. Returns it if there are already `limit`.
    pub(super) fn send(&self, socket: OwnedFd, limit: usize) -> Result<(), OwnedFd> {
        let mut mail = self.mail();
        if mail.sockets.len() >= limit {
            return Err(socket);
        }
        mail.sockets.push(socket);
        drop(mail);
        self.wake();
        Ok(())
    }

    /// Wakes the thread that waits for the mailbox.
    pub(super) fn wake(&self) {
        // Fails only if the counter is full, and then the thread is awake anyway.
        let _ = rustix::io::write(&self.notifier, &1u64.to_ne_bytes());
    }

    /// Takes everything that has arrived. What arrives later wakes the thread again.
    pub(super) fn take(&self) -> Mail {
        let _ = rustix::io::read(&self.notifier, &mut [0; 8]);
        std::mem::take(&mut *self.mail())
    }

    /// A way for the control plane to answer call `tag` of a connection. If it is dropped unused, the answer
    /// is that another host leads.
    pub(super) fn answer(self: &Arc<Self>, token: Token, tag: u64) -> Answer {
        let pending = Pending { mailbox: Arc::clone(self), token, tag, answer: None };
        Box::new(move |answer| pending.send(answer))
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifier.as_fd()
    }
}

/// A call that the control plane has not answered yet. Dropping it sends the answer.
struct Pending {
    mailbox: Arc<Mailbox>,
    token: Token,
    tag: u64,
    answer: Option<Result<Response, FabricError>>,
}

impl Pending {
    fn send(mut self, answer: Result<Response, FabricError>) {
        self.answer = Some(answer);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let forgotten = || Err(FabricError::Refused(Refusal::NotLeader { leader: String::new() }));
        let answer = self.answer.take().unwrap_or_else(forgotten);
        self.mailbox.mail().replies.push(Reply { token: self.token, tag: self.tag, answer });
        self.mailbox.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_its_number() {
        let token = Token { index: 7, uses: u32::MAX };
        assert_eq!(Token::of(token.number()), token);
    }

    #[test]
    fn every_call_is_answered_once_even_if_the_plane_forgets_it() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let token = Token { index: 1, uses: 2 };
        let (one, other) = (mailbox.answer(token, 3), mailbox.answer(token, 4));
        assert!(mailbox.take().replies.is_empty());
        one(Ok(Response::Done));
        std::thread::spawn(move || drop(other)).join().unwrap();
        let replies = mailbox.take().replies;
        let found: Vec<_> = replies.iter().map(|reply| (reply.token, reply.tag, &reply.answer)).collect();
        let forgotten = Err(FabricError::Refused(Refusal::NotLeader { leader: String::new() }));
        assert_eq!(found, [(token, 3, &Ok(Response::Done)), (token, 4, &forgotten)]);
        assert!(mailbox.take().replies.is_empty());
    }
}
