//! One memory server: its memory, which clients reach by verbs, and its CPU's state machine behind a lock.

use crate::memory::Region;
use sherman_fabric::{ClientId, FabricError, Refusal, Request, Response};
use sherman_memory_server::{FormatError, FormatOptions, MemoryServer};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A memory server.
#[derive(Debug)]
pub(crate) struct Server {
    memory: Region,
    control: Mutex<MemoryServer>,
}

impl Server {
    /// Formats fresh memory.
    pub(crate) fn format(memory: Region, options: &FormatOptions) -> Result<Self, FormatError> {
        let control = MemoryServer::format(&memory, options)?;
        Ok(Self { memory, control: Mutex::new(control) })
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Region {
        &self.memory
    }

    /// Lets the server's CPU answer.
    pub(crate) fn handle(&self, from: ClientId, request: &Request, now: u64) -> Result<Response, FabricError> {
        self.control().handle(&self.memory, from, request, now).map_err(|refusal| match refusal {
            Refusal::Fenced { client } => FabricError::Fenced { client },
            refusal => FabricError::Refused(refusal),
        })
    }

    /// Whether the server's tables say that `client` is fenced here.
    pub(crate) fn is_fenced(&self, client: ClientId) -> bool {
        self.control().is_fenced(client)
    }

    fn control(&self) -> MutexGuard<'_, MemoryServer> {
        // The state machine stores before it changes its own tables and does not panic on any request, so what a
        // poisoned lock guards is still right.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
