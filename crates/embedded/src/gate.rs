//! Fencing (F6), and when a WRITE counts as completed.
//!
//! A [`Member`] is one compute server's identity. It holds a fence flag per memory server. Each of its
//! endpoints holds a [`Gate`], whose word is odd while the endpoint has a list in progress.
//!
//! **Lists that change memory** pass the gate: the endpoint makes the word odd, then loads the flag. A fencer
//! sets the flag, then loads the words. All four accesses are sequentially consistent, so at least one of the
//! two loads sees the other side's store. Either the list is refused, or the fencer sees it and answers only
//! when the word has changed again. Lists are bounded and finish inline, so the fencer waits only briefly.
//!
//! **Lists of READs alone** need no gate: the endpoint loads the flag before and *after*. Suppose such a list
//! read a byte that was written after the fence was answered. Then it read the byte with Acquire from a
//! Release that came after the flag was set. So the second load sees the flag, and the endpoint discards the
//! bytes. The most common list thus pays two loads for F6.
//!
//! **Completion.** Every READ posted later, by any client, must see a completed WRITE. Otherwise two clients
//! that each insert and then look for the other's key could both miss it. A store may stay in its core's
//! store buffer while later loads of the same core overtake it. That is harmless where a change begins with
//! an atomic read-modify-write that no later load overtakes. A later reader of the line then finds its
//! sequence word odd, and waits. This holds on x86-64, where such an instruction is a full barrier. Elsewhere
//! a sequentially consistent fence follows the last change of a list. Another one stands between a change and
//! a later READ in the same list. The same holds under Miri, which models the language and not the hardware.

use sherman_fabric::ComputeId;
use sherman_pages::zeroed::Zeroed;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Whether no later load overtakes an atomic read-modify-write. The hardware promises this, not the language.
pub(crate) const RMW_IS_BARRIER: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Orders all earlier stores before all later loads.
pub(crate) fn full_barrier() {
    fence(SeqCst);
}

/// One endpoint's gate, in its own cache lines because only its thread writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Gate {
    /// Odd while a list that changes memory is in progress.
    turn: AtomicU64,
}

/// Proof of having passed a gate.
#[derive(Debug)]
pub struct Passed(u64);

impl Gate {
    /// Passes, unless the flag is up.
    #[inline]
    pub(crate) fn enter(&self, flag: &Flag) -> Option<Passed> {
        enter(&self.turn, || flag.0.load(SeqCst) == 0)
    }

    /// Passes for the last time. Only a halt may be set in the flag.
    pub(crate) fn enter_halted(&self, flag: &Flag) -> Option<Passed> {
        enter(&self.turn, || flag.0.load(SeqCst) & !HALTED == 0)
    }

    /// Ends a list. `settled` means that no later load can overtake the list's stores.
    #[inline]
    pub(crate) fn leave(&self, passed: Passed, settled: bool) {
        leave(&self.turn, passed, settled);
    }
}

/// Makes `turn` odd, unless `may` then finds the flag up by a sequentially consistent load. Only its owner
/// changes `turn`.
#[inline]
pub fn enter(turn: &AtomicU64, may: impl FnOnce() -> bool) -> Option<Passed> {
    let even = turn.load(Relaxed) & !1;
    turn.swap(even.wrapping_add(1), SeqCst);
    if may() {
        return Some(Passed(even.wrapping_add(2)));
    }
    turn.store(even.wrapping_add(2), Release);
    None
}

/// Ends the list that [`enter`] began. `settled` means that no later load can overtake the stores since then.
#[inline]
pub fn leave(turn: &AtomicU64, passed: Passed, settled: bool) {
    if !settled {
        full_barrier();
    }
    turn.store(passed.0, Release);
}

/// Whether and why one server executes nothing more of one member.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Flag(AtomicU32);

// SAFETY: `Flag` is a transparent wrapper of an atomic integer. Zero is a valid value, and there is no drop.
unsafe impl sherman_pages::zeroed::Zeroable for Flag {}

