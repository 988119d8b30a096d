//! What the machine has: its memory, or what a control group leaves of it.

use std::path::Path;

/// Where the unified hierarchy of control groups is mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// Memory that this process may use, in bytes: the machine's, or the lowest limit of the control groups that it is in.
#[must_use]
pub fn memory_bytes() -> Option<u64> {
    // A 32-bit process cannot use more than it can name.
    let machine = installed(&std::fs::read_to_string("/proc/meminfo").ok()?)?.min(usize::MAX as u64);
    let group = std::fs::read_to_string("/proc/self/cgroup").ok();
    let limit = group.as_deref().and_then(own_group).and_then(|name| group_limit(Path::new(GROUPS), name));
    Some(limit.map_or(machine, |limit| limit.min(machine)))
}

/// The machine's memory in `/proc/meminfo`, in bytes.
fn installed(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The group of the unified hierarchy in `/proc/self/cgroup`.
fn own_group(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// The lowest `memory.max` of the group and of those around it; `None` when none is set.
fn group_limit(root: &Path, name: &str) -> Option<u64> {
    let inside = root.join(name);
    let groups = inside.ancestors().take_while(|group| *group != root);
    let limit = |group: &Path| std::fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok();
    groups.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory() {
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_memory_of_the_machine_is_read_in_kibibytes() {
        assert_eq!(
            installed("MemTotal:         437316 kB\nMemFree:          18604 kB\n"),
            Some(437_316 << 10)
        );
        assert_eq!(installed("MemFree: 1 kB\n"), None);
        assert_eq!(installed(&format!("MemTotal: {} kB\n", u64::MAX)), None);
    }

    #[test]
    fn the_lowest_limit_of_the_groups_around_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("system.slice/tidegate.service");
        std::fs::create_dir_all(&group).unwrap();
        assert_eq!(group_limit(root.path(), "system.slice/tidegate.service"), None);
        std::fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(group_limit(root.path(), "system.slice/tidegate.service"), None);
        std::fs::write(root.path().join("system.slice/memory.max"), "5368709120\n").unwrap();
        std::fs::write(group.join("memory.max"), "134217728\n").unwrap();
        assert_eq!(group_limit(root.path(), "system.slice/tidegate.service"), Some(134_217_728));
        assert_eq!(group_limit(root.path(), "system.slice"), Some(5_368_709_120));
    }

    #[test]
    fn the_unified_group_is_found_beside_older_ones() {
        assert_eq!(own_group("12:cpu:/a\n0::/system.slice/x.service\n"), Some("system.slice/x.service"));
        assert_eq!(own_group("0::/\n"), Some(""));
        assert_eq!(own_group("4:memory:/a\n"), None);
    }
}
