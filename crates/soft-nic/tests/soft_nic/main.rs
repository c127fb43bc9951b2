//! The soft NIC from both sides. What looks at the whole process (`idle`, `descriptors`) is a program of its own.
#![cfg(target_os = "linux")]

mod client;
mod contract;
mod fake;
mod fences;
mod handshake;
mod hostile;
mod identity;
mod lives;
mod paths;
#[path = "../raw/mod.rs"]
mod raw;
