//! The number formats that weights are packed in.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use half::f16;

use super::PanelJob;
use super::decoded::run_made;
use super::rows::{Bf16Pair, FloatPair, RowStep, WidenedBf16Pair};
use super::step::{Bf16Step, F32Step, I8Step, KvStep};
use super::tile::LINE;
use crate::isa::Isa;
use crate::simd::{LANES, Simd, SimdOp};
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

    /// Whether [`PanelProducts::multiply_and_fetch`] fetches.
    #[doc(hidden)]
    const FETCHES: bool = false;

    /// [`PanelProducts::multiply_add`], with lines that are fetched between the products: at once, the many lines of a
    /// large step would keep them waiting. Several rows compute for longer than they wait.
    #[doc(hidden)]
    #[inline(always)]
    fn multiply_and_fetch<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Row; M],
        sums: &mut [[S::F; V]; M],
        _: Option<Fetch>,
    ) {
        Self::multiply_add(s, step, first, rows, sums);
    }
}

/// What is fetched while a step is multiplied: as many lines as the step has.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct Fetch {
    /// Where, in bytes from the step; what is before it wraps around.
    pub(super) place: usize,
    /// From one to the next, in bytes.
    pub(super) stride: usize,
}

impl Fetch {
    /// Fetches part `index` of `count`.
    #[inline(always)]
    pub(super) fn part<S: Simd, T>(self, s: S, step: &T, index: usize, count: usize) {
        let lines = const { size_of::<T>().div_ceil(LINE) };
        for line in index * lines / count..(index + 1) * lines / count {
            s.prefetch(step, self.place.wrapping_add(line * self.stride));
        }
    }
}

/// A step of packed weights.
pub trait WeightStep: Copy + Default + Send + Sync + 'static {
    /// The bytes of so many stored weights of a row, as [`WeightStep::pack`] takes them.
    fn stored_bytes(num_inputs: usize) -> usize;

    /// Packs the stored rows of a panel into its steps, all of them; a row may lack what is zero at its end.
    /// Returns whether all weights are finite.
    #[doc(hidden)]
    fn pack<S: Simd>(s: S, rows: &[&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self>]) -> bool;

    /// One weight, widened.
    fn weight(&self, lane: usize, i: usize) -> f32;

    /// Appends the step as a packed file holds it; nothing if files hold none of this format.
    fn write(&self, _out: &mut Vec<u8>) {}
}

/// A step that a file may hold as it is.
pub trait FileStep: WeightStep {
    /// The step that a file holds in as many bytes as it has; `None` if no weights are packed like that.
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// How a matrix is laid out in panels.
pub trait PanelLayout: Send + Sync + 'static {
    /// The weights of 32 outputs for some consecutive inputs.
    type Weights: WeightStep;
    /// How many inputs.
    const INPUTS: usize;
}

impl<F: PanelProducts<Step: WeightStep>> PanelLayout for F {
    type Weights = F::Step;
    const INPUTS: usize = F::Row::INPUTS;
}

/// A number format of packed weights that are multiplied as they are.
pub trait PanelFormat: PanelProducts<Step: WeightStep> + PanelLayout<Weights = Self::Step> {
    /// Multiplies tiles of rows with a panel.
    #[doc(hidden)]
    fn run(isa: Isa, job: PanelJob<'_, Self>) {
        <Self as PanelProducts>::Row::run(isa, job);
    }
}

/// The tiles from which on widening a panel once, to memory, takes less time than widening it for each, and the most
/// rows of such a tile: with more the products of a weight outweigh its widening.
const MANY_TILES: usize = 4;
const FEW_TILE_ROWS: usize = 6;

/// Widens the steps of a panel.
pub(crate) struct Widen<'a, T> {
    pub(crate) steps: &'a [T],
    pub(crate) out: &'a mut [F32Step],
}

impl<T: WidenedStep> SimdOp for Widen<'_, T> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        for (step, out) in self.steps.iter().zip(self.out) {
            for i in 0..2 {
                for half in 0..2 {
                    s.store(step.weights(s, half, i), out.lanes_mut(i, half));
                }
            }
        }
    }
}

impl<T: WidenedStep + WeightStep, R: FloatPair> PanelFormat for WidenedProducts<T, R> {
    fn run(isa: Isa, job: PanelJob<'_, Self>) {
        let tile_rows = job.rows.tiling().rows_of_tile(0, job.rows.num_rows()).len();
        if T::IS_WIDE || job.tiles.len() < MANY_TILES || tile_rows > FEW_TILE_ROWS {
            return R::run(isa, job);
        }
        run_made::<Self, WidenedProducts<F32Step, R>>(isa, job, |steps, out| isa.run(Widen { steps, out }));
    }
}

/// A format whose steps a file may hold as they are.
pub trait FileFormat: PanelFormat<Step: FileStep> {}

impl<F: PanelFormat<Step: FileStep>> FileFormat for F {}

/// A step of two inputs whose weights are stored in this very format.
trait StoredPair: WeightStep {
    /// The step of 32 outputs: `words` are the 32-bit words of the two weights of each output, little-endian,
    /// as `[word][half][lane]`. The second part of the result says whether all of them are finite.
    fn of_words(words: &[[[u32; LANES]; 2]]) -> (Self, bool);
}

