//! After a failed attempt, an operation gives up or begins again under the next identity.
//!
//! An attempt that failed because its identity has ended changed nothing, and is repeated. A change with an
//! unknown outcome is never repeated blindly. The operation waits until the new identity has found out the
//! outcome ([`sherman_core::doubt`]). It fails with [`Error::OutcomeUnknown`] if the outcome cannot be found.
//! The caller gets all other errors.
//!
//! The operation's deadline limits the waiting. It counts from the first obstacle, as everywhere.

use crate::identity::{Identity, Seated};
use crate::mend::Waiter;
use crate::ops::Ops;
use crate::seat::Seat;
use sherman_core::{Doubt, Error, Fate, Op};
use sherman_fabric::{Clock, Endpoint};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The pause before a retry to connect a worker, if the server has no room for its connection now.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// A failed attempt.
pub(crate) struct Failed {
    error: Error,
    doubt: Option<Arc<Doubt>>,
    /// Whether the change, if there was one, would replace a value.
    replaces: bool,
    /// Since when the attempt had been waiting.
    since: Option<u64>,
    identity: Arc<Identity>,
}

impl Failed {
    #[cold]
    pub(crate) fn new<E: Endpoint>(error: Error, op: &Op<'_, E>, seated: &Seated) -> Self {
        Self {
            error,
            doubt: op.take_doubt(),
            replaces: op.replaces(),
            since: op.waiting_since(),
            identity: Arc::clone(&seated.identity),
        }
    }

    /// The failure of a task that is not a single operation.
    #[cold]
    pub(crate) fn of(error: Error, seated: &Seated) -> Self {
        Self { error, doubt: None, replaces: false, since: None, identity: Arc::clone(&seated.identity) }
    }
}

/// How to continue after a failed attempt.
pub(crate) enum Next {
    /// The change did not happen: try again.
    Again,
    /// The change happened after all. `replaced` tells whether it replaced a value.
    Happened { replaced: bool },
}

/// The remaining waiting time of an operation.
pub(crate) struct Patience {
    timeout: Duration,
    /// The time of the first obstacle.
    since: Option<u64>,
    /// The remaining time for the next attempt.
    pub(crate) left: Duration,
}

impl Patience {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, since: None, left: timeout }
    }

    fn deadline(&self, since: u64) -> u64 {
        since.saturating_add(u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl<S: Seat> Ops<'_, S> {
    /// Decides what to do after a failed attempt. If another attempt follows, waits for the next identity.
    ///
    /// # Errors
    /// The attempt's error, if it must not be repeated; [`Error::NotRejoined`] if there is no identity in
    /// time.
    #[cold]
    pub(crate) async fn after(&self, failed: Failed, patience: &mut Patience) -> Result<Next, Error> {
        let next = self.decide(failed, patience).await;
        match &next {
            Ok(Next::Again) => self.ledger.count_repeat(),
            Ok(Next::Happened { .. }) => {}
            Err(_) => self.ledger.count_error(),
        }
        next
    }

    async fn decide(&self, failed: Failed, patience: &mut Patience) -> Result<Next, Error> {
        let Failed { error, doubt, replaces, since, identity } = failed;
        let doubt = match &error {
            Error::OutcomeUnknown { .. } if doubt.is_some() => doubt,
            error if error.ends_identity(identity.compute.client()) => None,
            _ => return Err(error),
        };
        if !self.seat.cluster().rejoins_by_itself() {
            return Err(error);
        }
        identity.compute.end();
        let now = self.now()?;
        let since = *patience.since.get_or_insert(since.unwrap_or(now));
        let deadline = patience.deadline(since);
        let rejoined = self.next_identity(identity, since, deadline).await;
        let Some(doubt) = doubt else {
            rejoined?;
            patience.left = Duration::from_nanos(deadline.saturating_sub(self.now()?));
            return Ok(Next::Again);
        };
        let fate = if rejoined.is_ok() { self.fate(&doubt, deadline).await? } else { Fate::Unknown };
        match fate {
            Fate::Done => Ok(Next::Happened { replaced: replaces }),
            Fate::NotDone => {
                patience.left = Duration::from_nanos(deadline.saturating_sub(self.now()?));
                Ok(Next::Again)
            }
            Fate::Unknown => Err(error),
        }
    }

    fn now(&self) -> Result<u64, Error> {
        Ok(self.seat.seated()?.endpoint().now())
    }

    /// Waits for an identity newer than `identity` and puts one of its workers into the seat.
    async fn next_identity(
        &self,
        mut identity: Arc<Identity>,
        since: u64,
        deadline: u64,
    ) -> Result<(), Error> {
        loop {
            let next = self.wait_newer(identity.generation, since, deadline).await?;
            match self.seat.renew(&next) {
                Ok(()) => return Ok(()),
                Err(error) if error.ends_identity(next.compute.client()) => {
                    next.compute.end();
                    identity = next;
                }
                // The server has no room for another connection now.
                Err(error @ Error::Unsupported { .. }) => {
                    let now = self.now()?;
                    if now >= deadline.min(self.seat.cutoff()) {
                        return Err(error);
                    }
                    self.sleep_until(now.saturating_add(CONNECT_PAUSE.as_nanos() as u64)).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn wait_newer(&self, generation: u64, since: u64, deadline: u64) -> Result<Arc<Identity>, Error> {
        let mut waiter = Waiter::new(self.seat.cluster().shared(), generation);
        poll_fn(|cx| {
            let seated = self.seat.seated()?;
            let now = seated.endpoint().now();
            let waited = Duration::from_nanos(now.saturating_sub(since));
            if let Poll::Ready(newer) = waiter.poll(waited, cx) {
                return Poll::Ready(newer);
            }
            let until = deadline.min(self.seat.cutoff());
            if now >= until {
                return Poll::Ready(Err(waiter.timed_out(waited)));
            }
            seated.endpoint().wake_at(until, cx.waker());
            Poll::Pending
        })
        .await
    }

    /// The outcome of a change in doubt; unknown if the deadline passes.
    async fn fate(&self, doubt: &Doubt, deadline: u64) -> Result<Fate, Error> {
        poll_fn(|cx| {
            if let Poll::Ready(fate) = doubt.poll_fate(cx) {
                return Poll::Ready(Ok(fate));
            }
            let seated = self.seat.seated()?;
            let until = deadline.min(self.seat.cutoff());
            if seated.endpoint().now() >= until {
                return Poll::Ready(Ok(Fate::Unknown));
            }
            seated.endpoint().wake_at(until, cx.waker());
            Poll::Pending
        })
        .await
    }

    async fn sleep_until(&self, at: u64) -> Result<(), Error> {
        poll_fn(|cx| {
            let seated = self.seat.seated()?;
            if seated.endpoint().now() >= at {
                return Poll::Ready(Ok(()));
            }
            seated.endpoint().wake_at(at, cx.waker());
            Poll::Pending
        })
        .await
    }
}
