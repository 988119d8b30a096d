//! Frames, lengths and limits.

use std::time::Duration;

use crate::client::{C0, C1, C2, Stomp, assert_empty, assert_has};
use crate::{gateway, stomp};

/// Sends bytes that lead to an ERROR on a fresh connection of STOMP 1.2.
#[track_caller]
fn refused(address: std::net::SocketAddr, bytes: impl AsRef<[u8]>) {
    let mut client = Stomp::open(address);
    client.send(bytes);
    client.error();
}

#[test]
fn a030_lines_may_end_with_a_carriage_return_and_a_line_feed() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send("STOMP\r\naccept-version:1.2\r\nhost:h\r\n\r\n\0");
    client.connected();
    client.send("SEND\r\ndestination:/queue/a030\r\nreceipt:r\r\n\r\nb\r\n\0");
    client.receipt("r");
    client.subscribe("s", "a030", "auto");
    let message = client.message();
    assert_eq!(message.header("destination"), "/queue/a030");
    assert_eq!(message.body, b"b\r\n");
}

#[test]
fn a031_telnet_users_of_old_versions_may_write_carriage_returns() {
    let gateway = gateway();
    Stomp::with(stomp(&gateway), "CONNECT\r\n\r\n\0\r\n");
}

#[test]
fn a032_both_ends_of_lines_may_mix_in_a_frame() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a032\r\nreceipt:r\n\r\nx\0");
    client.receipt("r");
}

#[test]
fn a033_a_lone_carriage_return_is_not_allowed_in_a_header() {
    let gateway = gateway();
    refused(stomp(&gateway), "SEND\ndestination:/queue/a033\nx:a\rb\n\ny\0");
    assert_empty(stomp(&gateway), "a033");
}

#[test]
fn a034_a_carriage_return_is_data_in_version_1_1() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), C1);
    client.subscribe("s", "a034", "auto");
    client.send("SEND\ndestination:/queue/a034\nx:a\r\n\ny\0");
    assert_eq!(client.message().header("x"), "a\r");
    client.send("SEND\ndestination:/queue/a034\nx:b\n\r\nz\0");
    let message = client.message();
    assert_eq!((message.header("x"), message.text().as_str()), ("b", "z"));
}

#[test]
fn a035_line_feeds_may_follow_a_frame() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a035\n\nx\0\n\n\n\nSEND\ndestination:/queue/a035\n\ny\0");
    client.disconnect();
    assert_has(stomp(&gateway), "a035", ["x", "y"]);
}

#[test]
fn a036_line_feeds_may_come_before_the_first_frame() {
    let gateway = gateway();
    Stomp::with(stomp(&gateway), &format!("\n\n{C2}"));
}

#[test]
fn a037_carriage_returns_and_line_feeds_may_follow_a_frame() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a037\n\nx\0\r\n\r\nSEND\ndestination:/queue/a037\n\ny\0");
    client.disconnect();
    assert_has(stomp(&gateway), "a037", ["x", "y"]);
}

#[test]
fn a038_stray_nuls_between_frames_are_skipped() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a038\n\nx\0\0\0SEND\ndestination:/queue/a038\n\ny\0");
    client.disconnect();
    assert_has(stomp(&gateway), "a038", ["x", "y"]);
}

const A039: &[u8] = b"SEND\ndestination:/queue/a039\ncontent-length:5\nreceipt:r\n\na\0b\0c\0";

#[test]
fn a039_as_many_bytes_as_announced_are_the_body_whatever_they_are() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send(A039);
    client.receipt("r");
    client.subscribe("s", "a039", "auto");
    let message = client.message();
    assert_eq!((message.header("content-length"), &*message.body), ("5", &b"a\0b\0c"[..]));
}

#[test]
fn a040_a_body_may_be_announced_as_empty() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a040\ncontent-length:0\nreceipt:r\n\n\0");
    client.receipt("r");
    assert_has(stomp(&gateway), "a040", [""]);
}

