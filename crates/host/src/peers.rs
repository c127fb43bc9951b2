//! Connections to other hosts: one thread and one bounded queue for each.
//!
//! A connection carries messages of the group in one direction. The other host answers over a connection of
//! its own. A message that does not fit into the queue, or cannot be sent, is dropped: the group repeats what
//! matters, and a late message is worth nothing.
//!
//! Every message begins with the number and the incarnation of its sender, so that the leader counts it as a
//! sign of life.

use crate::address::parse_address;
use crate::plane::Identity;
use sherman_consensus::{Members, NodeId};
use sherman_control::client::PeerConnection;
use sherman_control::wire::bytes::{Put, Reader};
use sherman_control::wire::{FrameKind, Role};
use sherman_control::{Address, Secret};
use sherman_fabric::group::HostInfo;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How many messages may wait for one host. A message has about 1 MiB at most, and most have 100 bytes.
const QUEUE: usize = 64;
/// The pause after the first failure to reach a host. It doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(200);

/// The connections to all other hosts.
#[derive(Debug)]
pub(crate) struct Peers {
    own: Identity,
    secret: Option<Secret>,
    /// How long a connection or a message may take.
    patience: Duration,
    peers: BTreeMap<NodeId, Peer>,
    /// Threads of hosts that left.
    ending: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Peer {
    queue: SyncSender<Vec<u8>>,
    thread: JoinHandle<()>,
}

impl Peers {
    pub(crate) fn new(own: Identity, secret: Option<Secret>, patience: Duration) -> Self {
        Self { own, secret, patience, peers: BTreeMap::new(), ending: Vec::new() }
    }

    /// Takes the hosts that there are now. The group may still need the vote of one that has left, so it
    /// stays connected as long as it is a member.
    pub(crate) fn update(&mut self, hosts: &[HostInfo], members: &Members) {
        let is_member = |node: NodeId| members.voters.contains(&node) || members.learners.contains(&node);
        let is_there = |host: &HostInfo| host.up || host.has_left() && is_member(host.node);
        let others = || hosts.iter().filter(|host| is_there(host) && host.number != self.own.host);
        let gone: Vec<NodeId> =
            self.peers.keys().filter(|node| !others().any(|host| host.node == **node)).copied().collect();
        let new: Vec<&HostInfo> = others().filter(|host| !self.peers.contains_key(&host.node)).collect();
        for node in gone {
            if let Some(Peer { queue, thread }) = self.peers.remove(&node) {
                drop(queue);
                self.ending.push(thread);
            }
        }
        self.ending.retain(|thread| !thread.is_finished());
        for host in new {
            match self.start(host) {
                Ok(peer) => drop(self.peers.insert(host.node, peer)),
                Err(error) => tracing::warn!(host = host.number, "no connection to the host: {error}"),
            }
        }
    }

    fn start(&self, host: &HostInfo) -> io::Result<Peer> {
        let address = parse_address(&host.address).ok_or(io::ErrorKind::InvalidInput)?;
        let (queue, messages) = sync_channel(QUEUE);
        let sender = Sender {
            own: self.own,
            secret: self.secret.clone(),
            patience: self.patience,
            host: host.number,
            address,
            connection: None,
            reachable: true,
        };
        let thread = Builder::new().name(format!("sherman-peer-{}", host.number));
        Ok(Peer { queue, thread: thread.spawn(move || sender.run(&messages))? })
    }

