//! The search: it takes one key's events in order of time and tracks every configuration that is still
//! possible.
//!
//! It is Lowe's just-in-time form of Wing and Gong's search. An operation is open from its invocation to its
//! return. At a return, the search takes every configuration in which that operation has not taken effect
//! yet. It extends the configuration by open operations, in every order that the value allows, until the
//! operation has taken effect. It drops configurations that it cannot extend. The history is linearizable iff
//! a configuration is left at the end. Only *open* operations are tracked, so the cost depends on how many
//! overlap, not on the length of the history.
//!
//! A register makes the search small. An operation that returned is a fixed step `from -> to` of the value,
//! whatever was called. Four rules cut the search. Each keeps exactly one of several equivalent futures:
//! - A step with `from == to` is done as soon as the value is `from`: nothing is lost by it.
//! - Of equal open steps, the one that must return first goes first: any other order can be swapped into this
//!   one.
//! - An operation of unknown outcome never goes before an open step equal to its effect. Two equal ones have
//!   no order, and one without effect is not tried at all. The argument is the same swap.
//! - Dominated configurations are dropped (see `configs`).

use super::configs::{Config, Configs, Roles};
use super::mask::Mask;
use crate::history::{Call, Fate, Op, Outcome};

/// The invocation or the return of a call. `stamp` orders by time, and at equal times puts invocations before
/// returns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) key: u64,
    pub(super) stamp: u64,
    pub(super) call: usize,
}

impl Event {
    pub(super) fn invocation(index: usize, call: &Call) -> Self {
        Self { key: call.key, stamp: call.invoked << 1, call: index }
    }

    pub(super) fn return_of(index: usize, call: &Call) -> Option<Self> {
        let Fate::Returned { at, .. } = call.fate else { return None };
        Some(Self { key: call.key, stamp: at << 1 | 1, call: index })
    }

    pub(super) fn is_return(&self) -> bool {
        self.stamp & 1 == 1
    }
}

/// The events of one key, and the parameters of its search.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// All calls of the history. Events are indexes into it.
    pub(super) calls: &'a [Call],
    /// The key's events by stamp.
    pub(super) events: &'a [Event],
    pub(super) initial: Option<u64>,
    /// The search gives up beyond this many steps.
    pub(super) steps: u64,
    /// A call whose outcome the search ignores, as if it were unknown.
    pub(super) forgiven: Option<usize>,
}

/// Why a search ended without an order of all operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The return of this call leaves no configuration.
    Stuck { call: usize },
    /// More steps than allowed.
    Steps,
    /// More open operations than slots.
    Slots,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Returned and changed the value. The stamp is that of its return.
    Edge { from: Option<u64>, to: Option<u64>, deadline: u64 },
    /// Returned, saw this value and left it unchanged.
    Read(Option<u64>),
    /// Returned an outcome that no state allows.
    Impossible,
    /// May take effect at any time, or never.
    Doubt(Op),
}

#[derive(Clone, Copy, Debug)]
struct CallSlot {
    call: usize,
    role: Role,
}

/// A call that took effect, after all the calls on the path to `parent`.
#[derive(Clone, Copy, Debug)]
struct Step {
    parent: usize,
    call: usize,
}

const ROOT: usize = usize::MAX;

/// Returns the step `from -> to` of an operation with this outcome, or `None` if no state gives that outcome.
pub(super) fn transition(op: Op, outcome: Outcome) -> Option<(Option<u64>, Option<u64>)> {
    let from = match (op, outcome) {
        (Op::CompareExchange { expected, .. }, Outcome::Exchange(Ok(()))) => expected,
        (_, Outcome::Exchange(Err(actual))) => actual,
        (_, Outcome::Value(found)) => found,
        (_, Outcome::Exchange(Ok(()))) => return None,
    };
    let (to, told) = op.apply(from);
    (told == outcome).then_some((from, to))
}

/// The working memory of a search over at most `64 * N` open operations. Reuse it.
#[derive(Clone, Debug)]
pub(super) struct Search<const N: usize> {
    slots: Vec<CallSlot>,
    /// The slot of each open call, indexed by call.
    slot_of: Vec<usize>,
    free: Mask<N>,
    roles: Roles<N>,
    /// Every configuration possible after the previous event.
    current: Configs<N>,
    /// At a return: the configurations in which the call has not taken effect, in order of discovery.
    without: Configs<N>,
    /// At a return: the configurations in which the call has taken effect.
    with: Configs<N>,
    trail: Vec<Step>,
    spent: u64,
    stuck: bool,
}

