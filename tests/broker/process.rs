//! The process: start, stop, store file, configuration, admin interface.

use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_mqtt::{ReasonCode, Version};

use crate::harness::{
    Gateway, GatewayOptions, Login, Message, PATIENCE, Random, eventually, for_both_versions, run_program,
};

#[test]
fn a_stop_says_goodbye_to_clients_and_ends_with_success() {
    for_both_versions(|version| {
        let mut gateway = Gateway::start();
        let mut client = Login::fresh(version, "client").open(gateway.address()).unwrap();
        gateway.signal_stop();
        let reason = client.closed_because().unwrap();
        assert_eq!(reason, version.is_v5().then_some(ReasonCode::ServerShuttingDown.byte()));
        assert!(gateway.await_stop().success());
    });
}

#[test]
fn the_service_manager_hears_of_readiness_signs_of_life_and_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = |wanted: &str| {
        let mut text = [0; 512];
        loop {
            let length = manager.recv(&mut text).unwrap_or_else(|error| panic!("no {wanted}: {error}"));
            if text[..length].split(|byte| *byte == b'\n').any(|line| line == wanted.as_bytes()) {
                return;
            }
        }
    };
    let options = GatewayOptions::new().variable("NOTIFY_SOCKET", path.to_str().unwrap());
    let mut gateway = options.variable("WATCHDOG_USEC", "150000").start();
    heard("READY=1");
    heard("WATCHDOG=1");
    heard("WATCHDOG=1");
    gateway.signal_stop();
    heard("STOPPING=1");
    assert!(gateway.await_stop().success());
}

#[test]
fn a_stop_under_load_loses_nothing_that_was_acknowledged() {
    let mut gateway = Gateway::start();
    let login = Login::persistent(Version::V5, "device");
    login.open(gateway.address()).unwrap().subscribe("load/#", 1).unwrap();
    let acknowledged: [AtomicU64; 4] = Default::default();
    std::thread::scope(|scope| {
        for (n, acknowledged) in acknowledged.iter().enumerate() {
            let address = gateway.address();
            scope.spawn(move || {
                let login = Login::fresh(Version::V311, &format!("publisher-{n}"));
                let mut publisher = login.open(address).unwrap();
                for count in 0.. {
                    let message = Message::new(&format!("load/{n}"), count.to_string(), 1);
                    if publisher.publish(&message).is_err() {
                        return;
                    }
                    acknowledged.store(count + 1, Ordering::SeqCst);
                }
            });
        }
        eventually("some load", PATIENCE, || {
            let total: u64 = acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).sum();
            if total >= 500 { Ok(()) } else { Err(total.to_string()) }
        });
        assert!(gateway.stop().success());
    });
    gateway.restart();
    let mut device = login.open(gateway.address()).unwrap();
    let mut publisher = Login::fresh(Version::V5, "end").open(gateway.address()).unwrap();
    publisher.publish(&Message::new("load/end", "end", 1)).unwrap();
    let mut next = [0; 4];
    for message in device.messages_until("end").unwrap() {
        let n: usize = message.topic.trim_start_matches("load/").parse().unwrap();
        assert_eq!(message.text(), next[n].to_string(), "publisher {n}");
        next[n] += 1;
    }
    for (n, acknowledged) in acknowledged.iter().enumerate() {
        let acknowledged = acknowledged.load(Ordering::SeqCst);
        assert!(next[n] >= acknowledged, "publisher {n}: {} of {acknowledged} acknowledged ones", next[n]);
    }
}

/// A gateway with one retained message, stopped.
fn stopped_gateway() -> Gateway {
    let options =
        GatewayOptions::new().expect_error("set aside").expect_error("damaged").expect_error("store");
    let mut gateway = options.start();
    let mut client = Login::fresh(Version::V5, "client").open(gateway.address()).unwrap();
    client.publish(&Message::retained("a/b", "kept", 1)).unwrap();
    drop(client);
    assert!(gateway.stop().success());
    gateway
}

fn assert_set_aside(gateway: &Gateway, damaged: &[u8]) {
    gateway.assert_serves();
    let status = gateway.status();
    let path = status["store"]["set_aside"].as_str().unwrap_or_else(|| panic!("no alarm in {status}"));
    assert!(std::fs::read(path).unwrap() == damaged, "the damaged file is kept as it was");
    let (code, body) = gateway.get("/health");
    assert_eq!(code, 200, "{body}");
    assert!(body.contains("degraded") && body.contains("set aside"), "{body}");
}

#[test]
fn a_null_filled_store_is_set_aside_with_an_alarm_and_service_goes_on() {
    let mut gateway = stopped_gateway();
    let length = std::fs::metadata(gateway.store_file()).unwrap().len();
    let nulls = vec![0; usize::try_from(length).unwrap()];
    std::fs::write(gateway.store_file(), &nulls).unwrap();
    gateway.restart();
    assert_set_aside(&gateway, &nulls);
}

