//! The soft NIC from both sides. Tests that examine the whole process (`idle`, `descriptors`) are programs of
//! their own.
#![cfg(target_os = "linux")]
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod client;
mod contract;
mod copies;
mod fake;
mod fences;
mod group;
mod handshake;
mod hostile;
mod identity;
mod lives;
mod paths;
#[path = "../raw/mod.rs"]
mod raw;
mod several;
