//! The cluster's secret, and how both sides prove to each other that they know it.
//!
//! The proof is challenge and response by HMAC-SHA256:
//!
//! 1. The server challenges with a fresh nonce in its `Hello`.
//! 2. The client answers in its `Introduce` with a mac over its message and that nonce. It challenges with a
//!    nonce of its own.
//! 3. The server answers in its `Welcome` with a mac over its message and both nonces.
//!
//! The two macs begin with different labels, so neither can pass for the other. The secret is never sent. A
//! recorded handshake is worthless, because the other side's nonce differs next time.
//!
//! **What must hold.** Macs are compared in constant time (by the `hmac` crate). A secret is never formatted:
//! its `Debug` prints nothing about it. A client that has a secret does not talk to a server that cannot
//! prove it.
//!
//! **What it does not do.** It proves the other side's identity when the connection is made, and no more:
//! frames are not signed.

use crate::wire::handshake::{Mac, Nonce};
use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The shortest secret that is accepted, in bytes.
pub const MIN_SECRET: usize = 16;
/// The longest secret that is accepted, in bytes.
pub const MAX_SECRET: usize = 4096;

const CLIENT_LABEL: &[u8] = b"sherman client v1";
const SERVER_LABEL: &[u8] = b"sherman server v1";

/// The secret that only the clients and servers of a cluster know.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(..)")
    }
}

sherman_fabric::errors! {
    /// Why a secret cannot be used.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum SecretError {
        /// It is too short.
        TooShort {
            /// Bytes it has.
            bytes: usize,
        } => "the cluster's secret has {bytes} bytes; it needs at least {MIN_SECRET}",
        /// It is longer than [`MAX_SECRET`].
        TooLong => "the cluster's secret has more than {MAX_SECRET} bytes",
        /// Users other than its owner and group may read or write its file, or its group may write it.
        Exposed {
            /// The file.
            path: std::path::PathBuf,
            /// Its mode, as in `chmod`.
            mode: u32,
        } => (
            "the file with the cluster's secret, {path}, has mode {mode:04o}: other users may read or change \
                it. Run: chmod 600 {path}",
            path = path.display(),
        ),
        /// Its file cannot be read.
        Unreadable {
            /// The file.
            path: std::path::PathBuf,
            /// Why.
            error: std::io::Error,
        } => ("the cluster's secret cannot be read from {}: {error}", path.display()) because error,
    }
}

impl Secret {
    /// Makes a secret of these bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        if bytes.len() < MIN_SECRET {
            return Err(SecretError::TooShort { bytes: bytes.len() });
        }
        if bytes.len() > MAX_SECRET {
            return Err(SecretError::TooLong);
        }
        // HMAC accepts keys of any length, so this never fails. If it did, the length would be the reason.
        Hmac::new_from_slice(bytes).map(Self).map_err(|_| SecretError::TooLong)
    }

    /// Reads the secret from a file: all its bytes, without line ends at the end. The file's mode must admit
    /// only the owner, and the group for reading.
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        let unreadable = |error| SecretError::Unreadable { path: path.to_owned(), error };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let found = file.metadata().map_err(unreadable)?;
        let mode = found.permissions().mode() & 0o7777;
        // The mode of a pipe or a terminal does not show which users know its content.
        if found.is_file() && mode & 0o026 != 0 {
            return Err(SecretError::Exposed { path: path.to_owned(), mode });
        }
        let mut bytes = Vec::new();
        // Room for the longest secret and a line end, plus one byte to detect a longer secret. The bound also
        // makes an endless file an error.
        file.take(MAX_SECRET as u64 + 3).read_to_end(&mut bytes).map_err(unreadable)?;
        let len = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        Self::new(&bytes[..len])
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

/// A number used once.
pub fn nonce() -> Result<Nonce, getrandom::Error> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce)?;
    Ok(nonce)
}

/// The mac of an `Introduce` whose other bytes are `covered`; all zero without a secret.
pub fn client_mac(secret: Option<&Secret>, covered: &[u8], server: &Nonce) -> Mac {
    secret
        .map_or([0; 32], |secret| secret.mac(&[CLIENT_LABEL, covered, server]).finalize().into_bytes().into())
}

/// Whether the mac of an `Introduce` proves the secret. Without a secret there is nothing to prove.
pub fn client_is_genuine(secret: Option<&Secret>, covered: &[u8], server: &Nonce, mac: &Mac) -> bool {
    secret.is_none_or(|secret| secret.mac(&[CLIENT_LABEL, covered, server]).verify_slice(mac).is_ok())
}

