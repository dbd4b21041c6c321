//! The roofline of the machine: its peak rates, and the work of operations.

use std::fmt;
use std::hint::black_box;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::bandwidth::read_all;
use super::peak;
use super::threads::Workers;

/// The time to measure each limit.
const TIME: Duration = Duration::from_millis(30);
/// The least time of one measurement: long compared with the microseconds that threads need to start.
const LEAST: Duration = Duration::from_millis(2);
/// The most rounds of one measurement.
const MAX_ROUNDS: usize = 1 << 30;

/// The bytes that an operation reads and the operations it computes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes of weights, or of keys and values, each counted once.
    pub bytes: u64,
    /// Multiplications and additions of `float32`.
    pub f32_flops: u64,
    /// Multiplications and additions of products of `bf16`.
    pub bf16_flops: u64,
    /// Multiplications and additions of 8-bit integers.
    pub int8_ops: u64,
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.f32_flops += other.f32_flops;
        self.bf16_flops += other.bf16_flops;
        self.int8_ops += other.int8_ops;
    }
}

/// The peak rates of all threads together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Limits {
    /// Memory reads, in 10^9 bytes per second.
    pub read_gb_per_second: f64,
    /// Multiplications and additions of `float32` in registers, in 10^9 per second.
    pub float32_gflop_per_second: f64,
    /// The same for products of `bf16`; `None` where there is no instruction for them.
    pub bfloat16_gflop_per_second: Option<f64>,
    /// The same for products of 8-bit integers.
    pub int8_gop_per_second: f64,
}

impl Limits {
    /// Measures the limits in about 0.1 s, the best of several runs each. `read_bytes` bytes are read: they
    /// must exceed the caches, or the speed of the caches is measured.
    pub fn measure(workers: &Workers, read_bytes: usize) -> Self {
        let values = workers.collect((read_bytes / size_of::<f32>()).max(1), 1 << 18, |_| 1.0f32);
        let read = best(|| {
            black_box(read_all(workers, black_box(&values)));
            size_of_val(&values[..]) as u64
        });
        Self {
            read_gb_per_second: read,
            float32_gflop_per_second: peak(workers, peak::multiply_add),
            bfloat16_gflop_per_second: (workers.isa().has_bf16_products())
                .then(|| peak(workers, peak::dot_bf16)),
            int8_gop_per_second: peak(workers, peak::dot_i8),
        }
    }

    /// The least time of the work: reading or computing, whichever takes longer.
    pub fn least_time(&self, work: &Work) -> Duration {
        let bf16 = self.bfloat16_gflop_per_second.unwrap_or(self.float32_gflop_per_second);
        let reading = work.bytes as f64 / self.read_gb_per_second;
        let computing = work.f32_flops as f64 / self.float32_gflop_per_second
            + work.bf16_flops as f64 / bf16
            + work.int8_ops as f64 / self.int8_gop_per_second;
        Duration::try_from_secs_f64(1e-9 * reading.max(computing)).unwrap_or_default()
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            read_gb_per_second,
            float32_gflop_per_second,
            bfloat16_gflop_per_second,
            int8_gop_per_second,
        } = self;
        write!(f, "reads {read_gb_per_second:.1} GB/s, float32 {float32_gflop_per_second:.1} GFLOP/s")?;
        if let Some(rate) = bfloat16_gflop_per_second {
            write!(f, ", bfloat16 {rate:.1} GFLOP/s")?;
        }
        write!(f, ", int8 {int8_gop_per_second:.1} GOP/s")
    }
}

/// The rate of operations, in 10^9 per second.
fn peak(workers: &Workers, run: fn(&Workers, usize) -> u64) -> f64 {
    let mut rounds = 1000;
    while rounds < MAX_ROUNDS {
        let begin = Instant::now();
        run(workers, rounds);
        if begin.elapsed() >= LEAST {
            break;
        }
        rounds *= 2;
    }
    best(|| run(workers, rounds))
}

/// The highest measured rate in 10^9 per second; `measured` returns its amount of work.
fn best(mut measured: impl FnMut() -> u64) -> f64 {
    let (begin, mut best) = (Instant::now(), 0.0f64);
    while begin.elapsed() < TIME || best == 0.0 {
        let start = Instant::now();
        let done = measured();
        best = best.max(done as f64 / start.elapsed().as_nanos().max(1) as f64);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn every_limit_is_found_on_every_instruction_set() {
        for isa in Isa::available() {
            let workers = Workers::new(2, isa).unwrap();
            let limits = Limits::measure(&workers, 1 << 20);
            assert!(limits.read_gb_per_second.is_normal() && limits.float32_gflop_per_second.is_normal());
            let has_products = limits.bfloat16_gflop_per_second.is_some_and(f64::is_normal);
            assert_eq!(has_products, ["avx512_bf16", "neon_bf16"].contains(&isa.name()));
            assert!(limits.int8_gop_per_second.is_normal());
        }
    }

    #[test]
    fn work_takes_the_longer_one_of_reading_and_computing() {
        let limits = Limits {
            read_gb_per_second: 10.0,
            float32_gflop_per_second: 100.0,
            bfloat16_gflop_per_second: Some(200.0),
            int8_gop_per_second: 400.0,
        };
        let reads = Work { bytes: 10_000_000, f32_flops: 5, ..Work::default() };
        assert_eq!(limits.least_time(&reads), Duration::from_millis(1));
        let mut both = Work { bytes: 10, f32_flops: 100_000_000, ..Work::default() };
        both += Work { bf16_flops: 400_000_000, ..Work::default() };
        assert_eq!(limits.least_time(&both), Duration::from_millis(3));
        let emulated = Limits { bfloat16_gflop_per_second: None, ..limits };
        assert_eq!(emulated.least_time(&both), Duration::from_millis(5));
        both += Work { int8_ops: 400_000_000, ..Work::default() };
        assert_eq!(limits.least_time(&both), Duration::from_millis(4));
        assert_eq!(limits.least_time(&Work::default()), Duration::ZERO);
    }
}
