//! The number formats that weights are packed in.

use std::mem::MaybeUninit;

use half::f16;

use super::rows::{Bf16Pair, FloatPair, RowStep, WidenedBf16Pair};
use super::step::{Bf16Step, F32Step, I8Step, KvStep};
use crate::simd::{LANES, Simd};
use crate::transpose::transpose;

/// The outputs of a panel: two vectors.
pub const PANEL_ROWS: usize = 2 * LANES;

/// The arithmetic of panels: multiplies a step of weights with the inputs of rows.
pub trait PanelProducts: Send + Sync + Sized + 'static {
    /// The weights of 32 outputs for some consecutive inputs; zeros by default.
    type Step: Copy + Default + Send + Sync + 'static;

    /// How a row holds the inputs of a step.
    type Row: RowStep;

    /// Adds the products of one step to the sums of `M` rows and `V` vectors of outputs, from vector `first`
    /// of the panel on. Each sum takes the products one after the other, or those of an integer group at
    /// once.
    #[doc(hidden)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
    );
}

/// A number format of packed weights.
pub trait PanelFormat: PanelProducts {
    /// The bytes of a stored weight, as [`PanelFormat::pack`] takes it.
    const STORED_BYTES: usize;

    /// Packs the stored rows of a panel into its steps, all of them; a row may lack what is zero at its end.
    /// Returns whether all weights are finite.
    #[doc(hidden)]
    fn pack<S: Simd>(s: S, rows: [&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self::Step>]) -> bool;

    /// One weight of a step, widened.
    fn get(step: &Self::Step, lane: usize, i: usize) -> f32;

    /// Appends a step as a packed file holds it; nothing if files hold none of this format.
    fn write(_step: &Self::Step, _out: &mut Vec<u8>) {}
}

/// A format whose steps a file may hold as they are.
pub trait FileFormat: PanelFormat {
    /// The bytes of a step in a file.
    const STEP_BYTES: usize = size_of::<Self::Step>();

    /// The step that a file holds in these [`FileFormat::STEP_BYTES`] bytes; `None` if no weights are packed
    /// like that.
    fn read(bytes: &[u8]) -> Option<Self::Step>;
}

/// A format whose weights are stored in this very format, two inputs to a step.
trait StoredPairs: PanelProducts {
    /// The step of 32 outputs: `words` are the 32-bit words of the two weights of each output, little-endian,
    /// as `[word][half][lane]`. The second part of the result says whether all of them are finite.
    fn step_of_words(words: &[[[u32; LANES]; 2]]) -> (Self::Step, bool);
}

/// [`PanelFormat::pack`] for weights of `WORDS` words for two inputs.
#[inline(always)]
fn pack_pairs<S: Simd, F: StoredPairs, const WORDS: usize>(
    s: S,
    rows: [&[u8]; PANEL_ROWS],
    steps: &mut [MaybeUninit<F::Step>],
) -> bool {
    let mut all_finite = true;
    for (strip, steps) in steps.chunks_mut(LANES / WORDS).enumerate() {
        let words = load_block(s, &rows, strip);
        for (step, words) in steps.iter_mut().zip(words.chunks_exact(WORDS)) {
            let (packed, finite) = F::step_of_words(words);
            all_finite &= finite;
            step.write(packed);
        }
    }
    all_finite
}

/// Strip `strip` of 64 bytes of 32 rows as `[word][half][lane]`, a lane for each row; zeros where a row ends.
#[inline(always)]
pub(super) fn load_block<S: Simd>(
    s: S,
    rows: &[&[u8]; PANEL_ROWS],
    strip: usize,
) -> [[[u32; LANES]; 2]; LANES] {
    const STRIP: usize = 4 * LANES;
    let mut words = [[[0; LANES]; 2]; LANES];
    for half in 0..2 {
        let mut block = [s.splat(0.0); LANES];
        for (lane, words) in block.iter_mut().enumerate() {
            let row = rows[half * LANES + lane];
            if let Some(bytes) = row.get(strip * STRIP..(strip + 1) * STRIP) {
                *words = load_words(s, bytes);
            } else {
                let mut last = [0; STRIP];
                let rest = row.get(strip * STRIP..).unwrap_or_default();
                last[..rest.len()].copy_from_slice(rest);
                *words = load_words(s, &last);
            }
        }
        transpose(s, &mut block);
        for (words, lanes) in words.iter_mut().zip(block) {
            let mut values = [0.0; LANES];
            s.store(lanes, &mut values);
            words[half] = values.map(f32::to_bits);
        }
    }
    words
}

