//! The attention weights themselves, which the fast path never stores: one query head at a time, for those
//! who ask to see them.

use super::{AttentionShape, BLOCK, HeadBias, KvBlocks, LayerBlocks};
use crate::matmul::KvStep;
use crate::threads::Workers;

/// Computes `out[head, token] = softmax(queries[head] · keys * scale)` of row `row`, on all threads; 0 for
/// tokens outside of the window.
///
/// `queries` is `[num_heads, head_dim]`, `out` is `[num_heads, context_len]`. Products are those of float32
/// numbers, also where [`attention`](super::attention) rounds them to bfloat16.
///
/// # Panics
/// When the shapes do not fit.
pub fn attention_weights(
    workers: &Workers,
    shape: AttentionShape,
    bias: HeadBias<'_>,
    queries: &[f32],
    row: usize,
    blocks: LayerBlocks<'_>,
    out: &mut [f32],
) {
    match blocks {
        LayerBlocks::F32(blocks) => weights_of(workers, shape, bias, queries, row, blocks, out),
        LayerBlocks::Bf16(blocks, _) => weights_of(workers, shape, bias, queries, row, blocks, out),
        LayerBlocks::I8(blocks) => weights_of(workers, shape, bias, queries, row, blocks, out),
    }
}

/// [`attention_weights`] for one type of numbers.
pub(super) fn weights_of<T: KvStep>(
    workers: &Workers,
    shape: AttentionShape,
    bias: HeadBias<'_>,
    queries: &[f32],
    row: usize,
    blocks: &dyn KvBlocks<T>,
    out: &mut [f32],
) {
    let (context, group) = (blocks.context_len(row), shape.num_heads / shape.num_kv_heads);
    assert_eq!(queries.len(), shape.num_heads * shape.head_dim, "a query for each head");
    assert_eq!(out.len(), shape.num_heads * context, "a weight for each head and token");
    let first = shape.first_visible(context);
    workers.for_each_chunk(out, context, |head, weights| {
        let query = &queries[head * shape.head_dim..][..shape.head_dim];
        weights[..first].fill(0.0);
        for (block, scores) in weights.chunks_mut(BLOCK).enumerate().skip(first / BLOCK) {
            block_scores(blocks.keys(row, block, head / group), query, shape.scale, scores);
        }
        if let Some(cap) = shape.softcap {
            weights[first..].iter_mut().for_each(|score| *score = cap * (*score / cap).tanh());
        }
        if let Some(slopes) = bias.slopes {
            for (at, score) in weights.iter_mut().enumerate().skip(first) {
                *score -= slopes.of(head, at, context - 1);
            }
        }
        if let Some(distances) = bias.distances {
            distances.add(head, blocks.places(row), first, &mut weights[first..]);
        }
        softmax(&mut weights[first..], bias.sinks.map(|sinks| sinks[head]));
        weights[..first].fill(0.0);
    });
}

/// The scores of the first tokens of a block.
fn block_scores<T: KvStep>(keys: &[T], query: &[f32], scale: f32, scores: &mut [f32]) {
    let mut sums = [0.0_f32; BLOCK];
    for (dimension, &q) in query.iter().enumerate() {
        let step = &keys[dimension / 2];
        for (token, sum) in sums[..scores.len()].iter_mut().enumerate() {
            *sum += q * step.get(token, dimension % 2);
        }
    }
    for (token, (score, sum)) in scores.iter_mut().zip(sums).enumerate() {
        *score = sum * T::scale(keys, token) * scale;
    }
}

/// In place, with the sum in double precision. A sink takes its part, and has no place.
fn softmax(scores: &mut [f32], sink: Option<f32>) {
    let largest = scores.iter().copied().fold(sink.unwrap_or(f32::NEG_INFINITY), f32::max);
    let mut sum = sink.map_or(0.0, |sink| f64::from((sink - largest).exp()));
    for score in &mut *scores {
        *score = (*score - largest).exp();
        sum += f64::from(*score);
    }
    for score in scores {
        *score = (f64::from(*score) / sum) as f32;
    }
}
