//! Reads what a file holds without opening its memory, so that a caller can start a server with matching
//! options.

use super::header::{CHIP_OFFSET, HEADER_BYTES, Image, PAGE};
use sherman_layout::{SUPERBLOCK_BYTES, Superblock};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// A formatted memory in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formatted {
    /// Bytes of host memory.
    pub host_bytes: u64,
    /// Bytes of on-chip memory.
    pub on_chip_bytes: u64,
    /// The server and cluster that the memory belongs to, and how it was formatted.
    pub superblock: Superblock,
}

/// The formatted memory at `path`. `None` if there is none, or none that this build can use. Opening the file
/// gives the reason.
///
/// A superblock never changes after its file is formatted, so this takes no lock.
pub fn peek(path: &Path) -> Option<Formatted> {
    // Opening a pipe would block.
    let mut file = std::fs::metadata(path)
        .ok()
        .filter(std::fs::Metadata::is_file)
        .and_then(|_| File::open(path).ok())?;
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header).ok()?;
    let image = Image::decode(&header).ok().filter(Image::is_formatted)?;
    let Image { host_bytes, on_chip_bytes, .. } = image;
    let host_offset =
        (CHIP_OFFSET as u64).checked_add(on_chip_bytes)?.checked_next_multiple_of(PAGE as u64)?;
    let mut bytes = [0; SUPERBLOCK_BYTES];
    file.seek(SeekFrom::Start(host_offset)).ok()?;
    file.read_exact(&mut bytes).ok()?;
    Some(Formatted { host_bytes, on_chip_bytes, superblock: Superblock::decode(&bytes).ok()? })
}
