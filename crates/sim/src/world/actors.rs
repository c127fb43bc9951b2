//! The set of actors that can move now, as the list of choices for the scheduler.

use crate::choice::{Actor, Choice, ChoiceKind};

const ABSENT: u32 = u32::MAX;

/// A set with insert, remove and membership in constant time. Its order follows from the history, so it is
/// the same in every run of one schedule.
#[derive(Debug, Default)]
pub(crate) struct Actors {
    list: Vec<Choice>,
    /// Index in `list` by task, queue pair and endpoint.
    tasks: Vec<u32>,
    queue_pairs: Vec<u32>,
    controls: Vec<u32>,
    servers: usize,
}

impl Actors {
    pub(crate) fn new(servers: usize) -> Self {
        Self { servers, ..Self::default() }
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        for places in [&mut self.tasks, &mut self.queue_pairs, &mut self.controls] {
            places.fill(ABSENT);
        }
    }

    pub(crate) fn choices(&self) -> &[Choice] {
        &self.list
    }

    /// Appends the time jump, for one pick.
    pub(crate) fn push_jump(&mut self) {
        self.list.push(Choice::of(Actor::Clock, ChoiceKind::Advance));
    }

    pub(crate) fn pop_jump(&mut self) {
        self.list.pop();
    }

    #[inline]
    fn place(&mut self, actor: Actor) -> Option<&mut u32> {
        let (places, at) = match actor {
            Actor::Task(task) => (&mut self.tasks, task as usize),
            Actor::QueuePair { endpoint, server } => {
                (&mut self.queue_pairs, endpoint as usize * self.servers + usize::from(server))
            }
            Actor::Control(endpoint) => (&mut self.controls, endpoint as usize),
            Actor::Clock => return None,
        };
        if at >= places.len() {
            places.resize(at + 1, ABSENT);
        }
        Some(&mut places[at])
    }

    /// Adds or removes `actor`.
    #[inline]
    pub(crate) fn set(&mut self, actor: Actor, enabled: bool) {
        let end = self.list.len() as u32;
        let Some(place) = self.place(actor) else { return };
        let at = *place;
        if enabled == (at != ABSENT) {
            return;
        }
        if enabled {
            *place = end;
            let kind = if matches!(actor, Actor::Task(_)) { ChoiceKind::Run } else { ChoiceKind::Step };
            self.list.push(Choice::of(actor, kind));
            return;
        }
        *place = ABSENT;
        self.list.swap_remove(at as usize);
        if let Some(moved) = self.list.get(at as usize).map(|choice| choice.actor)
            && let Some(place) = self.place(moved)
        {
            *place = at;
        }
    }

    /// Whether `task` is in the set.
    pub(crate) fn has_task(&self, task: u32) -> bool {
        self.tasks.get(task as usize).is_some_and(|&place| place != ABSENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_come_and_go_without_losing_each_other() {
        let mut actors = Actors::new(2);
        let all = [
            Actor::Task(3),
            Actor::QueuePair { endpoint: 1, server: 1 },
            Actor::QueuePair { endpoint: 0, server: 1 },
            Actor::Control(0),
        ];
        all.iter().for_each(|&actor| actors.set(actor, true));
        actors.set(all[0], true);
        assert_eq!(actors.choices().len(), 4);
        assert!(actors.has_task(3) && !actors.has_task(2));
        for gone in 0..4 {
            actors.set(all[gone], false);
            let mut left: Vec<Actor> = actors.choices().iter().map(|choice| choice.actor).collect();
            let mut expected = all[gone + 1..].to_vec();
            left.sort();
            expected.sort();
            assert_eq!(left, expected);
        }
    }
}
