//! What the sockets of a host ask: everything goes to the driver through a bounded queue.

use sherman_control::plane::{Answer, Asker, ControlPlane};
use sherman_fabric::{FabricError, Refusal, Request, Response};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// How many requests and messages may wait for the driver.
const QUEUE: usize = 4096;

/// Something for the driver.
#[derive(Debug)]
pub(crate) enum Input {
    /// A request to control.
    Ask(Ask),
    /// A message of another host.
    Message(Vec<u8>),
    /// The host ends.
    End,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) asker: Asker,
    pub(crate) request: Request,
    pub(crate) reply: Reply,
}

/// Answers exactly once. A reply that is dropped refuses the request: no host was found that leads.
pub(crate) struct Reply(Option<Answer>);

impl Reply {
    pub(crate) fn new(answer: Answer) -> Self {
        Self(Some(answer))
    }

    pub(crate) fn send(mut self, result: Result<Response, FabricError>) {
        if let Some(answer) = self.0.take() {
            answer(result);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer(Err(not_leader("")));
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply(..)")
    }
}

/// The refusal of a host that does not lead. Clients ask the leader instead, or this host again.
pub(crate) fn not_leader(leader: &str) -> FabricError {
    FabricError::Refused(Refusal::NotLeader { leader: leader.to_owned() })
}

/// What a host knows about itself once it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cluster: u64,
    pub(crate) host: u16,
    pub(crate) incarnation: u32,
}

/// A host's part of the control state, as its sockets see it. Before the host is registered, it refuses
/// everything.
#[derive(Debug)]
pub struct Plane {
    inputs: SyncSender<Input>,
    identity: OnceLock<Identity>,
    /// The newest epoch that was carried out.
    epoch: AtomicU64,
}

impl Plane {
    /// A plane, and the queue of its driver.
    pub(crate) fn new() -> (Self, Receiver<Input>) {
        let (inputs, receiver) = sync_channel(QUEUE);
        (Self { inputs, identity: OnceLock::new(), epoch: AtomicU64::new(0) }, receiver)
    }

    /// Opens the plane: the host is registered.
    pub(crate) fn open(&self, identity: Identity) {
        // A host registers once.
        let _ = self.identity.set(identity);
    }

    /// Publishes an epoch: every copy of its table is ready here.
    pub(crate) fn publish(&self, epoch: u64) {
        self.epoch.fetch_max(epoch, Release);
    }

    /// Tells the driver that the host ends. If its queue is full, it sees the end between two inputs.
    pub(crate) fn end(&self) {
        let _ = self.inputs.try_send(Input::End);
    }
}

impl ControlPlane for Plane {
    fn ask(&self, asker: Asker, request: Request, answer: Answer) {
        let reply = Reply::new(answer);
        if self.identity.get().is_none() {
            return reply.send(Err(not_leader("")));
        }
        let ask = Input::Ask(Ask { asker, request, reply });
        // What does not fit into the queue is dropped, and so refused.
        if let Err(TrySendError::Full(_)) = self.inputs.try_send(ask) {
            tracing::debug!("too many requests wait for the control group");
        }
    }

    fn receive(&self, message: &[u8]) {
        if self.identity.get().is_some() {
            // The group repeats what is lost.
            let _ = self.inputs.try_send(Input::Message(message.to_vec()));
        }
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    fn cluster(&self) -> u64 {
        self.identity.get().map_or(0, |identity| identity.cluster)
    }

    fn host(&self) -> u16 {
        self.identity.get().map_or(u16::MAX, |identity| identity.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn ask(plane: &Plane) -> Receiver<Result<Response, FabricError>> {
        let (tell, told) = channel();
        plane.ask(Asker::Operator, Request::Members, Box::new(move |result| tell.send(result).unwrap()));
        told
    }

    #[test]
    fn every_request_is_answered_once_even_if_nobody_takes_it() {
        let (plane, inputs) = Plane::new();
        assert_eq!(ask(&plane).recv(), Ok(Err(not_leader(""))));
        plane.open(Identity { cluster: 1, host: 2, incarnation: 3 });
        assert_eq!((plane.cluster(), plane.host(), plane.epoch()), (1, 2, 0));
        let waiting: Vec<_> = (0..QUEUE).map(|_| ask(&plane)).collect();
        assert_eq!(ask(&plane).recv(), Ok(Err(not_leader(""))));
        let Ok(Input::Ask(first)) = inputs.recv() else { panic!("a request") };
        first.reply.send(Ok(Response::Done));
        drop(inputs);
        let mut answers = waiting.into_iter().map(|told| told.recv());
        assert_eq!(answers.next(), Some(Ok(Ok(Response::Done))));
        assert!(answers.all(|answer| answer == Ok(Err(not_leader("")))));
        assert_eq!(ask(&plane).recv(), Ok(Err(not_leader(""))));
    }

    #[test]
    fn an_epoch_never_goes_back() {
        let (plane, _inputs) = Plane::new();
        plane.publish(3);
        plane.publish(2);
        assert_eq!(plane.epoch(), 3);
    }
}
