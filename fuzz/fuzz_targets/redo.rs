//! `sherman_fuzzing::redo` under libfuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    sherman_fuzzing::redo::run(input);
});
