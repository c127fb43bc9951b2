//! The inspection after a schedule with faults: an inspector joins, recovers the dead compute servers, and
//! checks everything.
//!
//! The inspector leaves healthy compute servers alone. It compares the memory that they hold with their own
//! view of it, so recovery cannot clean up after live clients. In some schedules they then depart in order,
//! and the inspector takes over everything.

use super::check::{self, Found, Property};
use super::fixture::{Compute, Fixture, TREE, recover_in_pause, try_join};
use super::script::Record;
use crate::linear::Checker;
use crate::sim::{Fault, Run};
use sherman_core::{ComputeServer, Error, Walk};
use sherman_fabric::control::{MemberInfo, Standing, TreeInfo};
use sherman_fabric::{ComputeId, Endpoint, Memory, Peer, Space, call, calls};
use sherman_layout::ClientWord;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Longer, in virtual time, than any recovery takes.
const PATIENCE: Duration = Duration::from_secs(1);
/// More than the bits of work that the copies of a pause need.
const MOST_TRIES: u32 = 16;

/// A schedule that has ended.
pub(super) struct Scene<'a> {
    /// The contents of the tree before.
    pub initial: &'a BTreeMap<u64, u64>,
    /// Every compute server that took part and did not leave in order.
    pub everyone: &'a [Compute],
    pub record: &'a Record,
    /// The hosts that were lost.
    pub lost: &'a [u16],
    /// The hosts that come back.
    pub returning: &'a [u16],
    /// Whether a pause for copies goes on until the copies are made. Otherwise the leader gives it up.
    pub finishes: bool,
}

impl Scene<'_> {
    /// Checks everything that must hold, and stores the walk of the tree in `seen`. If `dismissed` is set,
    /// the healthy compute servers then depart.
    pub(super) fn inspect(
        &self,
        fixture: &mut Fixture,
        run: &Run,
        checker: &mut Checker,
        dismissed: bool,
        seen: &mut Walk,
    ) -> Result<(), Found> {
        check::ended_well(run, self.record)?;
        for host in self.returning.iter().copied() {
            // A host that died may not have come back yet. Somebody else may have the last copy.
            if fixture.sim.dead_hosts().contains(&host) {
                fixture.sim.strike(Fault::HostReturns { host });
            }
        }
        for host in self.lost.iter().copied() {
            // A host that died may not have been declared lost yet.
            fixture.sim.strike(Fault::HostLost { host });
        }
        for host in fixture.sim.dead_hosts() {
            fixture.sim.strike(Fault::HostLost { host });
        }
        if fixture.sim.is_paused() && !self.finishes {
            fixture.sim.strike(Fault::AbortMaking);
        }
        finish_copies(fixture)?;
        let mut left = Left::settle(fixture, self.everyone)?;
        let (walk, others) = self.look(fixture, &left)?;
        *seen = walk;
        check::told(&fixture.scenario, self.record, checker, self.initial, seen, &others)?;
        if dismissed {
            left.dismiss(fixture)?;
            self.look(fixture, &left)?;
        }
        Ok(())
    }

    /// Checks memory as a whole: the main tree of the scenario, and the others.
    fn look(&self, fixture: &mut Fixture, left: &Left) -> Result<(Walk, Vec<(TreeInfo, Walk)>), Found> {
        let shared: Vec<&ComputeServer> = left.everyone().map(|compute| &*compute.shared).collect();
        check::lanes(&fixture.sim, &fixture.scenario, &shared)?;
        check::redo(&fixture.sim, &shared)?;
        check::copies(&fixture.sim, &left.inspector.shared)?;
        let others = left.walk_others(fixture)?;
        let walk = check::walk(fixture, &left.inspector)?;
        let walks: Vec<&Walk> = others.iter().map(|(_, walk)| walk).chain([&walk]).collect();
        check::space(&fixture.sim, fixture.scenario.servers, &left.everyone().collect::<Vec<_>>(), &walks)?;
        Ok((walk, others))
    }
}

/// Recovers everybody, because no lease is renewed any more, and lets hosts finish the copies for which a
/// pause has begun or will begin (J3-J5).
fn finish_copies(fixture: &mut Fixture) -> Result<(), Found> {
    let mut last = String::new();
    for _ in 0..MOST_TRIES {
        if !fixture.sim.awaits_copies() {
            return Ok(());
        }
        // The identity of the recoverer ends when the pause begins.
        let recovered = recover_in_pause(&mut fixture.sim, &fixture.scenario);
        last = recovered.err().unwrap_or(last);
        fixture.sim.work_on_copies();
    }
    Err(Found::new(Property::Progress, format!("the pause for copies does not end: {last}")))
}

/// The compute servers that remain after all recoveries.
struct Left {
    inspector: Compute,
    /// The healthy compute servers.
    well: Vec<Compute>,
}

impl Left {
    /// Recovers all `members` that are not healthy. If several joined under the same id, only the last of
    /// them has it.
    fn settle(fixture: &mut Fixture, members: &[Compute]) -> Result<Self, Found> {
        let epoch = fixture.sim.volumes().epoch();
        let dead = |compute: &Compute| {
            fixture.sim.is_dead(compute.fabric.number()) || compute.shared.is_terminated()
        };
        let well = members.iter().filter(|compute| compute.fabric.table().epoch() == epoch && !dead(compute));
        let well = well.map(|compute| compute.fabric.client()).collect();
        let inspector = try_join(&mut fixture.sim, &fixture.scenario, &well)
            .map_err(|what| Found::new(Property::Members, what))?;
        let mut left = Self { inspector, well: members.to_vec() };
        left.forget_unwell(fixture, members)?;
        loop {
            left.recover(fixture)?;
            let well = left.well.len();
            left.forget_unwell(fixture, members)?;
            // A recovery may find that another member is dead too: its recoverer, which seemed healthy.
            if left.well.len() == well {
                break;
            }
        }
        left.expect_alone(fixture)?;
        Ok(left)
    }

