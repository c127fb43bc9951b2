//! The memories of one server, for tests.

use crate::Memories;
use sherman_fabric::{Memory, Space};
use sherman_layout::testing::VecMemory;
use sherman_layout::{ControlGeometry, FormatOptions};

/// The memory of a volume, and that of the control state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) volume: VecMemory,
    pub(crate) control: VecMemory,
}

impl Pair {
    pub(crate) fn new(host: usize, on_chip: usize, options: &FormatOptions) -> Self {
        let control = VecMemory::new(ControlGeometry::bytes_of(options) as usize, 0);
        Self { volume: VecMemory::new(host, on_chip), control }
    }

    pub(crate) fn both(&self) -> Memories<'_> {
        Memories { volume: &self.volume, control: &self.control }
    }
}

/// The volume's memory.
impl Memory for Pair {
    fn size(&self, space: Space) -> u64 {
        self.volume.size(space)
    }

    fn load(&self, space: Space, offset: u64, into: &mut [u8]) {
        self.volume.load(space, offset, into);
    }

    fn store(&self, space: Space, offset: u64, from: &[u8]) {
        self.volume.store(space, offset, from);
    }
}
