//! Requests to control, on their way to whichever host leads.
//!
//! A sender asks one host after the other, and goes where they say that the leader is. A request that is not
//! answered for too long is sent again, perhaps to another host, and may be executed twice. Real clients do
//! the same (`sherman_control::client`).

use super::Wrong;
use super::net::{Asking, End, Item, Net, Sender};
use crate::world::World;
use crate::world::flight::{NO_TASK, Phase};
use sherman_control::plane::Asker;
use sherman_fabric::{ComputeId, FabricError, Refusal, Request, Response};

/// The parts of the time for which a host may be silent: how long a sender waits for an answer, and how long
/// until it asks the next host.
const PATIENCE_PART: u64 = 2;
const PAUSE_PART: u64 = 16;
/// The same for a sign of life: another one follows soon.
const SIGN_PART: u64 = 8;

/// The answer to a request.
type Answer = Result<Response, FabricError>;

impl World {
    /// Sends the request of a call to control. Its answer comes later.
    pub(in crate::world) fn send_call(&mut self, endpoint: u32, slot: u32) {
        let owner = self.endpoints[endpoint as usize].owner;
        let ticket = self.flights.ticket(slot);
        let Some(request) = self.flights.get(slot).request.clone() else { return };
        let compute_server = &mut self.compute_servers[owner as usize];
        let (client, incarnation) = (compute_server.client, compute_server.incarnation);
        match request {
            Request::Leave | Request::Depart => compute_server.ended = true,
            Request::Succeed { client, incarnation } => self.note_end(client, incarnation),
            _ => {}
        }
        self.flights.get_mut(slot).sent = true;
        let hint = self.compute_servers[owner as usize].leader;
        let asker = Asker::Member { client, incarnation };
        self.begin_ask(Sender::Call { ticket, owner }, asker, request, hint);
    }

    /// A process says that an identity of its own has ended.
    fn note_end(&mut self, client: ComputeId, incarnation: u32) {
        let mut all = self.compute_servers.iter_mut();
        let former = all.find(|other| (other.client, other.incarnation) == (client, incarnation));
        former.into_iter().for_each(|former| former.ended = true);
    }

    /// Sends a request to `target`, or to any host. Returns its number.
    pub(super) fn begin_ask(
        &mut self,
        sender: Sender,
        asker: Asker,
        request: Request,
        target: Option<u16>,
    ) -> u64 {
        let Some(net) = &mut self.net else { return 0 };
        net.last_ask += 1;
        let (ask, hosts) = (net.last_ask, net.hosts.len());
        // Now and then a client has forgotten who leads.
        let target = target.filter(|_| !net.rng.one_in(16)).unwrap_or(net.rng.below(hosts) as u16);
        net.asks.insert(ask, Asking { sender, asker, request, target, sent: 0 });
        self.send_ask(ask);
        ask
    }

    /// Sends a request, again if it was sent before.
    fn send_ask(&mut self, ask: u64) {
        let Some(from) = self.net.as_ref().and_then(|net| self.end_of(net.asks.get(&ask)?.sender)) else {
            return self.forget_ask(ask);
        };
        let Some(net) = &mut self.net else { return };
        let Some(asking) = net.asks.get_mut(&ask) else { return };
        asking.sent += 1;
        let (to, sent) = (asking.target, asking.sent);
        let sign = asking.is_sign();
        let reached = net.passes(from, End::Host(to)) && net.host(to).is_some_and(|host| host.runs);
        // A connection that cannot be made is noticed earlier than an answer that does not come.
        let patience = net.detect
            / match (reached, sign) {
                (true, true) => SIGN_PART,
                (true, false) => PATIENCE_PART,
                (false, _) => PAUSE_PART,
            };
        net.queue.push(net.now + patience.max(1), Item::Silence { ask, sent });
        if reached {
            net.send(from, End::Host(to), || Item::Ask { to, ask, sent });
        }
    }

    fn forget_ask(&mut self, ask: u64) {
        if let Some(net) = &mut self.net {
            net.asks.remove(&ask);
        }
    }

    /// Where a sender is, if it still waits.
    fn end_of(&self, sender: Sender) -> Option<End> {
        match sender {
            Sender::Call { ticket, owner } => {
                let compute_server = self.compute_servers.get(owner as usize)?;
                let slot = self.flights.find(ticket)?;
                let waits = !compute_server.dead && self.flights.get(slot).phase == Phase::InFlight;
                waits.then_some(End::Process(compute_server.process))
            }
            Sender::Joiner { number } => {
                let joiner = self.net.as_ref()?.joiners.get(&number)?;
                Some(End::Process(joiner.process))
            }
            Sender::Host { host } => {
                let runs = self.net.as_ref()?.host(host).is_some_and(|host| host.runs);
                runs.then_some(End::Host(host))
            }
            Sender::Newcomer { .. } | Sender::Nobody => Some(End::Process(u32::MAX)),
        }
    }

    /// A request arrives at a host.
    pub(super) fn take_ask(&mut self, to: u16, ask: u64, sent: u32) {
        let Some(net) = &mut self.net else { return };
        let now = net.now;
        let Some(Asking { asker, request, .. }) = net.asks.get(&ask).cloned() else { return };
        let Some(host) = net.running(to) else { return };
        let clock = host.clock_at(now);
        host.node.ask(asker, request, (ask, sent), clock);
        self.settle_host(to);
    }

    /// A node answers a request.
    pub(super) fn send_answer(&mut self, host: u16, (ask, sent): (u64, u32), answer: Answer) {
        let sender = self.net.as_ref().and_then(|net| net.asks.get(&ask)).map(|asking| asking.sender);
        let Some(to) = sender.and_then(|sender| self.end_of(sender)) else { return };
        let Some(net) = &mut self.net else { return };
        net.send(End::Host(host), to, || Item::Answer { ask, sent, answer: answer.clone() });
    }

