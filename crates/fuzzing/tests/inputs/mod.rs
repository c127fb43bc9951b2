//! Inputs of a seeded generator.
#![allow(dead_code, reason = "each test file uses what it needs")]

/// Numbers that are the same on every run (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Returns an input. In some inputs about half of the bytes are small, like the bytes that make choices.
pub fn input(seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let len = numbers.next() % [64, 300, 1500][(seed % 3) as usize];
    let small = numbers.next().is_multiple_of(4);
    (0..len)
        .map(|_| numbers.next() as u8 & if small && numbers.next().is_multiple_of(2) { 0x0f } else { 0xff })
        .collect()
}

/// Number of frames that a test sends: `SHERMAN_FUZZ_FRAMES`, or `few` if the variable is not set.
pub fn frames(few: u64) -> u64 {
    std::env::var("SHERMAN_FUZZ_FRAMES").map_or(few, |text| text.parse().expect("a number of frames"))
}
