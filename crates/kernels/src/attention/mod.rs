//! Attention of new tokens over the KV-cache blocks of their sequences.
//!
//! The query heads that share a key-value head are computed together, for several rows at once: adjacent
//! tokens of a prompt, or beams that share their blocks. So keys and values are read once for all of them.
//! The context is divided into spans of 256 tokens, whose boundaries depend only on positions:
//!
//! ```text
//! span 0                 span 1                 span 2
//! ┌──────┬ ─ ─ ┬──────┐  ┌──────┬ ─ ─ ┬──────┐  ┌──────┬───        within a span: scores of all its tokens,
//! │block │     │block │  │block │     │block │  │block │           their maximum, exponentials, their sum, and
//! └──────┴ ─ ─ ┴──────┘  └──────┴ ─ ─ ┴──────┘  └──────┴───        the weighted values, tokens ascending
//!        m0, l0, o0             m1, l1, o1             m2, l2, o2   then merged in order
//! ```
//!
//! Both products use the panels of [`matmul`](super::matmul). The keys of a block are a panel whose outputs
//! are 32 tokens and whose inputs are the dimensions: a score is one chain over the dimensions. The values
//! are panels whose outputs are 32 dimensions and whose inputs are the tokens: an output is one chain over
//! the tokens. No sum is ever split, so a row's result depends only on its own context.
//!
//! Tiles of rows that have blocks in common go through a span together ([`group`]), so that it is read once for all of
//! them.
//!
//! A sliding window cuts off the front of the context: tokens before it are neither read nor computed, except
//! for scores that share a block with visible ones. The span boundaries stay the same.

/// Calls `$function::<S, F, M, 1, V>($s, query, half, …)` for register tiles of `M` queries until all of the range are
/// done: with both vectors of a panel at once, or with one after the other where then more queries fit.
macro_rules! for_query_tiles {
    ($queries:expr, $function:ident($s:expr, $($argument:expr),*)) => {{
        let Range { start: mut query, end } = $queries;
        while query < end {
            let left: usize = end - query;
            let (least_of_half, most_of_half) = const { half_query_tile::<S, F::Step>() };
            if const { S::HALF_QUERY_TILE > 0 } && left >= least_of_half {
                let most = left.div_ceil(left.div_ceil(most_of_half));
                // One loop for both: unrolled, the sums of the first half take the registers of the second one.
                for half in 0..black_box(2) {
                    match most {
                        6.. if const { half_query_tile::<S, F::Step>().1 >= 6 } => $function::<S, F, 6, 1, 1>($s, query, half, $($argument),*),
                        5.. => $function::<S, F, 5, 1, 1>($s, query, half, $($argument),*),
                        4 => $function::<S, F, 4, 1, 1>($s, query, half, $($argument),*),
                        _ => $function::<S, F, 3, 1, 1>($s, query, half, $($argument),*),
                    }
                }
                query += most;
                continue;
            }
            // Tiles of equal size: 16 queries become 8 and 8.
            let most = left.div_ceil(left.div_ceil(S::QUERY_TILE));
            query += match most {
                9.. if const { S::QUERY_TILE >= 12 } && left >= 12 => { $function::<S, F, 12, 1, 2>($s, query, 0, $($argument),*); 12 }
                7.. if const { S::QUERY_TILE >= 8 } && left >= 8 => { $function::<S, F, 8, 1, 2>($s, query, 0, $($argument),*); 8 }
                5.. if const { S::QUERY_TILE >= 6 } && left >= 6 => { $function::<S, F, 6, 1, 2>($s, query, 0, $($argument),*); 6 }
                4.. if const { S::QUERY_TILE >= 4 } => { $function::<S, F, 4, 1, 2>($s, query, 0, $($argument),*); 4 }
                3.. if const { S::QUERY_TILE >= 3 } => { $function::<S, F, 3, 1, 2>($s, query, 0, $($argument),*); 3 }
                2.. if const { S::QUERY_TILE >= 2 } => { $function::<S, F, 2, 1, 2>($s, query, 0, $($argument),*); 2 }
                _ => { $function::<S, F, 1, 1, 2>($s, query, 0, $($argument),*); 1 }
            };
        }
    }};
}