    /// An answer arrives.
    pub(super) fn take_answer(&mut self, ask: u64, sent: u32, answer: Answer) {
        let Some(net) = &mut self.net else { return };
        let Some(asking) = net.asks.get(&ask).cloned() else { return };
        match judge(&asking, answer) {
            Ok(answer) => {
                net.asks.remove(&ask);
                self.conclude(asking, answer);
            }
            Err(leader) if asking.sent == sent => {
                net.seen.redirected += 1;
                let leader = net.host_at(&leader);
                self.ask_elsewhere(ask, leader);
            }
            // An older answer.
            Err(_) => {}
        }
    }

    /// A request was not answered for too long.
    pub(super) fn take_silence(&mut self, ask: u64, sent: u32) {
        let waits = self.net.as_ref().and_then(|net| net.asks.get(&ask)).is_some_and(|ask| ask.sent == sent);
        if waits {
            self.ask_elsewhere(ask, None);
        }
    }

    /// Sends a request to the host that is said to lead, or to the next one after a pause.
    fn ask_elsewhere(&mut self, ask: u64, leader: Option<u16>) {
        let Some(net) = &mut self.net else { return };
        let (hosts, pause) = (net.hosts.len() as u16, net.detect / PAUSE_PART);
        let Some(asking) = net.asks.get_mut(&ask) else { return };
        match leader.filter(|leader| *leader != asking.target) {
            Some(leader) => {
                asking.target = leader;
                self.send_ask(ask);
            }
            None => {
                asking.target = (asking.target + 1) % hosts.max(1);
                // The pause ends as a silence does: it sends the request. A sign of life is not repeated.
                if asking.is_sign() {
                    return self.forget_ask(ask);
                }
                asking.sent += 1;
                let sent = asking.sent;
                net.queue.push(net.now + pause.max(1), Item::Resend { ask, sent });
            }
        }
    }

    /// A pause before a request is sent again is over.
    pub(super) fn resend(&mut self, ask: u64, sent: u32) {
        let waits = self.net.as_ref().and_then(|net| net.asks.get(&ask)).is_some_and(|ask| ask.sent == sent);
        if waits {
            self.send_ask(ask);
        }
    }

    /// A sender gets the answer that it waited for.
    fn conclude(&mut self, asking: Asking, answer: Answer) {
        match asking.sender {
            Sender::Call { ticket, owner } => {
                let Some(slot) = self.flights.find(ticket) else { return };
                if self.flights.get(slot).phase != Phase::InFlight {
                    return;
                }
                self.compute_servers[owner as usize].leader = Some(asking.target);
                self.count_effect(owner);
                let flight = self.flights.get_mut(slot);
                flight.sent = false;
                match answer {
                    Ok(response) => flight.response = Some(response),
                    Err(error) => flight.error = Some(error),
                }
                let endpoint = flight.route;
                self.finish(slot);
                self.tidy_calls(endpoint);
            }
            Sender::Joiner { number } => self.joiner_told(number, answer),
            Sender::Host { host } => {
                if answer == Err(FabricError::ServerLost { server: host }) {
                    self.end_host(host, "it learns that it was declared lost");
                }
                let left = FabricError::Refused(Refusal::HostLeft { host });
                if answer == Err(left) {
                    // The group may still need this host's vote to go on without it.
                    let at = self.net.as_ref().map_or(self.now, |net| net.now + 3 * net.detect);
                    let found = self.net.as_mut().and_then(|net| net.running(host));
                    found.into_iter().for_each(|found| _ = found.leaves_at.get_or_insert(at));
                }
            }
            Sender::Newcomer { boot } => self.newcomer_told(boot, answer),
            Sender::Nobody => {}
        }
    }

    /// A process registers as a host.
    fn newcomer_told(&mut self, boot: u64, answer: Answer) {
        let Ok(Response::Registered(registration)) = answer else {
            return self.net.iter_mut().for_each(|net| {
                net.found(Wrong::Progress, format!("a host cannot register: {answer:?}"));
            });
        };
        let (host, incarnation, cluster) =
            (registration.host, registration.incarnation, registration.cluster);
        if self.net.as_ref().is_some_and(|net| net.host(host).is_some()) {
            return;
        }
        let own = sherman_group::HostId { cluster, host, incarnation };
        self.log.remark(NO_TASK, self.now, format!("the process of boot {boot} is host {host}"));
        self.start_host(own, super::hosts::Origin::New, registration.hosts);
    }
}

/// The final answer, or where the leader is.
fn judge(asking: &Asking, answer: Answer) -> Result<Answer, String> {
    let leaves = matches!(asking.request, Request::Leave | Request::Depart);
    let about_us =
        |client: &ComputeId| matches!(asking.asker, Asker::Member { client: own, .. } if own == *client);
    match answer {
        Err(FabricError::Refused(Refusal::NotLeader { leader })) => Err(leader),
        // The client is no member any more, because an earlier leader has carried out the same request.
        Err(FabricError::Fenced { client } | FabricError::Refused(Refusal::NotAMember { client }))
            if leaves && asking.sent > 1 && about_us(&client) =>
        {
            Ok(Ok(Response::Done))
        }
        answer => Ok(answer),
    }
}

impl Net {
    /// Whether some process waits for its place as a host.
    pub(super) fn newcomers(&self) -> bool {
        self.asks.values().any(|ask| matches!(ask.sender, Sender::Newcomer { .. }))
    }
}
