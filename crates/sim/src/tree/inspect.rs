//! After a schedule in which things went wrong: an inspector joins, recovers whoever is dead, and looks at everything.
//!
//! Those that are still well are left alone: what they hold is checked against what they believe to hold, so that recovery cannot
//! tidy up after the living. In some schedules they then depart in order, and the inspector takes over all there is.

use super::check::{self, Found, Property};
use super::lab::{Compute, Lab, TREE};
use super::script::Record;
use crate::linear::Checker;
use crate::sim::Run;
use sherman_core::{ComputeServer, Error, Walk};
use sherman_fabric::control::{MemberInfo, Standing, TreeInfo};
use sherman_fabric::{ClientId, Endpoint, Memory, Request, Response, Space, call};
use sherman_memory_server::ClientWord;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Longer, in virtual time, than any recovery takes.
const PATIENCE: Duration = Duration::from_secs(1);

/// A schedule that has ended.
pub(super) struct Scene<'a> {
    /// What the tree held before.
    pub initial: &'a BTreeMap<u64, u64>,
    /// Every compute server that had a part in it, and did not leave in order.
    pub everyone: &'a [Compute],
    pub record: &'a Record,
}

impl Scene<'_> {
    /// Everything that must hold; `seen` becomes what is found of the tree. If they are to be `dismissed`, those that are well
    /// then depart.
    pub fn inspect(
        &self,
        lab: &mut Lab,
        run: &Run,
        checker: &mut Checker,
        dismissed: bool,
        seen: &mut Walk,
    ) -> Result<(), Found> {
        check::ended_well(run, self.record)?;
        let mut left = Left::settle(lab, self.everyone)?;
        let (walk, others) = self.look(lab, &left)?;
        *seen = walk;
        check::told(&lab.scenario, self.record, checker, self.initial, seen, &others)?;
        if dismissed {
            left.dismiss(lab)?;
            self.look(lab, &left)?;
        }
        Ok(())
    }

    /// Looks at memory as a whole: the tree that scenarios are about, and the others.
    fn look(&self, lab: &mut Lab, left: &Left) -> Result<(Walk, Vec<(TreeInfo, Walk)>), Found> {
        let shared: Vec<&ComputeServer> = left.everyone().map(|compute| &*compute.shared).collect();
        check::lanes(&lab.sim, &lab.scenario, &shared)?;
        check::redo(&lab.sim, &shared)?;
        let others = left.walk_others(lab)?;
        let walk = check::walk(lab, &left.inspector)?;
        let walks: Vec<&Walk> = others.iter().map(|(_, walk)| walk).chain([&walk]).collect();
        check::space(&lab.sim, lab.scenario.servers, &left.everyone().collect::<Vec<_>>(), &walks)?;
        Ok((walk, others))
    }
}

/// Who is left when all the dead are recovered.
struct Left {
    inspector: Compute,
    /// Those that are still well.
    well: Vec<Compute>,
}

impl Left {
    /// Recovers everyone of `members` that is not well. Only the last to join under an id has it.
    fn settle(lab: &mut Lab, members: &[Compute]) -> Result<Self, Found> {
        let inspector = lab.join();
        let mut left = Self { inspector, well: members.to_vec() };
        left.forget_unwell(lab, members)?;
        loop {
            left.recover(lab)?;
            let well = left.well.len();
            left.forget_unwell(lab, members)?;
            // A recovery may find that another member is dead too: its recoverer, which seemed well.
            if left.well.len() == well {
                break;
            }
        }
        left.expect_alone(lab)?;
        Ok(left)
    }

    /// Lets those that are well depart, and takes over what they have.
    fn dismiss(&mut self, lab: &mut Lab) -> Result<(), Found> {
        for compute in std::mem::take(&mut self.well) {
            let worker = compute.worker();
            let departed = lab.sim.block_on(worker.depart());
            let trouble =
                |error: &dyn std::fmt::Display| Found::new(Property::Members, format!("cannot depart: {error}"));
            match departed.map_err(|stuck| trouble(&stuck))? {
                // It finds out now that it is cut off, and stays for the inspector to recover.
                Err(_) if compute.shared.is_doomed() => {}
                outcome => outcome.map_err(|error| trouble(&error))?,
            }
        }
        self.recover(lab)?;
        self.expect_alone(lab)
    }