    /// Sends a message, or drops it.
    pub(crate) fn send(&self, node: NodeId, message: &[u8]) {
        if let Some(peer) = self.peers.get(&node) {
            let _ = peer.queue.try_send(framed(self.own, message));
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let peers = std::mem::take(&mut self.peers);
        let threads: Vec<_> = peers.into_values().map(|Peer { thread, .. }| thread).collect();
        for thread in threads.into_iter().chain(self.ending.drain(..)) {
            // A panic has already printed its own message.
            let _ = thread.join();
        }
    }
}

/// A message behind its sender.
fn framed(own: Identity, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(6 + message.len());
    out.put_u16(own.host);
    out.put_u32(own.incarnation);
    out.put(message);
    out
}

/// The sender of a message, with its incarnation, and the message.
pub(crate) fn unframed(bytes: &[u8]) -> Option<((u16, u32), &[u8])> {
    let mut reader = Reader::new(bytes);
    let sender = (reader.u16().ok()?, reader.u32().ok()?);
    Some((sender, reader.rest()))
}

/// Sends messages to one host.
struct Sender {
    own: Identity,
    secret: Option<Secret>,
    patience: Duration,
    host: u16,
    address: Address,
    connection: Option<PeerConnection>,
    /// Whether the last message was sent.
    reachable: bool,
}

impl Sender {
    fn run(mut self, messages: &Receiver<Vec<u8>>) {
        let mut pause = FIRST;
        while let Ok(message) = messages.recv() {
            if self.deliver(&message) {
                pause = FIRST;
                continue;
            }
            if !discard(messages, pause) {
                return;
            }
            pause = (2 * pause).min(LONGEST);
        }
    }

    /// Sends a message. Returns whether that was possible.
    fn deliver(&mut self, message: &[u8]) -> bool {
        let sent = self.try_deliver(message);
        if let Err(error) = &sent
            && self.reachable
        {
            tracing::warn!(host = self.host, address = %self.address, "cannot reach a host: {error}");
        }
        if sent.is_ok() && !self.reachable {
            tracing::info!(host = self.host, address = %self.address, "the host can be reached again");
        }
        self.reachable = sent.is_ok();
        self.reachable
    }

    fn try_deliver(&mut self, message: &[u8]) -> Result<(), sherman_control::ConnectError> {
        // The other host says nothing but a goodbye.
        let connection = match self.connection.take().filter(|connection| !connection.has_news()) {
            Some(connection) => connection,
            None => {
                let Identity { cluster, host, incarnation } = self.own;
                let role = Role::Host { host, incarnation, cluster };
                PeerConnection::open(&self.address, self.secret.as_ref(), role, self.patience)?
            }
        };
        connection.send(FrameKind::Group, message, self.patience)?;
        self.connection = Some(connection);
        Ok(())
    }
}

/// Discards messages for a while. Returns whether more may come.
fn discard(messages: &Receiver<Vec<u8>>, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    loop {
        match messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Identity = Identity { cluster: 1, host: 2, incarnation: 3 };

    fn host(number: u16, up: bool) -> HostInfo {
        let address = format!("unix:/nowhere/{number}");
        let node = u64::from(number) + 1;
        HostInfo { number, incarnation: 1, node, address, up, voter: false, memory_bytes: 0, leaving: false }
    }

    #[test]
    fn a_message_names_its_sender() {
        let bytes = framed(OWN, b"vote");
        assert_eq!(unframed(&bytes), Some(((2, 3), &b"vote"[..])));
        assert_eq!(unframed(&bytes[..5]), None);
    }

    #[test]
    fn there_is_a_peer_for_every_other_host_that_is_up_and_a_dead_one_blocks_nobody() {
        let mut peers = Peers::new(OWN, None, Duration::from_millis(100));
        peers.update(&[host(0, true), host(1, false), host(2, true), host(3, true)], &Members::default());
        assert_eq!(peers.peers.keys().copied().collect::<Vec<_>>(), [1, 4]);
        for _ in 0..3 * QUEUE {
            peers.send(1, b"hello");
        }
        peers.send(9, b"to nobody");
        // A host that has left stays as long as the group may need its vote.
        let left = HostInfo { leaving: true, ..host(0, false) };
        let members = Members { voters: vec![left.node], learners: Vec::new() };
        peers.update(&[left.clone(), host(3, true)], &members);
        assert!(peers.peers.contains_key(&left.node));
        peers.update(&[left, host(3, true)], &Members::default());
        peers.update(&[host(0, false), host(3, true)], &Members::default());
        assert_eq!(peers.peers.keys().copied().collect::<Vec<_>>(), [4]);
    }
}
