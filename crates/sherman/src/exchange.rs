//! The outcome of a compare-and-exchange.

/// The outcome of a compare-and-exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the exchange may not have happened"]
pub enum Exchange<V> {
    /// The key had the expected value and now has the new one.
    Done,
    /// The key had another value. Nothing was changed.
    Found(V),
    /// The key was absent. Nothing was changed.
    Absent,
}

impl<V> Exchange<V> {
    /// Whether the exchange happened.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// The value found instead of the expected one. `None` if the exchange happened or the key was absent.
    pub fn found(self) -> Option<V> {
        match self {
            Self::Found(value) => Some(value),
            Self::Done | Self::Absent => None,
        }
    }

    /// The same outcome, with the value converted.
    pub(crate) fn map<W>(self, value: impl FnOnce(V) -> W) -> Exchange<W> {
        match self {
            Self::Done => Exchange::Done,
            Self::Found(found) => Exchange::Found(value(found)),
            Self::Absent => Exchange::Absent,
        }
    }
}
