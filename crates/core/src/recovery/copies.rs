//! Makes the primary of a volume equal to its backup, as far as dead members could make them differ (rules X2
//! to X4 and X6, `docs/REPLICATION.md`).
//!
//! A client changes the backup first, waits, and then changes the primary and releases the lane there (W1).
//! So the backup is ahead of the primary by what dead members did under the lanes that they still hold, and
//! by what they did in their own spans and redo slots. **The backup wins**: that is what a failover in the
//! middle of this recovery would do. So it makes no difference when a host is lost meanwhile.
//!
//! The steps, for all volumes that have a backup:
//!
//! 1. **Records.** The primary gets every record that it lacks. That includes records that the member had
//!    already cleared on the backup: clearing overwrites the first word alone, so the rest tells what the
//!    record was. From now on the primary by itself can be recovered, whatever happens to the backup.
//! 2. **Spans.** The primary gets the nodes that the member made and that no client can reach there.
//! 3. **Pieces.** Every change of several lines is in a record, so its bytes are written to both copies.
//! 4. **Lanes.** What is left differs by single lines, under the lanes that the members hold: they are
//!    copied.
//! 5. **Root words**, by CAS.
//!
//! Then both copies are equal, and the records are replayed on both together: nothing is judged before that
//! (X6). Another recoverer can repeat every step.

use super::Recoverer;
use crate::error::Error;
use crate::node::mark::{is_attached, mark_linked, mark_pending};
use crate::node::{Format, Header, LINE, get_u64};
use crate::redo::{Record, RecordKind};
use crate::tree::TreeState;
use sherman_fabric::control::TreeInfo;
use sherman_fabric::{ComputeId, Endpoint, GlobalAddress, Reach, Role, Space};
use sherman_layout::{ChunkEntry, ClientWord, LaneWidth};
use std::collections::BTreeSet;

/// The images of one place at both copies.
pub(super) struct Pair {
    offset: u64,
    pub(super) primary: Vec<u8>,
    pub(super) backup: Vec<u8>,
}

impl Pair {
    /// The numbers of the lines that differ.
    fn lines(&self) -> impl Iterator<Item = usize> + '_ {
        let lines = self.primary.chunks(LINE).zip(self.backup.chunks(LINE)).enumerate();
        lines.filter(|(_, (primary, backup))| primary != backup).map(|(line, _)| line)
    }
}

/// The record that both copies of a slot call for, and whether the primary lacks it.
pub(super) fn record_of(primary: &[u8], backup: &[u8], owner: ComputeId) -> Option<(Record, bool)> {
    let ours = |slot: &[u8]| Record::decode(slot).filter(|record| record.owner == owner);
    match (ours(primary), ours(backup)) {
        (Some(record), _) => Some((record, false)),
        (None, Some(record)) => Some((record, true)),
        // The member cleared it on the backup. If the primary's slot never held it, the primary's list of
        // that change was not even begun.
        (None, None) => {
            let record = Record::revive(backup, owner)?;
            let len = record.encode().len();
            (primary[8..len] != backup[8..len]).then_some((record, true))
        }
    }
}

/// Whether the primary gets the records that it lacks.
fn copies_records() -> bool {
    seam!(recovery::copies_records());
    true
}

