//! Servers in threads of this process, and clients that map their memory.
#![cfg(target_os = "linux")]

mod contract;
mod links;
mod raw;
