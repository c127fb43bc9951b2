//! The control state of a cluster of hosts: what the group of `docs/CONSENSUS.md` replicates.
//!
//! [`ClusterState`] is a deterministic state machine. It has the [`Control`] state, the hosts, the table of
//! volumes, and for every id what its holder may count on. The group applies the same [`Command`]s in the
//! same order on every host that votes. So there is no clock here, no randomness, and no iteration in the
//! order of hashes: time comes in commands.
//!
//! The letters in parentheses are rules of `docs/REPLICATION.md`.
//!
//! **Time.** The clocks of two leaders may differ by any amount. So the state has a time of its own. Each
//! leader sends [`Command::Lead`] before any other command. From then on the state's time passes as that
//! leader's clock does. It never goes back. The time between the last command of a leader and the first of
//! the next one does not count, so every lease lasts at least as long as its holder believes (L2, L3).
//!
//! **Identities.** An id belongs to the epoch in which it was issued. The state answers an older one with
//! [`FabricError::EpochEnded`] alone (E1). Volumes that changed their primary are closed. They open when
//! every older id is free and none of their former holders may still count on its lease (E6).
//!
//! **Repeated commands.** A client that lost the leader sends its request again, although the first one may
//! have been executed. A repeated [`Command::Register`], [`Command::HostLost`], [`Request::Leave`] or
//! [`Request::FreeId`] gets the same answer. A repeated [`Command::Join`] issues one more id, whose lease
//! runs out. A repeated [`Request::Succeed`] gets the same verdict until somebody asks something else about
//! the former identity. A repeated [`Request::CreateTree`] gets the answer of the first one.
//!
//! **Fences.** This state cannot fence anybody. Recoverers do, on every copy (X1).
//!
//! | module | what |
//! |---|---|
//! | [`mod@settings`] | [`ClusterSettings`]: what is fixed when the cluster is made |
//! | [`mod@hosts`] | the hosts, present and lost, and which of them should vote |
//! | `volumes` | the table: the first plan, the loss of a host, opening |
//! | [`Making`] | copies that are made: again after a loss, or in place of one that moves |
//! | `moves` | which copies move: a host that shall leave is drained, and copies are spread evenly |
//! | `successions` | the last answers to successors, in case they ask again |
//! | `creations` | the last answers to clients that created trees, in case they ask again |
//! | `identities` | for every id its epoch, and until when its holder may count on its lease |
//! | `snapshot` | the whole state as bytes |

mod bytes;
mod creations;
pub mod hosts;
mod identities;
mod makings;
mod memory;
mod moves;
pub mod settings;
mod snapshot;
mod successions;
mod volumes;

#[cfg(test)]
mod tests;

pub use hosts::Host;
pub use identities::Leftover;
pub use makings::{Making, Phase};
pub use settings::ClusterSettings;

use crate::Control;
use creations::Creations;
use hosts::Hosts;
use identities::Identities;
use makings::Makings;
use memory::ControlMemory;
use sherman_fabric::control::TreeInfo;
use sherman_fabric::group::{
    Admission, ClusterInfo, CopyMaking, CopyProgress, CopyWork, HostInfo, HostOffer, Registration,
};
use sherman_fabric::{ComputeId, FabricError, Refusal, Request, Response, Role};
use sherman_layout::{FormatError, FormatOptions, MemberEntry, MemberState};
use sherman_replica::VolumeTable;
use std::sync::Arc;
use successions::Successions;

