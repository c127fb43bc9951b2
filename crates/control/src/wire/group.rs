//! The words about hosts as bytes.

use super::bytes::{Put, Reader, WireError};
use sherman_fabric::ComputeId;
use sherman_fabric::group::{
    Admission, ClusterInfo, CopyMaking, CopyProgress, CopyWork, HostInfo, HostOffer, Registration, Store,
};

/// Bytes of a host with an empty address.
const HOST_AT_LEAST: usize = 2 + 4 + 8 + TEXT_AT_LEAST + 1 + 1 + 8 + 1;
/// Bytes of an empty text.
const TEXT_AT_LEAST: usize = 4;

fn put_host(out: &mut Vec<u8>, host: &HostInfo) {
    out.put_u16(host.number);
    out.put_u32(host.incarnation);
    out.put_u64(host.node);
    out.put_text(&host.address);
    out.put(&[host.up.into(), host.voter.into()]);
    out.put_u64(host.memory_bytes);
    out.put_u8(host.leaving.into());
}

fn read_host(reader: &mut Reader<'_>) -> Result<HostInfo, WireError> {
    Ok(HostInfo {
        number: reader.u16()?,
        incarnation: reader.u32()?,
        node: reader.u64()?,
        address: reader.text()?.to_owned(),
        up: reader.flag("flag for a host that is present")?,
        voter: reader.flag("flag for a host that votes")?,
        memory_bytes: reader.u64()?,
        leaving: reader.flag("flag for a host that leaves")?,
    })
}

/// Bytes of [`CopyProgress`].
pub(super) const PROGRESS: usize = 2 + 3 * 8;

pub(super) fn put_progress(out: &mut Vec<u8>, progress: &CopyProgress) {
    out.put_u16(progress.copy);
    [progress.done, progress.total, progress.millis].into_iter().for_each(|word| out.put_u64(word));
}

pub(super) fn read_progress(reader: &mut Reader<'_>) -> Result<CopyProgress, WireError> {
    Ok(CopyProgress { copy: reader.u16()?, done: reader.u64()?, total: reader.u64()?, millis: reader.u64()? })
}

/// Bytes of a [`CopyMaking`].
const MAKING: usize = 2 + 2 + 2 + 1 + 2 + 1 + PROGRESS;

fn put_making(out: &mut Vec<u8>, making: &CopyMaking) {
    [making.volume, making.copy, making.host].into_iter().for_each(|number| out.put_u16(number));
    out.put_u8(making.replaces.is_some().into());
    out.put_u16(making.replaces.unwrap_or_default());
    out.put_u8(making.copied.into());
    put_progress(out, &making.progress);
}

fn read_making(reader: &mut Reader<'_>) -> Result<CopyMaking, WireError> {
    let (volume, copy, host) = (reader.u16()?, reader.u16()?, reader.u16()?);
    let replaces = reader.flag("flag for a copy that takes another one's place")?;
    let other = reader.u16()?;
    Ok(CopyMaking {
        volume,
        copy,
        host,
        replaces: replaces.then_some(other),
        copied: reader.flag("flag for a copy with nearly all bytes")?,
        progress: read_progress(reader)?,
    })
}

fn put_work(out: &mut Vec<u8>, work: &CopyWork) {
    out.put_several(&work.makings, put_making);
    out.put_u16(work.swaps);
    out.put(&[work.pause.into(), work.spreading.into(), work.always.into()]);
}

fn read_work(reader: &mut Reader<'_>) -> Result<CopyWork, WireError> {
    Ok(CopyWork {
        makings: reader.several(MAKING, read_making)?,
        swaps: reader.u16()?,
        pause: reader.flag("flag for a pause")?,
        spreading: reader.flag("flag for copies that are spread")?,
        always: reader.flag("flag for copies that are always spread")?,
    })
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_several(bytes, |out, byte| out.put_u8(*byte));
}

fn read_bytes(reader: &mut Reader<'_>) -> Result<Vec<u8>, WireError> {
    reader.several(1, Reader::u8)
}

pub(super) fn put_cluster(out: &mut Vec<u8>, info: &ClusterInfo) {
    out.put_u64(info.cluster);
    out.put_u16(info.host);
    out.put_u8(info.leader.is_some().into());
    out.put_text(info.leader.as_deref().unwrap_or_default());
    out.put_u64(info.epoch);
    out.put_u8(info.formed.into());
    out.put_u64(info.lease_nanos);
    out.put_several(&info.hosts, put_host);
    put_bytes(out, &info.table);
    put_work(out, &info.work);
}

pub(super) fn read_cluster(reader: &mut Reader<'_>) -> Result<ClusterInfo, WireError> {
    let (cluster, host) = (reader.u64()?, reader.u16()?);
    let known = reader.flag("flag for a leader that is known")?;
    let leader = reader.text()?.to_owned();
    Ok(ClusterInfo {
        cluster,
        host,
        leader: known.then_some(leader),
        epoch: reader.u64()?,
        formed: reader.flag("flag for a cluster with volumes")?,
        lease_nanos: reader.u64()?,
        hosts: reader.several(HOST_AT_LEAST, read_host)?,
        table: read_bytes(reader)?,
        work: read_work(reader)?,
    })
}

