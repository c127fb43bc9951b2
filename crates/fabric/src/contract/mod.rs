//! The contract F1–F7 as a test suite that any backend can be run through (`docs/FABRIC.md`).
//!
//! `core` may assume F1–F7 and nothing else, so a backend that breaks one of them breaks the index in ways that no test
//! of the index would explain. The suite looks for breaches directly: each **scenario** is a handful of participants,
//! each on an [`Endpoint`](crate::Endpoint) of its own, that post verbs and compare what they see with what the rule
//! allows. A scenario demands nothing that the rules do not promise: an adversary that uses every freedom F1–F7 leave
//! must pass.
//!
//! The scenarios are plain async code. How participants run (real threads, one seeded scheduler with virtual time) is
//! the backend's business, told by its [`Harness`]; [`on_threads`] does it for backends with real threads. Participants
//! meet only in process memory, which they poll without ever blocking their thread, and through the fabric.
//!
//! What must hold: every wait is bounded by [`Patience`], so a backend that loses a completion ends in a [`Breach`]
//! that says what was waited for, not in a hang. What may go wrong: on real threads a breach shows only if the schedule
//! happens to expose it, so a clean [`Report`] there is evidence; in a simulator with many seeds it is much better
//! evidence; nowhere is it proof.

mod actor;
mod f1;
mod f2;
mod f3;
mod f4;
mod f4_lanes;
mod f5;
mod f6;
mod f7;
mod f7_input;
mod harness;
mod report;
mod scenario;
mod stage;
mod threads;

pub use harness::{Body, Harness, Participant, Patience, Scratch};
pub use report::{Breach, Entry, Outcome, Report, Rule};
pub use scenario::{only, replay, suite};
pub use threads::{on_threads, on_threads_of};
