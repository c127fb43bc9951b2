//! Which device, port and address to use. A URL or a command may name them; [`address`](crate::address)
//! chooses the rest.

use crate::address::Mtu;

/// The longest WRITE, in bytes, that a queue pair asks to send inside a work request. A larger limit would
/// make every request of a queue larger.
pub const INLINE: u32 = 220;
/// Work requests that one queue pair may have outstanding.
pub const DEPTH: u32 = 256;
/// READs and atomics that one queue pair may have outstanding, at most.
pub const RD_ATOMIC: u8 = 16;

/// How to find a device. By default everything is detected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerbsOptions {
    /// The device's name, such as `mlx5_0`.
    pub device: Option<String>,
    /// Its port, from 1.
    pub port: Option<u8>,
    /// The index of the source address in the port's GID table.
    pub gid: Option<u8>,
    /// The largest packet.
    pub mtu: Option<Mtu>,
    /// READs and atomics in flight on one queue pair, at most.
    pub rd_atomic: Option<u8>,
    /// Keeps lock lanes in host memory even if the device has its own memory.
    pub chip_in_host: bool,
    /// Posts through the extended interface even if nothing needs it. For tests.
    pub extended: bool,
}

/// The parameters that a URL may have, for messages.
pub const PARAMETERS: &str = "device, port, gid, mtu, rd-atomic";

impl VerbsOptions {
    /// Sets one parameter of a URL. Returns whether the parameter belongs to these options.
    ///
    /// # Errors
    /// A message, if the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let number = |limit: u8| match value.parse::<u8>() {
            Ok(number) if number <= limit => Ok(Some(number)),
            _ => Err(format!("{name}={value:?} is not a number up to {limit}")),
        };
        let above_zero = |limit: u8| match number(limit)? {
            Some(0) => Err(format!("{name}={value:?} must be at least 1")),
            number => Ok(number),
        };
        match name {
            "device" if value.is_empty() => {
                return Err("device= needs a name, such as mlx5_0".to_owned());
            }
            "device" => self.device = Some(value.to_owned()),
            "port" => self.port = above_zero(254)?,
            "gid" => self.gid = number(255)?,
            "mtu" => {
                let mtu = value.parse().ok().and_then(Mtu::from_bytes);
                self.mtu = Some(
                    mtu.ok_or_else(|| format!("mtu={value:?} is not one of 256, 512, 1024, 2048, 4096"))?,
                );
            }
            "rd-atomic" => self.rd_atomic = above_zero(128)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_set_what_they_name_and_nothing_else() {
        let mut options = VerbsOptions::default();
        for (name, value) in
            [("device", "mlx5_1"), ("port", "2"), ("gid", "3"), ("mtu", "1024"), ("rd-atomic", "1")]
        {
            assert_eq!(options.set(name, value), Ok(true));
        }
        assert_eq!(options.set("patience", "1s"), Ok(false));
        let expected = VerbsOptions {
            device: Some("mlx5_1".to_owned()),
            port: Some(2),
            gid: Some(3),
            mtu: Some(Mtu::M1024),
            rd_atomic: Some(1),
            ..VerbsOptions::default()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn bad_values_say_what_would_be_good() {
        let bad = [
            ("device", ""),
            ("port", "0"),
            ("port", "x"),
            ("gid", "256"),
            ("mtu", "1500"),
            ("rd-atomic", "0"),
        ];
        for (name, value) in bad {
            let mut options = VerbsOptions::default();
            let said = options.set(name, value).expect_err(name);
            assert!(said.contains(name), "{said}");
            assert_eq!(options, VerbsOptions::default());
        }
    }
}
