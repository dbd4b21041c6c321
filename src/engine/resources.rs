//! How much of the machine a model takes: threads, and memory for its cache.

use crate::error::{Error, Result};

/// Where the number of threads is looked for when the caller does not give it.
const VARIABLES: [&str; 3] = ["RSGEN_NUM_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"];

/// The share of the available memory that the KV cache may take by default.
const CACHE_SHARE: u64 = 2;

/// The number of threads to compute with: `wanted`, or the first of `RSGEN_NUM_THREADS`, `OMP_NUM_THREADS` and
/// `RAYON_NUM_THREADS` that is set, or as many as this process may use (affinity and cgroup quota).
///
/// # Errors
/// When `RSGEN_NUM_THREADS` is no number of threads. The other two belong to other libraries, so a value that is of no
/// use here is passed over.
pub fn num_threads(wanted: Option<usize>) -> Result<usize> {
    if let Some(wanted) = wanted {
        return Ok(wanted);
    }
    for name in VARIABLES {
        let Ok(value) = std::env::var(name) else { continue };
        match value.trim().parse::<usize>() {
            Ok(number @ 1..) => {
                log::debug!("{number} threads, from {name}");
                return Ok(number);
            }
            _ if name == VARIABLES[0] && !value.trim().is_empty() => {
                return Err(Error::config(format!(
                    "`{name}` must be a number of threads from 1 on, got {value:?}; unset it to use all cores"
                )));
            }
            _ => {}
        }
    }
    Ok(std::thread::available_parallelism().map_or(1, usize::from))
}

/// The bytes of the KV cache: `wanted`, or half of the memory that is available.
///
/// # Errors
/// When more is wanted than there is.
pub(super) fn kv_cache_bytes(wanted: Option<usize>, available: Option<u64>) -> Result<usize> {
    match (wanted, available) {
        (Some(wanted), Some(available)) if wanted as u64 > available => Err(Error::capacity(format!(
            "`kv_cache_bytes` must be at most the {available} bytes of memory that are available, got {wanted}"
        ))),
        (Some(wanted), _) => Ok(wanted),
        (None, Some(available)) => Ok(usize::try_from(available / CACHE_SHARE).unwrap_or(usize::MAX)),
        // The system does not say: a gigabyte is in every machine that runs a model.
        (None, None) => Ok(1 << 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn an_explicit_number_of_threads_wins() {
        assert_eq!(num_threads(Some(7)).unwrap(), 7);
        assert!(num_threads(None).unwrap() >= 1);
    }

    #[test]
    fn the_cache_takes_half_of_what_is_available_unless_told_otherwise() {
        assert_eq!(kv_cache_bytes(None, Some(1000)).unwrap(), 500);
        assert_eq!(kv_cache_bytes(Some(900), Some(1000)).unwrap(), 900);
        let error = kv_cache_bytes(Some(1001), Some(1000)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Capacity);
        assert!(error.to_string().contains("kv_cache_bytes") && error.to_string().contains("1001"));
    }
}
