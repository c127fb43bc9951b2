//! A seat holds the worker of operations. When the worker's identity has ended, a new worker replaces it in
//! the seat.
//!
//! | seat | for | operations in flight |
//! |---|---|---|
//! | [`ClientSeat`] | a blocking client, which may be sent to another thread | one |
//! | [`SharedSeat`] | a session, or a batch of a client | many |
//!
//! An operation uses the worker that is in its seat when the operation begins. If it fails because the
//! worker's identity has ended, it puts a worker of the next identity into the seat and begins again
//! ([`crate::repeat`]). Other operations of a shared seat may still be in flight on the old worker. The seat
//! drives both workers until the last of these operations has released the old one.

use crate::cluster::Cluster;
use crate::identity::{Identity, Seated};
use crate::ops::Ops;
use crate::repeat::{Failed, Next, Patience};
use sherman_core::Error;
use sherman_core::session::Seat as SessionSeat;
use sherman_executor::{Driver, Unpark};
use sherman_fabric::Clock;
use std::cell::{Cell, Ref, RefCell};
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The longest sleep of a thread that waits for operations on two workers at once.
const SHORT_PARK: Duration = Duration::from_millis(1);

/// The future of [`Seat::after`].
pub(crate) type Deciding<'a> = Pin<Box<dyn Future<Output = Result<Next, Error>> + 'a>>;

/// A slot for a worker.
pub(crate) trait Seat {
    /// A worker in use. It stays valid while another worker replaces it in the seat.
    type Use<'s>: Deref<Target = Seated>
    where
        Self: 's;

    /// The current worker. The caller keeps it for one attempt and no longer.
    fn seated(&self) -> Result<Self::Use<'_>, Error>;

    /// Replaces the worker.
    fn put(&self, seated: Seated);

    /// The cluster handle of the seat.
    fn cluster(&self) -> &Cluster;

    /// When operations stop waiting, even if their own deadlines are later.
    fn cutoff(&self) -> u64 {
        u64::MAX
    }

    /// Decides what to do after a failed attempt ([`Ops::after`]). A method of each seat, so that it is
    /// compiled in this crate.
    fn after<'a>(ops: &'a Ops<'_, Self>, failed: Failed, patience: &'a mut Patience) -> Deciding<'a>
    where
        Self: Sized;

    /// Puts a worker of `identity` into the seat, unless it holds one of the same or a newer identity.
    fn renew(&self, identity: &Arc<Identity>) -> Result<(), Error> {
        if self.seated()?.identity.generation < identity.generation {
            self.put(Seated::new(Arc::clone(identity))?);
        }
        Ok(())
    }
}

/// The seat of a client with one operation at a time.
pub(crate) struct ClientSeat {
    /// Empty while a batch has the worker, and after a batch that panicked.
    slot: RefCell<Option<Seated>>,
    /// Keeps the compute server in its cluster. Dropped last.
    cluster: Cluster,
}

impl ClientSeat {
    pub(crate) fn new(cluster: &Cluster) -> Result<Self, Error> {
        Ok(Self { slot: RefCell::new(Some(cluster.seated()?)), cluster: cluster.clone() })
    }

    /// Lends the worker to a batch.
    pub(crate) fn share(&self) -> Result<Lent<'_>, Error> {
        let seated = self.slot.take().map_or_else(|| self.cluster.seated(), Ok)?;
        Ok(Lent { owner: self, seat: Some(SharedSeat::new(&self.cluster, seated)) })
    }

    #[cold]
    fn fill(&self) -> Result<(), Error> {
        let seated = self.cluster.seated()?;
        self.put(seated);
        Ok(())
    }

    fn driver<T>(&self, call: impl FnOnce(&Seated) -> T, otherwise: T) -> T {
        match &*self.slot.borrow() {
            Some(seated) => call(seated),
            None => otherwise,
        }
    }
}

impl Seat for ClientSeat {
    type Use<'s> = Ref<'s, Seated>;

    #[cold]
    fn after<'a>(ops: &'a Ops<'_, Self>, failed: Failed, patience: &'a mut Patience) -> Deciding<'a> {
        Box::pin(ops.after(failed, patience))
    }

    #[inline]
    fn seated(&self) -> Result<Ref<'_, Seated>, Error> {
        if let Ok(seated) = Ref::filter_map(self.slot.borrow(), Option::as_ref) {
            return Ok(seated);
        }
        self.fill()?;
        Ref::filter_map(self.slot.borrow(), Option::as_ref).map_err(|_| Error::SessionDropped)
    }

    fn put(&self, seated: Seated) {
        let before = self.slot.replace(Some(seated));
        // The slot is not borrowed here. Dropping the old worker closes its connections.
        drop(before);
    }

    fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

impl Driver for ClientSeat {
    fn progress(&self) -> bool {
        self.driver(|seated| seated.endpoint().progress(), false)
    }

