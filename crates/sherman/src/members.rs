//! Who takes part in a cluster: leases, deaths, and what an operator can do about them.

use crate::cluster::Cluster;
use sherman_core::{Audit, Error, Participation, Recovery};
use sherman_fabric::ClientId;
use sherman_fabric::control::{MemberInfo, Standing};
use std::time::Duration;

/// A compute server, as server 0 knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its id: what it writes into the locks it holds. May be issued again to another when it is gone.
    pub id: ClientId,
    /// Whether it takes part, has gone and left memory for others to take over, or is dead.
    pub standing: Standing,
    /// How often its id was issued.
    pub incarnation: u32,
    /// For how long it has been a member.
    pub age: Duration,
    /// What is left of its lease; zero if it has run out.
    pub lease_left: Duration,
    /// Who recovers it, if it is not alive and somebody does.
    pub recoverer: Option<ClientId>,
}

impl From<MemberInfo> for Member {
    fn from(info: MemberInfo) -> Self {
        Self {
            id: info.client,
            standing: info.standing,
            incarnation: info.incarnation,
            age: Duration::from_nanos(info.age),
            lease_left: Duration::from_nanos(info.lease_left),
            recoverer: (info.recoverer != ClientId::NOBODY).then_some(info.recoverer),
        }
    }
}

/// # Membership
///
/// A compute server has a *lease*: a thread of this handle, its keeper, renews it three times in its length, beside all
/// operations. Whoever dies stops renewing; then the keeper of another fences it on every memory server, finishes or undoes what it
/// was at, frees its locks and takes over its memory. Operations that wait for the dead go on then: nothing acknowledged is
/// lost.
///
/// A compute server that was taken for dead but is not, because it was stopped for too long or had lost its connection, is
/// *fenced*: nothing it does under that identity reaches the memory any more. It then [joins again](Cluster#when-its-identity-ends) by
/// itself, as a new member with another id.
///
/// ```
/// # use sherman::{Cluster, Error};
/// let cluster = Cluster::open("embedded:?memory=64MiB")?;
/// let other = cluster.join()?;
/// let orders = other.tree::<u64, u64>("orders")?.client()?;
/// orders.insert(7, 700)?;
///
/// let former = other.id();
/// cluster.fence(former)?;
/// assert_eq!(orders.get(7)?, Some(700)); // under another identity
/// assert_ne!(other.id(), former);
/// assert_eq!(other.rejoins(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Cluster {
    /// This compute server's id. It has another after it has joined again.
    pub fn id(&self) -> ClientId {
        self.shared().current().compute.client()
    }

    /// Every member, by id. One request to server 0.
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// let other = cluster.join()?;
    /// let ids: Vec<_> = cluster.members()?.into_iter().map(|member| member.id).collect();
    /// assert_eq!(ids, [cluster.id(), other.id()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn members(&self) -> Result<Vec<Member>, Error> {
        Ok(self.run(async |worker| worker.members().await)?.into_iter().map(Member::from).collect())
    }

    /// Ends another member's lease now, whatever it says itself, and recovers it: for one that is known to be broken, though it
    /// still renews. Whoever is already being recovered by another is left to that one; the answer's verdict tells. The member joins
    /// again by itself, if it still runs. Not repeated if this compute server's own identity ends meanwhile.
    ///
    /// # Errors
    /// [`Error::Refused`] if nobody has this id, and if it is this compute server's own: to leave, drop it.
    pub fn fence(&self, id: ClientId) -> Result<Recovery, Error> {
        if id == self.id() {
            let refusal = sherman_fabric::Refusal::BadRequest { what: "a compute server does not fence itself" };
            return Err(Error::Refused(refusal));
        }
        self.run_once(async |worker| worker.condemn(id).await)
    }

    /// Whether this compute server's identity has ended and there is no new one yet. Without
    /// [`rejoin`](crate::ClusterOptions::rejoin) it stays so: every call fails with [`Error::Fenced`].
    pub fn is_fenced(&self) -> bool {
        self.shared().current().has_ended()
    }

    /// How often this compute server has joined the cluster again because its identity had ended.
    pub fn rejoins(&self) -> u64 {
        self.shared().rejoins()
    }

    /// How often this compute server has renewed its lease, and how many others it has recovered, under all its identities.
    pub fn participation(&self) -> Participation {
        self.shared().participation()
    }

    /// Checks every tree, and whether every lock lane, redo record and place for a node belongs to a tree or to a member. Others may
    /// work meanwhile. Costs a READ for each node of the trees, and another, of 64 bytes, for each place for a node.
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// cluster.tree::<u64, u64>("orders")?.client()?.insert(7, 700)?;
    /// let audit = cluster.audit()?;
    /// assert!(audit.is_clean() && audit.places.linked == 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading. What is wrong with the cluster is in the answer.
    pub fn audit(&self) -> Result<Audit, Error> {
        self.run(async |worker| worker.audit().await)
    }
}
