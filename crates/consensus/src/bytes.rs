//! Little-endian fields in byte strings, for the wire and for the log.

/// Appends fields to a byte string.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A length and that many bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn numbers(&mut self, numbers: &[u64]) -> &mut Self {
        self.u64(numbers.len() as u64);
        for number in numbers {
            self.u64(*number);
        }
        self
    }
}

/// Takes fields from a byte string. Every method returns `None` where the bytes end too early.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        self.u8().filter(|byte| *byte < 2).map(|byte| byte == 1)
    }

    pub(crate) fn bytes(&mut self) -> Option<Vec<u8>> {
        let count = usize::try_from(self.u64()?).ok()?;
        self.take(count).map(<[u8]>::to_vec)
    }

    pub(crate) fn numbers(&mut self) -> Option<Vec<u64>> {
        let count = usize::try_from(self.u64()?).ok()?;
        // No more than the bytes that are there: a length from outside allocates nothing.
        if count > self.0.len() / 8 {
            return None;
        }
        (0..count).map(|_| self.u64()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
