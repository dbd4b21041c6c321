//! The threads and the cache memory of a model, each with the reason for its value.

use std::fmt;
use std::fs;

use serde::Serialize;

use rsgen_core::{Choice, Error, Result};

/// The environment variables for the number of threads.
const VARIABLES: [&str; 3] = ["RSGEN_NUM_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"];

/// The share of the available memory that the KV cache may take by default.
const CACHE_SHARE: u64 = 2;

/// Why a number of threads was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThreadsReason {
    /// The caller gave the number.
    Argument,
    /// The caller gave the threads themselves.
    Pool,
    /// An environment variable gives it.
    Environment {
        /// Its name.
        variable: &'static str,
    },
    /// The CPU quota of a control group.
    Quota,
    /// The CPU affinity of the process.
    Affinity,
    /// The number of cores of the machine.
    Cores,
}

impl fmt::Display for ThreadsReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument => f.write_str("given by the caller"),
            Self::Pool => f.write_str("those of the pool given by the caller"),
            Self::Environment { variable } => write!(f, "given by {variable}"),
            Self::Quota => f.write_str("the processor time that the control group allows"),
            Self::Affinity => f.write_str("the cores that this process may run on"),
            Self::Cores => f.write_str("all cores of this machine"),
        }
    }
}

/// Why a size of the KV cache was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CacheReason {
    /// The caller gave the bytes.
    Argument,
    /// Half of the available memory.
    HalfOfAvailable,
    /// The system does not report its available memory.
    UnknownMemory,
}

impl fmt::Display for CacheReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Argument => "given by the caller",
            Self::HalfOfAvailable => "half of the memory that is available",
            Self::UnknownMemory => "a gigabyte, since the system does not say how much is available",
        })
    }
}

/// The number of threads to compute with: `wanted`, or the first of `RSGEN_NUM_THREADS`, `OMP_NUM_THREADS`
/// and `RAYON_NUM_THREADS` that is set, or as many as this process may use (affinity and cgroup quota).
///
/// # Errors
/// When `RSGEN_NUM_THREADS` is not a number of threads. The other two belong to other libraries, so their
/// invalid values are ignored.
pub fn num_threads(wanted: Option<usize>) -> Result<Choice<usize, ThreadsReason>> {
    match wanted {
        Some(wanted) => Ok(Choice::new(wanted, ThreadsReason::Argument)),
        None => match num_threads_of(|name| std::env::var(name).ok())? {
            Some(named) => Ok(named),
            None => Ok(num_usable_cores()),
        },
    }
}

/// The most threads for each usable core. More of them would wait for each other for minutes.
const MAX_THREADS_PER_CORE: usize = 32;

/// The threads that are started where so many are wanted. More than a pool takes are an error there.
pub fn started(wanted: usize) -> usize {
    started_of(wanted, num_usable_cores().value)
}

fn started_of(wanted: usize, cores: usize) -> usize {
    const MAX_THREADS: usize = 1024;
    if wanted > MAX_THREADS { wanted } else { wanted.min(cores * MAX_THREADS_PER_CORE) }
}

/// A warning when there are more threads than usable cores: threads that share a core slow each other down.
pub fn oversubscription(threads: Choice<usize, ThreadsReason>) -> Option<String> {
    oversubscription_of(threads, num_usable_cores().value)
}

fn oversubscription_of(threads: Choice<usize, ThreadsReason>, cores: usize) -> Option<String> {
    let name = match threads.reason {
        ThreadsReason::Environment { variable } => variable,
        ThreadsReason::Pool => "thread_pool",
        _ => "num_threads",
    };
    let started = started_of(threads.value, cores);
    let fewer = if started < threads.value { format!(", and gets {started} threads") } else { String::new() };
    (threads.value > cores).then(|| {
        format!(
            "`{name}` asks for {} threads, but this process may use {cores} cores{fewer}; threads that share a core slow \
             each other down: leave it out, or ask for at most {cores}",
            threads.value
        )
    })
}

