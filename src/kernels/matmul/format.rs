//! The number formats that weights are packed in.

use half::{bf16, f16};

use super::rows::{Bf16Pair, InputPair};
use super::step::{Bf16Step, F32Step, I8Step, KvStep};
use crate::kernels::simd::{LANES, Simd};

/// The outputs of a panel: two vectors.
pub const PANEL_ROWS: usize = 2 * LANES;

/// The arithmetic of panels: multiplies a step of weights with a pair of inputs.
pub trait PanelProducts: Send + Sync + Sized + 'static {
    /// The weights of 32 outputs for two consecutive inputs; zeros by default.
    type Step: Copy + Default + Send + Sync + 'static;

    /// How a row holds two consecutive inputs.
    type Pair: InputPair;

    /// Adds the products of one step to the sums of `M` rows and `V` vectors of outputs, from vector `first` of the panel
    /// on. Each sum takes the two products one after the other.
    #[doc(hidden)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Pair; M],
        sums: &mut [[S::F; V]; M],
    );
}

/// A number format of packed weights.
pub trait PanelFormat: PanelProducts {
    /// The 32-bit words that hold the stored weights of one output for two consecutive inputs, side by side.
    const WORDS: usize;

    /// Packs one step: `weight(lane, i)` is the weight of output `lane` for the `i`-th of the two inputs.
    fn step(weight: impl Fn(usize, usize) -> f32) -> Self::Step;

    /// The step of 32 outputs whose weights are stored in this very format: `words` are the [`Self::WORDS`] words of each
    /// output, little-endian, as `[word][half][lane]`. The second part of the result says whether all of them are finite.
    fn step_of_words(words: &[[[u32; LANES]; 2]]) -> (Self::Step, bool);

    /// One weight of a step, widened.
    fn get(step: &Self::Step, lane: usize, i: usize) -> f32;
}

/// Whether `holds` is true for all lanes; without a branch, so that it vectorizes.
#[inline(always)]
fn all_lanes(words: &[[u32; LANES]; 2], holds: impl Fn(u32) -> bool) -> bool {
    words.as_flattened().iter().fold(true, |all, &word| all & holds(word))
}

/// [`PanelProducts::multiply_add`] in `float32`: `weights(vector, i)` are the weights of 16 outputs for the `i`-th input.
#[inline(always)]
fn widened_multiply_add<S: Simd, const M: usize, const V: usize>(
    s: S,
    weights: impl Fn(usize, usize) -> S::F,
    rows: &[[f32; 2]; M],
    sums: &mut [[S::F; V]; M],
) {
    for i in 0..2 {
        let mut vectors = [s.splat(0.0); V];
        for v in 0..V {
            vectors[v] = weights(v, i);
        }
        for r in 0..M {
            let x = s.splat(rows[r][i]);
            for v in 0..V {
                sums[r][v] = s.fma(vectors[v], x, sums[r][v]);
            }
        }
    }
}

/// Weights in `bfloat16`, two inputs of an output in one 32-bit word.
#[derive(Debug, Clone, Copy)]
pub struct Bf16Panels;

impl PanelProducts for Bf16Panels {
    type Step = Bf16Step;
    type Pair = [f32; 2];

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Pair; M],
        sums: &mut [[S::F; V]; M],
    ) {
        let weights = |v: usize, i| {
            let words = &step.0[first + v];
            if i == 0 { s.bf16_low(words) } else { s.bf16_high(words) }
        };
        widened_multiply_add(s, weights, rows, sums);
    }
}

impl PanelFormat for Bf16Panels {
    const WORDS: usize = 1;

    fn step(weight: impl Fn(usize, usize) -> f32) -> Self::Step {
        let bits = |lane, i| u32::from(bf16::from_f32(weight(lane, i)).to_bits());
        Bf16Step(std::array::from_fn(|half| {
            std::array::from_fn(|lane| {
                let lane = half * LANES + lane;
                bits(lane, 0) | bits(lane, 1) << 16
            })
        }))
    }

    #[inline(always)]
    fn step_of_words(words: &[[[u32; LANES]; 2]]) -> (Self::Step, bool) {
        // Two adjacent numbers are already the word of a lane.
        let finite = |word: u32| word & 0x7f80 != 0x7f80 && word & 0x7f80_0000 != 0x7f80_0000;
        (Bf16Step(words[0]), all_lanes(&words[0], finite))
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        step.get(lane, i)
    }
}

