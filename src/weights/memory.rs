//! How much memory this process may still take, so that a load is refused before the machine runs out.
//!
//! It is the least of what the system has, what the control groups (v1 and v2) leave, and what the limit of the
//! address space leaves. On systems without `/proc` nothing is known. Nothing is reserved here.

use std::fs;
use std::path::Path;

/// Bytes that may still be allocated; `None` where the system does not say.
pub fn available_memory() -> Option<u64> {
    available_under(Path::new("/"))
}

/// As [`available_memory`], with `/proc` and `/sys` below `root`.
fn available_under(root: &Path) -> Option<u64> {
    let limits = [system(root), address_space(root), control_group(root)];
    limits.into_iter().flatten().min()
}

/// What the kernel estimates can be allocated without swapping.
fn system(root: &Path) -> Option<u64> {
    kibibytes(&fs::read_to_string(root.join("proc/meminfo")).ok()?, "MemAvailable:")
}

/// The soft limit of the address space (`ulimit -v`) less what is mapped.
fn address_space(root: &Path) -> Option<u64> {
    let limits = fs::read_to_string(root.join("proc/self/limits")).ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    // `unlimited` is no number.
    let soft: u64 = soft.split_whitespace().next()?.parse().ok()?;
    let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
    Some(soft.saturating_sub(kibibytes(&status, "VmSize:")?))
}

/// The least that the process's control group and the groups around it leave.
fn control_group(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = root.join("sys/fs/cgroup");
    let left = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let version_1 = controllers.split(',').any(|controller| controller == "memory");
        let version_2 = controllers.is_empty();
        let mount = if version_1 { mounts.join("memory") } else { mounts.clone() };
        let files = match (version_1, version_2) {
            (true, _) => Some(("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
            (_, true) => Some(("memory.max", "memory.current", "inactive_file")),
            _ => None,
        };
        // Within a container the path may be that of the host: the walk up then ends at the mount, the
        // container's own group.
        let path = Path::new(path.trim_start_matches('/')).to_owned();
        let folders: Vec<_> = path.ancestors().map(|ancestor| mount.join(ancestor)).collect();
        files.into_iter().flat_map(move |(limit, usage, cached)| {
            folders.clone().into_iter().filter_map(move |folder| left_in_group(&folder, limit, usage, cached))
        })
    });
    left.min()
}

/// What one group leaves; `None` without a limit.
fn left_in_group(folder: &Path, limit: &str, usage: &str, cached: &str) -> Option<u64> {
    let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    // Version 1 writes a number near 2^63 for no limit, and version 2 `max`.
    let limit = number(limit).filter(|&limit| limit < 1 << 62)?;
    // Clean pages of files count as used but are given back on demand.
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix(cached)?.trim().parse::<u64>().ok());
    let used = number(usage).unwrap_or(0).saturating_sub(cached.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

/// The value of a line such as `MemAvailable:   1024 kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with the given files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    4000 kB\n");

    #[test]
    fn without_limits_it_is_what_the_system_has() {
        let files = [
            MEMINFO,
            (
                "proc/self/limits",
                "Limit  Soft Limit  Hard Limit  Units\nMax address space  unlimited  unlimited  bytes\n",
            ),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
        ];
        assert_eq!(available_under(root(&files).path()), Some(4000 * 1024));
    }

    #[test]
    fn a_group_around_the_own_one_may_be_the_tightest() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "3000000\n"),
            ("sys/fs/cgroup/a/memory.current", "2500000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 400000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "1000000\n"),
            ("sys/fs/cgroup/a/b/memory.current", "5000\n"),
        ];
        assert_eq!(available_under(root(&files).path()), Some(900_000));
    }

    #[test]
    fn version_1_groups_and_a_path_of_the_host_are_understood() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "12:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "700000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 200000\n"),
        ];
        assert_eq!(available_under(root(&files).path()), Some(1_500_000));
        let unlimited = [
            MEMINFO,
            ("proc/self/cgroup", "4:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(available_under(root(&unlimited).path()), Some(4000 * 1024));
    }

    #[test]
    fn a_limit_of_the_address_space_counts_less_what_is_mapped() {
        let files = [
            MEMINFO,
            (
                "proc/self/limits",
                "Max address space         3000000              unlimited            bytes     \n",
            ),
            ("proc/self/status", "Name: x\nVmSize:\t    1000 kB\n"),
        ];
        assert_eq!(available_under(root(&files).path()), Some(3_000_000 - 1_024_000));
    }

    #[test]
    fn nothing_is_known_without_proc() {
        assert_eq!(available_under(root(&[]).path()), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_says_something() {
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