/// Calls `$function::<S, F, M, 2, 2>($s, query, 0, …)` for the few queries of the range.
macro_rules! for_few_queries {
    ($queries:expr, $function:ident($s:expr, $($argument:expr),*)) => {{
        let Range { start, end } = $queries;
        match end - start {
            4 if const { S::QUERY_TILE >= 8 } => $function::<S, F, 4, 2, 2>($s, start, 0, $($argument),*),
            3 if const { S::QUERY_TILE >= 6 } => $function::<S, F, 3, 2, 2>($s, start, 0, $($argument),*),
            2 if const { S::QUERY_TILE >= 4 } => $function::<S, F, 2, 2, 2>($s, start, 0, $($argument),*),
            _ => $function::<S, F, 1, 2, 2>($s, start, 0, $($argument),*),
        }
    }};
}

mod distances;
mod fetch;
mod group;
mod plan;
mod span;
mod split;
mod tile;
mod values;
mod weights;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::matmul::{
    Bf16Panels, Bf16Products, Bf16Step, Buffers, EmulatedBf16Products, F32Panels, F32Step, I8Panels, I8Step,
    KvStep, RowStep,
};
use super::parallel::Disjoint;
use super::simd::Simd;
use super::tensor::{ComputeDtype, DType};
use super::threads::Workers;
use group::{Group, KvProducts};
use plan::{RowTile, TileGroup};
use tile::{Memory, Part, TileHead};

pub use distances::{Distances, Places};
pub use tile::Queries;
pub use weights::attention_weights;

/// The least and the most queries that are multiplied with half a panel at a time: more than with a whole one, so that its
/// numbers are read and widened less often. Those of `float32` are wide, which leaves registers for one query more, and
/// three queries have too few sums to keep the multipliers busy.
const fn half_query_tile<S: Simd, T>() -> (usize, usize) {
    let wide = (size_of::<T>() == size_of::<F32Step>()) as usize;
    (S::QUERY_TILE + 1 + wide, S::HALF_QUERY_TILE + wide)
}

/// The tokens of a cache block, and the dimensions of a plane of values.
const BLOCK: usize = 32;
/// The tokens of a span, and how many pairs they are.
const SPAN: usize = 256;
const PAIRS: usize = SPAN / 2;
/// From this many spans on, a context is divided among threads.
const LONG: usize = 4;

/// The heads of an attention layer and its sliding window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query heads.
    pub num_heads: usize,
    /// Heads of keys and values; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// The factor of scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Bends scores to less than this, as [`soft_cap`](super::soft_cap) does.
    pub softcap: Option<f32>,
    /// The sliding window: row `i` attends to token `j` if `i - j < window`. Without a limit if `None`.
    pub window: Option<usize>,
}

impl AttentionShape {
    /// The first token that the last token of a context attends to.
    fn first_visible(&self, context_len: usize) -> usize {
        self.window.map_or(0, |window| context_len.saturating_sub(window))
    }
}

/// What heads add to their scores, as many as there are query heads.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadBias<'a> {
    /// The score of a token without a value, which takes a part of the softmax (gpt-oss).
    pub sinks: Option<&'a [f32]>,
    /// Times the distance of a token is subtracted (`ALiBi`: Press et al., arXiv:2108.12409).
    pub slopes: Option<Slopes<'a>>,
    /// Numbers for the distances of tokens are added.
    pub distances: Option<Distances<'a>>,
}

/// The slopes of `ALiBi`.
#[derive(Debug, Clone, Copy)]
pub struct Slopes<'a> {
    /// One for each query head.
    pub slopes: &'a [f32],
    /// Slopes times positions, in bfloat16, are added, times this factor (Falcon); else slopes times distances.
    pub rounded: Option<f32>,
}

impl Slopes<'_> {
    /// What is subtracted from the score of a token before the last one.
    #[inline]
    pub(crate) fn of(self, head: usize, token: usize, last: usize) -> f32 {
        let slope = self.slopes[head];
        let Some(factor) = self.rounded else { return slope * (last - token) as f32 };
        let round = |value: f32| DType::Bf16.round(value);
        let product = |position: usize| round(round(slope) * round(position as f32));
        (product(last) - product(token)) * factor
    }
}

