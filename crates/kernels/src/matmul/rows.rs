//! The activation rows of a matrix multiplication, regrouped into tiles so that a tile's values for one step
//! of inputs lie side by side.

use std::ops::Range;

use super::groups::RowGroup;
use super::integers::RowIntegers;
use super::prologue::Prologue;
use super::tiling::Tiling;
use crate::isa::Isa;
use crate::norm::Moments;
use crate::parallel::Disjoint;
use crate::simd::{LANES, Simd, SimdOp, round_bf16};
use crate::threads::Workers;
use crate::transpose::transpose_halves;

/// The most vectors of a row that [`RowStep::arrange`] takes at once.
pub(super) const STRIP_VECTORS: usize = 4;

/// The most rows of a tile.
pub(super) const MOST_TILE_ROWS: usize = 12;

/// The inputs of a row for one step of weights, as a kernel multiplies them.
pub trait RowStep: Copy + Default + Send + Sync + 'static {
    /// The inputs per step.
    const INPUTS: usize = 2;
    /// The vectors of a row that [`RowStep::arrange`] takes at once: whole steps.
    #[doc(hidden)]
    const VECTORS: usize = 2;
    /// Whether a gate and an up make such a step only together with their neighbours.
    #[doc(hidden)]
    const SPANS_PANELS: bool = false;
    /// Whether a tile has integer sums beside its float sums.
    #[doc(hidden)]
    const HAS_INTEGER_SUMS: bool = false;
    /// Puts the steps of several rows side by side: `out` is `[steps, rows]`. Of each row there are the first
    /// [`RowStep::VECTORS`] of `V` vectors; `out` may have room for fewer steps than they hold.
    #[doc(hidden)]
    fn arrange<S: Simd, const V: usize>(s: S, rows: &[[S::F; V]], out: &mut [Self]);
    /// The most rows of a tile, where there are `num_rows` in all.
    #[doc(hidden)]
    #[inline(always)]
    fn most_rows<S: Simd>(_num_rows: usize) -> usize {
        let (wide, half) = const { tile_rows::<S, Self>() };
        wide.max(half)
    }
    /// Runs an operation that makes such steps or multiplies them.
    #[doc(hidden)]
    fn run<O: SimdOp>(isa: Isa, operation: O) -> O::Output {
        isa.run(operation)
    }
    /// The rows that hold such steps.
    #[doc(hidden)]
    fn buffer(rows: &mut Buffers) -> &mut Vec<Self>;
    /// The same, for reading.
    #[doc(hidden)]
    fn values(rows: &Buffers) -> &[Self];
}

/// The most rows of a tile that is one panel wide, and of one that is half a panel wide.
pub(super) const fn tile_rows<S: Simd, R: RowStep>() -> (usize, usize) {
    if R::HAS_INTEGER_SUMS {
        (S::WIDE_INTEGER_ROWS, S::HALF_INTEGER_ROWS)
    } else {
        (S::WIDE_TILE_ROWS, S::HALF_TILE_ROWS)
    }
}

/// Two consecutive inputs of a row.
pub trait InputPair: RowStep {
    /// From the even and the odd input.
    fn new(even: f32, odd: f32) -> Self;
    /// Converts rows of values to rows of pairs; only the first `used` values matter. `memory` holds
    /// converted pairs.
    #[doc(hidden)]
    fn pairs<'a, S: Simd, const N: usize, const HALF: usize>(
        s: S,
        rows: &'a [[f32; N]],
        used: usize,
        memory: &'a mut [[Self; HALF]],
    ) -> &'a [[Self; HALF]];
}

/// Two `bfloat16` in one word: the even input in its low half.
#[derive(Clone, Copy, Default)]
pub struct Bf16Pair(pub(super) u32);

/// Two `bfloat16` as `float32`, for instruction sets that multiply nothing else.
#[derive(Clone, Copy, Default)]
pub struct WidenedBf16Pair([f32; 2]);

/// A pair of inputs that are multiplied in `float32`.
pub(crate) trait FloatPair: RowStep {
    /// The inputs in the order in which their products are added.
    const ORDER: [usize; 2];

    /// The even input, 0, or the odd one, 1.
    fn float(&self, i: usize) -> f32;
}

impl FloatPair for [f32; 2] {
    const ORDER: [usize; 2] = [0, 1];

    #[inline(always)]
    fn float(&self, i: usize) -> f32 {
        self[i]
    }
}