    /// Everyone left, the inspector last.
    fn everyone(&self) -> impl Iterator<Item = &Compute> {
        self.well.iter().chain([&self.inspector])
    }

    /// Walks the trees besides the one that scenarios are about.
    fn walk_others(&self, lab: &mut Lab) -> Result<Vec<(TreeInfo, Walk)>, Found> {
        let worker = self.inspector.worker();
        let walk_all = async {
            let listed = call(worker.endpoint(), 0, Request::ListTrees, worker.endpoint().counters()).await?;
            let Response::Trees(trees) = listed else { return Ok(Vec::new()) };
            let mut walks = Vec::new();
            for info in trees.into_iter().filter(|info| info.name != TREE) {
                let tree = worker.open_tree(&info.name).await?;
                walks.push((info, worker.op().walk(&tree).await?));
            }
            Ok::<_, Error>(walks)
        };
        match lab.sim.block_on(walk_all) {
            Ok(Ok(walks)) => Ok(walks),
            Ok(Err(error)) => Err(Found::new(Property::Walk, error.to_string())),
            Err(stuck) => Err(Found::new(Property::Walk, stuck.to_string())),
        }
    }

    fn list(&self, lab: &mut Lab) -> Result<Vec<MemberInfo>, Found> {
        let worker = self.inspector.worker();
        match lab.sim.block_on(worker.members()) {
            Ok(Ok(members)) => Ok(members),
            other => Err(Found::new(Property::Members, format!("cannot be listed: {other:?}"))),
        }
    }

    fn forget_unwell(&mut self, lab: &mut Lab, members: &[Compute]) -> Result<(), Found> {
        let list = self.list(lab)?;
        let live =
            |client: ClientId| list.iter().any(|member| member.client == client && member.standing == Standing::Live);
        let last = |compute: &Compute| {
            let mut same = members.iter().filter(|other| other.fabric.client() == compute.fabric.client());
            same.all(|other| other.fabric.number() <= compute.fabric.number())
        };
        self.well.retain(|compute| {
            let client = compute.fabric.client();
            let fenced = client == self.inspector.fabric.client();
            let dead = lab.sim.is_dead(compute.fabric.number()) || compute.shared.is_doomed();
            !dead && !fenced && last(compute) && live(client)
        });
        Ok(())
    }

    fn recover(&self, lab: &mut Lab) -> Result<(), Found> {
        let well: BTreeSet<ClientId> = self.well.iter().map(|compute| compute.fabric.client()).collect();
        let others = self.list(lab)?.into_iter().map(|member| member.client);
        let own = self.inspector.fabric.client();
        if others.into_iter().all(|client| client == own || well.contains(&client)) {
            return Ok(());
        }
        let worker = self.inspector.worker();
        match lab.sim.block_on(worker.recover_all(|client| well.contains(&client), PATIENCE)) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Found::new(Property::Recovery, error.to_string())),
            Err(stuck) => Err(Found::new(Property::Recovery, stuck.to_string())),
        }
    }

    /// Nobody but those that are well and the inspector is a member, and only their ids have anything on any server.
    fn expect_alone(&self, lab: &mut Lab) -> Result<(), Found> {
        let here: BTreeSet<ClientId> = self.everyone().map(|compute| compute.fabric.client()).collect();
        let list = self.list(lab)?;
        if list.iter().any(|member| !here.contains(&member.client) || member.standing != Standing::Live)
            || list.len() != here.len()
        {
            return Err(Found::new(Property::Members, format!("{list:?}, where only {here:?} are to be")));
        }
        let geometry = self.inspector.shared.geometry();
        for server in 0..lab.scenario.servers {
            for id in (1..=geometry.member_capacity as u16).map(ClientId) {
                let word = lab.sim.memory(server).load_u64(Space::Host, geometry.client_entry(id));
                let word = ClientWord::from_bits(word).unwrap_or(ClientWord { redo_area: Some(0), fenced: true });
                if word.fenced {
                    return Err(Found::new(Property::Members, format!("id {id} is still fenced on server {server}")));
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
