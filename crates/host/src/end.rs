//! How a host ends: once, for one reason, which every waiter sees.

use sherman_consensus::Stopped;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

sherman_fabric::errors! {
    /// Why a host has ended.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Ended {
        /// Its operator stopped it.
        Stopped => "the host was stopped",
        /// The cluster has declared it lost. Its copies do not count any more. Started again, it registers
        /// as a new host with empty memory.
        Lost {
            /// Its number.
            host: u16,
        } => "the cluster has declared host {host} lost. Start it again: it joins as a new host",
        /// Its copies have moved to other hosts, and it has left the cluster, as its operator wanted.
        Left {
            /// Its number.
            host: u16,
        } => "host {host} has left the cluster: other hosts have its copies",
        /// Its node of the group stopped.
        Group(why: Stopped) => "{why}" because why,
        /// It cannot make or promote a copy that the table names.
        Copy {
            /// The copy's number.
            copy: u16,
            /// What is wrong.
            what: String,
        } => "the host cannot serve copy {copy}: {what}",
        /// One of its threads failed.
        Panicked => "a thread of the host failed",
    }
}

/// The end of a host, for all its threads.
#[derive(Debug, Default)]
pub(crate) struct End {
    why: Mutex<Option<Ended>>,
    came: Condvar,
}

impl End {
    /// Ends the host. Only the first reason counts.
    pub(crate) fn set(&self, why: Ended) {
        let mut end = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        if end.is_none() {
            match &why {
                Ended::Stopped => {}
                Ended::Left { .. } => tracing::info!("the host stops: {why}"),
                why => tracing::error!("the host stops: {why}"),
            }
            *end = Some(why);
            self.came.notify_all();
        }
    }

    /// The reason, if the host has ended.
    pub(crate) fn why(&self) -> Option<Ended> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the end.
    pub(crate) fn wait(&self) -> Ended {
        let mut end = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(why) = &*end {
                return why.clone();
            }
            end = self.came.wait(end).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sleeps for `time`, but not beyond the end. Returns whether the host has ended.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let end = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.came.wait_timeout_while(end, time, |end| end.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_first_reason_is_the_one_that_all_see() {
        let end = Arc::new(End::default());
        assert!(!end.sleep(Duration::from_millis(1)) && end.why().is_none());
        let waiter = Arc::clone(&end);
        let waits = std::thread::spawn(move || waiter.wait());
        end.set(Ended::Lost { host: 2 });
        end.set(Ended::Stopped);
        assert_eq!(waits.join().ok(), Some(Ended::Lost { host: 2 }));
        assert!(end.sleep(Duration::from_secs(60)));
    }
}
