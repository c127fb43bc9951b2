//! The log of the group.

use crate::folder::{Folder, FolderProblem, LOG};
use sherman_consensus::{Disk, FileDisk, MemoryDisk, NodeId, Recovered, SEGMENTS, read, recover_kept};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use twox_hash::XxHash3_64;

/// The name of the file that says how long each segment is.
const LENGTHS: &str = "group.len";
const LENGTHS_BYTES: usize = 8 * (SEGMENTS + 1);

/// Where the log lies.
#[derive(Debug)]
pub(crate) enum Log {
    /// In memory: it dies with the process, as the host's copies do.
    Memory(MemoryDisk),
    /// In the host's folder.
    Files(KeptLog),
}

/// A log in files. It outlives the process, but not the machine: nothing is synced.
///
/// A process that dies leaves the beginning of what it wrote. So a log is right if every byte is there that
/// was written completely. The third file says how many these are: damage to the last records of a log looks
/// like a write that was cut off, otherwise.
#[derive(Debug)]
pub(crate) struct KeptLog {
    disk: FileDisk,
    lengths: File,
    /// Bytes of each segment, and how many of them are in the file of lengths.
    length: [u64; SEGMENTS],
    kept: [u64; SEGMENTS],
}

/// Whose log it is: this number is in the log of a host, so that it is not taken for the log of another one.
pub(crate) fn owner(cluster: u64, node: NodeId) -> u64 {
    cluster ^ node.rotate_left(32)
}

impl Log {
    /// A log that ends with the process.
    pub(crate) fn in_memory() -> Self {
        Self::Memory(MemoryDisk::new())
    }

    /// The log in a folder, and what it has.
    pub(crate) fn open(folder: &Folder) -> Result<(Self, Option<Recovered>), FolderProblem> {
        let (mut log, kept) = KeptLog::open(folder.path())?;
        let segments = read(&mut log.disk).map_err(FolderProblem::io("read the log"))?;
        let recovered = recover_kept(&segments, kept).map_err(FolderProblem::Log)?;
        log.length = segments.map(|segment| segment.len() as u64);
        log.kept = kept;
        Ok((Self::Files(log), recovered))
    }
}

impl KeptLog {
    fn open(folder: &Path) -> Result<(Self, [u64; SEGMENTS]), FolderProblem> {
        // The folder is locked, and so is the log of a host that has just ended.
        let disk = FileDisk::open(&folder.join(LOG)).map_err(FolderProblem::io("open the log"))?;
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lengths = open.open(folder.join(LENGTHS)).map_err(FolderProblem::io("open the log"))?;
        let bytes = std::fs::read(folder.join(LENGTHS)).map_err(FolderProblem::io("read the log"))?;
        let kept = lengths_in(&bytes).ok_or(FolderProblem::LogLength)?;
        let mut log = Self { disk, lengths, length: [0; SEGMENTS], kept };
        // Without that file nothing was written yet.
        if bytes.is_empty()
            && (0..SEGMENTS).any(|segment| log.disk.read(segment).is_ok_and(|found| !found.is_empty()))
        {
            return Err(FolderProblem::LogLength);
        }
        Ok((log, kept))
    }

    fn note(&mut self, segment: usize, length: u64) -> io::Result<()> {
        let mut kept = self.kept;
        *kept.get_mut(segment).ok_or(io::ErrorKind::InvalidInput)? = length;
        if kept != self.kept {
            self.lengths.write_all_at(&lengths(kept), 0)?;
            self.kept = kept;
        }
        Ok(())
    }

    fn append(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        // Before the first byte, so that a log without lengths is one that nobody has written.
        if self.kept == [0; SEGMENTS] {
            self.lengths.write_all_at(&lengths(self.kept), 0)?;
        }
        self.disk.append(segment, bytes)?;
        self.length[segment] += bytes.len() as u64;
        Ok(())
    }

    fn replace(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        self.lengths.write_all_at(&lengths(self.kept), 0)?;
        self.note(segment, 0)?;
        self.disk.replace(segment, bytes)?;
        self.length[segment] = bytes.len() as u64;
        Ok(())
    }
}

