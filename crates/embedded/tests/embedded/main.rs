//! Embedded memory: the fabric contract, atomicity of lines and lanes, fences, halts and bad input.

mod common;
mod contract;
mod errors;
mod fences;
mod halts;
mod lanes;
mod lines;
mod litmus;