impl<const N: usize> Search<N> {
    pub(super) fn new() -> Self {
        let roles = Roles { edges: Mask::EMPTY, reads: Mask::EMPTY, doubts: Mask::EMPTY };
        Self {
            slots: Vec::new(),
            slot_of: Vec::new(),
            free: Mask::FULL,
            roles,
            current: Configs::default(),
            without: Configs::default(),
            with: Configs::default(),
            trail: Vec::new(),
            spent: 0,
            stuck: false,
        }
    }

    /// Searches for an order. Afterwards, [`order`](Self::order) and [`states`](Self::states) return details.
    pub(super) fn run(&mut self, question: &Question<'_>) -> Result<(), Stop> {
        self.reset(question);
        for event in question.events {
            let known = question.forgiven != Some(event.call);
            if !event.is_return() {
                let call = &question.calls[event.call];
                self.invoke(event.call, call, known)?;
            } else if known {
                self.ret(event.call, question.steps)?;
            }
        }
        Ok(())
    }

    fn reset(&mut self, question: &Question<'_>) {
        self.free = Mask::FULL;
        self.roles = Roles { edges: Mask::EMPTY, reads: Mask::EMPTY, doubts: Mask::EMPTY };
        if self.slot_of.len() < question.calls.len() {
            self.slot_of.resize(question.calls.len(), 0);
        }
        self.trail.clear();
        self.spent = 0;
        self.stuck = false;
        self.current.clear();
        self.current.push(Config { done: Mask::EMPTY, state: question.initial, trail: ROOT }, &self.roles);
    }

    fn invoke(&mut self, index: usize, call: &Call, known: bool) -> Result<(), Stop> {
        let role = match call.fate {
            Fate::Failed => return Ok(()),
            Fate::Returned { at, outcome } if known => match transition(call.op, outcome) {
                Some((from, to)) if from == to => Role::Read(from),
                Some((from, to)) => Role::Edge { from, to, deadline: at },
                None => Role::Impossible,
            },
            _ if call.op == Op::Get => return Ok(()),
            _ => Role::Doubt(call.op),
        };
        let slot = self.free.first().ok_or(Stop::Slots)?;
        self.free.remove(slot);
        let entry = CallSlot { call: index, role };
        match self.slots.get_mut(slot) {
            Some(old) => *old = entry,
            None => self.slots.push(entry),
        }
        self.slot_of[index] = slot;
        match role {
            Role::Edge { .. } => self.roles.edges.insert(slot),
            Role::Doubt(_) => self.roles.doubts.insert(slot),
            Role::Impossible => {}
            Role::Read(value) => {
                self.roles.reads.insert(slot);
                self.spent += self.current.items().len() as u64;
                for config in self.current.items_mut().iter_mut().filter(|config| config.state == value) {
                    config.done.insert(slot);
                    self.trail.push(Step { parent: config.trail, call: index });
                    config.trail = self.trail.len() - 1;
                }
            }
        }
        Ok(())
    }

    fn ret(&mut self, call: usize, steps: u64) -> Result<(), Stop> {
        let slot = self.slot_of[call];
        self.with.clear();
        self.without.clear();
        for index in 0..self.current.items().len() {
            let config = self.current.items()[index];
            if !self.is_covered(&config, slot) {
                self.keep(config, slot);
            }
        }
        let mut index = 0;
        while index < self.without.items().len() {
            self.expand(self.without.items()[index], slot, steps)?;
            index += 1;
        }
        if self.with.items().is_empty() {
            self.stuck = true;
            return Err(Stop::Stuck { call });
        }
        std::mem::swap(&mut self.current, &mut self.with);
        self.roles.edges.remove(slot);
        self.roles.reads.remove(slot);
        self.free.insert(slot);
        Ok(())
    }

