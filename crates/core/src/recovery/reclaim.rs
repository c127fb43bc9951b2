//! Places of the dead: free ones become the recoverer's, and so do those of nodes that never became part of a tree.
//!
//! Whose a place is, is written in it: a free node carries the id of who may use it, a pending one that of its maker, and a place
//! that never held a node belongs to the owner of its chunk. So one look at the first line of every place finds them all. It costs a
//! READ of 64 bytes for each node of the cluster, but nobody waits for it: the lanes are free by then.
//!
//! A place is the recoverer's as soon as its mark says so: should it die then, it is found among its own.

use super::{LISTS_IN_FLIGHT, Recoverer};
use crate::alloc::FIRST_VERSION;
use crate::cause::Cause;
use crate::error::Error;
use crate::mutant::{Mutant, planted};
use crate::node::mark::mark_free;
use crate::node::{Header, LINE};
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{Endpoint, GlobalAddress, Space, VerbId, WorkList};
use sherman_memory_server::ChunkEntry;
use std::time::Duration;

/// Places looked at by one list.
const PLACES_PER_LIST: usize = 64;
/// How often the places of a tree that has ended are looked for, while others may still be making nodes of it.
const PASSES: u32 = 64;

/// A place taken over.
pub(super) struct Adopted {
    class: ChunkClass,
    address: GlobalAddress,
    version: u16,
    /// Whether a node was ever written there: then its mark says whose it is. Else its chunk does.
    used: bool,
}

/// What is to become of a place.
enum Fate {
    /// Not the dead one's.
    Keep,
    /// Never used, in a chunk of the dead one.
    Fresh,
    /// A free node of the dead one, or one that it made in vain.
    Take(Header),
    /// A node of a tree that is no more.
    Ended,
    /// The same, but somebody is still making it.
    Wait(Header),
}

