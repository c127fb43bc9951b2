//! Volumes in two copies.
//!
//! A memory server of the model is one *copy* of a volume. Copy `v` is the primary of volume `v`. With two
//! replicas, copy `volumes + v` is its backup, on the machine of the next volume's primary. Clients reach
//! volumes through the endpoint of the product, [`ReplicatedEndpoint`]. So both copies get the lists that
//! they get in a real cluster, in the same order, and each list takes its own way through the NICs.
//!
//! The model has no failures. The table never changes, no lease runs out, and the control state is a single
//! one beside volume 0. The CPU of a primary sends its stores to the backup before it answers (T5): its
//! requests take one more [`call_nanos`](super::Params::call_nanos), and both copies change together.

use super::machine::NANO;
use super::memory::{CpuView, Sparse};
use super::world::{ServerModel, World};
use super::{NicConfig, NicError};
use sherman_fabric::{ComputeId, FabricError, Memory, Request, Response, Space};
use sherman_layout::Geometry;
use sherman_memory_server::Memories;
use sherman_replica::{CopySite, LaneTable, VolumeEntry, VolumeTable};
use std::sync::Arc;
use std::task::Waker;

/// The epoch of the table. Epoch 0 means that nothing is replicated.
const EPOCH: u64 = 1;

/// The table of the world, and where lanes are.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    pub table: Arc<VolumeTable>,
    pub lanes: LaneTable,
}

/// The machine of each copy.
pub(super) fn machines(config: &NicConfig) -> Result<Vec<u16>, NicError> {
    let NicConfig { replicas, servers, .. } = config;
    if !(1..=2).contains(replicas) || usize::from(*replicas) > servers.len() {
        return Err(NicError::Replicas { replicas: *replicas, servers: servers.len() });
    }
    let mut machines = servers.clone();
    if *replicas == 2 {
        machines.extend(servers.iter().cycle().skip(1).take(servers.len()));
    }
    Ok(machines)
}

impl Copies {
    /// The copies of `volumes` volumes, which lie on these machines.
    pub(super) fn new(volumes: u16, machines: &[u16], geometry: &Geometry) -> Result<Self, NicError> {
        let lanes = match geometry.lock.space {
            Space::OnChip => LaneTable::OnChip,
            Space::Host => {
                LaneTable::Host { offset: geometry.lock.offset, bytes: geometry.lock.table_bytes() }
            }
        };
        let table = if machines.len() == usize::from(volumes) {
            VolumeTable::single(volumes)
        } else {
            let site = |&host: &u16| CopySite { host, incarnation: 1 };
            let entry = |volume: u16| VolumeEntry {
                primary: Some(volume),
                backup: Some(volumes + volume),
                joining: None,
                open: true,
            };
            let (sites, entries) = (machines.iter().map(site).collect(), (0..volumes).map(entry).collect());
            VolumeTable::new(EPOCH, sites, entries).map_err(NicError::Table)?
        };
        Ok(Self { table: Arc::new(table), lanes })
    }

    /// The number of volumes.
    pub(super) fn volumes(&self) -> usize {
        self.table.volumes().len()
    }
}

/// The primary of a volume, and the memory of its backup if it has one. Requests go to primaries alone.
pub(super) fn primary(
    models: &mut [ServerModel],
    volumes: usize,
    server: u16,
) -> Result<(&mut ServerModel, Option<&mut Sparse>), FabricError> {
    let (primaries, backups) = models.split_at_mut(volumes);
    let at = usize::from(server);
    let primary = primaries.get_mut(at).ok_or(FabricError::NoSuchServer { server })?;
    Ok((primary, backups.get_mut(at).map(|backup| &mut backup.memory)))
}

impl World {
    /// Whether volumes have more than one copy.
    pub(super) fn is_replicated(&self) -> bool {
        self.server_models.len() > self.copies.volumes()
    }

    /// The task of `waker` waits for a list. With copies, that may be another task of the thread than the one
    /// that posted the list: any of them posts the second halves that are due.
    pub(super) fn watch(&mut self, slot: u32, waker: &Waker) {
        if self.is_replicated()
            && let Some(&task) = self.task_wakers.get(&waker.data().addr())
        {
            self.flights.get_mut(slot).task = task;
        }
    }

    /// Makes a server's CPU answer at once.
    pub(super) fn serve(
        &mut self,
        server: u16,
        from: ComputeId,
        request: &Request,
    ) -> Result<Response, FabricError> {
        let (now, volumes) = (self.now / NANO, self.copies.volumes());
        let (model, backup) = primary(&mut self.server_models, volumes, server)?;
        let ServerModel { memory, control, cpu, .. } = model;
        let views = (Mirrored::new(memory, backup), CpuView::new(control));
        Ok(cpu.handle(Memories { volume: &views.0, control: &views.1 }, from, request, now)?)
    }
}

/// The memory of a primary as its CPU sees it. The backup has each store too.
pub(super) struct Mirrored<'a> {
    view: CpuView<'a>,
    backup: Option<CpuView<'a>>,
}

impl<'a> Mirrored<'a> {
    pub(super) fn new(memory: &'a mut Sparse, backup: Option<&'a mut Sparse>) -> Self {
        Self { view: CpuView::new(memory), backup: backup.map(CpuView::new) }
    }
}