impl FloatPair for WidenedBf16Pair {
    /// That of the instruction that it stands in for.
    const ORDER: [usize; 2] = [1, 0];

    #[inline(always)]
    fn float(&self, i: usize) -> f32 {
        self.0[i]
    }
}

impl InputPair for [f32; 2] {
    #[inline(always)]
    fn new(even: f32, odd: f32) -> Self {
        [even, odd]
    }

    #[inline(always)]
    fn pairs<'a, S: Simd, const N: usize, const HALF: usize>(
        _: S,
        rows: &'a [[f32; N]],
        _used: usize,
        _memory: &'a mut [[Self; HALF]],
    ) -> &'a [[Self; HALF]] {
        rows.as_flattened().as_chunks().0.as_chunks().0
    }
}

impl RowStep for [f32; 2] {
    #[inline(always)]
    fn arrange<S: Simd, const V: usize>(s: S, rows: &[[S::F; V]], out: &mut [Self]) {
        arrange_pairs(s, rows, out);
    }

    fn buffer(rows: &mut Buffers) -> &mut Vec<Self> {
        &mut rows.floats
    }

    fn values(rows: &Buffers) -> &[Self] {
        &rows.floats
    }
}

/// [`RowStep::arrange`] for pairs that are made one by one.
#[inline(always)]
fn arrange_pairs<S: Simd, P: InputPair, const V: usize>(s: S, rows: &[[S::F; V]], out: &mut [P]) {
    for (r, row) in rows.iter().enumerate() {
        let mut values = [[0.0; LANES]; 2];
        s.store(row[0], &mut values[0]);
        s.store(row[1], &mut values[1]);
        let (pairs, _) = values.as_flattened().as_chunks();
        for (out, &[even, odd]) in out[r..].iter_mut().step_by(rows.len()).zip(pairs) {
            *out = P::new(even, odd);
        }
    }
}

impl InputPair for WidenedBf16Pair {
    #[inline(always)]
    fn new(even: f32, odd: f32) -> Self {
        Self([f32::from_bits(round_bf16(even)), f32::from_bits(round_bf16(odd))])
    }

    #[inline(always)]
    fn pairs<'a, S: Simd, const N: usize, const HALF: usize>(
        _: S,
        rows: &'a [[f32; N]],
        used: usize,
        memory: &'a mut [[Self; HALF]],
    ) -> &'a [[Self; HALF]] {
        for (row, pairs) in rows.iter().zip(&mut *memory) {
            let (values, _) = row[..used.next_multiple_of(2)].as_chunks::<2>();
            for (pair, &[even, odd]) in pairs.iter_mut().zip(values) {
                *pair = Self::new(even, odd);
            }
        }
        memory
    }
}

impl RowStep for WidenedBf16Pair {
    #[inline(always)]
    fn arrange<S: Simd, const V: usize>(s: S, rows: &[[S::F; V]], out: &mut [Self]) {
        arrange_pairs(s, rows, out);
    }

    fn buffer(rows: &mut Buffers) -> &mut Vec<Self> {
        &mut rows.widened
    }

    fn values(rows: &Buffers) -> &[Self] {
        &rows.widened
    }
}

impl InputPair for Bf16Pair {
    #[inline(always)]
    fn new(even: f32, odd: f32) -> Self {
        Self(round_bf16(even) >> 16 | round_bf16(odd))
    }

    #[inline(always)]
    fn pairs<'a, S: Simd, const N: usize, const HALF: usize>(
        s: S,
        rows: &'a [[f32; N]],
        used: usize,
        memory: &'a mut [[Self; HALF]],
    ) -> &'a [[Self; HALF]] {
        for (row, pairs) in rows.iter().zip(&mut *memory) {
            let (values, _) = row.as_chunks::<LANES>();
            let (values, _) = values[..used.div_ceil(2 * LANES) * 2].as_chunks::<2>();
            for ([first, second], pairs) in values.iter().zip(pairs.chunks_mut(LANES)) {
                copy_words(s, s.bf16_pairs(s.load(first), s.load(second)), pairs);
            }
        }
        memory
    }
}

