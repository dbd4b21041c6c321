//! Attention of new tokens over the blocks of their sequences' key-value cache.
//!
//! For each row and each key-value head, all query heads that share the head are computed together, so keys and
//! values are read once for them. The context is taken in spans of 256 tokens, whose boundaries depend on positions
//! alone:
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

use std::marker::PhantomData;

use half::bf16;
use half::slice::HalfFloatSliceExt;

use super::math::exp;
use super::parallel::Disjoint;
use super::reduce;
use super::simd::{LANES, Simd, SimdOp};
use super::softmax::exp_and_sum;
use super::threads::Workers;

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
    out: &mut [f32],
) {
    let group = shape.num_heads / shape.num_kv_heads;
    let group_len = group * shape.head_dim;
    assert_eq!(
        shape.num_heads % shape.num_kv_heads,
        0,
        "every key-value head serves the same number of heads"
    );
    assert_ne!(shape.window, Some(0), "a row sees itself");
    let num_items = out.len() / group_len;
    // Contiguous runs of items, several for each thread since contexts differ in length.
    let num_chunks = num_items.min(4 * workers.num_threads());
    let parts = Disjoint::new(out);
    workers.run(num_chunks, &|chunk| {
        let mut scratch = Scratch::new(shape);
        for item in chunk * num_items / num_chunks..(chunk + 1) * num_items / num_chunks {
            let (row, kv_head) = (item / shape.num_kv_heads, item % shape.num_kv_heads);
            // SAFETY: each item is run once, and items do not overlap.
            let out = unsafe { parts.part(item * group_len..(item + 1) * group_len) };
            workers.isa().run(Item {
                shape,
                queries: &queries[row * query_stride + kv_head * group_len..][..group_len],
                blocks,
                row,
                kv_head,
                scratch: &mut scratch,
                out,
                element: PhantomData,
            });
        }
    });
}

/// What one thread needs beside its output.
struct Scratch {
    /// `[heads of the group, SPAN]`
    scores: Vec<f32>,
    /// The weighted values of a span, `[heads of the group, head_dim rounded up to planes]`.
    span: Vec<f32>,
    /// The same, merged over the spans so far.
    merged: Vec<f32>,
    /// The maximum and the sum of the exponentials of the span, for each head of the group.
    now: Vec<(f32, f32)>,
    /// The same over the spans so far.
    state: Vec<(f32, f32)>,
}

impl Scratch {
    fn new(shape: AttentionShape) -> Self {
        let group = shape.num_heads / shape.num_kv_heads;
        let planes = vec![0.0; group * shape.head_dim.next_multiple_of(BLOCK)];
        let state = vec![(0.0, 0.0); group];
        Self {
            scores: vec![0.0; group * SPAN],
            span: planes.clone(),
            merged: planes,
            now: state.clone(),
            state,
        }
    }
}

/// One row and one key-value head.
struct Item<'a, E, B> {
    shape: AttentionShape,
    /// `[heads of the group, head_dim]`
    queries: &'a [f32],
    blocks: &'a B,
    row: usize,
    kv_head: usize,
    scratch: &'a mut Scratch,
    /// `[heads of the group, head_dim]`
    out: &'a mut [f32],
    element: PhantomData<E>,
}

/// Calls `$function::<S, E, H>($s, head, …)` for tiles of `H` heads until all of the group are done.
macro_rules! for_head_tiles {
    ($group:expr, $function:ident($s:expr, $($argument:expr),*)) => {{
        let mut head = 0;
        while head < $group {
            let most = S::HEAD_TILE.min($group - head);
            head += match most {
                8.. => { $function::<S, E, 8>($s, head, $($argument),*); 8 }
                4.. => { $function::<S, E, 4>($s, head, $($argument),*); 4 }
                2.. => { $function::<S, E, 2>($s, head, $($argument),*); 2 }
                _ => { $function::<S, E, 1>($s, head, $($argument),*); 1 }
            };
        }
    }};
}

impl<E: KvElement, B: KvBlocks<E>> SimdOp for Item<'_, E, B> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { shape, queries, blocks, row, kv_head, scratch, out, .. } = self;
        let Scratch { scores, span: span_values, merged, now, state } = scratch;
        let dim = shape.head_dim;
        let width = dim.next_multiple_of(BLOCK);
        let group = out.len() / dim;
        let context = blocks.context_len(row);
        let first = shape.first_visible(context);
        let first_start = first / SPAN * SPAN;
        for start in (first_start..context).step_by(SPAN) {
            let len = SPAN.min(context - start);
            let skipped = first.saturating_sub(start);
            let span = Span { row, kv_head, start, skipped, len, width };
            let first_block = start / BLOCK;
            for b in skipped / BLOCK..len.div_ceil(BLOCK) {
                let keys = blocks.keys(row, first_block + b, kv_head);
                for_head_tiles!(group, block_scores(s, queries, keys, shape, &mut scores[b * BLOCK..]));
            }
            for head in 0..group {
                let scores = &mut scores[head * SPAN..][skipped..len];
                let max = reduce::max(s, scores);
                now[head] = (max, exp_and_sum(s, scores, max));
            }
            for plane in 0..width / BLOCK {
                for_head_tiles!(group, weighted_values(s, scores, blocks, span, plane, span_values));
            }
            for head in 0..group {
                let (values, merged) =
                    (&span_values[head * width..][..width], &mut merged[head * width..][..width]);
                if start == first_start {
                    state[head] = now[head];
                    merged.copy_from_slice(values);
                } else {
                    state[head] = merge(s, state[head], now[head], values, merged);
                }
            }
        }
        for (head, out) in out.chunks_exact_mut(dim).enumerate() {
            let sum = state[head].1;
            for (out, value) in out.iter_mut().zip(&merged[head * width..]) {
                *out = value / sum;
            }
        }
    }
}

