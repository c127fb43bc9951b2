//! The table of volumes.
//!
//! The control state alone changes it, and every change has an epoch of its own. A client takes the table
//! when it joins, and uses exactly that table until its identity ends (rule E).
//!
//! Its bytes, little-endian: epoch (8), number of copies (2), number of volumes (2); each copy as host (2)
//! and incarnation (4); each volume as primary, backup and joining copy (2 each, `0xffff` for none) and flags
//! (1: open).

use sherman_fabric::Role;

/// The most copies, and the most volumes, of a table.
pub const MOST: usize = 4096;
/// The place of a copy that a volume does not have.
const NONE: u16 = u16::MAX;
const HEAD: usize = 12;
const COPY: usize = 6;
const VOLUME: usize = 7;
const OPEN: u8 = 1;

/// Where a copy lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CopySite {
    /// The host: copies of one host live and die together.
    pub host: u16,
    /// The host's incarnation. A connection to another incarnation is refused (I2).
    pub incarnation: u32,
}

/// The copies of one volume, each by its number in the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VolumeEntry {
    /// The copy that clients read, and whose lanes they take. `None` if no complete copy is left.
    pub primary: Option<u16>,
    /// The complete copy that clients write first.
    pub backup: Option<u16>,
    /// The copy that is being made.
    pub joining: Option<u16>,
    /// Whether clients may use the volume. Only recovery touches a closed one (E5).
    pub open: bool,
}

impl VolumeEntry {
    /// The copy that plays this part.
    pub const fn copy(&self, role: Role) -> Option<u16> {
        match role {
            Role::Primary => self.primary,
            Role::Backup => self.backup,
            Role::Joining => self.joining,
        }
    }

    /// The part that a copy plays.
    pub fn role(&self, copy: u16) -> Option<Role> {
        Role::ALL.into_iter().find(|&role| self.copy(role) == Some(copy))
    }

    /// All copies with their parts.
    pub fn copies(&self) -> impl Iterator<Item = (Role, u16)> + '_ {
        Role::ALL.into_iter().filter_map(|role| Some((role, self.copy(role)?)))
    }
}

sherman_fabric::errors! {
    /// Why bytes are no table.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum TableError {
        /// The bytes end too early, or go on after the table's end.
        Length => "a table of volumes with missing or extra bytes",
        /// More copies or volumes than a table may have.
        TooMany => "a table with more than 4096 copies or volumes",
        /// A volume names a copy that does not exist, or that another place names too.
        BadCopy {
            /// The volume.
            volume: u16,
        } => "volume {volume} names a copy that does not exist or that belongs elsewhere",
        /// A volume has another copy, or is open, without a primary.
        NoPrimary {
            /// The volume.
            volume: u16,
        } => "volume {volume} has a backup or is open, but has no primary",
        /// Two copies of one volume are on one host.
        SameHost {
            /// The volume.
            volume: u16,
        } => "volume {volume} has two copies on one host",
        /// Unknown flags.
        Flags {
            /// The volume.
            volume: u16,
        } => "volume {volume} has unknown flags",
    }
}

/// For every volume its copies. See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeTable {
    epoch: u64,
    copies: Vec<CopySite>,
    volumes: Vec<VolumeEntry>,
}

