//! Cluster URLs: `embedded:?servers=2&memory=1GiB`, `tcp://a:7000,b:7000`, `unix:/run/sherman/0.sock`,
//! `shm:/run/sherman/0.sock`, `verbs://a:7000,b:7000`.
//!
//! The parser converts words into the calls of a [builder](crate::builder), which checks them.

#[cfg(target_os = "linux")]
use crate::builder::ServersBuilder;
use crate::builder::{EmbeddedBuilder, Place};
use crate::error::OpenError;
use sherman_embedded::Atomicity;
use sherman_fabric::Space;
use sherman_layout::units::{parse_bytes, parse_time};
use sherman_layout::{LaneWidth, ReleaseMode};
#[cfg(all(feature = "verbs", target_os = "linux"))]
use sherman_verbs::{VerbsOptions, options::PARAMETERS as VERBS_PARAMETERS};
use std::time::Duration;

/// Parses a URL.
pub(crate) fn parse(url: &str) -> Result<Place, OpenError> {
    read(url).map_err(|reason| OpenError::BadUrl { url: url.to_owned(), reason })
}

fn read(url: &str) -> Result<Place, String> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(
            "it has no scheme; try \"embedded:\", \"tcp://host:7000\", \"unix:/path\" or \"shm:/path\""
                .to_owned(),
        );
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    match scheme {
        "embedded" if place.is_empty() => {
            each_parameter(query, EmbeddedBuilder::new(), set_embedded)?.checked()
        }
        "embedded" => Err(format!("write \"?\" and parameters after \"embedded:\", not {place:?}")),
        #[cfg(target_os = "linux")]
        "tcp" => servers(ServersBuilder::tcp(hosts(place, scheme)?), query),
        #[cfg(target_os = "linux")]
        "unix" => servers(ServersBuilder::unix(place.split(',')), query),
        #[cfg(target_os = "linux")]
        "shm" => servers(ServersBuilder::shm(place.split(',')), query),
        #[cfg(all(feature = "verbs", target_os = "linux"))]
        "verbs" => verbs(place, query),
        #[cfg(not(all(feature = "verbs", target_os = "linux")))]
        "verbs" => Err("this build has no RDMA: build with --features verbs, on Linux".to_owned()),
        #[cfg(not(target_os = "linux"))]
        "tcp" | "unix" | "shm" => Err(format!("scheme {scheme:?} needs Linux; there is \"embedded:\"")),
        _ => Err(format!(
            "scheme {scheme:?} is not known; there are \"embedded:\", \"tcp://\", \"unix:\", \"shm:\" and \
             \"verbs://\""
        )),
    }
}

#[cfg(target_os = "linux")]
fn hosts<'p>(place: &'p str, scheme: &str) -> Result<impl Iterator<Item = &'p str> + use<'p>, String> {
    let hosts = place.strip_prefix("//");
    Ok(hosts.ok_or_else(|| format!("write \"//\" and the servers after \"{scheme}:\""))?.split(','))
}

#[cfg(target_os = "linux")]
fn servers(builder: ServersBuilder, query: &str) -> Result<Place, String> {
    each_parameter(query, builder, set_servers)?.checked()
}

#[cfg(all(feature = "verbs", target_os = "linux"))]
fn verbs(place: &str, query: &str) -> Result<Place, String> {
    let mut verbs = VerbsOptions::default();
    let builder = ServersBuilder::tcp(hosts(place, "verbs")?);
    let set = |builder, name: &str, value: &str| {
        if verbs.set(name, value)? {
            return Ok(builder);
        }
        set_servers(builder, name, value).map_err(|said| format!("{said}; and {VERBS_PARAMETERS}"))
    };
    let builder = each_parameter(query, builder, set)?;
    builder.through(verbs).checked()
}

fn each_parameter<B>(
    query: &str,
    builder: B,
    mut set: impl FnMut(B, &str, &str) -> Result<B, String>,
) -> Result<B, String> {
    query.split('&').filter(|parameter| !parameter.is_empty()).try_fold(builder, |builder, parameter| {
        let (name, value) =
            parameter.split_once('=').ok_or_else(|| format!("parameter {parameter:?} has no value"))?;
        set(builder, name, value)
    })
}

#[cfg(target_os = "linux")]
fn set_servers(builder: ServersBuilder, name: &str, value: &str) -> Result<ServersBuilder, String> {
    match name {
        "secret-file" => Ok(builder.secret_file(value)),
        "patience" => Ok(builder.patience(time(name, value)?)),
        "connect" => Ok(builder.connect_timeout(time(name, value)?)),
        _ => Err(format!("parameter {name:?} is not known; there are secret-file, patience, connect")),
    }
}

fn time(name: &str, value: &str) -> Result<Duration, String> {
    parse_time(value).ok_or_else(|| format!("{name}={value:?} is not a time; write for example 200ms or 3s"))
}

