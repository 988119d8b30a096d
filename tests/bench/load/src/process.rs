//! What the broker's process has used so far, from `/proc`.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A reading. All threads of the process count, its children do not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time in user and kernel, in seconds.
    pub cpu_secs: f64,
    /// The part of it in the kernel.
    pub kernel_secs: f64,
    /// Memory now.
    pub rss_bytes: u64,
    /// Most memory since the last [`reset_peak`].
    pub peak_bytes: u64,
    /// Bytes that went to the disk.
    pub disk_bytes: u64,
    /// Times that a thread gave its processor up, and times that it was taken away.
    pub switches: u64,
}

/// Reads a process; zeros without one.
pub fn usage(pid: Option<u32>) -> Usage {
    let Some(pid) = pid else { return Usage::default() };
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let (stat, status, io) = (read("stat"), read("status"), read("io"));
    // The name, which comes before, may hold anything but this.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let secs = |at: usize| {
        let ticks: f64 = fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0.0);
        ticks / rustix::param::clock_ticks_per_second() as f64
    };
    Usage {
        cpu_secs: secs(11) + secs(12),
        kernel_secs: secs(12),
        rss_bytes: number(&status, "VmRSS") << 10,
        peak_bytes: number(&status, "VmHWM") << 10,
        disk_bytes: number(&io, "write_bytes"),
        switches: switches(pid),
    }
}

/// The peak of the memory counts anew.
pub fn reset_peak(pid: Option<u32>) {
    if let Some(pid) = pid {
        // Without the right to do so the peak stays that of the process's life.
        let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
    }
}

/// As many open files as the system lets this process have.
pub fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it is refused, a scenario with too many connections says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Switches of context of all threads that are alive.
fn switches(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |status: String| {
        number(&status, "voluntary_ctxt_switches") + number(&status, "nonvoluntary_ctxt_switches")
    };
    threads.map(|thread| of(fs::read_to_string(thread.path().join("status")).unwrap_or_default())).sum()
}

fn number(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
