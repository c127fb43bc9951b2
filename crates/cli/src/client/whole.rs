//! `sherman drop` and `sherman clear`: commands on a whole tree, after a confirmation.

use super::args::WholeTreeArgs;
use super::open::with_names;
use crate::failure::Failure;
use crate::output::print;
use serde_json::json;
use sherman::Cluster;
use sherman_eval::report::grouped;
use std::io::{BufRead, IsTerminal};

/// Drops a tree.
pub fn drop(args: &WholeTreeArgs) -> Result<(), Failure> {
    let cluster = confirmed(args, "drop", "destroys the tree and all its entries")?;
    let nodes = cluster.drop_tree(&args.tree).map_err(|error| with_names(&cluster, error))?;
    let text = format!("dropped {}: {} nodes freed\n", args.tree, grouped(nodes));
    print(&if args.json {
        format!("{}\n", json!({ "dropped": args.tree, "nodes_freed": nodes }))
    } else {
        text
    })
}

/// Removes every entry of a tree.
pub fn clear(args: &WholeTreeArgs) -> Result<(), Failure> {
    let cluster = confirmed(args, "clear", "removes all its entries")?;
    let tree = cluster.open_raw_tree(&args.tree).map_err(|error| with_names(&cluster, error))?;
    let entries = tree.client()?.clear()?;
    let text = format!("cleared {}: {} entries removed\n", args.tree, grouped(entries));
    print(&if args.json {
        format!("{}\n", json!({ "cleared": args.tree, "entries_removed": entries }))
    } else {
        text
    })
}

/// Opens the cluster after the user confirms. The command first checks that the tree exists.
fn confirmed(args: &WholeTreeArgs, verb: &str, consequence: &str) -> Result<Cluster, Failure> {
    let url = args.target.required()?;
    let asks = std::io::stdin().is_terminal() && !args.yes;
    if !asks && !args.yes {
        let reason =
            format!("\"sherman {verb}\" {consequence}. Confirm with --yes, because stdin is not a terminal");
        return Err(Failure::Usage(reason));
    }
    let cluster = super::open(&url)?;
    if asks {
        cluster.open_raw_tree(&args.tree).map_err(|error| with_names(&cluster, error))?;
        eprint!("This {consequence}, on {url}. Type the tree's name to continue: ");
        agree(&args.tree, &mut std::io::stdin().lock())?;
    }
    Ok(cluster)
}

/// Reads the answer. Anything but the tree's name cancels the command.
fn agree(tree: &str, input: &mut dyn BufRead) -> Result<(), Failure> {
    let mut answer = String::new();
    input
        .read_line(&mut answer)
        .map_err(|error| Failure::Runtime(format!("cannot read the answer: {error}")))?;
    if answer.trim_end_matches(['\r', '\n']) == tree {
        return Ok(());
    }
    Err(Failure::No("the answer is not the tree's name; nothing was changed".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tree_s_name_is_a_yes() {
        for yes in ["orders\n", "orders\r\n", "orders"] {
            assert_eq!(agree("orders", &mut yes.as_bytes()), Ok(()), "{yes:?}");
        }
        for no in ["", "\n", "y\n", "yes\n", "order\n", "orders \n"] {
            assert!(matches!(agree("orders", &mut no.as_bytes()), Err(Failure::No(_))), "{no:?}");
        }
    }
}
