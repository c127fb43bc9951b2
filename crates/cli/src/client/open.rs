//! Opens or creates the tree of a command.

use super::args::{CreateArgs, TreeArgs};
use super::column::{Column, Form};
use crate::failure::Failure;
use sherman::{Cluster, Error, RawTree, ShortLayout, TreeDescription, TreeOptions};

/// The default limit for text, in bytes.
const TEXT: usize = 32;

/// A tree, and the types of its keys and values.
pub struct Opened {
    /// The tree.
    pub tree: RawTree,
    /// Its keys.
    pub key: Column,
    /// Its values.
    pub value: Column,
    /// Whether this command created it.
    pub created: bool,
}

impl Opened {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.tree.info().name
    }

    /// Parses a key from the command line.
    pub fn parse_key(&self, text: &str) -> Result<Vec<u8>, Failure> {
        self.key.parse(text).map_err(|reason| Failure::Usage(format!("KEY: {reason}")))
    }

    /// Parses a value from the command line.
    pub fn parse_value(&self, text: &str) -> Result<Vec<u8>, Failure> {
        self.value.parse(text).map_err(|reason| Failure::Usage(format!("VALUE: {reason}")))
    }
}

/// Opens the named tree, or the only tree of the cluster.
pub fn open(cluster: &Cluster, args: &TreeArgs) -> Result<Opened, Failure> {
    let name = match &args.tree {
        Some(name) => name.clone(),
        None => the_only_one(cluster)?,
    };
    let tree = cluster.open_raw_tree(&name).map_err(|error| with_names(cluster, error))?;
    written(tree, args)
}

/// Opens the tree, or creates it if the options ask for that.
pub fn open_or_create(cluster: &Cluster, args: &TreeArgs, create: &CreateArgs) -> Result<Opened, Failure> {
    let (true, Some(name)) = (create.create, &args.tree) else { return open(cluster, args) };
    match cluster.open_raw_tree(name) {
        Ok(tree) => {
            let opened = written(tree, args)?;
            agree(&cluster.describe(name)?, args, create)?;
            Ok(opened)
        }
        Err(Error::NoSuchTree { .. }) => {
            let options = options(args, create)?;
            options.entries_per_node().map_err(|error| Failure::option("node-size", error))?;
            let (tree, created) = cluster.raw_tree_or_new(name, &options)?;
            Ok(Opened { created, ..written(tree, args)? })
        }
        Err(error) => Err(error.into()),
    }
}

fn written(tree: RawTree, args: &TreeArgs) -> Result<Opened, Failure> {
    let spec = tree.info().spec;
    let key = Column::new(args.key_type, usize::from(spec.key_len));
    let value = match spec.has_blocks() {
        true => Ok(Column::of_any_length(args.value_type)),
        false => Column::new(args.value_type, spec.value_len as usize),
    };
    Ok(Opened {
        tree,
        key: key.map_err(|reason| Failure::option("key-type", reason))?,
        value: value.map_err(|reason| Failure::option("value-type", reason))?,
        created: false,
    })
}

/// Undoes a failed command: drops the tree if the command created it and it is still empty.
pub fn undo(cluster: &Cluster, opened: &Opened, failure: Failure) -> Failure {
    if !opened.created {
        return failure;
    }
    let name = opened.name();
    let drop_if_empty = || match opened.tree.client()?.is_empty()? {
        true => cluster.drop_tree(name).map(drop),
        false => Ok(()),
    };
    match drop_if_empty() {
        Ok(()) | Err(Error::NoSuchTree { .. }) => failure,
        Err(error) => {
            failure.and(format!("the tree {name:?}, which this command created, may still exist: {error}"))
        }
    }
}

fn the_only_one(cluster: &Cluster) -> Result<String, Failure> {
    match &cluster.trees()?[..] {
        [only] => Ok(only.name.clone()),
        _ => Err(Failure::option("tree", format!("name the tree; {}", names(cluster)?))),
    }
}

