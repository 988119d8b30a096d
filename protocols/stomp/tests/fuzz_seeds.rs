//! The fuzz entry points without a fuzzer: committed inputs, mutations of them, and random bytes.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::sample::select;
use std::path::Path;
use tidegate_stomp::fuzz::{fuzz_connection, fuzz_decode};

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
    for input in seeds("connection") {
        for choice in 0..16 {
            fuzz_connection(&[&[choice], &input[1..]].concat());
        }
    }
}

#[test]
fn committed_inputs_break_no_promise_with_any_byte_changed_or_cut_off() {
    for (target, run) in [("decode", fuzz_decode as fn(&[u8])), ("connection", fuzz_connection)] {
        for seed in seeds(target) {
            for at in 0..seed.len() {
                run(&seed[..at]);
                for value in [0, b'\n', b'\r', b':', b'\\', 0xff, seed[at] ^ 0x20, seed[at].wrapping_add(1)] {
                    let mut input = seed.clone();
                    input[at] = value;
                    run(&input);
                }
            }
        }
    }
}

/// Pieces that frames are made of.
fn scraps() -> impl Strategy<Value = Vec<u8>> {
    let scraps = vec![
        "SEND\n",
        "ACK\r\n",
        "CONNECT\n",
        "CONNECTED\n",
        "MESSAGE\n",
        "DISCONNECT\n",
        "NACK\n",
        "BOGUS\n",
        "destination:a\n",
        "content-length:3\n",
        "receipt:r\n",
        "accept-version:1.1,1.2\n",
        "version:1.0\n",
        "x:\\c\\n\n",
        "x\\r:y\r\n",
        " x : y \n",
        "\n",
        "\r\n",
        "\0",
        "abc",
        ":",
        "\\",
        "é",
    ];
    proptest::collection::vec(select(scraps), 0..12).prop_map(|chosen| chosen.concat().into_bytes())
}

proptest! {
    #[test]
    fn random_bytes_break_no_promise(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzz_decode(&input);
        fuzz_connection(&input);
    }

    #[test]
    fn frames_made_of_scraps_break_no_promise(choice in any::<u8>(), input in scraps()) {
        fuzz_decode(&input);
        let login = b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:9,9\n\n\0";
        fuzz_connection(&[&[choice], &login[..], &input].concat());
        fuzz_connection(&[&[choice], &b"CONNECT\n\n\0"[..], &input].concat());
    }
}