/// The number of threads set in the environment, if any.
fn num_threads_of(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Choice<usize, ThreadsReason>>> {
    for name in VARIABLES {
        let Some(value) = variable(name) else { continue };
        match value.trim().parse::<usize>() {
            Ok(number @ 1..) => {
                return Ok(Some(Choice::new(number, ThreadsReason::Environment { variable: name })));
            }
            _ if name == VARIABLES[0] && !value.trim().is_empty() => {
                return Err(Error::config(format!(
                    "must be a number of threads from 1 on, got {value:?}; unset it to use all cores"
                ))
                .about(name));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The number of usable cores, from the standard library; the kernel's lists of cores give the reason.
fn num_usable_cores() -> Choice<usize, ThreadsReason> {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).and_then(cores);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").ok().and_then(|list| cores(&list));
    Choice::new(usable, reason_of(usable, allowed, online))
}

/// Unknown lists count as unlimited.
fn reason_of(usable: usize, allowed: Option<usize>, online: Option<usize>) -> ThreadsReason {
    let allowed = allowed.unwrap_or(usable);
    if usable < allowed {
        ThreadsReason::Quota
    } else if online.is_some_and(|online| allowed < online) {
        ThreadsReason::Affinity
    } else {
        ThreadsReason::Cores
    }
}

/// The number of cores in a list such as `0-3,8`.
fn cores(list: &str) -> Option<usize> {
    list.trim().split(',').try_fold(0usize, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// The bytes of the KV cache: `wanted`, or [`default_kv_cache_bytes`].
///
/// # Errors
/// When `wanted` exceeds the available memory.
pub fn kv_cache_bytes(wanted: Option<usize>, available: Option<u64>) -> Result<Choice<usize, CacheReason>> {
    match (wanted, available) {
        (Some(wanted), Some(available)) if wanted as u64 > available => Err(Error::capacity(format!(
            "must be at most the {available} bytes of memory that are available, got {wanted}"
        ))
        .about("kv_cache_bytes")),
        (Some(wanted), _) => Ok(Choice::new(wanted, CacheReason::Argument)),
        (None, available) => Ok(default_kv_cache_bytes(available)),
    }
}

/// The default size of the KV cache in bytes: half of the available memory.
pub fn default_kv_cache_bytes(available: Option<u64>) -> Choice<usize, CacheReason> {
    match available {
        Some(available) => {
            let half = usize::try_from(available / CACHE_SHARE).unwrap_or(usize::MAX);
            Choice::new(half, CacheReason::HalfOfAvailable)
        }
        // Every machine that runs a model has a gigabyte.
        None => Choice::new(1 << 30, CacheReason::UnknownMemory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_core::ErrorKind;

    fn from(variables: &[(&str, &str)]) -> Result<Option<Choice<usize, ThreadsReason>>> {
        num_threads_of(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_explicit_number_of_threads_wins() {
        assert_eq!(num_threads(Some(7)).unwrap(), Choice::new(7, ThreadsReason::Argument));
        assert!(num_threads(None).unwrap().value >= 1);
    }

    #[test]
    fn thread_variables_are_read_in_order_and_invalid_foreign_ones_are_ignored() {
        let named = |number, variable| Some(Choice::new(number, ThreadsReason::Environment { variable }));
        let all = [("RAYON_NUM_THREADS", "4"), ("OMP_NUM_THREADS", "3"), ("RSGEN_NUM_THREADS", " 2 ")];
        assert_eq!(from(&all).unwrap(), named(2, "RSGEN_NUM_THREADS"));
        assert_eq!(from(&all[..2]).unwrap(), named(3, "OMP_NUM_THREADS"));
        let odd = [("RAYON_NUM_THREADS", "4"), ("OMP_NUM_THREADS", "2,1"), ("RSGEN_NUM_THREADS", "")];
        assert_eq!(from(&odd).unwrap(), named(4, "RAYON_NUM_THREADS"));
        assert_eq!(from(&[("OMP_NUM_THREADS", "0")]).unwrap(), None);
        for wrong in ["0", "-1", "many", "99999999999999999999"] {
            let error = from(&[("RSGEN_NUM_THREADS", wrong)]).unwrap_err();
            assert!(error.to_string().contains("`RSGEN_NUM_THREADS`"), "{error}");
        }
    }

    #[test]
    fn a_warning_about_too_many_threads_names_its_source() {
        let variable = "OMP_NUM_THREADS";
        for (reason, name) in [
            (ThreadsReason::Argument, "num_threads"),
            (ThreadsReason::Pool, "thread_pool"),
            (ThreadsReason::Environment { variable }, variable),
        ] {
            let warning = oversubscription_of(Choice::new(5, reason), 4).unwrap();
            assert!(warning.contains(&format!("`{name}` asks for 5 threads, but")), "{warning}");
            assert!(warning.ends_with("ask for at most 4"), "{warning}");
            assert_eq!(oversubscription_of(Choice::new(4, reason), 4), None);
        }
        assert_eq!(oversubscription(num_usable_cores()), None);
        let warning = oversubscription_of(Choice::new(1000, ThreadsReason::Argument), 2).unwrap();
        assert!(warning.contains("2 cores, and gets 64 threads;"), "{warning}");
        assert_eq!((started_of(64, 2), started_of(1000, 40), started_of(1025, 2)), (64, 1000, 1025));
    }

    #[test]
    fn the_tightest_rule_on_cores_is_the_reason() {
        assert_eq!(reason_of(8, Some(8), Some(8)), ThreadsReason::Cores);
        assert_eq!(reason_of(4, Some(4), Some(8)), ThreadsReason::Affinity);
        assert_eq!(reason_of(2, Some(4), Some(8)), ThreadsReason::Quota);
        assert_eq!(reason_of(2, Some(4), Some(4)), ThreadsReason::Quota);
        assert_eq!(reason_of(8, None, None), ThreadsReason::Cores);
    }

    #[test]
    fn lists_of_cores_are_counted() {
        for (list, count) in [("0", 1), ("0-3\n", 4), ("\t0-3,8,10-11", 7)] {
            assert_eq!(cores(list), Some(count), "{list:?}");
        }
        for wrong in ["", "a", "3-1", "0-18446744073709551615", "1,,2"] {
            assert_eq!(cores(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_cache_takes_half_of_the_available_memory_by_default() {
        assert_eq!(kv_cache_bytes(None, Some(1000)).unwrap(), Choice::new(500, CacheReason::HalfOfAvailable));
        assert_eq!(kv_cache_bytes(Some(900), Some(1000)).unwrap(), Choice::new(900, CacheReason::Argument));
        assert_eq!(kv_cache_bytes(None, None).unwrap().reason, CacheReason::UnknownMemory);
        let error = kv_cache_bytes(Some(1001), Some(1000)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Capacity);
        assert!(error.to_string().contains("kv_cache_bytes") && error.to_string().contains("1001"));
    }
}