/// Little-endian words as lanes that stand for their bits.
#[inline(always)]
fn load_words<S: Simd>(s: S, bytes: &[u8]) -> S::F {
    let mut words = [0.0; LANES];
    for (word, &bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = f32::from_bits(u32::from_le_bytes(bytes));
    }
    s.load(&words)
}

/// Whether `holds` is true for all lanes; without a branch, so that it vectorizes.
#[inline(always)]
fn all_lanes(words: &[[u32; LANES]; 2], holds: impl Fn(u32) -> bool) -> bool {
    words.as_flattened().iter().fold(true, |all, &word| all & holds(word))
}

/// A step whose weights are widened to `float32` as they are multiplied.
trait WidenedStep {
    /// The weights of 16 outputs for the `i`-th input. A method: closures are not always inlined, and then
    /// each vector costs a call.
    fn weights<S: Simd>(&self, s: S, vector: usize, i: usize) -> S::F;
}

/// [`PanelProducts::multiply_add`] in `float32`, the two inputs of a step in the given order.
#[inline(always)]
fn widened_multiply_add<S: Simd, T: WidenedStep, R: FloatPair, const M: usize, const V: usize>(
    s: S,
    step: &T,
    first: usize,
    rows: &[R; M],
    order: [usize; 2],
    sums: &mut [[S::F; V]; M],
) {
    for i in order {
        let mut vectors = [s.splat(0.0); V];
        for v in 0..V {
            vectors[v] = step.weights(s, first + v, i);
        }
        for r in 0..M {
            let x = s.splat(rows[r].float(i));
            for v in 0..V {
                sums[r][v] = s.fma(vectors[v], x, sums[r][v]);
            }
        }
    }
}

/// Weights in `bfloat16`, two inputs of an output in one 32-bit word.
#[derive(Debug, Clone, Copy)]
pub struct Bf16Panels;

impl WidenedStep for Bf16Step {
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, vector: usize, i: usize) -> S::F {
        if i == 0 { s.bf16_low(&self.0[vector]) } else { s.bf16_high(&self.0[vector]) }
    }
}

impl PanelProducts for Bf16Panels {
    type Step = Bf16Step;
    type Row = [f32; 2];

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
    ) {
        widened_multiply_add(s, step, first, rows, [0, 1], sums);
    }
}

impl StoredPairs for Bf16Panels {
    #[inline(always)]
    fn step_of_words(words: &[[[u32; LANES]; 2]]) -> (Self::Step, bool) {
        // Two adjacent numbers are already the word of a lane.
        let finite = |word: u32| word & 0x7f80 != 0x7f80 && word & 0x7f80_0000 != 0x7f80_0000;
        (Bf16Step(words[0]), all_lanes(&words[0], finite))
    }
}

impl PanelFormat for Bf16Panels {
    const STORED_BYTES: usize = 2;

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: [&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self::Step>]) -> bool {
        pack_pairs::<S, Self, 1>(s, rows, steps)
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        step.get(lane, i)
    }
}

/// Weights in `float32`.
#[derive(Debug, Clone, Copy)]
pub struct F32Panels;

impl WidenedStep for F32Step {
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, vector: usize, i: usize) -> S::F {
        s.load(&self.0[i][vector])
    }
}

impl PanelProducts for F32Panels {
    type Step = F32Step;
    type Row = [f32; 2];

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
    ) {
        widened_multiply_add(s, step, first, rows, [0, 1], sums);
    }
}

impl StoredPairs for F32Panels {
    #[inline(always)]
    fn step_of_words(words: &[[[u32; LANES]; 2]]) -> (Self::Step, bool) {
        let finite = |word: u32| f32::from_bits(word).is_finite();
        let step = [0, 1].map(|i| words[i].map(|half| half.map(f32::from_bits)));
        (F32Step(step), all_lanes(&words[0], finite) & all_lanes(&words[1], finite))
    }
}

impl PanelFormat for F32Panels {
    const STORED_BYTES: usize = 4;

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: [&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self::Step>]) -> bool {
        pack_pairs::<S, Self, 2>(s, rows, steps)
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        step.get(lane, i)
    }
}

