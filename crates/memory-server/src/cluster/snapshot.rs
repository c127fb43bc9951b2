//! The whole state as bytes.
//!
//! ```text
//!  | magic "SHRMGRP\0" | cluster, now, began, base, former_until  u64 each |
//!  | settings | table | control state |                                  each: length u64, bytes
//!  | registered  u16 | hosts  u16 | each: number u16, up u8, leaving u8, keeps u8, boot u64,
//!    memory u64, length u64, address |
//!  | holders  u32 | each: id u16, epoch u64, until u64 |
//!  | closed for makings  u8 | when  u64 | makings  u16 | each: volume u16, copy u16, phase u8, takes the
//!    place of a copy u8, its number u16 |
//!  | swaps  u16 | each: volume u16 | no planned pause until  u64 | last change of the table  u64 |
//!  | spreading  u8 | always  u8 |
//!  | successions  u32 | each: former id u16, its incarnation u32, successor u16, its incarnation u32 |
//!  | creations  u16 | each: client u16, its incarnation u32, number u64, tree u32, root word u64 |
//!  | forgotten creations  u32 | each: client u16, its incarnation u32, number u64 |
//! ```

use super::bytes::{Put, Reader};
use super::creations::Creations;
use super::hosts::{Host, Hosts};
use super::identities::{Holder, Identities};
use super::makings::{Making, Makings, Phase};
use super::memory::ControlMemory;
use super::successions::Successions;
use super::{Clock, ClusterSettings, ClusterState};
use crate::Control;
use sherman_fabric::ComputeId;
use sherman_fabric::group::HostInfo;
use sherman_layout::{ControlGeometry, MemberState};
use sherman_replica::VolumeTable;
use std::collections::BTreeMap;
use std::sync::Arc;

const MAGIC: u64 = u64::from_le_bytes(*b"SHRMGRP\0");

impl ClusterState {
    /// The whole state as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let Clock { now, began, base } = self.clock;
        let words = [MAGIC, self.cluster(), now, began, base, self.identities.former_until()];
        words.iter().for_each(|&word| out.put_u64(word));
        out.put_block(&self.settings.encode());
        out.put_block(&self.table.encode());
        out.put_block(&self.control.snapshot(&self.memory));
        out.put_u16(self.hosts.registered());
        out.put_u16(self.hosts.all().len() as u16);
        for Host { info, boot, keeps } in self.hosts.all() {
            out.put_u16(info.number);
            out.put_u8(info.up.into());
            out.put_u8(info.leaving.into());
            out.put_u8((*keeps).into());
            out.put_u64(*boot);
            out.put_u64(info.memory_bytes);
            out.put_block(info.address.as_bytes());
        }
        out.put_u32(self.identities.holders().len() as u32);
        for (client, Holder { epoch, until }) in self.identities.holders() {
            out.put_u16(client.0);
            out.put_u64(*epoch);
            out.put_u64(*until);
        }
        let Makings { list, closed_at, changed_at, swaps, rest_until, spreading, always } = &self.makings;
        out.put_u8(closed_at.is_some().into());
        out.put_u64(closed_at.unwrap_or(0));
        out.put_u16(list.len() as u16);
        for Making { volume, copy, phase, replaces } in list {
            out.put_u16(*volume);
            out.put_u16(*copy);
            out.put_u8(*phase as u8);
            out.put_u8(replaces.is_some().into());
            out.put_u16(replaces.unwrap_or(0));
        }
        out.put_u16(swaps.len() as u16);
        swaps.iter().for_each(|volume| out.put_u16(*volume));
        [rest_until, changed_at].iter().for_each(|&&time| out.put_u64(time));
        [*spreading, *always].iter().for_each(|flag| out.put_u8((*flag).into()));
        self.successions.write(&mut out);
        self.creations.write(&mut out);
        out
    }

    /// The state in a snapshot; `None` if the bytes are not exactly that of a legal state.
    pub fn restore(snapshot: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(snapshot);
        let [magic, cluster, now, began, base, former_until] = reader.several(Reader::u64)?;
        if magic != MAGIC {
            return None;
        }
        let settings = ClusterSettings::decode(reader.block()?)?;
        let geometry = ControlGeometry::plan(&settings.check(cluster).ok()?);
        let table = VolumeTable::decode(reader.block()?).ok()?;
        let memory = ControlMemory::new(settings.control_bytes());
        let mut control = Control::restore(&memory, reader.block()?)?;
        control.avoid(table.lost().collect());
        let hosts = read_hosts(&mut reader)?;
        let identities = read_identities(&mut reader, former_until)?;
        let makings = read_makings(&mut reader)?;
        let successions = Successions::read(&mut reader)?;
        let creations = Creations::read(&mut reader)?;
        reader.end()?;
        if control.cluster() != cluster || *control.geometry() != geometry || base > now {
            return None;
        }
        let clock = Clock { now, began, base };
        let table = Arc::new(table);
        let state = Self {
            settings,
            control,
            memory,
            clock,
            hosts,
            table,
            identities,
            makings,
            successions,
            creations,
            reaped: Vec::new(),
        };
        state.is_legal().then_some(state)
    }

    /// Whether the parts of the state fit together.
    fn is_legal(&self) -> bool {
        let volumes = self.table.volumes();
        let formed = self.is_formed();
        let expected = if formed { usize::from(self.settings.volumes) } else { 0 };
        // Copies on hosts that were lost long ago keep their numbers.
        let of_registered = self.table.sites().iter().all(|site| site.host < self.hosts.registered());
        let named = volumes.iter().flat_map(|entry| entry.copies()).all(|(_, copy)| self.is_present(copy));
        let epoch = self.table.epoch();
        let holders = self.identities.holders();
        let known = |id: u32| {
            let client = ComputeId(id as u16);
            let free = self.control.member(client).state == MemberState::Free;
            free || holders.contains_key(&client)
        };
        volumes.len() == expected
            && formed == (epoch > 0)
            && of_registered
            && named
            && holders.values().all(|holder| (1..=epoch).contains(&holder.epoch))
            && holders.keys().all(|&client| self.control.geometry().is_client(client))
            && (1..=self.control.geometry().member_capacity).all(known)
            && self.makings_are_legal()
            && self.successions.ids().all(|client| holders.contains_key(&client))
            && self.creations.clients().all(|client| holders.contains_key(&client))
    }
}