    /// Extends a configuration by each open operation that its value allows.
    fn expand(&mut self, config: Config<N>, returning: usize, steps: u64) -> Result<(), Stop> {
        let candidates = self.roles.edges.or(self.roles.doubts).minus(config.done);
        for slot in candidates {
            self.spent += 1;
            if self.spent > steps {
                return Err(Stop::Steps);
            }
            let Some(to) = self.effect(slot, config.state) else { continue };
            let reads = self.roles.reads.minus(config.done);
            let seen = reads.filter(|&read| self.slots[read].role == Role::Read(to));
            let done = seen.fold(config.done.with(slot), Mask::with);
            let next = Config { done, state: to, trail: config.trail };
            // Test dominance first, because it is the cheaper test.
            if !self.is_covered(&next, returning) && !self.has_better_twin(slot, candidates, config.state, to)
            {
                let trail = done
                    .minus(config.done)
                    .without(slot)
                    .fold(self.advance(next.trail, slot), |trail, read| self.advance(trail, read));
                self.keep(Config { trail, ..next }, returning);
            }
        }
        Ok(())
    }

    /// Returns the value of the key after this operation, if the operation is possible now and changes the
    /// value.
    fn effect(&self, slot: usize, state: Option<u64>) -> Option<Option<u64>> {
        match self.slots[slot].role {
            Role::Edge { from, to, .. } => (from == state).then_some(to),
            Role::Doubt(op) => Some(op.apply(state).0).filter(|&to| to != state),
            Role::Read(_) | Role::Impossible => None,
        }
    }

    /// Whether another candidate with the same effect should go first.
    fn has_better_twin(
        &mut self,
        slot: usize,
        candidates: Mask<N>,
        state: Option<u64>,
        to: Option<u64>,
    ) -> bool {
        let role = self.slots[slot].role;
        for other in candidates.without(slot) {
            self.spent += 1;
            let better = match (role, self.slots[other].role) {
                (Role::Edge { deadline, .. }, Role::Edge { from: f, to: t, deadline: theirs }) => {
                    (f, t) == (state, to) && (theirs, other) < (deadline, slot)
                }
                (Role::Doubt(_), Role::Edge { from: f, to: t, .. }) => (f, t) == (state, to),
                (Role::Doubt(mine), Role::Doubt(theirs)) => mine == theirs && other < slot,
                _ => false,
            };
            if better {
                return true;
            }
        }
        false
    }

    /// Whether a better configuration is known.
    fn is_covered(&mut self, config: &Config<N>, returning: usize) -> bool {
        let finished = config.done.has(returning);
        let set = if finished { &self.with } else { &self.without };
        set.covers(&retire(config, returning), &self.roles, &mut self.spent)
    }

    /// Adds a configuration to `with` or `without`, by whether the returning operation is done.
    fn keep(&mut self, config: Config<N>, returning: usize) {
        // The search charges storage by size, so that the limit on steps also limits memory.
        self.spent += N as u64;
        if config.done.has(returning) {
            self.with.push_or_replace(retire(&config, returning), &self.roles, &mut self.spent);
        } else {
            self.without.push(config, &self.roles);
        }
    }

    fn advance(&mut self, parent: usize, slot: usize) -> usize {
        self.spent += 1;
        self.trail.push(Step { parent, call: self.slots[slot].call });
        self.trail.len() - 1
    }

    /// Returns an order of all operations that had returned by the end or, after `Stuck`, before the stuck
    /// return.
    pub(super) fn order(&self) -> Vec<usize> {
        self.ends().first().map(|config| self.past(config.trail)).unwrap_or_default()
    }

    /// Returns the values that the key may hold at the end, or just before the stuck return, ascending.
    pub(super) fn states(&self) -> Vec<Option<u64>> {
        let mut states: Vec<_> = self.ends().iter().map(|config| config.state).collect();
        states.sort_unstable();
        states.dedup();
        states
    }

    /// Returns the final configurations. At a stuck return, the expansion holds all possible ones; it begins
    /// with the configurations before that return.
    fn ends(&self) -> &[Config<N>] {
        if self.stuck { self.without.items() } else { self.current.items() }
    }

    fn past(&self, mut end: usize) -> Vec<usize> {
        let mut calls = Vec::new();
        while end != ROOT {
            calls.push(self.trail[end].call);
            end = self.trail[end].parent;
        }
        calls.reverse();
        calls
    }

    /// Allocated capacity, to test that a reused checker stops allocating.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let sets = self.current.capacity() + self.without.capacity() + self.with.capacity();
        sets + self.slots.capacity() + self.slot_of.capacity() + self.trail.capacity()
    }
}

/// Frees the slot of a returned operation. The operation is done in every remaining configuration, so the
/// slot carries no information and can be reused.
fn retire<const N: usize>(config: &Config<N>, returning: usize) -> Config<N> {
    Config { done: config.done.without(returning), ..*config }
}
