//! Cluster URLs: `embedded:?servers=2&memory=1GiB`, `tcp://a:7000,b:7000`, `unix:/run/sherman/0.sock`, `shm:/run/sherman/0.sock`,
//! `verbs://a:7000,b:7000`.

use crate::error::OpenError;
use sherman_embedded::{Atomicity, EmbeddedOptions};
use sherman_fabric::Space;
use sherman_memory_server::format::{LONGEST_LEASE, SHORTEST_LEASE};
use sherman_memory_server::{LaneWidth, ReleaseMode};
#[cfg(target_os = "linux")]
use sherman_soft_nic::{Address, JoinOptions, Secret};
#[cfg(all(feature = "verbs", target_os = "linux"))]
use sherman_verbs::{VerbsOptions, options::PARAMETERS as VERBS_PARAMETERS};
#[cfg(target_os = "linux")]
use std::path::Path;
use std::time::Duration;

/// Parses a number of bytes: plain, or with one of `B KB MB GB TB KiB MiB GiB TiB`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match text[digits..].trim() {
        "" | "B" => 1,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Parses a time: a whole number with one of `us ms s m h` behind.
pub fn parse_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let nanos: u64 = match text[digits..].trim() {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    number.checked_mul(nanos).map(Duration::from_nanos)
}

/// What a URL names.
#[derive(Debug)]
pub(crate) enum Url {
    /// Memory servers to be made in this process.
    Embedded(EmbeddedOptions),
    /// Memory servers that listen somewhere.
    #[cfg(target_os = "linux")]
    SoftNic(Box<JoinOptions>),
    /// Memory servers of this host, whose memory is to be mapped.
    #[cfg(target_os = "linux")]
    Shm(Box<JoinOptions>),
    /// Memory servers that listen somewhere, and whose memory is reached through a NIC.
    #[cfg(all(feature = "verbs", target_os = "linux"))]
    Verbs(Box<JoinOptions>, Box<VerbsOptions>),
}

impl Url {
    /// Reads a URL.
    pub(crate) fn parse(url: &str) -> Result<Self, OpenError> {
        Self::read(url).map_err(|reason| OpenError::BadUrl { url: url.to_owned(), reason })
    }

    fn read(url: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(
                "it has no scheme; try \"embedded:\", \"tcp://host:7000\", \"unix:/path\" or \"shm:/path\"".to_owned()
            );
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        match scheme {
            "embedded" if place.is_empty() => {
                let mut options = EmbeddedOptions::default();
                each_parameter(query, |name, value| set_embedded(&mut options, name, value))?;
                Ok(Self::Embedded(options))
            }
            "embedded" => Err(format!("\"embedded:\" is followed by \"?\" and parameters, not by {place:?}")),
            #[cfg(target_os = "linux")]
            "tcp" => {
                let hosts = place.strip_prefix("//").ok_or("\"tcp:\" is followed by \"//\" and the servers")?;
                Ok(Self::SoftNic(join_options(hosts.split(',').map(tcp_address).collect::<Result<_, _>>()?, query)?))
            }
            #[cfg(target_os = "linux")]
            "unix" => Ok(Self::SoftNic(join_options(unix_addresses(place, scheme)?, query)?)),
            #[cfg(target_os = "linux")]
            "shm" => Ok(Self::Shm(join_options(unix_addresses(place, scheme)?, query)?)),
            "verbs" => Self::verbs(place, query),
            #[cfg(not(target_os = "linux"))]
            "tcp" | "unix" | "shm" => Err(format!("scheme {scheme:?} needs Linux; there is \"embedded:\"")),
            _ => Err(format!(
                "scheme {scheme:?} is not known; there are \"embedded:\", \"tcp://\", \"unix:\", \"shm:\" and \"verbs://\""
            )),
        }
    }

    #[cfg(all(feature = "verbs", target_os = "linux"))]
    fn verbs(place: &str, query: &str) -> Result<Self, String> {
        let hosts = place.strip_prefix("//").ok_or("\"verbs:\" is followed by \"//\" and the servers")?;
        let mut options = JoinOptions::new(hosts.split(',').map(tcp_address).collect::<Result<_, _>>()?);
        let mut verbs = VerbsOptions::default();
        each_parameter(query, |name, value| {
            if verbs.set(name, value)? {
                return Ok(());
            }
            set_soft_nic(&mut options, name, value).map_err(|said| format!("{said}; and {VERBS_PARAMETERS}"))
        })?;
        find_secret(&mut options)?;
        Ok(Self::Verbs(Box::new(options), Box::new(verbs)))
    }

    #[cfg(not(all(feature = "verbs", target_os = "linux")))]
    fn verbs(_: &str, _: &str) -> Result<Self, String> {
        Err("this build has no RDMA: build with --features verbs, on Linux".to_owned())
    }
}

