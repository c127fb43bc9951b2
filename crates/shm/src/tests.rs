pub(crate) fn midway(_: &[std::sync::atomic::AtomicU64]) {}
