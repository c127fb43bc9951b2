//! What a host must know to go on after its process has ended: one small file, which is replaced whole.
//!
//! ```text
//! | magic "SHRMHST\n" | version u32 | length of the payload u32 | payload | checksum u64 of all before |
//! ```
//!
//! A new file gets its bytes under another name, and then the name. So a process that is killed leaves the
//! file before or after a change.

use super::FolderProblem;
use crate::plane::Identity;
use sherman_control::wire::WireError;
use sherman_control::wire::bytes::{Put, Reader};
use sherman_fabric::Role;
use sherman_fabric::group::HostInfo;
use twox_hash::XxHash3_64;

const MAGIC: [u8; 8] = *b"SHRMHST\n";
pub(super) const VERSION: u32 = 2;
/// Bytes before the payload.
const HEAD: usize = 16;
const CHECKSUM: usize = 8;
/// Bytes of a host with an empty address, and of a copy.
const HOST_AT_LEAST: usize = 2 + 4 + 8 + 4 + 1 + 8;
const COPY_BYTES: usize = 2 + 2 + 1;

/// A copy whose memory is in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptCopy {
    pub(crate) copy: u16,
    pub(crate) volume: u16,
    /// Its part by the last table that was carried out. `None` if the copy was still being made.
    pub(crate) role: Option<Role>,
}

/// What a host must know to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) own: Identity,
    /// Its number in the group.
    pub(crate) node: u64,
    /// Whether it made the cluster.
    pub(crate) founder: bool,
    /// Whether it knows that it was declared lost.
    pub(crate) lost: bool,
    /// Whether it has published an epoch. From then on its copies are never made empty again.
    pub(crate) served: bool,
    /// The start of the machine under which the files were written. A later start may find any mixture of old
    /// and new bytes in them.
    pub(crate) machine: String,
    pub(crate) memory_bytes: u64,
    /// The settings of the cluster.
    pub(crate) settings: Vec<u8>,
    /// The hosts that it knew last.
    pub(crate) hosts: Vec<HostInfo>,
    pub(crate) copies: Vec<KeptCopy>,
}

impl Kept {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        let out = &mut payload;
        out.put_u64(self.own.cluster);
        out.put_u16(self.own.host);
        out.put_u32(self.own.incarnation);
        out.put_u64(self.node);
        [self.founder, self.lost, self.served].into_iter().for_each(|flag| out.put_u8(flag.into()));
        out.put_text(&self.machine);
        out.put_u64(self.memory_bytes);
        out.put_several(&self.settings, |out, byte| out.put_u8(*byte));
        out.put_several(&self.hosts, |out, host| {
            out.put_u16(host.number);
            out.put_u32(host.incarnation);
            out.put_u64(host.node);
            out.put_text(&host.address);
            out.put_u8(host.up.into());
            out.put_u64(host.memory_bytes);
        });
        out.put_several(&self.copies, |out, kept| {
            out.put_u16(kept.copy);
            out.put_u16(kept.volume);
            out.put_u8(role_number(kept.role));
        });
        let mut bytes = Vec::with_capacity(HEAD + payload.len() + CHECKSUM);
        bytes.put(&MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u32(payload.len() as u32);
        bytes.put(&payload);
        let checksum = XxHash3_64::oneshot(&bytes);
        bytes.put_u64(checksum);
        bytes
    }

