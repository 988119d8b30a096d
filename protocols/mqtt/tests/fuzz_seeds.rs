//! The fuzz entry points without a fuzzer: committed inputs, mutations of them, and random bytes.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::path::Path;
use tidegate_mqtt::fuzz::{fuzz_connection, fuzz_decode};

/// All committed inputs of a target, ordered by name.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds inputs", folder.display());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn committed_inputs_break_no_promise() {
    seeds("decode").iter().for_each(|input| fuzz_decode(input));
    seeds("connection").iter().for_each(|input| fuzz_connection(input));
}

#[test]
fn committed_inputs_break_no_promise_with_any_byte_changed_or_cut_off() {
    for (target, run) in [("decode", fuzz_decode as fn(&[u8])), ("connection", fuzz_connection)] {
        for seed in seeds(target) {
            for at in 0..seed.len() {
                run(&seed[..at]);
                for value in [0, 1, 0x7f, 0x80, 0xff, seed[at] ^ 0x10, seed[at].wrapping_add(1)] {
                    let mut input = seed.clone();
                    input[at] = value;
                    run(&input);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_break_no_promise(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzz_decode(&input);
        fuzz_connection(&input);
    }

    #[test]
    fn random_bodies_behind_a_fitting_header_break_no_promise(
        first_byte in any::<u8>(),
        body in proptest::collection::vec(0u8..0x30, 0..120),
    ) {
        let input = [&[first_byte, body.len() as u8][..], &body].concat();
        fuzz_decode(&input);
        let login = seeds("connection").swap_remove(0);
        fuzz_connection(&[&login[..16], &input].concat());
    }
}
