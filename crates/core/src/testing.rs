//! How much the long tests do.

/// Whether they run in full, as in `.ci/run`. A plain `cargo test` runs a part of them.
pub(crate) fn runs_in_full() -> bool {
    let schedules = std::env::var("SHERMAN_SCHEDULES").ok().and_then(|text| text.parse::<u64>().ok());
    schedules.is_some_and(|schedules| schedules >= 60_000)
}
