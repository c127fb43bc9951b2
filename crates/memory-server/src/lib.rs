//! memory-server
