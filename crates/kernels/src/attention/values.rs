//! The weighted values of some tokens of a span.

use std::ops::Range;
use std::slice::ChunksExact;

use super::fetch::Fetch;
use super::span::{STRETCH, Span};
use super::{BLOCK, PAIRS};
use crate::matmul::{InputPair, KvStep, PanelProducts};
use crate::simd::{LANES, Simd};

/// The weights of the tokens of a span, in pairs.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a, P> {
    /// `[queries]`
    by_query: &'a [[P; PAIRS]],
    /// The same as `[PAIRS, queries]`, where half panels are multiplied: there they are read more often, and the
    /// compiler keeps the sums in registers only if it finds them side by side.
    by_token: &'a [P],
}

impl<'a, P: Copy + Default> Weights<'a, P> {
    /// Those of the visible tokens; `memory` is `[PAIRS, queries]`.
    #[inline(always)]
    pub(super) fn new<S: Simd>(
        _: S,
        by_query: &'a [[P; PAIRS]],
        memory: &'a mut [P],
        visible: &Range<usize>,
    ) -> Self {
        if const { S::HALF_QUERY_TILE > 0 } {
            let pairs = visible.start / 2..visible.end.div_ceil(2);
            let of_pairs = memory.chunks_exact_mut(by_query.len()).enumerate();
            for (pair, weights) in of_pairs.take(pairs.end).skip(pairs.start) {
                for (weight, row) in weights.iter_mut().zip(by_query) {
                    *weight = row[pair];
                }
            }
        }
        Self { by_query, by_token: memory }
    }

    /// Those of all queries, for some pairs.
    #[inline(always)]
    fn side_by_side(&self, pairs: Range<usize>) -> ChunksExact<'a, P> {
        let width = self.by_query.len();
        self.by_token[pairs.start * width..pairs.end * width].chunks_exact(width)
    }

    /// Those of `M` queries.
    #[inline(always)]
    fn copied<const M: usize>(&self, query: usize, pair: usize) -> [P; M] {
        let by_query: &[[P; PAIRS]; M] = self.by_query[query..].first_chunk().expect("as many as that");
        let mut copied = [P::default(); M];
        for m in 0..M {
            copied[m] = by_query[m][pair];
        }
        copied
    }
}

/// Tokens of a span as the row at `place` sees them, and the first plane of their values.
pub(super) struct Tokens {
    pub(super) place: usize,
    pub(super) range: Range<usize>,
    pub(super) plane: usize,
}

/// Adds the values of some tokens of a span, weighted for `M` queries from `query` on, in `N` planes, or in half of
/// one: one chain over the tokens each. `V` vectors of dimensions of a plane, from `first` on.
#[inline(always)]
pub(super) fn add_values<
    S: Simd,
    F: PanelProducts<Step: KvStep, Row: InputPair>,
    const M: usize,
    const N: usize,
    const V: usize,
>(
    s: S,
    query: usize,
    first: usize,
    span: &Span<'_, F>,
    &Tokens { place, range: ref tokens, plane }: &Tokens,
    weights: Weights<'_, F::Row>,
    out: &mut [f32],
) {
    let width = span.head.shape.head_dim.next_multiple_of(BLOCK);
    let start = |m: usize, n: usize| (query + m) * width + (plane + n) * BLOCK;
    let mut sums = [[[s.splat(0.0); V]; M]; N];
    for n in 0..N {
        for m in 0..M {
            let (sum, _) = out[start(m, n)..][..BLOCK].as_chunks::<LANES>();
            for v in 0..V {
                sums[n][m][v] = s.load(&sum[first + v]);
            }
        }
    }
    // Pairs of which both tokens are among them, between one at either end of which one is.
    let whole = tokens.start.div_ceil(2)..tokens.end / 2;
    let of_edge = |pair: usize| {
        let planes: &[_; N] = span.planes(place, 2 * pair / BLOCK * BLOCK, plane);
        planes.each_ref().map(|plane| &plane[pair % (BLOCK / 2)])
    };
    if tokens.start % 2 == 1 {
        let pair = tokens.start / 2;
        sums = add_edge::<S, F, M, N, V>(s, 1, first, of_edge(pair), &weights.copied(query, pair), sums);
    }
    let mut pair = whole.start;
    while pair < whole.end {
        let at = 2 * pair / BLOCK * BLOCK;
        let planes: &[_; N] = span.planes(place, at, plane);
        let mut fetch = Fetch { near: &[][..], far: &[] };
        if span.is_cold && query == 0 && first == 0 {
            let begin = plane * BLOCK / 2;
            fetch.near = if at + BLOCK < tokens.end { &span.values(place, at + BLOCK)[begin..] } else { &[] };
            fetch.far = span.keys_ahead(at).get(begin..).unwrap_or_default();
        }
        let end_of_block = whole.end.min(at / 2 + BLOCK / 2);
        while pair < end_of_block {
            let end = end_of_block.min(pair + STRETCH);
            for n in 0..N {
                let step = n * BLOCK / 2 + pair % (BLOCK / 2);
                fetch.beside(s, step..step + end - pair);
            }
            let place = pair % (BLOCK / 2);
            let mut steps = planes.each_ref().map(|plane| plane[place..place + end - pair].iter());
            'pairs: for (pair, side_by_side) in (pair..end).zip(weights.side_by_side(pair..end)) {
                let copied;
                let rows = if const { S::HALF_QUERY_TILE > 0 } {
                    side_by_side[query..].first_chunk().expect("as many as that")
                } else {
                    copied = weights.copied(query, pair);
                    &copied
                };
                for n in 0..N {
                    let Some(step) = steps[n].next() else { break 'pairs };
                    F::multiply_add(s, step, first, rows, &mut sums[n]);
                }
            }
            pair = end;
        }
    }
    if tokens.end % 2 == 1 {
        let pair = tokens.end / 2;
        sums = add_edge::<S, F, M, N, V>(s, 0, first, of_edge(pair), &weights.copied(query, pair), sums);
    }
    for n in 0..N {
        for m in 0..M {
            let (sum, _) = out[start(m, n)..][..BLOCK].as_chunks_mut::<LANES>();
            for v in 0..V {
                s.store(sums[n][m][v], &mut sum[first + v]);
            }
        }
    }
}

/// Adds the values of one token of a pair, as [`add_values`] does. The sums are not borrowed, so that they stay in
/// registers.
#[inline(always)]
fn add_edge<
    S: Simd,
    F: PanelProducts<Step: KvStep, Row: InputPair>,
    const M: usize,
    const N: usize,
    const V: usize,
>(
    s: S,
    token: usize,
    first: usize,
    steps: [&F::Step; N],
    weights: &[F::Row; M],
    mut sums: [[[S::F; V]; M]; N],
) -> [[[S::F; V]; M]; N] {
    for n in 0..N {
        F::multiply_add(s, &steps[n].only(token), first, weights, &mut sums[n]);
    }
    sums
}
