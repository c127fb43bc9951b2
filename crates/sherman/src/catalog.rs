//! Trees by name: opening existing trees, describing and dropping them.

use crate::cluster::Cluster;
use crate::codec::{Key, TreeValue, tree_types};
use crate::tree::{RawTree, Tree};
use sherman_core::node::TreeShape;
use sherman_core::node::block::longest_short;
use sherman_core::{Error, Format};
use sherman_fabric::TreeTypes;
use sherman_fabric::control::TreeInfo;

/// The fixed properties of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeDescription {
    /// The tree's name.
    pub name: String,
    /// Unique in the cluster, never reused.
    pub id: u32,
    /// The format of the tree's nodes.
    pub format: Format,
    /// The types of keys and values. `None` if the tree's creator gave none.
    pub types: Option<TreeTypes>,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value. If values have any length: bytes of the longest value that a leaf itself holds.
    pub value_bytes: usize,
    /// Whether values have any length.
    pub any_length: bool,
    /// Bytes of a leaf.
    pub leaf_bytes: usize,
    /// Bytes of an internal node.
    pub internal_bytes: usize,
    /// Entries a leaf can hold.
    pub entries_per_leaf: usize,
    /// Separators an internal node can hold.
    pub entries_per_internal: usize,
}

/// Describes the tree of a catalog entry.
///
/// # Errors
/// [`Error::Shape`] if this version does not know the kind of the tree.
impl TryFrom<TreeInfo> for TreeDescription {
    type Error = Error;

    fn try_from(info: TreeInfo) -> Result<Self, Error> {
        let TreeShape { leaf, internal } = TreeShape::new(&info.spec, info.id)?;
        Ok(Self {
            name: info.name,
            id: info.id,
            format: leaf.format(),
            types: info.types,
            key_bytes: leaf.key_len(),
            value_bytes: match info.spec.has_blocks() {
                true => longest_short(leaf.payload_len()),
                false => leaf.payload_len(),
            },
            any_length: info.spec.has_blocks(),
            leaf_bytes: leaf.node_bytes(),
            internal_bytes: internal.node_bytes(),
            entries_per_leaf: leaf.capacity(),
            entries_per_internal: internal.capacity(),
        })
    }
}

impl Cluster {
    /// All trees of the cluster, sorted by name. One control request.
    pub fn trees(&self) -> Result<Vec<TreeInfo>, Error> {
        self.run(async |worker| worker.trees().await)
    }

    /// The catalog's description of a tree. One control request.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`].
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// cluster.tree::<u64, [u8; 24]>("users")?;
    /// let users = cluster.describe("users")?;
    /// assert_eq!((users.key_bytes, users.value_bytes), (8, 24));
    /// assert_eq!(users.entries_per_leaf, 15);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn describe(&self, name: &str) -> Result<TreeDescription, Error> {
        let found = self.trees()?.into_iter().find(|tree| tree.name == name);
        TreeDescription::try_from(found.ok_or_else(|| Error::NoSuchTree { name: name.to_owned() })?)
    }

    /// Opens the existing tree `name`, with any options.
    ///
    /// # Errors
    /// [`Error::TreeMismatch`] if the tree's keys or values have other sizes. [`Error::TypeMismatch`] if the
    /// tree was created with other types. [`Error::NoSuchTree`]: this call does not create a tree.
    ///
    /// ```
    /// # use sherman::Error;
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// assert!(matches!(cluster.open_tree::<u64, u64>("orders"), Err(Error::NoSuchTree { .. })));
    /// cluster.tree::<u64, u64>("orders")?;
    /// assert!(cluster.open_tree::<u64, u64>("orders").is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_tree<K: Key, V: TreeValue>(&self, name: &str) -> Result<Tree<K, V>, Error> {
        let tree = self.open_raw_tree(name)?;
        let spec = tree.info().spec;
        // Values of any length fit slots of any size.
        let any = V::FIXED.is_none() && spec.has_blocks();
        let value_bytes = if any { 0 } else { spec.value_len };
        if spec.has_blocks() != V::FIXED.is_none() {
            let (what, asked, found) = ("values of any length: 1, or not: 0", 0, 1);
            let (asked, found) = if spec.has_blocks() { (asked, found) } else { (found, asked) };
            return Err(Error::TreeMismatch { name: name.to_owned(), what, asked, found });
        }
        for (what, asked, found) in [
            ("key size", K::LEN as u64, u64::from(spec.key_len)),
            ("value size", V::FIXED.unwrap_or_default() as u64, u64::from(value_bytes)),
        ] {
            if asked != found {
                return Err(Error::TreeMismatch { name: name.to_owned(), what, asked, found });
            }
        }
        tree.state().check_types(tree_types::<K, V>().as_ref())?;
        Ok(tree.typed())
    }

    /// Opens the existing tree `name`, for keys and values as byte strings, whatever its types.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`]: this call does not create a tree.
    pub fn open_raw_tree(&self, name: &str) -> Result<RawTree, Error> {
        Ok(self.adopt(self.run(async |worker| worker.open_tree(name).await)?))
    }

    /// Drops a tree and returns how many nodes it freed. The name is free at once. The nodes become free one
    /// after the other, at two round trips each. From then on operations on the tree fail with
    /// [`Error::NoSuchTree`]. If a dead client's lock prevents freeing a node now, a thread of this handle
    /// frees it later. The call is repeated if this compute server's identity ends before anything was
    /// changed.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`], [`Error::Timeout`]: nothing was changed. [`Error::OutcomeUnknown`]: the tree
    /// may be gone.
    pub fn drop_tree(&self, name: &str) -> Result<u64, Error> {
        Ok(self.run(async |worker| worker.drop_tree(name).await)?.nodes)
    }
}