    /// What the bytes of a file say, if they are exactly what this build writes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, FolderProblem> {
        let damaged = |what| FolderProblem::Damaged { what };
        let cut = damaged("it is too short");
        let Some((body, checksum)) = bytes.split_last_chunk::<CHECKSUM>() else { return Err(cut) };
        let Some((head, payload)) = body.split_at_checked(HEAD) else { return Err(cut) };
        if !head.starts_with(&MAGIC) {
            return Err(damaged("it does not begin as the file of a host does"));
        }
        if XxHash3_64::oneshot(body) != u64::from_le_bytes(*checksum) {
            return Err(damaged("its checksum is wrong"));
        }
        let mut reader = Reader::new(&head[MAGIC.len()..]);
        let wrong = |_: WireError| damaged("it makes no sense");
        let (version, length) = (reader.u32().map_err(wrong)?, reader.u32().map_err(wrong)?);
        if version != VERSION {
            return Err(FolderProblem::OtherVersion { found: version, known: VERSION });
        }
        if length as usize != payload.len() {
            return Err(damaged("its length is wrong"));
        }
        Self::read(payload).map_err(wrong)
    }

    fn read(payload: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        let own = Identity { cluster: reader.u64()?, host: reader.u16()?, incarnation: reader.u32()? };
        let kept = Self {
            own,
            node: reader.u64()?,
            founder: reader.flag("flag for a founder")?,
            lost: reader.flag("flag for a lost host")?,
            served: reader.flag("flag for a host that has served")?,
            machine: reader.text()?.to_owned(),
            memory_bytes: reader.u64()?,
            settings: reader.several(1, Reader::u8)?,
            hosts: reader.several(HOST_AT_LEAST, read_host)?,
            copies: reader.several(COPY_BYTES, read_copy)?,
        };
        reader.finish()?;
        Ok(kept)
    }
}

fn read_host(reader: &mut Reader<'_>) -> Result<HostInfo, WireError> {
    Ok(HostInfo {
        number: reader.u16()?,
        incarnation: reader.u32()?,
        node: reader.u64()?,
        address: reader.text()?.to_owned(),
        up: reader.flag("flag for a host that is present")?,
        voter: false,
        memory_bytes: reader.u64()?,
        leaving: false,
    })
}

fn read_copy(reader: &mut Reader<'_>) -> Result<KeptCopy, WireError> {
    let (copy, volume, number) = (reader.u16()?, reader.u16()?, reader.u8()?);
    let unknown = WireError::Unknown { what: "part of a copy", found: number.into() };
    let roles = [None, Some(Role::Primary), Some(Role::Backup), Some(Role::Joining)];
    let role = roles.into_iter().find(|role| role_number(*role) == number).ok_or(unknown)?;
    Ok(KeptCopy { copy, volume, role })
}

const fn role_number(role: Option<Role>) -> u8 {
    match role {
        None => 0,
        Some(Role::Primary) => 1,
        Some(Role::Backup) => 2,
        Some(Role::Joining) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let host = |number: u16, up| HostInfo {
            number,
            incarnation: u32::from(number) + 1,
            node: u64::from(number) + 1,
            address: format!("unix:/größe/{number}"),
            up,
            voter: false,
            memory_bytes: 1 << 40,
            leaving: false,
        };
        let copy = |copy, role| KeptCopy { copy, volume: copy + 1, role };
        Kept {
            own: Identity { cluster: u64::MAX, host: 3, incarnation: 4 },
            node: 4,
            founder: false,
            lost: false,
            served: true,
            machine: "a-b".to_owned(),
            memory_bytes: 1 << 30,
            settings: vec![1, 2, 3],
            hosts: vec![host(0, true), host(3, true), host(7, false)],
            copies: vec![copy(2, Some(Role::Primary)), copy(5, Some(Role::Backup)), copy(9, None)],
        }
    }

    #[test]
    fn a_file_is_read_as_it_is_written_and_every_damage_is_refused() {
        let bytes = kept().encode();
        assert_eq!(Kept::decode(&bytes).unwrap(), kept());
        for end in 0..bytes.len() {
            let cut = Kept::decode(&bytes[..end]);
            assert!(matches!(cut, Err(FolderProblem::Damaged { .. })), "cut at {end}: {cut:?}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                let flipped = Kept::decode(&other);
                assert!(matches!(flipped, Err(FolderProblem::Damaged { .. })), "byte {at}: {flipped:?}");
            }
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(Kept::decode(&longer), Err(FolderProblem::Damaged { .. })));
    }

    #[test]
    fn a_file_of_another_version_is_refused_as_such() {
        let mut bytes = kept().encode();
        bytes.truncate(bytes.len() - CHECKSUM);
        bytes[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        let checksum = XxHash3_64::oneshot(&bytes);
        bytes.put_u64(checksum);
        let refused = Kept::decode(&bytes);
        assert!(matches!(refused, Err(FolderProblem::OtherVersion { found: 3, known: 2 })), "{refused:?}");
    }
}
