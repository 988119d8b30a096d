//! What is encoded decodes to the same, for random frames.
#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tidegate_stomp::{Command, DecodeLimits, Decoded, Decoder, FrameWriter, Version, decode};

fn version() -> impl Strategy<Value = Version> {
    select(&Version::ALL[..])
}

/// Texts with everything that is special in a header.
fn text(least: usize) -> impl Strategy<Value = String> {
    let character =
        select(vec!['a', 'r', 'n', 'c', ':', '\\', '\n', '\r', ' ', '\t', 'é', '日', '😀', '\u{1}']);
    vec(character, least..12).prop_map(|characters| characters.into_iter().collect())
}

fn headers() -> impl Strategy<Value = Vec<(String, String)>> {
    vec((text(1), text(0)), 0..8)
}

/// What a receiver of STOMP 1.0 sees of a text: ends of lines and, in names, colons are written as later versions
/// escape them, and space around is trimmed.
fn seen_in_v10(text: &str, name: bool) -> String {
    let seen = text.replace('\n', "\\n").replace('\r', "\\r");
    let seen = if name { seen.replace(':', "\\c") } else { seen };
    seen.trim_matches([' ', '\t']).to_owned()
}

fn expected(version: Version, headers: &[(String, String)]) -> Vec<(String, String)> {
    match version {
        Version::V10 => {
            headers.iter().map(|(name, value)| (seen_in_v10(name, true), seen_in_v10(value, false))).collect()
        }
        _ => headers.to_vec(),
    }
}

fn send(version: Version, headers: &[(String, String)], body: &[u8], announced: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut frame = FrameWriter::new(&mut out, version, Command::Send).unwrap();
    if announced {
        frame.content_length(body.len()).unwrap();
    }
    frame.headers(headers.iter().map(|(name, value)| (name, value))).unwrap();
    frame.end(body).unwrap();
    out
}

proptest! {
    #[test]
    fn a_frame_decodes_to_what_was_encoded(
        version in version(),
        headers in headers(),
        body in vec(any::<u8>(), 0..64),
    ) {
        prop_assume!(expected(version, &headers).iter().all(|(name, _)| !name.is_empty()));
        let bytes = send(version, &headers, &body, true);
        let frame = decode(version, &bytes, &DecodeLimits::default()).unwrap();
        prop_assert_eq!((frame.version, frame.command, frame.body), (version, Command::Send, &body[..]));
        let decoded: Vec<_> = frame.headers.iter().skip(1).map(|it| (it.name.into_owned(), it.value.into_owned())).collect();
        prop_assert_eq!(&decoded, &expected(version, &headers));
        for (name, _) in &decoded {
            let first = decoded.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
            if name != "content-length" {
                let found = frame.headers.get(name);
                prop_assert_eq!(found.as_deref(), first);
            }
        }
        let mut again = Vec::new();
        frame.encode(&mut again).unwrap();
        prop_assert_eq!(decode(version, &again, &DecodeLimits::default()), Ok(frame));
        if version != Version::V10 {
            prop_assert_eq!(again, bytes, "the encoding is canonical");
        }
    }

    #[test]
    fn a_text_body_needs_no_length(version in version(), body in vec(1u8..=255, 0..64)) {
        let bytes = send(version, &[], &body, false);
        let frame = decode(version, &bytes, &DecodeLimits::default()).unwrap();
        prop_assert_eq!(frame.body, &body[..]);
    }

    #[test]
    fn frames_one_behind_the_other_arrive_in_any_pieces(
        version in version(),
        frames in vec((headers(), vec(any::<u8>(), 0..32)), 1..5),
        pieces in vec(1usize..40, 1..40),
    ) {
        prop_assume!(frames.iter().all(|(headers, _)| expected(version, headers).iter().all(|(name, _)| !name.is_empty())));
        let bytes: Vec<u8> = frames.iter().flat_map(|(headers, body)| send(version, headers, body, true)).collect();
        let (mut decoder, mut input, mut found) = (Decoder::new(), Vec::new(), Vec::new());
        let (mut rest, mut pieces) = (&bytes[..], pieces.iter().cycle());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
            input.extend_from_slice(piece);
            rest = behind;
            loop {
                let consumed = match decoder.decode(version, &input, &DecodeLimits::default()).unwrap() {
                    Decoded::Incomplete { .. } => break,
                    Decoded::Gap { consumed } => consumed,
                    Decoded::Frame { frame, consumed } => {
                        found.push(frame.body.to_vec());
                        consumed
                    }
                };
                input.drain(..consumed);
            }
        }
        let bodies: Vec<_> = frames.into_iter().map(|(_, body)| body).collect();
        prop_assert_eq!(found, bodies);
        prop_assert!(input.is_empty());
    }

    #[test]
    fn nothing_that_one_version_carries_injects_a_header_into_another(from in version(), to in version(), headers in headers()) {
        prop_assume!(expected(from, &headers).iter().all(|(name, _)| !name.is_empty()));
        let bytes = send(from, &headers, b"", false);
        let Ok(frame) = decode(from, &bytes, &DecodeLimits::default()) else {
            // A length among the headers contradicts the body.
            return Ok(());
        };
        let sent: Vec<_> = frame.headers.iter().map(|it| (it.name.into_owned(), it.value.into_owned())).collect();
        prop_assume!(expected(to, &sent).iter().all(|(name, _)| !name.is_empty()));
        let forwarded = send(to, &sent, b"", false);
        let frame = decode(to, &forwarded, &DecodeLimits::default()).unwrap();
        let received: Vec<_> = frame.headers.iter().map(|it| (it.name.into_owned(), it.value.into_owned())).collect();
        prop_assert_eq!(received, expected(to, &sent));
    }

    #[test]
    fn connect_is_written_as_it_is_or_not_at_all(passcode in text(0), version in select(vec![Version::V11, Version::V12])) {
        let mut out = Vec::new();
        let mut frame = FrameWriter::new(&mut out, version, Command::Connect).unwrap();
        frame.header("accept-version", version.as_str()).unwrap();
        let fits = !passcode.contains(['\n', '\r']);
        prop_assert_eq!(frame.header("passcode", &passcode).is_ok(), fits);
        if fits {
            frame.end(b"").unwrap();
            let frame = decode(Version::V10, &out, &DecodeLimits::default()).unwrap();
            prop_assert_eq!(frame.version, version);
            let found = frame.headers.get("passcode");
            prop_assert_eq!(found.as_deref(), Some(passcode.as_str()));
        }
    }
}
