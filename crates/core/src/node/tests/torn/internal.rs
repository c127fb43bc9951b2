//! Internal nodes: a reader sees a state that the writer made, or rejects the image.

use super::super::*;
use super::safe_formats;
use crate::node::{LINE, SortedBody};

/// What a reader reads from an internal node.
type State = (Vec<Pair>, Vec<u8>, Option<Vec<u8>>, GlobalAddress);

fn state(node: &Node<'_>) -> State {
    (node.entries(), node.low(), node.high(), node.header.sibling)
}

struct Moments<'s> {
    shape: &'s Shape,
    images: Vec<Vec<u8>>,
    /// The states that were current at each moment. There are two during a write.
    states: Vec<Vec<State>>,
}

impl Moments<'_> {
    fn write(&mut self, new: &Draft<'_>, patch: &Patch) {
        let (old, now) = (self.states[self.states.len() - 1].clone(), state(&new.node()));
        let mut image = self.images[self.images.len() - 1].clone();
        let lines: Vec<usize> =
            patch.steps().iter().flat_map(|step| step.start / LINE..step.end.div_ceil(LINE)).collect();
        for (number, line) in lines.iter().enumerate() {
            let range = line * LINE..(line + 1) * LINE;
            image[range.clone()].copy_from_slice(&new.image()[range]);
            self.images.push(image.clone());
            let under_way = if number + 1 < lines.len() { old.clone() } else { Vec::new() };
            self.states.push([under_way, vec![now.clone()]].concat());
        }
        assert_eq!(image, new.image());
    }

    fn assert_no_mixture_misleads(&self) -> usize {
        let count = self.images.len();
        let mut mixtures = 0;
        let mut image = vec![0; 4 * LINE];
        for number in 0..count.pow(4) {
            let times: [usize; 4] = std::array::from_fn(|line| number / count.pow(line as u32) % count);
            for (line, time) in times.into_iter().enumerate() {
                let range = line * LINE..(line + 1) * LINE;
                image[range.clone()].copy_from_slice(&self.images[time][range]);
            }
            let Ok(node) = Node::open(self.shape, &image, 1) else { continue };
            let seen = state(&node);
            let (first, last) = times.iter().fold((count, 0), |(f, l), &time| (f.min(time), l.max(time)));
            let allowed = self.states[first..=last].iter().flatten().any(|state| *state == seen);
            assert!(allowed, "lines of moments {times:?} show {seen:?}, {:?}", self.shape);
            mixtures += usize::from(first != last);
        }
        mixtures
    }
}

/// Adds separators, splits the node, merges its neighbour back, and removes a child, starting at `version`.
/// Children are numbered by their separator.
fn life(shape: &Shape, version: u16, keys: &[u8]) -> usize {
    let key = |number: u8| [vec![0; shape.key_len - 1], vec![number]].concat();
    let mut draft = whole_range(shape, 1, version);
    let mut body = SortedBody::empty(shape);
    body.insert(0, &key(0), &[0; 8]);
    body.insert(1, &key(100), &[100; 8]);
    draft.set_body(&body);
    let mut moments =
        Moments { shape, images: vec![draft.image().to_vec()], states: vec![vec![state(&draft.node())]] };
    let mut neighbour = None;
    for &number in keys {
        let mut body = draft.node().sorted().expect("sorted");
        let Err(at) = body.find(&key(number)) else { continue };
        body.insert(at, &key(number), &[number; 8]);
        let patch = if body.len() > 3 {
            let split = draft.split_sorted(body, at, place(1));
            neighbour = Some(split.right);
            split.left
        } else {
            draft.set_body(&body)
        };
        moments.write(&draft, &patch);
    }
    let neighbour = neighbour.expect("it has split");
    match draft.absorb(&neighbour.node()) {
        Some(patch) => moments.write(&draft, &patch),
        None => assert!(draft.node().len() + neighbour.node().len() > shape.capacity()),
    }
    let mut body = draft.node().sorted().expect("sorted");
    body.remove(1);
    let patch = draft.set_body(&body);
    moments.write(&draft, &patch);
    moments.assert_no_mixture_misleads()
}

#[test]
fn no_mixture_of_an_internal_node_shows_a_state_it_never_had() {
    for format in safe_formats() {
        for shape in [internal_shape(format, 8, 256), internal_shape(format, 20, 256)] {
            let mut mixtures = 0;
            for version in [1, 0xfffd] {
                mixtures += life(&shape, version, &[50, 120, 30, 10]);
                mixtures += life(&shape, version, &[50, 40, 45, 20]);
            }
            assert!(mixtures > 0, "no mixture at all was accepted: {format:?}");
        }
    }
}
