//! Products of rows with matrices of each kind of weights, beside the limits of the machine.
//!
//! `cargo bench --bench products`, or `-- S` for a shape. `RSGEN_ISA` and `RSGEN_NUM_THREADS` count. All kinds take
//! turns in each round, and the best round counts: on a shared machine the limits change, too, so they are measured
//! before and after, and the larger ones count.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::Instant;

use rsgen::engine::num_threads;
use rsgen_kernels::quant::{PackedMatrix, RowOrder};
use rsgen_kernels::tensor::{BlockType, ComputeDtype, DType, Encoding, StoredMatrix, WeightType};
use rsgen_kernels::{Isa, Limits, MatrixOutput, PackedRows, Workers};

/// Name, outputs and inputs of the largest matrices of a layer: SmolLM2-135M and TinyLlama-1.1B.
const MATRICES: [(&str, usize, usize); 4] =
    [("S gate_up", 3072, 576), ("S down", 576, 1536), ("T gate_up", 11264, 2048), ("T down", 2048, 5632)];
const ROWS: [usize; 6] = [1, 2, 4, 8, 32, 512];
const ROUNDS: usize = 7;
/// The least operations of a measurement.
const LEAST_OPERATIONS: f64 = 1e9;
/// What the limits read.
const READ_BYTES: usize = 1 << 26;

/// A kind of weights.
struct Kind {
    name: &'static str,
    encoding: Encoding,
    weights: Option<WeightType>,
    compute: ComputeDtype,
}

impl Kind {
    const fn new(
        name: &'static str,
        encoding: Encoding,
        weights: Option<WeightType>,
        compute: ComputeDtype,
    ) -> Self {
        Self { name, encoding, weights, compute }
    }

    /// All that have products of their own.
    const ALL: [Self; 13] = {
        const F32: Encoding = Encoding::Plain(DType::F32);
        const BF16: Encoding = Encoding::Plain(DType::Bf16);
        [
            Self::new("float32", F32, None, ComputeDtype::F32),
            Self::new("bfloat16 in float32", BF16, None, ComputeDtype::F32),
            Self::new("bfloat16 arithmetic", BF16, None, ComputeDtype::Bf16),
            Self::new("int8", BF16, Some(WeightType::Int8), ComputeDtype::F32),
            Self::new("int4", BF16, Some(WeightType::Int4), ComputeDtype::F32),
            Self::new("Q4_0, exact", Encoding::Blocks(BlockType::Q4_0), None, ComputeDtype::F32),
            Self::new("Q8_0, exact", Encoding::Blocks(BlockType::Q8_0), None, ComputeDtype::F32),
            Self::new("Q4_K, exact", Encoding::Blocks(BlockType::Q4_K), None, ComputeDtype::F32),
            Self::new("Q8_0 by int8", Encoding::Blocks(BlockType::Q8_0), None, ComputeDtype::Int8),
            Self::new("Q4_0 by int8", Encoding::Blocks(BlockType::Q4_0), None, ComputeDtype::Int8),
            Self::new("Q5_0 by int8", Encoding::Blocks(BlockType::Q5_0), None, ComputeDtype::Int8),
            Self::new("Q4_K by int8", Encoding::Blocks(BlockType::Q4_K), None, ComputeDtype::Int8),
            Self::new("Q6_K by int8", Encoding::Blocks(BlockType::Q6_K), None, ComputeDtype::Int8),
        ]
    };

    /// A matrix of about equal weights; `None` if its rows are not whole blocks.
    fn matrix(&self, workers: &Workers, outputs: usize, inputs: usize) -> Option<PackedMatrix> {
        let bytes = match self.encoding {
            // The same small number in each, and scales of blocks that are no NaN.
            Encoding::Blocks(kind) if inputs.is_multiple_of(kind.elements()) => {
                vec![0x31; outputs * inputs / kind.elements() * kind.bytes()]
            }
            Encoding::Plain(dtype) => {
                let number = |i: usize| dtype.to_le_bytes((i as f32 * 0.37).sin());
                (0..outputs * inputs).flat_map(number).collect()
            }
            _ => return None,
        };
        let stored = StoredMatrix {
            encoding: self.encoding,
            num_rows: outputs,
            num_columns: inputs,
            bytes: bytes[..].into(),
            cancelled: None,
        };
        let packed = PackedMatrix::pack(workers, &[stored], RowOrder::Stacked, self.weights, self.compute);
        Some(packed.expect("finite weights"))
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let threads = num_threads(None).expect("a number of threads").value;
    let isa = Isa::select().expect("an instruction set");
    let workers = Workers::new(threads, isa).expect("threads");
    for (name, outputs, inputs) in MATRICES {
        if wanted.is_empty() || wanted.iter().any(|wanted| name.starts_with(wanted.as_str())) {
            measure(&workers, name, outputs, inputs);
        }
    }
}

/// Prints operations a second of a matrix's products, and how much of the limit they are.
fn measure(workers: &Workers, name: &str, outputs: usize, inputs: usize) {
    let before = Limits::measure(workers, READ_BYTES);
    let matrices: Vec<(&Kind, PackedMatrix)> =
        Kind::ALL.iter().filter_map(|kind| Some((kind, kind.matrix(workers, outputs, inputs)?))).collect();
    let mut best = vec![[f64::INFINITY; ROWS.len()]; matrices.len()];
    for _ in 0..ROUNDS {
        for (r, num_rows) in ROWS.into_iter().enumerate() {
            let operations = 2.0 * (num_rows * outputs * inputs) as f64;
            let repeats = (LEAST_OPERATIONS / operations).ceil() as usize;
            let x: Vec<f32> = (0..num_rows * inputs).map(|i| (i as f32 * 0.73).sin()).collect();
            let (mut rows, mut out) = (PackedRows::default(), vec![0.0; num_rows * outputs]);
            for ((_, matrix), best) in matrices.iter().zip(&mut best) {
                let begin = Instant::now();
                for _ in 0..repeats {
                    let output = MatrixOutput::default();
                    matrix.matmul(workers, x[..].into(), &mut rows, output, &mut out);
                }
                best[r] = best[r].min(begin.elapsed().as_secs_f64() / repeats as f64);
            }
        }
    }
    let after = Limits::measure(workers, READ_BYTES);
    let isa = workers.isa().name();
    let limit = |of: fn(&Limits) -> f64| of(&before).max(of(&after));
    let float32 = limit(|limits| limits.float32_gflop_per_second);
    let int8 = limit(|limits| limits.int8_gop_per_second);
    println!(
        "\n{name}, {outputs} x {inputs}, {isa}, {} threads: float32 {float32:.1}, int8 {int8:.1} GOP/s",
        workers.num_threads()
    );
    println!("| weights | {} |", ROWS.map(|rows| format!("{rows} rows")).join(" | "));
    println!("|---|{}", "---|".repeat(ROWS.len()));
    for ((kind, _), best) in matrices.iter().zip(best) {
        let is_integer = kind.compute == ComputeDtype::Int8 || kind.weights.is_some();
        let limit = if is_integer { int8 } else { float32 };
        let cells: Vec<String> = ROWS
            .into_iter()
            .zip(best)
            .map(|(rows, seconds)| {
                let rate = 2e-9 * (rows * outputs * inputs) as f64 / seconds;
                format!("{rate:.1} ({:.0} %)", 100.0 * rate / limit)
            })
            .collect();
        println!("| {} | {} |", kind.name, cells.join(" | "));
    }
}
