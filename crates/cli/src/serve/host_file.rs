//! Options of a host whose folder already exists. The cluster fixed them when it was made.
//!
//! An option that was left out takes the value of the folder. An option that contradicts the folder is
//! refused by name, because the host would otherwise ignore it.

use crate::failure::Failure;
use crate::serve::config::{Bytes, ServeSettings, Time};
use sherman_host::{ClusterSettings, KeptHost, peek};
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

/// The host in the folder of `--file`, if there is one.
pub fn find(settings: &ServeSettings) -> Result<Option<KeptHost>, Failure> {
    let Some(path) = settings.file.as_deref().filter(|path| path.is_dir()) else { return Ok(None) };
    let meant = settings.new_cluster || settings.join.is_some() || path.join("host").exists();
    if !meant {
        return Ok(None);
    }
    peek(path).map_err(|error| Failure::Runtime(format!("--file: {error}")))
}

/// Refuses options that contradict the host in the folder.
pub fn check(settings: &ServeSettings, kept: &KeptHost) -> Result<(), Failure> {
    let path = settings.file.as_deref().unwrap_or(Path::new(""));
    let ClusterSettings { replicas, hosts, volumes, volume_bytes, on_chip_bytes, format } = kept.settings;
    let lease = Duration::from_nanos(format.lease_nanos);
    same(path, "replicas", settings.replicas, replicas)?;
    same(path, "hosts", settings.hosts, hosts)?;
    same(path, "volumes", settings.volumes, volumes)?;
    same(path, "volume-memory", settings.volume_memory, Bytes(volume_bytes))?;
    same(path, "on-chip", settings.on_chip, Bytes(on_chip_bytes))?;
    same(path, "chunk", settings.chunk, Bytes(format.chunk_bytes))?;
    same(path, "lease", settings.lease, Time(lease))
}

fn same<T: PartialEq + Display>(path: &Path, option: &str, asked: Option<T>, kept: T) -> Result<(), Failure> {
    match asked {
        Some(asked) if asked != kept => Err(Failure::Runtime(format!(
            "--{option}: the cluster of the host in {} was made with --{option} {kept}, not {asked}, and \
             this cannot be changed. Leave --{option} out, or remove the folder to start without its memory",
            path.display()
        ))),
        _ => Ok(()),
    }
}
