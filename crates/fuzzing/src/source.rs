//! Reads an input: numbers, choices and bytes. After its end, everything read is zero.

/// The unread rest of an input.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    bytes: &'a [u8],
}

impl<'a> Source<'a> {
    /// Starts at the beginning of an input.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Whether the input is used up.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// Returns yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Returns the next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Returns the next eight bytes.
    pub fn u64(&mut self) -> u64 {
        let mut word = [0; 8];
        word.fill_with(|| self.byte());
        u64::from_le_bytes(word)
    }

    /// Returns a number below `limit`. `limit` must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit <= 256 { usize::from(self.byte()) % limit } else { usize::from(self.u16()) % limit }
    }

    /// Returns one element of `from`.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns the next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let (now, later) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = later;
        let mut bytes = now.to_vec();
        bytes.resize(len, 0);
        bytes
    }

    /// Returns one of a few hundred keys of `len` bytes. They include the lowest, the highest, keys that
    /// differ at their end (as numbers do), and keys that differ at their beginning.
    pub fn key(&mut self, len: usize) -> Vec<u8> {
        let number = self.byte();
        let mut key = match number >> 6 {
            0 => vec![0; len],
            1 => vec![0xff; len],
            2 => vec![0xa5; len],
            _ => return self.bytes(len),
        };
        let at = if number & 1 == 0 { 0 } else { len - 1 };
        key[at] = self.byte();
        key
    }

    /// Overwrites a few bytes of `image`: one by one, as words, or whole stretches. Most of them are in its
    /// first line, which holds the most important fields.
    pub fn damage(&mut self, image: &mut [u8]) {
        if image.is_empty() {
            return;
        }
        for _ in 0..=self.below(8) {
            let how = self.byte();
            let within = if how & 1 == 0 { image.len() } else { image.len().min(64) };
            let at = self.below(within);
            match how >> 1 & 3 {
                0 => image[at] = self.byte(),
                1 => image[at] ^= 1 << (how >> 5),
                2 => {
                    let word = self.u64().to_le_bytes();
                    let len = word.len().min(image.len() - at);
                    image[at..at + len].copy_from_slice(&word[..len]);
                }
                _ => {
                    let len = self.below(64).min(image.len() - at);
                    let byte = self.byte();
                    image[at..at + len].fill(byte);
                }
            }
        }
    }
}
