//! Sends the stores of a primary's CPU to the other copies of its volume (T5 in `docs/REPLICATION.md`).
//!
//! A primary's CPU changes the tables of its volume: it gives out memory, fences clients, forgets them. The
//! other copies must make the same stores, in the same order, before the client gets its answer. A thread for
//! each primary sends them, one request after the other, and repeats each until every other copy has
//! answered. Nothing is ever left out: a copy that lacks a store would give out the same memory again after
//! its promotion. So only a newer table can end the wait for a copy that cannot be reached (T2).
//!
//! A request has a number, which a copy takes once. So a request that a former connection delivers late
//! changes nothing. A newer table begins the numbers anew, and the requests that were not answered under the
//! former table are sent again under the new one. Their stores are the newest, so making them twice in order
//! leaves the same bytes.
//!
//! A copy that is being made is added in the middle of an epoch, before the last bytes of the tables are
//! copied (J4). It gets the stores that were not answered yet, and all later ones, under their numbers.
//!
//! **What bounds memory.** A connection waits for the answer to its request, and sends no further one. So
//! there are never more requests here than connections.

use crate::plane::Identity;
use sherman_control::client::PeerConnection;
use sherman_control::plane::{Answer, Mirror};
use sherman_control::wire::Role;
use sherman_control::{Address, Secret};
use sherman_embedded::host::Host;
use sherman_fabric::group::Store;
use sherman_fabric::{ComputeId, FabricError, Request, Response};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// The pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(10);
/// Bytes of tables in one request, beside the last store. A store has 32 KiB at most.
const BATCH: usize = 32 << 10;
/// The most bytes of a store beside its memory.
const STORE_HEAD: usize = 32;

/// The way from one primary to the other copies of its volume.
#[derive(Debug)]
pub(crate) struct MirrorLink {
    state: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Sent>,
    /// The table's epoch, and the copies that must get the stores.
    epoch: u64,
    /// How often the epoch or the copies have changed.
    turn: u64,
    targets: Vec<(u16, Address)>,
    over: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { waiting, epoch, turn, targets, over } = self;
        f.debug_struct("State")
            .field("waiting", &waiting.len())
            .field("epoch", epoch)
            .field("turn", turn)
            .field("targets", targets)
            .field("over", over)
            .finish()
    }
}

struct Sent {
    stores: Vec<Store>,
    fenced: Option<ComputeId>,
    answer: Answer,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the thread must look again: there are other copies or another table, or the end.
    fn has_moved(&self, turn: u64) -> bool {
        let state = self.lock();
        state.over || state.turn != turn
    }

    /// Waits a little, unless the thread must look again.
    fn pause(&self, turn: u64) {
        let moved = |state: &mut State| !state.over && state.turn == turn;
        let _ = self.changed.wait_timeout_while(self.lock(), PAUSE, moved);
    }
}

impl MirrorLink {
    /// A way without targets.
    pub(crate) fn start(
        own: Identity,
        secret: Option<Secret>,
        patience: Duration,
    ) -> Result<Self, std::io::Error> {
        let state = Arc::<Shared>::default();
        let shared = Arc::clone(&state);
        let sender = Sender { own, secret, patience, shared, connections: BTreeMap::new() };
        Builder::new().name("sherman-mirror".to_owned()).spawn(move || sender.run())?;
        Ok(Self { state })
    }

    /// Sends the tables of a primary whose process ended, behind everything that was sent before.
    pub(crate) fn send_tables(&self, primary: &Host) {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for store in primary.tables() {
            bytes += STORE_HEAD + if let Store::Bytes { bytes, .. } = &store { bytes.len() } else { 0 };
            batch.push(store);
            if bytes >= BATCH {
                self.send(std::mem::take(&mut batch), None, Box::new(drop));
                bytes = 0;
            }
        }
        self.send(batch, None, Box::new(drop));
    }

