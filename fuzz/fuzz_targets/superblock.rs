//! `sherman_fuzzing::superblock` under libfuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    sherman_fuzzing::superblock::run(input);
});
