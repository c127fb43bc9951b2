//! The simulated world itself: its rules, faults and checkers, and the tree on real threads.
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod contract;
mod faults;
mod inline;
mod linear;
mod litmus;
mod protocol;
mod threads;
mod world;