/// How to join these servers.
#[cfg(target_os = "linux")]
fn join_options(servers: Vec<Address>, query: &str) -> Result<Box<JoinOptions>, String> {
    let mut options = JoinOptions::new(servers);
    each_parameter(query, |name, value| set_soft_nic(&mut options, name, value))?;
    find_secret(&mut options)?;
    Ok(Box::new(options))
}

/// The environment variable that names a secret file where the URL does not.
#[cfg(target_os = "linux")]
const SECRET_FILE: &str = "SHERMAN_SECRET_FILE";

/// `host:port`. An address of IPv6 is in brackets.
#[cfg(target_os = "linux")]
fn tcp_address(text: &str) -> Result<Address, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(port)) if port > 0 => Ok(Address::Tcp(text.to_owned())),
        _ => Err(format!("{text:?} is not a server; write for example 10.0.0.1:7000 or [::1]:7000")),
    }
}

#[cfg(target_os = "linux")]
fn unix_addresses(place: &str, scheme: &str) -> Result<Vec<Address>, String> {
    let address = |text: &str| match text {
        "" => Err(format!("a server's path is empty; write for example {scheme}:/run/sherman/0.sock")),
        path => Ok(Address::Unix(path.into())),
    };
    place.split(',').map(address).collect()
}

fn each_parameter(query: &str, mut set: impl FnMut(&str, &str) -> Result<(), String>) -> Result<(), String> {
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').ok_or_else(|| format!("parameter {parameter:?} has no value"))?;
        set(name, value)?;
    }
    Ok(())
}

