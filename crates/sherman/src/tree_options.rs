//! The properties of trees.

use sherman_core::node::{NodeKind, ShapeError, TreeShape};
use sherman_core::{Error, Format};
use sherman_fabric::control::TreeSpec;

/// The properties that are fixed when a tree is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    format: Format,
    key_bytes: usize,
    value_bytes: usize,
    leaf_bytes: usize,
    internal_bytes: usize,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            format: Format::LineHashed,
            key_bytes: 8,
            value_bytes: 8,
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
            value_len: u32::try_from(self.value_bytes).map_err(|_| {
                Error::Shape(ShapeError::TooSmall {
                    kind: NodeKind::Leaf,
                    node_bytes: self.leaf_bytes,
                    entries: 0,
                })
            })?,
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