impl Memory for Mirrored<'_> {
    fn size(&self, space: Space) -> u64 {
        self.view.size(space)
    }

    fn load(&self, space: Space, offset: u64, into: &mut [u8]) {
        self.view.load(space, offset, into);
    }

    fn store(&self, space: Space, offset: u64, from: &[u8]) {
        self.view.store(space, offset, from);
        if let Some(backup) = &self.backup {
            backup.store(space, offset, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::{NicSim, NicVolumeEndpoint};
    use sherman_fabric::{Clock, Counters, Endpoint, execute};
    use std::rc::Rc;

    const AT: u64 = 1 << 30;

    fn sim(replicas: u16) -> NicSim {
        let config = NicConfig { machines: 4, servers: vec![0, 1, 2], replicas, ..NicConfig::default() };
        NicSim::new(&config).expect("a legal world")
    }

    fn endpoint(sim: &NicSim) -> NicVolumeEndpoint {
        sim.join(3).and_then(|fabric| fabric.volumes()).expect("an endpoint")
    }

    /// A change of volume 2: data, and the release of a lane.
    fn change(endpoint: &NicVolumeEndpoint, at: u64) -> sherman_fabric::WorkList {
        let mut list = endpoint.list(2);
        list.write(Space::Host, at, &7_u64.to_le_bytes());
        list.write(Space::OnChip, 0, &[9; 2]);
        list
    }

    #[test]
    fn the_backup_is_written_first_and_has_no_lanes() {
        let took = |replicas| {
            let sim = sim(replicas);
            let endpoint = endpoint(&sim);
            assert_eq!(endpoint.servers(), 3);
            let took = sim.spawn_on(endpoint.inner().thread(), async move {
                let began = endpoint.now();
                let list = change(&endpoint, AT);
                execute(&endpoint, list, &Counters::default()).await.expect("a legal list");
                endpoint.now() - began
            });
            sim.run().expect("an end");
            let mut world = sim.world.borrow_mut();
            let words: Vec<_> =
                world.server_models.iter_mut().map(|copy| copy.memory.word(Space::Host, AT)).collect();
            let lanes = world.server_models.iter_mut().map(|copy| copy.memory.word(Space::OnChip, 0));
            (took.take().expect("it has run"), words, lanes.collect::<Vec<_>>(), world.verbs)
        };
        let (one, words, lanes, verbs) = took(1);
        assert_eq!((words, lanes, verbs), (vec![0, 0, 7], vec![0, 0, 0x0909], 2));
        let (two, words, lanes, verbs) = took(2);
        assert_eq!((words, lanes, verbs), (vec![0, 0, 7, 0, 0, 7], vec![0, 0, 0x0909, 0, 0, 0], 3));
        println!("a change takes {one} ns with one copy, {two} ns with two");
        assert!(two > one * 9 / 5 && two < one * 11 / 5, "{one} ns, {two} ns");
    }

    #[test]
    fn tasks_of_one_thread_move_each_other_s_lists_on_and_all_of_them_end() {
        let sim = sim(2);
        let endpoint = Rc::new(endpoint(&sim));
        let thread = endpoint.inner().thread();
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let endpoint = Rc::clone(&endpoint);
                sim.spawn_on(thread, async move {
                    for nth in 0..50 {
                        endpoint.inner().spend(task * 70 % 330 + nth % 7 * 100);
                        let list = change(&endpoint, AT + task * 64);
                        let list =
                            execute(&*endpoint, list, &Counters::default()).await.expect("a legal list");
                        endpoint.recycle(list);
                    }
                })
            })
            .collect();
        sim.run().expect("no task waits forever");
        assert!(tasks.iter().all(|task| task.take().is_some()));
    }

    #[test]
    fn both_copies_have_what_a_primary_s_cpu_stores() {
        let sim = sim(2);
        let mut world = sim.world.borrow_mut();
        let volumes = world.copies.volumes();
        for volume in 0..volumes {
            let (primary, backup) =
                primary(&mut world.server_models, volumes, volume as u16).expect("a volume");
            let memory = Mirrored::new(&mut primary.memory, backup);
            memory.store(Space::Host, AT, &[volume as u8 + 1; 8]);
            assert_eq!(memory.size(Space::Host), 64 << 30);
        }
        for copy in 0..2 * volumes {
            let word = world.server_models[copy].memory.word(Space::Host, AT);
            assert_eq!(word.to_le_bytes(), [(copy % volumes) as u8 + 1; 8]);
        }
        let missing = primary(&mut world.server_models, volumes, 3).err();
        assert_eq!(missing, Some(FabricError::NoSuchServer { server: 3 }));
    }

    #[test]
    fn copies_that_cannot_be_placed_are_refused() {
        for (servers, replicas) in [(vec![0], 2), (vec![0, 1], 3), (vec![0, 1], 0), (vec![], 1)] {
            let count = servers.len();
            let config = NicConfig { servers, replicas, ..NicConfig::default() };
            let error = NicSim::new(&config).err();
            assert_eq!(error, Some(NicError::Replicas { replicas, servers: count }));
        }
        // Two memory servers of one machine would die together.
        let config = NicConfig { servers: vec![1, 1], replicas: 2, ..NicConfig::default() };
        assert!(matches!(NicSim::new(&config).err(), Some(NicError::Table(_))));
    }
}