/// What the group replicates. `now` is the clock of the leader that proposes the command, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A host leads from now on. It sends this before any other command. All leases start again (L3).
    Lead {
        /// The new leader's clock.
        now: u64,
    },
    /// A process wants to become a host. The answer is [`Response::Registered`].
    Register {
        /// The leader's clock.
        now: u64,
        /// What it offers.
        offer: HostOffer,
    },
    /// The process of a host ended, and another one has its memory and its part of the group. It goes on as
    /// this host, if the host was not declared lost meanwhile. The answer is [`Response::Registered`].
    HostReturned {
        /// The leader's clock.
        now: u64,
        /// The host's number.
        host: u16,
        /// The host's incarnation.
        incarnation: u32,
        /// What the new process offers.
        offer: HostOffer,
    },
    /// The leader declares a host lost. That is final for this incarnation.
    HostLost {
        /// The leader's clock.
        now: u64,
        /// The host's number.
        host: u16,
        /// The host's incarnation.
        incarnation: u32,
    },
    /// A process wants to become a member. The answer is [`Response::Admitted`].
    Join {
        /// The leader's clock.
        now: u64,
    },
    /// A member asks.
    Ask {
        /// The leader's clock.
        now: u64,
        /// Its id.
        client: ComputeId,
        /// The incarnation of the id.
        incarnation: u32,
        /// What it asks.
        request: Request,
    },
    /// An operator asks, who needs no membership.
    Operate {
        /// The leader's clock.
        now: u64,
        /// What the operator asks.
        request: Request,
    },
    /// A host has copied a volume to a copy that is being made, while clients changed the volume (J2). The
    /// answer is [`Response::Done`], also if nobody makes this copy.
    Copied {
        /// The leader's clock.
        now: u64,
        /// The copy.
        copy: u16,
    },
    /// A host has copied again what differed, while the state was quiet in `epoch` (J4). The answer is
    /// [`Response::Done`], also if that epoch is over or nobody makes this copy.
    Settled {
        /// The leader's clock.
        now: u64,
        /// The copy.
        copy: u16,
        /// The epoch in which the copy was right.
        epoch: u64,
    },
    /// The leader gives up a pause that lasts too long (J6). See [`ClusterState::is_making_overdue`].
    AbortMaking {
        /// The leader's clock.
        now: u64,
    },
    /// Time passes. Needed while [`ClusterState::needs_tick`].
    Tick {
        /// The leader's clock.
        now: u64,
    },
}

impl Command {
    /// The clock of the leader that proposed it.
    pub const fn now(&self) -> u64 {
        match self {
            Self::Lead { now }
            | Self::Register { now, .. }
            | Self::HostReturned { now, .. }
            | Self::HostLost { now, .. }
            | Self::Join { now }
            | Self::Ask { now, .. }
            | Self::Operate { now, .. }
            | Self::Copied { now, .. }
            | Self::Settled { now, .. }
            | Self::AbortMaking { now }
            | Self::Tick { now } => *now,
        }
    }
}

/// The time of the state, which follows the clock of whichever host leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Clock {
    now: u64,
    /// The clock of the present leader when it began to lead, and the state's time then.
    began: u64,
    base: u64,
}

impl Clock {
    fn lead(&mut self, reading: u64) {
        (self.began, self.base) = (reading, self.now);
    }

    fn advance(&mut self, reading: u64) {
        self.now = self.now.max(self.base.saturating_add(reading.saturating_sub(self.began)));
    }
}

/// The control state of a cluster of hosts. See the [module](self).
#[derive(Clone, Debug)]
pub struct ClusterState {
    settings: ClusterSettings,
    control: Control,
    memory: ControlMemory,
    clock: Clock,
    hosts: Hosts,
    table: Arc<VolumeTable>,
    identities: Identities,
    makings: Makings,
    successions: Successions,
    creations: Creations,
    /// The ids that the last command freed without a request of their holder or of a recoverer.
    reaped: Vec<ComputeId>,
}

impl ClusterState {
    /// The state of a new cluster, without hosts and volumes. `cluster` is its identity: a random number that
    /// is not 0.
    ///
    /// # Errors
    /// Why the settings are impossible.
    pub fn new(cluster: u64, settings: ClusterSettings) -> Result<Self, FormatError> {
        let geometry = settings.check(cluster)?;
        let memory = ControlMemory::new(settings.control_bytes());
        let mut control = Control::format(&memory, cluster, &geometry)?;
        let identities: Vec<u64> =
            (0..settings.volumes).map(|volume| settings::memory_id(cluster, volume)).collect();
        control.enlist_all(&memory, &identities);
        Ok(Self {
            settings,
            control,
            memory,
            clock: Clock::default(),
            hosts: Hosts::default(),
            table: Arc::default(),
            identities: Identities::default(),
            makings: Makings::default(),
            successions: Successions::default(),
            creations: Creations::default(),
            reaped: Vec::new(),
        })
    }

