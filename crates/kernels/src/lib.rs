//! The arithmetic of the crate: operations on slices of numbers, for every instruction set, over all threads.
//!
//! This is the only layer with SIMD and with `unsafe` code. It works on slices and does not know tensors,
//! models or files.
//!
//! An operation is written once, generically over `Simd`, a token that proves an instruction set and offers
//! vectors of 16 `f32` lanes: one AVX-512 register, two AVX2 registers, four NEON registers, or a plain array
//! that the compiler vectorizes. So all paths perform the same operations in the same order, and their results are equal to the
//! last bit. `scalar` holds twins that read like the formulas; the tests compare every operation with its
//! twin.
//!
//! No output element ever depends on how many rows are computed together: each is one chain of additions in a
//! fixed order, whatever the tile, the thread count and the number of rows.

#![expect(unsafe_code, reason = "SIMD loads and stores, and the hand-over of chunks to helper threads")]
#![allow(clippy::inline_always, reason = "vector code that is not inlined is compiled for the wrong machine")]

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod activation;
mod attention;
mod bandwidth;
mod blocks;
mod freed;
mod isa;
mod limits;
mod low_rank;
mod mask;
mod math;
mod matmul;
mod norm;
mod pages;
mod parallel;
mod peak;
mod portable;
mod prefault;
pub mod quant;
mod reduce;
mod residual;
mod rope;
mod router;
pub mod scalar;
mod simd;
mod softmax;
pub mod tensor;
mod thread_pool;
mod threads;
pub mod torch_reduce;
mod torch_rng;
pub mod torch_sort;
mod transpose;
mod vector_math;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use activation::{Activation, GatedActivation, soft_cap};
pub use attention::{
    AttentionScratch, AttentionShape, Distances, HeadBias, KvBlocks, LayerBlocks, Places, Queries, Slopes,
    attention, attention_weights,
};
pub use bandwidth::read_all;
pub use freed::return_freed_memory;
pub use isa::{Isa, IsaReason};
pub use limits::{Limits, Work};
pub use low_rank::{LowRank, add_low_rank};
pub use mask::keep_masked;
pub use matmul::{
    Bf16Panels, Bf16Products, Bf16Step, EmulatedBf16Products, F16Panels, F32Panels, F32Step, FileFormat,
    Gated, I4Groups, I8Groups, I8Panels, I8Step, InputPair, Inputs, KvStep, MatrixOutput, OutputColumns,
    PANEL_ROWS, PackedRows, PanelFormat, PanelMatrix, PanelProducts, Prologue, RowStep, gate_products,
    gated_matmul, matmul,
};
pub use norm::{Norm, NormKind, norm, norm_in_place};
pub use pages::Pages;
pub use prefault::Prefaulter;
pub use residual::add_rows;
pub use rope::{RotaryPairs, rotate};
pub use router::{Routing, add_weighted, route, sigmoid};
pub use softmax::{argmax, block_maxima, log_softmax, log_sum_exp, maximum, softmax};
pub use thread_pool::ThreadPool;
pub use threads::Workers;
pub use torch_rng::TorchRng;

/// Whether this crate was compiled with optimization. Without it a model computes some sixty times slower.
pub const IS_OPTIMIZED: bool = cfg!(not(unoptimized));