/// Returns the failure of an operation on a tree. If the tree does not exist, the failure lists the existing
/// trees.
pub fn with_names(cluster: &Cluster, error: Error) -> Failure {
    match (&error, names(cluster)) {
        (Error::NoSuchTree { .. }, Ok(names)) => Failure::No(format!("{error}; {names}")),
        _ => error.into(),
    }
}

fn names(cluster: &Cluster) -> Result<String, Failure> {
    let names: Vec<String> = cluster.trees()?.into_iter().map(|tree| tree.name).collect();
    Ok(if names.is_empty() {
        "the cluster has no trees".to_owned()
    } else {
        format!("the cluster has {}", names.join(", "))
    })
}

/// Returns the bytes of a column, from its form and the size option.
fn column_bytes(option: &str, form: Option<Form>, size: Option<usize>) -> Result<usize, Failure> {
    match (form, size) {
        (Some(Form::Unsigned(own) | Form::Signed(own)), Some(said)) if own != said => {
            Err(Failure::option(option, format!("an integer of this type has {own} bytes, not {said}")))
        }
        (Some(Form::Unsigned(own) | Form::Signed(own)), _) => Ok(own),
        (Some(Form::Text), said) => {
            let layout = ShortLayout::with_limit(said.unwrap_or(TEXT));
            layout
                .map(ShortLayout::size)
                .ok_or_else(|| Failure::option(option, "text has at most 65535 bytes"))
        }
        (Some(Form::Hex), None) => {
            Err(Failure::option(option, "give the number of bytes, because hex has no size"))
        }
        (_, said) => Ok(said.unwrap_or(8)),
    }
}

fn options(args: &TreeArgs, create: &CreateArgs) -> Result<TreeOptions, Failure> {
    let keys = column_bytes("key-size", args.key_type, create.key_size)?;
    let values = match create.any_length {
        true => 0,
        false => column_bytes("value-size", args.value_type, create.value_size)?,
    };
    if !(1..=1024).contains(&keys) {
        return Err(Failure::option("key-size", format!("keys have 1 to 1024 bytes, not {keys}")));
    }
    let options = TreeOptions::new().sizes(keys, values);
    let options = if create.any_length { options.values_of_any_length() } else { options };
    let options = create.node_size.map_or(options.clone(), |bytes| options.node_bytes(bytes));
    Ok(create.node_format.map_or(options.clone(), |format| options.format(format)))
}

