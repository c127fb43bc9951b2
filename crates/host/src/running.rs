//! Starts and ends a host.
//!
//! The order of a start: the sockets listen, so that the host knows its address. It refuses everybody. Then
//! it registers: in its own group, or at the leader of another one. Then its threads start, and the sockets
//! serve.

use crate::address::advertised;
use crate::alive::Alive;
use crate::clock;
use crate::copier::Workshop;
use crate::copies::{Copies, Files, Links};
use crate::driver::{Driver, Log, Parts, owner};
use crate::end::{End, Ended};
use crate::error::HostError;
use crate::folder::{Folder, FolderProblem, Kept, Memories, machine};
use crate::join::{Applicant, check_own_address};
use crate::kept::{self, Back, Found};
use crate::options::{HostCluster, HostOptions, MOST_HOSTS};
use crate::peers::Peers;
use crate::plane::{Identity, Plane};
use sherman_consensus::{Group, NodeId, Recovered, Settings, Start};
use sherman_control::Address;
use sherman_control::plane::{Asker, ControlPlane};
use sherman_control::wire::MAX_FRAME;
use sherman_embedded::host::Host;
use sherman_fabric::group::{ClusterInfo, HostOffer, Registration};
use sherman_fabric::{Request, Response, ServerStats};
use sherman_group::{Machine, Node, NodeOptions};
use sherman_layout::{ControlGeometry, FormatError};
use sherman_memory_server::cluster::{ClusterSettings, ClusterState, Command};
use sherman_soft_nic::server::{
    Listen, RunningServer, ServeError, ServerHandle, ServerOptions, SoftNicServer,
};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The longest and the shortest tick of the group, and how many a host may be silent for.
const LONGEST_TICK: Duration = Duration::from_millis(25);
const SHORTEST_TICK: Duration = Duration::from_millis(5);
const TICKS_OF_SILENCE: u32 = 12;
/// How often a host says that it is alive, while it may be silent.
const SIGNS: u32 = 5;
/// The most bytes that the control state may ever have. A host that joins gets it in one message, which also
/// has the table and the hosts.
const LARGEST_STATE: u64 = MAX_FRAME as u64 - (512 << 10);
/// The most bytes that a snapshot has for each id, beside the member table.
const HOLDER_BYTES: u64 = 18 + 12 + 14;
/// The shortest and the longest time for a connection or an answer between hosts.
const SHORTEST_ANSWER: Duration = Duration::from_millis(100);
const LONGEST_ANSWER: Duration = Duration::from_secs(2);

/// A running host. Dropping it stops it.
#[derive(Debug)]
pub struct RunningHost {
    server: Option<RunningServer>,
    handle: HostHandle,
    registration: Registration,
    settings: ClusterSettings,
    threads: Vec<JoinHandle<()>>,
    folder: Option<Arc<Folder>>,
}

/// A handle to a host, for other threads.
#[derive(Clone, Debug)]
pub struct HostHandle {
    plane: Arc<Plane>,
    end: Arc<End>,
    server: ServerHandle,
}

/// A host's place in its cluster.
struct Place {
    registration: Registration,
    settings: ClusterSettings,
    machine: Machine,
    start: Start,
    log: Log,
    recovered: Option<Recovered>,
    memories: Memories,
    /// Whether the state knows this process.
    known: bool,
}

