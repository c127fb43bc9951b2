//! `sherman cluster up`: a whole cluster of processes on this host.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | the options |
//! | [`place`] | the directory of its sockets |
//! | [`fleet`] | starts the server processes, notices when one ends, stops them in order |
//! | [`up`] | the command |

pub mod args;
mod fleet;
mod place;
pub mod up;
