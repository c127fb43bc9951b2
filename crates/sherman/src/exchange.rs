//! How a compare-and-exchange ended.

/// How a compare-and-exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the exchange may not have happened"]
pub enum Exchange<V> {
    /// The key was as expected, and is now as asked for.
    Done,
    /// It had another value. Nothing was changed.
    Found(V),
    /// It was absent. Nothing was changed.
    Absent,
}

impl<V> Exchange<V> {
    /// Whether it happened.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// What was found instead of what was expected: `None` if it happened, or the key was absent.
    pub fn found(self) -> Option<V> {
        match self {
            Self::Found(value) => Some(value),
            Self::Done | Self::Absent => None,
        }
    }

    /// The same with another form of the value.
    pub(crate) fn map<W>(self, value: impl FnOnce(V) -> W) -> Exchange<W> {
        match self {
            Self::Done => Exchange::Done,
            Self::Found(found) => Exchange::Found(value(found)),
            Self::Absent => Exchange::Absent,
        }
    }
}

impl From<sherman_core::Exchange> for Exchange<()> {
    fn from(exchange: sherman_core::Exchange) -> Self {
        match exchange {
            sherman_core::Exchange::Done => Self::Done,
            sherman_core::Exchange::Found => Self::Found(()),
            sherman_core::Exchange::Absent => Self::Absent,
        }
    }
}
