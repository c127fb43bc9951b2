//! The thread that makes a copy.

use super::ranges::{BLOCK, differing, pieces, ranges, tables};
use super::{End, Plan, Shared, Task};
use crate::address::parse_address;
use crate::mirror::MirrorLink;
use crate::plane::Identity;
use sherman_control::ConnectError;
use sherman_control::client::PeerConnection;
use sherman_control::plane::Mirror;
use sherman_control::wire::Role;
use sherman_control::wire::group::Fill;
use sherman_fabric::group::Store;
use sherman_fabric::{FabricError, Memory, Refusal, Request, Response, Space};
use sherman_memory_server::cluster::Phase;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Bytes that are compared with one request. The other host's shard serves nobody else meanwhile.
const STEP: u64 = 8 << 20;
/// Bytes of one store over the mirror link. A request has 40 KiB at most.
const STORE: usize = 32 << 10;
/// How many blocks of the tables go over the mirror link at most. They wait in memory.
const MOST_BLOCKS: usize = 256;
/// The pause before anything is repeated.
const PAUSE: Duration = Duration::from_millis(50);
/// The pause while other copies are made.
const BUSY: Duration = Duration::from_millis(5);
/// How long the state may take to show a report that it has taken.
const SHOWN: Duration = Duration::from_secs(2);