#[test]
fn a_store_of_noise_is_set_aside_with_an_alarm_and_service_goes_on() {
    let mut gateway = stopped_gateway();
    let length = std::fs::metadata(gateway.store_file()).unwrap().len();
    let noise = Random::for_test("noise").bytes(usize::try_from(length).unwrap());
    std::fs::write(gateway.store_file(), &noise).unwrap();
    gateway.restart();
    assert_set_aside(&gateway, &noise);
}

#[test]
fn an_empty_or_cut_off_store_does_not_keep_the_gateway_from_serving() {
    for keep in [0, 100, 5000, 1 << 20] {
        let mut gateway = stopped_gateway();
        let file = std::fs::OpenOptions::new().write(true).open(gateway.store_file()).unwrap();
        file.set_len(keep).unwrap();
        gateway.restart();
        gateway.assert_serves();
    }
}

#[test]
fn a_second_process_on_the_same_store_is_refused_and_the_first_goes_on() {
    let gateway = Gateway::start();
    let second = gateway.second_process();
    assert!(!second.status.success());
    let output = second.output.to_lowercase();
    assert!(
        output.contains("in use") || output.contains("already") || output.contains("another"),
        "{output}"
    );
    assert!(output.contains("data"), "the message names the folder: {output}");
    gateway.assert_serves();
}

#[test]
fn an_unknown_key_is_refused_with_file_line_and_the_nearest_known_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("typo.toml");
    std::fs::write(&file, "[store]\nring = \"8MiB\"\n\n[limits]\npacket_maxx = \"1MiB\"\n").unwrap();
    let data = folder.path().join("data");
    let arguments = ["run", "--config", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()];
    let refused = run_program(&arguments, folder.path());
    assert!(!refused.status.success());
    for part in ["typo.toml", "5", "packet_maxx", "packet_max"] {
        assert!(refused.output.contains(part), "{part} is missing in: {}", refused.output);
    }
    assert!(refused.output.replace("packet_maxx", "").contains("packet_max"), "{}", refused.output);
}

#[test]
fn an_unknown_key_of_a_flag_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let arguments = ["run", "--data-dir", data.to_str().unwrap(), "--set", "limits.conections_max=3"];
    let refused = run_program(&arguments, folder.path());
    assert!(!refused.status.success());
    assert!(refused.output.contains("connections_max"), "{}", refused.output);
}

#[test]
fn a_taken_port_is_an_error_that_names_it() {
    let gateway = Gateway::start();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let url = format!("mqtt://{}", gateway.address());
    let arguments = ["run", "--data-dir", data.to_str().unwrap(), "--listen", &url];
    let refused = run_program(&arguments, folder.path());
    assert!(!refused.status.success());
    assert!(refused.output.contains(&gateway.address().to_string()), "{}", refused.output);
}

#[test]
fn the_admin_interface_tells_health_status_and_metrics() {
    let gateway = Gateway::start();
    let mut client = Login::persistent(Version::V5, "device").open(gateway.address()).unwrap();
    client.subscribe("a/b", 1).unwrap();
    client.disconnect().unwrap();
    let mut publisher = Login::fresh(Version::V5, "publisher").open(gateway.address()).unwrap();
    for n in 0..5 {
        publisher.publish(&Message::new("a/b", n.to_string(), 1)).unwrap();
    }
    publisher.publish(&Message::retained("r/1", "x", 1)).unwrap();

    let (code, body) = gateway.get("/health");
    assert_eq!(code, 200);
    assert!(body.contains("\"ready\""), "{body}");
    gateway.await_status("the five messages", |status| {
        (status["queues_total"]["messages"] == 5
            && status["retained"]["messages"] == 1
            && status["sessions"]["disconnected"] == 1
            && status["subscriptions"] == 1
            && status["traffic"]["messages_in"][1] == 6)
            .then_some(())
    });
    let (code, metrics) = gateway.get("/metrics");
    assert_eq!(code, 200);
    assert!(metrics.lines().any(|line| line.starts_with("# TYPE tidegate_")), "{metrics}");
    assert!(metrics.contains("\ntidegate_build_info{"), "{metrics}");
    assert_eq!(gateway.get("/nothing/here").0, 404);
}

#[test]
fn a_stopped_gateway_starts_again_and_again_on_the_same_data() {
    let mut gateway = Gateway::start();
    let mut client = Login::fresh(Version::V5, "client").open(gateway.address()).unwrap();
    client.publish(&Message::retained("a/b", "kept", 1)).unwrap();
    drop(client);
    for round in 0..10 {
        if round % 2 == 0 {
            gateway.kill();
        } else {
            assert!(gateway.stop().success());
        }
        gateway.restart();
    }
    let mut reader = Login::fresh(Version::V5, "reader").open(gateway.address()).unwrap();
    reader.subscribe("a/b", 1).unwrap();
    assert_eq!(reader.message().unwrap().text(), "kept");
}