/// 8-bit integers of a KV cache. The scale of each token is applied by the caller.
#[derive(Debug, Clone, Copy)]
pub struct I8Panels;

impl WidenedStep for I8Step {
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, vector: usize, i: usize) -> S::F {
        s.i8(&self.0[i][vector])
    }
}

impl PanelProducts for I8Panels {
    type Step = I8Step;
    type Row = [f32; 2];

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
    ) {
        widened_multiply_add(s, step, first, rows, [0, 1], sums);
    }
}

/// Weights in `float16`.
#[derive(Debug, Clone, Copy)]
pub struct F16Panels;

/// `[input][half][lane]`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(align(64))]
pub struct F16Step([[[u16; LANES]; 2]; 2]);

impl WidenedStep for F16Step {
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, vector: usize, i: usize) -> S::F {
        s.f16(&self.0[i][vector])
    }
}

impl PanelProducts for F16Panels {
    type Step = F16Step;
    type Row = [f32; 2];

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
    ) {
        widened_multiply_add(s, step, first, rows, [0, 1], sums);
    }
}

impl StoredPairs for F16Panels {
    #[inline(always)]
    fn step_of_words(words: &[[[u32; LANES]; 2]]) -> (Self::Step, bool) {
        let finite = |word: u32| word & 0x7c00 != 0x7c00 && word & 0x7c00_0000 != 0x7c00_0000;
        let input = |i: usize| words[0].map(|half| half.map(|word| (word >> (16 * i)) as u16));
        (F16Step([input(0), input(1)]), all_lanes(&words[0], finite))
    }
}

impl PanelFormat for F16Panels {
    const STORED_BYTES: usize = 2;

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: [&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self::Step>]) -> bool {
        pack_pairs::<S, Self, 1>(s, rows, steps)
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        f16::from_bits(step.0[i][lane / LANES][lane % LANES]).to_f32()
    }
}

/// Weights in `bfloat16` for `bfloat16` arithmetic: activations are rounded to `bfloat16`, products and sums
/// are not.
///
/// Each output is one chain as in the other formats, the odd input of a step before the even one, because
/// that is what the processor's instruction does. Where there is none ([`Isa::has_bf16_products`]),
/// [`EmulatedBf16Products`] gives the same bits faster.
///
/// [`Isa::has_bf16_products`]: crate::Isa::has_bf16_products
#[derive(Debug, Clone, Copy)]
pub struct Bf16Products;

impl PanelProducts for Bf16Products {
    type Step = Bf16Step;
    type Row = Bf16Pair;

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
    ) {
        for r in 0..M {
            for v in 0..V {
                sums[r][v] = s.dot_bf16(&step.0[first + v], rows[r].0, sums[r][v]);
            }
        }
    }
}

impl StoredPairs for Bf16Products {
    #[inline(always)]
    fn step_of_words(words: &[[[u32; LANES]; 2]]) -> (Self::Step, bool) {
        Bf16Panels::step_of_words(words)
    }
}

impl PanelFormat for Bf16Products {
    const STORED_BYTES: usize = Bf16Panels::STORED_BYTES;

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: [&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self::Step>]) -> bool {
        pack_pairs::<S, Self, 1>(s, rows, steps)
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        Bf16Panels::get(step, lane, i)
    }
}

/// [`Bf16Products`] without an instruction for them: rounded activations are widened when they are packed,
/// once for all outputs.
#[derive(Debug, Clone, Copy)]
pub struct EmulatedBf16Products;

impl PanelProducts for EmulatedBf16Products {
    type Step = Bf16Step;
    type Row = WidenedBf16Pair;

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
    ) {
        // Products of two `bf16` are exact in `f32`, so the chain is that of the instruction.
        widened_multiply_add(s, step, first, rows, [1, 0], sums);
    }
}

impl StoredPairs for EmulatedBf16Products {
    #[inline(always)]
    fn step_of_words(words: &[[[u32; LANES]; 2]]) -> (Self::Step, bool) {
        Bf16Panels::step_of_words(words)
    }
}

impl PanelFormat for EmulatedBf16Products {
    const STORED_BYTES: usize = Bf16Panels::STORED_BYTES;

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: [&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self::Step>]) -> bool {
        pack_pairs::<S, Self, 1>(s, rows, steps)
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        Bf16Panels::get(step, lane, i)
    }
}
