//! The activation rows of a matrix multiplication, regrouped into tiles so that a tile's values for one step of
//! inputs lie side by side.

use crate::kernels::isa::Isa;
use crate::kernels::parallel::Disjoint;
use crate::kernels::rms_norm::Norm;
use crate::kernels::simd::{Simd, SimdOp};
use crate::kernels::threads::Workers;

/// Two consecutive inputs of a row, as a kernel multiplies them.
pub trait InputPair: Copy + Default + Send + Sync + 'static {
    /// From the even and the odd input.
    fn new(even: f32, odd: f32) -> Self;
    /// Rows of values as rows of pairs, of which the first `used` values matter; `memory` is for those that have to be made.
    #[doc(hidden)]
    fn pairs<'a, const N: usize, const HALF: usize>(
        rows: &'a [[f32; N]],
        used: usize,
        memory: &'a mut [[Self; HALF]],
    ) -> &'a [[Self; HALF]];
    /// The rows that hold such pairs.
    #[doc(hidden)]
    fn buffer(rows: &mut Buffers) -> &mut Vec<Self>;
    /// The same, to be read.
    #[doc(hidden)]
    fn values(rows: &Buffers) -> &[Self];
}

/// Two `bfloat16` in one word: the even input in its low half.
#[derive(Clone, Copy, Default)]
pub struct Bf16Pair(pub(super) u32);

impl InputPair for [f32; 2] {
    #[inline(always)]
    fn new(even: f32, odd: f32) -> Self {
        [even, odd]
    }

    #[inline(always)]
    fn pairs<'a, const N: usize, const HALF: usize>(
        rows: &'a [[f32; N]],
        _used: usize,
        _memory: &'a mut [[Self; HALF]],
    ) -> &'a [[Self; HALF]] {
        rows.as_flattened().as_chunks().0.as_chunks().0
    }

    fn buffer(rows: &mut Buffers) -> &mut Vec<Self> {
        &mut rows.floats
    }

    fn values(rows: &Buffers) -> &[Self] {
        &rows.floats
    }
}

impl InputPair for Bf16Pair {
    #[inline(always)]
    fn new(even: f32, odd: f32) -> Self {
        Self(round_bf16(even) >> 16 | round_bf16(odd))
    }

    #[inline(always)]
    fn pairs<'a, const N: usize, const HALF: usize>(
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

    fn buffer(rows: &mut Buffers) -> &mut Vec<Self> {
        &mut rows.words
    }

    fn values(rows: &Buffers) -> &[Self] {
        &rows.words
    }
}

/// The nearest `bfloat16`, ties to even, in the high half of a word. Without a branch, so that it vectorizes.
#[inline(always)]
fn round_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let quiet = bits | 0x0040_0000;
    (if value.is_nan() { quiet } else { rounded }) & 0xffff_0000
}

/// The memory of each kind of rows.
#[doc(hidden)]
#[derive(Default)]
pub struct Buffers {
    floats: Vec<[f32; 2]>,
    words: Vec<Bf16Pair>,
}

/// Activation rows as they come: `[num_rows, num_inputs]`.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Their numbers.
    pub values: &'a [f32],
    /// Whether each row is normalized on its way into the multiplication.
    pub norm: Option<Norm<'a>>,
}

impl<'a> From<&'a [f32]> for Inputs<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self { values, norm: None }
    }
}

/// Activation rows, packed for the instruction set: `[tile][step][row of the tile]`, each element a pair of inputs.
///
/// Reusable: [`PackedRows::pack`] keeps the memory of the last use.
#[derive(Default)]
pub struct PackedRows {
    buffers: Buffers,
    num_rows: usize,
    num_inputs: usize,
    num_tiles: usize,
}

/// A tile: the index of its first row, the number of its rows, and their values, `[steps][rows]`.
pub(super) struct RowTile<'a, P> {
    pub(super) first: usize,
    pub(super) num_rows: usize,
    pub(super) values: &'a [P],
}

/// The steps of a row that are packed in one go.
const STRIP: usize = 16;

impl PackedRows {
    /// Packs rows of `num_inputs` values.
    pub fn pack<P: InputPair>(&mut self, workers: &Workers, inputs: Inputs<'_>, num_inputs: usize) {
        let Inputs { values: x, norm } = inputs;
        let num_rows = x.len() / num_inputs;
        assert_eq!(num_rows * num_inputs, x.len(), "whole rows");
        assert!(norm.is_none_or(|norm| norm.weight.len() == num_inputs), "a weight for each input");
        let parts = Disjoint::new(self.sized::<P>(workers.isa(), num_rows, num_inputs));
        let (num_tiles, steps) = (num_rows.div_ceil(tile_rows(workers.isa())), num_inputs.div_ceil(2));
        let pack_tile = |tile: usize| {
            let rows = tile_range(tile, num_tiles, num_rows);
            // SAFETY: each tile is packed once, and tiles do not overlap.
            let out = unsafe { parts.part(rows.start * steps..rows.end * steps) };
            let x = &x[rows.start * num_inputs..rows.end * num_inputs];
            workers.isa().run(PackTile { x, norm, num_inputs, num_rows: rows.len(), out });
        };
        if num_tiles > 1 {
            workers.run(num_tiles, &pack_tile);
        } else if num_rows > 0 {
            pack_tile(0);
        }
    }