impl RunningHost {
    /// Starts a host, and returns when it has its place in the cluster.
    ///
    /// # Errors
    /// [`HostError`]. A host that was registered before the error is lost soon after.
    pub fn start(options: HostOptions) -> Result<Self, HostError> {
        // Checked before anything listens, as far as that is possible.
        advertised(options.advertise.as_deref(), &options.listen).or_else(unless_listens_nowhere)?;
        let found = kept::open(&options)?;
        let (plane, inputs) = Plane::new();
        let plane = Arc::new(plane);
        let server = serve(&options, &plane)?;
        let address = advertised(options.advertise.as_deref(), server.addresses())?;
        if options.advertise.is_some() {
            check_own_address(&address, options.secret.as_ref())?;
        }
        let (memory_bytes, boot, keeps) = (options.memory_bytes, server.boot(), found.is_some());
        let offer = HostOffer { address, memory_bytes, boot, cluster: 0, keeps };
        let folder = found.as_ref().map(|found| Arc::clone(&found.folder));
        let place = find_place(&options, &offer, found)?;
        let Place { registration, settings, machine, start, log, recovered, memories, known } = place;
        let own = Identity {
            cluster: registration.cluster,
            host: registration.host,
            incarnation: registration.incarnation,
        };
        if memory_bytes < settings.volume_bytes {
            let copy = settings.volume_bytes;
            tracing::warn!(
                "{memory_bytes} bytes of memory are too few for a copy of {copy}: this host gets none"
            );
        }
        let lease_nanos = settings.format.lease_nanos;
        let detect = options.detect(lease_nanos);
        let now = clock::now();
        let owner = owner(own.cluster, registration.node);
        let group_settings = Settings { owner, ..group_settings(registration.node, detect)? };
        let group = Group::open(group_settings, machine, recovered, start, now)?;
        let nanos = u64::try_from(detect.as_nanos()).unwrap_or(u64::MAX);
        let hosts = registration.hosts.clone();
        let node_options =
            NodeOptions { own, detect: nanos, lease: lease_nanos, hosts, offer: Some(offer.clone()) };
        let node = Node::new(group, node_options, now);
        let handle = HostHandle { plane: Arc::clone(&plane), end: Arc::default(), server: server.handle() };
        let patience = detect.clamp(SHORTEST_ANSWER, LONGEST_ANSWER);
        let hosts = registration.hosts.clone();
        let threads = Vec::new();
        let mut host =
            Self { server: Some(server), handle, registration, settings, threads, folder: folder.clone() };
        let known = Arc::new(AtomicBool::new(known));
        let (end, orders, directory) = (Arc::clone(&host.handle.end), Arc::default(), Arc::default());
        let workshop = Arc::<Workshop>::default();
        let parts = Parts {
            own,
            node,
            log,
            inputs,
            peers: Peers::new(own, options.secret.clone(), patience),
            directory: Arc::clone(&directory),
            orders: Arc::clone(&orders),
            end: Arc::clone(&end),
            server: host.handle.server.clone(),
            hosts,
            boot: offer.boot,
            known: Arc::clone(&known),
            folder: folder.clone(),
            workshop: Arc::clone(&workshop),
        };
        // From here on the driver ends the other threads, whatever happens.
        let driver = Driver::new(parts);
        let copies = Copies::new(
            own,
            settings,
            Arc::clone(&plane),
            host.handle.server.clone(),
            Links {
                secret: options.secret.clone(),
                patience,
                directory: Arc::clone(&directory),
                workshop: Arc::clone(&workshop),
            },
            (Files { folder, maker: Arc::clone(&options.maker) }, memories),
        );
        let until = Arc::clone(&end);
        host.spawn("sherman-copies", move || copies.run(&orders, &until))?;
        let alive = Alive {
            own,
            secret: options.secret,
            every: detect / SIGNS,
            patience: patience / 2,
            directory,
            workshop,
            end,
            offer,
            known,
        };
        host.spawn("sherman-alive", move || alive.run())?;
        plane.open(own);
        host.spawn("sherman-group", move || driver.run())?;
        tracing::info!(
            host = own.host,
            incarnation = own.incarnation,
            cluster = format!("{:016x}", own.cluster),
            "this process is a host of the cluster"
        );
        Ok(host)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), HostError> {
        let thread = Builder::new().name(name.to_owned()).spawn(run).map_err(HostError::System)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Its number in the cluster.
    pub fn number(&self) -> u16 {
        self.registration.host
    }

    /// The cluster's identity.
    pub fn cluster(&self) -> u64 {
        self.registration.cluster
    }

    /// The cluster's settings.
    pub fn settings(&self) -> &ClusterSettings {
        &self.settings
    }

    /// The epoch of the newest table that it has carried out; 0 before the first one.
    pub fn epoch(&self) -> u64 {
        self.handle.plane.epoch()
    }

    /// The addresses that it listens on, with the actual ports.
    pub fn addresses(&self) -> &[Listen] {
        self.server.as_ref().map_or(&[], RunningServer::addresses)
    }

    /// A handle for other threads.
    pub fn handle(&self) -> HostHandle {
        self.handle.clone()
    }

    /// Tells the host to stop, and does not wait.
    pub fn stop(&self) {
        self.handle.stop();
    }

    /// Waits for the host to end: because it was [stopped](Self::stop), or because it cannot go on. Returns
    /// the reason.
    ///
    /// # Errors
    /// If a thread of the memory server has failed.
    pub fn join(mut self) -> Result<Ended, ServeError> {
        let why = self.handle.wait();
        self.close()?;
        Ok(why)
    }

    fn close(&mut self) -> Result<(), ServeError> {
        for thread in self.threads.drain(..) {
            // A panic has already printed its own message, and has ended the host.
            let _ = thread.join();
        }
        let Some(server) = self.server.take() else { return Ok(()) };
        server.stop();
        let ended = server.join();
        if let Some(folder) = self.folder.take() {
            let kept = match self.handle.end.why() {
                Some(Ended::Lost { .. }) => folder.clear(),
                Some(Ended::Stopped) => folder.close(),
                _ => Ok(()),
            };
            if let Err(error) = kept {
                tracing::warn!("{}: {error}", folder.path().display());
            }
        }
        ended
    }
}

impl Drop for RunningHost {
    fn drop(&mut self) {
        self.stop();
        let _ = self.close();
    }
}

impl HostHandle {
    /// Tells the host to stop, and does not wait.
    pub fn stop(&self) {
        self.end.set(Ended::Stopped);
        self.plane.end();
    }

