//! The local lock table.