    fn idle_for(&self) -> Option<Duration> {
        self.driver(|seated| seated.endpoint().idle_for(), Some(SHORT_PARK))
    }

    fn spins(&self, rounds: u32) -> bool {
        self.driver(|seated| seated.endpoint().spins(rounds), false)
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        self.driver(|seated| seated.endpoint().unparker(), None)
    }

    fn park(&self, limit: Option<Duration>) {
        self.driver(|seated| seated.endpoint().park(limit), ());
    }
}

/// A client's worker, lent to a batch. Its drop returns the worker, also after a panic.
pub(crate) struct Lent<'c> {
    owner: &'c ClientSeat,
    /// `Some` until the worker is returned.
    seat: Option<SharedSeat>,
}

impl Lent<'_> {
    /// The batch's seat.
    pub(crate) fn seat(&self) -> Option<&SharedSeat> {
        self.seat.as_ref()
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let seated = self.seat.take().map(|seat| Rc::try_unwrap(seat.current.into_inner()));
        // Every operation of the batch has ended, so no other reference to the worker is left.
        if let Some(Ok(seated)) = seated {
            self.owner.put(seated);
        }
    }
}

/// The seat of many operations at a time.
pub(crate) struct SharedSeat {
    current: RefCell<Rc<Seated>>,
    /// Former workers that still have operations in flight.
    former: RefCell<Vec<Rc<Seated>>>,
    has_former: Cell<bool>,
    cutoff: Cell<u64>,
    /// Keeps the compute server in its cluster. Dropped last.
    cluster: Cluster,
}

impl SharedSeat {
    pub(crate) fn new(cluster: &Cluster, seated: Seated) -> Self {
        Self {
            current: RefCell::new(Rc::new(seated)),
            former: RefCell::default(),
            has_former: Cell::new(false),
            cutoff: Cell::new(u64::MAX),
            cluster: cluster.clone(),
        }
    }

    #[inline]
    fn current(&self) -> Rc<Seated> {
        Rc::clone(&self.current.borrow())
    }

    /// Makes every operation in flight stop waiting after `patience`, or at its own deadline if that is
    /// earlier. `None` removes this limit.
    pub(crate) fn cut_short(&self, patience: Option<Duration>) {
        let now = self.current().endpoint().now();
        let nanos = |patience: Duration| u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        self.cutoff.set(patience.map_or(u64::MAX, |patience| now.saturating_add(nanos(patience))));
        self.current().cut_short(patience);
        self.former.borrow().iter().for_each(|former| former.cut_short(patience));
        // Operations that wait for an identity check their deadlines again.
        self.cluster.shared().nudge();
    }

    /// Drives workers that are no longer current, and drops the unused ones.
    #[cold]
    fn progress_former(&self) -> bool {
        let mut former = self.former.take();
        let mut any = false;
        for seated in &former {
            any |= seated.endpoint().progress();
        }
        former.retain(|seated| Rc::strong_count(seated) > 1);
        let mut kept = self.former.borrow_mut();
        kept.append(&mut former);
        self.has_former.set(!kept.is_empty());
        any
    }
}

impl Seat for SharedSeat {
    type Use<'s> = Rc<Seated>;

    #[cold]
    fn after<'a>(ops: &'a Ops<'_, Self>, failed: Failed, patience: &'a mut Patience) -> Deciding<'a> {
        Box::pin(ops.after(failed, patience))
    }

    #[inline]
    fn seated(&self) -> Result<Rc<Seated>, Error> {
        Ok(self.current())
    }

    fn put(&self, seated: Seated) {
        if self.cutoff.get() != u64::MAX {
            let left = self.cutoff.get().saturating_sub(seated.endpoint().now());
            seated.cut_short(Some(Duration::from_nanos(left)));
        }
        let former = self.current.replace(Rc::new(seated));
        self.former.borrow_mut().push(former);
        self.has_former.set(true);
    }

    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn cutoff(&self) -> u64 {
        self.cutoff.get()
    }
}

impl Driver for SharedSeat {
    fn progress(&self) -> bool {
        let any = self.current().endpoint().progress();
        if self.has_former.get() { self.progress_former() || any } else { any }
    }

    fn idle_for(&self) -> Option<Duration> {
        let idle = self.current().endpoint().idle_for();
        if self.has_former.get() { Some(idle.map_or(SHORT_PARK, |idle| idle.min(SHORT_PARK))) } else { idle }
    }

    fn spins(&self, rounds: u32) -> bool {
        self.current().endpoint().spins(rounds)
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        self.current().endpoint().unparker()
    }

    fn park(&self, limit: Option<Duration>) {
        let short = || Some(limit.map_or(SHORT_PARK, |limit| limit.min(SHORT_PARK)));
        self.current().endpoint().park(if self.has_former.get() { short() } else { limit });
    }
}

impl SessionSeat for SharedSeat {
    fn timeout(&self) -> Duration {
        self.cluster.timeout()
    }

    fn now(&self) -> u64 {
        self.current().endpoint().now()
    }
}