impl VolumeTable {
    /// A table, if it is a legal one.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn new(epoch: u64, copies: Vec<CopySite>, volumes: Vec<VolumeEntry>) -> Result<Self, TableError> {
        let table = Self { epoch, copies, volumes };
        table.check()?;
        Ok(table)
    }

    /// The table of a cluster without replication: volume `i` is copy `i`, on host `i`.
    pub fn single(volumes: u16) -> Self {
        let entry = |copy| VolumeEntry { primary: Some(copy), open: true, ..VolumeEntry::default() };
        let copies = (0..volumes).map(|host| CopySite { host, incarnation: 0 }).collect();
        Self { epoch: 0, copies, volumes: (0..volumes).map(entry).collect() }
    }

    fn check(&self) -> Result<(), TableError> {
        if self.copies.len() > MOST || self.volumes.len() > MOST {
            return Err(TableError::TooMany);
        }
        let mut named = vec![false; self.copies.len()];
        for (volume, entry) in (0..).zip(&self.volumes) {
            let mut hosts = Vec::new();
            for (_, copy) in entry.copies() {
                match named.get_mut(usize::from(copy)) {
                    Some(taken @ false) => *taken = true,
                    _ => return Err(TableError::BadCopy { volume }),
                }
                let host = self.copies[usize::from(copy)].host;
                if hosts.contains(&host) {
                    return Err(TableError::SameHost { volume });
                }
                hosts.push(host);
            }
            if entry.primary.is_none() && (entry.open || !hosts.is_empty()) {
                return Err(TableError::NoPrimary { volume });
            }
        }
        Ok(())
    }

    /// Its epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Where each copy lies.
    pub fn sites(&self) -> &[CopySite] {
        &self.copies
    }

    /// The copies of every volume.
    pub fn volumes(&self) -> &[VolumeEntry] {
        &self.volumes
    }

    /// The copies of one volume.
    pub fn volume(&self, volume: u16) -> Option<&VolumeEntry> {
        self.volumes.get(usize::from(volume))
    }

    /// The volume of a copy, and the part that the copy plays. `None` for a copy that no volume names.
    pub fn of_copy(&self, copy: u16) -> Option<(u16, Role)> {
        (0..).zip(&self.volumes).find_map(|(volume, entry)| Some((volume, entry.role(copy)?)))
    }

    /// Whether some volume has more than one copy.
    pub fn is_replicated(&self) -> bool {
        self.volumes.iter().any(|entry| entry.copies().count() > 1)
    }

    /// Whether every volume is open that has a copy. Nobody waits for the others.
    pub fn all_open(&self) -> bool {
        self.volumes.iter().all(|entry| entry.open || entry.primary.is_none())
    }

    /// The volumes that have lost all their copies.
    pub fn lost(&self) -> impl Iterator<Item = u16> + '_ {
        let volumes = (0..).zip(&self.volumes).filter(|(_, entry)| entry.primary.is_none());
        volumes.map(|(volume, _)| volume)
    }

    /// The table as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + COPY * self.copies.len() + VOLUME * self.volumes.len());
        out.extend(self.epoch.to_le_bytes());
        out.extend((self.copies.len() as u16).to_le_bytes());
        out.extend((self.volumes.len() as u16).to_le_bytes());
        for site in &self.copies {
            out.extend(site.host.to_le_bytes());
            out.extend(site.incarnation.to_le_bytes());
        }
        for entry in &self.volumes {
            for role in Role::ALL {
                out.extend(entry.copy(role).unwrap_or(NONE).to_le_bytes());
            }
            out.push(if entry.open { OPEN } else { 0 });
        }
        out
    }

    /// The table in `bytes`.
    ///
    /// # Errors
    /// If they are not exactly one legal table.
    pub fn decode(bytes: &[u8]) -> Result<Self, TableError> {
        let (head, rest) = bytes.split_at_checked(HEAD).ok_or(TableError::Length)?;
        let (copies, volumes) = (usize::from(u16_at(head, 8)), usize::from(u16_at(head, 10)));
        if copies > MOST || volumes > MOST {
            return Err(TableError::TooMany);
        }
        let (sites, entries) = rest.split_at_checked(COPY * copies).ok_or(TableError::Length)?;
        if entries.len() != VOLUME * volumes {
            return Err(TableError::Length);
        }
        let site = |bytes: &[u8]| CopySite {
            host: u16_at(bytes, 0),
            incarnation: u32::from(u16_at(bytes, 2)) | u32::from(u16_at(bytes, 4)) << 16,
        };
        let copy = |bytes: &[u8], at| Some(u16_at(bytes, at)).filter(|&copy| copy != NONE);
        let mut found = Vec::with_capacity(volumes);
        for (volume, bytes) in (0..).zip(entries.chunks_exact(VOLUME)) {
            if bytes[6] & !OPEN != 0 {
                return Err(TableError::Flags { volume });
            }
            found.push(VolumeEntry {
                primary: copy(bytes, 0),
                backup: copy(bytes, 2),
                joining: copy(bytes, 4),
                open: bytes[6] == OPEN,
            });
        }
        let epoch = (0..8).rev().fold(0, |word, at| word << 8 | u64::from(head[at]));
        Self::new(epoch, sites.chunks_exact(COPY).map(site).collect(), found)
    }
}

