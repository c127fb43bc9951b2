//! The directory of a cluster's sockets. It is created if it does not exist. On drop, the directory returns
//! to its earlier state.

use crate::failure::Failure;
use std::fs::{DirBuilder, remove_dir, remove_file};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Characters that have a meaning in a URL.
const SPECIAL: &[char] = &[',', '?', '&', '%', '#', '='];

/// A directory that holds sockets.
#[derive(Debug)]
pub struct ClusterFolder {
    path: PathBuf,
    /// Whether this process created the directory and must remove it.
    made: bool,
    files: Vec<PathBuf>,
}

impl ClusterFolder {
    /// Uses the named directory, or creates a new one.
    pub fn new(named: Option<&Path>) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => std::path::absolute(path).map_err(|error| refused(path, &error))?,
            None => fresh(&std::env::temp_dir()),
        };
        if path.to_str().is_none_or(|text| text.contains(SPECIAL)) {
            let reason = format!(
                "{}: write a path in UTF-8 without , ? & % # =, which have a meaning in URLs",
                path.display()
            );
            return Err(Failure::option("dir", reason));
        }
        let made = match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists && named.is_some() && path.is_dir() => {
                false
            }
            Err(error) => return Err(refused(&path, &error)),
        };
        Ok(Self { path, made, files: Vec::new() })
    }

    /// Returns the path of a new file in the directory. The file must not exist yet, and is removed with the
    /// directory.
    pub fn file(&mut self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.path.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(Failure::option("dir", format!("{} already exists", path.display())));
        }
        self.files.push(path.clone());
        Ok(path)
    }
}

impl Drop for ClusterFolder {
    /// Ignores errors: a file may already be gone.
    fn drop(&mut self) {
        for file in &self.files {
            let _ = remove_file(file);
        }
        if self.made {
            let _ = remove_dir(&self.path);
        }
    }
}

fn refused(path: &Path, error: &Error) -> Failure {
    Failure::option("dir", format!("{}: {error}", path.display()))
}

/// Returns a unique name, from the process id and the current time.
fn fresh(parent: &Path) -> PathBuf {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    parent.join(format!("sherman-{}-{:x}", std::process::id(), nanos & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_goes_and_what_was_there_stays() {
        let mut own = ClusterFolder::new(None).expect("a place");
        let (folder, socket) = (own.path.clone(), own.file("a.sock").expect("a file"));
        std::fs::write(&socket, "").expect("a file");
        assert!(own.file("a.sock").expect_err("twice").to_string().contains("already exists"));
        drop(own);
        assert!(!socket.exists() && !folder.exists());

        let there = fresh(&std::env::temp_dir());
        std::fs::create_dir(&there).expect("a directory");
        std::fs::write(there.join("mine"), "").expect("a file");
        let mut place = ClusterFolder::new(Some(&there)).expect("a place");
        std::fs::write(place.file("a.sock").expect("a file"), "").expect("a file");
        drop(place);
        assert!(there.join("mine").exists() && !there.join("a.sock").exists());
        std::fs::remove_dir_all(&there).expect("it goes");
    }

    #[test]
    fn a_place_that_cannot_be_is_refused() {
        for bad in ["/no/such/parent/dir", "/dev/null", "a,b", "a?b"] {
            let said = ClusterFolder::new(Some(Path::new(bad))).expect_err(bad).to_string();
            assert!(said.starts_with("error: --dir: "), "{said}");
        }
    }
}
