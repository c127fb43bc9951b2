//! Compares the copies of volumes.
//!
//! A client changes the backup first and then the primary (W1), under a lane, or in places that no other
//! client can reach. So two copies may differ at any moment. A difference that never changes, that no lane
//! protects and that is in no place that a member makes or frees is damage. A failover would show it.
//!
//! Not compared: lanes, hints of spans, and redo areas. A promotion clears lanes, sets all hints, and a redo
//! area is zeroed when it is given out (`docs/REPLICATION.md`).

use super::{Auditor, MOST_SUSPECTS, Suspect, TABLE_READ};
use crate::error::Error;
use crate::node::{Header, LINE, get_u64};
use sherman_fabric::{ComputeId, Endpoint, GlobalAddress, Reach, Role, Space};
use sherman_layout::ChunkEntry;
use sherman_layout::geometry::SPAN_ENTRY_BYTES;

/// Pieces of each copy that are read at the same time.
const PIECES: usize = 8;

/// A line that differs between the copies of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) volume: u16,
    pub(super) offset: u64,
    /// The place of a node that contains it; `None` in a table.
    place: Option<u64>,
    primary: Vec<u8>,
    backup: Vec<u8>,
}

impl Difference {
    /// The first byte that differs.
    pub(super) fn at(&self) -> u64 {
        let differs = self.primary.iter().zip(&self.backup).position(|(primary, backup)| primary != backup);
        self.offset + differs.unwrap_or(0) as u64
    }
}

/// What is compared: a range of the memory, and how large its nodes are, if it has nodes.
struct Part {
    offset: u64,
    bytes: u64,
    node_bytes: Option<u32>,
}

impl<E: Endpoint> Auditor<'_, E> {
    /// Adds every line that differs between the copies of a volume to the suspects.
    pub(super) async fn compare_copies(&mut self, volume: u16) -> Result<(), Error> {
        if !self.worker.compute.has_backup(volume) {
            return Ok(());
        }
        for part in self.parts(volume).await? {
            let piece = TABLE_READ.min(u64::from(self.worker.endpoint.caps().max_transfer));
            let pieces: Vec<(u64, u32)> = (part.offset..part.offset + part.bytes)
                .step_by(piece as usize)
                .map(|at| (at, piece.min(part.offset + part.bytes - at) as u32))
                .collect();
            for pieces in pieces.chunks(PIECES) {
                let primary = self.read_copy(Role::Primary, volume, pieces).await?;
                let backup = self.read_copy(Role::Backup, volume, pieces).await?;
                for ((&(at, _), primary), backup) in pieces.iter().zip(primary).zip(backup) {
                    self.compare(volume, &part, at, &primary, &backup);
                }
            }
        }
        Ok(())
    }

    /// The parts of a volume that both copies have alike: chunks of nodes, root words, and the words of the
    /// volume's CPU.
    async fn parts(&self, volume: u16) -> Result<Vec<Part>, Error> {
        let geometry = *self.worker.compute.geometry_of(volume);
        let table = |offset, bytes| Part { offset, bytes, node_bytes: None };
        let mut parts = vec![
            table(geometry.root_offset, geometry.root_table_bytes()),
            table(geometry.client_offset, geometry.client_table_bytes()),
            table(geometry.chunk_table_offset, geometry.chunk_table_bytes()),
            table(geometry.span_table_offset, geometry.span_table_bytes()),
        ];
        let (offset, bytes) = (geometry.chunk_table_offset, geometry.chunk_table_bytes());
        let chunks = self.table(volume, Space::Host, offset, bytes).await?;
        for (chunk, word) in (0..).zip(chunks.chunks_exact(8)) {
            let Some(ChunkEntry::Nodes { class }) = ChunkEntry::from_bits(get_u64(word, 0)) else { continue };
            parts.push(Part {
                offset: geometry.chunks_offset + chunk * geometry.chunk_bytes,
                bytes: geometry.chunk_bytes,
                node_bytes: geometry.allows_class(class).then_some(class.node_bytes),
            });
        }
        Ok(parts)
    }

    async fn read_copy(&self, role: Role, volume: u16, pieces: &[(u64, u32)]) -> Result<Vec<Vec<u8>>, Error> {
        let endpoint = &self.worker.endpoint;
        let (mut lists, mut reads) = (Vec::new(), Vec::new());
        for &(offset, bytes) in pieces {
            let mut list = endpoint.list(volume);
            list.set_reach(Reach::Only(role));
            reads.push(list.read(Space::Host, offset, bytes));
            lists.push(list);
        }
        let lists = self.op.execute_all(lists).await?;
        let images = lists.iter().zip(reads).map(|(list, read)| list.bytes(read).to_vec()).collect();
        lists.into_iter().for_each(|list| endpoint.recycle(list));
        Ok(images)
    }

    fn compare(&mut self, volume: u16, part: &Part, at: u64, primary: &[u8], backup: &[u8]) {
        if primary == backup {
            return;
        }
        let lines = primary.chunks(LINE).zip(backup.chunks(LINE)).enumerate();
        for (line, (primary, backup)) in lines.filter(|(_, (primary, backup))| primary != backup) {
            let offset = at + (line * LINE) as u64;
            let (primary, backup) = (primary.to_vec(), backup.to_vec());
            let place = part.node_bytes.map(|bytes| offset - (offset - part.offset) % u64::from(bytes));
            let mut difference = Difference { volume, offset, place, primary, backup };
            self.forget_hints(&mut difference);
            if difference.primary == difference.backup {
                continue;
            }
            match self.suspects.len() < MOST_SUSPECTS {
                true => self.suspects.push(Suspect::Copies(difference)),
                false => self.more += 1,
            }
        }
    }

    /// Clears the hints of spans in a line of the span table.
    fn forget_hints(&self, difference: &mut Difference) {
        let geometry = self.worker.compute.geometry_of(difference.volume);
        let spans = geometry.span_table_offset..geometry.span_table_offset + geometry.span_table_bytes();
        if !spans.contains(&difference.offset) {
            return;
        }
        let hint = (geometry.span_hint(0, 0) - geometry.span_entry(0, 0)) as usize;
        for image in [&mut difference.primary, &mut difference.backup] {
            for entry in image.chunks_exact_mut(SPAN_ENTRY_BYTES as usize) {
                entry[hint..hint + 8].fill(0);
            }
        }
    }

    /// Whether both copies still show the same difference, and no member is about to end it.
    pub(super) async fn still_differs(&self, difference: &Difference) -> Result<bool, Error> {
        let Difference { volume, offset, place, .. } = *difference;
        let pieces = [(offset, LINE as u32)];
        let primary = self.read_copy(Role::Primary, volume, &pieces).await?.concat();
        let backup = self.read_copy(Role::Backup, volume, &pieces).await?.concat();
        let mut now = Difference { primary, backup, ..difference.clone() };
        self.forget_hints(&mut now);
        if now != *difference {
            return Ok(false);
        }
        // A table has no lane of its own: growth of a tree, for example, holds that of the root.
        let Some(place) = place else { return Ok(self.audit.lanes_held == 0) };
        let address = GlobalAddress::new(volume, place);
        let holder = self.worker.lane_holder(&self.op, address).await?;
        let mut made = false;
        for role in [Role::Primary, Role::Backup] {
            let header = self.read_copy(role, volume, &[(place, LINE as u32)]).await?.concat();
            let header = Header::decode(&header);
            made |= header.is_none_or(|header| header.flags.pending && self.members.contains(&header.owner));
        }
        Ok(holder == ComputeId::NOBODY && !made)
    }
}
