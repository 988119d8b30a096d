//! Puts a load on an MQTT broker, checks what it delivers and prints one line of JSON.
//!
//! Every payload names its publisher, its number and the time it was sent, and is filled with bytes that depend on both, so that
//! a loss, a repetition, a disorder and a damaged byte are all seen. The broker's processor time, memory and writes are read
//! from `/proc` right before and right after the load.

mod check;
mod histogram;
mod link;
mod load;
mod options;
mod process;
mod report;
mod scenario;

use clap::Parser;
use options::Options;

fn main() -> anyhow::Result<()> {
    process::raise_open_files();
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sound = tokio::task::LocalSet::new().block_on(&runtime, scenario::run(options))?;
    std::process::exit(if sound { 0 } else { 1 });
}
