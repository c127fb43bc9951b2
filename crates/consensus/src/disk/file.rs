//! A disk of two files.

use super::{Disk, SEGMENTS};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Two files beside each other: `PATH.0` and `PATH.1`.
///
/// One process at a time may use them: the first file is locked while this exists.
#[derive(Debug)]
pub struct FileDisk {
    files: [File; SEGMENTS],
}

impl FileDisk {
    /// Opens the two files, or makes them.
    ///
    /// # Errors
    /// Those of the file system, and [`WouldBlock`](io::ErrorKind::WouldBlock) if another process has them.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut made = false;
        let mut open = |number: usize| {
            let path = segment(path, number);
            made |= !path.exists();
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
        };
        let files = [open(0)?, open(1)?];
        files[0].try_lock()?;
        if made {
            // The names of new files are durable only with their folder.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(Self { files })
    }

    fn file(&mut self, segment: usize) -> io::Result<&mut File> {
        self.files.get_mut(segment).ok_or(io::Error::from(io::ErrorKind::InvalidInput))
    }
}

/// The path of a segment.
fn segment(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

impl Disk for FileDisk {
    fn append(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        let file = self.file(segment)?;
        file.seek(SeekFrom::End(0))?;
        file.write_all(bytes)
    }

    fn sync(&mut self, segment: usize) -> io::Result<()> {
        self.file(segment)?.sync_data()
    }

    fn replace(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        let file = self.file(segment)?;
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(bytes)
    }

    fn read(&mut self, segment: usize) -> io::Result<Vec<u8>> {
        let file = self.file(segment)?;
        file.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