/// [`WeightStep::pack`] for weights of `WORDS` words for two inputs.
#[inline(always)]
fn pack_pairs<S: Simd, T: StoredPair, const WORDS: usize>(
    s: S,
    rows: &[&[u8]; PANEL_ROWS],
    steps: &mut [MaybeUninit<T>],
) -> bool {
    let mut all_finite = true;
    for (strip, steps) in steps.chunks_mut(LANES / WORDS).enumerate() {
        let words = load_block(s, rows, strip);
        for (step, words) in steps.iter_mut().zip(words.chunks_exact(WORDS)) {
            let (packed, finite) = T::of_words(words);
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
pub trait WidenedStep: Copy + Default + Send + Sync + 'static {
    /// Whether they are `float32` already.
    #[doc(hidden)]
    const IS_WIDE: bool = false;
    /// The weights of 16 outputs for the `i`-th input. A method: closures are not always inlined, and then
    /// each vector costs a call.
    #[doc(hidden)]
    fn weights<S: Simd>(&self, s: S, vector: usize, i: usize) -> S::F;
}

/// Products in `float32`: steps whose weights are widened, and rows that hold the inputs as `R`.
#[derive(Debug, Clone, Copy)]
pub struct WidenedProducts<T, R>(PhantomData<fn() -> (T, R)>);

impl<T: WidenedStep, R: FloatPair> PanelProducts for WidenedProducts<T, R> {
    type Step = T;
    type Row = R;

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &T,
        first: usize,
        rows: &[R; M],
        sums: &mut [[S::F; V]; M],
    ) {
        for i in R::ORDER {
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
}

/// Weights in `bfloat16`, two inputs of an output in one 32-bit word.
pub type Bf16Panels = WidenedProducts<Bf16Step, [f32; 2]>;

impl WidenedStep for Bf16Step {
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, vector: usize, i: usize) -> S::F {
        if i == 0 { s.bf16_low(&self.0[vector]) } else { s.bf16_high(&self.0[vector]) }
    }
}

impl StoredPair for Bf16Step {
    #[inline(always)]
    fn of_words(words: &[[[u32; LANES]; 2]]) -> (Self, bool) {
        // Two adjacent numbers are already the word of a lane.
        let finite = |word: u32| word & 0x7f80 != 0x7f80 && word & 0x7f80_0000 != 0x7f80_0000;
        (Self(words[0]), all_lanes(&words[0], finite))
    }
}

impl WeightStep for Bf16Step {
    fn stored_bytes(num_inputs: usize) -> usize {
        2 * num_inputs
    }

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: &[&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self>]) -> bool {
        pack_pairs::<S, Self, 1>(s, rows, steps)
    }

    fn weight(&self, lane: usize, i: usize) -> f32 {
        self.get(lane, i)
    }
}

/// Weights in `float32`.
pub type F32Panels = WidenedProducts<F32Step, [f32; 2]>;

impl WidenedStep for F32Step {
    const IS_WIDE: bool = true;

    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, vector: usize, i: usize) -> S::F {
        s.load(&self.0[i][vector])
    }
}

impl StoredPair for F32Step {
    #[inline(always)]
    fn of_words(words: &[[[u32; LANES]; 2]]) -> (Self, bool) {
        let finite = |word: u32| f32::from_bits(word).is_finite();
        let step = [0, 1].map(|i| words[i].map(|half| half.map(f32::from_bits)));
        (Self(step), all_lanes(&words[0], finite) & all_lanes(&words[1], finite))
    }
}

impl WeightStep for F32Step {
    fn stored_bytes(num_inputs: usize) -> usize {
        4 * num_inputs
    }

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: &[&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self>]) -> bool {
        pack_pairs::<S, Self, 2>(s, rows, steps)
    }

    fn weight(&self, lane: usize, i: usize) -> f32 {
        self.get(lane, i)
    }
}

/// 8-bit integers of a KV cache. The scale of each token is applied by the caller.
pub type I8Panels = WidenedProducts<I8Step, [f32; 2]>;

impl WidenedStep for I8Step {
    #[inline(always)]
    fn weights<S: Simd>(&self, s: S, vector: usize, i: usize) -> S::F {
        s.i8(&self.0[i][vector])
    }
}

/// Weights in `float16`.
pub type F16Panels = WidenedProducts<F16Step, [f32; 2]>;

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

impl StoredPair for F16Step {
    #[inline(always)]
    fn of_words(words: &[[[u32; LANES]; 2]]) -> (Self, bool) {
        let finite = |word: u32| word & 0x7c00 != 0x7c00 && word & 0x7c00_0000 != 0x7c00_0000;
        let input = |i: usize| words[0].map(|half| half.map(|word| (word >> (16 * i)) as u16));
        (Self([input(0), input(1)]), all_lanes(&words[0], finite))
    }
}

impl WeightStep for F16Step {
    fn stored_bytes(num_inputs: usize) -> usize {
        2 * num_inputs
    }

    #[inline(always)]
    fn pack<S: Simd>(s: S, rows: &[&[u8]; PANEL_ROWS], steps: &mut [MaybeUninit<Self>]) -> bool {
        pack_pairs::<S, Self, 1>(s, rows, steps)
    }

    fn weight(&self, lane: usize, i: usize) -> f32 {
        f16::from_bits(self.0[i][lane / LANES][lane % LANES]).to_f32()
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

impl PanelFormat for Bf16Products {}

/// [`Bf16Products`] without an instruction for them: rounded activations are widened when they are packed,
/// once for all outputs. Products of two `bf16` are exact in `f32`, so the chain is that of the instruction.
pub type EmulatedBf16Products = WidenedProducts<Bf16Step, WidenedBf16Pair>;
