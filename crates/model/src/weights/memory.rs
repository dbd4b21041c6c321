//! The available memory, so that a load is refused before the machine runs out of memory.
//!
//! It is the least of the system's available memory, the rest of the control groups (v1 and v2) and the rest
//! of the limits of the address space and of the data segment. Without `/proc` it is unknown.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use rsgen_core::types::Choice;

/// Which limit is the tightest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemoryLimit {
    /// The memory of the whole system.
    System,
    /// The limit of the address space, `ulimit -v`.
    AddressSpace,
    /// The limit of private memory, `ulimit -d`.
    DataSegment,
    /// A control group.
    ControlGroup {
        /// The folder of the group.
        folder: PathBuf,
    },
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("what the system has"),
            Self::AddressSpace => f.write_str("the limit of the address space (ulimit -v)"),
            Self::DataSegment => f.write_str("the limit of the data segment (ulimit -d)"),
            Self::ControlGroup { folder } => write!(f, "the limit of the control group {}", folder.display()),
        }
    }
}

/// Bytes that may still be allocated; `None` where the system does not say.
pub fn available_memory() -> Option<u64> {
    memory_limit().map(|limit| limit.value)
}

/// [`available_memory`], with the limit that it follows from.
pub fn memory_limit() -> Option<Choice<u64, MemoryLimit>> {
    limit_under(Path::new("/"))
}

/// As [`memory_limit`], with `/proc` and `/sys` below `root`.
fn limit_under(root: &Path) -> Option<Choice<u64, MemoryLimit>> {
    let limits = [
        system(root).map(|bytes| Choice::new(bytes, MemoryLimit::System)),
        process_limit(root, "Max address space", "VmSize:")
            .map(|bytes| Choice::new(bytes, MemoryLimit::AddressSpace)),
        process_limit(root, "Max data size", "VmData:")
            .map(|bytes| Choice::new(bytes, MemoryLimit::DataSegment)),
        control_group(root).map(|(bytes, folder)| Choice::new(bytes, MemoryLimit::ControlGroup { folder })),
    ];
    limits.into_iter().flatten().min_by_key(|limit| limit.value)
}

/// The kernel's estimate of the memory available without swapping.
fn system(root: &Path) -> Option<u64> {
    kibibytes(&fs::read_to_string(root.join("proc/meminfo")).ok()?, "MemAvailable:")
}

/// A soft limit of the process less what counts towards it: two lines of `/proc`.
fn process_limit(root: &Path, limit: &str, used: &str) -> Option<u64> {
    let limits = fs::read_to_string(root.join("proc/self/limits")).ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix(limit))?;
    // `unlimited` is no number.
    let soft: u64 = soft.split_whitespace().next()?.parse().ok()?;
    let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
    Some(soft.saturating_sub(kibibytes(&status, used)?))
}

/// The least rest of the process's control group and its ancestors, and the group with it.
fn control_group(root: &Path) -> Option<(u64, PathBuf)> {
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
            folders
                .clone()
                .into_iter()
                .filter_map(move |folder| Some((left_in_group(&folder, limit, usage, cached)?, folder)))
        })
    });
    left.min_by_key(|(bytes, _)| *bytes)
}

/// The rest of one group; `None` without a limit.
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

    fn group(root: &tempfile::TempDir, folder: &str) -> MemoryLimit {
        MemoryLimit::ControlGroup { folder: root.path().join("sys/fs/cgroup").join(folder) }
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
        assert_eq!(limit_under(root(&files).path()), Some(Choice::new(4000 * 1024, MemoryLimit::System)));
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
        let root = root(&files);
        assert_eq!(limit_under(root.path()), Some(Choice::new(900_000, group(&root, "a"))));
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
        let version_1 = root(&files);
        // The group's own folder is not there: the mount is the group.
        assert_eq!(limit_under(version_1.path()), Some(Choice::new(1_500_000, group(&version_1, "memory"))));
        let unlimited = [
            MEMINFO,
            ("proc/self/cgroup", "4:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(limit_under(root(&unlimited).path()), Some(Choice::new(4000 * 1024, MemoryLimit::System)));
    }

    #[test]
    fn a_limit_of_the_process_counts_less_what_is_taken() {
        let files = [
            MEMINFO,
            (
                "proc/self/limits",
                "Max data size             2500000              unlimited            bytes     \n\
                 Max address space         3000000              unlimited            bytes     \n",
            ),
            ("proc/self/status", "Name: x\nVmSize:\t    1000 kB\nVmData:\t     100 kB\n"),
        ];
        let expected = Choice::new(3_000_000 - 1_024_000, MemoryLimit::AddressSpace);
        assert_eq!(limit_under(root(&files).path()), Some(expected));
        let status = ("proc/self/status", "VmSize:\t    1000 kB\nVmData:\t     900 kB\n");
        let expected = Choice::new(2_500_000 - 921_600, MemoryLimit::DataSegment);
        assert_eq!(limit_under(root(&[files[0], files[1], status]).path()), Some(expected));
    }

    #[test]
    fn nothing_is_known_without_proc() {
        assert_eq!(limit_under(root(&[]).path()), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_says_something() {
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
