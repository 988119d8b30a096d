//! The PROXY protocol, versions 1 and 2: how a proxy says where a connection really comes from.
//!
//! Read in exact pieces, so that nothing that follows the header is touched: [`PREFIX_BYTES`] first, and then as many bytes as
//! [`parse`] asks for. A header that is not exactly as specified ends the connection: guessing would let strangers through.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The shortest header; no header ends earlier.
pub const PREFIX_BYTES: usize = 15;
/// The longest header that is taken; what proxies add (TLS details, names) is far shorter.
pub const HEADER_BYTES_MAX: usize = 4 << 10;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED_BYTES: usize = 16;
const V1_BYTES_MAX: usize = 107;

/// What a header says so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// So many more bytes belong to it at least.
    More(usize),
    /// It is complete. `None`: the connection is the proxy's own, or it does not know.
    Done(Option<SocketAddr>),
}

/// The bytes are no header that is taken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no valid header of the PROXY protocol")]
pub struct BadHeader;

/// Reads the header; `bytes` holds its start and nothing that follows it.
///
/// # Errors
/// When it cannot become a valid header any more.
pub fn parse(bytes: &[u8]) -> Result<Parsed, BadHeader> {
    if bytes.len() < PREFIX_BYTES {
        return Ok(Parsed::More(PREFIX_BYTES - bytes.len()));
    }
    if bytes.starts_with(SIGNATURE) { v2(bytes) } else { v1(bytes) }
}

fn v1(bytes: &[u8]) -> Result<Parsed, BadHeader> {
    if !bytes.starts_with(b"PROXY ") || bytes.len() > V1_BYTES_MAX {
        return Err(BadHeader);
    }
    let Some(line) = bytes.strip_suffix(b"\r\n") else {
        let room = bytes.len() < V1_BYTES_MAX && !bytes.contains(&b'\n');
        // The end of the line is at least one byte away, and nothing says where.
        return if room { Ok(Parsed::More(1)) } else { Err(BadHeader) };
    };
    let line = std::str::from_utf8(line).map_err(|_| BadHeader)?;
    let mut words = line["PROXY ".len()..].split(' ');
    let v6 = match words.next() {
        Some("UNKNOWN") => return Ok(Parsed::Done(None)),
        Some("TCP4") => false,
        Some("TCP6") => true,
        _ => return Err(BadHeader),
    };
    let mut ip = || {
        let ip: IpAddr = words.next()?.parse().ok()?;
        (ip.is_ipv6() == v6).then_some(ip)
    };
    let (from, _to) = (ip().ok_or(BadHeader)?, ip().ok_or(BadHeader)?);
    let mut port = || {
        let word = words.next().filter(|word| word.bytes().all(|b| b.is_ascii_digit()))?;
        word.parse::<u16>().ok()
    };
    let (from_port, _to_port) = (port().ok_or(BadHeader)?, port().ok_or(BadHeader)?);
    match words.next() {
        None => Ok(Parsed::Done(Some(SocketAddr::new(from, from_port)))),
        Some(_) => Err(BadHeader),
    }
}