#[test]
fn a041_a_body_longer_than_announced_is_an_error() {
    let gateway = gateway();
    refused(stomp(&gateway), "SEND\ndestination:/queue/a041\ncontent-length:3\n\nabcd\0");
    assert_empty(stomp(&gateway), "a041");
}

#[test]
fn a042_an_announced_body_reaches_past_a_nul() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a042\ncontent-length:10\n\nabc\x00123456\0");
    client.subscribe("s", "a042", "auto");
    assert_eq!(client.message().body, b"abc\x00123456");
}

#[test]
fn a043_without_a_length_the_first_nul_ends_the_body() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a043\n\nabc\0SEND\ndestination:/queue/a043\n\nd\0");
    client.disconnect();
    assert_has(stomp(&gateway), "a043", ["abc", "d"]);
}

#[test]
fn a044_negative_lengths_are_errors() {
    let gateway = gateway();
    for length in ["-1", "-2147483648"] {
        refused(stomp(&gateway), format!("SEND\ndestination:/queue/a044\ncontent-length:{length}\n\n"));
    }
    assert_empty(stomp(&gateway), "a044");
}

#[test]
fn a045_lengths_that_are_no_plain_numbers_are_errors() {
    let gateway = gateway();
    for length in ["abc", "1x", "0x5", "+5", "1e3", " 5", "5 ", ""] {
        refused(
            stomp(&gateway),
            format!("SEND\ndestination:/queue/a045\ncontent-length:{length}\n\nabcde\0"),
        );
    }
    assert_empty(stomp(&gateway), "a045");
}

#[test]
fn a046_huge_lengths_do_not_wrap_around() {
    let gateway = gateway();
    let before = gateway.rss();
    for length in ["4294967301", "18446744073709551621", "2147483647"] {
        refused(
            stomp(&gateway),
            format!("SEND\ndestination:/queue/a046\ncontent-length:{length}\n\nabcde\0"),
        );
    }
    assert!(gateway.rss() < before + (4 << 20));
}

#[test]
fn a047_a_body_over_the_limit_is_refused_from_its_header() {
    let gateway = gateway();
    drop(Stomp::open(stomp(&gateway)));
    let before = gateway.rss();
    let mut clients: Vec<Stomp> = (0..1_000).map(|_| Stomp::open(stomp(&gateway))).collect();
    for client in &mut clients {
        client.send("SEND\ndestination:/queue/a047\ncontent-length:1048577\n\n");
    }
    clients.iter_mut().for_each(|client| drop(client.error()));
    let grown = gateway.rss().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes");
}

#[test]
fn a048_the_first_of_repeated_lengths_counts() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a048\ncontent-length:3\ncontent-length:5\n\nabc\0");
    client.subscribe("s", "a048", "auto");
    assert_eq!(client.message().body, b"abc");
}

#[test]
fn a049_a_length_on_a_frame_without_a_body_is_ignored() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.put("a049", "x");
    client.subscribe("s", "a049", "client");
    let ack = client.message().header("ack").to_owned();
    client.send(format!("ACK\nid:{ack}\ncontent-length:8511\nreceipt:r\n\n\0"));
    client.receipt("r");
    client.disconnect();
    assert_empty(stomp(&gateway), "a049");
}

#[test]
fn a050_a_frame_without_a_body_may_have_an_extra_line_feed_and_nothing_else() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("BEGIN\ntransaction:t\nreceipt:r\n\n\n\0");
    client.receipt("r");
    refused(stomp(&gateway), "BEGIN\ntransaction:t\n\nSEND\ndestination:/queue/a050\n\nx\0");
    assert_empty(stomp(&gateway), "a050");
}