impl Flag {
    /// Whether the flag is up.
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.0.load(Acquire) != 0
    }

    /// Whether the server has fenced the member.
    pub(crate) fn is_fenced(&self) -> bool {
        self.0.load(SeqCst) & FENCED != 0
    }

    /// Whether the server has fenced the member, or the member is leaving or has left.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(SeqCst) & (FENCED | LEFT) != 0
    }

    /// Whether the member has halted.
    pub(crate) fn is_halted(&self) -> bool {
        self.0.load(SeqCst) & HALTED != 0
    }

    fn raise(&self, why: u32) {
        self.0.fetch_or(why, SeqCst);
    }
}

/// A server has fenced the member.
const FENCED: u32 = 1;
/// The member has asked to leave.
const LEFT: u32 = 2;
/// The member has halted ([`halt`](crate::halt)).
const HALTED: u32 = 4;

/// One compute server, as long as any handle of it lives: one *incarnation* of its id. Flags are never
/// lowered, so a fenced member stays fenced after its id has been retired and issued again. The next
/// incarnation is another object.
#[derive(Debug)]
pub struct Member {
    pub(crate) client: ComputeId,
    /// One flag per server. The allocation is whole cache lines, because every list of every thread reads it.
    flags: Zeroed<Flag>,
    gates: Mutex<Vec<Weak<Gate>>>,
    /// Determines the last actions of a halted member.
    seed: AtomicU64,
    /// Number of endpoints that the member ever had.
    endpoints: AtomicU64,
    /// Whether server 0 has been asked to free the id. It may be asked only once, because afterwards the id
    /// may belong to another member.
    gone: AtomicBool,
}

impl Member {
    /// A member of a cluster of `servers`; `None` if memory has run out.
    pub(crate) fn new(client: ComputeId, servers: usize) -> Option<Self> {
        let flags = Zeroed::new(servers.next_multiple_of(sherman_pages::zeroed::ALIGN / size_of::<Flag>()))?;
        let (gates, gone) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        Some(Self { client, flags, gates, seed: AtomicU64::new(0), endpoints: AtomicU64::new(0), gone })
    }

    /// The flag of `server`, which exists.
    #[inline]
    pub(crate) fn flag(&self, server: u16) -> &Flag {
        &self.flags[usize::from(server)]
    }

    /// Whether the caller should now tell server 0 that the member leaves. Returns true only once. Returns
    /// false if any server has fenced the member, because then its id belongs to its recoverer. Returns false
    /// if the member has halted.
    pub(crate) fn may_go(&self) -> bool {
        let stopped = self.flags.iter().any(|flag| flag.is_fenced() || flag.is_halted());
        !stopped && !self.gone.swap(true, SeqCst)
    }

    /// Halts the member. `seed` determines the last action of each endpoint.
    pub(crate) fn halt(&self, seed: u64) {
        self.seed.store(seed, SeqCst);
        self.flags.iter().for_each(|flag| flag.raise(HALTED));
    }

    /// Whether the member has halted.
    pub(crate) fn is_halted(&self) -> bool {
        self.flags.iter().any(Flag::is_halted)
    }

