//! One identity's place in a cluster in this process: which memory servers its endpoints reach, and who
//! answers its requests.

use crate::calls::Call;
use crate::cluster::EmbeddedCluster;
use crate::gate::Member;
use crate::server::{Asker, Server};
use sherman_fabric::{Caps, FabricError, Peer, Request, Response};
use std::fmt;
use std::sync::Arc;

/// What the endpoints of one identity need of its cluster.
pub trait Seat: fmt::Debug {
    /// The member.
    fn member(&self) -> &Member;

    /// A memory server that can be reached.
    fn server(&self, server: u16) -> Result<&Server, FabricError>;

    /// How many memory servers there are.
    fn servers(&self) -> u16;

    /// What all of them can do.
    fn caps(&self) -> &Caps;

    /// The time of the cluster, in nanoseconds.
    fn now(&self) -> u64;

    /// Refuses requests of a member that is over.
    fn admits(&self, peer: Peer) -> Result<(), FabricError>;

    /// Asks a memory server, or the control state.
    fn ask(&self, peer: Peer, request: &Request) -> Result<Call, FabricError>;

    /// Tells every volume that the member leaves, and then the control state, which may issue the id again.
    /// Stops at the first refusal: then the recoverer of the member does the rest.
    fn say_goodbye(&self) -> Result<Response, FabricError>;

    /// Tells the control state that the member departs.
    fn depart(&self) -> Result<Response, FabricError>;
}

/// Keeps a member in an [`EmbeddedCluster`].
#[derive(Debug)]
pub struct Membership {
    pub(crate) cluster: Arc<EmbeddedCluster>,
    pub(crate) member: Arc<Member>,
}

impl Membership {
    pub(crate) fn new(cluster: Arc<EmbeddedCluster>, member: Arc<Member>) -> Self {
        Self { cluster, member }
    }

    fn tell(&self, peer: Peer, request: &Request) -> Result<Response, FabricError> {
        let Self { cluster, member } = self;
        let server = peer.server();
        let asker = Asker::Leaver(member, member.flag(server));
        cluster.server(server)?.handle(asker, request, || cluster.now(), |_, response| response)
    }
}

impl Seat for Membership {
    #[inline]
    fn member(&self) -> &Member {
        &self.member
    }

    #[inline]
    fn server(&self, server: u16) -> Result<&Server, FabricError> {
        self.cluster.server(server)
    }

    #[inline]
    fn servers(&self) -> u16 {
        self.cluster.servers()
    }

    #[inline]
    fn caps(&self) -> &Caps {
        self.cluster.caps()
    }

    #[inline]
    fn now(&self) -> u64 {
        self.cluster.now()
    }

    fn admits(&self, peer: Peer) -> Result<(), FabricError> {
        self.cluster.server(peer.server())?;
        let over = self.member.flag(peer.server()).is_over();
        if over { Err(FabricError::Fenced { client: self.member.client }) } else { Ok(()) }
    }

    fn ask(&self, peer: Peer, request: &Request) -> Result<Call, FabricError> {
        let Self { cluster, member } = self;
        let server = peer.server();
        cluster.server(server)?.handle(
            Asker::Member(member, member.flag(server)),
            request,
            || cluster.now(),
            |_, response| match *request {
                Request::Fence { client } => match cluster.member(client) {
                    Some(fenced) => Call::Stopping(fenced.fence(server), response),
                    None => Call::Answered(Ok(response)),
                },
                _ => Call::Answered(Ok(response)),
            },
        )
    }

    fn say_goodbye(&self) -> Result<Response, FabricError> {
        for volume in (0..self.cluster.servers()).rev() {
            self.tell(Peer::Volume(volume), &Request::Release)?;
        }
        self.tell(Peer::Control, &Request::Leave)
    }

    fn depart(&self) -> Result<Response, FabricError> {
        self.tell(Peer::Control, &Request::Depart)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // Leave the registry first: the id may be issued again as soon as the server has received `Leave`. If
        // the id was already issued again, the entry belongs to another member.
        let mut members = self.cluster.members();
        let client = self.member.client;
        if members.get(&client).is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(&self.member))) {
            members.remove(&client);
        }
        drop(members);
        if self.member.may_go() {
            // A server refuses only if the member is dead or has left. Then other clients recover its state.
            let _ = self.say_goodbye();
        }
    }
}