fn read_hosts(reader: &mut Reader<'_>) -> Option<Hosts> {
    let (registered, count) = (reader.u16()?, reader.u16()?);
    let mut hosts = Vec::new();
    for _ in 0..count {
        let (number, up, leaving) = (reader.u16()?, reader.flag()?, reader.flag()?);
        let keeps = reader.flag()?;
        let (boot, memory_bytes) = (reader.u64()?, reader.u64()?);
        let info = HostInfo {
            number,
            incarnation: u32::from(number) + 1,
            node: u64::from(number) + 1,
            address: std::str::from_utf8(reader.block()?).ok()?.to_owned(),
            up,
            voter: false,
            memory_bytes,
            leaving,
        };
        hosts.push(Host { info, boot, keeps });
    }
    Hosts::new(registered, hosts)
}

fn read_identities(reader: &mut Reader<'_>, former_until: u64) -> Option<Identities> {
    let count = reader.u32()?;
    let mut holders = BTreeMap::new();
    for _ in 0..count {
        let client = ComputeId(reader.u16()?);
        let holder = Holder { epoch: reader.u64()?, until: reader.u64()? };
        // Ids ascend, so that every state has one snapshot.
        if holders.last_key_value().is_some_and(|(last, _)| *last >= client) {
            return None;
        }
        holders.insert(client, holder);
    }
    Some(Identities::new(holders, former_until))
}

fn read_makings(reader: &mut Reader<'_>) -> Option<Makings> {
    let (closed, at) = (reader.flag()?, reader.u64()?);
    if !closed && at != 0 {
        return None;
    }
    let count = reader.u16()?;
    let mut list = Vec::new();
    for _ in 0..count {
        let (volume, copy) = (reader.u16()?, reader.u16()?);
        let phase = match reader.u8()? {
            0 => Phase::Planned,
            1 => Phase::Copied,
            2 => Phase::Settled,
            _ => return None,
        };
        let (replaces, other) = (reader.flag()?, reader.u16()?);
        if !replaces && other != 0 {
            return None;
        }
        list.push(Making { volume, copy, phase, replaces: replaces.then_some(other) });
    }
    let count = reader.u16()?;
    let swaps = (0..count).map(|_| reader.u16()).collect::<Option<_>>()?;
    let (rest_until, changed_at) = (reader.u64()?, reader.u64()?);
    let (spreading, always) = (reader.flag()?, reader.flag()?);
    let closed_at = closed.then_some(at);
    Some(Makings { list, closed_at, changed_at, swaps, rest_until, spreading, always })
}
