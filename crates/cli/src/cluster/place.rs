//! The directory of a cluster's sockets: made if it is not there, and as it was when it goes.

use crate::failure::Failure;
use std::fs::{DirBuilder, remove_dir, remove_file};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What has a meaning in a URL.
const SPECIAL: &[char] = &[',', '?', '&', '%', '#', '='];

/// A directory that holds sockets.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// Whether it goes with us.
    made: bool,
    files: Vec<PathBuf>,
}

impl Place {
    /// The directory that is named, or a fresh one.
    pub fn new(named: Option<&Path>) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => std::path::absolute(path).map_err(|error| refused(path, &error))?,
            None => fresh(&std::env::temp_dir()),
        };
        if path.to_str().is_none_or(|text| text.contains(SPECIAL)) {
            let reason = format!("{}: there is a character that has a meaning in URLs", path.display());
            return Err(Failure::option("dir", reason));
        }
        let made = match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists && named.is_some() && path.is_dir() => false,
            Err(error) => return Err(refused(&path, &error)),
        };
        Ok(Self { path, made, files: Vec::new() })
    }

    /// The path of a file in it, which goes with it and must not be there yet.
    pub fn file(&mut self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.path.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(Failure::option("dir", format!("{} is there already", path.display())));
        }
        self.files.push(path.clone());
        Ok(path)
    }
}

impl Drop for Place {
    /// What is gone already need not go.
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

/// A name that nobody has: of this process, at this moment.
fn fresh(parent: &Path) -> PathBuf {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    parent.join(format!("sherman-{}-{:x}", std::process::id(), nanos & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_goes_and_what_was_there_stays() {
        let mut own = Place::new(None).expect("a place");
        let (folder, socket) = (own.path.clone(), own.file("a.sock").expect("a file"));
        std::fs::write(&socket, "").expect("a file");
        assert!(own.file("a.sock").expect_err("twice").to_string().contains("is there already"));
        drop(own);
        assert!(!socket.exists() && !folder.exists());

        let there = fresh(&std::env::temp_dir());
        std::fs::create_dir(&there).expect("a directory");
        std::fs::write(there.join("mine"), "").expect("a file");
        let mut place = Place::new(Some(&there)).expect("a place");
        std::fs::write(place.file("a.sock").expect("a file"), "").expect("a file");
        drop(place);
        assert!(there.join("mine").exists() && !there.join("a.sock").exists());
        std::fs::remove_dir_all(&there).expect("it goes");
    }

    #[test]
    fn a_place_that_cannot_be_is_refused() {
        for bad in ["/no/such/parent/dir", "/dev/null", "a,b", "a?b"] {
            let said = Place::new(Some(Path::new(bad))).expect_err(bad).to_string();
            assert!(said.starts_with("error: --dir: "), "{said}");
        }
    }
}
