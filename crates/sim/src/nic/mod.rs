//! The NIC model: virtual time instead of an adversary.

mod params;

pub use params::Params;