    /// Applies the next command of the group. What makes no sense is refused and changes nothing but the
    /// time.
    ///
    /// # Errors
    /// Those of the request, [`FabricError::EpochEnded`] for an identity of an older epoch, and
    /// [`FabricError::Fenced`] for an id that somebody else holds now.
    pub fn apply(&mut self, command: &Command) -> Result<Response, FabricError> {
        self.reaped.clear();
        if let Command::Lead { now } = command {
            self.clock.lead(*now);
        }
        self.clock.advance(command.now());
        let answer = match command {
            Command::Lead { .. } => {
                self.restart_leases();
                Ok(Response::Done)
            }
            Command::Register { offer, .. } => self.register(offer),
            Command::HostReturned { host, incarnation, offer, .. } => {
                self.host_returned(*host, *incarnation, offer)
            }
            Command::HostLost { host, incarnation, .. } => self.host_lost(*host, Some(*incarnation)),
            Command::Join { .. } => self.join(),
            Command::Ask { client, incarnation, request, .. } => self
                .check_identity(*client, *incarnation, request)
                .and_then(|()| self.serve(*client, request)),
            Command::Operate { request, .. } => self.operate(request),
            Command::Copied { copy, .. } => {
                self.copied(*copy);
                Ok(Response::Done)
            }
            Command::Settled { copy, epoch, .. } => {
                self.settled(*copy, *epoch);
                Ok(Response::Done)
            }
            Command::AbortMaking { .. } => {
                self.abort_makings();
                Ok(Response::Done)
            }
            Command::Tick { .. } => {
                self.control.reap(&self.memory, self.clock.now);
                Ok(Response::Done)
            }
        };
        self.end_command();
        answer
    }

    /// As [`Command::Ask`], but also for identities that have ended. For the simulator, which shows with a
    /// planted bug that rule E1 is needed.
    #[doc(hidden)]
    pub fn ask_unchecked(
        &mut self,
        now: u64,
        client: ComputeId,
        request: &Request,
    ) -> Result<Response, FabricError> {
        self.reaped.clear();
        self.clock.advance(now);
        let answer = self.serve(client, request);
        self.end_command();
        answer
    }

    fn end_command(&mut self) {
        self.reaped.extend(self.control.take_reaped());
        self.advance_volumes();
    }

    /// Opens and closes volumes as far as the state of members and copies allows.
    fn advance_volumes(&mut self) {
        self.open_if_settled();
        self.close_if_copied();
        self.open_if_made();
        self.let_go();
    }

    fn restart_leases(&mut self) {
        let now = self.clock.now;
        self.control.restart_leases(&self.memory, now);
        let Self { control, identities, settings, .. } = self;
        let until = now.saturating_add(settings.format.lease_nanos);
        identities.restart(until, |client| control.member(client).state == MemberState::Live);
    }

    fn register(&mut self, offer: &HostOffer) -> Result<Response, FabricError> {
        self.check_cluster(offer)?;
        if !self.is_formed() && offer.memory_bytes < self.settings.bytes_per_host() {
            let what = "the memory server offers less memory than the copies of its volumes need";
            return Err(Refusal::BadRequest { what }.into());
        }
        let (host, incarnation, node) = self.hosts.register(offer)?;
        self.form();
        self.makings.spreading |= self.makings.always && self.is_formed();
        self.plan();
        Ok(self.registration(host, incarnation, node))
    }

    fn check_cluster(&self, offer: &HostOffer) -> Result<(), Refusal> {
        if offer.cluster == 0 || offer.cluster == self.cluster() {
            return Ok(());
        }
        Err(Refusal::BadRequest { what: "the memory server belongs to another cluster" })
    }

    fn registration(&self, host: u16, incarnation: u32, node: u64) -> Response {
        Response::Registered(Box::new(Registration {
            cluster: self.cluster(),
            host,
            incarnation,
            node,
            settings: self.settings.encode(),
            hosts: self.host_infos(),
        }))
    }

    /// I4: a host goes on with its copies, under the same number and in a new epoch.
    fn host_returned(
        &mut self,
        host: u16,
        incarnation: u32,
        offer: &HostOffer,
    ) -> Result<Response, FabricError> {
        self.check_cluster(offer)?;
        // A host that is not on the list was lost long ago, or never was.
        let lost = FabricError::ServerLost { server: host };
        let known = self.hosts.get(host).ok_or(lost.clone())?;
        if !known.info.up || known.info.incarnation != incarnation {
            return Err(lost);
        }
        let node = known.info.node;
        if self.hosts.come_back(host, offer)? {
            self.drop_makings_of(host);
            if !self.copies_on(host).is_empty() {
                // No copy changes its part, and lanes are as they were. So no volume must be closed.
                self.set_entries(self.table.epoch() + 1, self.table.volumes().to_vec());
            }
            self.form();
            self.plan();
        }
        Ok(self.registration(host, incarnation, node))
    }

    fn host_lost(&mut self, host: u16, incarnation: Option<u32>) -> Result<Response, FabricError> {
        if self.hosts.lose(host, incarnation)? {
            self.drop_makings_of(host);
            self.drop_copies_of(host);
            self.plan();
        }
        Ok(Response::Done)
    }