impl RowStep for Bf16Pair {
    #[inline(always)]
    fn arrange<S: Simd, const V: usize>(s: S, rows: &[[S::F; V]], out: &mut [Self]) {
        const STEPS: usize = LANES / 2;
        if let [row] = rows {
            return copy_words(s, s.bf16_pairs(row[0], row[1]), out);
        }
        for (v, out) in out.chunks_mut(STEPS * rows.len()).enumerate() {
            // The steps of row `r` are one half of a vector, those of row `r + 8` the other.
            let mut words = [s.splat(0.0); STEPS];
            for (r, row) in rows.iter().enumerate().take(STEPS) {
                let other = rows.get(r + STEPS).map_or(s.splat(0.0), |row| row[v]);
                words[r] = s.bf16_pairs(row[v], other);
            }
            transpose_halves(s, &mut words);
            for (i, word) in words.into_iter().enumerate() {
                // The next step overwrites the excess rows of a vector.
                if let Some(out) = out.get_mut(i * rows.len()..) {
                    copy_words(s, word, out);
                }
            }
        }
    }

    fn run<O: SimdOp>(isa: Isa, operation: O) -> O::Output {
        isa.run_bf16(operation)
    }

    fn buffer(rows: &mut Buffers) -> &mut Vec<Self> {
        &mut rows.words
    }

    fn values(rows: &Buffers) -> &[Self] {
        &rows.words
    }
}

/// Copies the words of a vector, as many as there is room for.
#[inline(always)]
fn copy_words<S: Simd>(s: S, words: S::F, out: &mut [Bf16Pair]) {
    let mut lanes = [0.0; LANES];
    s.store(words, &mut lanes);
    // A loop: in builds without link-time optimization `map` of an array is a call, which took a twentieth of
    // a prompt's time.
    let mut words = [Bf16Pair(0); LANES];
    for i in 0..LANES {
        words[i] = Bf16Pair(lanes[i].to_bits());
    }
    if let Some(out) = out.first_chunk_mut() {
        *out = words;
    } else {
        out.copy_from_slice(&words[..out.len()]);
    }
}

/// The memory of each kind of rows.
#[doc(hidden)]
#[derive(Default)]
pub struct Buffers {
    floats: Vec<[f32; 2]>,
    words: Vec<Bf16Pair>,
    widened: Vec<WidenedBf16Pair>,
    pub(super) long_groups: Vec<RowGroup<16>>,
    pub(super) short_groups: Vec<RowGroup<8>>,
    pub(super) integers: Vec<RowIntegers>,
}

/// Unpacked activation rows, `[num_rows, num_inputs]`.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The values.
    pub values: &'a [f32],
    /// What packing does to each row.
    pub prologue: Prologue<'a>,
}

impl<'a> From<&'a [f32]> for Inputs<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self { values, prologue: Prologue::None }
    }
}

/// Activation rows, packed for the instruction set: `[tile][step][row of the tile]`, each element a
/// [`RowStep`].
///
/// [`PackedRows::pack`] reuses the memory.
#[derive(Default)]
pub struct PackedRows {
    buffers: Buffers,
    /// Rows on their way, `[num_rows, num_inputs]`.
    pub(super) unpacked: Vec<f32>,
    num_rows: usize,
    num_inputs: usize,
    tiling: Tiling,
}

/// A tile: the index of its first row, the number of its rows, and their values, `[steps][rows]`.
pub(super) struct RowTile<'a, P> {
    pub(super) first: usize,
    pub(super) num_rows: usize,
    pub(super) values: &'a [P],
}

impl PackedRows {
    /// Packs rows of `num_inputs` values.
    pub fn pack<P: RowStep>(&mut self, workers: &Workers, inputs: Inputs<'_>, num_inputs: usize) {
        let Inputs { values: x, prologue } = inputs;
        let num_rows = x.len() / num_inputs;
        assert_eq!(num_rows * num_inputs, x.len(), "whole rows");
        if let Prologue::Norm(norm) = prologue {
            assert_eq!(norm.weight.len(), num_inputs, "a weight for each input");
        }
        let tiling = Tiling::of::<P>(workers, num_rows);
        let parts = Disjoint::new(self.sized::<P>(tiling, num_rows, num_inputs));
        let (num_tiles, steps) = (tiling.num_tiles, num_inputs.div_ceil(P::INPUTS));
        let pack_tile = |tile: usize| {
            let rows = tiling.rows_of_tile(tile, num_rows);
            // SAFETY: each tile is packed once, and tiles do not overlap.
            let out = unsafe { parts.part(rows.start * steps..rows.end * steps) };
            let x = &x[rows.start * num_inputs..rows.end * num_inputs];
            P::run(workers.isa(), PackTile { x, prologue, num_inputs, num_rows: rows.len(), out });
        };
        if num_tiles > 1 {
            workers.run(num_tiles, &pack_tile);
        } else if num_rows > 0 {
            pack_tile(0);
        }
    }

