//! Attention of a tile with a long context, whose spans are divided among threads.
//!
//! The spans are those of [`tile`](super::tile) and are merged in the same order, so the results have the
//! same bits.

use std::ops::Range;

use super::SPAN;
use super::fetch::KeyRange;
use super::span::SpanJob;
use super::tile::{Gather, Memory, Part, Queries, TileHead, TileMemory, finish, merge_span};
use crate::isa::Isa;
use crate::matmul::{InputPair, KvStep, PanelProducts, RowStep as _};
use crate::parallel::Disjoint;

/// Computes some spans of a tile into `parts`: [`Part::len`] elements for each span of the context, from
/// `first_part` on. Each span is computed once.
pub(super) fn compute_spans<F: PanelProducts<Step: KvStep, Row: InputPair>>(
    isa: Isa,
    head: TileHead<'_, F::Step>,
    spans: Range<usize>,
    queries: Queries<'_>,
    memory: &mut Memory<'_, F::Row>,
    parts: &Disjoint<'_, f32>,
    first_part: usize,
) {
    let TileMemory { queries: packed, mut working, .. } = memory.tile(0, head.num_queries());
    F::Row::run(isa, Gather { head, queries, out: &mut *packed });
    let order = [KeyRange::of(head), KeyRange::default()];
    for span in spans {
        let len = Part::len(head);
        // SAFETY: each span of a tile and a head is computed once.
        let part = unsafe { parts.part(first_part + span * len..first_part + (span + 1) * len) };
        let part = &mut Part::divide(part, head.num_queries());
        let (queries, working) = (&*packed, &mut working);
        F::Row::run(isa, SpanJob::<F> { head, start: span * SPAN, order, queries, working, part });
    }
}

/// Merges the spans of a tile, and writes its rows to `out`. `merged` is memory of at least [`Part::len`]
/// elements.
pub(super) fn merge_parts<T: KvStep>(
    isa: Isa,
    head: TileHead<'_, T>,
    parts: &mut [f32],
    merged: &mut [f32],
    out: &Disjoint<'_, f32>,
) {
    let (len, num_queries) = (Part::len(head), head.num_queries());
    let mut merged = Part::divide(&mut merged[..len], num_queries);
    for span in super::spans(head) {
        let part = Part::divide(&mut parts[span * len..(span + 1) * len], num_queries);
        merge_span(isa, head, span * SPAN, &part, &mut merged);
    }
    finish(isa, head, &merged, out);
}
