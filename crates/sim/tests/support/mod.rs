//! How much the long suites do.

/// Number of schedules with crashes, unless `SHERMAN_SCHEDULES` is set.
const PLAIN: u64 = 10_000;
/// From this many schedules on, all suites run in full.
#[allow(dead_code, reason = "each test binary uses its part")]
pub const FULL: u64 = 60_000;

/// Returns the number of schedules with crashes: `SHERMAN_SCHEDULES`, or enough for a plain `cargo test`.
pub fn schedules() -> u64 {
    std::env::var("SHERMAN_SCHEDULES")
        .map_or(PLAIN, |all| all.parse().expect("SHERMAN_SCHEDULES is a number"))
}

/// Whether all suites run in full, as in `.ci/run`. A plain `cargo test` runs a part of them.
#[allow(dead_code, reason = "each test binary uses its part")]
pub fn runs_in_full() -> bool {
    schedules() >= FULL
}