    /// The seed of the halt.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.load(SeqCst)
    }

    /// The number of a new endpoint.
    pub(crate) fn number_endpoint(&self) -> u64 {
        self.endpoints.fetch_add(1, Relaxed)
    }

    /// A gate for a new endpoint. A fencer that does not see this gate raised its flag earlier, so the
    /// endpoint sees the flag.
    pub(crate) fn new_gate(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|known| known.strong_count() > 0);
        gates.push(Arc::downgrade(&gate));
        gate
    }

    /// Whether any endpoint has a gate.
    pub(crate) fn has_gates(&self) -> bool {
        let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.iter().any(|gate| gate.strong_count() > 0)
    }

    /// Raises the flag of `server`. After the drain has ended, no list of this member executes there.
    pub(crate) fn fence(&self, server: u16) -> Drain {
        self.flag(server).raise(FENCED);
        self.drain()
    }

    /// Whether the member has a flag for `server`.
    pub(crate) fn knows(&self, server: u16) -> bool {
        usize::from(server) < self.flags.len()
    }

    /// Raises the flags of all servers.
    pub(crate) fn fence_everywhere(&self) -> Drain {
        self.flags.iter().for_each(|flag| flag.raise(FENCED));
        self.drain()
    }

    /// Stops the member on every server, at its own request.
    pub(crate) fn leave(&self) -> Drain {
        self.flags.iter().for_each(|flag| flag.raise(LEFT));
        self.drain()
    }

    fn drain(&self) -> Drain {
        let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = gates.iter().filter_map(Weak::upgrade).filter_map(|gate| {
            let turn = gate.turn.load(SeqCst);
            (turn % 2 == 1).then_some((gate, turn))
        });
        Drain(busy.collect())
    }
}

/// The lists that were in progress when a flag went up.
#[derive(Debug)]
pub struct Drain(Vec<(Arc<Gate>, u64)>);

impl Drain {
    /// Whether all of them have ended. Each list is bounded and in progress, so the caller only needs to look
    /// again soon.
    pub fn is_over(&mut self) -> bool {
        self.0.retain(|(gate, turn)| gate.turn.load(Acquire) == *turn);
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_flag_refuses_and_lets_others_pass() {
        let member = Member::new(ComputeId(1), 3).unwrap();
        let gate = member.new_gate();
        assert!(member.fence(1).is_over());
        assert!(gate.enter(member.flag(1)).is_none());
        let passed = gate.enter(member.flag(2)).unwrap();
        gate.leave(passed, true);
    }

    #[test]
    fn a_member_goes_once_and_a_fenced_one_never() {
        let member = Member::new(ComputeId(1), 2).unwrap();
        assert!(member.leave().is_over());
        assert!(member.new_gate().enter(member.flag(1)).is_none());
        assert!(member.may_go());
        assert!(!member.may_go());
        let fenced = Member::new(ComputeId(2), 2).unwrap();
        assert!(fenced.fence(1).is_over());
        assert!(!fenced.may_go());
    }

    #[test]
    fn a_fence_waits_for_exactly_the_list_in_progress() {
        let member = Member::new(ComputeId(1), 1).unwrap();
        let (gate, idle) = (member.new_gate(), member.new_gate());
        let passed = gate.enter(member.flag(0)).unwrap();
        let mut drain = member.fence(0);
        assert!(!drain.is_over());
        assert!(idle.enter(member.flag(0)).is_none());
        assert!(!drain.is_over());
        gate.leave(passed, false);
        assert!(drain.is_over());
        assert!(gate.enter(member.flag(0)).is_none());
    }

    #[test]
    fn a_halted_member_never_goes_and_is_fenced_when_its_last_list_is_over() {
        let member = Member::new(ComputeId(1), 2).unwrap();
        let gate = member.new_gate();
        member.halt(7);
        assert!(!member.may_go());
        assert!(gate.enter(member.flag(0)).is_none());
        let passed = gate.enter_halted(member.flag(0)).unwrap();
        let mut drain = member.fence(0);
        assert!(!drain.is_over());
        gate.leave(passed, true);
        assert!(drain.is_over());
        assert!(gate.enter_halted(member.flag(0)).is_none());
        let passed = gate.enter_halted(member.flag(1)).unwrap();
        gate.leave(passed, true);
    }

    #[test]
    fn the_gates_of_dropped_endpoints_do_not_pile_up() {
        let member = Member::new(ComputeId(1), 1).unwrap();
        for _ in 0..100 {
            drop(member.new_gate());
        }
        assert!(member.gates.lock().unwrap().len() <= 1);
    }
}
