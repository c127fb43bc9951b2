//! Large arrays of atomics, in pages that come zeroed from the operating system or from a mapped file.
//!
//! | module | what |
//! |---|---|
//! | [`zeroed`] | large arrays that cost nothing until used, in huge pages |
//! | [`mapped`] | such an array in a file |
//!
//! `unsafe` is in both: an allocation or a mapped file as a slice, and advice about its pages.

pub mod mapped;
pub mod zeroed;

pub use mapped::{LockedFile, Mapping};
pub use zeroed::{Zeroable, Zeroed};
