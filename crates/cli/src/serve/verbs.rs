//! `sherman serve --listen verbs://`: memory that clients reach through an RDMA NIC.
//!
//! Atomics of the NIC and of this process are not atomic with each other. So a server that listens for verbs
//! listens for nothing else.

use crate::failure::Failure;
use crate::serve::options::{ServeOptions, host_and_port};
use sherman_control::path::DataPath;
use sherman_embedded::host::Host;
use sherman_layout::LaneWidth;
use sherman_verbs::VerbsOptions;
use sherman_verbs::options::PARAMETERS;
use std::fmt;
use std::sync::Arc;

/// The address where clients connect to the NIC, and which NIC it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsListen {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The query of the URL, unparsed.
    query: String,
    options: VerbsOptions,
}

impl VerbsListen {
    /// Parses the text after `verbs://`.
    pub fn read(text: &str) -> Result<Self, String> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let (host, port) = host_and_port(place).ok_or("write verbs://10.0.0.1:7000 or verbs://[::1]:7000")?;
        let mut options = VerbsOptions::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) =
                parameter.split_once('=').ok_or_else(|| format!("parameter {parameter:?} has no value"))?;
            if !options.set(name, value)? {
                return Err(format!("parameter {name:?} is unknown; available are {PARAMETERS}"));
            }
        }
        Ok(Self { host, port, query: query.to_owned(), options })
    }

    /// Checks that the address fits all other options.
    pub fn check(&self, all: &ServeOptions) -> Result<(), Failure> {
        if !cfg!(feature = "verbs") {
            return Err(Failure::option("listen", sherman_verbs::VerbsError::NotBuilt));
        }
        if all.listen.len() > 1 {
            return Err(Failure::option(
                "listen",
                format!("{self} must be the only address: only its NIC may access the memory"),
            ));
        }
        if all.file.is_some() {
            return Err(Failure::option(
                "file",
                format!("{self}: a NIC cannot serve memory that is in a file"),
            ));
        }
        if all.tear_reads {
            return Err(Failure::option(
                "tear-reads",
                format!("{self}: the NIC reads the memory, so the server cannot tear READs"),
            ));
        }
        Ok(())
    }
}

impl fmt::Display for VerbsListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, query, .. } = self;
        let mark = if query.is_empty() { "" } else { "?" };
        match host.contains(':') {
            true => write!(f, "verbs://[{host}]:{port}{mark}{query}"),
            false => write!(f, "verbs://{host}:{port}{mark}{query}"),
        }
    }
}

/// An open NIC.
#[cfg(feature = "verbs")]
#[derive(Debug)]
pub struct Nic(sherman_verbs::Device);

#[cfg(feature = "verbs")]
impl Nic {
    /// Opens the NIC.
    pub fn open(listen: &VerbsListen) -> Result<Self, Failure> {
        use std::net::ToSocketAddrs;
        let near =
            (listen.host.as_str(), listen.port).to_socket_addrs().ok().and_then(|mut found| found.next());
        let near = near.map(|address| address.ip());
        sherman_verbs::Device::open(&listen.options, near).map(Self).map_err(|error| failed(&error))
    }

    /// Returns the width of lock lanes that the NIC supports.
    pub fn lane_width(&self, on_chip: u64) -> LaneWidth {
        if self.0.has_narrow_lanes(on_chip) { LaneWidth::Bits16 } else { LaneWidth::Bits64 }
    }

    /// Registers the memory with the NIC.
    pub fn serve(&self, host: Arc<Host>) -> Result<Arc<dyn DataPath>, Failure> {
        let path = sherman_verbs::VerbsPath::new(self.0.clone(), host).map_err(|error| failed(&error))?;
        Ok(Arc::new(path))
    }
}

#[cfg(feature = "verbs")]
fn failed(error: &sherman_verbs::VerbsError) -> Failure {
    Failure::Runtime(format!("--listen: {error}"))
}

/// Placeholder for builds without RDMA.
#[cfg(not(feature = "verbs"))]
#[derive(Debug)]
pub enum Nic {}

#[cfg(not(feature = "verbs"))]
impl Nic {
    /// Refuses: this build has no RDMA.
    pub fn open(_: &VerbsListen) -> Result<Self, Failure> {
        Err(Failure::option("listen", sherman_verbs::VerbsError::NotBuilt))
    }

    /// Never called.
    pub fn lane_width(&self, _: u64) -> LaneWidth {
        match *self {}
    }

    /// Never called.
    pub fn serve(&self, _: Arc<Host>) -> Result<Arc<dyn DataPath>, Failure> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::config::ServeSettings;

    fn refusal(listen: &[&str], change: impl FnOnce(&mut ServeSettings)) -> String {
        let listen = listen.iter().map(|text| text.parse().expect("an address")).collect();
        let mut settings = ServeSettings { listen, ..ServeSettings::default() };
        change(&mut settings);
        ServeOptions::new(settings).expect_err("refused").to_string()
    }

    #[cfg(feature = "verbs")]
    #[test]
    fn memory_behind_a_nic_is_reached_by_nothing_else_and_in_no_file() {
        let nic = "verbs://127.0.0.1:7000";
        assert!(refusal(&[nic, "unix:/x"], |_| {}).contains("must be the only address"));
        assert!(refusal(&[nic], |settings| settings.file = Some("f".into())).starts_with("error: --file: "));
        assert!(refusal(&[nic], |settings| settings.tear_reads = true).starts_with("error: --tear-reads: "));
        assert!(refusal(&["verbs://10.0.0.1:7000"], |_| {}).contains("--secret-file"));
        let settings =
            ServeSettings { listen: vec![nic.parse().expect("an address")], ..ServeSettings::default() };
        let options = ServeOptions::new(settings).expect("options");
        assert_eq!(options.format().locks.width, LaneWidth::Bits64);
    }

    #[cfg(not(feature = "verbs"))]
    #[test]
    fn without_rdma_it_is_said_how_to_have_it() {
        assert!(refusal(&["verbs://127.0.0.1:7000"], |_| {}).contains("--features verbs"));
    }
}
