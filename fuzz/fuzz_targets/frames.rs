//! `sherman_fuzzing::frames` under libfuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    sherman_fuzzing::frames::run(input);
});