impl<E: Endpoint> Recoverer<'_, E> {
    /// See the module. Does nothing where there is one copy.
    pub(super) async fn level(&mut self) -> Result<(), Error> {
        seam!(recovery::level());
        let going = self.going();
        let compute = &self.op.worker.compute;
        let volumes: Vec<u16> =
            (0..self.op.endpoint().servers()).filter(|&volume| compute.has_backup(volume)).collect();
        if going.is_empty() || volumes.is_empty() {
            return Ok(());
        }
        let (mut records, mut elsewhere) = (Vec::new(), Vec::new());
        for volume in 0..self.op.endpoint().servers() {
            for &dead in &going {
                if volumes.contains(&volume) {
                    records.extend(self.level_records(volume, dead).await?);
                } else {
                    elsewhere.extend(self.records_of(volume, dead).await?);
                }
            }
        }
        let made: BTreeSet<GlobalAddress> = records
            .iter()
            .filter(|record| record.kind == RecordKind::Split)
            .map(|record| record.made)
            .collect();
        for &volume in &volumes {
            for &dead in &going {
                self.level_spans(volume, dead, &made).await?;
            }
        }
        records.sort_by_key(|record| record.kind != RecordKind::Image);
        for record in &records {
            self.level_pieces(record).await?;
        }
        for &volume in &volumes {
            self.level_lanes(volume, &going).await?;
        }
        // A root word may lie in another volume than the record that tells of its change.
        for record in records.iter().chain(&elsewhere) {
            self.level_root(record).await?;
        }
        Ok(())
    }

    /// Reads ranges of one copy.
    async fn read_copy(
        &mut self,
        role: Role,
        volume: u16,
        stretches: &[(u64, u32)],
    ) -> Result<Vec<Vec<u8>>, Error> {
        self.reach = Reach::Only(role);
        let read = self.read_all(volume, Space::Host, stretches).await;
        self.reach = Reach::All;
        read
    }

    /// Reads ranges of both copies.
    pub(super) async fn read_pairs(
        &mut self,
        volume: u16,
        stretches: &[(u64, u32)],
    ) -> Result<Vec<Pair>, Error> {
        // The primary first: what is not linked there can be reached by nobody who would change the backup.
        let primary = self.read_copy(Role::Primary, volume, stretches).await?;
        let backup = self.read_copy(Role::Backup, volume, stretches).await?;
        let pairs = stretches.iter().zip(primary.into_iter().zip(backup));
        Ok(pairs.map(|(&(offset, _), (primary, backup))| Pair { offset, primary, backup }).collect())
    }

    /// Writes ranges of the primary alone, in order.
    async fn write_primary(&mut self, volume: u16, writes: &[(u64, &[u8])]) -> Result<(), Error> {
        let mut list = self.op.endpoint().list(volume);
        list.set_reach(Reach::Only(Role::Primary));
        let most = self.op.endpoint().caps().max_transfer as usize;
        for (offset, bytes) in writes {
            for (piece, at) in bytes.chunks(most).zip((0..).step_by(most)) {
                list.write(Space::Host, *offset + at, piece);
            }
        }
        self.execute(list).await
    }

    /// Gives the primary the records that it lacks (X2). Returns all records of the member on this volume.
    async fn level_records(&mut self, volume: u16, dead: ComputeId) -> Result<Vec<Record>, Error> {
        let slots = self.slots_of(volume, dead).await?;
        let mut records = Vec::new();
        for Pair { offset, primary, backup } in self.read_pairs(volume, &slots).await? {
            let Some((record, lacks)) = record_of(&primary, &backup, dead) else {
                // The member died while it wrote a record: no record is there, but the bytes differ.
                if primary != backup {
                    self.write_primary(volume, &[(offset, &backup)]).await?;
                }
                continue;
            };
            if lacks && copies_records() {
                self.write_primary(volume, &[(offset, &record.encode())]).await?;
            }
            records.push(record);
        }
        Ok(records)
    }

    /// The redo slots of the member on a volume.
    async fn slots_of(&mut self, volume: u16, dead: ComputeId) -> Result<Vec<(u64, u32)>, Error> {
        let geometry = *self.op.worker.compute.geometry_of(volume);
        let word = self.read_copy(Role::Primary, volume, &[(geometry.client_entry(dead), 8)]).await?;
        let word = word.first().and_then(|word| ClientWord::from_bits(get_u64(word, 0)));
        let area = word.and_then(|word| word.redo_area);
        Ok(area.map_or_else(Vec::new, |area| geometry.redo_stretches(area)))
    }

    /// The records of the member on a volume that has one copy.
    async fn records_of(&mut self, volume: u16, dead: ComputeId) -> Result<Vec<Record>, Error> {
        let slots = self.slots_of(volume, dead).await?;
        let slots = self.read_copy(Role::Primary, volume, &slots).await?;
        Ok(slots.iter().filter_map(|slot| Record::decode(slot)).filter(|it| it.owner == dead).collect())
    }

    /// Gives the primary the nodes that the member made and that nobody can reach there. A sibling whose
    /// split happened on the backup comes as a pending node: the primary's own record of the split links or
    /// frees it.
    async fn level_spans(
        &mut self,
        volume: u16,
        dead: ComputeId,
        made: &BTreeSet<GlobalAddress>,
    ) -> Result<(), Error> {
        let mut from = 0;
        loop {
            let spans = self.spans_of(dead, volume, from).await?;
            let Some(last) = spans.last() else { return Ok(()) };
            from = last.offset + last.bytes;
            for span in &spans {
                let node = span.class.node_bytes;
                let places: Vec<(u64, u32)> = (span.offset..span.offset + span.bytes)
                    .step_by(node as usize)
                    .map(|offset| (offset, node))
                    .collect();
                for pair in self.read_pairs(volume, &places).await? {
                    self.level_made(volume, dead, pair, made).await?;
                }
            }
        }
    }

    async fn level_made(
        &mut self,
        volume: u16,
        dead: ComputeId,
        pair: Pair,
        made: &BTreeSet<GlobalAddress>,
    ) -> Result<(), Error> {
        let Pair { offset, primary, mut backup } = pair;
        let is_linked = |header: &Header| !header.flags.free && !header.flags.pending;
        let (there, ahead) = (Header::decode(&primary), Header::decode(&backup));
        if primary == backup || there.as_ref().is_some_and(is_linked) {
            return Ok(());
        }
        if let Some(header) = ahead.filter(is_linked) {
            // Only a split writes a sibling and links it in one list. All other nodes were whole on both
            // copies before any copy linked them.
            let same = there.is_some_and(|there| there.flags.pending && there.version == header.version);
            let address = GlobalAddress::new(volume, offset);
            let torn = same && self.differs_beyond_marks(&primary, &backup);
            if !made.contains(&address) || same && !torn {
                return Ok(());
            }
            mark_pending(&mut backup, dead);
        }
        let (header, rest) = backup.split_at(LINE);
        self.write_primary(volume, &[(offset + LINE as u64, rest), (offset, header)]).await
    }

    /// Whether a pending node at the primary is not the node that the backup has linked, apart from marks.
    fn differs_beyond_marks(&self, primary: &[u8], backup: &[u8]) -> bool {
        let mut linked = primary.to_vec();
        let _ = mark_linked(&mut linked);
        linked != backup
    }

    /// Writes the pieces of a record to both copies, if its change is to happen.
    async fn level_pieces(&mut self, record: &Record) -> Result<(), Error> {
        let happens = match record.kind {
            RecordKind::Image | RecordKind::Merge => true,
            RecordKind::Split if !record.pieces.is_empty() => {
                let info = TreeInfo {
                    id: record.tree,
                    name: String::new(),
                    spec: record.spec,
                    types: None,
                    root_word: GlobalAddress::NULL,
                };
                let invariant = "I25: a record has the shape of its tree";
                let tree = TreeState::new(info, 0, false)
                    .map_err(|_| Error::Corrupt { address: record.node, invariant })?;
                self.made_is_whole(record, &tree).await?.unwrap_or(true)
            }
            _ => false,
        };
        if happens { self.write_pieces(record).await } else { Ok(()) }
    }

    /// Copies the lines that differ, of all nodes under the lanes that dead members hold at the primary (X3).
    async fn level_lanes(&mut self, volume: u16, going: &[ComputeId]) -> Result<(), Error> {
        let lanes = self.lanes_held(volume, going).await?;
        if lanes.is_empty() {
            return Ok(());
        }
        let geometry = *self.op.worker.compute.geometry_of(volume);
        let table = self
            .read_table(volume, Space::Host, geometry.chunk_entry(0), 8 * u64::from(geometry.chunks))
            .await?;
        let mut places: Vec<(u64, u32)> = Vec::new();
        for (entry, index) in table.chunks_exact(8).zip(0_u32..) {
            let Some(ChunkEntry::Nodes { class }) = ChunkEntry::from_bits(get_u64(entry, 0)) else {
                continue;
            };
            // The content of a block does not change, and no lane protects its marks: its entry and its
            // record tell which it should have.
            if class.is_block() {
                continue;
            }
            for number in 0..geometry.spans_in_chunk(class.node_bytes) {
                let (offset, bytes) = geometry.span_range(index, class.node_bytes, number);
                let nodes = (offset..offset + bytes).step_by(class.node_bytes as usize);
                let under = |at: &u64| lanes.contains(&geometry.lane_of(GlobalAddress::new(volume, *at)));
                places.extend(nodes.filter(under).map(|at| (at, class.node_bytes)));
            }
        }
        for pair in self.read_pairs(volume, &places).await? {
            let (Some(there), Some(ahead)) = (Header::decode(&pair.primary), Header::decode(&pair.backup))
            else {
                continue;
            };
            // A free place belongs to its span. A node that is free on the backup is freed by the record of
            // the change that freed it.
            if there.flags.free || ahead.flags.free {
                continue;
            }
            for line in pair.lines() {
                let range = line * LINE..((line + 1) * LINE).min(pair.backup.len());
                // The maker of a pending node writes what is not attached yet, without the lane.
                let hashed = there.format == Format::LineHashed.number();
                let attached = line > 0 && hashed && is_attached(&pair.primary[range.clone()]);
                if there.flags.pending && !attached {
                    continue;
                }
                let at = pair.offset + range.start as u64;
                self.write_primary(volume, &[(at, &pair.backup[range])]).await?;
            }
        }
        Ok(())
    }

    /// The lanes that dead members hold at the primary of a volume.
    async fn lanes_held(&mut self, volume: u16, going: &[ComputeId]) -> Result<BTreeSet<u32>, Error> {
        let lock = self.op.worker.compute.geometry_of(volume).lock;
        let bytes = u64::from(lock.count) * lock.width.bytes();
        let table = self.read_table(volume, lock.space, lock.offset, bytes).await?;
        let holder = |lane: &[u8]| match lock.width {
            LaneWidth::Bits16 => u64::from(crate::node::get_u16(lane, 0)),
            LaneWidth::Bits64 => get_u64(lane, 0),
        };
        let lanes = table.chunks_exact(lock.width.bytes() as usize).zip(0_u32..);
        let held = lanes.filter(|(lane, _)| going.iter().any(|dead| u64::from(dead.0) == holder(lane)));
        Ok(held.map(|(_, number)| number).collect())
    }

    /// Changes the primary's root word as the backup's was changed (X4).
    async fn level_root(&mut self, record: &Record) -> Result<(), Error> {
        seam!(recovery::level_root());
        let words = match record.kind {
            RecordKind::Grow | RecordKind::Replace | RecordKind::Load | RecordKind::Drop => record.root,
            RecordKind::Image | RecordKind::Split | RecordKind::Merge | RecordKind::Block => return Ok(()),
        };
        let Some(at) = self.root_place(record).await? else { return Ok(()) };
        // Its volume may have no backup.
        if !self.op.worker.compute.has_backup(at.server()) {
            return Ok(());
        }
        let word = self.read_copy(Role::Backup, at.server(), &[(at.offset(), 8)]).await?;
        if words.0 == words.1 || word.first().map(|word| get_u64(word, 0)) != Some(words.1) {
            return Ok(());
        }
        let mut list = self.op.endpoint().list(at.server());
        list.set_reach(Reach::Only(Role::Primary));
        list.cas(Space::Host, at.offset(), words.0, words.1);
        self.execute(list).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman_fabric::control::TreeSpec;

    const OWNER: ComputeId = ComputeId(3);

    fn record(version: u16) -> Record {
        let spec = TreeSpec { format: 1, key_len: 8, value_len: 8, leaf_bytes: 256, internal_bytes: 256 };
        let info = TreeInfo { id: 4, name: String::new(), spec, types: None, root_word: GlobalAddress::NULL };
        let node = GlobalAddress::new(0, 4096);
        let mut record = Record::about(RecordKind::Image, OWNER, &info, node, 0, version);
        record.pieces = vec![(64, vec![7; 64]), (0, vec![8; 24])];
        record
    }

    fn slot(record: &Record, cleared: bool) -> Vec<u8> {
        let mut slot = record.encode();
        slot.resize(512, 0);
        if cleared {
            slot[..8].fill(0);
        }
        slot
    }

    #[test]
    fn the_primary_gets_every_record_that_it_lacks() {
        let (old, new) = (record(4), record(5));
        let empty = vec![0; 512];
        let of = |primary: &[u8], backup: &[u8]| record_of(primary, backup, OWNER);
        // Not begun anywhere, begun on the backup, begun on both.
        assert_eq!(of(&empty, &empty), None);
        assert_eq!(of(&empty, &slot(&new, false)), Some((new.clone(), true)));
        assert_eq!(of(&slot(&new, false), &slot(&new, false)), Some((new.clone(), false)));
        // Done on the backup: not begun at the primary, begun there, done there.
        assert_eq!(of(&empty, &slot(&new, true)), Some((new.clone(), true)));
        assert_eq!(of(&slot(&old, true), &slot(&new, true)), Some((new.clone(), true)));
        assert_eq!(of(&slot(&new, false), &slot(&new, true)), Some((new.clone(), false)));
        assert_eq!(of(&slot(&new, true), &slot(&new, true)), None);
        // The record of another client in the same place.
        assert_eq!(record_of(&empty, &slot(&new, false), ComputeId(4)), None);
        assert_eq!(record_of(&empty, &slot(&new, true), ComputeId(4)), None);
        // Cut in the middle of the primary's record.
        let mut cut = slot(&old, true);
        cut[64..128].copy_from_slice(&slot(&new, false)[64..128]);
        assert_eq!(of(&cut, &slot(&new, true)), Some((new, true)));
    }
}
