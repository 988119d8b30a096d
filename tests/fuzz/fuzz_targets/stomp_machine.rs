//! STOMP clients whose every choice is the fuzzer's, against a hub and a model of what may come back.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate::net::hub::fuzz_stomp(data));
