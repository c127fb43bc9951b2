//! Which cluster a command runs on: `--cluster URL`, or else the environment variable `SHERMAN_CLUSTER`.
//!
//! A command that inspects or changes a cluster never makes one up: without a URL it is refused. Only commands that are useful
//! inside one process (`bench`, `litmus`) have a default, and they say on stderr what they run on.

use crate::failure::Failure;
use clap::Args;
use std::env::VarError;

/// The environment variable that names the cluster.
const VARIABLE: &str = "SHERMAN_CLUSTER";

/// The cluster of a command.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterOption {
    /// Use this cluster: tcp://a:7000,b:7000, unix:/run/a.sock,/run/b.sock, shm:/run/a.sock, verbs://a:7000 or embedded:?memory=1GiB [default: the environment variable SHERMAN_CLUSTER]
    #[arg(long, value_name = "URL")]
    pub cluster: Option<String>,
}

impl ClusterOption {
    /// The URL, if the command line or the environment has one. An empty variable counts as unset.
    pub fn given(&self) -> Result<Option<String>, Failure> {
        match (&self.cluster, std::env::var(VARIABLE)) {
            (Some(url), _) if url.is_empty() => Err(Failure::option("cluster", "the URL is empty")),
            (Some(url), _) => Ok(Some(url.clone())),
            (None, Ok(url)) => Ok(Some(url).filter(|url| !url.is_empty())),
            (None, Err(VarError::NotPresent)) => Ok(None),
            (None, Err(VarError::NotUnicode(_))) => Err(Failure::Usage(format!("{VARIABLE} is not UTF-8"))),
        }
    }

    /// The URL. A command that needs one is refused without it.
    pub fn required(&self) -> Result<String, Failure> {
        self.given()?.ok_or_else(|| {
            let empty = if std::env::var_os(VARIABLE).is_some() { ", which is empty" } else { "" };
            Failure::Usage(format!("this command needs a cluster: give --cluster URL or set {VARIABLE}{empty}"))
        })
    }
}

/// Says on stderr what a command with a default runs on.
pub fn announce(what: &str) {
    eprintln!("running on {what}");
}

/// What a command runs on that was given `url`, or made a cluster of its own.
pub fn described(url: Option<&str>) -> String {
    match url {
        Some(url) => url.to_owned(),
        None => "memory servers inside this process; --cluster or SHERMAN_CLUSTER names another cluster".to_owned(),
    }
}
