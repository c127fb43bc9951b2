//! Hosts in one process, over Unix sockets: they form a cluster, and survive the loss of one of them.

mod cluster;
mod common;
mod makings;
mod refused;