fn v2(bytes: &[u8]) -> Result<Parsed, BadHeader> {
    let Some((fixed, addresses)) = bytes.split_first_chunk::<V2_FIXED_BYTES>() else {
        return Ok(Parsed::More(V2_FIXED_BYTES - bytes.len()));
    };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if V2_FIXED_BYTES + length > HEADER_BYTES_MAX {
        return Err(BadHeader);
    }
    if addresses.len() < length {
        return Ok(Parsed::More(length - addresses.len()));
    }
    // The proxy's own connection, such as a health check.
    if fixed[12] == 0x20 {
        return Ok(Parsed::Done(None));
    }
    if fixed[12] != 0x21 {
        return Err(BadHeader);
    }
    let port = |at: usize| u16::from_be_bytes([addresses[at], addresses[at + 1]]);
    match fixed[13] {
        0x11 if length >= 12 => {
            let ip: [u8; 4] = addresses[..4].try_into().map_err(|_| BadHeader)?;
            Ok(Parsed::Done(Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port(8)))))
        }
        0x21 if length >= 36 => {
            let ip: [u8; 16] = addresses[..16].try_into().map_err(|_| BadHeader)?;
            Ok(Parsed::Done(Some(SocketAddr::new(Ipv6Addr::from(ip).into(), port(32)))))
        }
        // Not told, or a Unix socket of the proxy's machine.
        0x00 | 0x31 => Ok(Parsed::Done(None)),
        _ => Err(BadHeader),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for bytes as a reader does; gives what the header says and its length.
    fn read(bytes: &[u8]) -> Result<(Option<SocketAddr>, usize), BadHeader> {
        let mut have = 0;
        loop {
            match parse(&bytes[..have])? {
                Parsed::Done(addr) => return Ok((addr, have)),
                Parsed::More(n) if have + n <= bytes.len() => have += n,
                Parsed::More(_) => return Err(BadHeader),
            }
        }
    }

    fn second(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([command, family]);
        header.extend((addresses.len() as u16).to_be_bytes());
        header.extend(addresses);
        header
    }

    #[test]
    fn both_versions_tell_the_address_and_touch_nothing_behind_the_header() {
        let v6 = [&[0x20; 16][..], &[0; 16], &[1, 2, 3, 4], &[4, 0, 1, 9]].concat();
        for (header, from) in [
            (b"PROXY TCP4 10.0.0.7 10.0.0.1 4242 1883\r\n".to_vec(), Some("10.0.0.7:4242")),
            (b"PROXY TCP6 ::1 fe80::2 1 65535\r\n".to_vec(), Some("[::1]:1")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ff:: 1 2 3\r\n".to_vec(), None),
            (second(0x21, 0x11, &[10, 0, 0, 7, 1, 1, 1, 1, 0x10, 0x92, 7, 91]), Some("10.0.0.7:4242")),
            (second(0x21, 0x21, &v6), Some("[2020:2020:2020:2020:2020:2020:2020:2020]:258")),
            (second(0x20, 0x00, &[]), None),
            (second(0x21, 0x00, b"tlv"), None),
        ] {
            let mut bytes = header.clone();
            bytes.extend(b"\x10\x0c\0\x04MQTT");
            assert_eq!(read(&bytes), Ok((from.map(|a| a.parse().unwrap()), header.len())), "{header:?}");
        }
    }

    #[test]
    fn whatever_is_not_exactly_a_header_is_refused() {
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(120));
        for bytes in [
            b"\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0\0".to_vec(),
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            b"proxy TCP4 1.1.1.1 1.1.1.1 1 1\r\n".to_vec(),
            b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1 1\r\n".to_vec(),
            b"PROXY TCP4  1.1.1.1 1.1.1.1 1 1\r\n".to_vec(),
            b"PROXY TCP4 ::1 ::1 1 1\r\n".to_vec(),
            b"PROXY TCP6 1.1.1.1 1.1.1.1 1 1\r\n".to_vec(),
            b"PROXY TCP4 1.1.1.1 1.1.1.1 +1 1\r\n".to_vec(),
            b"PROXY TCP4 1.1.1.1 1.1.1.1 65536 1\r\n".to_vec(),
            b"PROXY TCP4 1.1.1.1 1.1.1.1 1\r\n".to_vec(),
            b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1\n\r\n".to_vec(),
            b"PROXY UDP4 1.1.1.1 1.1.1.1 1 1\r\n".to_vec(),
            b"PROXY TCP4 \xff\xff\r\n\r\n\r\n".to_vec(),
            long.into_bytes(),
            second(0x21, 0x11, &[0; 11]),
            second(0x21, 0x21, &[0; 35]),
            second(0x21, 0x12, &[0; 12]),
            second(0x11, 0x11, &[0; 12]),
            second(0x22, 0x11, &[0; 12]),
            second(0x21, 0x11, &[0; HEADER_BYTES_MAX]),
        ] {
            assert_eq!(read(&bytes), Err(BadHeader), "{bytes:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn mangled_headers_are_read_or_refused_and_never_a_panic(
            which in 0..3_usize, at in 0..60_usize, put in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..20),
        ) {
            let mut bytes = match which {
                0 => b"PROXY TCP4 10.0.0.7 10.0.0.1 4242 1883\r\n".to_vec(),
                1 => second(0x21, 0x21, &[7; 50]),
                _ => second(0x21, 0x11, &[7; 14]),
            };
            let at = at.min(bytes.len());
            bytes.splice(at.., put);
            if let Ok((_, used)) = read(&bytes) {
                proptest::prop_assert!(used <= bytes.len() && used <= HEADER_BYTES_MAX);
            }
        }
    }
}