    /// Makes the healthy compute servers depart, and takes over their memory.
    fn dismiss(&mut self, fixture: &mut Fixture) -> Result<(), Found> {
        for compute in std::mem::take(&mut self.well) {
            let worker = compute.worker();
            let departed = fixture.sim.block_on(worker.depart());
            let trouble = |error: &dyn std::fmt::Display| {
                Found::new(Property::Members, format!("a healthy member cannot depart: {error}"))
            };
            match departed.map_err(|stuck| trouble(&stuck))? {
                // The compute server detects only now that it is cut off. It stays, and the inspector
                // recovers it.
                Err(_) if compute.shared.is_terminated() => {}
                outcome => outcome.map_err(|error| trouble(&error))?,
            }
        }
        self.recover(fixture)?;
        self.expect_alone(fixture)
    }

    /// Returns all remaining compute servers, the inspector last.
    fn everyone(&self) -> impl Iterator<Item = &Compute> {
        self.well.iter().chain([&self.inspector])
    }

    /// Walks all trees except the main tree of the scenario.
    fn walk_others(&self, fixture: &mut Fixture) -> Result<Vec<(TreeInfo, Walk)>, Found> {
        let worker = self.inspector.worker();
        let walk_all = async {
            let trees =
                call(worker.endpoint(), Peer::Control, calls::ListTrees, worker.endpoint().counters())
                    .await?;
            let mut walks = Vec::new();
            for info in trees.into_iter().filter(|info| info.name != TREE) {
                let tree = worker.open_tree(&info.name).await?;
                walks.push((info, worker.op().walk(&tree).await?));
            }
            Ok::<_, Error>(walks)
        };
        match fixture.sim.block_on(walk_all) {
            Ok(Ok(walks)) => Ok(walks),
            Ok(Err(error)) => Err(Found::new(Property::Walk, error.to_string())),
            Err(stuck) => Err(Found::new(Property::Walk, stuck.to_string())),
        }
    }

    fn list(&self, fixture: &mut Fixture) -> Result<Vec<MemberInfo>, Found> {
        let worker = self.inspector.worker();
        match fixture.sim.block_on(worker.members()) {
            Ok(Ok(members)) => Ok(members),
            other => Err(Found::new(Property::Members, format!("the members cannot be listed: {other:?}"))),
        }
    }

    fn forget_unwell(&mut self, fixture: &mut Fixture, members: &[Compute]) -> Result<(), Found> {
        let list = self.list(fixture)?;
        let live = |client: ComputeId| {
            list.iter().any(|member| member.client == client && member.standing == Standing::Live)
        };
        let last = |compute: &Compute| {
            let mut same = members.iter().filter(|other| other.fabric.client() == compute.fabric.client());
            same.all(|other| other.fabric.number() <= compute.fabric.number())
        };
        let epoch = fixture.sim.volumes().epoch();
        self.well.retain(|compute| {
            let client = compute.fabric.client();
            let fenced = client == self.inspector.fabric.client();
            // An identity of an older epoch has ended, although it may not know.
            let old = compute.fabric.table().epoch() < epoch;
            let dead = fixture.sim.is_dead(compute.fabric.number()) || compute.shared.is_terminated();
            !dead && !old && !fenced && last(compute) && live(client)
        });
        Ok(())
    }

    fn recover(&self, fixture: &mut Fixture) -> Result<(), Found> {
        let well: BTreeSet<ComputeId> = self.well.iter().map(|compute| compute.fabric.client()).collect();
        let others = self.list(fixture)?.into_iter().map(|member| member.client);
        let own = self.inspector.fabric.client();
        if others.into_iter().all(|client| client == own || well.contains(&client)) {
            return Ok(());
        }
        let worker = self.inspector.worker();
        match fixture.sim.block_on(worker.recover_all(|client| well.contains(&client), PATIENCE)) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Found::new(Property::Recovery, error.to_string())),
            Err(stuck) => Err(Found::new(Property::Recovery, stuck.to_string())),
        }
    }

    /// Checks that only the healthy compute servers and the inspector are members, and that only their ids
    /// own anything on any server.
    fn expect_alone(&self, fixture: &mut Fixture) -> Result<(), Found> {
        let here: BTreeSet<ComputeId> = self.everyone().map(|compute| compute.fabric.client()).collect();
        let list = self.list(fixture)?;
        if list.iter().any(|member| !here.contains(&member.client) || member.standing != Standing::Live)
            || list.len() != here.len()
        {
            return Err(Found::new(
                Property::Members,
                format!("the members are {list:?}, but only {here:?} should be left"),
            ));
        }
        let geometry = self.inspector.shared.geometry();
        for server in 0..fixture.scenario.servers {
            for id in (1..=geometry.member_capacity as u16).map(ComputeId) {
                let word = fixture.sim.memory(server).load_u64(Space::Host, geometry.client_entry(id));
                let word =
                    ClientWord::from_bits(word).unwrap_or(ClientWord { redo_area: Some(0), fenced: true });
                if word.fenced {
                    return Err(Found::new(
                        Property::Members,
                        format!("id {id} is still fenced on server {server}"),
                    ));
                }
                if word.redo_area.is_some() && !here.contains(&id) {
                    return Err(Found::new(
                        Property::Redo,
                        format!("id {id} still has a redo area on server {server}"),
                    ));
                }
            }
        }
        Ok(())
    }
}
