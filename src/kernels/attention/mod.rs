//! Attention of new tokens over the blocks of their sequences' key-value cache.
//!
//! For each key-value head, the query heads that share it are computed together, and those of several rows with them:
//! neighbours in a prompt, or beams that share the blocks of theirs. So keys and values are read once for all of them.
//! The context is taken in spans of 256 tokens, whose boundaries depend on positions alone:
//!
//! ```text
//! span 0                 span 1                 span 2
//! ┌──────┬ ─ ─ ┬──────┐  ┌──────┬ ─ ─ ┬──────┐  ┌──────┬───        within a span: scores of all its tokens,
//! │block │     │block │  │block │     │block │  │block │           their maximum, exponentials, their sum, and
//! └──────┴ ─ ─ ┴──────┘  └──────┴ ─ ─ ┴──────┘  └──────┴───        the weighted values, tokens ascending
//!        m0, l0, o0             m1, l1, o1             m2, l2, o2   then merged in order
//! ```
//!
//! In a block the keys are transposed, `[head_dim][32 tokens]`, so that a vector holds 16 tokens and a score is one
//! chain over the dimensions; the values lie in planes of 32 dimensions, `[planes][32 tokens][32 dims]`, so that an
//! output is one chain over the tokens. No sum is ever split, so a row's result depends on its own context only.
//!
//! A sliding window cuts the context off at its front: what lies before it is neither read nor computed, except for the
//! scores that share a block with visible ones. Where a span begins still depends on the position alone.

/// Calls `$function::<S, E, M>($s, query, …)` for register tiles of `M` queries until all of the range are done.
macro_rules! for_query_tiles {
    ($queries:expr, $function:ident($s:expr, $($argument:expr),*)) => {{
        let Range { start: mut query, end } = $queries;
        while query < end {
            let left: usize = end - query;
            // As equal as possible: 16 are 8 and 8.
            let most = left.div_ceil(left.div_ceil(S::QUERY_TILE));
            query += match most {
                9.. if left >= 12 && S::QUERY_TILE >= 12 => { $function::<S, E, 12>($s, query, $($argument),*); 12 }
                7.. if left >= 8 && S::QUERY_TILE >= 8 => { $function::<S, E, 8>($s, query, $($argument),*); 8 }
                5.. if left >= 6 && S::QUERY_TILE >= 6 => { $function::<S, E, 6>($s, query, $($argument),*); 6 }
                4.. if S::QUERY_TILE >= 4 => { $function::<S, E, 4>($s, query, $($argument),*); 4 }
                3.. if S::QUERY_TILE >= 3 => { $function::<S, E, 3>($s, query, $($argument),*); 3 }
                2.. if S::QUERY_TILE >= 2 => { $function::<S, E, 2>($s, query, $($argument),*); 2 }
                _ => { $function::<S, E, 1>($s, query, $($argument),*); 1 }
            };
        }
    }};
}

mod plan;
mod span;
mod tile;

use half::bf16;
use half::slice::HalfFloatSliceExt;

use super::parallel::Disjoint;
use super::simd::{LANES, Simd};
use super::threads::Workers;
use plan::RowTile;
use tile::{Job, Memory};

/// The tokens of a cache block, and the dimensions of a plane of values.
const BLOCK: usize = 32;
/// The tokens of a span.
const SPAN: usize = 256;

/// The heads of a layer's attention, and how far they see.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query heads.
    pub num_heads: usize,
    /// Heads of keys and values; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// What scores are multiplied with, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// The tokens that a row sees at most, itself included: token `j` is visible to row `i` if `i - j < window`. All
    /// tokens before it if `None`.
    pub window: Option<usize>,
}

impl AttentionShape {
    /// The first token that the last one of a context sees.
    fn first_visible(&self, context_len: usize) -> usize {
        self.window.map_or(0, |window| context_len.saturating_sub(window))
    }
}

/// A type that keys and values are stored in.
pub trait KvElement: Copy + Send + Sync + 'static {
    /// Widens 16 elements.
    #[doc(hidden)]
    fn load<S: Simd>(s: S, source: &[Self; LANES]) -> S::F;
}

impl KvElement for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, source: &[Self; LANES]) -> S::F {
        s.load(source)
    }
}

impl KvElement for bf16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, source: &[Self; LANES]) -> S::F {
        let (bits, _) = source.reinterpret_cast().as_chunks::<LANES>();
        s.bf16(&bits[0])
    }
}

/// Where the keys and values of the rows' sequences are.
pub trait KvBlocks<E>: Sync {
    /// The number of tokens up to row `row`, its own included: its position plus one.
    fn context_len(&self, row: usize) -> usize;
    /// The keys of a block of the row's sequence (block `i` holds tokens `32 i` to `32 i + 31`), `[head_dim][32]`.
    fn keys(&self, row: usize, block: usize, kv_head: usize) -> &[E];
    /// The values of the block, `[ceil(head_dim / 32)][32 tokens][32 dims]`.
    fn values(&self, row: usize, block: usize, kv_head: usize) -> &[E];
    /// How many of their first blocks two rows have in common: any large number for rows of one sequence.
    fn shared_blocks(&self, row: usize, other: usize) -> usize;
}

/// The memory of [`attention`], which calls reuse.
#[derive(Default)]
pub struct AttentionScratch {
    tiles: Vec<RowTile>,
    values: Vec<f32>,
}

/// Computes `out[row, head] = softmax(queries[row, head] · keys * scale) · values` over the visible tokens of every row,
/// on all threads.
///
/// The queries of row `r` are `[num_heads, head_dim]`, from element `r * query_stride` of `queries` on; `out` is
/// `[num_rows, num_heads, head_dim]`.
///
/// # Panics
/// When the shapes do not fit, or when a window is 0.
pub fn attention<E: KvElement>(
    workers: &Workers,
    shape: AttentionShape,
    queries: &[f32],
    query_stride: usize,
    blocks: &impl KvBlocks<E>,
    scratch: &mut AttentionScratch,
    out: &mut [f32],
) {
    let group = shape.num_heads / shape.num_kv_heads;
    assert_eq!(
        shape.num_heads % shape.num_kv_heads,
        0,
        "every key-value head serves the same number of heads"
    );
    assert_ne!(shape.window, Some(0), "a row sees itself");
    let num_rows = out.len() / (shape.num_heads * shape.head_dim);
    let AttentionScratch { tiles, values } = scratch;
    plan::tiles(num_rows, group, blocks, tiles);

    // Items of one key-value head stand together. They are dealt out in turns, because contexts differ in length.
    let num_items = tiles.len() * shape.num_kv_heads;
    let num_chunks = num_items.min(4 * workers.num_threads());
    let most_queries = tiles.iter().map(|tile| tile.rows.len() * group).max().unwrap_or(0);
    let memory_len = Memory::len(shape.head_dim, most_queries);
    values.resize(num_chunks * memory_len, 0.0);
    let (values, out) = (Disjoint::new(values), Disjoint::new(out));
    workers.run(num_chunks, &|chunk| {
        // SAFETY: each chunk is run once, and their memory does not overlap.
        let memory = unsafe { values.part(chunk * memory_len..(chunk + 1) * memory_len) };
        for item in (chunk..num_items).step_by(num_chunks) {
            let (kv_head, tile) = (item / tiles.len(), &tiles[item % tiles.len()]);
            workers.isa().run(Job {
                shape,
                queries,
                query_stride,
                blocks,
                tile,
                kv_head,
                memory: &mut *memory,
                out: &out,
                element: std::marker::PhantomData::<E>,
            });
        }
    });
}

#[cfg(test)]
mod tests;
