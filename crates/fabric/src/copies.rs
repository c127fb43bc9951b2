//! The copies of a volume, as a client sees them: a primary, a backup, a joining copy.
//!
//! Only an endpoint that replicates (`sherman-replica`) tells copies apart. Every other backend has one copy
//! of each volume, the primary, and ignores [`Reach`].

/// The part that a copy plays for its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Role {
    /// Clients read it and take lanes there.
    Primary = 1,
    /// A complete copy, written before the primary.
    Backup = 2,
    /// A copy that is not complete yet, written like a backup.
    Joining = 4,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Primary, Self::Backup, Self::Joining];
}

/// A set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Roles(u8);

impl Roles {
    /// No role.
    pub const NONE: Self = Self(0);

    /// This set and `role`.
    #[must_use]
    pub const fn with(self, role: Role) -> Self {
        Self(self.0 | role as u8)
    }

    /// Whether the set has `role`.
    pub const fn has(self, role: Role) -> bool {
        self.0 & role as u8 != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// How far a list for several copies got before it failed. A copy in neither set was posted nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    /// The copies that completed their part.
    pub done: Roles,
    /// The copies whose part failed after it was posted. By F7 each executed a prefix of it, and on a NIC
    /// more may follow until the copy's server has fenced this client.
    pub failed: Roles,
}

impl Progress {
    /// Whether anything was posted to the copy with this role.
    pub const fn touched(self, role: Role) -> bool {
        self.done.has(role) || self.failed.has(role)
    }
}

/// The copies that a list is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reach {
    /// All copies, as the rules of replication demand: verbs that change data go to every copy, and all other
    /// verbs to the primary.
    #[default]
    All,
    /// One copy alone. Only recovery and copying use it.
    Only(Role),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in() {
        let both = Roles::NONE.with(Role::Primary).with(Role::Joining);
        assert!(both.has(Role::Primary) && !both.has(Role::Backup) && both.has(Role::Joining));
        assert!(Roles::NONE.is_empty() && !both.is_empty());
        let progress = Progress { done: Roles::NONE.with(Role::Backup), failed: both };
        assert!(Role::ALL.into_iter().all(|role| progress.touched(role)));
        assert!(!Progress::default().touched(Role::Backup));
    }
}
