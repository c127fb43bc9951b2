//! The real command, and clusters of real processes. All tests are one program, because building one takes as
//! long as building all of them.
#![cfg(target_os = "linux")]
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod bench;
mod check;
mod client;
mod cluster;
mod commands;
mod common;
mod contract;
mod costs;
#[path = "../../../sherman/examples/endless_inserts.rs"]
mod endless_inserts;
mod exit_codes;
mod figures;
mod hosts;
mod identity;
mod idle;
mod intruders;
mod joining;
mod kills;
mod litmus;
mod lives;
mod losses;
mod members;
mod mending;
mod moves;
#[cfg(feature = "mutants")]
mod mutants;
mod network;
#[path = "../../../soft-nic/tests/raw/mod.rs"]
mod raw;
mod readme;
mod refusals;
mod replicated;
mod restarts;
mod returns;
mod scripts;
mod serving;
mod short_lives;
mod sim;
mod trees;
mod trials;
#[cfg(feature = "verbs")]
mod verbs;
mod wedged;
