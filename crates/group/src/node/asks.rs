//! Requests to control.
//!
//! Every host answers [`Request::Cluster`], and tells a host that it knows to be lost. The leader answers
//! everything else: it proposes a command, and answers when the command is committed.

use super::office::Office;
use super::{Answer, Node};
use crate::machine::encode;
use sherman_consensus::{MAX_VOTERS, Refused, Ticket, Unanswered};
use sherman_control::plane::Asker;
use sherman_fabric::group::{ClusterInfo, HostInfo};
use sherman_fabric::{FabricError, Refusal, Request, Response};
use sherman_memory_server::cluster::Command;

/// The most hosts that a cluster can have at a time: all of them are members of its group.
pub const MOST_HOSTS: u16 = 2 * MAX_VOTERS as u16;

/// The refusal of a host that does not lead. Clients ask the leader instead, or this host again.
pub fn not_leader(leader: &str) -> FabricError {
    FabricError::Refused(Refusal::NotLeader { leader: leader.to_owned() })
}

impl<R> Node<R> {
    /// Takes a request. Its answer comes with the output, now or later. `now` is this host's clock.
    pub fn ask(&mut self, asker: Asker, request: Request, reply: R, now: u64) {
        #[cfg(feature = "mutants")]
        let Some((request, reply)) = self.answer_alone(request, reply) else { return };
        #[cfg(feature = "mutants")]
        let request = forget_name(request, now);
        match request {
            Request::Cluster => {
                let info = Response::Cluster(Box::new(self.info()));
                self.answers.push((reply, Ok(info)));
            }
            Request::Alive { host, incarnation, progress } => {
                let answer = self.alive(host, incarnation, now);
                if let (Ok(_), Some(office)) = (&answer, &mut self.office) {
                    office.progress(host, progress);
                }
                self.answers.push((reply, answer));
            }
            request => {
                let command = self.check_room(&request).and_then(|()| command(asker, request, now));
                let proposed = command.and_then(|command| self.propose(&command));
                match proposed {
                    Ok(ticket) => drop(self.waiting.insert(ticket, reply)),
                    Err(error) => self.answers.push((reply, Err(error))),
                }
            }
        }
    }

    /// Planted bugs: requests that are answered from this node's memory alone.
    #[cfg(feature = "mutants")]
    fn answer_alone(&mut self, request: Request, reply: R) -> Option<(Request, R)> {
        use crate::mutant::{Mutant, planted};
        use sherman_fabric::control::Renewal;
        let leads = self.office.as_ref().is_some_and(|office| office.leads);
        let answer = match (&request, self.state()) {
            (Request::Volumes, Some(state)) if planted(Mutant::TablesFromMemory) => {
                Response::Volumes(state.table().encode())
            }
            (Request::Renew, Some(_)) if leads && planted(Mutant::GrantsAlone) => {
                Response::Renewed(Renewal::default())
            }
            _ => return Some((request, reply)),
        };
        self.answers.push((reply, Ok(answer)));
        None
    }

    /// Refuses a host that the group has no room for. A host that repeats its offer is among the others.
    fn check_room(&self, request: &Request) -> Result<(), FabricError> {
        let Request::Register { offer } = request else { return Ok(()) };
        let hosts = self.state().map_or(&[][..], |state| state.hosts());
        let present = hosts.iter().filter(|host| host.info.up).count();
        if present < usize::from(MOST_HOSTS) || hosts.iter().any(|host| host.boot == offer.boot) {
            return Ok(());
        }
        Err(FabricError::Refused(Refusal::BadRequest { what: NO_ROOM }))
    }

    /// What this host knows about the cluster.
    fn info(&self) -> ClusterInfo {
        let (own, leader) = (self.options.own, self.leader_address());
        let mut info = match self.state() {
            Some(state) => state.info(own.host, leader),
            None => ClusterInfo {
                cluster: own.cluster,
                host: own.host,
                lease_nanos: self.options.lease,
                hosts: self.options.hosts.clone(),
                ..ClusterInfo::default()
            },
        };
        self.mark_voters(&mut info.hosts);
        let others = self.office.iter().flat_map(Office::known_progress);
        for progress in self.progress.iter().copied().chain(others) {
            let making = info.work.makings.iter_mut().find(|making| making.copy == progress.copy);
            making.into_iter().for_each(|making| making.progress = progress);
        }
        info
    }

    /// The state does not know who votes.
    fn mark_voters(&self, hosts: &mut [HostInfo]) {
        for host in hosts {
            host.voter = self.members.voters.contains(&host.node);
        }
    }

    /// Takes a sign of life. A host that the state counts as lost learns it from every host that knows.
    ///
    /// A leader that was deposed, and does not know it yet, has an old state. So a host that the state does
    /// not know is not lost: it may have registered at the next leader.
    fn alive(&mut self, host: u16, incarnation: u32, now: u64) -> Answer {
        let mut left = false;
        let known = match self.state() {
            Some(state) => match state.host(host) {
                Some(known) => {
                    left = known.info.has_left();
                    Some((known.info.up, known.info.incarnation))
                }
                None => state.has_registered(host).then_some((false, incarnation)),
            },
            None => {
                let mut hosts = self.options.hosts.iter();
                hosts.find(|known| known.number == host).map(|known| (known.up, known.incarnation))
            }
        };
        match (&mut self.office, known) {
            (Some(office), Some((true, of))) if of == incarnation => {
                office.heard(host, incarnation, now);
                Ok(Response::Done)
            }
            (Some(_), Some(_)) | (None, Some((false, _))) if left => {
                Err(FabricError::Refused(Refusal::HostLeft { host }))
            }
            (Some(_), Some(_)) | (None, Some((false, _))) => Err(FabricError::ServerLost { server: host }),
            (_, None) | (None, Some((true, _))) => Err(self.refer()),
        }
    }

