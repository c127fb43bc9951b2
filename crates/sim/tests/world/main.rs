//! The simulated world itself: its rules, faults and checkers, and the tree on real threads.

mod contract;
mod faults;
mod linear;
mod litmus;
mod protocol;
mod threads;
mod world;