    /// Waits until the host ends, and returns why.
    pub fn wait(&self) -> Ended {
        self.end.wait()
    }

    /// Why the host has ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        self.end.why()
    }

    /// The memory of a copy that is here, or is being made here. For checks: clients reach it through the
    /// sockets alone.
    pub fn copy(&self, copy: u16) -> Option<Arc<Host>> {
        self.server.copy(copy)
    }

    /// What this host knows about its cluster. `None` if it does not answer soon: it begins or ends.
    pub fn info(&self) -> Option<ClusterInfo> {
        let (tell, told) = sync_channel(1);
        // Nobody may wait any more.
        let answer = Box::new(move |answer| drop(tell.try_send(answer)));
        self.plane.ask(Asker::Operator, Request::Cluster, answer);
        match told.recv_timeout(LONGEST_ANSWER).ok()? {
            Ok(Response::Cluster(info)) => Some(*info),
            _ => None,
        }
    }

    /// The counters of its memory server.
    pub fn stats(&self) -> ServerStats {
        self.server.stats()
    }
}

/// A port that the system chooses is known later, and so is the address.
fn unless_listens_nowhere(error: HostError) -> Result<String, HostError> {
    match error {
        HostError::BadAddress { ref address } if !address.is_empty() => Err(error),
        HostError::Unspecified { ref listen } if !listen.ends_with(":0") => Err(error),
        _ => Ok(String::new()),
    }
}

fn serve(options: &HostOptions, plane: &Arc<Plane>) -> Result<RunningServer, HostError> {
    let plane = Arc::clone(plane) as Arc<dyn ControlPlane>;
    let mut server = ServerOptions::with_plane(plane, options.listen.clone());
    (server.secret, server.insecure) = (options.secret.clone(), options.insecure);
    server.limits = options.limits.clone();
    server.shards = options.shards.unwrap_or(server.shards);
    Ok(SoftNicServer::start(server)?)
}

fn find_place(options: &HostOptions, offer: &HostOffer, found: Option<Found>) -> Result<Place, HostError> {
    let Some(Found { folder, back, lost }) = found else {
        return new_place(options, offer, None);
    };
    match back {
        Some(back) => old_place(offer, back),
        None => {
            let place = new_place(options, offer, lost)?;
            keep(&folder, options, &place)?;
            let (log, _) = Log::open(&folder).map_err(|problem| folder.failed(problem))?;
            Ok(Place { log, ..place })
        }
    }
}

/// The place of a host whose process ended.
fn old_place(offer: &HostOffer, mut back: Back) -> Result<Place, HostError> {
    let Back { kept, settings, .. } = &back;
    if back.recovered.is_none() && kept.founder {
        // The process ended before the cluster began. Nobody has seen it.
        return found(kept.own.cluster, settings, offer).map(|place| Place { log: back.log, ..place });
    }
    Ok(Place {
        registration: back.registration(),
        settings: back.settings,
        machine: Machine::default(),
        start: Start::Join,
        recovered: back.recovered.take(),
        log: back.log,
        memories: back.memories,
        known: false,
    })
}

