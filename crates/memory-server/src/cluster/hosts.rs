//! The hosts: memory server processes, present and lost.
//!
//! Every registration makes a new host, with a number, an incarnation and a node that no other host ever had.
//! A process that was restarted without its memory is a new host. The host that it was before stays present
//! until the leader notices that it is silent. A process that has the memory of a host that is present goes
//! on as that host (I4).
//!
//! **Voters.** Three hosts vote in the group, or five if there are so many. Voters that are present stay.
//! Hosts with the lowest numbers take the places of the others. A host that shall leave is not wanted as a
//! voter.

use sherman_fabric::group::{HostInfo, HostOffer};
use sherman_fabric::{Refusal, Response, ServerInfo};

/// The most hosts that are present at the same time.
pub const MOST_HOSTS: usize = 256;
/// How many lost hosts are remembered.
pub const MOST_LOST: usize = 64;
/// The most bytes of an address.
pub const MOST_ADDRESS: usize = 1024;

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As the wire has it. `voter` is false: only the group knows who votes.
    pub info: HostInfo,
    /// The number of this start of the process.
    pub boot: u64,
    /// Whether its memory is in files: it may come back after its process has ended.
    pub keeps: bool,
}

/// The hosts, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hosts {
    list: Vec<Host>,
    /// How many hosts have ever registered.
    registered: u16,
}

impl Hosts {
    /// The hosts in a snapshot, if they are possible ones.
    pub(super) fn new(registered: u16, list: Vec<Host>) -> Option<Self> {
        let ascends = list.windows(2).all(|pair| pair[0].info.number < pair[1].info.number);
        let possible = |host: &Host| {
            let HostInfo { number, incarnation, node, ref address, voter, .. } = host.info;
            number < registered
                && incarnation == u32::from(number) + 1
                && node == u64::from(number) + 1
                && is_address(address)
                && !voter
                && host.boot != 0
        };
        let up = list.iter().filter(|host| host.info.up).count();
        let bounded = up <= MOST_HOSTS && list.len() - up <= MOST_LOST;
        (ascends && bounded && list.iter().all(possible)).then_some(Self { list, registered })
    }

    pub(super) fn all(&self) -> &[Host] {
        &self.list
    }

    /// How many hosts have ever registered.
    pub(super) fn registered(&self) -> u16 {
        self.registered
    }

    pub(super) fn get(&self, number: u16) -> Option<&Host> {
        self.list.iter().find(|host| host.info.number == number)
    }

    /// The hosts that are present.
    pub(super) fn present(&self) -> impl Iterator<Item = &HostInfo> {
        self.list.iter().map(|host| &host.info).filter(|host| host.up)
    }

    /// The hosts that can have copies when the cluster is formed. Of several with one address only the last
    /// one: the others were processes that ended.
    pub(super) fn candidates(&self) -> Vec<&HostInfo> {
        let replaced = |host: &HostInfo| {
            self.present().any(|other| other.number > host.number && other.address == host.address)
        };
        self.present().filter(|host| !replaced(host)).collect()
    }

    /// The host that made this offer: its number, incarnation and node. A repeated offer gets the same ones.
    pub(super) fn register(&mut self, offer: &HostOffer) -> Result<(u16, u32, u64), Refusal> {
        let bad = |what| Err(Refusal::BadRequest { what });
        check_offer(offer)?;
        if let Some(Host { info, .. }) = self.list.iter().find(|host| host.boot == offer.boot) {
            return Ok((info.number, info.incarnation, info.node));
        }
        if self.present().count() >= MOST_HOSTS || self.registered == u16::MAX {
            return bad("the cluster has no number left for a memory server");
        }
        let number = self.registered;
        self.registered += 1;
        let (incarnation, node) = (u32::from(number) + 1, u64::from(number) + 1);
        let info = HostInfo {
            number,
            incarnation,
            node,
            address: offer.address.clone(),
            up: true,
            voter: false,
            memory_bytes: offer.memory_bytes,
            leaving: false,
        };
        self.list.push(Host { info, boot: offer.boot, keeps: offer.keeps });
        Ok((number, incarnation, node))
    }

