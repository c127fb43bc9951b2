//! `sherman_fuzzing::replay` under libfuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    sherman_fuzzing::replay::run(input);
});
