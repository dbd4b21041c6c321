//! Measures the memory bandwidth: all threads read.

use super::parallel::Disjoint;
use super::reduce::sum_lanes;
use super::simd::{LANES, Simd, SimdOp};
use super::threads::Workers;

/// Independent chains of additions per thread; each takes one vector of a group.
const CHAINS: usize = 8;
/// The prefetch distance in bytes, as in the matrix kernels.
const PREFETCH: usize = 4096;

/// Reads all values, each thread one contiguous part, and returns their sum.
///
/// Benchmarks compare a decode step with this over as many bytes.
pub fn read_all(workers: &Workers, values: &[f32]) -> f32 {
    let num_threads = workers.num_threads();
    let mut sums = vec![0.0; num_threads];
    let slots = Disjoint::new(&mut sums);
    workers.run(num_threads, &|thread| {
        let part = &values[thread * values.len() / num_threads..(thread + 1) * values.len() / num_threads];
        // SAFETY: each thread number is run once and has a slot of its own.
        let slot = unsafe { slots.part(thread..thread + 1) };
        slot[0] = workers.isa().run(Sum(part));
    });
    sums.iter().sum()
}

struct Sum<'a>(&'a [f32]);

impl SimdOp for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> f32 {
        let (vectors, rest) = self.0.as_chunks::<LANES>();
        let (groups, rest_vectors) = vectors.as_chunks::<CHAINS>();
        let mut sums = [s.splat(0.0); CHAINS];
        for group in groups {
            for chain in 0..CHAINS {
                s.prefetch(&raw const group[chain], PREFETCH);
                sums[chain] = s.add(sums[chain], s.load(&group[chain]));
            }
        }
        let mut sum: f32 = rest.iter().chain(rest_vectors.as_flattened()).sum();
        for lanes in sums {
            sum += sum_lanes(s, lanes);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn every_value_is_read_once() {
        for num_threads in [1, 2, 3] {
            let workers = Workers::new(num_threads, Isa::select().unwrap()).unwrap();
            for len in [0u32, 1, 63, 1000] {
                let values: Vec<f32> = (0..len).map(|i| i as f32).collect();
                assert_eq!(read_all(&workers, &values), (len * len.saturating_sub(1) / 2) as f32);
            }
        }
    }
}