impl<E: Endpoint> Recoverer<'_, E> {
    /// Takes over every place of the dead one.
    pub(super) async fn reclaim(&mut self) -> Result<(), Error> {
        for pass in 0..PASSES {
            let mut again = false;
            for server in 0..self.op.endpoint().servers() {
                for index in 0..self.chunks[usize::from(server)].len() {
                    let ChunkEntry::Issued { class, owner } = self.chunks[usize::from(server)][index] else { continue };
                    let offset = self.op.worker.compute.geometry_of(server).chunk_offset(index as u32);
                    let fresh = owner == self.dead && pass == 0;
                    again |= self.reclaim_chunk(GlobalAddress::new(server, offset), class, fresh).await?;
                }
            }
            // Who was splitting a node of an ended tree may have made others since: none are left when none are found.
            if !again {
                return Ok(());
            }
            if std::mem::take(&mut self.waits) {
                self.yield_to_suspects()?;
            }
            self.op.retry(Cause::NodePending).await?;
            self.learn_chunks().await?;
        }
        Err(self.op.timed_out(Cause::NodePending))
    }

    /// Ends this recovery for now if it waits for another member that may be dead: that one comes next, and then this one again.
    fn yield_to_suspects(&self) -> Result<(), Error> {
        let waiting = self.op.worker.compute.membership.has_suspects();
        if waiting { Err(self.op.timed_out(Cause::NodePending)) } else { Ok(()) }
    }

    /// Looks at every place of a chunk. Whether nodes of ended trees were found.
    async fn reclaim_chunk(&mut self, chunk: GlobalAddress, class: ChunkClass, fresh: bool) -> Result<bool, Error> {
        let chunk_bytes = self.op.worker.compute.geometry().chunk_bytes;
        let places = (0..chunk_bytes / u64::from(class.node_bytes)).map(|at| at * u64::from(class.node_bytes));
        let places: Vec<GlobalAddress> =
            places.map(|at| GlobalAddress::new(chunk.server(), chunk.offset() + at)).collect();
        let most = (self.op.endpoint().caps().max_verbs as usize).min(PLACES_PER_LIST);
        let mut found = false;
        for some in places.chunks(most * LISTS_IN_FLIGHT) {
            if self.lost.contains(&chunk.server()) {
                return Ok(false);
            }
            self.expect_alive()?;
            found |= self.reclaim_places(some, most, class, fresh).await?;
        }
        Ok(found)
    }

    /// Looks at some places of one server, by lists of at most `most` READs that are in flight together.
    async fn reclaim_places(
        &mut self,
        places: &[GlobalAddress],
        most: usize,
        class: ChunkClass,
        fresh: bool,
    ) -> Result<bool, Error> {
        let server = places[0].server();
        let mut reads: Vec<VerbId> = Vec::with_capacity(places.len());
        let lists = places.chunks(most).map(|some| {
            let mut list = self.op.endpoint().list(server);
            reads.extend(some.iter().map(|place| list.read(Space::Host, place.offset(), LINE as u32)));
            list
        });
        let lists: Vec<WorkList> = lists.collect();
        let outcome = self.op.execute_all(lists).await;
        let Some(lists) = self.unless_lost(server, outcome)? else { return Ok(false) };
        let mut marks: Vec<WorkList> = Vec::new();
        let (mut taken, mut ended, mut found) = (Vec::new(), Vec::new(), false);
        for (at, (&address, &read)) in places.iter().zip(&reads).enumerate() {
            let mut line = [0; LINE];
            line.copy_from_slice(lists[at / most].bytes(read));
            match self.fate(&line, fresh) {
                Fate::Keep => {}
                Fate::Fresh if planted(Mutant::FreshForgotten) => {}
                Fate::Fresh => {
                    let version = FIRST_VERSION.wrapping_sub(1);
                    self.adopted.push(Adopted { class, address, version, used: false });
                }
                Fate::Take(header) => {
                    let owner = if planted(Mutant::MarkNotRewritten) { self.dead } else { self.op.endpoint().client() };
                    mark_free(&mut line, owner);
                    if marks.last().is_none_or(|list| list.len() >= most) {
                        marks.push(self.op.endpoint().list(server));
                    }
                    if let Some(list) = marks.last_mut() {
                        list.write(Space::Host, address.offset(), &line);
                    }
                    taken.push(Adopted { class, address, version: header.version, used: true });
                }
                Fate::Ended => {
                    found = true;
                    ended.push(address);
                }
                Fate::Wait(header) => {
                    (found, self.waits) = (true, true);
                    self.op.suspect(header.owner);
                }
            }
        }
        lists.into_iter().for_each(|list| self.op.endpoint().recycle(list));
        if !taken.is_empty() {
            let outcome = self.op.execute_all(marks).await;
            let Some(lists) = self.unless_lost(server, outcome)? else { return Ok(false) };
            lists.into_iter().for_each(|list| self.op.endpoint().recycle(list));
            self.adopted.extend(taken);
        }
        for address in ended {
            self.free_ended(address, class).await?;
        }
        Ok(found)
    }

    fn fate(&self, line: &[u8], fresh: bool) -> Fate {
        let Some(header) = Header::decode(line) else { return if fresh { Fate::Fresh } else { Fate::Keep } };
        let marked = header.flags.free || header.flags.pending && !planted(Mutant::PendingKept);
        match header {
            _ if marked && header.owner == self.dead => Fate::Take(header),
            _ if header.flags.free || !self.ended.contains(&header.tree) => Fate::Keep,
            _ if header.flags.pending => Fate::Wait(header),
            _ => Fate::Ended,
        }
    }

    /// Frees a node of a tree that is no more, under its lane: whoever drops the tree may be at it too.
    async fn free_ended(&mut self, address: GlobalAddress, class: ChunkClass) -> Result<(), Error> {
        // An operation of its own: it waits for the lane until it suspects the holder, but no longer. There is a next pass.
        let lease = self.op.worker.compute.geometry().lease_nanos;
        let op = self.op.worker.op_within(Duration::from_nanos(lease / 2));
        let locked = match op.lock(address, class.node_bytes as usize, None).await {
            Err(Error::Timeout { .. }) => return self.yield_to_suspects(),
            locked => locked?,
        };
        let header = Header::decode(locked.image())
            .filter(|header| self.ended.contains(&header.tree) && !header.flags.free && !header.flags.pending);
        match header {
            Some(header) => op.free_image(locked, header, class).await,
            None => Ok(op.release(locked.done(&op)).await?),
        }
    }

    /// Gives the places that were taken over to the allocator: all of them, or those whose mark says so.
    pub(super) fn keep_adopted(&mut self, all: bool) {
        for Adopted { class, address, version, used } in std::mem::take(&mut self.adopted) {
            if all || used {
                self.report.places += 1;
                self.op.worker.compute.alloc.adopt(class, [(address, version, used)]);
            }
        }
    }
}
