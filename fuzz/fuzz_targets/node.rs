//! `sherman_fuzzing::node` under libfuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    sherman_fuzzing::node::run(input);
});
