//! The operations of a layer, and what follows it, one at a time, in the shapes of SmolLM2-135M.
//!
//! `cargo bench --bench layers`, or `-- matmul` for a part. `RSGEN_ISA` and `RSGEN_NUM_THREADS` count. A model's matrices
//! come from memory, so those of few rows are taken in turns from more of it than caches hold.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use rsgen::engine::num_threads;
use rsgen::generation::logits::{LogitsProcessor, RowContext, TopKLogitsWarper};
use rsgen_kernels::quant::{PackedMatrix, RowOrder};
use rsgen_kernels::tensor::{ComputeDtype, DType, StoredMatrix};
use rsgen_kernels::{
    AttentionScratch, AttentionShape, Bf16Panels, Bf16Products, F32Panels, HeadBias, InputPair, Isa,
    KvBlocks, KvStep, LayerBlocks, MatrixOutput, Norm, NormKind, PANEL_ROWS, PackedRows, Pages,
    PanelProducts, Queries, RotaryPairs, Workers, argmax, attention, log_sum_exp, norm, rotate,
};

const HIDDEN: usize = 576;
const INTERMEDIATE: usize = 1536;
const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;
const VOCAB: usize = 49152;
/// Name, outputs and inputs of each matrix.
const MATRICES: [(&str, usize, usize); 5] = [
    ("qkv", (HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN),
    ("output", HIDDEN, HIDDEN),
    ("gate_up", 2 * INTERMEDIATE, HIDDEN),
    ("down", HIDDEN, INTERMEDIATE),
    ("head", VOCAB, HIDDEN),
];
/// More than the caches hold.
const BYTES_IN_TURNS: usize = 128 << 20;
/// The tokens of a cache block.
const BLOCK: usize = 32;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .sample_size(20)
        .configure_from_args();
    matmul(&mut criterion);
    attend::<F32Panels>(&mut criterion, "f32", |cache| LayerBlocks::F32(cache));
    attend::<Bf16Panels>(&mut criterion, "bf16_in_f32", |cache| LayerBlocks::Bf16(cache, ComputeDtype::F32));
    attend::<Bf16Products>(&mut criterion, "bf16", |cache| LayerBlocks::Bf16(cache, ComputeDtype::Bf16));
    elementwise(&mut criterion);
    choice(&mut criterion);
    criterion.final_summary();
}

fn workers() -> Workers {
    let threads = num_threads(None).expect("a number of threads").value;
    Workers::new(threads, Isa::select().expect("an instruction set")).expect("threads")
}

fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.37).sin()).collect()
}

fn matmul(criterion: &mut Criterion) {
    let workers = workers();
    for (name, outputs, inputs) in MATRICES {
        let bytes: Vec<u8> =
            numbers(outputs * inputs).iter().flat_map(|&x| DType::Bf16.to_le_bytes(x)).collect();
        let stored = StoredMatrix {
            encoding: DType::Bf16.into(),
            num_rows: outputs,
            num_columns: inputs,
            bytes: bytes[..].into(),
            cancelled: None,
        };
        for compute in [ComputeDtype::F32, ComputeDtype::Bf16] {
            let pack = || {
                PackedMatrix::pack(&workers, &[stored], RowOrder::Stacked, None, compute)
                    .expect("finite weights")
            };
            let matrices: Vec<PackedMatrix> =
                (0..BYTES_IN_TURNS.div_ceil(bytes.len())).map(|_| pack()).collect();
            let mut group = criterion.benchmark_group(format!("matmul/{name}/{}", compute.name()));
            // Logits are wanted of few rows.
            let most = if name == "head" { 16 } else { 512 };
            for num_rows in [1, 4, 8, 16, 512].into_iter().filter(|&num_rows| num_rows <= most) {
                let (x, mut rows) = (numbers(num_rows * inputs), PackedRows::default());
                let (mut out, mut turn) = (vec![0.0; num_rows * outputs], 0);
                group.throughput(if num_rows <= 16 {
                    Throughput::Bytes(bytes.len() as u64)
                } else {
                    Throughput::Elements(2 * (num_rows * outputs * inputs) as u64)
                });
                group.bench_function(BenchmarkId::from_parameter(num_rows), |bencher| {
                    bencher.iter(|| {
                        turn = (turn + 1) % matrices.len();
                        matrices[turn].matmul(
                            &workers,
                            x[..].into(),
                            &mut rows,
                            MatrixOutput::default(),
                            &mut out,
                        );
                        black_box(&mut out);
                    });
                });
            }
        }
    }
}

