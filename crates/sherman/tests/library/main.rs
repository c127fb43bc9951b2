//! The library as its users see it.
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod bad_input;
mod callers;
mod catalog_races;
mod growth;
#[cfg(target_os = "linux")]
mod identity;
mod membership;
mod mending;
mod model;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod one_key;
mod panics;
mod replicated;
mod strays;
mod suites;
mod types;
mod values;
