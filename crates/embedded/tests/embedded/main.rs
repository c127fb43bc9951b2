//! Embedded memory: the fabric contract, atomicity of lines and lanes, fences, halts and bad input.
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod common;
mod contract;
mod errors;
mod fences;
mod halts;
mod lanes;
mod lines;
mod litmus;
mod replicated;
