//! Which cluster a command uses: `--cluster URL`, or else the environment variable `SHERMAN_CLUSTER`.
//!
//! A command that inspects or changes a cluster never creates one: without a URL it is refused. Only commands
//! that are useful inside one process (`bench`, `litmus`) have a default. They print on stderr which cluster
//! they use.

use crate::failure::Failure;
use clap::Args;
use std::env::VarError;

/// The environment variable that names the cluster.
const VARIABLE: &str = "SHERMAN_CLUSTER";

/// The cluster of a command.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterOption {
    /// Use this cluster: tcp://a:7000,b:7000, unix:/run/a.sock,/run/b.sock, shm:/run/a.sock, verbs://a:7000
    /// or embedded:?memory=1GiB [default: the environment variable SHERMAN_CLUSTER]
    #[arg(long, value_name = "URL")]
    pub cluster: Option<String>,
}

impl ClusterOption {
    /// Returns the URL, if the command line or the environment has one. An empty variable counts as unset.
    pub fn given(&self) -> Result<Option<String>, Failure> {
        match (&self.cluster, std::env::var(VARIABLE)) {
            (Some(url), _) if url.is_empty() => Err(Failure::option("cluster", "the URL is empty")),
            (Some(url), _) => Ok(Some(url.clone())),
            (None, Ok(url)) => Ok(Some(url).filter(|url| !url.is_empty())),
            (None, Err(VarError::NotPresent)) => Ok(None),
            (None, Err(VarError::NotUnicode(_))) => Err(Failure::Usage(format!("{VARIABLE} is not UTF-8"))),
        }
    }

    /// Returns the URL. Without one the command is refused.
    pub fn required(&self) -> Result<String, Failure> {
        self.given()?.ok_or_else(|| {
            let empty = if std::env::var_os(VARIABLE).is_some() { ", which is empty" } else { "" };
            Failure::Usage(format!(
                "this command needs a cluster: give --cluster URL or set {VARIABLE}{empty}"
            ))
        })
    }
}

/// Prints on stderr which cluster a command with a default uses.
pub fn announce(what: &str) {
    eprintln!("running on {what}");
}

/// Describes the cluster of a command: `url`, or a cluster of its own.
pub fn described(url: Option<&str>) -> String {
    match url {
        Some(url) => url.to_owned(),
        None => "memory servers inside this process; --cluster or SHERMAN_CLUSTER names another cluster"
            .to_owned(),
    }
}