    /// Takes the next process of a host that is present. Returns whether it was not known before.
    pub(super) fn come_back(&mut self, number: u16, offer: &HostOffer) -> Result<bool, Refusal> {
        check_offer(offer)?;
        let host = self.list.iter_mut().find(|host| host.info.number == number);
        let Some(host) = host.filter(|host| host.boot != offer.boot) else { return Ok(false) };
        host.info.address.clone_from(&offer.address);
        host.info.memory_bytes = offer.memory_bytes;
        (host.boot, host.keeps) = (offer.boot, offer.keeps);
        Ok(true)
    }

    /// A planted bug: a lost host counts as present. Returns whether it was lost.
    pub(super) fn revive(&mut self, number: u16) -> bool {
        let host = self.list.iter_mut().find(|host| host.info.number == number && !host.info.up);
        host.map(|host| host.info.up = true).is_some()
    }

    /// Declares a host lost. Returns whether it was present before.
    pub(super) fn lose(&mut self, number: u16, incarnation: Option<u32>) -> Result<bool, Refusal> {
        if number >= self.registered {
            return Err(Refusal::BadRequest { what: "the cluster has no such memory server" });
        }
        // A host that is not on the list was lost long ago.
        let Some(host) = self.list.iter_mut().find(|host| host.info.number == number) else {
            return Ok(false);
        };
        if incarnation.is_some_and(|incarnation| incarnation != host.info.incarnation) {
            return Err(Refusal::BadRequest { what: "the memory server has another incarnation" });
        }
        let was_up = std::mem::replace(&mut host.info.up, false);
        if was_up {
            host.info.leaving = false;
        }
        self.forget_oldest();
        Ok(was_up)
    }

    /// Notes whether the copies of a host shall move away.
    pub(super) fn set_leaving(&mut self, number: u16, leaving: bool) {
        let host = self.list.iter_mut().find(|host| host.info.number == number && host.info.up);
        host.into_iter().for_each(|host| host.info.leaving = leaving);
    }

    /// A host that shall leave has left.
    pub(super) fn let_go(&mut self, number: u16) {
        let host = self.list.iter_mut().find(|host| host.info.number == number && host.info.leaving);
        host.into_iter().for_each(|host| host.info.up = false);
        self.forget_oldest();
    }

    /// Forgets the oldest of too many hosts that are gone.
    fn forget_oldest(&mut self) {
        let lost = self.list.iter().filter(|host| !host.info.up).count();
        if lost > MOST_LOST
            && let Some(oldest) = self.list.iter().position(|host| !host.info.up)
        {
            self.list.remove(oldest);
        }
    }

    /// All hosts by number, as operators see them. The start of the process is the identity of its memory.
    pub(super) fn list(&self) -> Response {
        let mut servers = vec![ServerInfo { memory: 0, lost: true }; usize::from(self.registered)];
        for host in &self.list {
            if let Some(server) = servers.get_mut(usize::from(host.info.number)) {
                *server = ServerInfo { memory: host.boot, lost: !host.info.up };
            }
        }
        Response::Servers(servers)
    }

    /// The nodes that should vote, if these vote now.
    pub(super) fn voters_wanted(&self, present: &[u64]) -> Vec<u64> {
        let candidates = self.candidates();
        let stays = candidates.iter().filter(|host| !host.leaving);
        let mut up: Vec<u64> = stays.map(|host| host.node).collect();
        if up.is_empty() {
            up = candidates.iter().map(|host| host.node).collect();
        }
        let count = match up.len() {
            few @ 0..3 => few,
            3 | 4 => 3,
            _ => 5,
        };
        let (stay, others): (Vec<u64>, Vec<u64>) = up.into_iter().partition(|node| present.contains(node));
        let mut wanted: Vec<u64> = stay.into_iter().chain(others).take(count).collect();
        wanted.sort_unstable();
        wanted
    }
}

fn check_offer(offer: &HostOffer) -> Result<(), Refusal> {
    let bad = |what| Err(Refusal::BadRequest { what });
    if offer.boot == 0 {
        return bad("the memory server gives no number of its start");
    }
    if is_address(&offer.address) { Ok(()) } else { bad("the memory server's address is empty or too long") }
}

fn is_address(address: &str) -> bool {
    !address.is_empty() && address.len() <= MOST_ADDRESS
}
