//! Measures peak arithmetic: chains of multiply-adds in registers.

use std::hint::black_box;

use super::parallel::Disjoint;
use super::reduce::sum_lanes;
use super::simd::{LANES, Simd, SimdOp};
use super::threads::Workers;

/// Runs `rounds` rounds of `float32` multiply-adds on every thread, and returns the operations of all of
/// them.
pub(super) fn multiply_add(workers: &Workers, rounds: usize) -> u64 {
    on_all_threads(workers, &|| workers.isa().run(MultiplyAdd { rounds }))
}

/// [`multiply_add`] with products of two pairs of `bf16`.
pub(super) fn dot_bf16(workers: &Workers, rounds: usize) -> u64 {
    on_all_threads(workers, &|| workers.isa().run_bf16(DotBf16 { rounds }))
}

/// [`multiply_add`] with products of 8-bit integers.
pub(super) fn dot_i8(workers: &Workers, rounds: usize) -> u64 {
    on_all_threads(workers, &|| workers.isa().run_integers(DotI8 { rounds }))
}

fn on_all_threads(workers: &Workers, job: &(dyn Fn() -> u64 + Sync)) -> u64 {
    let num_threads = workers.num_threads();
    let mut counts = vec![0; num_threads];
    let slots = Disjoint::new(&mut counts);
    workers.run(num_threads, &|thread| {
        // SAFETY: each thread number is run once and has a slot of its own.
        let slot = unsafe { slots.part(thread..thread + 1) };
        slot[0] = job();
    });
    counts.iter().sum()
}

struct MultiplyAdd {
    rounds: usize,
}

impl SimdOp for MultiplyAdd {
    type Output = u64;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> u64 {
        let (a, b) = (s.splat(black_box(0.5)), s.splat(black_box(0.25)));
        2 * in_chains(s, self.rounds, |sum| s.fma(a, b, sum))
    }
}

struct DotBf16 {
    rounds: usize,
}

impl SimdOp for DotBf16 {
    type Output = u64;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> u64 {
        // Two times 0.5 in each word.
        let (weights, inputs) = (black_box([0x3f00_3f00; LANES]), black_box(0x3f00_3f00));
        4 * in_chains(s, self.rounds, |sum| s.dot_bf16(&weights, inputs, sum))
    }
}

struct DotI8 {
    rounds: usize,
}

impl SimdOp for DotI8 {
    type Output = u64;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> u64 {
        match S::WIDE_INTEGER_ROWS {
            6.. => integer_chains::<S, 12>(s, self.rounds),
            _ => integer_chains::<S, 6>(s, self.rounds),
        }
    }
}

/// [`chains`] of integer sums. Returns the number of operations.
#[inline(always)]
fn integer_chains<S: Simd, const CHAINS: usize>(s: S, rounds: usize) -> u64 {
    // Weights of its own for each chain and inputs that change with the round: products that are the same would be
    // made once.
    let weights = black_box([[129; 4 * LANES]; CHAINS]);
    // Different start values keep the compiler from merging the chains.
    let starts: [i32; CHAINS] = black_box(std::array::from_fn(|chain| chain as i32));
    let mut sums = [s.splat_i32(0); CHAINS];
    for chain in 0..CHAINS {
        sums[chain] = s.splat_i32(starts[chain]);
    }
    for _ in 0..rounds {
        let inputs = black_box(0x0101_0101);
        for chain in 0..CHAINS {
            sums[chain] = s.dot_i8(s.load_bytes(&weights[chain]), inputs, sums[chain]);
        }
    }
    let mut total = s.splat(0.0);
    for sum in sums {
        total = s.add(total, s.to_f32(sum));
    }
    black_box(sum_lanes(s, total));
    (8 * rounds * CHAINS * LANES) as u64
}

/// Runs as many chains as fit into the registers beside the operands, like the tiles of the matrix kernels.
/// Returns the number of computed lanes.
#[inline(always)]
fn in_chains<S: Simd>(s: S, rounds: usize, next: impl Fn(S::F) -> S::F) -> u64 {
    match S::WIDE_TILE_ROWS {
        12.. => chains::<S, 24>(s, rounds, next),
        2.. => chains::<S, 6>(s, rounds, next),
        _ => chains::<S, 2>(s, rounds, next),
    }
}

#[inline(always)]
fn chains<S: Simd, const CHAINS: usize>(s: S, rounds: usize, next: impl Fn(S::F) -> S::F) -> u64 {
    // Different start values keep the compiler from merging the chains.
    let starts: [f32; CHAINS] = black_box(std::array::from_fn(|chain| chain as f32));
    let mut sums = starts.map(|start| s.splat(start));
    for _ in 0..rounds {
        for chain in 0..CHAINS {
            sums[chain] = next(sums[chain]);
        }
    }
    black_box(sums.into_iter().map(|sum| sum_lanes(s, sum)).sum::<f32>());
    (rounds * CHAINS * LANES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn operations_are_counted_for_every_round_and_thread() {
        let portable = *Isa::available().last().unwrap();
        assert_eq!(portable.name(), "scalar");
        let portable = multiply_add(&Workers::new(1, portable).unwrap(), 1);
        for isa in Isa::available() {
            let count = |threads, rounds| {
                let workers = Workers::new(threads, isa).unwrap();
                (multiply_add(&workers, rounds), dot_bf16(&workers, rounds))
            };
            let (one, pairs) = count(1, 1);
            assert_eq!(one % (2 * LANES as u64), 0);
            // Portable code stands in for an instruction that is not there.
            let products = if isa.has_bf16_products() { one } else { portable };
            assert_eq!(pairs, 2 * products, "a pair is two products");
            assert_eq!(count(1, 10), (10 * one, 10 * pairs));
            assert_eq!(count(2, 10), (20 * one, 20 * pairs));
        }
    }

    #[test]
    fn a_chain_adds_its_product_in_every_round() {
        struct Sum;
        impl SimdOp for Sum {
            type Output = Vec<f32>;

            #[inline(always)]
            fn eval<S: Simd>(self, s: S) -> Vec<f32> {
                let seen = std::cell::RefCell::new(Vec::new());
                let weights = [0x3f00_3f00; LANES];
                in_chains(s, 3, |sum| {
                    let next = s.dot_bf16(&weights, 0x3f00_3f00, sum);
                    seen.borrow_mut().push(sum_lanes(s, next) / LANES as f32);
                    next
                });
                seen.into_inner()
            }
        }
        for isa in Isa::available() {
            let seen = isa.run_bf16(Sum);
            let chains = seen.len() / 3;
            for (i, value) in seen.iter().enumerate() {
                let expected = (i % chains) as f32 + 0.5 * (i / chains + 1) as f32;
                assert_eq!(*value, expected, "{isa:?}");
            }
        }
    }
}
