//! The properties of trees.

use sherman_core::node::{NodeKind, ShapeError, TreeShape};
use sherman_core::{Error, Format};
use sherman_fabric::control::TreeSpec;

/// The most bytes of values of one length that a spec can tell.
const MOST: u32 = !TreeSpec::ANY_LENGTH;

/// The properties that are fixed when a tree is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    format: Format,
    key_bytes: usize,
    value_bytes: usize,
    /// Bytes of the slot of an entry if values have any length: `None` for a default.
    any_length: Option<Option<usize>>,
    leaf_bytes: usize,
    internal_bytes: usize,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            format: Format::LineHashed,
            key_bytes: 8,
            value_bytes: 8,
            any_length: None,
            leaf_bytes: 1024,
            internal_bytes: 1024,
        }
    }
}

impl TreeOptions {
    /// The defaults: `LineHashed` nodes of 1 KiB.
    pub fn new() -> Self {
        Self::default()
    }

    /// The node format.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Bytes of leaves and internal nodes: a multiple of 64 from 256 to 65536.
    pub fn node_bytes(mut self, bytes: usize) -> Self {
        self.leaf_bytes = bytes;
        self.internal_bytes = bytes;
        self
    }

    /// Bytes of a leaf only.
    pub fn leaf_bytes(mut self, bytes: usize) -> Self {
        self.leaf_bytes = bytes;
        self
    }

    /// Bytes of an internal node only.
    pub fn internal_bytes(mut self, bytes: usize) -> Self {
        self.internal_bytes = bytes;
        self
    }

    /// Bytes of keys (1 to 1024) and values. In typed trees the types set them.
    pub fn sizes(mut self, key_bytes: usize, value_bytes: usize) -> Self {
        self.key_bytes = key_bytes;
        self.value_bytes = value_bytes;
        self
    }

    /// Values have any length. [`sizes`](Self::sizes) still sets the bytes of keys. Types of any length, such
    /// as `Vec<u8>`, imply this.
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=256MiB")?;
    /// let options = sherman::TreeOptions::new().sizes(16, 0).values_of_any_length();
    /// let sessions = cluster.raw_tree("sessions", &options)?.client()?;
    /// sessions.insert(b"0123456789abcdef", vec![1; 100_000])?;
    /// assert_eq!(sessions.get(b"0123456789abcdef")?.map(|it| it.len()), Some(100_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn values_of_any_length(mut self) -> Self {
        self.any_length = Some(self.any_length.flatten());
        self
    }

    /// As [`values_of_any_length`](Self::values_of_any_length), with the bytes of a value that the leaf
    /// itself holds, at least 15. Longer values cost a get a second round trip. Larger leaf entries cost
    /// scans and gets of all keys more bytes. The default fills the lines of the leaf: 15 bytes for keys of
    /// 8.
    pub fn inline_value_bytes(mut self, bytes: usize) -> Self {
        self.any_length = Some(Some(bytes.max(15)));
        self
    }

    /// Bytes of the slots of entries, and the mark of values of any length.
    fn any_length_spec(&self, inline: Option<usize>) -> u32 {
        let (key, line, reference) = (self.key_bytes, 60, 16);
        let slot = match inline {
            Some(bytes) => bytes + if bytes < 255 { 1 } else { 2 },
            // Two entries for each line, or one, or as many lines as it takes.
            None if 2 * (key + reference) <= line => reference.max(line / 2 - key).min(22),
            None if key + reference <= line => line - key,
            None => (key + reference).next_multiple_of(58) - key,
        };
        let hashed = self.format == Format::LineHashed && inline.is_none() && 3 * key + 2 * reference <= 56;
        let slot = if hashed { reference } else { slot };
        u32::try_from(slot).unwrap_or(u32::MAX >> 1) | TreeSpec::ANY_LENGTH
    }

    /// How many entries a leaf and an internal node can hold, or why such nodes are not possible.
    pub fn entries_per_node(&self) -> Result<(usize, usize), Error> {
        let shape = TreeShape::new(&self.spec()?, 0)?;
        Ok((shape.leaf.capacity(), shape.internal.capacity()))
    }

    pub(crate) fn spec(&self) -> Result<TreeSpec, Error> {
        let too_large = |asked| Error::Shape(ShapeError::NodeSize { asked });
        Ok(TreeSpec {
            format: self.format.number(),
            key_len: u16::try_from(self.key_bytes)
                .map_err(|_| Error::Shape(ShapeError::KeyLength { asked: self.key_bytes }))?,
            value_len: match self.any_length {
                Some(inline) => self.any_length_spec(inline),
                // The highest bit marks values of any length.
                None => u32::try_from(self.value_bytes).ok().filter(|bytes| *bytes <= MOST).ok_or(
                    Error::Shape(ShapeError::TooSmall {
                        kind: NodeKind::Leaf,
                        node_bytes: self.leaf_bytes,
                        entries: 0,
                    }),
                )?,
            },
            leaf_bytes: u32::try_from(self.leaf_bytes).map_err(|_| too_large(self.leaf_bytes))?,
            internal_bytes: u32::try_from(self.internal_bytes).map_err(|_| too_large(self.internal_bytes))?,
        })
    }
}

/// The contents and limits of an index cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheUsage {
    /// Number of cached internal nodes.
    pub nodes: usize,
    /// Bytes of memory in use.
    pub bytes: usize,
    /// The most bytes of memory it may use.
    pub limit: usize,
}