    fn join(&mut self) -> Result<Response, FabricError> {
        if !self.is_formed() {
            let hosts = self.hosts.candidates().len() as u16;
            return Err(Refusal::Forming { hosts, expected: self.settings.hosts }.into());
        }
        // A client goes on without the volumes that have lost all their copies, but not without any volume.
        if self.table.lost().count() == self.table.volumes().len() {
            return Err(FabricError::VolumeLost { volume: 0 });
        }
        let now = self.clock.now;
        // The new member should not wait for volumes that nobody keeps closed any more.
        self.control.reap(&self.memory, now);
        self.advance_volumes();
        let response = self.control.apply(&self.memory, ComputeId::NOBODY, &Request::Join, now)?;
        let Response::Joined { client } = response else {
            return Err(FabricError::UnexpectedReply { request: "Join" });
        };
        let lease_nanos = self.settings.format.lease_nanos;
        self.identities.issue(client, self.table.epoch(), now, now.saturating_add(lease_nanos));
        Ok(Response::Admitted(Box::new(Admission {
            client,
            incarnation: self.control.member(client).incarnation,
            cluster: self.cluster(),
            lease_nanos,
            table: self.table.encode(),
            hosts: self.hosts.present().map(|host| (host.number, host.address.clone())).collect(),
        })))
    }

    /// Refuses an identity that has ended: its id is free or somebody else holds it, or its epoch is over
    /// (E1).
    fn check_identity(
        &self,
        client: ComputeId,
        incarnation: u32,
        request: &Request,
    ) -> Result<(), FabricError> {
        let Some(epoch) = self.identities.epoch(client) else {
            return Err(Refusal::NotAMember { client }.into());
        };
        let member = self.control.member(client);
        if member.incarnation != incarnation {
            return Err(FabricError::Fenced { client });
        }
        if epoch < self.table.epoch() {
            return Err(FabricError::EpochEnded { client });
        }
        // A client that leaves may ask again, because it did not get the answer.
        if member.state == MemberState::Free && *request != Request::Leave {
            return Err(FabricError::Fenced { client });
        }
        Ok(())
    }

    fn serve(&mut self, from: ComputeId, request: &Request) -> Result<Response, FabricError> {
        match request {
            Request::Volumes => return Ok(Response::Volumes(self.table.encode())),
            Request::Servers => return Ok(self.hosts.list()),
            Request::DeclareLost { server } => return self.host_lost(*server, None),
            Request::Join
            | Request::Cluster
            | Request::Register { .. }
            | Request::Return { .. }
            | Request::Alive { .. }
            | Request::Drain { .. }
            | Request::Rebalance { .. }
            | Request::Copied { .. }
            | Request::Settled { .. } => {
                return Err(Refusal::BadRequest { what: "a member may not send this request" }.into());
            }
            // The sender asks again, because it did not get the answer.
            Request::Leave if self.is_free(from) => return Ok(Response::Done),
            Request::FreeId { client } if self.is_free(*client) => return Ok(Response::Done),
            Request::CreateTree { asked, .. } => return self.create_tree(from, request, *asked),
            _ => {}
        }
        let response = self.control.apply(&self.memory, from, request, self.clock.now)?;
        self.note_lease(from, request);
        Ok(self.repeat_inheritance(from, request, response))
    }

    fn is_free(&self, client: ComputeId) -> bool {
        self.identities.epoch(client).is_some() && self.control.member(client).state == MemberState::Free
    }

    /// Notes until when clients may count on their leases (L2).
    fn note_lease(&mut self, from: ComputeId, request: &Request) {
        let until = self.clock.now.saturating_add(self.settings.format.lease_nanos);
        match request {
            Request::Renew => self.identities.set_until(from, until),
            Request::Leave | Request::Depart => self.identities.set_until(from, 0),
            // Its process says that it has ended the identity.
            Request::Succeed { client, incarnation }
                if self.control.member(*client).incarnation == *incarnation =>
            {
                self.identities.set_until(*client, 0);
            }
            _ => {}
        }
    }

    fn operate(&mut self, request: &Request) -> Result<Response, FabricError> {
        match request {
            Request::Servers => Ok(self.hosts.list()),
            Request::Volumes => Ok(Response::Volumes(self.table.encode())),
            Request::DeclareLost { server } => self.host_lost(*server, None),
            Request::Drain { host, cancel } => self.drain(*host, *cancel),
            Request::Rebalance { when } => Ok(self.rebalance(*when)),
            request => Ok(self.control.administer(&self.memory, request, self.clock.now)?),
        }
    }

