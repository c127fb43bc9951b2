//! Keeps results in files, so that a stopped run continues where it stopped.
//!
//! The key of a result combines the program and the experiment. The bytes of the executable identify the
//! program. Any change in the code or in the model's parameters therefore gives another key, and no old
//! result passes for a new one. A file is written under another name and then renamed, so an existing file is
//! complete. An experiment with an invalid file, whatever the reason, is run again.

use super::error::FiguresError;
use super::output::write_whole;
use crate::experiment::Measured;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// FNV-1a of 128 bits: small and simple. These keys need no protection from attacks.
#[derive(Clone, Copy)]
struct Hash(u128);

impl Hash {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    const fn new() -> Self {
        Self(Self::BASIS)
    }

    fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(Self::PRIME)))
    }
}

/// The folder of kept results.
pub(super) struct Kept {
    folder: PathBuf,
    /// The hash of the program.
    program: Hash,
}

/// The content of a file. It includes the experiment for people to read, and so that a hash collision does no
/// harm.
#[derive(Serialize, Deserialize)]
struct Entry {
    job: String,
    measured: Measured,
}

impl Kept {
    /// Opens the folder for the running program. Creates the folder if it does not exist.
    pub(super) fn open(folder: &Path) -> Result<Self, FiguresError> {
        std::fs::create_dir_all(folder).map_err(|error| FiguresError::output(folder, error))?;
        let program = std::env::current_exe().and_then(std::fs::read);
        let program = program.map_err(|error| FiguresError::Program(error.to_string()))?;
        Ok(Self { folder: folder.to_owned(), program: Hash::new().with(&program) })
    }

    /// Returns the result of the experiment with this JSON, if there is a valid one.
    pub(super) fn find(&self, job: &str) -> Option<Measured> {
        let text = std::fs::read_to_string(self.path(job)).ok()?;
        let entry: Entry = serde_json::from_str(&text).ok()?;
        (entry.job == job).then_some(entry.measured)
    }

    /// Keeps a result.
    pub(super) fn keep(&self, job: &str, measured: &Measured) -> Result<(), FiguresError> {
        let path = self.path(job);
        let entry = Entry { job: job.to_owned(), measured: measured.clone() };
        let text = serde_json::to_string(&entry).map_err(|error| FiguresError::output(&path, error))?;
        write_whole(&path, &text)
    }

    fn path(&self, job: &str) -> PathBuf {
        self.folder.join(format!("{:032x}.json", self.program.with(job.as_bytes()).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(Hash::new().with(b"").0, 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(Hash::new().with(b"a").0, 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(Hash::new().with(b"foobar").0, 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }
}
