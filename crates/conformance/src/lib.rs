//! Suites that tell whether a backend is one: what `core` and the trees assume, tested from outside.
//!
//! | module | what |
//! |---|---|
//! | [`contract`] | F1–F7 as a test suite for any backend |
//! | [`litmus`] | programs that count how often hardware breaks F1–F4 |
//! | `trees` | trees on any cluster: models, stress, ranges, ledgers. Needs the feature `trees` |

#![forbid(unsafe_code)]

pub mod contract;
pub mod litmus;
#[cfg(feature = "trees")]
pub mod trees;
