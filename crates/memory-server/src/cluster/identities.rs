//! For every id: the epoch in which it was issued last, and until when its holder may count on its lease.
//!
//! The member table does not say the second. If somebody ends a lease before its time, the holder does not
//! know ([`Request::Condemn`](sherman_fabric::Request::Condemn)). It may still return what it read from a
//! host that nobody can fence (L2).

use sherman_fabric::ComputeId;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// The epoch of the table that it uses (E).
    pub(super) epoch: u64,
    /// When its lease runs out. 0 if it has ended its identity itself.
    pub(super) until: u64,
}

/// An identity of an older epoch that has not ended for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its id.
    pub client: ComputeId,
    /// Whether its id is not free yet.
    pub held: bool,
    /// Until when it may count on its lease.
    pub until: u64,
}

/// The holders of all ids that were ever issued.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identities {
    holders: BTreeMap<ComputeId, Holder>,
    /// Until when a former holder of an id that was issued again may count on its lease. Only possible if its
    /// lease was ended before its time.
    former_until: u64,
}

impl Identities {
    pub(super) fn new(holders: BTreeMap<ComputeId, Holder>, former_until: u64) -> Self {
        Self { holders, former_until }
    }

    pub(super) fn holders(&self) -> &BTreeMap<ComputeId, Holder> {
        &self.holders
    }

    pub(super) fn former_until(&self) -> u64 {
        self.former_until
    }

    /// The epoch in which the id was issued last; `None` if it never was.
    pub(super) fn epoch(&self, client: ComputeId) -> Option<u64> {
        self.holders.get(&client).map(|holder| holder.epoch)
    }

    /// Notes a new holder.
    pub(super) fn issue(&mut self, client: ComputeId, epoch: u64, now: u64, until: u64) {
        if let Some(former) = self.holders.insert(client, Holder { epoch, until })
            && former.until > now
        {
            self.former_until = self.former_until.max(former.until);
        }
    }

    /// Notes until when a holder may count on its lease.
    pub(super) fn set_until(&mut self, client: ComputeId, until: u64) {
        if let Some(holder) = self.holders.get_mut(&client) {
            holder.until = until;
        }
    }

    /// Starts the leases of live members again.
    pub(super) fn restart(&mut self, until: u64, is_live: impl Fn(ComputeId) -> bool) {
        for (client, holder) in &mut self.holders {
            if is_live(*client) {
                holder.until = until;
            }
        }
    }

    /// The identities older than `epoch` that may not have ended at `now`.
    pub(super) fn leftovers(
        &self,
        epoch: u64,
        now: u64,
        is_held: impl Fn(ComputeId) -> bool,
    ) -> impl Iterator<Item = Leftover> {
        let former = Leftover { client: ComputeId::NOBODY, held: false, until: self.former_until };
        let older = self.holders.iter().filter(move |(_, holder)| holder.epoch < epoch);
        let older = older.map(move |(&client, holder)| Leftover {
            client,
            held: is_held(client),
            until: holder.until,
        });
        older.chain([former]).filter(move |leftover| leftover.held || leftover.until > now)
    }
}
