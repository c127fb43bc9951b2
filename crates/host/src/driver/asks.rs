//! Requests to control.
//!
//! Every host answers [`Request::Cluster`], and tells a host that it knows to be lost. The leader answers
//! everything else: it proposes a command, and sends the answer when the command is committed.

use super::Driver;
use super::office::Office;
use crate::clock;
use crate::machine::encode;
use crate::options::MOST_HOSTS;
use crate::plane::{Ask, not_leader};
use sherman_consensus::{Refused, Ticket, Unanswered};
use sherman_control::plane::Asker;
use sherman_fabric::group::ClusterInfo;
use sherman_fabric::{FabricError, Refusal, Request, Response};
use sherman_memory_server::cluster::Command;

impl Driver {
    pub(super) fn ask(&mut self, ask: Ask) {
        let Ask { asker, request, reply } = ask;
        match request {
            Request::Cluster => reply.send(Ok(Response::Cluster(Box::new(self.info())))),
            Request::Alive { host, incarnation, progress } => {
                let answer = self.alive(host, incarnation);
                if let (Ok(_), Some(office)) = (&answer, &mut self.office) {
                    office.progress(host, progress);
                }
                reply.send(answer);
            }
            request => {
                let command = self.check_room(&request).and_then(|()| command(asker, request));
                let proposed = command.and_then(|command| self.propose(&command));
                match proposed {
                    Ok(ticket) => drop(self.waiting.insert(ticket, reply)),
                    Err(error) => reply.send(Err(error)),
                }
            }
        }
    }

    /// Refuses a host that the group has no room for. A host that repeats its offer is among the others.
    fn check_room(&self, request: &Request) -> Result<(), FabricError> {
        let Request::Register { offer } = request else { return Ok(()) };
        let state = self.parts.group.state().state();
        let hosts = state.map_or(&[][..], |state| state.hosts());
        let present = hosts.iter().filter(|host| host.info.up).count();
        if present < usize::from(MOST_HOSTS) || hosts.iter().any(|host| host.boot == offer.boot) {
            return Ok(());
        }
        Err(FabricError::Refused(Refusal::BadRequest { what: NO_ROOM }))
    }

    /// What this host knows about the cluster.
    fn info(&self) -> ClusterInfo {
        let (host, leader) = (self.parts.own.host, self.leader_address());
        let mut info = match self.parts.group.state().state() {
            Some(state) => state.info(host, leader),
            None => ClusterInfo {
                cluster: self.parts.own.cluster,
                host,
                lease_nanos: self.parts.lease.as_nanos() as u64,
                hosts: self.parts.hosts.clone(),
                ..ClusterInfo::default()
            },
        };
        for host in &mut info.hosts {
            host.voter = self.view.members.voters.contains(&host.node);
        }
        let others = self.office.iter().flat_map(Office::known_progress);
        for progress in self.parts.workshop.progress().into_iter().chain(others) {
            let making = info.work.makings.iter_mut().find(|making| making.copy == progress.copy);
            making.into_iter().for_each(|making| making.progress = progress);
        }
        info
    }

    /// Takes a sign of life. A host that the state counts as lost learns it from every host that knows.
    ///
    /// A leader that was deposed, and does not know it yet, has an old state. So a host that never registered
    /// there is not lost: it may have registered at the next leader.
    fn alive(&mut self, host: u16, incarnation: u32) -> Result<Response, FabricError> {
        let known = self.view.hosts.iter().find(|known| known.number == host);
        let state = self.parts.group.state().state();
        if known.is_none() && !state.is_some_and(|state| state.has_registered(host)) {
            return Err(self.not_leader());
        }
        let present = known.is_some_and(|known| known.up && known.incarnation == incarnation);
        let lost = match known {
            Some(known) if known.has_left() => FabricError::Refused(Refusal::HostLeft { host }),
            _ => FabricError::ServerLost { server: host },
        };
        match &mut self.office {
            Some(office) if present => {
                office.heard(host, incarnation, clock::now());
                Ok(Response::Done)
            }
            // The leader has the whole state.
            Some(_) => Err(lost),
            None if known.is_some_and(|known| !known.up) => Err(lost),
            None => Err(self.not_leader()),
        }
    }

    /// Refuses what only the leader answers.
    pub(super) fn not_leader(&self) -> FabricError {
        not_leader(self.leader_address().as_deref().unwrap_or_default())
    }

    /// The address of the leader, if this host knows one.
    pub(super) fn leader_address(&self) -> Option<String> {
        let leader = self.view.leader?;
        let host = self.view.hosts.iter().find(|host| host.node == leader);
        host.map(|host| host.address.clone())
    }

