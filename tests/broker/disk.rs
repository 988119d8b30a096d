//! Disks that are full, disks that fail, and a file that is too new. Tests that need root and loop devices say elsewhere that they
//! were skipped.

use tidegate_mqtt::ReasonCode;

use crate::harness::{Client, Disk, Gateway, GatewayOptions, Login, Message, PATIENCE, Version, eventually};

/// A small ring, so that a small disk will do.
fn options() -> GatewayOptions {
    ["store.ring=1MiB", "store.disk_reserve=1MiB", "limits.packet_max=64KiB", "limits.store_queue_max=1MiB"]
        .iter()
        .fold(GatewayOptions::new(), |options, setting| options.set(setting))
}

/// A numbered message of about a kilobyte, of characters that the store cannot squeeze.
fn numbered(number: u64) -> Message {
    let mut state = number | 1 << 63;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + (state >> 33) as u8 % 90)
    };
    let text: String = (0..1000).map(|_| noise()).collect();
    Message::new("plant/1", format!("{number} {text}"), 1)
}

fn number_of(message: &Message) -> u64 {
    message.text().split(' ').next().unwrap().parse().unwrap()
}

/// Publishes numbered messages from `first` on until one is refused; the number of the first that was.
fn publish_until_refused(publisher: &mut Client, first: u64) -> u64 {
    const GROUP: u64 = 50;
    for start in (first..).step_by(GROUP as usize) {
        let ids: Vec<_> = (start..start + GROUP).map(|number| send(publisher, number)).collect();
        let reasons: Vec<_> = ids.into_iter().map(|id| publisher.finish(1, id).unwrap()).collect();
        if let Some(at) = reasons.iter().position(|reason| *reason >= 0x80) {
            assert!(reasons[at..].iter().all(|reason| *reason == ReasonCode::QuotaExceeded.byte()));
            return start + at as u64;
        }
    }
    unreachable!("the disk is full sooner")
}

fn send(publisher: &mut Client, number: u64) -> u16 {
    let mut message = numbered(number);
    message.id = publisher.next_id();
    publisher.send(&message).unwrap();
    message.id
}

fn health(gateway: &Gateway) -> (String, String) {
    let health = gateway.status()["health"].clone();
    (health["state"].as_str().unwrap().to_owned(), health["reasons"].to_string())
}

/// Takes the messages `numbers`, in order, and acknowledges each.
fn take(consumer: &mut Client, numbers: std::ops::Range<u64>) {
    for expected in numbers {
        let message = consumer.message().unwrap();
        assert_eq!(number_of(&message), expected);
        consumer.settle(&message).unwrap();
    }
}

#[test]
fn a_full_disk_refuses_new_messages_and_goes_on_delivering_until_there_is_space_again() {
    let Some(disk) = Disk::mount(40) else { return };
    let mut gateway = options().start_in(disk.folder());
    let consumer = Login::persistent(Version::V5, "consumer").receive_max(50);
    consumer.open(gateway.address()).unwrap().subscribe("plant/#", 1).unwrap();
    let publisher = Login::fresh(Version::V5, "publisher");
    let stored = publish_until_refused(&mut publisher.open(gateway.address()).unwrap(), 0);
    assert!(stored > 5000, "{stored} messages fill the disk");
    assert!(
        health(&gateway).0 == "degraded" && health(&gateway).1.contains("full"),
        "{:?}",
        health(&gateway)
    );
    // A client without a word for it keeps its message, because nothing acknowledges it.
    let mut old = Login::fresh(Version::V311, "old").open(gateway.address()).unwrap();
    old.send(&Message { id: 1, ..numbered(stored) }).unwrap();
    assert!(old.closed().unwrap().is_empty());

    disk.fill();
    gateway.kill();
    gateway.restart();
    assert_eq!(health(&gateway).0, "degraded");
    let mut client = consumer.open(gateway.address()).unwrap();
    assert!(client.connack.session_present);
    take(&mut client, 0..stored / 2);
    drop(client);

    disk.give_back();
    let mut client = publisher.open(gateway.address()).unwrap();
    eventually("service", PATIENCE, || match client.publish(&numbered(stored)).unwrap() {
        reason if reason < 0x80 => Ok(()),
        reason => Err(format!("PUBACK 0x{reason:02x}")),
    });
    eventually("health", PATIENCE, || match health(&gateway) {
        (state, _) if state == "ready" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let mut client = consumer.open(gateway.address()).unwrap();
    let first = client.message().unwrap();
    assert!(number_of(&first) <= stored / 2, "at most what was under way comes again");
    client.settle(&first).unwrap();
    take(&mut client, number_of(&first) + 1..stored + 1);
    assert!(gateway.stop().success());
}

#[test]
fn after_a_disk_has_failed_nothing_is_acknowledged_and_what_was_is_there_when_it_is_repaired() {
    let Some(mut disk) = Disk::failing(96, 40) else { return };
    let mut gateway = options().expect_error("failed").expect_error("could not").start_in(disk.folder());
    let consumer = Login::persistent(Version::V5, "consumer");
    consumer.open(gateway.address()).unwrap().subscribe("plant/#", 1).unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    let mut acknowledged = 0;
    while let Ok(reason) = publisher.publish(&numbered(acknowledged)) {
        assert!(reason < 0x80, "PUBACK 0x{reason:02x}");
        acknowledged += 1;
    }
    assert!(acknowledged > 1000, "{acknowledged} messages were acknowledged");
    assert!(!gateway.await_stop().success());
    assert!(gateway.log().contains("nothing can be acknowledged any more"), "{}", gateway.log());

    disk.repair(96);
    gateway.restart();
    let mut client = consumer.open(gateway.address()).unwrap();
    assert!(client.connack.session_present);
    take(&mut client, 0..acknowledged);
    drop(client);
    assert!(gateway.stop().success());
}

/// Makes the store's file one of format 999, in both copies of its superblock.
fn make_newer(path: &std::path::Path) -> Vec<u8> {
    let mut content = std::fs::read(path).unwrap();
    for block in content.chunks_mut(4096).take(2) {
        block[8..12].copy_from_slice(&999u32.to_le_bytes());
        let sum = crc32c::crc32c(&block[..60]);
        block[60..64].copy_from_slice(&sum.to_le_bytes());
    }
    std::fs::write(path, &content).unwrap();
    content
}

#[test]
fn a_store_of_a_newer_program_is_refused_with_a_remedy_and_left_as_it_is() {
    let mut gateway = options().start();
    assert!(gateway.stop().success());
    let content = make_newer(&gateway.store_file());
    let refused = gateway.second_process();
    assert_eq!(refused.status.code(), Some(1));
    for part in ["format version 999", "use the newer program"] {
        assert!(refused.output.contains(part), "{}", refused.output);
    }
    assert!(std::fs::read(gateway.store_file()).unwrap() == content, "the file has changed");
    let names = std::fs::read_dir(gateway.folder().join("data")).unwrap();
    assert!(names.flatten().all(|entry| !entry.file_name().to_string_lossy().contains("damaged")));
}
