//! What the black-box tests share: the broker as a process, a small MQTT client, waiting with deadlines, seeded randomness.
//!
//! Nothing here knows the broker's inside. Every wait has a deadline, every socket is on 127.0.0.1, every file lies in a
//! temporary folder, and every process that is started is ended by its own process identifier.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of the harness")]

mod admin;
mod client;
mod disk;
mod gateway;
mod ledger;
mod login;
mod packet;
mod pki;
mod proxy;
mod random;
mod tunnel;
mod wait;

pub use client::{Client, Filter, SHORT};
pub use disk::Disk;
pub use gateway::{Gateway, GatewayOptions, Stopped, free_port, program, run_program};
pub use ledger::{Ledger, Taken};
pub use login::{Login, Will};
pub use packet::{Connack, Message, Packet};
pub use pki::Authority;
pub use proxy::Proxy;
pub use random::Random;
pub use tidegate_mqtt::Version;
pub use tunnel::{Far, Tunnel};
pub use wait::{Deadline, PATIENCE, eventually};

/// Runs a test for MQTT 3.1, 3.1.1 and 5.0; the output of a failure names the version.
pub fn for_all_versions(test: impl Fn(Version)) {
    for version in Version::ALL {
        eprintln!("--- MQTT {version}");
        test(version);
    }
}

/// Runs a test for MQTT 3.1.1 and 5.0, where MQTT 3.1 has no way to tell.
pub fn for_both_versions(test: impl Fn(Version)) {
    for version in [Version::V311, Version::V5] {
        eprintln!("--- MQTT {version}");
        test(version);
    }
}