/// A cache whose rows have their first blocks in common; those after them are each row's own. Keys and values of a head
/// take as many steps.
struct Cache<F: PanelProducts> {
    contexts: Vec<usize>,
    shared: usize,
    /// Whether rows are computed one by one, as if they had nothing in common.
    is_apart: bool,
    /// `[blocks][layers][keys | values][KV_HEADS]`, as the model's cache.
    steps: Pages<F::Step>,
    /// Layers are computed in turns.
    layers: usize,
    layer: usize,
    /// The blocks that are each row's own.
    own_blocks: usize,
}

impl<F: PanelProducts<Step: KvStep>> Cache<F> {
    const HEAD_STEPS: usize = HEAD_DIM / 2;

    fn new(contexts: Vec<usize>, shared: usize) -> Self {
        let cache = Self {
            contexts,
            shared,
            is_apart: false,
            steps: Vec::new().into(),
            layers: 1,
            layer: 0,
            own_blocks: 0,
        };
        let own_blocks = cache.longest().saturating_sub(shared);
        Self { own_blocks, ..cache }.filled()
    }

    /// The blocks of the longest context.
    fn longest(&self) -> usize {
        self.contexts.iter().max().map_or(0, |most| most.div_ceil(BLOCK))
    }

    fn apart(self) -> Self {
        Self { is_apart: true, ..self }
    }

    /// With as many layers that the caches do not hold them.
    fn cold(self) -> Self {
        let layers = BYTES_IN_TURNS.div_ceil(size_of_val(&self.steps[..]));
        Self { layers, ..self }.filled()
    }

    fn filled(self) -> Self {
        let step = |index: usize| {
            let mut step = F::Step::default();
            for (lane, i) in (0..PANEL_ROWS).flat_map(|lane| [(lane, 0), (lane, 1)]) {
                step.set(lane, i, ((index % 4096 + 2 * lane + i) as f32 * 0.37).sin());
            }
            step
        };
        let blocks = self.longest() + (self.contexts.len() - 1) * self.own_blocks;
        let steps = blocks * self.layers * 2 * KV_HEADS * Self::HEAD_STEPS;
        let mut filled = Pages::with_capacity(steps, "steps").expect("memory");
        workers().extend(&mut filled, steps, F::Step::default(), steps);
        filled.iter_mut().enumerate().for_each(|(index, slot)| *slot = step(index));
        Self { steps: filled, ..self }
    }

    /// Where a row's block lies.
    fn index(&self, row: usize, block: usize) -> usize {
        if block < self.shared { block } else { row * self.own_blocks + block }
    }

    fn head(&self, row: usize, block: usize, head: usize) -> &[F::Step] {
        let layer = self.index(row, block) * self.layers + self.layer;
        &self.steps[(layer * 2 * KV_HEADS + head) * Self::HEAD_STEPS..][..Self::HEAD_STEPS]
    }
}

impl<F: PanelProducts<Step: KvStep>> KvBlocks<F::Step> for Cache<F> {
    fn context_len(&self, row: usize) -> usize {
        self.contexts[row]
    }

    fn keys(&self, row: usize, block: usize, kv_head: usize) -> &[F::Step] {
        self.head(row, block, kv_head)
    }

    fn values(&self, row: usize, block: usize, kv_head: usize) -> &[F::Step] {
        self.head(row, block, KV_HEADS + kv_head)
    }

    fn shared_blocks(&self, _row: usize, _other: usize) -> usize {
        if self.is_apart { 0 } else { self.shared }
    }
}

