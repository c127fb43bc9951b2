//! Servers in threads of this process, and clients that map their memory.
#![cfg(target_os = "linux")]
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod contract;
mod links;
mod raw;
