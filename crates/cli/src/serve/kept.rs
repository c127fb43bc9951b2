//! Settings of a server whose memory file already exists. The file fixed them when the memory was formatted.
//!
//! An option that was left out takes the file's value. An option that contradicts the file is refused by
//! name, because the server would otherwise ignore it.

use crate::failure::Failure;
use crate::serve::config::{Bytes, ServeSettings, Time};
use sherman_embedded::file::{Formatted, peek};
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

/// Completes `settings` with the values in their file. Without a file, or with an unformatted file, the
/// settings stay as they are.
pub fn complete(mut settings: ServeSettings) -> Result<ServeSettings, Failure> {
    let Some((path, kept)) = settings.file.as_ref().and_then(|path| Some((path.clone(), peek(path)?))) else {
        return Ok(settings);
    };
    check_server(&path, &settings, &kept)?;
    let Formatted { host_bytes, on_chip_bytes, superblock } = kept;
    let geometry = superblock.geometry;
    let lease = Duration::from_nanos(geometry.lease_nanos);
    keep(&path, "memory", &mut settings.memory, Bytes(host_bytes))?;
    keep(&path, "on-chip", &mut settings.on_chip, Bytes(on_chip_bytes))?;
    keep(&path, "chunk", &mut settings.chunk, Bytes(geometry.chunk_bytes))?;
    keep(&path, "lease", &mut settings.lease, Time(lease))?;
    (settings.id, settings.servers) = (Some(superblock.server), Some(superblock.servers));
    Ok(settings)
}

fn check_server(path: &Path, asked: &ServeSettings, kept: &Formatted) -> Result<(), Failure> {
    let (id, servers) = (kept.superblock.server, kept.superblock.servers);
    let (asked_id, asked_servers) = (asked.id.unwrap_or(id), asked.servers.unwrap_or(servers));
    if (asked_id, asked_servers) == (id, servers) {
        return Ok(());
    }
    let option = if asked_id == id { "servers" } else { "id" };
    Err(Failure::Runtime(format!(
        "--{option}: {} holds memory server {id} of {servers}, not memory server {asked_id} of \
         {asked_servers}. Name the file of that server, or leave --id and --servers out",
        path.display()
    )))
}

/// Takes the file's value for a setting that was left out. Refuses a different value.
fn keep<T: Copy + PartialEq + Display>(
    path: &Path,
    option: &str,
    setting: &mut Option<T>,
    kept: T,
) -> Result<(), Failure> {
    match setting.replace(kept) {
        Some(asked) if asked != kept => Err(Failure::Runtime(format!(
            "--{option}: {} was formatted with --{option} {kept}, not {asked}, and this cannot be changed. \
             Leave --{option} out to keep {kept}, or remove the file to start with empty memory",
            path.display()
        ))),
        _ => Ok(()),
    }
}
