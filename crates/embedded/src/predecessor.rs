//! A process that takes the place of one that is ending.
//!
//! A process that was killed keeps its locks and sockets until the system has taken its memory back. A server
//! that is started again at once meets them, and waits a little.

use std::time::{Duration, Instant};

/// How long a process waits for the end of another one.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// Repeats `attempt` while its error is one that another process causes by using something, for two seconds.
///
/// # Errors
/// The last error of `attempt`.
pub fn wait_for_predecessor<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    in_use: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let until = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if in_use(&error) && Instant::now() < until => std::thread::sleep(PAUSE),
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_use_is_tried_again_and_not_for_ever() {
        let mut left = 3;
        let mut attempt = || {
            left -= 1;
            if left > 0 { Err("in use") } else { Ok(left) }
        };
        assert_eq!(wait_for_predecessor(&mut attempt, |error| *error == "in use"), Ok(0));
        assert_eq!(wait_for_predecessor(|| Err::<(), _>("other"), |error| *error == "in use"), Err("other"));
        let began = Instant::now();
        assert_eq!(wait_for_predecessor(|| Err::<(), _>("in use"), |_| true), Err("in use"));
        assert!(began.elapsed() >= PATIENCE);
    }
}