    /// Sends to these copies from now on, also what has not been answered.
    pub(crate) fn retarget(&self, epoch: u64, targets: Vec<(u16, Address)>) {
        let mut state = self.state.lock();
        if state.epoch == epoch && state.targets == targets {
            return;
        }
        (state.epoch, state.targets) = (epoch, targets);
        state.turn += 1;
        drop(state);
        self.state.changed.notify_all();
    }
}

impl Drop for MirrorLink {
    fn drop(&mut self) {
        self.state.lock().over = true;
        self.state.changed.notify_all();
    }
}

impl Mirror for MirrorLink {
    fn send(&self, stores: Vec<Store>, fenced: Option<ComputeId>, answer: Answer) {
        self.state.lock().waiting.push_back(Sent { stores, fenced, answer });
        self.state.changed.notify_all();
    }
}

struct Sender {
    own: Identity,
    secret: Option<Secret>,
    patience: Duration,
    shared: Arc<Shared>,
    connections: BTreeMap<u16, PeerConnection>,
}

impl Sender {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let (mut numbered, mut number) = (0, 0);
        loop {
            let idle = |state: &mut State| state.waiting.is_empty() && !state.over;
            let waited = shared.changed.wait_while(shared.lock(), idle);
            let state = waited.unwrap_or_else(PoisonError::into_inner);
            let Some(first) = state.waiting.front().filter(|_| !state.over) else { break };
            let (epoch, turn, targets) = (state.epoch, state.turn, state.targets.clone());
            let (stores, fenced) = (first.stores.clone(), first.fenced);
            drop(state);
            if numbered != epoch {
                (numbered, number) = (epoch, 0);
                self.connections.clear();
            }
            let mut outcome = Ok(Response::Done);
            let mut is_done = true;
            for (copy, address) in &targets {
                let (stores, number) = (stores.clone(), number + 1);
                let request = Request::Mirror { copy: *copy, epoch, number, stores, fenced };
                match self.deliver(*copy, address, &request, turn) {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => outcome = Err(error),
                    None => is_done = false,
                }
            }
            if is_done {
                number += 1;
                let sent = shared.lock().waiting.pop_front();
                if let Some(Sent { answer, .. }) = sent {
                    answer(outcome);
                }
            }
        }
        // The host ends, or the copy is no longer a primary: its clients are of an older epoch.
        for Sent { answer, .. } in std::mem::take(&mut shared.lock().waiting) {
            answer(Err(FabricError::EpochEnded { client: ComputeId::NOBODY }));
        }
    }

    /// Sends a request until it is answered. `None` if there are other copies or another table meanwhile.
    fn deliver(
        &mut self,
        copy: u16,
        address: &Address,
        request: &Request,
        turn: u64,
    ) -> Option<Result<Response, FabricError>> {
        let shared = Arc::clone(&self.shared);
        let mut told = false;
        while !shared.has_moved(turn) {
            match self.try_deliver(copy, address, request) {
                // The other host has not carried out this table yet, or a newer one already. Then this host
                // will get it too.
                Ok(Err(FabricError::Refused(_) | FabricError::EpochEnded { .. })) => {}
                Ok(answer) => return Some(answer),
                Err(error) => {
                    self.connections.remove(&copy);
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(copy, %address, "cannot reach another copy of a volume: {error}");
                    }
                }
            }
            shared.pause(turn);
        }
        None
    }

    fn try_deliver(
        &mut self,
        copy: u16,
        address: &Address,
        request: &Request,
    ) -> Result<Result<Response, FabricError>, sherman_control::ConnectError> {
        if self.connections.get(&copy).is_none_or(PeerConnection::has_news) {
            let Identity { cluster, host, incarnation } = self.own;
            let role = Role::Host { host, incarnation, cluster };
            let connection = PeerConnection::open(address, self.secret.as_ref(), role, self.patience)?;
            self.connections.insert(copy, connection);
        }
        match self.connections.get(&copy) {
            Some(connection) => connection.ask(request, self.patience),
            None => Ok(Err(FabricError::NoSuchServer { server: copy })),
        }
    }
}