/// Two bytes as a number. The caller has checked the length.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from(bytes[at]) | u16::from(bytes[at + 1]) << 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(host: u16) -> CopySite {
        CopySite { host, incarnation: 0x1234_5678 + u32::from(host) }
    }

    fn entry(primary: u16, backup: Option<u16>, joining: Option<u16>) -> VolumeEntry {
        VolumeEntry { primary: Some(primary), backup, joining, open: true }
    }

    fn table() -> VolumeTable {
        let volumes = vec![entry(1, Some(0), Some(4)), VolumeEntry::default(), entry(2, None, None)];
        VolumeTable::new(7 << 40, (0..5).map(site).collect(), volumes).expect("a legal table")
    }

    #[test]
    fn a_table_survives_its_bytes() {
        for table in [table(), VolumeTable::single(3), VolumeTable::default()] {
            assert_eq!(VolumeTable::decode(&table.encode()), Ok(table));
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_gives_an_error_or_a_legal_table() {
        let bytes = table().encode();
        for len in 0..bytes.len() {
            assert_eq!(VolumeTable::decode(&bytes[..len]), Err(TableError::Length));
        }
        for at in 0..bytes.len() {
            for flip in 1..=255 {
                let mut other = bytes.clone();
                other[at] ^= flip;
                if let Ok(other) = VolumeTable::decode(&other) {
                    assert_eq!(other.check(), Ok(()));
                }
            }
        }
        let mut long = bytes;
        long.push(0);
        assert_eq!(VolumeTable::decode(&long), Err(TableError::Length));
        assert_eq!(VolumeTable::decode(&[0xff; 12]), Err(TableError::TooMany));
    }

    #[test]
    fn illegal_tables_are_refused() {
        let new = |volumes| VolumeTable::new(0, (0..3).map(site).collect(), volumes);
        assert_eq!(new(vec![entry(0, Some(0), None)]), Err(TableError::BadCopy { volume: 0 }));
        assert_eq!(new(vec![entry(0, Some(3), None)]), Err(TableError::BadCopy { volume: 0 }));
        let twice = vec![entry(0, Some(1), None), entry(2, Some(1), None)];
        assert_eq!(new(twice), Err(TableError::BadCopy { volume: 1 }));
        let orphan = VolumeEntry { backup: Some(1), ..VolumeEntry::default() };
        assert_eq!(new(vec![orphan]), Err(TableError::NoPrimary { volume: 0 }));
        let beside = VolumeTable::new(0, vec![site(0), site(0)], vec![entry(0, Some(1), None)]);
        assert_eq!(beside, Err(TableError::SameHost { volume: 0 }));
        assert_eq!(new(vec![VolumeEntry::default(); MOST + 1]), Err(TableError::TooMany));
    }

    #[test]
    fn a_copy_knows_its_volume() {
        let table = table();
        assert_eq!(table.of_copy(0), Some((0, Role::Backup)));
        assert_eq!(table.of_copy(2), Some((2, Role::Primary)));
        assert_eq!(table.of_copy(3), None);
        assert!(table.is_replicated() && table.all_open() && table.lost().eq([1]));
        assert!(!VolumeTable::single(2).is_replicated() && VolumeTable::single(2).all_open());
    }
}
