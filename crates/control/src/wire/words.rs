//! Texts that are `&'static str` in this program and cross the wire as text.
//!
//! An error describes *what* was wrong with a text from the sender's source code. The receiver has no such
//! text to borrow. If it leaked one text per error, a server could exhaust its clients' memory. So the
//! receiver looks the text up among the texts that it knows, and replaces an unknown one (from another
//! version).

/// Replaces a text that this build does not know.
pub const UNKNOWN: &str = "do this, for a reason that this version does not know";

/// Texts of [`Refusal::BadRequest`](sherman_fabric::Refusal::BadRequest) and
/// [`FabricError::Unsupported`](sherman_fabric::FabricError::Unsupported) that a server may send.
const KNOWN: &[&str] = &[
    UNKNOWN,
    super::errors::UNNAMED,
    JOIN_BY_CALL,
    NO_PATH,
    "the description of the queue pair is malformed",
    "reach the client's RDMA address",
    "make one more queue pair",
    "a member suspects itself",
    "a member succeeds itself",
    "a request gives back too many spans",
    "memory server 0 keeps the members and cannot be declared lost",
    "the cluster has no such memory server",
    "an operator may not send this request",
    "another host may not send this request",
    "this copy is not being made",
    "another connection fills this copy",
    "the client to recover is not fenced on this server",
    "node_bytes is not a multiple of 64 from 256 to 65536 (blocks: 2 MiB) that fits",
    "no span begins at this offset",
    "the client does not own this span",
    "this server keeps no statistics",
    "this server does not know the request",
    "the client to retire is neither dead nor leaving",
    "the sender is not the recoverer of the client to retire",
    "key_len is not from 1 to 1024",
    "leaf_bytes or internal_bytes is not a multiple of 64 from 256 to 65536 that fits a chunk",
    "an entry does not fit a leaf",
    "a key does not fit an internal node",
    "understand the client's request for shared memory",
    "share memory with a process on another host",
    "share its memory: too many files are open",
    "the control state does not understand the command",
    "this request is for a volume",
    "a process that is no member may not send this request",
    "the cluster has as many memory servers as it can have",
    "the memory server belongs to another cluster",
    "the memory server offers less memory than the copies of its volumes need",
    "the memory server gives no number of its start",
    "the memory server's address is empty or too long",
    "the cluster has no number left for a memory server",
    "the memory server has another incarnation",
    "a member may not send this request",
    "the request is so old that its outcome is forgotten",
    "the request's id names no client",
];

/// Why the server refuses a `Join` that comes as a call.
pub const JOIN_BY_CALL: &str = "a client joins by a handshake, not by a call";

/// Why a server without another data path refuses an attachment.
pub const NO_PATH: &str = "attach: this server takes lists in frames only";

/// This program's own copy of `text`; [`UNKNOWN`] if it has none.
pub fn known(text: &str) -> &'static str {
    KNOWN.iter().find(|known| **known == text).unwrap_or(&UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_text_nobody_knows_is_replaced() {
        assert_eq!(known("an entry does not fit a leaf"), "an entry does not fit a leaf");
        assert_eq!(known("an entry does not fit a lea"), UNKNOWN);
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

    /// The literals of Rust source that directly follow one of `before`, however the source is wrapped.
    fn literals<'a>(source: &'a str, before: &[&str]) -> Vec<&'a str> {
        let mut literals = Vec::new();
        let dense = |text: &str| text.split_whitespace().collect::<String>();
        for (at, _) in source.match_indices('"') {
            let line = source[..at].char_indices().rev().nth(60).map_or(0, |(start, _)| start);
            let code = dense(&source[line..at]);
            if before.iter().any(|before| code.ends_with(&dense(before))) {
                literals.extend(source[at + 1..].split('"').next());
            }
        }
        literals
    }

    #[test]
    fn every_text_that_a_server_refuses_with_is_known() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut texts = sources(&crates.join("memory-server/src"));
        for source in ["shm/src/path.rs", "soft-nic/src/server/calls.rs"] {
            texts.push(std::fs::read_to_string(crates.join(source)).unwrap());
        }
        let mut found = 0;
        for text in &texts {
            let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            for what in literals(product, &["BadRequest { what:", "return bad(", "Unsupported { what:"]) {
                assert_ne!(known(what), UNKNOWN, "add {what:?} to the known texts");
                found += 1;
            }
        }
        assert!(found > 20, "the sources of the servers were not found: {found}");
    }
}
