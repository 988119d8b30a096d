//! Any bytes from STOMP clients against a hub.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate::net::hub::fuzz_stomp_bytes(data));