fn set_embedded(builder: EmbeddedBuilder, name: &str, value: &str) -> Result<EmbeddedBuilder, String> {
    let bytes = || {
        parse_bytes(value)
            .ok_or_else(|| format!("{name}={value:?} is not a size; write for example 512MiB or 2GiB"))
    };
    let choice = |allowed: &str| format!("{name}={value:?} is not one of {allowed}");
    Ok(match name {
        "servers" => {
            let servers = value.parse();
            builder.servers(servers.map_err(|_| format!("servers={value:?} is not a number up to 65535"))?)
        }
        "replicas" => {
            let replicas = value.parse();
            builder.replicas(replicas.map_err(|_| format!("replicas={value:?} is neither 1 nor 2"))?)
        }
        "volumes" => {
            let volumes = value.parse();
            builder.volumes(volumes.map_err(|_| format!("volumes={value:?} is not a number up to 65535"))?)
        }
        "volume-memory" => builder.volume_memory(bytes()?),
        "memory" => builder.memory(bytes()?),
        "on-chip" => builder.on_chip(bytes()?),
        "chunk" => builder.chunk(bytes()?),
        "lease" => builder.lease(time(name, value)?),
        "lane-bits" => builder.lanes(match value {
            "16" => LaneWidth::Bits16,
            "64" => LaneWidth::Bits64,
            _ => return Err(choice("16, 64")),
        }),
        "locks" => builder.locks(match value {
            "on-chip" => Space::OnChip,
            "host" => Space::Host,
            _ => return Err(choice("on-chip, host")),
        }),
        "release" => builder.release(match value {
            "write" => ReleaseMode::Write,
            "faa" => ReleaseMode::Faa,
            "cas" => ReleaseMode::Cas,
            _ => return Err(choice("write, faa, cas")),
        }),
        "atomicity" => builder.atomicity(match value {
            "line" => Atomicity::Line,
            "verb" => Atomicity::Verb,
            _ => return Err(choice("line, verb")),
        }),
        _ => {
            return Err(format!(
                "parameter {name:?} is not known; there are servers, memory, on-chip, chunk, lease, \
                 lane-bits, locks, release, atomicity, replicas, volumes, volume-memory"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_os = "linux")]
    use sherman_control::Address;

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
        let embedded = |url| match parse(url) {
            Ok(Place::Embedded(options)) => options,
            other => panic!("{other:?}"),
        };
        let options = embedded("embedded:?servers=2&memory=1GiB&lane-bits=64&locks=host");
        assert_eq!((options.servers, options.memory_bytes), (2, 1 << 30));
        assert_eq!(options.format.locks.width, LaneWidth::Bits64);
        assert_eq!(options.format.locks.space, Space::Host);
        let brief = embedded("embedded:?lease=200ms");
        assert_eq!(brief.format.lease_nanos, 200_000_000);
        assert_eq!(embedded("embedded:").servers, 1);
        assert_eq!(embedded("embedded:?replicas=1&servers=3").servers, 3);
    }

    #[test]
    fn the_copies_of_volumes_fill_the_memory_of_the_servers_unless_the_url_says_otherwise() {
        let replicated = |url| match parse(url) {
            Ok(Place::Replicated(options)) => options,
            other => panic!("{other:?}"),
        };
        let options = replicated("embedded:?servers=3&replicas=2&memory=64MiB");
        let settings = options.settings;
        assert_eq!((settings.hosts, settings.replicas, settings.volumes), (3, 2, 3));
        assert_eq!((settings.volume_bytes, options.host_bytes), (32 << 20, 64 << 20));
        let small = "embedded:?servers=3&replicas=2&volumes=6&volume-memory=8MiB&lease=200ms";
        let settings = replicated(small).settings;
        assert_eq!((settings.volumes, settings.volume_bytes), (6, 8 << 20));
        assert_eq!(settings.format.lease_nanos, 200_000_000);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_url_names_servers_in_their_order() {
        let servers = |url| match parse(url) {
            Ok(Place::SoftNic(options)) => (options.servers.clone(), options.patience),
            other => panic!("{other:?}"),
        };
        let tcp = |text: &str| Address::Tcp(text.to_owned());
        let (named, _) = servers("tcp://a:7000,10.0.0.2:7001,[::1]:7002");
        assert_eq!(named, [tcp("a:7000"), tcp("10.0.0.2:7001"), tcp("[::1]:7002")]);
        let (named, patience) = servers("unix:/run/0.sock,/run/1.sock?patience=700ms&connect=1s");
        assert_eq!(named, [Address::Unix("/run/0.sock".into()), Address::Unix("/run/1.sock".into())]);
        assert_eq!(patience, Duration::from_millis(700));
        let Ok(Place::Shm(shared)) = parse("shm:/run/0.sock,/run/1.sock?patience=700ms") else { panic!() };
        assert_eq!((shared.servers, shared.patience), (named, patience));
    }

    #[cfg(all(feature = "verbs", target_os = "linux"))]
    #[test]
    fn a_url_names_a_device_and_what_the_control_plane_needs() {
        let Ok(Place::Verbs(options, verbs)) =
            parse("verbs://a:7000,b:7000?device=mlx5_1&mtu=2048&patience=2s&gid=3&port=2")
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
            ("embedded:servers=2", "parameters"),
            ("embedded:?servers", "no value"),
            ("embedded:?servers=-1", "servers"),
            ("embedded:?memory=lots", "size"),
            ("embedded:?speed=max", "speed"),
            ("embedded:?lane-bits=32", "16, 64"),
            ("embedded:?lease=200", "200ms or 3s"),
            ("embedded:?lease=0s", "200ms or 3s"),
            ("embedded:?lease=99ms", "100ms to 1h"),
            ("embedded:?lease=2h", "100ms to 1h"),
            ("embedded:?replicas=2", "2 to 256 servers"),
            ("embedded:?servers=3&replicas=3", "1 or 2"),
            ("embedded:?servers=3&replicas=two", "1 nor 2"),
            ("embedded:?servers=3&volumes=3", "replicas=2"),
            ("embedded:?servers=3&replicas=2&volumes=0", "at least one"),
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
            (
                "verbs://a:7000?speed=max",
                if cfg!(feature = "verbs") { "rd-atomic" } else { "--features verbs" },
            ),
            ("verbs://a:7000?mtu=1500", if cfg!(feature = "verbs") { "4096" } else { "--features verbs" }),
            ("unix:", "path is empty"),
            ("unix:/a,,/b", "path is empty"),
            ("shm:", "shm:/run"),
            ("shm:/a,", "path is empty"),
            ("shm:/a?memory=1GiB", "secret-file"),
        ] {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}