/// The mac of a `Welcome` whose other bytes are `covered`; all zero without a secret.
pub fn server_mac(secret: Option<&Secret>, covered: &[u8], client: &Nonce, server: &Nonce) -> Mac {
    secret.map_or([0; 32], |secret| {
        secret.mac(&[SERVER_LABEL, covered, client, server]).finalize().into_bytes().into()
    })
}

/// Whether the mac of a `Welcome` proves the secret. Without a secret there is nothing to prove.
pub fn server_is_genuine(
    secret: Option<&Secret>,
    covered: &[u8],
    client: &Nonce,
    server: &Nonce,
    mac: &Mac,
) -> bool {
    secret.is_none_or(|secret| secret.mac(&[SERVER_LABEL, covered, client, server]).verify_slice(mac).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_mac_proves_one_secret_one_message_and_one_pair_of_nonces() {
        let (right, wrong) = (secret("correct horse battery"), secret("correct horse batterz"));
        let mac = client_mac(Some(&right), b"message", &[1; 32]);
        assert!(client_is_genuine(Some(&right), b"message", &[1; 32], &mac));
        assert!(!client_is_genuine(Some(&wrong), b"message", &[1; 32], &mac));
        assert!(!client_is_genuine(Some(&right), b"massage", &[1; 32], &mac));
        assert!(!client_is_genuine(Some(&right), b"message", &[2; 32], &mac));
        assert!(!client_is_genuine(Some(&right), b"message", &[1; 32], &[0; 32]));
        let mac = server_mac(Some(&right), b"message", &[1; 32], &[2; 32]);
        assert!(server_is_genuine(Some(&right), b"message", &[1; 32], &[2; 32], &mac));
        assert!(!server_is_genuine(Some(&right), b"message", &[2; 32], &[1; 32], &mac));
        assert!(!server_is_genuine(Some(&wrong), b"message", &[1; 32], &[2; 32], &mac));
        // Even for a message that ends with a nonce, one side's mac differs from the other side's.
        let both = [b"message".as_slice(), &[1; 32]].concat();
        assert_ne!(mac, client_mac(Some(&right), &both, &[2; 32]));
    }

    #[test]
    fn the_mac_is_hmac_sha256() {
        // RFC 4231, test case 3, through the same primitive: a key of 20 bytes 0xaa, data of 50 bytes 0xdd.
        let mac = Secret::new(&[0xaa; 20]).unwrap().mac(&[&[0xdd; 20], &[0xdd; 30]]).finalize().into_bytes();
        assert_eq!(mac[..8], [0x77, 0x3e, 0xa9, 0x1e, 0x36, 0x80, 0x0e, 0x46]);
    }

    #[test]
    fn a_secret_does_not_show_itself() {
        assert_eq!(format!("{:?}", secret("correct horse battery")), "Secret(..)");
    }

    #[test]
    fn a_file_s_line_end_does_not_belong_to_the_secret() {
        let folder = std::env::temp_dir().join(format!("sherman-secret-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("secret");
        let of = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            Secret::from_file(&path)
        };
        let mac = |secret: &Secret| client_mac(Some(secret), b"", &[0; 32]);
        let plain = mac(&secret("correct horse battery"));
        for text in ["correct horse battery", "correct horse battery\n", "correct horse battery\r\n"] {
            assert_eq!(mac(&of(text.as_bytes()).unwrap()), plain);
        }
        assert_ne!(mac(&of(b"correct horse battery \n").unwrap()), plain);
        assert!(matches!(of(b"fifteen bytes..\n"), Err(SecretError::TooShort { bytes: 15 })));
        assert!(matches!(of(b""), Err(SecretError::TooShort { bytes: 0 })));
        assert!(of(&[b'x'; MAX_SECRET]).is_ok());
        assert!(matches!(of(&[b'x'; MAX_SECRET + 1]), Err(SecretError::TooLong)));
        for (mode, allowed) in
            [(0o400, true), (0o640, true), (0o644, false), (0o604, false), (0o602, false), (0o660, false)]
        {
            std::fs::write(&path, "correct horse battery").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match Secret::from_file(&path) {
                Ok(_) => assert!(allowed, "{mode:o}"),
                Err(error) => {
                    let (said, path) = (error.to_string(), path.display());
                    assert!(!allowed && said.contains(&format!("mode {mode:04o}")), "{said}");
                    assert!(said.ends_with(&format!("Run: chmod 600 {path}")), "{said}");
                }
            }
            std::fs::remove_file(&path).unwrap();
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(Secret::from_file(&path), Err(SecretError::Unreadable { .. })));
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }
}
