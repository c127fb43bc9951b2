//! All that talks to a device.
//!
//! | module | what |
//! |---|---|
//! | `device` | finds, describes and opens devices |
//! | `memory` | memory that a device may reach, and the device's own |
//! | `queue` | completion queues and queue pairs, from birth to error |
//! | `post` | work requests as the library wants them, in one chain |
//! | `masked` | masked CAS: a vendor's request, tried before it is believed |
//! | `path` | the server's side: a queue pair for each link, ended by a fence |
//! | `link`, `station` | the client's: queue pairs of one endpoint and what is in flight on them |
//! | `fabric`, `endpoint` | a compute server's identity, and its threads' endpoints |
//!
//! **Life of a list.** `post` checks it, finds it an extent of registered memory and room in the queue, and posts it as one chain
//! of which only the last request is signalled: one call, one completion. If there is no room it waits in order. `progress`
//! asks the completion queue, copies what READs and atomics brought into their lists and wakes their tasks.
//!
//! **What must hold.** Parents outlive children (device, memory, completion queue, queue pair): each child holds an `Arc`
//! of its parents. A device may write to registered memory until the queue pair is destroyed, so extents are given out again only
//! after a completion or after that.
//!
//! **What may go wrong.** A failed completion, a server that hangs up or is silent for too long: the queue pair is destroyed and
//! everything in flight on it ends in what the control plane says of the server (`fault`).

mod device;
mod endpoint;
mod fabric;
mod link;
mod masked;
mod memory;
mod path;
mod post;
mod queue;
mod station;

pub use device::Device;
pub use endpoint::VerbsEndpoint;
pub use fabric::{VerbsFabric, VerbsJoinError};
pub use path::VerbsPath;

use crate::error::VerbsError;
use std::io;

/// What a function of the library returned: 0, an error number, or -1 and the thread's.
fn done(code: i32, what: &'static str) -> Result<(), VerbsError> {
    match code {
        0 => Ok(()),
        code if code > 0 => Err(VerbsError::System { what, error: io::Error::from_raw_os_error(code) }),
        _ => Err(VerbsError::last(what)),
    }
}
