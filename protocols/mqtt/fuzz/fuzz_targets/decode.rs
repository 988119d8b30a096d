//! Runs `tidegate_mqtt::fuzz::fuzz_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidegate_mqtt::fuzz::fuzz_decode(input));
