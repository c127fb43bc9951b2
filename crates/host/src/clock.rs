//! A clock that runs while the machine sleeps. Leases and the group use it: a host that slept must not
//! believe that no time has passed.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine was booted.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    // Neither field is negative on this clock.
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::now;

    #[test]
    fn the_clock_goes_on() {
        let before = now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(before > 0 && now() >= before + 2_000_000);
    }
}
