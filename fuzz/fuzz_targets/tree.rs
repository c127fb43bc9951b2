//! `sherman_fuzzing::tree` under libfuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    sherman_fuzzing::tree::run(input);
});