    /// The memory for so many rows, whose values are about to be written.
    pub(super) fn sized<P: InputPair>(&mut self, isa: Isa, num_rows: usize, num_inputs: usize) -> &mut [P] {
        (self.num_rows, self.num_inputs) = (num_rows, num_inputs);
        self.num_tiles = num_rows.div_ceil(tile_rows(isa));
        let values = P::buffer(&mut self.buffers);
        values.resize(num_rows * num_inputs.div_ceil(2), P::default());
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

    /// The number of tiles.
    pub(super) fn num_tiles(&self) -> usize {
        self.num_tiles
    }

    /// The tiles, which are as equal as possible.
    #[inline(always)]
    pub(super) fn tiles<P: InputPair>(&self) -> impl Iterator<Item = RowTile<'_, P>> {
        let (values, steps) = (P::values(&self.buffers), self.num_inputs.div_ceil(2));
        (0..self.num_tiles).map(move |tile| {
            let rows = tile_range(tile, self.num_tiles, self.num_rows);
            RowTile {
                first: rows.start,
                num_rows: rows.len(),
                values: &values[rows.start * steps..rows.end * steps],
            }
        })
    }
}

fn tile_range(tile: usize, num_tiles: usize, num_rows: usize) -> std::ops::Range<usize> {
    tile * num_rows / num_tiles..(tile + 1) * num_rows / num_tiles
}

/// One tile of rows, `[num_rows, num_inputs]`, to be packed.
struct PackTile<'a, P> {
    x: &'a [f32],
    norm: Option<Norm<'a>>,
    num_inputs: usize,
    num_rows: usize,
    out: &'a mut [P],
}

impl<P: InputPair> SimdOp for PackTile<'_, P> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let Self { x, norm, num_inputs, num_rows, out } = self;
        macro_rules! rows {
            ($($m:literal)*) => {
                match num_rows {
                    $($m => pack_tile::<S, P, $m>(s, x, norm, num_inputs, out),)*
                    _ => unreachable!("a tile has at most 12 rows"),
                }
            };
        }
        rows!(1 2 3 4 5 6 7 8 9 10 11 12);
    }
}

/// Packs a tile of `M` rows.
#[inline(always)]
fn pack_tile<S: Simd, P: InputPair, const M: usize>(
    s: S,
    x: &[f32],
    norm: Option<Norm<'_>>,
    num_inputs: usize,
    out: &mut [P],
) {
    let rows: [&[f32]; M] = std::array::from_fn(|r| &x[r * num_inputs..(r + 1) * num_inputs]);
    let mut scales = [1.0; M];
    if let Some(norm) = norm {
        for r in 0..M {
            scales[r] = norm.scale(s, rows[r]);
        }
    }
    let (steps, _) = out.as_chunks_mut::<M>();
    let (whole, rest) = steps.split_at_mut(num_inputs / 2);
    for (strip, steps) in whole.chunks_mut(STRIP).enumerate() {
        // First a strip of each row side by side, which is vector work, then to its places.
        let mut packed = [[P::default(); STRIP]; M];
        for r in 0..M {
            let begin = 2 * STRIP * strip;
            let range = begin..begin + 2 * steps.len();
            let mut normed = [0.0; 2 * STRIP];
            let mut values = &rows[r][range.clone()];
            if let Some(norm) = norm {
                let numbers = values.iter().zip(&norm.weight[range]);
                for (normed, (&value, &weight)) in normed.iter_mut().zip(numbers) {
                    *normed = weight * (value * scales[r]);
                }
                values = &normed[..values.len()];
            }
            for (packed, &[even, odd]) in packed[r].iter_mut().zip(values.as_chunks().0) {
                *packed = P::new(even, odd);
            }
        }
        for (i, step) in steps.iter_mut().enumerate() {
            for r in 0..M {
                step[r] = packed[r][i];
            }
        }
    }
    if let [step] = rest {
        for r in 0..M {
            let weight = norm.map_or(1.0, |norm| norm.weight[num_inputs - 1]);
            step[r] = P::new(weight * (rows[r][num_inputs - 1] * scales[r]), 0.0);
        }
    }
}

/// The most rows of a tile.
fn tile_rows(isa: Isa) -> usize {
    struct TileRows;
    impl SimdOp for TileRows {
        type Output = usize;
        #[inline(always)]
        fn eval<S: Simd>(self, _: S) -> usize {
            S::WIDE_TILE_ROWS.max(S::HALF_TILE_ROWS)
        }
    }
    isa.run(TileRows)
}
