//! Tells the leader every few milliseconds that this host is alive. A process that goes on as a host whose
//! process ended says that first, until the state knows it.
//!
//! The answer says whether the cluster still counts the host as present. A host that was declared lost is no
//! member of the group any more, so this is how it finds out.

use crate::address::parse_address;
use crate::copier::Workshop;
use crate::end::{End, Ended};
use crate::plane::Identity;
use sherman_control::client::PeerConnection;
use sherman_control::wire::Role;
use sherman_control::{ConnectError, Secret};
use sherman_fabric::group::HostOffer;
use sherman_fabric::{FabricError, Refusal, Request, Response};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a host that has left still takes part in the group, at least: another voter may have died, and
/// the group needs this host's vote to declare that one lost.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
/// The same, in signs of life: three times as long as a host may be silent. But not longer than this.
const LINGER_SIGNS: u32 = 15;
const LONGEST_LINGER: Duration = Duration::from_secs(5);

/// How often a process says that it goes on as a host, while the state does not know it.
const RETURN: Duration = Duration::from_millis(50);

/// Where the other hosts are, and which of them leads.
#[derive(Debug, Default)]
pub(crate) struct Directory(Mutex<Known>);

#[derive(Clone, Debug, Default)]
struct Known {
    leader: Option<String>,
    /// Whether this host leads.
    leads: bool,
    hosts: Vec<String>,
}

impl Directory {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the leader's address, and whether this host is it.
    pub(crate) fn set_leader(&self, leader: Option<String>, leads: bool) {
        let mut known = self.known();
        (known.leader, known.leads) = (leader, leads);
    }

    /// The leader's address, if this host knows one.
    pub(crate) fn leader(&self) -> Option<String> {
        self.known().leader.clone()
    }

    /// Takes the addresses of the other hosts.
    pub(crate) fn set_hosts(&self, hosts: Vec<String>) {
        self.known().hosts = hosts;
    }
}

/// The thread that tells.
#[derive(Debug)]
pub(crate) struct Alive {
    pub(crate) own: Identity,
    pub(crate) secret: Option<Secret>,
    pub(crate) every: Duration,
    /// How long an answer may take.
    pub(crate) patience: Duration,
    pub(crate) directory: Arc<Directory>,
    pub(crate) workshop: Arc<Workshop>,
    pub(crate) end: Arc<End>,
    /// What this host offers, and whether the state knows this process.
    pub(crate) offer: HostOffer,
    pub(crate) known: Arc<AtomicBool>,
}

/// A connection, and the address it leads to.
type Link = Option<(String, PeerConnection)>;

impl Alive {
    pub(crate) fn run(self) {
        let mut link = None;
        // The host to ask when no leader is known, and what the last answer said about the leader.
        let (mut turn, mut hint) = (0, None);
        while !self.end.sleep(self.pause()) {
            let Known { leader, leads, hosts } = self.directory.known().clone();
            if leads {
                (link, hint) = (None, None);
                continue;
            }
            let next = || hosts.get(turn % hosts.len().max(1)).cloned();
            let Some(address) = hint.take().or(leader).or_else(next) else { continue };
            match self.tell(&mut link, &address) {
                Ok(Ok(Response::Done | Response::Registered(_))) => {}
                Ok(Err(FabricError::ServerLost { server })) if server == self.own.host => {
                    return self.end.set(Ended::Lost { host: server });
                }
                Ok(Err(FabricError::Refused(Refusal::HostLeft { host }))) if host == self.own.host => {
                    let linger = (self.every * LINGER_SIGNS).clamp(LINGER, LONGEST_LINGER);
                    self.end.sleep(linger);
                    return self.end.set(Ended::Left { host });
                }
                Ok(Err(FabricError::Refused(Refusal::NotLeader { leader }))) if !leader.is_empty() => {
                    hint = Some(leader).filter(|leader| *leader != address);
                }
                // The leader that this host knows may be gone: another host may know the next one.
                Ok(_) | Err(_) => {
                    (link, hint) = (None, next());
                    turn += 1;
                }
            }
        }
    }

    fn pause(&self) -> Duration {
        if self.known.load(Acquire) { self.every } else { self.every.min(RETURN) }
    }

    fn tell(
        &self,
        link: &mut Link,
        address: &str,
    ) -> Result<Result<Response, FabricError>, Option<ConnectError>> {
        let connection = match link.take().filter(|(to, open)| to == address && !open.has_news()) {
            Some((_, connection)) => connection,
            None => {
                let to = parse_address(address).ok_or(None)?;
                PeerConnection::open(&to, self.secret.as_ref(), Role::Newcomer, self.patience)?
            }
        };
        let Identity { host, incarnation, .. } = self.own;
        let request = match self.known.load(Acquire) {
            true => Request::Alive { host, incarnation, progress: self.workshop.progress() },
            // The process of this host ended, and this one goes on (I4).
            false => Request::Return { host, incarnation, offer: self.offer.clone() },
        };
        let answer = connection.ask(&request, self.patience)?;
        *link = Some((address.to_owned(), connection));
        Ok(answer)
    }
}
