//! Counters for Prometheus: the text format, a memory server's counters in it, and a listener that answers
//! `GET /metrics`.
//!
//! | module | what |
//! |---|---|
//! | [`text`] | the text format that Prometheus reads |
//! | [`server`] | a memory server's counters as such a text |
//! | [`listener`] | answers `GET /metrics` |

#![forbid(unsafe_code)]

pub mod listener;
pub mod server;
pub mod text;

pub use listener::MetricsListener;
pub use server::server_text;
pub use text::Text;