/// A place in a new cluster, or a new place in an existing one.
fn new_place(
    options: &HostOptions,
    offer: &HostOffer,
    lost: Option<(u64, Vec<Address>)>,
) -> Result<Place, HostError> {
    let (cluster, seeds) = match (&options.cluster, lost) {
        (HostCluster::Join { seeds, .. }, Some((cluster, others))) => {
            (cluster, seeds.iter().cloned().chain(others).collect())
        }
        (_, Some(lost)) => lost,
        (HostCluster::Join { seeds, cluster }, None) => (*cluster, seeds.clone()),
        (HostCluster::New(settings), None) => {
            let cluster = getrandom::u64().map_err(HostError::NoRandomness)?.max(1);
            return found(cluster, settings, offer);
        }
        (HostCluster::Kept, None) => return Err(HostError::NoSeeds),
    };
    let offer = HostOffer { cluster, ..offer.clone() };
    let (secret, patience) = (options.secret.as_ref(), options.patience);
    let registration = Applicant { seeds: &seeds, secret, offer, patience }.register()?;
    let settings = ClusterSettings::decode(&registration.settings)
        .ok_or(HostError::Answer { what: "the settings make no sense" })?;
    Ok(Place {
        registration,
        settings,
        machine: Machine::default(),
        start: Start::Join,
        log: Log::in_memory(),
        recovered: None,
        memories: Memories::new(),
        known: true,
    })
}

/// Notes in its folder who this host is.
fn keep(folder: &Folder, options: &HostOptions, place: &Place) -> Result<(), HostError> {
    let Registration { cluster, host, incarnation, node, ref settings, ref hosts } = place.registration;
    let kept = Kept {
        own: Identity { cluster, host, incarnation },
        node,
        founder: place.start == Start::NewGroup,
        lost: false,
        served: false,
        machine: machine(),
        memory_bytes: options.memory_bytes,
        settings: settings.clone(),
        hosts: hosts.clone(),
        copies: Vec::new(),
    };
    let failed = |error| folder.failed(FolderProblem::Io { what: "write the file \"host\"", error });
    folder.keep(kept).map_err(failed)
}

/// Makes a cluster, and registers its first host.
fn found(cluster: u64, settings: &ClusterSettings, offer: &HostOffer) -> Result<Place, HostError> {
    if settings.hosts > MOST_HOSTS {
        return Err(HostError::TooManyHosts { asked: settings.hosts });
    }
    let mut state = ClusterState::new(cluster, *settings).map_err(HostError::Settings)?;
    if offer.memory_bytes < settings.bytes_per_host() {
        return Err(HostError::TooLittleMemory { offered: offer.memory_bytes });
    }
    if most_bytes_of_state(settings) > LARGEST_STATE {
        let what = "the control state is too large for one message: allow fewer members and trees";
        return Err(HostError::Settings(FormatError::BadGeometry { what }));
    }
    let register = Command::Register { now: 0, offer: offer.clone() };
    match state.apply(&register).map_err(HostError::Refused)? {
        Response::Registered(registration) => Ok(Place {
            registration: *registration,
            settings: *settings,
            machine: Machine::new(state),
            start: Start::NewGroup,
            log: Log::in_memory(),
            recovered: None,
            memories: Memories::new(),
            known: true,
        }),
        _ => Err(HostError::Answer { what: "it is no registration" }),
    }
}

/// The most bytes of members and trees in a snapshot of such a cluster's state. In the worst case a snapshot
/// has a head for every second word.
fn most_bytes_of_state(settings: &ClusterSettings) -> u64 {
    let format = settings.volume_format(1, 0);
    let holders = u64::from(format.member_capacity) * HOLDER_BYTES;
    ControlGeometry::bytes_of(&format).saturating_mul(3) / 2 + holders
}

/// The settings of a node. Elections take about as long as a host may be silent.
fn group_settings(node: NodeId, detect: Duration) -> Result<Settings, HostError> {
    let seed = getrandom::u64().map_err(HostError::NoRandomness)?;
    let tick = (detect / TICKS_OF_SILENCE).clamp(SHORTEST_TICK, LONGEST_TICK);
    Ok(Settings { tick: tick.as_nanos() as u64, ..Settings::new(node, seed) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elections_are_as_quick_as_silence_is_noticed() {
        let tick = |millis| group_settings(1, Duration::from_millis(millis)).unwrap().tick;
        assert_eq!([tick(12), tick(120), tick(60_000)], [5_000_000, 10_000_000, 25_000_000]);
    }

    #[test]
    fn an_address_that_cannot_be_is_refused_before_anything_listens() {
        let tcp = |text: &str| vec![Listen::Tcp(text.to_owned())];
        let check = |listen: &[Listen], advertise: Option<&str>| {
            advertised(advertise, listen).or_else(unless_listens_nowhere)
        };
        assert!(check(&tcp("127.0.0.1:0"), None).is_ok());
        assert!(check(&[], None).is_ok(), "the server itself refuses this");
        assert!(check(&tcp("0.0.0.0:7000"), None).is_err());
        assert!(check(&tcp("127.0.0.1:0"), Some("nonsense")).is_err());
    }
}
