//! Who may post: fencing (F6), and when a WRITE counts as done.
//!
//! A [`Member`] is one compute server's identity. It holds a fence flag per memory server; its endpoints each hold a
//! [`Gate`], whose word is odd while a list of theirs is in progress.
//!
//! **Lists that change memory** pass the gate: make the word odd, then look at the flag. A fencer sets the flag, then
//! looks at the words. All four accesses are sequentially consistent, so of the two looks at least one sees the other's
//! store: either the list is refused, or the fencer sees it and answers only when the word has moved on. Lists are bounded
//! and finish inline, so that is soon.
//!
//! **Lists of READs alone** need no gate: they look at the flag before and *after*. Had one of them read a byte written
//! after the fence was answered, then it read it with Acquire from a Release that came after the flag was set, so the
//! second look sees the flag and the bytes are thrown away. The most common list thus pays two loads for F6.
//!
//! **Completion.** A WRITE that has completed must be seen by every READ posted later, by whomever: two clients that each
//! insert and then look for the other's key must not both miss it. A store may linger in its core's store buffer while
//! later loads of the same core overtake it. That is harmless where a change begins with an atomic read-modify-write
//! that no later load overtakes: whoever looks at the line after that finds its sequence word odd, and waits. So it is on
//! x86-64, where such an instruction is a full barrier; elsewhere (and for Miri, which knows the language and not the
//! hardware) a sequentially consistent fence follows the last change of a list, and one stands between a change and a READ
//! behind it in the same list.

use sherman_fabric::ClientId;
use sherman_fabric::zeroed::Zeroed;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Whether no later load overtakes an atomic read-modify-write, as the hardware (not the language) promises.
pub(crate) const RMW_IS_BARRIER: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Orders all earlier stores before all later loads.
pub(crate) fn full_barrier() {
    fence(SeqCst);
}

/// One endpoint's gate, in cache lines of its own: only its thread writes it.
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

    /// Passes for the last time, if nothing but a halt speaks against it.
    pub(crate) fn enter_halted(&self, flag: &Flag) -> Option<Passed> {
        enter(&self.turn, || flag.0.load(SeqCst) & !HALTED == 0)
    }

    /// Ends a list. `settled` says that no later load can overtake what it stored.
    #[inline]
    pub(crate) fn leave(&self, passed: Passed, settled: bool) {
        leave(&self.turn, passed, settled);
    }
}

/// Makes `turn` odd, unless the flag at which `may` then looks, sequentially consistent, is up. Only its owner changes `turn`.
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

/// Ends what [`enter`] began. `settled` says that no later load can overtake what was stored since.
#[inline]
pub fn leave(turn: &AtomicU64, passed: Passed, settled: bool) {
    if !settled {
        full_barrier();
    }
    turn.store(passed.0, Release);
}

/// Whether one server executes nothing of one member any more, and why.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Flag(AtomicU32);

// SAFETY: a transparent wrapper of an atomic integer: zero is valid, there is no drop.
unsafe impl sherman_fabric::zeroed::Zeroable for Flag {}

impl Flag {
    /// Whether it is up.
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.0.load(Acquire) != 0
    }

    /// Whether the server has fenced the member.
    pub(crate) fn is_fenced(&self) -> bool {
        self.0.load(SeqCst) & FENCED != 0
    }

    /// Whether the server has fenced the member, or the member is about to go or has gone.
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(SeqCst) & (FENCED | LEFT) != 0
    }

    /// Whether the member has stopped dead.
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
/// The member has stopped dead ([`halt`](crate::halt)).
const HALTED: u32 = 4;

/// One compute server, as long as any handle of it lives: one *incarnation* of its id. Flags are never lowered, so a member
/// that was fenced stays so when its id has been retired and issued again: that is another object.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) client: ClientId,
    /// By server. In an allocation of whole cache lines: every list of every thread reads it.
    flags: Zeroed<Flag>,
    gates: Mutex<Vec<Weak<Gate>>>,
    /// Decides what a halted member does last.
    seed: AtomicU64,
    /// How many endpoints it ever had.
    endpoints: AtomicU64,
    /// Whether server 0 has been asked to free the id: once, since afterwards it may be another's.
    gone: AtomicBool,
}

impl Member {
    /// A member of a cluster of `servers`; `None` if memory has run out.
    pub(crate) fn new(client: ClientId, servers: usize) -> Option<Self> {
        let flags = Zeroed::new(servers.next_multiple_of(sherman_fabric::zeroed::ALIGN / size_of::<Flag>()))?;
        let (gates, gone) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        Some(Self { client, flags, gates, seed: AtomicU64::new(0), endpoints: AtomicU64::new(0), gone })
    }

    /// The flag of `server`, which exists.
    #[inline]
    pub(crate) fn flag(&self, server: u16) -> &Flag {
        &self.flags[usize::from(server)]
    }

    /// Whether server 0 should now be told that it goes. Says so once, and never of a member that any server has
    /// fenced, whose id belongs to whoever recovers it, or that has stopped dead.
    pub(crate) fn may_go(&self) -> bool {
        let stopped = self.flags.iter().any(|flag| flag.is_fenced() || flag.is_halted());
        !stopped && !self.gone.swap(true, SeqCst)
    }

    /// Stops dead. What each endpoint does last follows from `seed`.
    pub(crate) fn halt(&self, seed: u64) {
        self.seed.store(seed, SeqCst);
        self.flags.iter().for_each(|flag| flag.raise(HALTED));
    }

    /// Whether it has stopped dead.
    pub(crate) fn is_halted(&self) -> bool {
        self.flags.iter().any(Flag::is_halted)
    }

    /// What it was halted with.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.load(SeqCst)
    }

    /// The number of a new endpoint.
    pub(crate) fn number_endpoint(&self) -> u64 {
        self.endpoints.fetch_add(1, Relaxed)
    }

    /// A gate for a new endpoint. A fencer that does not see it raised its flag before, so the endpoint sees the flag.
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

    /// Raises the flag of `server`. From the end of the drain on, no list of this member executes there.
    pub(crate) fn fence(&self, server: u16) -> Drain {
        self.flag(server).raise(FENCED);
        self.drain()
    }

    /// Stops the member on every server, at its own wish.
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
    /// Whether all of them have ended. Each is bounded and under way, so looking again soon is all there is to do.
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
        let member = Member::new(ClientId(1), 3).unwrap();
        let gate = member.new_gate();
        assert!(member.fence(1).is_over());
        assert!(gate.enter(member.flag(1)).is_none());
        let passed = gate.enter(member.flag(2)).unwrap();
        gate.leave(passed, true);
    }

    #[test]
    fn a_member_goes_once_and_a_fenced_one_never() {
        let member = Member::new(ClientId(1), 2).unwrap();
        assert!(member.leave().is_over());
        assert!(member.new_gate().enter(member.flag(1)).is_none());
        assert!(member.may_go());
        assert!(!member.may_go());
        let fenced = Member::new(ClientId(2), 2).unwrap();
        assert!(fenced.fence(1).is_over());
        assert!(!fenced.may_go());
    }

    #[test]
    fn a_fence_waits_for_exactly_the_list_in_progress() {
        let member = Member::new(ClientId(1), 1).unwrap();
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
        let member = Member::new(ClientId(1), 2).unwrap();
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
        let member = Member::new(ClientId(1), 1).unwrap();
        for _ in 0..100 {
            drop(member.new_gate());
        }
        assert!(member.gates.lock().unwrap().len() <= 1);
    }
}