    /// Resizes the memory for rows that will be written.
    pub(super) fn sized<P: RowStep>(
        &mut self,
        tiling: Tiling,
        num_rows: usize,
        num_inputs: usize,
    ) -> &mut [P] {
        (self.num_rows, self.num_inputs, self.tiling) = (num_rows, num_inputs, tiling);
        let values = P::buffer(&mut self.buffers);
        values.resize(num_rows * num_inputs.div_ceil(P::INPUTS), P::default());
        values
    }

    /// The number of rows.
    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// The values of each row.
    pub fn num_inputs(&self) -> usize {
        self.num_inputs
    }

    /// The tiling of the rows.
    pub(super) fn tiling(&self) -> Tiling {
        self.tiling
    }

    /// A range of the tiles; all tiles are about equally large.
    #[inline(always)]
    pub(super) fn tiles<P: RowStep>(&self, tiles: Range<usize>) -> impl Iterator<Item = RowTile<'_, P>> {
        let (values, steps) = (P::values(&self.buffers), self.num_inputs.div_ceil(P::INPUTS));
        tiles.map(move |tile| {
            let rows = self.tiling.rows_of_tile(tile, self.num_rows);
            RowTile {
                first: rows.start,
                num_rows: rows.len(),
                values: &values[rows.start * steps..rows.end * steps],
            }
        })
    }
}

/// The rows of one tile before packing, `[num_rows, num_inputs]`.
struct PackTile<'a, P> {
    x: &'a [f32],
    prologue: Prologue<'a>,
    num_inputs: usize,
    num_rows: usize,
    out: &'a mut [P],
}

impl<P: RowStep> SimdOp for PackTile<'_, P> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { x, prologue, num_inputs, num_rows, out } = self;
        // Steps that span panels are whole groups of a row, with nothing to interleave.
        if P::SPANS_PANELS {
            for (r, row) in x.chunks_exact(num_inputs).enumerate() {
                pack_row(s, row, prologue, out, num_rows, r);
            }
            return;
        }
        pack_tile(s, x, prologue, num_inputs, num_rows, out);
    }
}

/// Packs row `r` of a tile of `num_rows`, whose steps need nothing of other rows: the size of the tile needs
/// no code of its own.
#[inline(always)]
fn pack_row<S: Simd, P: RowStep>(
    s: S,
    row: &[f32],
    prologue: Prologue<'_>,
    out: &mut [P],
    num_rows: usize,
    r: usize,
) {
    let moments = prologue.moments(s, row);
    for step in 0..row.len().div_ceil(P::INPUTS) {
        let mut values = [s.splat(0.0); STRIP_VECTORS];
        for v in 0..P::INPUTS / LANES {
            let begin = step * P::INPUTS + v * LANES;
            values[v] = prologue.apply(s, row, prologue.weight(s, begin), moments, begin);
        }
        P::arrange(s, &[values], std::slice::from_mut(&mut out[step * num_rows + r]));
    }
}

/// Packs a tile.
#[inline(always)]
fn pack_tile<S: Simd, P: RowStep>(
    s: S,
    x: &[f32],
    prologue: Prologue<'_>,
    num_inputs: usize,
    num_rows: usize,
    out: &mut [P],
) {
    let mut moments = [Moments::default(); MOST_TILE_ROWS];
    let rows = || x.chunks_exact(num_inputs);
    for (moments, row) in moments.iter_mut().zip(rows()) {
        *moments = prologue.moments(s, row);
    }
    let mut values = [[s.splat(0.0); STRIP_VECTORS]; MOST_TILE_ROWS];
    for (strip, out) in out.chunks_mut(P::VECTORS * LANES / P::INPUTS * num_rows).enumerate() {
        for v in 0..P::VECTORS {
            let begin = (P::VECTORS * strip + v) * LANES;
            let weight = prologue.weight(s, begin);
            for ((values, row), &moments) in values.iter_mut().zip(rows()).zip(&moments) {
                values[v] = prologue.apply(s, row, weight, moments, begin);
            }
        }
        P::arrange(s, &values[..num_rows], out);
    }
}