    /// The refusal of what only the leader answers.
    pub fn refer(&self) -> FabricError {
        not_leader(self.leader_address().as_deref().unwrap_or_default())
    }

    pub(super) fn propose(&mut self, command: &Command) -> Result<Ticket, FabricError> {
        if !self.office.as_ref().is_some_and(|office| office.leads) {
            return Err(self.refer());
        }
        self.propose_at_once(command)
    }

    pub(super) fn propose_at_once(&mut self, command: &Command) -> Result<Ticket, FabricError> {
        let unknown = |_| FabricError::Refused(Refusal::BadRequest { what: NO_REQUEST });
        let bytes = encode(command).map_err(unknown)?;
        self.group.propose(bytes).map_err(|refused| match refused {
            Refused::TooLarge { bytes, limit } => {
                FabricError::TooLarge { asked: bytes as u64, limit: limit as u64 }
            }
            // The sender asks again.
            _ => self.refer(),
        })
    }

    /// Answers a request whose command has a result.
    pub(super) fn proposed(&mut self, ticket: Ticket, result: Result<Answer, Unanswered>) {
        if let Some(office) = &mut self.office {
            office.proposed(ticket);
        }
        let Some(reply) = self.waiting.remove(&ticket) else { return };
        let answer = match result {
            Ok(answer) => answer.map(|mut response| {
                if let Response::Registered(registration) = &mut response {
                    self.mark_voters(&mut registration.hosts);
                }
                response
            }),
            // The state recognises most repeated commands, and the others do no harm.
            Err(_) => Err(self.refer()),
        };
        self.answers.push((reply, answer));
    }
}

/// A planted bug: a request gets another name each time that it comes.
#[cfg(feature = "mutants")]
fn forget_name(mut request: Request, now: u64) -> Request {
    use crate::mutant::{Mutant, planted};
    if let Request::CreateTree { asked, .. } = &mut request
        && planted(Mutant::CreationsUnnamed)
    {
        asked.number = now;
    }
    request
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
fn command(asker: Asker, request: Request, now: u64) -> Result<Command, FabricError> {
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
    use crate::{HostId, Machine, NodeOptions};
    use sherman_consensus::{Group, Settings, Start};
    use sherman_control::wire::words::known;
    use sherman_fabric::ComputeId;
    use sherman_fabric::group::HostOffer;
    use sherman_layout::FormatOptions;
    use sherman_memory_server::{ClusterSettings, ClusterState};

    /// A node that leads alone, in a cluster of which it knows one host.
    fn leader() -> Node<u8> {
        let settings = ClusterSettings {
            replicas: 1,
            volumes: 1,
            hosts: 1,
            volume_bytes: 16 << 20,
            on_chip_bytes: 256 << 10,
            format: FormatOptions::default(),
        };
        let mut state = ClusterState::new(7, settings).unwrap();
        for boot in 1..=2 {
            let address = format!("unix:/{boot}");
            let offer = HostOffer { address, memory_bytes: 1 << 30, boot, cluster: 0, keeps: false };
            state.apply(&Command::Register { now: 0, offer }).unwrap();
        }
        let machine = Machine::new(state);
        let group = Group::open(Settings::new(1, 0), machine, None, Start::NewGroup, 0).unwrap();
        let own = HostId { cluster: 7, host: 0, incarnation: 1 };
        let options =
            NodeOptions { own, detect: 1_000_000, lease: 2_000_000, hosts: Vec::new(), offer: None };
        Node::new(group, options, 0)
    }

    /// Carries out what a node asks. Returns its answers.
    fn settle(node: &mut Node<u8>) -> Vec<(u8, Answer)> {
        let mut answers = Vec::new();
        loop {
            let output = node.take_output(1);
            if output.is_empty() {
                return answers;
            }
            output.writes.iter().for_each(|write| node.persisted(write.number));
            answers.extend(output.answers);
        }
    }

    #[test]
    fn a_host_that_the_leader_does_not_know_is_not_told_that_it_was_lost() {
        let mut node = leader();
        assert!(settle(&mut node).is_empty() && node.status().leads);
        let lost = node.propose(&Command::HostLost { now: 1, host: 1, incarnation: 2 });
        assert!(lost.is_ok());
        settle(&mut node);
        let mut tell = |host, incarnation| {
            node.ask(Asker::Nobody, Request::Alive { host, incarnation, progress: Vec::new() }, 5, 1);
            settle(&mut node).remove(0).1
        };
        assert_eq!(tell(0, 1), Ok(Response::Done));
        assert_eq!(tell(1, 2), Err(FabricError::ServerLost { server: 1 }));
        assert_eq!(tell(0, 9), Err(FabricError::ServerLost { server: 0 }), "another incarnation");
        // It may have registered at the next leader.
        assert_eq!(tell(2, 3), Err(not_leader("unix:/1")));
    }

    #[test]
    fn a_request_becomes_the_command_of_its_sender() {
        let command = |asker, request| command(asker, request, 1);
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
