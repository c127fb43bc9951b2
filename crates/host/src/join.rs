//! How a process becomes a host of an existing cluster: it asks any host which one leads, and the leader for
//! a place.

use crate::address::parse_address;
use crate::error::HostError;
use sherman_control::client::PeerConnection;
use sherman_control::wire::{GoodbyeCode, Role};
use sherman_control::{Address, ConnectError, Secret};
use sherman_fabric::group::{ClusterInfo, HostOffer, Registration};
use sherman_fabric::{FabricError, Refusal, Request, Response};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long one connection or answer may take.
const ANSWER: Duration = Duration::from_secs(2);
/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a host may take to say to which cluster it belongs, where that is only checked.
const WORD: Duration = Duration::from_millis(500);
/// How the control state refuses a host that offers too little memory.
const LITTLE_MEMORY: &str = "the memory server offers less memory than the copies of its volumes need";

/// A process that looks for its place.
#[derive(Debug)]
pub(crate) struct Applicant<'a> {
    pub(crate) seeds: &'a [Address],
    pub(crate) secret: Option<&'a Secret>,
    pub(crate) offer: HostOffer,
    /// How long to try.
    pub(crate) patience: Duration,
}

impl Applicant<'_> {
    /// Registers this process as a host.
    pub(crate) fn register(&mut self) -> Result<Registration, HostError> {
        let is_own = |seed: &Address| seed.to_string() == self.offer.address;
        if self.seeds.iter().all(is_own) {
            return Err(HostError::NoSeeds);
        }
        let give_up = Instant::now() + self.patience;
        loop {
            let last = match self.round() {
                Ok(Some(registration)) => return Ok(registration),
                Ok(None) => HostError::NoLeader,
                Err(error) => error,
            };
            if !may_pass(&last) || Instant::now() + PAUSE >= give_up {
                return Err(last);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Asks every seed, and every leader that one of them names. `None` if nobody leads.
    fn round(&mut self) -> Result<Option<Registration>, HostError> {
        let mut to_ask: VecDeque<Address> = self.seeds.iter().cloned().collect();
        let (mut asked, mut failure, mut answered) = (Vec::new(), None, false);
        while let Some(address) = to_ask.pop_front() {
            if asked.contains(&address) {
                continue;
            }
            asked.push(address.clone());
            match self.ask(&address) {
                Ok(Said::Registered(registration)) => return Ok(Some(*registration)),
                Ok(Said::Leader(leader)) => {
                    answered = true;
                    // The leader is asked next.
                    leader.into_iter().for_each(|leader| to_ask.push_front(leader));
                }
                Err(error @ HostError::Unreachable { .. }) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        match failure {
            Some(error) if !answered => Err(error),
            _ => Ok(None),
        }
    }

    fn ask(&mut self, address: &Address) -> Result<Said, HostError> {
        let failed = |error| connect_error(address, error);
        let connection =
            PeerConnection::open(address, self.secret, Role::Newcomer, ANSWER).map_err(failed)?;
        let info = match connection.ask(&Request::Cluster, ANSWER).map_err(failed)? {
            Ok(Response::Cluster(info)) => info,
            Ok(_) => return Err(HostError::Answer { what: "it is not about a cluster" }),
            // A host that is about to register itself.
            Err(FabricError::Refused(Refusal::NotLeader { .. })) => return Ok(Said::Leader(None)),
            Err(_) => return Err(HostError::NotAHost { address: address.clone() }),
        };
        self.check_cluster(address, &info)?;
        let leader = info.leader.as_deref().and_then(parse_address);
        if leader.as_ref() != Some(address) {
            return Ok(Said::Leader(leader));
        }
        self.check_seeds(address)?;
        let request = Request::Register { offer: self.offer.clone() };
        match connection.ask(&request, ANSWER).map_err(failed)? {
            Ok(Response::Registered(registration)) => Ok(Said::Registered(registration)),
            Ok(_) => Err(HostError::Answer { what: "it is no registration" }),
            Err(FabricError::Refused(Refusal::NotLeader { leader })) => {
                Ok(Said::Leader(parse_address(&leader)))
            }
            Err(FabricError::Refused(Refusal::BadRequest { what: LITTLE_MEMORY })) => {
                Err(HostError::TooLittleMemory { offered: self.offer.memory_bytes })
            }
            Err(error) => Err(HostError::Refused(error)),
        }
    }

    /// Refuses seeds that belong to two clusters, as far as they answer, before this process belongs to one.
    fn check_seeds(&mut self, asked: &Address) -> Result<(), HostError> {
        for other in self.seeds.iter().filter(|other| *other != asked) {
            if let Some((found, _)) =
                host_at(other, self.secret).filter(|(found, _)| *found != self.offer.cluster)
            {
                return Err(HostError::OtherCluster {
                    address: other.clone(),
                    found,
                    meant: self.offer.cluster,
                });
            }
        }
        Ok(())
    }

    /// Refuses another cluster than the one that is meant. The first that answers is meant if none was named.
    fn check_cluster(&mut self, address: &Address, info: &ClusterInfo) -> Result<(), HostError> {
        if self.offer.cluster == 0 {
            self.offer.cluster = info.cluster;
        }
        let (found, meant) = (info.cluster, self.offer.cluster);
        if found == meant {
            return Ok(());
        }
        Err(HostError::OtherCluster { address: address.clone(), found, meant })
    }
}

/// Which cluster the host at `address` belongs to, and its number there. `None` if no host answers, or one
/// that has no place yet.
pub(crate) fn host_at(address: &Address, secret: Option<&Secret>) -> Option<(u64, u16)> {
    let connection = PeerConnection::open(address, secret, Role::Newcomer, WORD).ok()?;
    match connection.ask(&Request::Cluster, WORD) {
        Ok(Ok(Response::Cluster(info))) => Some((info.cluster, info.host)),
        _ => None,
    }
}

/// Refuses the address that a host gives as its own, if another memory server answers there. This process
/// listens already, but has no place yet.
pub(crate) fn check_own_address(address: &str, secret: Option<&Secret>) -> Result<(), HostError> {
    let Some(address) = parse_address(address) else { return Ok(()) };
    let answer = PeerConnection::open(&address, secret, Role::Newcomer, WORD)
        .and_then(|connection| connection.ask(&Request::Cluster, WORD));
    let is_other = match answer {
        // This process, or one that has no place either.
        Ok(Err(FabricError::Refused(Refusal::NotLeader { .. }))) => false,
        Ok(_) => true,
        Err(ConnectError::Goodbye(goodbye)) => goodbye.code == GoodbyeCode::NotAllowed,
        Err(_) => false,
    };
    if is_other {
        return Err(HostError::AddressTaken { address });
    }
    Ok(())
}

/// What a host says.
enum Said {
    Registered(Box<Registration>),
    /// Which host leads, if it knows one.
    Leader(Option<Address>),
}

fn connect_error(address: &Address, error: ConnectError) -> HostError {
    let address = address.clone();
    match error {
        ConnectError::Version { .. } => HostError::Version { address, error },
        ConnectError::Goodbye(ref goodbye) => match goodbye.code {
            GoodbyeCode::NotAllowed => HostError::NotAHost { address },
            GoodbyeCode::Version => HostError::Version { address, error },
            GoodbyeCode::BadSecret => HostError::Connect { address, error },
            // It goes down, or has too many connections.
            _ => HostError::Unreachable { address, error },
        },
        ConnectError::NeedsSecret => HostError::NeedsSecret { address },
        ConnectError::Protocol(_) | ConnectError::Impostor => HostError::Connect { address, error },
        _ => HostError::Unreachable { address, error },
    }
}

/// Whether the same attempt may succeed later.
fn may_pass(error: &HostError) -> bool {
    matches!(error, HostError::Unreachable { .. } | HostError::NoLeader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman_layout::FormatOptions;
    use sherman_memory_server::cluster::{ClusterSettings, ClusterState, Command};

    fn offer() -> HostOffer {
        HostOffer { address: "unix:/a".into(), memory_bytes: 0, boot: 1, cluster: 0, keeps: false }
    }

    #[test]
    fn a_seed_that_nobody_listens_at_is_out_of_reach() {
        let seeds = [Address::Unix("/nowhere/at/all".into())];
        let patience = Duration::from_millis(120);
        let mut applicant = Applicant { seeds: &seeds, secret: None, offer: offer(), patience };
        assert!(matches!(applicant.register(), Err(HostError::Unreachable { .. })));
        let mut applicant = Applicant { seeds: &[], secret: None, offer: offer(), patience };
        assert!(matches!(applicant.register(), Err(HostError::NoSeeds)));
    }

    #[test]
    fn hosts_of_two_clusters_are_not_mixed_up() {
        let seeds = [Address::Unix("/a".into())];
        let patience = Duration::ZERO;
        let mut applicant = Applicant { seeds: &seeds, secret: None, offer: offer(), patience };
        let info = |cluster| ClusterInfo { cluster, ..ClusterInfo::default() };
        assert!(applicant.check_cluster(&seeds[0], &info(7)).is_ok());
        assert!(applicant.check_cluster(&seeds[0], &info(7)).is_ok());
        let refused = applicant.check_cluster(&seeds[0], &info(8));
        assert!(matches!(refused, Err(HostError::OtherCluster { found: 8, meant: 7, .. })), "{refused:?}");
    }

    #[test]
    fn the_control_state_says_of_too_little_memory_what_is_expected_here() {
        let settings = ClusterSettings {
            replicas: 1,
            volumes: 1,
            hosts: 2,
            volume_bytes: 64 << 20,
            on_chip_bytes: 256 << 10,
            format: FormatOptions::default(),
        };
        let mut state = ClusterState::new(7, settings).unwrap();
        let refused = state.apply(&Command::Register { now: 1, offer: offer() });
        assert_eq!(refused, Err(FabricError::Refused(Refusal::BadRequest { what: LITTLE_MEMORY })));
    }
}