/// The scores of `H` query heads with the 32 tokens of a block: one chain over the dimensions each.
///
/// `scores` is `[heads of the group, SPAN]`, from the block's first token on.
#[inline(always)]
fn block_scores<S: Simd, E: KvElement, const H: usize>(
    s: S,
    head: usize,
    queries: &[f32],
    keys: &[E],
    shape: AttentionShape,
    scores: &mut [f32],
) {
    let dim = shape.head_dim;
    let mut heads: [&[f32]; H] = [&[]; H];
    for h in 0..H {
        heads[h] = &queries[(head + h) * dim..][..dim];
    }
    let mut sums = [[s.splat(0.0); 2]; H];
    let (vectors, _) = keys.as_chunks::<LANES>();
    let (tokens, _) = vectors.as_chunks::<2>();
    for (d, keys) in tokens[..dim].iter().enumerate() {
        let (low, high) = (E::load(s, &keys[0]), E::load(s, &keys[1]));
        for h in 0..H {
            let q = s.splat(heads[h][d]);
            sums[h][0] = s.fma(low, q, sums[h][0]);
            sums[h][1] = s.fma(high, q, sums[h][1]);
        }
    }
    let scale = s.splat(shape.scale);
    for h in 0..H {
        let (out, _) = scores[(head + h) * SPAN..][..BLOCK].as_chunks_mut::<LANES>();
        s.store(s.mul(sums[h][0], scale), &mut out[0]);
        s.store(s.mul(sums[h][1], scale), &mut out[1]);
    }
}

/// Where a span is: its row, its key-value head, and its tokens.
#[derive(Clone, Copy)]
struct Span {
    row: usize,
    kv_head: usize,
    /// The position of its first token.
    start: usize,
    /// Tokens at its front that the row does not see.
    skipped: usize,
    /// The number of its tokens, those included.
    len: usize,
    /// The elements of a head's values, rounded up to planes.
    width: usize,
}

/// The values of a span weighted for `H` query heads, in one plane: one chain over the tokens each.
///
/// `weights` is `[heads of the group, SPAN]`, `out` is `[heads of the group, planes * 32]`.
#[inline(always)]
fn weighted_values<S: Simd, E: KvElement, const H: usize>(
    s: S,
    head: usize,
    weights: &[f32],
    blocks: &impl KvBlocks<E>,
    span: Span,
    plane: usize,
    out: &mut [f32],
) {
    let mut sums = [[s.splat(0.0); 2]; H];
    let mut heads: [&[f32]; H] = [&[]; H];
    for h in 0..H {
        heads[h] = &weights[(head + h) * SPAN..][..span.len];
    }
    for offset in (span.skipped / BLOCK * BLOCK..span.len).step_by(BLOCK) {
        let values = blocks.values(span.row, (span.start + offset) / BLOCK, span.kv_head);
        let (vectors, _) = values[plane * BLOCK * BLOCK..].as_chunks::<LANES>();
        let (tokens, _) = vectors.as_chunks::<2>();
        let visible = span.skipped.saturating_sub(offset)..BLOCK.min(span.len - offset);
        for (t, values) in visible.clone().zip(&tokens[visible]) {
            let (low, high) = (E::load(s, &values[0]), E::load(s, &values[1]));
            for h in 0..H {
                let weight = s.splat(heads[h][offset + t]);
                sums[h][0] = s.fma(low, weight, sums[h][0]);
                sums[h][1] = s.fma(high, weight, sums[h][1]);
            }
        }
    }
    for h in 0..H {
        let (out, _) = out[(head + h) * span.width + plane * BLOCK..][..BLOCK].as_chunks_mut::<LANES>();
        s.store(sums[h][0], &mut out[0]);
        s.store(sums[h][1], &mut out[1]);
    }
}

/// Merges a span into the ones before it; returns the new maximum and sum.
#[inline(always)]
fn merge<S: Simd>(
    s: S,
    before: (f32, f32),
    span: (f32, f32),
    values: &[f32],
    merged: &mut [f32],
) -> (f32, f32) {
    let max = if span.0 > before.0 { span.0 } else { before.0 };
    let (old, new) = (exp(s, s.splat(before.0 - max)), exp(s, s.splat(span.0 - max)));
    let (merged, _) = merged.as_chunks_mut::<LANES>();
    let (values, _) = values.as_chunks::<LANES>();
    for (merged, values) in merged.iter_mut().zip(values) {
        s.store(s.fma(s.load(values), new, s.mul(s.load(merged), old)), merged);
    }
    let sum = s.fma(s.splat(span.1), new, s.mul(s.splat(before.1), old));
    let mut lanes = [0.0; LANES];
    s.store(sum, &mut lanes);
    (max, lanes[0])
}

#[cfg(test)]
mod tests;
