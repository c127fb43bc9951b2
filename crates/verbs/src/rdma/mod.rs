//! All code that talks to a device.
//!
//! | module | what |
//! |---|---|
//! | `device` | finds, describes and opens devices |
//! | `memory` | memory that a device may access, and the device's own |
//! | `queue` | completion queues and queue pairs, from creation to error |
//! | `post` | work requests in the library's format, in one chain |
//! | `masked` | masked CAS: a vendor's request, tested before use |
//! | `path` | the server's side: a queue pair for each link, ended by a fence |
//! | `link`, `connections` | the client's side: queue pairs of one endpoint and the lists in flight on them |
//! | `fabric`, `endpoint` | a compute server's identity, and its threads' endpoints |
//!
//! **Life of a list.** `post` checks the list and finds an extent of registered memory and room in the queue.
//! It posts the list as one chain in which only the last request is signalled: one call, one completion. If
//! there is no room, the list waits in order. `progress` polls the completion queue, copies the results of
//! READs and atomics into their lists and wakes their tasks.
//!
//! **What must hold.** Parents outlive children (device, memory, completion queue, queue pair): each child
//! holds an `Arc` of its parents. A device may write to registered memory until the queue pair is destroyed.
//! So an extent is reused only after its list's completion, or after the queue pair was destroyed.
//!
//! **What may go wrong.** A completion fails, or a server hangs up or is silent for too long. Then the
//! endpoint destroys the queue pair. Everything in flight on it ends in the error that the control plane
//! reports for the server (`fault`).

mod connections;
mod device;
mod endpoint;
mod fabric;
mod link;
mod masked;
mod memory;
mod path;
mod post;
mod queue;

pub use device::Device;
pub use endpoint::VerbsEndpoint;
pub use fabric::{VerbsFabric, VerbsJoinError};
pub use path::VerbsPath;

use crate::error::VerbsError;
use std::io;

/// Checks the return value of a library function: 0, an error number, or -1 with the error in the thread's
/// `errno`.
fn done(code: i32, what: &'static str) -> Result<(), VerbsError> {
    match code {
        0 => Ok(()),
        code if code > 0 => Err(VerbsError::System { what, error: io::Error::from_raw_os_error(code) }),
        _ => Err(VerbsError::last(what)),
    }
}
