//! Runs `tidegate_stomp::fuzz::fuzz_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidegate_stomp::fuzz::fuzz_decode(input));
