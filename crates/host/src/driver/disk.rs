//! The log of the group.

use crate::error::HostError;
use sherman_consensus::{Disk, FileDisk, MemoryDisk};
use std::io;
use std::path::Path;

/// The name of the log in its folder, before the number of the segment.
const NAME: &str = "group";

/// Where the log lies.
#[derive(Debug)]
pub(crate) enum Log {
    /// In memory: it dies with the process, as the host's copies do.
    Memory(MemoryDisk),
    /// In files.
    Files(FileDisk),
}

impl Log {
    /// An empty log. A log that an earlier process left in the folder is discarded: the host that had it is
    /// gone, with its memory and its number in the group.
    pub(crate) fn new(folder: Option<&Path>) -> Result<Self, HostError> {
        let Some(folder) = folder else { return Ok(Self::Memory(MemoryDisk::new())) };
        let failed = |error| HostError::Log { path: folder.to_owned(), error };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut disk = FileDisk::open(&folder.join(NAME)).map_err(failed)?;
        for segment in 0..sherman_consensus::SEGMENTS {
            disk.replace(segment, &[]).and_then(|()| disk.sync(segment)).map_err(failed)?;
        }
        Ok(Self::Files(disk))
    }
}

impl Disk for Log {
    fn append(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(disk) => disk.append(segment, bytes),
            Self::Files(disk) => disk.append(segment, bytes),
        }
    }

    fn sync(&mut self, segment: usize) -> io::Result<()> {
        match self {
            Self::Memory(disk) => disk.sync(segment),
            Self::Files(disk) => disk.sync(segment),
        }
    }

    fn replace(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(disk) => disk.replace(segment, bytes),
            Self::Files(disk) => disk.replace(segment, bytes),
        }
    }

    fn read(&mut self, segment: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::Memory(disk) => disk.read(segment),
            Self::Files(disk) => disk.read(segment),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_in_a_folder_begins_empty_and_belongs_to_one_process() {
        let folder = std::env::temp_dir().join(format!("sherman-host-log-{}", std::process::id()));
        let mut log = Log::new(Some(&folder)).unwrap();
        log.append(0, b"an entry").unwrap();
        log.sync(0).unwrap();
        assert_eq!(log.read(0).unwrap(), b"an entry");
        assert!(matches!(Log::new(Some(&folder)), Err(HostError::Log { .. })));
        drop(log);
        let mut next = Log::new(Some(&folder)).unwrap();
        assert!(next.read(0).unwrap().is_empty());
        drop(next);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
