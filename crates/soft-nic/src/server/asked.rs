//! The calls of one connection that the control plane is answering.
//!
//! The plane may answer them in any order, so that a renewal does not wait for a slow call before it. Their
//! number is bounded: with too many, the server receives nothing more of that client.

/// The most calls of one connection that the control plane answers at a time.
const MOST_ASKED: usize = 64;

/// Calls that wait for their answers.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// The tag of each call, and the bytes of its request.
    calls: Vec<(u64, usize)>,
}

impl Asked {
    /// Adds call `tag`, whose request has this many bytes.
    pub(super) fn add(&mut self, tag: u64, bytes: usize) {
        self.calls.push((tag, bytes));
    }

    /// Removes call `tag`. Returns whether there was one.
    pub(super) fn remove(&mut self, tag: u64) -> bool {
        let found = self.calls.iter().position(|(asked, _)| *asked == tag);
        found.map(|index| self.calls.swap_remove(index)).is_some()
    }

    /// Whether no call waits.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether no further call may wait.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.calls.len() >= MOST_ASKED
    }

    /// Bytes of the requests.
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.calls.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Forgets all calls.
    pub(super) fn clear(&mut self) {
        self.calls = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_with_the_same_tag_are_answered_one_by_one() {
        let mut asked = Asked::default();
        asked.add(1, 10);
        asked.add(1, 20);
        asked.add(2, 30);
        assert_eq!((asked.held(), asked.remove(3)), (60, false));
        assert!(asked.remove(1) && asked.remove(1) && !asked.remove(1));
        assert_eq!((asked.held(), asked.is_empty()), (30, false));
        (1..MOST_ASKED as u64).for_each(|tag| asked.add(tag, 1));
        assert!(asked.is_full());
        asked.clear();
        assert!(asked.is_empty() && !asked.is_full());
    }
}
