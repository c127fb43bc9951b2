//! Texts that are `&'static str` in this program and cross the wire as text.
//!
//! An error says *what* was wrong by a text that its maker wrote down in the source. On the other side of the wire there is
//! no such text to borrow, and to leak one per error would let a server eat its clients' memory. So the receiver looks the
//! text up among those that it knows itself; one that it does not know (from another version) it replaces.

/// What stands in for a text that this build does not know.
pub const UNKNOWN: &str = "something that this version has no word for";

/// Texts of [`Refusal::BadRequest`](sherman_fabric::Refusal::BadRequest) and
/// [`FabricError::Unsupported`](sherman_fabric::FabricError::Unsupported) that a server may send.
const KNOWN: &[&str] = &[
    UNKNOWN,
    super::errors::UNNAMED,
    JOIN_BY_CALL,
    NO_PATH,
    "this is no description of a queue pair",
    "reach the client's RDMA address",
    "make one more queue pair",
    "a member suspects itself",
    "a member succeeds itself",
    "a member without a redo area cannot recover others",
    "a request gives back too many spans",
    "memory server 0 keeps the members and cannot be declared lost",
    "the cluster has no such memory server",
    "an operator's connection does not take this request",
    "who is to be recovered is not fenced here",
    "node_bytes is not a multiple of 64 from 256 to 65536 that fits",
    "no span begins at this offset",
    "the client does not own this span",
    "this server keeps no statistics",
    "this server does not know the request",
    "the tree id was never issued",
    "the tree id is another tree's",
    "the root word is null",
    "the root word of the tree to drop is not null",
    "who is to be retired is neither dead nor leaving",
    "the sender does not recover who is to be retired",
];

/// Why a `Join` that comes as a call is refused.
pub const JOIN_BY_CALL: &str = "one joins by introducing oneself, not by a call";

/// Why an attachment is refused where there is nothing to attach to.
pub const NO_PATH: &str = "attach: this server is reached by lists in frames alone";

/// The text of this program that reads like `text`.
pub fn known(text: &str) -> &'static str {
    KNOWN.iter().find(|known| **known == text).unwrap_or(&UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_text_nobody_knows_is_replaced() {
        assert_eq!(known("the root word is null"), "the root word is null");
        assert_eq!(known("the root word is nul"), UNKNOWN);
    }

    /// Every source file below `folder`.
    fn sources(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut texts = Vec::new();
        for path in entries {
            if path.is_dir() {
                texts.extend(sources(&path));
            } else if path.extension().is_some_and(|name| name == "rs") {
                texts.push(std::fs::read_to_string(path).unwrap());
            }
        }
        texts
    }

    #[test]
    fn every_text_that_a_memory_server_refuses_with_is_known() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../memory-server/src");
        let mut found = 0;
        for text in sources(&folder) {
            for part in text.split("BadRequest { what: \"").skip(1) {
                let what = part.split('"').next().unwrap();
                assert_ne!(known(what), UNKNOWN, "add {what:?} to the known texts");
                found += 1;
            }
        }
        assert!(found > 8, "the memory server's sources were not found");
    }
}