fn attend<F: PanelProducts<Step: KvStep, Row: InputPair>>(
    criterion: &mut Criterion,
    name: &str,
    blocks: impl Fn(&Cache<F>) -> LayerBlocks<'_>,
) {
    let workers = workers();
    let scale = 1.0 / (HEAD_DIM as f32).sqrt();
    let shape = AttentionShape {
        num_heads: HEADS,
        num_kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        scale,
        softcap: None,
        window: None,
    };
    let mut group = criterion.benchmark_group(format!("attention/{name}"));
    for (name, mut cache) in [
        ("decode_512", Cache::<F>::new(vec![512], usize::MAX)),
        ("decode_16_of_304", Cache::new(vec![304; 16], 0)),
        ("decode_16_of_304_cold", Cache::new(vec![304; 16], 0).cold()),
        ("beams_8_prompt_512", Cache::new(vec![528; 8], 512 / BLOCK)),
        ("beams_8_prompt_512_apart", Cache::new(vec![528; 8], 512 / BLOCK).apart()),
        ("beams_8_prompt_8192", Cache::new(vec![8208; 8], 8192 / BLOCK)),
        ("beams_8_prompt_8192_apart", Cache::new(vec![8208; 8], 8192 / BLOCK).apart()),
        ("prefill_512", Cache::new((1..=512).collect(), usize::MAX)),
        ("prefill_256_of_2048", Cache::new((1793..=2048).collect(), usize::MAX)),
        ("prefill_256_of_8192", Cache::new((7937..=8192).collect(), usize::MAX)),
    ] {
        let (width, mut scratch) = (HEADS * HEAD_DIM, AttentionScratch::default());
        let queries = numbers(cache.contexts.len() * width);
        let mut out = vec![0.0; queries.len()];
        let pairs: usize = cache.contexts.iter().sum();
        group.throughput(Throughput::Elements((4 * pairs * width) as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                cache.layer = (cache.layer + 1) % cache.layers;
                attention(
                    &workers,
                    shape,
                    HeadBias::default(),
                    Queries { values: &queries, stride: width },
                    blocks(&cache),
                    &mut scratch,
                    &mut out,
                );
                black_box(&mut out);
            });
        });
    }
}

fn elementwise(criterion: &mut Criterion) {
    let isa = Isa::select().expect("an instruction set");
    let mut group = criterion.benchmark_group("row");
    let (x, weight, mut out) = (numbers(HIDDEN), numbers(HIDDEN), vec![0.0; HIDDEN]);
    group.throughput(Throughput::Elements(HIDDEN as u64));
    group.bench_function("rms_norm", |bencher| {
        bencher.iter(|| {
            norm(
                isa,
                black_box(&x),
                Norm { kind: NormKind::Rms, weight: &weight, bias: None, eps: 1e-5 },
                black_box(&mut out),
            );
        });
    });
    let mut heads = numbers((HEADS + KV_HEADS) * HEAD_DIM);
    let (sin, cos): (Vec<f32>, Vec<f32>) = (0..HEAD_DIM / 2).map(|i| (i as f32).sin_cos()).unzip();
    group.throughput(Throughput::Elements(heads.len() as u64));
    group.bench_function("rotate_half", |bencher| {
        bencher.iter(|| rotate(isa, RotaryPairs::Half, black_box(&mut heads), HEAD_DIM, &cos, &sin));
    });
}

/// What is done with the logits of a row, in any order and where they ascend.
fn choice(criterion: &mut Criterion) {
    let isa = Isa::select().expect("an instruction set");
    let top_k = TopKLogitsWarper::new(50, f64::NEG_INFINITY, 1).expect("a number of tokens");
    let mut group = criterion.benchmark_group("logits");
    group.throughput(Throughput::Elements(VOCAB as u64));
    let ascending: Vec<f32> = (0..VOCAB).map(|i| i as f32 / VOCAB as f32).collect();
    for (name, logits) in [("any", numbers(VOCAB)), ("ascending", ascending)] {
        group.bench_function(BenchmarkId::new("log_sum_exp", name), |bencher| {
            bencher.iter(|| log_sum_exp(isa, black_box(&logits)));
        });
        group.bench_function(BenchmarkId::new("argmax", name), |bencher| {
            bencher.iter(|| argmax(isa, black_box(&logits)));
        });
        let mut scores = logits.clone();
        group.bench_function(BenchmarkId::new("top_k_50", name), |bencher| {
            bencher.iter(|| {
                scores.copy_from_slice(&logits);
                top_k.process_row(black_box(&mut scores), &mut RowContext::of_prompt(&[]))
            });
        });
    }
}
