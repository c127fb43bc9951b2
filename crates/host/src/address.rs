//! Addresses as text: `tcp://host:port` and `unix:/path`.

use crate::error::HostError;
use sherman_control::Address;
use sherman_soft_nic::server::Listen;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The longest address of a host, in bytes.
const LONGEST: usize = 256;

/// The address that `text` names; `None` if it is neither `tcp://host:port` nor `unix:/path`.
pub fn parse_address(text: &str) -> Option<Address> {
    if text.len() > LONGEST {
        return None;
    }
    if let Some(path) = text.strip_prefix("unix:") {
        return (!path.is_empty()).then(|| Address::Unix(PathBuf::from(path)));
    }
    let place = text.strip_prefix("tcp://")?;
    let (host, port) = place.rsplit_once(':')?;
    let named = !host.is_empty() && !place.contains([',', '/', '?']);
    (named && port.parse::<u16>().is_ok_and(|port| port > 0)).then(|| Address::Tcp(place.to_owned()))
}

/// The address under which other processes reach a host that listens there.
pub(crate) fn advertised(asked: Option<&str>, listen: &[Listen]) -> Result<String, HostError> {
    if let Some(asked) = asked {
        let given = parse_address(asked).map(|address| address.to_string());
        return given.ok_or_else(|| HostError::BadAddress { address: asked.to_owned() });
    }
    let Some(first) = listen.first() else {
        return Err(HostError::BadAddress { address: String::new() });
    };
    let unreachable = || HostError::Unspecified { listen: first.to_string() };
    let address = match first {
        Listen::Tcp(host) => {
            let everywhere = host.parse::<SocketAddr>().is_ok_and(|at| at.ip().is_unspecified());
            if everywhere {
                return Err(unreachable());
            }
            Address::Tcp(host.clone())
        }
        // Other processes may run in another folder.
        Listen::Unix(path) => Address::Unix(std::path::absolute(path).map_err(HostError::System)?),
    };
    let text = address.to_string();
    parse_address(&text).map(|_| text).ok_or_else(unreachable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in ["tcp://a:7000", "tcp://[::1]:7000", "tcp://10.0.0.1:1", "unix:/run/a.sock"] {
            assert_eq!(parse_address(text).map(|address| address.to_string()), Some(text.to_owned()));
        }
        let long = format!("unix:/{}", "x".repeat(LONGEST));
        for bad in
            ["", "a:7000", "tcp://", "tcp://a", "tcp://:1", "tcp://a:0", "tcp://a:1,b:2", "unix:", &long]
        {
            assert_eq!(parse_address(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_host_that_listens_everywhere_must_say_where_it_is() {
        let tcp = |text: &str| Listen::Tcp(text.to_owned());
        let own = |asked, listen: &[Listen]| advertised(asked, listen).ok();
        assert_eq!(own(None, &[tcp("10.0.0.1:7")]).as_deref(), Some("tcp://10.0.0.1:7"));
        assert_eq!(own(None, &[Listen::Unix("/a".into())]).as_deref(), Some("unix:/a"));
        assert_eq!(own(Some("tcp://a:7"), &[tcp("0.0.0.0:7")]).as_deref(), Some("tcp://a:7"));
        for everywhere in ["0.0.0.0:7", "[::]:7"] {
            assert!(matches!(advertised(None, &[tcp(everywhere)]), Err(HostError::Unspecified { .. })));
        }
        assert!(matches!(advertised(Some("a:7"), &[tcp("a:7")]), Err(HostError::BadAddress { .. })));
    }
}