    /// Proposes a command, if this host leads and has said so to the state.
    pub(super) fn propose(&mut self, command: &Command) -> Result<Ticket, FabricError> {
        if !self.office.as_ref().is_some_and(|office| office.leads) {
            return Err(self.not_leader());
        }
        self.propose_at_once(command)
    }

    pub(super) fn propose_at_once(&mut self, command: &Command) -> Result<Ticket, FabricError> {
        let unknown = |_| FabricError::Refused(Refusal::BadRequest { what: NO_REQUEST });
        let bytes = encode(command).map_err(unknown)?;
        self.parts.group.propose(bytes).map_err(|refused| match refused {
            Refused::TooLarge { bytes, limit } => {
                FabricError::TooLarge { asked: bytes as u64, limit: limit as u64 }
            }
            // The sender asks again.
            _ => self.not_leader(),
        })
    }

    /// Answers a request whose command has a result.
    pub(super) fn proposed(
        &mut self,
        ticket: Ticket,
        result: Result<Result<Response, FabricError>, Unanswered>,
    ) {
        if let Some(office) = &mut self.office {
            office.proposed(ticket);
        }
        let Some(reply) = self.waiting.remove(&ticket) else { return };
        reply.send(match result {
            Ok(answer) => answer.map(|response| self.with_voters(response)),
            // The state recognises most repeated commands, and the others do no harm.
            Err(_) => Err(self.not_leader()),
        });
    }

    /// The state does not know who votes.
    fn with_voters(&self, mut response: Response) -> Response {
        if let Response::Registered(registration) = &mut response {
            for host in &mut registration.hosts {
                host.voter = self.view.members.voters.contains(&host.node);
            }
        }
        response
    }
}

/// Why a host is refused that the group has no room for.
const NO_ROOM: &str = "the cluster has as many memory servers as it can have";
/// Why a request is refused that has no bytes.
const NO_REQUEST: &str = "this server does not know the request";
/// Why a request is refused that is not for control.
const FOR_VOLUMES: &str = "this request is for a volume";
/// Why a request of a process is refused that is no member.
const FOR_MEMBERS: &str = "a process that is no member may not send this request";

/// The command for a request. Its sender's time does not count, but that of the leader.
fn command(asker: Asker, request: Request) -> Result<Command, FabricError> {
    let now = clock::now();
    let refuse = |what| Err(FabricError::Refused(Refusal::BadRequest { what }));
    match (asker, request) {
        (Asker::Nobody | Asker::Operator, Request::Join) => Ok(Command::Join { now }),
        (Asker::Nobody | Asker::Operator, Request::Register { offer }) => {
            Ok(Command::Register { now, offer })
        }
        (Asker::Nobody, Request::Return { host, incarnation, offer }) => {
            Ok(Command::HostReturned { now, host, incarnation, offer })
        }
        (Asker::Nobody, Request::Copied { copy }) => Ok(Command::Copied { now, copy }),
        (Asker::Nobody, Request::Settled { copy, epoch }) => Ok(Command::Settled { now, copy, epoch }),
        (_, request) if !request.is_for_control() => refuse(FOR_VOLUMES),
        (Asker::Nobody, _) => refuse(FOR_MEMBERS),
        (Asker::Operator, request) => Ok(Command::Operate { now, request }),
        (Asker::Member { client, incarnation }, request) => {
            Ok(Command::Ask { now, client, incarnation, request })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman_control::wire::words::known;
    use sherman_fabric::ComputeId;

    #[test]
    fn a_request_becomes_the_command_of_its_sender() {
        let member = Asker::Member { client: ComputeId(3), incarnation: 4 };
        assert!(matches!(command(Asker::Nobody, Request::Join), Ok(Command::Join { .. })));
        let renew = command(member, Request::Renew);
        assert!(matches!(renew, Ok(Command::Ask { client: ComputeId(3), incarnation: 4, .. })));
        let copied = command(Asker::Nobody, Request::Copied { copy: 9 });
        assert!(matches!(copied, Ok(Command::Copied { copy: 9, .. })));
        let settled = command(Asker::Nobody, Request::Settled { copy: 9, epoch: 8 });
        assert!(matches!(settled, Ok(Command::Settled { copy: 9, epoch: 8, .. })));
        assert!(matches!(command(Asker::Operator, Request::Members), Ok(Command::Operate { .. })));
        for (asker, request, what) in [
            (Asker::Nobody, Request::Renew, FOR_MEMBERS),
            (member, Request::RedoArea, FOR_VOLUMES),
            (Asker::Operator, Request::Fence { client: ComputeId(1) }, FOR_VOLUMES),
        ] {
            let refused = Err(FabricError::Refused(Refusal::BadRequest { what }));
            assert_eq!(command(asker, request), refused);
            assert_eq!(known(what), what);
        }
        for what in [NO_ROOM, NO_REQUEST] {
            assert_eq!(known(what), what);
        }
    }
}