#[test]
fn a051_frames_may_arrive_in_any_pieces() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.subscribe("s", "a039", "auto");
    let check = |client: &mut Stomp| {
        let (mut receipt, mut message) = (false, false);
        while !(receipt && message) {
            let frame = client.frame();
            match frame.command.as_str() {
                "RECEIPT" => receipt = frame.header("receipt-id") == "r",
                _ => message = frame.body == b"a\0b\0c",
            }
        }
    };
    A039.iter().for_each(|byte| client.send([*byte]));
    check(&mut client);
    for at in 1..A039.len() {
        client.send(&A039[..at]);
        std::thread::yield_now();
        client.send(&A039[at..]);
        check(&mut client);
    }
}

#[test]
fn a052_ten_thousand_frames_may_come_at_once() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    let mut bytes = String::new();
    for i in 0..10_000 {
        let receipt = if i == 9_999 { "receipt:last\n" } else { "" };
        bytes += &format!("SEND\ndestination:/queue/a052\n{receipt}\n{i}\0");
    }
    client.send(bytes);
    client.receipt("last");
    client.subscribe("s", "a052", "auto");
    for i in 0..10_000 {
        assert_eq!(client.message().text(), i.to_string());
    }
}

#[test]
fn a053_headers_are_utf_8() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a053\nключ:日本語😀\n\nx\0");
    client.subscribe("s", "a053", "auto");
    assert_eq!(client.message().header("ключ"), "日本語😀");
}

#[test]
fn a054_headers_that_are_not_utf_8_are_errors() {
    let gateway = gateway();
    refused(stomp(&gateway), b"SEND\ndestination:/queue/a054\nx:\xc3\x28\n\ny\0");
    assert_empty(stomp(&gateway), "a054");
}

#[test]
fn a055_commands_are_case_sensitive() {
    let gateway = gateway();
    refused(stomp(&gateway), "send\ndestination:/queue/a055\n\nx\0");
    assert_empty(stomp(&gateway), "a055");
}

#[test]
fn a056_names_of_headers_are_case_sensitive() {
    let gateway = gateway();
    refused(stomp(&gateway), "SEND\nDestination:/queue/a056\n\nx\0");
    assert_empty(stomp(&gateway), "a056");
}

#[test]
fn a057_unknown_commands_are_errors() {
    let gateway = gateway();
    refused(stomp(&gateway), "SED\nAMQ_SCHEDULED_DELAY:2000\ndestination:/queue/a057\n\nHello World\0");
    assert_empty(stomp(&gateway), "a057");
}

#[test]
fn a058_commands_are_compared_whole() {
    let gateway = gateway();
    for command in ["SENDX", "SEXX", "ACKNOWLEDGE", "CONNECTX"] {
        refused(stomp(&gateway), format!("{command}\ndestination:/queue/a058\nid:1\n\n\0"));
    }
}

#[test]
fn a059_a_header_line_has_a_colon() {
    let gateway = gateway();
    refused(stomp(&gateway), "SEND\ndestination:/queue/a059\njunk\n\nx\0");
    assert_empty(stomp(&gateway), "a059");
}

#[test]
fn a060_a_header_line_of_one_character_does_not_end_the_headers() {
    let gateway = gateway();
    refused(stomp(&gateway), "SEND\nx\ndestination:/queue/a060\n\ny\0");
    assert_empty(stomp(&gateway), "a060");
}

#[test]
fn a061_a_header_has_a_name() {
    let gateway = gateway();
    refused(stomp(&gateway), "SUBSCRIBE\ndestination:/queue/a061\nid:0\n:invalid header\n\n\0");
}

#[test]
fn a062_a_value_may_be_empty() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("SEND\ndestination:/queue/a062\nx:\n\ny\0");
    client.subscribe("s", "a062", "auto");
    assert_eq!(client.message().header("x"), "");
}

#[test]
fn a063_disconnect_without_its_blank_line_does_not_hang() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("DISCONNECT\nreceipt:77\n\0");
    let answer = client.rest_within(Duration::from_secs(1));
    assert!(answer.starts_with(b"RECEIPT\nreceipt-id:77\n") || answer.starts_with(b"ERROR\n"));
}