    /// The cluster's identity. It is also that of the memory of volume 0.
    pub fn cluster(&self) -> u64 {
        self.control.cluster()
    }

    /// What was fixed when the cluster was made.
    pub fn settings(&self) -> &ClusterSettings {
        &self.settings
    }

    /// The state's time, in nanoseconds. It is no host's clock.
    pub fn now(&self) -> u64 {
        self.clock.now
    }

    /// The table of volumes. It has none before the cluster is formed.
    pub fn table(&self) -> &Arc<VolumeTable> {
        &self.table
    }

    /// Whether the cluster has volumes.
    pub fn is_formed(&self) -> bool {
        !self.table.volumes().is_empty()
    }

    /// Whether the leader must send [`Command::Tick`] from time to time: a volume is closed, or shall be.
    pub fn needs_tick(&self) -> bool {
        self.has_closed_volumes() || self.waits_to_close()
    }

    fn has_closed_volumes(&self) -> bool {
        self.table.volumes().iter().any(|entry| entry.primary.is_some() && !entry.open)
    }

    /// The hosts that are present and the last ones that were lost, by number.
    pub fn hosts(&self) -> &[Host] {
        self.hosts.all()
    }

    /// The host with this number.
    pub fn host(&self, number: u16) -> Option<&Host> {
        self.hosts.get(number)
    }

    /// Whether a host with this number ever registered, as far as this state knows. If it is not among the
    /// [hosts](Self::hosts) then, it was lost long ago.
    pub fn has_registered(&self, number: u16) -> bool {
        number < self.hosts.registered()
    }

    /// As [`hosts`](Self::hosts), as the wire has them. `voter` is false: only the group knows who votes.
    pub fn host_infos(&self) -> Vec<HostInfo> {
        self.hosts.all().iter().map(|host| host.info.clone()).collect()
    }

    /// What the host with this number tells about the cluster. It knows this leader.
    pub fn info(&self, host: u16, leader: Option<String>) -> ClusterInfo {
        ClusterInfo {
            cluster: self.cluster(),
            host,
            leader,
            epoch: self.table.epoch(),
            formed: self.is_formed(),
            lease_nanos: self.settings.format.lease_nanos,
            hosts: self.host_infos(),
            table: self.table.encode(),
            work: self.work(),
        }
    }

    /// The copies that are being made or moved.
    fn work(&self) -> CopyWork {
        let Makings { list, closed_at, swaps, spreading, always, .. } = &self.makings;
        let making = |making: &Making| CopyMaking {
            volume: making.volume,
            copy: making.copy,
            host: self.host_of(making.copy).unwrap_or(u16::MAX),
            replaces: making.replaces,
            copied: making.phase > Phase::Planned,
            progress: CopyProgress::default(),
        };
        CopyWork {
            makings: list.iter().map(making).collect(),
            swaps: swaps.len() as u16,
            pause: closed_at.is_some(),
            spreading: *spreading,
            always: *always,
        }
    }

    /// The nodes that should vote, in ascending order, if these vote now. See [`mod@hosts`].
    pub fn voters_wanted(&self, present: &[u64]) -> Vec<u64> {
        self.hosts.voters_wanted(present)
    }

    /// The copies that a host has by the table: the number of the copy, its volume, and its part.
    pub fn copies_on(&self, host: u16) -> Vec<(u16, u16, Role)> {
        let named = (0..).zip(self.table.volumes());
        let copies =
            named.flat_map(|(volume, entry)| entry.copies().map(move |(role, copy)| (copy, volume, role)));
        copies.filter(|(copy, ..)| self.host_of(*copy) == Some(host)).collect()
    }

    /// The options with which every copy of `volume` is formatted.
    pub fn volume_format(&self, volume: u16) -> FormatOptions {
        self.settings.volume_format(self.cluster(), volume)
    }

    /// What the member table says about `client`.
    pub fn member(&self, client: ComputeId) -> MemberEntry {
        self.control.member(client)
    }

    /// All trees, by name.
    pub fn trees(&self) -> Vec<TreeInfo> {
        self.control.trees()
    }

    /// The identities of older epochs that keep volumes closed (E6).
    pub fn leftovers(&self) -> impl Iterator<Item = Leftover> {
        self.identities.leftovers(self.table.epoch(), self.clock.now, |client| {
            self.control.member(client).state != MemberState::Free
        })
    }

    /// The ids that the last command freed without a request of their holder or of a recoverer. Hosts end the
    /// connections of their former holders.
    pub fn reaped(&self) -> &[ComputeId] {
        &self.reaped
    }
}
