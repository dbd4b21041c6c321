//! Attention of a tile with a long context, whose spans are divided among threads.
//!
//! The spans are those of [`tile`](super::tile) and are merged in the same order, so the results have the
//! same bits.

use std::ops::Range;

use super::fetch::KeyRange;
use super::span::SpanJob;
use super::tile::{Gather, Memory, Queries, TileHead, finish, merge_span};
use super::{KvBlocks, SPAN};
use crate::isa::Isa;
use crate::matmul::{InputPair, KvStep, PanelProducts, RowStep as _};
use crate::parallel::Disjoint;

/// The result of a span.
pub(super) struct Part<'a> {
    /// Weighted values, `[queries, head_dim rounded up to planes]`.
    values: &'a mut [f32],
    /// The maximum and the sum of the exponentials of each query.
    now: &'a mut [[f32; 2]],
}

impl<'a> Part<'a> {
    /// The numbers of a span.
    pub(super) fn len<B>(head: TileHead<'_, B>) -> usize {
        head.num_queries() * (head.width() + 2)
    }

    fn divide(part: &'a mut [f32], num_queries: usize) -> Self {
        let (values, now) = part.split_at_mut(part.len() - 2 * num_queries);
        Self { values, now: now.as_chunks_mut().0 }
    }
}

/// Computes some spans of a tile into `parts`: [`Part::len`] elements for each span of the context, from
/// `first_part` on. Each span is computed once.
pub(super) fn compute_spans<F: PanelProducts<Step: KvStep, Row: InputPair>, B: KvBlocks<F::Step>>(
    isa: Isa,
    head: TileHead<'_, B>,
    spans: Range<usize>,
    queries: Queries<'_>,
    memory: &mut Memory<'_, F::Row>,
    parts: &Disjoint<'_, f32>,
    first_part: usize,
) {
    F::Row::run(isa, Gather { head, queries, out: &mut *memory.queries });
    let order = [KeyRange::of(head), KeyRange::default()];
    for span in spans {
        let len = Part::len(head);
        // SAFETY: each span of a tile and a head is computed once.
        let part = unsafe { parts.part(first_part + span * len..first_part + (span + 1) * len) };
        let Part { values, now } = Part::divide(part, head.num_queries());
        F::Row::run(
            isa,
            SpanJob::<F, B> {
                head,
                start: span * SPAN,
                order,
                queries: memory.queries,
                scores: &mut *memory.scores,
                pairs: &mut *memory.pairs,
                values,
                now,
            },
        );
    }
}

/// Merges the spans of a tile, and writes its rows to `out`. `merged` is memory of at least [`Part::len`]
/// elements.
pub(super) fn merge_parts<T, B: KvBlocks<T>>(
    isa: Isa,
    head: TileHead<'_, B>,
    parts: &mut [f32],
    merged: &mut [f32],
    out: &Disjoint<'_, f32>,
) {
    let (len, num_queries) = (Part::len(head), head.num_queries());
    let merged = Part::divide(&mut merged[..len], num_queries);
    for span in super::spans(head) {
        let part = Part::divide(&mut parts[span * len..(span + 1) * len], num_queries);
        merge_span(isa, head, span * SPAN, part.values, part.now, merged.values, merged.now);
    }
    finish(isa, head, merged.values, merged.now, out);
}
