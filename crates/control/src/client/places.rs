//! Where the leader of the group may be: the hosts to ask, in a good order.
//!
//! Any host says who leads, if it knows. So a client follows what a host says, and otherwise asks one host
//! after the other. A host whose claim is wrong costs one attempt, because the next one goes to another host.
//! After a leader was lost, the others name it until they have elected another one. So a host that did not
//! answer is asked again only in its turn.

use super::options::Address;

/// The most addresses that a client remembers. A cluster has far fewer hosts.
const MOST: usize = 1024;

/// Addresses of hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    known: Vec<Address>,
    /// The place in `known` to ask next, unless there is a hint.
    next: usize,
    /// The leader, as some host has claimed since it was asked last.
    hint: Option<Address>,
    /// The host that failed to answer last, since any host has answered.
    failed: Option<Address>,
}

impl Places {
    /// These hosts. The first one is asked first.
    pub(super) fn new(seeds: &[Address]) -> Self {
        let mut places = Self::default();
        seeds.iter().for_each(|address| places.learn(address));
        places
    }

    /// Adds a host.
    pub(super) fn learn(&mut self, address: &Address) {
        if !self.known.contains(address) && self.known.len() < MOST {
            self.known.push(address.clone());
        }
    }

    /// Adds a host whose address is given as text. Text that is no address changes nothing.
    pub(super) fn learn_text(&mut self, address: &str) {
        if let Some(address) = Address::parse(address) {
            self.learn(&address);
        }
    }

    /// Notes that the leader is said to be at `leader`. Returns whether that host is asked next.
    pub(super) fn hint(&mut self, leader: &str) -> bool {
        let Some(leader) = Address::parse(leader) else { return false };
        self.learn(&leader);
        if self.failed.as_ref() == Some(&leader) {
            return false;
        }
        self.hint = Some(leader);
        true
    }

    /// Notes that a host did not answer.
    pub(super) fn failed(&mut self, address: Address) {
        self.failed = Some(address);
    }

    /// Notes that the leader has answered.
    pub(super) fn answered(&mut self) {
        self.failed = None;
    }

    /// The next host to ask: the claimed leader, or the next one in turn. `None` if no host is known.
    pub(super) fn next(&mut self) -> Option<Address> {
        let hinted = self.hint.take();
        let at = match &hinted {
            Some(hint) => self.known.iter().position(|known| known == hint),
            None => Some(self.next % self.known.len().max(1)),
        };
        // If this host does not lead, another one is asked.
        self.next = at.map_or(self.next, |at| at + 1);
        hinted.or_else(|| self.known.get(at?).cloned())
    }

    /// All hosts.
    pub(super) fn all(&self) -> &[Address] {
        &self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_is_asked_in_turn_and_a_claim_is_followed_once() {
        let [a, b, c] = ["a:1", "b:1", "c:1"].map(|host| Address::Tcp(host.into()));
        let mut places = Places::new(&[a.clone(), b.clone(), a.clone()]);
        assert_eq!([places.next(), places.next(), places.next()], [&a, &b, &a].map(|at| Some(at.clone())));
        assert!(!places.hint("") && !places.hint("nowhere"));
        assert!(places.hint("tcp://c:1"));
        assert_eq!([places.next(), places.next()], [Some(c.clone()), Some(a.clone())]);
        assert!(places.hint("tcp://a:1"));
        assert_eq!([places.next(), places.next()], [Some(a), Some(b)], "the same host was asked again");
        assert_eq!((places.next(), places.all().len()), (Some(c), 3));
        assert_eq!(Places::default().next(), None);
    }

    #[test]
    fn a_host_that_did_not_answer_is_asked_in_its_turn_alone() {
        let [a, b] = ["a:1", "b:1"].map(|host| Address::Tcp(host.into()));
        let mut places = Places::new(&[a.clone(), b.clone()]);
        assert_eq!(places.next(), Some(a.clone()));
        places.failed(a.clone());
        assert_eq!((places.next(), places.hint("tcp://a:1")), (Some(b.clone()), false));
        assert_eq!((places.next(), places.next()), (Some(a.clone()), Some(b)));
        places.answered();
        assert_eq!((places.hint("tcp://a:1"), places.next()), (true, Some(a)));
    }
}
