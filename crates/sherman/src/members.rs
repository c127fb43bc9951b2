//! The members of a cluster: leases, deaths, and an operator's means against them.

use crate::cluster::Cluster;
use sherman_core::{Audit, Error, Participation, Recovery};
use sherman_fabric::ComputeId;
use sherman_fabric::control::{MemberInfo, Standing};
use std::time::Duration;

/// A compute server, as the control state has recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// The member's id, which it writes into the locks that it holds. The id may be issued again after the
    /// member is gone.
    pub id: ComputeId,
    /// Whether the member is live, has left memory behind for others to take over, or is dead.
    pub standing: Standing,
    /// How many times the id was issued.
    pub incarnation: u32,
    /// How long the compute server has been a member.
    pub age: Duration,
    /// The remaining time of its lease; zero if it has expired.
    pub lease_left: Duration,
    /// The member that recovers it, if it is not live and a recovery is in progress.
    pub recoverer: Option<ComputeId>,
}

impl From<MemberInfo> for Member {
    fn from(info: MemberInfo) -> Self {
        Self {
            id: info.client,
            standing: info.standing,
            incarnation: info.incarnation,
            age: Duration::from_nanos(info.age),
            lease_left: Duration::from_nanos(info.lease_left),
            recoverer: (info.recoverer != ComputeId::NOBODY).then_some(info.recoverer),
        }
    }
}

/// # Membership
///
/// A compute server has a *lease*. A thread of this handle, its keeper, renews it three times per lease
/// period, in parallel to all operations. A dead compute server stops renewing. Then another member fences it
/// on every memory server, finishes or undoes its unfinished changes, frees its locks and takes over its
/// memory. After that, operations that waited for the dead compute server go on. No acknowledged change is
/// lost.
///
/// A live compute server can be taken for dead, because it was stopped for too long or had lost its
/// connection. It is then *fenced*: nothing it does under that identity reaches the memory any more. It
/// [joins again](Cluster#when-its-identity-ends) automatically, as a new member with another id.
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
    /// This compute server's id. It changes when the compute server joins again.
    pub fn id(&self) -> ComputeId {
        self.shared().current().compute.client()
    }

    /// All members, sorted by id. One control request.
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

    /// Ends another member's lease now and recovers it, even if it still renews. Use it for a member that is
    /// known to be broken. If another member already recovers it, this call leaves the recovery to that
    /// member, and the answer's verdict says so. If the fenced member still runs, it joins again
    /// automatically. The call is not repeated if this compute server's own identity ends meanwhile.
    ///
    /// # Errors
    /// [`Error::Refused`] if no member has this id, and if it is this compute server's own id: to leave, drop
    /// the handle.
    pub fn fence(&self, id: ComputeId) -> Result<Recovery, Error> {
        if id == self.id() {
            let refusal =
                sherman_fabric::Refusal::BadRequest { what: "a compute server cannot fence itself" };
            return Err(Error::Refused(refusal));
        }
        self.run_once(async |worker| worker.condemn(id).await)
    }

    /// Whether this compute server's identity has ended and there is no new one yet. Without
    /// [`rejoin`](crate::ClusterOptions::rejoin) this is permanent: every call fails with [`Error::Fenced`].
    pub fn is_fenced(&self) -> bool {
        self.shared().current().has_ended()
    }

    /// How many times this compute server has joined the cluster again after its identity had ended.
    pub fn rejoins(&self) -> u64 {
        self.shared().rejoins()
    }

    /// How many times this compute server has renewed its lease, and how many others it has recovered, under
    /// all its identities.
    pub fn participation(&self) -> Participation {
        self.shared().participation()
    }

    /// Checks every tree, and whether every lock lane, redo record and place for a node belongs to a tree or
    /// to a member. Other clients may work meanwhile. Costs one READ for each node of the trees, and one READ
    /// of 64 bytes for each place for a node.
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
    /// Only errors of reading. The returned [`Audit`] lists the defects of the cluster.
    pub fn audit(&self) -> Result<Audit, Error> {
        self.run(async |worker| worker.audit().await)
    }
}