/// The secret that the environment names, if the URL does not.
#[cfg(target_os = "linux")]
fn find_secret(options: &mut JoinOptions) -> Result<(), String> {
    if options.secret.is_none()
        && let Some(path) = std::env::var_os(SECRET_FILE)
    {
        options.secret = Some(read_secret(path.as_ref())?);
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn read_secret(path: &Path) -> Result<Secret, String> {
    Secret::from_file(path).map_err(|error| error.to_string())
}

#[cfg(target_os = "linux")]
fn set_soft_nic(options: &mut JoinOptions, name: &str, value: &str) -> Result<(), String> {
    match name {
        "secret-file" => options.secret = Some(read_secret(value.as_ref())?),
        "patience" => options.patience = time(name, value)?,
        "connect" => options.connect_timeout = time(name, value)?,
        _ => return Err(format!("parameter {name:?} is not known; there are secret-file, patience, connect")),
    }
    Ok(())
}

/// A time that is not zero.
fn time(name: &str, value: &str) -> Result<Duration, String> {
    let time = parse_time(value).filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("{name}={value:?} is not a time; write for example 200ms or 3s"))
}

fn set_embedded(options: &mut EmbeddedOptions, name: &str, value: &str) -> Result<(), String> {
    let bytes = || {
        parse_bytes(value).ok_or_else(|| format!("{name}={value:?} is not a size; write for example 512MiB or 2GiB"))
    };
    let choice = |allowed: &str| format!("{name}={value:?} is none of {allowed}");
    match name {
        "servers" => {
            options.servers = value.parse().map_err(|_| format!("servers={value:?} is not a number up to 65535"))?;
        }
        "memory" => options.memory_bytes = bytes()?,
        "on-chip" => options.on_chip_bytes = bytes()?,
        "chunk" => options.format.chunk_bytes = bytes()?,
        "lease" => {
            let lease = time(name, value)?;
            if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
                return Err(format!(
                    "lease={value:?} is not allowed; write 100ms to 1h. A client renews three times in this time"
                ));
            }
            options.format.lease_nanos = lease.as_nanos() as u64;
        }
        "lane-bits" => {
            options.format.locks.width = match value {
                "16" => LaneWidth::Bits16,
                "64" => LaneWidth::Bits64,
                _ => return Err(choice("16, 64")),
            };
        }
        "locks" => {
            options.format.locks.space = match value {
                "on-chip" => Space::OnChip,
                "host" => Space::Host,
                _ => return Err(choice("on-chip, host")),
            };
        }
        "release" => {
            options.format.locks.release = match value {
                "write" => ReleaseMode::Write,
                "faa" => ReleaseMode::Faa,
                "cas" => ReleaseMode::Cas,
                _ => return Err(choice("write, faa, cas")),
            };
        }
        "atomicity" => {
            options.atomicity = match value {
                "line" => Atomicity::Line,
                "verb" => Atomicity::Verb,
                _ => return Err(choice("line, verb")),
            };
        }
        _ => {
            return Err(format!(
                "parameter {name:?} is not known; there are servers, memory, on-chip, chunk, lease, lane-bits, locks, \
                 release, atomicity"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes("1GiB"), Some(1 << 30));
        assert_eq!(parse_bytes("3 MB"), Some(3_000_000));
        for bad in ["", "GiB", "1.5GiB", "-1", "1Gi", "99999999999999999999", "99999999TiB"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("200ms"), Some(Duration::from_millis(200)));
        assert_eq!(parse_time("3 s"), Some(Duration::from_secs(3)));
        assert_eq!(parse_time("2m"), parse_time("120s"));
        for bad in ["", "200", "ms", "1.5s", "-1s", "1 fortnight", "99999999999999h"] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_url_sets_what_it_names_and_nothing_else() {
        let embedded = |url| match Url::parse(url) {
            Ok(Url::Embedded(options)) => options,
            other => panic!("{other:?}"),
        };
        let options = embedded("embedded:?servers=2&memory=1GiB&lane-bits=64&locks=host");
        assert_eq!((options.servers, options.memory_bytes), (2, 1 << 30));
        assert_eq!(options.format.locks.width, LaneWidth::Bits64);
        assert_eq!(options.format.locks.space, Space::Host);
        let brief = embedded("embedded:?lease=200ms");
        assert_eq!(brief.format.lease_nanos, 200_000_000);
        assert_eq!(embedded("embedded:").servers, 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_url_names_servers_in_their_order() {
        let servers = |url| match Url::parse(url) {
            Ok(Url::SoftNic(options)) => (options.servers.clone(), options.patience),
            other => panic!("{other:?}"),
        };
        let tcp = |text: &str| Address::Tcp(text.to_owned());
        let (named, _) = servers("tcp://a:7000,10.0.0.2:7001,[::1]:7002");
        assert_eq!(named, [tcp("a:7000"), tcp("10.0.0.2:7001"), tcp("[::1]:7002")]);
        let (named, patience) = servers("unix:/run/0.sock,/run/1.sock?patience=700ms&connect=1s");
        assert_eq!(named, [Address::Unix("/run/0.sock".into()), Address::Unix("/run/1.sock".into())]);
        assert_eq!(patience, Duration::from_millis(700));
        let Ok(Url::Shm(shared)) = Url::parse("shm:/run/0.sock,/run/1.sock?patience=700ms") else { panic!() };
        assert_eq!((shared.servers, shared.patience), (named, patience));
    }

    #[cfg(all(feature = "verbs", target_os = "linux"))]
    #[test]
    fn a_url_names_a_device_and_what_the_control_plane_needs() {
        let Ok(Url::Verbs(options, verbs)) =
            Url::parse("verbs://a:7000,b:7000?device=mlx5_1&mtu=2048&patience=2s&gid=3&port=2")
        else {
            panic!("a URL");
        };
        assert_eq!((options.servers.len(), options.patience), (2, Duration::from_secs(2)));
        assert_eq!((verbs.device.as_deref(), verbs.port, verbs.gid), (Some("mlx5_1"), Some(2), Some(3)));
        assert_eq!(verbs.mtu.map(sherman_verbs::address::Mtu::bytes), Some(2048));
    }

    #[test]
    fn a_bad_url_says_what_is_wrong() {
        for (url, word) in [
            ("", "scheme"),
            ("embedded", "scheme"),
            ("carrier-pigeon:?servers=1", "carrier-pigeon"),
            ("embedded:servers=2", "followed"),
            ("embedded:?servers", "no value"),
            ("embedded:?servers=-1", "servers"),
            ("embedded:?memory=lots", "size"),
            ("embedded:?speed=max", "speed"),
            ("embedded:?lane-bits=32", "16, 64"),
            ("embedded:?lease=200", "200ms or 3s"),
            ("embedded:?lease=0s", "200ms or 3s"),
            ("embedded:?lease=99ms", "100ms to 1h"),
            ("embedded:?lease=2h", "100ms to 1h"),
            ("tcp:a:7000", "//"),
            ("tcp://", "not a server"),
            ("tcp://a:7000,", "not a server"),
            ("tcp://a", "10.0.0.1:7000"),
            ("tcp://:7000", "not a server"),
            ("tcp://a:0", "not a server"),
            ("tcp://a:70000", "not a server"),
            ("tcp://a:7000?memory=1GiB", "secret-file"),
            ("tcp://a:7000?patience=5", "200ms or 3s"),
            ("tcp://a:7000?secret-file=/nowhere/at/all", "/nowhere/at/all"),
            ("verbs:a:7000", if cfg!(feature = "verbs") { "//" } else { "--features verbs" }),
            ("verbs://a", if cfg!(feature = "verbs") { "not a server" } else { "--features verbs" }),
            ("verbs://a:7000?speed=max", if cfg!(feature = "verbs") { "rd-atomic" } else { "--features verbs" }),
            ("verbs://a:7000?mtu=1500", if cfg!(feature = "verbs") { "4096" } else { "--features verbs" }),
            ("unix:", "path is empty"),
            ("unix:/a,,/b", "path is empty"),
            ("shm:", "shm:/run"),
            ("shm:/a,", "path is empty"),
            ("shm:/a?memory=1GiB", "secret-file"),
        ] {
            let error = Url::parse(url).expect_err(url).to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}