pub(super) fn put_admission(out: &mut Vec<u8>, admission: &Admission) {
    out.put_u16(admission.client.0);
    out.put_u32(admission.incarnation);
    out.put_u64(admission.cluster);
    out.put_u64(admission.lease_nanos);
    put_bytes(out, &admission.table);
    out.put_several(&admission.hosts, |out, (number, address)| {
        out.put_u16(*number);
        out.put_text(address);
    });
}

pub(super) fn read_admission(reader: &mut Reader<'_>) -> Result<Admission, WireError> {
    Ok(Admission {
        client: ComputeId(reader.u16()?),
        incarnation: reader.u32()?,
        cluster: reader.u64()?,
        lease_nanos: reader.u64()?,
        table: read_bytes(reader)?,
        hosts: reader.several(2 + TEXT_AT_LEAST, |reader| Ok((reader.u16()?, reader.text()?.to_owned())))?,
    })
}

/// Appends an offer.
pub fn put_offer(out: &mut Vec<u8>, offer: &HostOffer) {
    out.put_text(&offer.address);
    [offer.memory_bytes, offer.boot, offer.cluster].into_iter().for_each(|word| out.put_u64(word));
    out.put_u8(offer.keeps.into());
}

/// Reads the next offer.
pub fn read_offer(reader: &mut Reader<'_>) -> Result<HostOffer, WireError> {
    Ok(HostOffer {
        address: reader.text()?.to_owned(),
        memory_bytes: reader.u64()?,
        boot: reader.u64()?,
        cluster: reader.u64()?,
        keeps: reader.flag("flag for a host with files")?,
    })
}

pub(super) fn put_registration(out: &mut Vec<u8>, registration: &Registration) {
    out.put_u64(registration.cluster);
    out.put_u16(registration.host);
    out.put_u32(registration.incarnation);
    out.put_u64(registration.node);
    put_bytes(out, &registration.settings);
    out.put_several(&registration.hosts, put_host);
}

pub(super) fn read_registration(reader: &mut Reader<'_>) -> Result<Registration, WireError> {
    Ok(Registration {
        cluster: reader.u64()?,
        host: reader.u16()?,
        incarnation: reader.u32()?,
        node: reader.u64()?,
        settings: read_bytes(reader)?,
        hosts: reader.several(HOST_AT_LEAST, read_host)?,
    })
}

/// Bytes of a store of no bytes.
pub(super) const STORE_AT_LEAST: usize = 1 + 8 + 4;

pub(super) fn put_store(out: &mut Vec<u8>, store: &Store) {
    match store {
        Store::Bytes { offset, bytes } => {
            out.put_u8(1);
            out.put_u64(*offset);
            put_bytes(out, bytes);
        }
        Store::Zeros { offset, len } => {
            out.put_u8(2);
            out.put_u64(*offset);
            out.put_u32(*len);
        }
        Store::RedoArea { offset, word, area, len } => {
            out.put_u8(3);
            [*offset, *word, *area].into_iter().for_each(|word| out.put_u64(word));
            out.put_u32(*len);
        }
    }
}

pub(super) fn read_store(reader: &mut Reader<'_>) -> Result<Store, WireError> {
    let (kind, offset) = (reader.u8()?, reader.u64()?);
    Ok(match kind {
        1 => Store::Bytes { offset, bytes: read_bytes(reader)? },
        2 => Store::Zeros { offset, len: reader.u32()? },
        3 => {
            let (word, area) = (reader.u64()?, reader.u64()?);
            Store::RedoArea { offset, word, area, len: reader.u32()? }
        }
        other => return Err(WireError::Unknown { what: "store", found: other.into() }),
    })
}

/// Bytes of a [`Fill`] without memory.
pub(super) const FILL_HEAD: u32 = 2 + 8 + 8;

/// Bytes for a copy that is being made: the body of a `Fill` frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill<'a> {
    /// The number of the copy.
    pub copy: u16,
    /// The epoch of the sender's table. The receiver refuses the bytes under a newer one.
    pub epoch: u64,
    /// The offset of the first byte in host memory, a multiple of 64.
    pub offset: u64,
    /// The bytes, at most [`MAX_FILL`](super::frame::MAX_FILL).
    pub bytes: &'a [u8],
}

impl<'a> Fill<'a> {
    /// Appends the body of its frame.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.copy);
        out.put_u64(self.epoch);
        out.put_u64(self.offset);
        out.put(self.bytes);
    }

    /// Decodes the body of a frame.
    pub fn take(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let (copy, epoch, offset) = (reader.u16()?, reader.u64()?, reader.u64()?);
        Ok(Self { copy, epoch, offset, bytes: reader.rest() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_for_a_copy_are_decoded_to_what_was_encoded_and_cut_heads_are_refused() {
        for bytes in [&[][..], &[1, 2, 3]] {
            let fill = Fill { copy: 0xfffe, epoch: 1 << 50, offset: 1 << 40, bytes };
            let mut out = Vec::new();
            fill.put(&mut out);
            assert_eq!((out.len(), Fill::take(&out)), (FILL_HEAD as usize + bytes.len(), Ok(fill)));
            for end in 0..FILL_HEAD as usize {
                assert_eq!(Fill::take(&out[..end]), Err(WireError::Truncated));
            }
        }
    }
}
