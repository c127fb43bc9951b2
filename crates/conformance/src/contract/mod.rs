//! The contract F1–F7 as a test suite for any backend (`docs/FABRIC.md`).
//!
//! `core` may assume F1–F7 and nothing else. So a backend that breaks one of them breaks the index in ways
//! that no test of the index would explain. The suite looks for breaches directly. Each **scenario** is a
//! handful of participants, each on its own [`Endpoint`](sherman_fabric::Endpoint). They post verbs and
//! compare what they see with what the rule allows. A scenario demands nothing that the rules do not promise.
//! An adversary that uses every freedom of F1–F7 must pass.
//!
//! The scenarios are plain async code. The backend's [`Harness`] decides how participants run: on real
//! threads, or on one seeded scheduler with virtual time. [`on_threads`] does it for backends with real
//! threads. Participants meet only through the fabric and in process memory, which they poll without ever
//! blocking their thread.
//!
//! What must hold: [`Patience`] bounds every wait. So a backend that loses a completion ends in a [`Breach`]
//! that names the missing event, not in a hang. What may go wrong: on real threads a breach shows only if the
//! schedule happens to expose it. So a clean [`Report`] there is evidence. In a simulator with many seeds it
//! is much better evidence. It is never proof.

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