/// Weights in `float32`.
#[derive(Debug, Clone, Copy)]
pub struct F32Panels;

impl PanelProducts for F32Panels {
    type Step = F32Step;
    type Pair = [f32; 2];

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Pair; M],
        sums: &mut [[S::F; V]; M],
    ) {
        widened_multiply_add(s, |v, i| s.load(&step.0[i][first + v]), rows, sums);
    }
}

impl PanelFormat for F32Panels {
    const WORDS: usize = 2;

    fn step(weight: impl Fn(usize, usize) -> f32) -> Self::Step {
        F32Step(std::array::from_fn(|i| {
            std::array::from_fn(|half| std::array::from_fn(|lane| weight(half * LANES + lane, i)))
        }))
    }

    #[inline(always)]
    fn step_of_words(words: &[[[u32; LANES]; 2]]) -> (Self::Step, bool) {
        let finite = |word: u32| f32::from_bits(word).is_finite();
        let step = [0, 1].map(|i| words[i].map(|half| half.map(f32::from_bits)));
        (F32Step(step), all_lanes(&words[0], finite) & all_lanes(&words[1], finite))
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        step.get(lane, i)
    }
}

/// 8-bit integers of a KV cache. The scale of each token is applied by the caller.
#[derive(Debug, Clone, Copy)]
pub struct I8Panels;

impl PanelProducts for I8Panels {
    type Step = I8Step;
    type Pair = [f32; 2];

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Pair; M],
        sums: &mut [[S::F; V]; M],
    ) {
        widened_multiply_add(s, |v, i| s.i8(&step.0[i][first + v]), rows, sums);
    }
}

/// Weights in `float16`.
#[derive(Debug, Clone, Copy)]
pub struct F16Panels;

/// `[input][half][lane]`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(align(64))]
pub struct F16Step([[[u16; LANES]; 2]; 2]);

impl PanelProducts for F16Panels {
    type Step = F16Step;
    type Pair = [f32; 2];

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Pair; M],
        sums: &mut [[S::F; V]; M],
    ) {
        widened_multiply_add(s, |v, i| s.f16(&step.0[i][first + v]), rows, sums);
    }
}

impl PanelFormat for F16Panels {
    const WORDS: usize = 1;

    fn step(weight: impl Fn(usize, usize) -> f32) -> Self::Step {
        F16Step(std::array::from_fn(|i| {
            std::array::from_fn(|half| {
                std::array::from_fn(|lane| f16::from_f32(weight(half * LANES + lane, i)).to_bits())
            })
        }))
    }

    #[inline(always)]
    fn step_of_words(words: &[[[u32; LANES]; 2]]) -> (Self::Step, bool) {
        let finite = |word: u32| word & 0x7c00 != 0x7c00 && word & 0x7c00_0000 != 0x7c00_0000;
        let input = |i: usize| words[0].map(|half| half.map(|word| (word >> (16 * i)) as u16));
        (F16Step([input(0), input(1)]), all_lanes(&words[0], finite))
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        f16::from_bits(step.0[i][lane / LANES][lane % LANES]).to_f32()
    }
}

/// Weights in `bfloat16` for `bfloat16` arithmetic: activations are rounded to `bfloat16`, products and sums are not.
///
/// Each output is one chain as in the other formats, the odd input of a step before the even one, because that is what
/// the processor's instruction does.
#[derive(Debug, Clone, Copy)]
pub struct Bf16Products;

impl PanelProducts for Bf16Products {
    type Step = Bf16Step;
    type Pair = Bf16Pair;

    #[inline(always)]
    fn multiply_add<S: Simd, const M: usize, const V: usize>(
        s: S,
        step: &Self::Step,
        first: usize,
        rows: &[Self::Pair; M],
        sums: &mut [[S::F; V]; M],
    ) {
        for r in 0..M {
            for v in 0..V {
                sums[r][v] = s.dot_bf16(&step.0[first + v], rows[r].0, sums[r][v]);
            }
        }
    }
}

impl PanelFormat for Bf16Products {
    const WORDS: usize = Bf16Panels::WORDS;

    fn step(weight: impl Fn(usize, usize) -> f32) -> Self::Step {
        Bf16Panels::step(weight)
    }

    #[inline(always)]
    fn step_of_words(words: &[[[u32; LANES]; 2]]) -> (Self::Step, bool) {
        Bf16Panels::step_of_words(words)
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        Bf16Panels::get(step, lane, i)
    }
}