/// The keys and values of the rows' sequences, in steps of a [`PanelProducts`](crate::PanelProducts).
pub trait KvBlocks<T>: Sync {
    /// The number of tokens that row `row` may see: those up to its own, or all of a source.
    fn context_len(&self, row: usize) -> usize;
    /// The places of the row and of its tokens, which [`Distances`] are counted between.
    fn places(&self, row: usize) -> Places<'_> {
        Places { row: self.context_len(row) - 1, tokens: None }
    }
    /// The keys of a block of the row's sequence (block `i` holds tokens `32 i` to `32 i + 31`): a step for
    /// each two dimensions, `[ceil(head_dim / 2)]`, with the tokens as outputs, and the steps of their
    /// scales.
    fn keys(&self, row: usize, block: usize, kv_head: usize) -> &[T];
    /// The values of the block: a step for each two tokens, `[ceil(head_dim / 32)][16]`, with 32 dimensions
    /// as outputs, and the steps of their scales.
    fn values(&self, row: usize, block: usize, kv_head: usize) -> &[T];
    /// The number of leading blocks that two rows share; any large number for rows of one sequence.
    fn shared_blocks(&self, row: usize, other: usize) -> usize;
}

/// The cache of a layer, by the type of its numbers. Trait objects, so that this crate compiles the
/// arithmetic and not the one that holds the cache.
#[derive(Clone, Copy)]
pub enum LayerBlocks<'a> {
    /// Numbers in float32.
    F32(&'a dyn KvBlocks<F32Step>),
    /// Numbers in bfloat16, and the arithmetic.
    Bf16(&'a dyn KvBlocks<Bf16Step>, ComputeDtype),
    /// Scaled 8-bit integers.
    I8(&'a dyn KvBlocks<I8Step>),
}

/// The scratch memory of [`attention`]; calls reuse it.
#[derive(Default)]
pub struct AttentionScratch {
    tiles: Vec<RowTile>,
    groups: Vec<TileGroup>,
    values: Vec<f32>,
    pairs: Buffers,
    parts: Vec<f32>,
}

/// Computes `out[row, head] = softmax(queries[row, head] · keys * scale) · values` over the visible tokens of
/// every row, on all threads; `bias` is added to the scores.
///
/// `out` is `[num_rows, num_heads, head_dim]`.
///
/// # Panics
/// When the shapes do not fit, or when a window is 0.
pub fn attention(
    workers: &Workers,
    shape: AttentionShape,
    bias: HeadBias<'_>,
    queries: Queries<'_>,
    blocks: LayerBlocks<'_>,
    scratch: &mut AttentionScratch,
    out: &mut [f32],
) {
    match blocks {
        LayerBlocks::F32(blocks) => {
            attention_in::<F32Panels>(workers, shape, bias, queries, blocks, scratch, out);
        }
        LayerBlocks::I8(blocks) => {
            attention_in::<I8Panels>(workers, shape, bias, queries, blocks, scratch, out);
        }
        LayerBlocks::Bf16(blocks, ComputeDtype::F32 | ComputeDtype::Int8) => {
            attention_in::<Bf16Panels>(workers, shape, bias, queries, blocks, scratch, out);
        }
        LayerBlocks::Bf16(blocks, ComputeDtype::Bf16) if workers.isa().has_bf16_products() => {
            attention_in::<Bf16Products>(workers, shape, bias, queries, blocks, scratch, out);
        }
        LayerBlocks::Bf16(blocks, ComputeDtype::Bf16) => {
            attention_in::<EmulatedBf16Products>(workers, shape, bias, queries, blocks, scratch, out);
        }
    }
}

/// [`attention`] in a format of keys and values and its arithmetic.
fn attention_in<F: KvProducts>(
    workers: &Workers,
    shape: AttentionShape,
    bias: HeadBias<'_>,
    queries: Queries<'_>,
    blocks: &dyn KvBlocks<F::Step>,
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
    let AttentionScratch { tiles, groups, values, pairs, parts } = scratch;
    let num_threads = workers.num_threads();
    plan::tiles(num_rows, shape, num_threads, blocks, tiles);
    plan::groups(tiles, shape.num_kv_heads, num_threads, blocks, groups);

    // Items of one key-value head are adjacent.
    let num_items = groups.len() * shape.num_kv_heads;
    let (tiles, groups) = (&*tiles, &*groups);
    let item = |item: usize| {
        let TileGroup { tiles: range, common_blocks } = &groups[item % groups.len()];
        let (tiles, kv_head) = (&tiles[range.clone()], item / groups.len());
        let head = TileHead { shape, bias, blocks, tile: &tiles[0], kv_head, is_near: false };
        Group { head, tiles, common_blocks: *common_blocks }
    };
    let most_spans = (0..groups.len()).map(|index| item(index).spans().end).max().unwrap_or(0);
    // A few long items are divided by spans; then each is a tile.
    let is_split = most_spans >= LONG && num_items < 2 * num_threads;
    let parts_each = if is_split { most_spans.min((4 * num_threads).div_ceil(num_items)) } else { 1 };
    let num_jobs = num_items * parts_each;
    // Undivided, each thread takes one item after the other until there are none.
    let chunks_each = if is_split { 4 } else { 1 };
    let num_chunks = num_jobs.min(chunks_each * num_threads);
    let most_queries = tiles.iter().map(|tile| tile.rows.len() * group).max().unwrap_or(0);
    let most_tiles = groups.iter().map(|group| group.tiles.len()).max().unwrap_or(0);
    let (num_values, num_pairs) = Memory::<F::Row>::len(shape.head_dim, most_queries, most_tiles);
    let pairs = F::Row::buffer(pairs);
    values.resize(num_chunks * num_values, 0.0);
    pairs.resize(num_chunks * num_pairs, F::Row::default());
    let (values, pairs, out) = (Disjoint::new(values), Disjoint::new(pairs), Disjoint::new(out));
    let memory = |chunk: usize| {
        // SAFETY: each chunk is run once, and their memory does not overlap.
        unsafe {
            (
                values.part(chunk * num_values..(chunk + 1) * num_values),
                pairs.part(chunk * num_pairs..(chunk + 1) * num_pairs),
            )
        }
    };
    let isa = workers.isa();
    if !is_split {
        let next_item = AtomicUsize::new(0);
        workers.run(num_chunks, &|chunk| {
            let (values, pairs) = memory(chunk);
            let mut memory = Memory::divide(values, pairs, shape.head_dim, most_queries);
            loop {
                let index = next_item.fetch_add(1, Ordering::Relaxed);
                if index >= num_items {
                    break;
                }
                // What this thread takes next, unless another one is faster: a guess is enough for fetching ahead.
                let next = (index + 1 < num_items).then(|| item(index + 1));
                group::compute::<F>(isa, item(index), next, queries, &mut memory, &out);
            }
        });
        return;
    }
    let of_item = most_spans * (0..tiles.len()).map(|index| Part::len(item(index).head)).max().unwrap_or(0);
    parts.resize(num_items * of_item, 0.0);
    let all_parts = Disjoint::new(parts);
    workers.run(num_chunks, &|chunk| {
        let (values, pairs) = memory(chunk);
        for job in (chunk..num_jobs).step_by(num_chunks) {
            let (index, part) = (job / parts_each, job % parts_each);
            let head = item(index).head;
            let spans = spans(head);
            let of_part = |part: usize| spans.start + part * spans.len() / parts_each;
            let mut memory = Memory::divide(values, pairs, shape.head_dim, most_queries);
            let spans = of_part(part)..of_part(part + 1);
            split::compute_spans::<F>(isa, head, spans, queries, &mut memory, &all_parts, index * of_item);
        }
    });
    workers.for_each_chunk(parts, of_item, |index, parts| {
        // There are no fewer chunks than items, and the jobs are done.
        let (values, _) = memory(index);
        split::merge_parts(isa, item(index).head, parts, values, &out);
    });
}

/// The least range that holds the others, of which empty ones do not count.
#[inline(always)]
fn covering(ranges: impl Iterator<Item = Range<usize>>) -> Range<usize> {
    let ranges = ranges.filter(|range| !range.is_empty());
    ranges.reduce(|all, range| all.start.min(range.start)..all.end.max(range.end)).unwrap_or_default()
}

/// The spans that any row of a tile attends to.
fn spans<T: KvStep>(head: TileHead<'_, T>) -> Range<usize> {
    let contexts = head.tile.rows.clone().map(|row| head.blocks.context_len(row));
    let first = contexts.clone().map(|context| head.shape.first_visible(context)).min().unwrap_or(0);
    first / SPAN..contexts.max().unwrap_or(0).div_ceil(SPAN)
}

#[cfg(test)]
mod tests;