#[test]
fn a064_a_nul_within_the_headers_is_an_error() {
    let gateway = gateway();
    refused(stomp(&gateway), "SEND\ndestination:/queue/a064\nx:a\0b\n\ny\0");
    assert_empty(stomp(&gateway), "a064");
}

#[test]
fn a065_the_number_and_the_size_of_headers_are_bounded() {
    let gateway = gateway();
    let distinct: String = (0..101).map(|i| format!("u{i}:v\n")).collect();
    refused(stomp(&gateway), format!("SEND\ndestination:/queue/a065\n{distinct}\ny\0"));
    let mut client = Stomp::open(stomp(&gateway));
    client.try_send(format!("SEND\ndestination:/queue/a065\n{}\ny\0", "foo:bar\n".repeat(100_000)));
    client.error();
    assert_empty(stomp(&gateway), "a065");
}

/// Sends an endless run of bytes until the gateway has had enough; the sum of what was taken.
pub fn pour(client: &mut Stomp, start: &str, bytes: usize) {
    client.send(start);
    let chunk = [b'a'; 64 << 10];
    let mut left = bytes;
    while left > 0 && client.try_send(&chunk[..left.min(chunk.len())]) {
        left -= left.min(chunk.len());
    }
}

#[test]
fn a066_a_header_line_over_the_limit_is_refused_while_it_arrives() {
    let gateway = gateway();
    drop(Stomp::open(stomp(&gateway)));
    let before = gateway.rss();
    let mut client = Stomp::open(stomp(&gateway));
    pour(&mut client, "SEND\nx:", 64 << 20);
    client.error();
    let grown = gateway.rss().saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} bytes");
}

#[test]
fn a067_a_command_over_the_limit_is_refused_while_it_arrives() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    client.send("A".repeat(65));
    client.error();
    let mut client = Stomp::open(stomp(&gateway));
    client.try_send("A".repeat(1 << 20));
    client.error();
}

#[test]
fn a068_a_body_without_a_length_is_refused_at_the_limit() {
    let gateway = gateway();
    let mut client = Stomp::open(stomp(&gateway));
    pour(&mut client, "SEND\ndestination:/queue/a068\n\n", 8 << 20);
    client.error();
    assert_empty(stomp(&gateway), "a068");
}

#[test]
fn a069_limits_before_the_login_are_smaller() {
    let gateway = gateway();
    let mut client = Stomp::raw(stomp(&gateway));
    client.try_send(format!("CONNECT\nx:{}\n\n\0", "a".repeat(65 << 10)));
    client.error();
    let mut client = Stomp::raw(stomp(&gateway));
    client.send(format!("CONNECT\nx:{}\n\n\0", "a".repeat(8 << 10)));
    client.error();
    let mut client = Stomp::open(stomp(&gateway));
    client.send(format!("SEND\ndestination:/queue/a069\nx:{}\nreceipt:r\n\n\0", "a".repeat(8 << 10)));
    client.receipt("r");
}

#[test]
fn a070_a_client_over_its_limits_disturbs_nobody_else() {
    let gateway = gateway();
    let mut other = Stomp::open(stomp(&gateway));
    other.subscribe("s", "a070", "auto");
    let address = stomp(&gateway);
    let hostile = std::thread::spawn(move || {
        for _ in 0..10 {
            let mut client = Stomp::open(address);
            pour(&mut client, "SEND\nx:", 1 << 20);
            client.error();
        }
    });
    for i in 0..1_000 {
        other.send(format!("SEND\ndestination:/queue/a070\n\n{i}\0"));
        assert_eq!(other.message().text(), i.to_string());
    }
    hostile.join().unwrap();
}

#[test]
fn a_body_of_a_frame_without_one_is_forgiven_in_version_1_0() {
    let gateway = gateway();
    let mut client = Stomp::with(stomp(&gateway), C0);
    client.send("SUBSCRIBE\ndestination:/queue/filler\nreceipt:r\n\nfiller\0");
    client.receipt("r");
}
