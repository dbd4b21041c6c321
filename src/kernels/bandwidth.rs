//! The speed limit of everything that reads weights once: a plain read of memory by all threads.

use std::sync::atomic::{AtomicU64, Ordering};

use super::simd::LANES;
use super::threads::Workers;

/// Reads all words, each thread one contiguous part, and returns a checksum of them.
///
/// Benchmarks hold the time of a decode step against the time of this over as many bytes.
pub fn read_all(workers: &Workers, words: &[u64]) -> u64 {
    let (num_threads, checksum) = (workers.num_threads(), AtomicU64::new(0));
    workers.run(num_threads, &|thread| {
        let part = &words[thread * words.len() / num_threads..(thread + 1) * words.len() / num_threads];
        let (vectors, rest) = part.as_chunks::<LANES>();
        // Four chains, so that additions never wait for each other.
        let mut sums = [[0u64; LANES]; 4];
        for (i, vector) in vectors.iter().enumerate() {
            for lane in 0..LANES {
                sums[i % 4][lane] = sums[i % 4][lane].wrapping_add(vector[lane]);
            }
        }
        let sum = sums.iter().flatten().chain(rest).fold(0u64, |sum, &word| sum.wrapping_add(word));
        checksum.fetch_add(sum, Ordering::Relaxed);
    });
    checksum.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Isa;

    #[test]
    fn every_word_is_read_once() {
        for num_threads in [1, 2, 3] {
            let workers = Workers::new(num_threads, Isa::select().unwrap()).unwrap();
            for len in [0u64, 1, 63, 1000] {
                let words: Vec<u64> = (0..len).collect();
                assert_eq!(read_all(&workers, &words), len * len.saturating_sub(1) / 2);
            }
        }
    }
}
