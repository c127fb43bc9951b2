//! Where the memory of copies comes from.

use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::host::Host;
use sherman_embedded::memory::Region;
use sherman_memory_server::cluster::ClusterSettings;
use sherman_soft_nic::server::ServedMemory;
use std::fmt;
use std::sync::Arc;

/// Makes the memory of copies.
pub trait CopyMaker: fmt::Debug + Send + Sync {
    /// Makes the memory of a copy, and formats it as
    /// [`volume_format`](ClusterSettings::volume_format) says. Returns it with the other way to it, if
    /// clients have one besides the sockets.
    ///
    /// # Errors
    /// Why that is not possible, for an operator.
    fn make(&self, settings: &ClusterSettings, cluster: u64, volume: u16) -> Result<ServedMemory, String>;
}

/// Memory of the host's process, which clients reach through its sockets alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrivateMemory;

impl CopyMaker for PrivateMemory {
    fn make(&self, settings: &ClusterSettings, cluster: u64, volume: u16) -> Result<ServedMemory, String> {
        make(settings, cluster, volume).map(|host| Arc::new(host).into())
    }
}

/// Makes the memory of a copy.
pub(crate) fn make(settings: &ClusterSettings, cluster: u64, volume: u16) -> Result<Host, String> {
    let sizes = (usize::try_from(settings.volume_bytes), usize::try_from(settings.on_chip_bytes));
    let region = match sizes {
        (Ok(bytes), Ok(on_chip)) => Region::new(bytes, on_chip, Atomicity::Line, CopyPath::fastest()),
        _ => None,
    };
    let region = region.ok_or_else(|| {
        format!("the system does not provide {} bytes of memory, in whole lines", settings.volume_bytes)
    })?;
    let format = settings.volume_format(cluster, volume);
    Host::format_volume(region, &format, cluster).map_err(|error| error.to_string())
}
