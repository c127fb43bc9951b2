//! HOCL, the hierarchical on-chip lock (paper §4.3).

pub mod local;
