//! Little-endian fields one after another.

/// Appends fields.
pub(super) trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, field: u8) {
        self.put(&[field]);
    }

    fn put_u16(&mut self, field: u16) {
        self.put(&field.to_le_bytes());
    }

    fn put_u32(&mut self, field: u32) {
        self.put(&field.to_le_bytes());
    }

    fn put_u64(&mut self, field: u64) {
        self.put(&field.to_le_bytes());
    }

    /// Bytes and their number.
    fn put_block(&mut self, block: &[u8]) {
        self.put_u64(block.len() as u64);
        self.put(block);
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Reads fields; `None` if the bytes end too early.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn block(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u64()?).ok()?;
        self.take(len)
    }

    /// `N` fields of one kind.
    pub(super) fn several<T: Copy + Default, const N: usize>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<[T; N]> {
        let mut fields = [T::default(); N];
        for field in &mut fields {
            *field = read(self)?;
        }
        Some(fields)
    }

    /// Refuses bytes that are left over.
    pub(super) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