sherman_fabric::errors! {
    /// Why bytes were not copied.
    #[derive(Debug)]
    pub(super) enum Failure {
        /// The copy is to be made no more, or what was compared does not count any more.
        Moved => "the state has changed",
        /// The other host is out of reach.
        Connect(error: ConnectError) => "{error}" because error,
        /// The copy or the leader refuses.
        Refused(error: FabricError) => "{error}" because error,
        /// Too much of the tables has changed meanwhile.
        TooMuch => "the tables change too fast",
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

pub(super) struct Worker {
    plan: Plan,
    pub(super) shared: Arc<Shared>,
    connection: Option<PeerConnection>,
    /// Bytes.
    pub(super) compared: u64,
    pub(super) sent: u64,
    began: Instant,
    /// Bytes of this pass that were compared, and all of them.
    pass: (u64, u64),
}

impl Worker {
    pub(super) fn new(plan: Plan, shared: Arc<Shared>) -> Self {
        Self { plan, shared, connection: None, compared: 0, sent: 0, began: Instant::now(), pass: (0, 0) }
    }

    pub(super) fn run(mut self) {
        let Plan { volume, copy, .. } = self.plan;
        tracing::info!(volume, copy, address = %self.plan.address, "making a copy on another host");
        let mut told = false;
        loop {
            let state = self.shared.lock();
            let (end, task, stamp, turn) = (state.end, state.task.clone(), state.stamp, state.turn);
            drop(state);
            if let Some(end) = end {
                self.plan.workshop.forget(copy);
                return self.log_end(end, self.began.elapsed());
            }
            let workshop = Arc::clone(&self.plan.workshop);
            let works = task.phase == Phase::Planned || task.phase == Phase::Copied && task.quiet;
            let bench = works.then(|| workshop.take());
            if matches!(bench, Some(None)) {
                self.shared.wait(turn, BUSY);
                continue;
            }
            let done = match task.phase {
                Phase::Planned => self.copy_open(),
                Phase::Copied if task.quiet => self.copy_quiet(&task, stamp),
                _ => Ok(()),
            };
            drop(bench);
            match done {
                // The report shows soon. If it does not, the work is repeated.
                Ok(()) => self.shared.wait(turn, SHOWN),
                Err(Failure::Moved) => {}
                Err(failure) => {
                    self.connection = None;
                    // One of the two hosts has not carried out the newest table yet.
                    let soon = matches!(
                        failure,
                        Failure::Refused(
                            FabricError::EpochEnded { .. }
                                | FabricError::Refused(Refusal::Unreachable { .. })
                        )
                    );
                    if !soon && !std::mem::replace(&mut told, true) {
                        tracing::warn!(volume, copy, "cannot make a copy: {failure}. Trying again");
                    }
                    self.shared.wait(turn, PAUSE);
                }
            }
        }
    }

    fn log_end(&self, end: End, time: Duration) {
        let (Plan { volume, copy, .. }, seconds) = (&self.plan, time.as_secs_f64());
        let (compared, sent) = (self.compared, self.sent);
        match end {
            End::Made => tracing::info!(
                "made copy {copy} of volume {volume}: {compared} bytes compared, {sent} sent, {seconds:.1} s"
            ),
            End::Dropped => tracing::info!(
                "copy {copy} of volume {volume} is made no more: {compared} bytes compared, {sent} sent"
            ),
        }
    }

    /// J2: copies the volume while clients change it.
    pub(super) fn copy_open(&mut self) -> Result<(), Failure> {
        let ranges = ranges(&self.plan.primary);
        self.sync(&ranges, None)?;
        self.report(&Request::Copied { copy: self.plan.copy }, None)
    }

    /// J4: copies what still differs while nobody writes but the primary's CPU, whose stores the copy gets.
    pub(super) fn copy_quiet(&mut self, task: &Task, stamp: u64) -> Result<(), Failure> {
        let Some(link) = &task.link else { return Err(Failure::Moved) };
        let ranges = ranges(&self.plan.primary);
        self.sync(&ranges, Some(stamp))?;
        self.sync_tables(link, stamp)?;
        self.report(&Request::Settled { copy: self.plan.copy, epoch: task.epoch }, Some(stamp))
    }

    /// Whether to go on: the copy is still wanted, and if there is a stamp, it is the newest.
    fn check(&self, stamp: Option<u64>) -> Result<u64, Failure> {
        let state = self.shared.lock();
        if state.end.is_some() || stamp.is_some_and(|stamp| stamp != state.stamp) {
            return Err(Failure::Moved);
        }
        Ok(state.task.epoch)
    }

    /// Compares these ranges of host memory, and sends the blocks that differ.
    pub(super) fn sync(&mut self, ranges: &[Range<u64>], stamp: Option<u64>) -> Result<(), Failure> {
        self.pass = (0, ranges.iter().map(|range| range.end - range.start).sum());
        for range in ranges {
            for at in range.clone().step_by(STEP as usize) {
                self.check(stamp)?;
                let part = at..range.end.min(at + STEP);
                self.plan.workshop.note(self.plan.copy, self.pass, self.began);
                let theirs = self.their_digests(&part)?;
                let ours = self.plan.primary.digests(part.start, (part.end - part.start) as u32);
                self.compared += part.end - part.start;
                for run in differing(&part, &ours.map_err(Failure::Refused)?, &theirs) {
                    let epoch = self.check(stamp)?;
                    self.send(run, epoch)?;
                }
                self.pass.0 += part.end - part.start;
            }
        }
        self.plan.workshop.note(self.plan.copy, self.pass, self.began);
        Ok(())
    }

    /// Sends at most [`MAX_FILL`] bytes.
    fn send(&mut self, range: Range<u64>, epoch: u64) -> Result<(), Failure> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.plan.primary.memory().load(Space::Host, range.start, &mut bytes);
        let fill = Fill { copy: self.plan.copy, epoch, offset: range.start, bytes: &bytes };
        let patience = self.plan.patience;
        self.connection()?.fill(&fill, patience)?.map_err(Failure::Refused)?;
        self.sent += bytes.len() as u64;
        Ok(())
    }

    fn their_digests(&mut self, range: &Range<u64>) -> Result<Vec<u64>, Failure> {
        let (copy, patience) = (self.plan.copy, self.plan.patience);
        let len = (range.end - range.start) as u32;
        let request = Request::Digest { copy, offset: range.start, len };
        match self.connection()?.ask(&request, patience)?.map_err(Failure::Refused)? {
            Response::Digests(digests) if digests.len() as u64 == u64::from(len).div_ceil(BLOCK) => {
                Ok(digests)
            }
            _ => Err(Failure::Refused(FabricError::UnexpectedReply { request: "Digest" })),
        }
    }

    fn connection(&mut self) -> Result<&PeerConnection, Failure> {
        let Plan { own: Identity { cluster, host, incarnation }, secret, patience, address, .. } = &self.plan;
        let connection = match self.connection.take().filter(|connection| !connection.has_news()) {
            Some(connection) => connection,
            None => {
                let role = Role::Host { host: *host, incarnation: *incarnation, cluster: *cluster };
                PeerConnection::open(address, secret.as_ref(), role, *patience)?
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Compares the tables once more, and sends what differs over the mirror link, so that it is in order
    /// with the stores of the CPU.
    pub(super) fn sync_tables(&mut self, link: &MirrorLink, stamp: u64) -> Result<(), Failure> {
        // From here on a store of an earlier quiet time, which arrives late, is one that was made before.
        self.mirror(link, vec![Vec::new()], stamp)?;
        let ranges = tables(&self.plan.primary.superblock().geometry);
        let mut theirs = Vec::new();
        for range in ranges {
            for at in range.clone().step_by(STEP as usize) {
                let part = at..range.end.min(at + STEP);
                theirs.push((part.clone(), self.their_digests(&part)?));
            }
        }
        // The stores of the CPU that the copy did not have when it was asked are on the link before these.
        let (sender, answers) = channel();
        let primary = Arc::clone(&self.plan.primary);
        let sent = primary.look(|_| {
            let mut runs = Vec::new();
            for (part, theirs) in &theirs {
                let ours = primary.digests(part.start, (part.end - part.start) as u32);
                runs.extend(differing(part, &ours.map_err(Failure::Refused)?, theirs));
            }
            let bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
            if bytes > MOST_BLOCKS as u64 * BLOCK {
                return Err(Failure::TooMuch);
            }
            for at in runs.into_iter().flat_map(|run| pieces(run, STORE as u64)) {
                let mut bytes = vec![0; (at.end - at.start) as usize];
                primary.memory().load(Space::Host, at.start, &mut bytes);
                let stores = vec![Store::Bytes { offset: at.start, bytes }];
                let sender = sender.clone();
                link.send(stores, None, Box::new(move |answer| _ = sender.send(answer)));
            }
            Ok(bytes)
        })?;
        drop(sender);
        self.compared += theirs.iter().map(|(part, _)| part.end - part.start).sum::<u64>();
        self.sent += sent;
        self.await_answers(&answers, stamp)
    }

    /// Sends stores over the link, and waits until the copy has made them.
    fn mirror(&self, link: &MirrorLink, stores: Vec<Vec<Store>>, stamp: u64) -> Result<(), Failure> {
        let (sender, answers) = channel();
        for stores in stores {
            let sender = sender.clone();
            link.send(stores, None, Box::new(move |answer| _ = sender.send(answer)));
        }
        drop(sender);
        self.await_answers(&answers, stamp)
    }

    /// Waits for all answers of the mirror link.
    fn await_answers(
        &self,
        answers: &Receiver<Result<Response, FabricError>>,
        stamp: u64,
    ) -> Result<(), Failure> {
        loop {
            self.check(Some(stamp))?;
            match answers.recv_timeout(PAUSE) {
                Ok(answer) => _ = answer.map_err(Failure::Refused)?,
                Err(Timeout) => {}
                Err(Disconnected) => return Ok(()),
            }
        }
    }

    /// Tells the leader, whichever host that is.
    fn report(&self, request: &Request, stamp: Option<u64>) -> Result<(), Failure> {
        let mut hint = None;
        loop {
            self.check(stamp)?;
            match hint
                .take()
                .or_else(|| self.plan.directory.leader())
                .map(|leader| self.tell(&leader, request))
            {
                Some(Ok(Ok(_))) => return Ok(()),
                Some(Ok(Err(FabricError::Refused(Refusal::NotLeader { leader })))) => {
                    hint = Some(leader).filter(|leader| !leader.is_empty());
                }
                Some(Ok(Err(error))) => return Err(Failure::Refused(error)),
                Some(Err(_)) | None => {}
            }
            let turn = self.shared.lock().turn;
            self.shared.wait(turn, PAUSE);
        }
    }

    fn tell(
        &self,
        leader: &str,
        request: &Request,
    ) -> Result<Result<Response, FabricError>, Option<ConnectError>> {
        let to = parse_address(leader).ok_or(None)?;
        let (secret, patience) = (self.plan.secret.as_ref(), self.plan.patience);
        let connection = PeerConnection::open(&to, secret, Role::Newcomer, patience)?;
        Ok(connection.ask(request, patience)?)
    }
}