/// Refuses options that contradict an existing tree. Options that were left out do not matter.
fn agree(tree: &TreeDescription, args: &TreeArgs, create: &CreateArgs) -> Result<(), Failure> {
    let keys = create.key_size.map(|size| column_bytes("key-size", args.key_type, Some(size))).transpose()?;
    let values =
        create.value_size.map(|size| column_bytes("value-size", args.value_type, Some(size))).transpose()?;
    if create.any_length != tree.any_length && (create.any_length || values.is_some()) {
        let (option, reason) = match create.any_length {
            true => ("any-length", "the tree already exists with values of one length"),
            false => ("value-size", "the tree already exists with values of any length"),
        };
        return Err(Failure::option(option, reason));
    }
    for (option, asked, found) in [
        ("key-size", keys, tree.key_bytes),
        ("value-size", values, tree.value_bytes),
        ("node-size", create.node_size, tree.leaf_bytes),
    ] {
        if let Some(asked) = asked.filter(|&asked| asked != found) {
            let reason = format!("the tree already exists with {found} bytes, not {asked}");
            return Err(Failure::option(option, reason));
        }
    }
    match create.node_format.filter(|&format| format != tree.format) {
        Some(_) => Err(Failure::option(
            "node-format",
            format!("the tree already exists with the format {}", tree.format.name()),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::point_args::PutArgs;
    use super::super::testing::{cluster, parsed};
    use super::*;

    fn put(line: &[&str]) -> PutArgs {
        parsed(&[line, &["1", "2"]].concat())
    }

    fn sizes(cluster: &Cluster, line: &[&str]) -> Result<(usize, usize), Failure> {
        let args = put(line);
        let spec = open_or_create(cluster, &args.at, &args.create)?.tree.info().spec;
        Ok((usize::from(spec.key_len), spec.value_len as usize))
    }

    #[test]
    fn sizes_follow_from_types() {
        let cluster = cluster();
        for (name, line, expected) in [
            ("a", &[][..], (8, 8)),
            ("b", &["--key-type", "i32", "--value-type", "text"], (4, 33)),
            ("c", &["--key-type", "text", "--key-size", "300", "--node-size", "4KiB"], (302, 8)),
            ("d", &["--key-type", "hex", "--key-size", "5", "--value-size", "0"], (5, 0)),
            ("e", &["--key-size", "16", "--value-size", "24"], (16, 24)),
        ] {
            let line = [&["--create", "--tree", name], line].concat();
            assert_eq!(sizes(&cluster, &line), Ok(expected), "{line:?}");
            assert_eq!(sizes(&cluster, &line), Ok(expected), "{line:?}, the second time");
        }
    }

    #[test]
    fn a_tree_that_cannot_be_made_is_refused_by_the_option_at_fault() {
        let cluster = cluster();
        for (line, option) in [
            (&["--key-type", "hex"][..], "key-size"),
            (&["--key-type", "u32", "--key-size", "8"], "key-size"),
            (&["--key-size", "0"], "key-size"),
            (&["--key-size", "1025"], "key-size"),
            (&["--value-size", "1000"], "node-size"),
            (&["--node-size", "1000"], "node-size"),
            (&["--value-type", "text", "--value-size", "70000"], "value-size"),
        ] {
            let failure =
                sizes(&cluster, &[&["--create", "--tree", "t"], line].concat()).expect_err("refused");
            let Failure::Usage(said) = failure else { panic!("{failure}") };
            assert!(said.starts_with(&format!("--{option}: ")), "{line:?}: {said}");
        }
        assert!(cluster.trees().expect("trees").is_empty());
    }

    #[test]
    fn a_tree_that_is_there_must_be_as_it_is_described() {
        let cluster = cluster();
        let create = ["--create", "--tree", "t"];
        let text = ["--key-type", "text", "--key-size", "10"];
        assert_eq!(sizes(&cluster, &[&create[..], &text].concat()), Ok((11, 8)));
        assert_eq!(
            sizes(&cluster, &[&create[..], &["--key-type", "text"]].concat()),
            Ok((11, 8)),
            "as it is"
        );
        for (line, option) in [
            (&["--key-type", "text", "--key-size", "20"][..], "key-size"),
            (&["--value-size", "9"], "value-size"),
            (&["--node-size", "512"], "node-size"),
            (&["--node-format", "sorted"], "node-format"),
            (&["--key-type", "u64"], "key-type"),
        ] {
            let failure = sizes(&cluster, &[&create[..], line].concat()).expect_err("refused");
            assert!(failure.to_string().contains(&format!("--{option}: ")), "{line:?}: {failure}");
        }
    }

    #[test]
    fn the_only_tree_need_not_be_named() {
        let cluster = cluster();
        let which = |line: &[&str]| open(&cluster, &put(line).at).map(|opened| opened.name().to_owned());
        assert!(
            which(&[])
                .expect_err("none")
                .to_string()
                .contains("--tree: name the tree; the cluster has no trees")
        );
        cluster.tree::<u64, u64>("orders").expect("a tree");
        assert_eq!(which(&[]), Ok("orders".to_owned()));
        cluster.tree::<u64, u64>("users").expect("a tree");
        assert!(
            which(&[]).expect_err("two").to_string().contains("name the tree; the cluster has orders, users")
        );
        let missing = which(&["--tree", "cats"]).expect_err("no such tree").to_string();
        assert!(
            missing.contains("there is no tree named \"cats\"; the cluster has orders, users"),
            "{missing}"
        );
    }
}