/// The bytes of the file of lengths. They lie in one page, so they change by one write.
fn lengths(kept: [u64; SEGMENTS]) -> [u8; LENGTHS_BYTES] {
    let mut bytes = [0; LENGTHS_BYTES];
    for (word, length) in bytes.chunks_exact_mut(8).zip(kept) {
        word.copy_from_slice(&length.to_le_bytes());
    }
    let checksum = XxHash3_64::oneshot(&bytes[..LENGTHS_BYTES - 8]);
    bytes[LENGTHS_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The lengths in a file; `None` if it is damaged. A file without bytes has none yet.
fn lengths_in(bytes: &[u8]) -> Option<[u64; SEGMENTS]> {
    if bytes.is_empty() {
        return Some([0; SEGMENTS]);
    }
    let word = |at: usize| bytes.get(at * 8..at * 8 + 8)?.try_into().ok().map(u64::from_le_bytes);
    let (first, second) = (word(0)?, word(1)?);
    (lengths([first, second]) == *bytes).then_some([first, second])
}

impl Disk for Log {
    fn append(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(disk) => disk.append(segment, bytes),
            Self::Files(log) => log.append(segment, bytes),
        }
    }

    fn sync(&mut self, segment: usize) -> io::Result<()> {
        match self {
            Self::Memory(disk) => disk.sync(segment),
            Self::Files(log) => {
                let length = log.length.get(segment).copied().ok_or(io::ErrorKind::InvalidInput)?;
                log.note(segment, length)
            }
        }
    }

    fn replace(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(disk) => disk.replace(segment, bytes),
            Self::Files(log) => log.replace(segment, bytes),
        }
    }

    fn read(&mut self, segment: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::Memory(disk) => disk.read(segment),
            Self::Files(log) => log.disk.read(segment),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman_consensus::{Event, Group, Settings, Start, StateMachine, perform};

    #[derive(Debug, Default)]
    struct Numbers(Vec<u8>);

    impl StateMachine for Numbers {
        type Answer = ();

        fn apply(&mut self, _index: u64, command: &[u8]) {
            self.0.extend_from_slice(command);
        }

        fn snapshot(&self) -> Vec<u8> {
            self.0.clone()
        }

        fn restore(&mut self, snapshot: &[u8]) -> bool {
            self.0 = snapshot.to_vec();
            true
        }
    }

    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sherman-log-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Opens the group in a folder, and adds these numbers.
    fn add(folder: &Folder, numbers: &[u8]) -> Result<Vec<u8>, FolderProblem> {
        let (mut log, recovered) = Log::open(folder)?;
        let settings = Settings { snapshot_entries: 8, keep_entries: 2, ..Settings::new(1, 7) };
        let mut group = Group::open(settings, Numbers::default(), recovered, Start::NewGroup, 0).unwrap();
        let mut waiting = numbers.to_vec();
        let mut answers = 0;
        loop {
            let output = group.take_output();
            answers += output.events.iter().filter(|event| matches!(event, Event::Proposed { .. })).count();
            for write in &output.writes {
                perform(&mut log, write).unwrap();
                group.persisted(write.number);
            }
            if output.writes.is_empty() && output.events.is_empty() {
                if waiting.is_empty() {
                    break;
                }
                group.propose(vec![waiting.remove(0)]).unwrap();
            }
        }
        assert_eq!(answers, numbers.len());
        Ok(group.state().0.clone())
    }

    #[test]
    fn a_log_in_a_folder_outlives_its_process_and_every_damage_is_refused_or_harmless() {
        let scratch = Scratch::new("damage");
        let folder = Folder::open(&scratch.0).unwrap();
        assert_eq!(add(&folder, &[1, 2, 3]).unwrap(), [1, 2, 3]);
        assert_eq!(add(&folder, &[4, 5, 6, 7, 8, 9, 10, 11]).unwrap().len(), 11);
        let names = ["group.0", "group.1", LENGTHS];
        let files = names.map(|name| std::fs::read(scratch.0.join(name)).unwrap());
        let restore = || {
            for (name, bytes) in names.iter().zip(&files) {
                std::fs::write(scratch.0.join(name), bytes).unwrap();
            }
        };
        let (mut refused, mut harmless) = (0, 0);
        for (name, bytes) in names.iter().zip(&files) {
            let cuts = (0..bytes.len()).map(|end| bytes[..end].to_vec());
            let flips = (0..bytes.len()).map(|at| {
                let mut other = bytes.clone();
                other[at] ^= 1 << (at % 8);
                other
            });
            for (case, other) in cuts.chain(flips).enumerate() {
                std::fs::write(scratch.0.join(name), &other).unwrap();
                match add(&folder, &[]) {
                    Ok(all) => {
                        assert_eq!(all, (1..=11).collect::<Vec<u8>>(), "{name}, case {case}");
                        harmless += 1;
                        restore();
                    }
                    Err(FolderProblem::Log(_) | FolderProblem::LogLength) => {
                        refused += 1;
                        assert_eq!(std::fs::read(scratch.0.join(name)).unwrap(), other, "it was changed");
                        std::fs::write(scratch.0.join(name), bytes).unwrap();
                    }
                    Err(other) => panic!("{name}, case {case}: {other}"),
                }
            }
        }
        // Only padding between records is not covered.
        assert!(refused > 10 * harmless, "{refused} refused, {harmless} harmless");
        assert_eq!(add(&folder, &[]).unwrap().len(), 11);
    }

    #[test]
    fn what_a_dying_process_wrote_in_part_is_dropped() {
        let scratch = Scratch::new("cut");
        let folder = Folder::open(&scratch.0).unwrap();
        add(&folder, &[1, 2, 3]).unwrap();
        for segment in ["group.0", "group.1"] {
            let mut bytes = std::fs::read(scratch.0.join(segment)).unwrap();
            let part = bytes[..bytes.len().min(20)].to_vec();
            bytes.extend(part);
            std::fs::write(scratch.0.join(segment), bytes).unwrap();
        }
        assert_eq!(add(&folder, &[4]).unwrap(), [1, 2, 3, 4]);
    }
}
