//! Changes whose outcome a client learns only under its next identity (rule E3, `docs/REPLICATION.md`).

use super::check::Property;
use super::script::{NeverWritten, Script};
use crate::endpoint::VolumeEndpoint;
use crate::history::{Op, OpId, Outcome};
use sherman_core::{Doubt, Fate, Worker};
use sherman_fabric::Clock;
use std::sync::Arc;
use std::task::Poll;

/// How long a client waits for the outcome of a change that its former identity left in doubt.
const FATE_NANOS: u64 = 50_000_000;

/// The same where a control group must pass the time too.
const FATE_NANOS_OF_GROUPS: u64 = 3_000_000;

/// A change whose outcome the client's next identity determines.
pub(super) struct Pending {
    doubt: Arc<Doubt>,
    call: Option<OpId>,
    /// The result of the change, if it happened.
    then: Result<Outcome, NeverWritten>,
}

impl Script {
    /// Keeps a change in doubt until the next identity.
    pub(super) fn doubt(&self, doubt: Arc<Doubt>, asked: Op, replaces: bool, found: Vec<u8>) {
        let then = self.if_done(asked, replaces, found);
        *self.pending.borrow_mut() = Some(Pending { doubt, call: None, then });
    }

    /// Leaves the call of the change in doubt open in the history.
    pub(super) fn leave_open(&self, call: OpId) {
        if let Some(pending) = &mut *self.pending.borrow_mut() {
            pending.call = Some(call);
        }
    }

    /// Returns the result of a change whose list failed, in case it happened.
    fn if_done(&self, asked: Op, replaces: bool, found: Vec<u8>) -> Result<Outcome, NeverWritten> {
        match asked {
            Op::CompareExchange { .. } => Ok(Outcome::Exchange(Ok(()))),
            Op::Insert(_) if replaces => self.id(found).map(|id| Outcome::Value(Some(id))),
            Op::Remove => self.id(found).map(|id| Outcome::Value(Some(id))),
            Op::Get | Op::Insert(_) | Op::InsertIfAbsent(_) => Ok(Outcome::Value(None)),
        }
    }

    /// Waits for the outcome of the change that its former identity left in doubt, and records it.
    pub(super) async fn learn_fate(&self, worker: &Worker<VolumeEndpoint>) {
        let Some(doubt) = self.pending.borrow().as_ref().map(|pending| Arc::clone(&pending.doubt)) else {
            return;
        };
        let nanos = if self.scenario.group { FATE_NANOS_OF_GROUPS } else { FATE_NANOS };
        let until = worker.endpoint().now() + nanos;
        let fate = std::future::poll_fn(|cx| {
            if let Poll::Ready(fate) = doubt.poll_fate(cx) {
                return Poll::Ready(fate);
            }
            if worker.endpoint().now() >= until {
                return Poll::Ready(Fate::Unknown);
            }
            worker.endpoint().wake_at(until, cx.waker());
            Poll::Pending
        });
        self.conclude(fate.await);
    }

    /// Leaves the outcome of its last change unknown.
    pub(super) fn give_up(&self) {
        self.conclude(Fate::Unknown);
    }

    fn conclude(&self, fate: Fate) {
        let Some(Pending { call: Some(call), then, .. }) = self.pending.borrow_mut().take() else { return };
        self.spawner.say(|| format!("client {} learns the outcome of its change: {fate:?}", self.client));
        let mut history = self.record.history.borrow_mut();
        let ended = match (fate, then) {
            (Fate::Done, Ok(outcome)) => history.ret(call, outcome),
            (Fate::Done, Err(NeverWritten(bytes))) => {
                self.record.trouble(Property::Values, format!("a change replaced {bytes:02x?}"));
                history.unknown(call)
            }
            (Fate::NotDone, _) => history.failed(call),
            (Fate::Unknown, _) => {
                self.record.unknown.set(self.record.unknown.get() + 1);
                history.unknown(call)
            }
        };
        if let Err(misuse) = ended {
            self.record.trouble(Property::Progress, misuse.to_string());
        }
    }
}
