//! The number formats that weights are packed in.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use half::{bf16, f16};

use crate::kernels::simd::{LANES, Simd};
use crate::kernels::threads::Workers;

/// The outputs of a panel: two vectors.
pub const PANEL_ROWS: usize = 2 * LANES;

/// A number format of packed weights.
pub trait PanelFormat: Send + Sync + Sized + 'static {
    /// The weights of 32 outputs for two consecutive inputs.
    type Step: Copy + Send + Sync;

    /// Packs one step: `weight(lane, i)` is the weight of output `lane` for the `i`-th of the two inputs.
    fn step(weight: impl Fn(usize, usize) -> f32) -> Self::Step;

    /// The step of 32 outputs whose weights are stored in this very format, each output's inputs side by side: `rows` are
    /// the little-endian bytes of the two inputs of each output. The second part of the result says whether all of them
    /// are finite.
    fn step_of_bytes(rows: &[&[u8]; PANEL_ROWS]) -> (Self::Step, bool);

    /// The bytes of one stored weight.
    const BYTES: usize;

    /// One weight of a step, widened.
    fn get(step: &Self::Step, lane: usize, i: usize) -> f32;

    /// The weights of 16 outputs (`half` 0 or 1 of the panel) for input `i` of the step, widened.
    #[doc(hidden)]
    fn widen<S: Simd>(s: S, step: &Self::Step, half: usize, i: usize) -> S::F;
}

/// Weights in `bfloat16`, two inputs of an output in one 32-bit word.
pub struct Bf16Panels;

/// Two vectors of words: the low half of a word is the even input, the high half the odd one.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Bf16Step([[u32; LANES]; 2]);

impl PanelFormat for Bf16Panels {
    type Step = Bf16Step;

    fn step(weight: impl Fn(usize, usize) -> f32) -> Self::Step {
        let bits = |lane, i| u32::from(bf16::from_f32(weight(lane, i)).to_bits());
        Bf16Step(std::array::from_fn(|half| {
            std::array::from_fn(|lane| {
                let lane = half * LANES + lane;
                bits(lane, 0) | bits(lane, 1) << 16
            })
        }))
    }

    const BYTES: usize = 2;

    fn step_of_bytes(rows: &[&[u8]; PANEL_ROWS]) -> (Self::Step, bool) {
        let mut step = Bf16Step([[0; LANES]; 2]);
        let mut finite = true;
        for lane in 0..PANEL_ROWS {
            // Two neighbouring numbers are just the word that a lane holds.
            let word = u32::from_le_bytes([rows[lane][0], rows[lane][1], rows[lane][2], rows[lane][3]]);
            finite &= word & 0x7f80 != 0x7f80 && word & 0x7f80_0000 != 0x7f80_0000;
            step.0[lane / LANES][lane % LANES] = word;
        }
        (step, finite)
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        bf16::from_bits((step.0[lane / LANES][lane % LANES] >> (16 * i)) as u16).to_f32()
    }

    #[inline(always)]
    fn widen<S: Simd>(s: S, step: &Self::Step, half: usize, i: usize) -> S::F {
        if i == 0 { s.bf16_low(&step.0[half]) } else { s.bf16_high(&step.0[half]) }
    }
}

/// Weights in `float32`.
pub struct F32Panels;

/// `[input][half][lane]`.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct F32Step([[[f32; LANES]; 2]; 2]);

impl PanelFormat for F32Panels {
    type Step = F32Step;

    fn step(weight: impl Fn(usize, usize) -> f32) -> Self::Step {
        F32Step(std::array::from_fn(|i| {
            std::array::from_fn(|half| std::array::from_fn(|lane| weight(half * LANES + lane, i)))
        }))
    }

    const BYTES: usize = 4;

    fn step_of_bytes(rows: &[&[u8]; PANEL_ROWS]) -> (Self::Step, bool) {
        let mut step = F32Step([[[0.0; LANES]; 2]; 2]);
        let mut finite = true;
        for lane in 0..PANEL_ROWS {
            let (values, _) = rows[lane].as_chunks::<4>();
            for i in 0..2 {
                let value = f32::from_le_bytes(values[i]);
                finite &= value.is_finite();
                step.0[i][lane / LANES][lane % LANES] = value;
            }
        }
        (step, finite)
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        step.0[i][lane / LANES][lane % LANES]
    }

    #[inline(always)]
    fn widen<S: Simd>(s: S, step: &Self::Step, half: usize, i: usize) -> S::F {
        s.load(&step.0[i][half])
    }
}

/// Weights in `float16`.
pub struct F16Panels;

/// `[input][half][lane]`.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct F16Step([[[u16; LANES]; 2]; 2]);

impl PanelFormat for F16Panels {
    type Step = F16Step;

    fn step(weight: impl Fn(usize, usize) -> f32) -> Self::Step {
        F16Step(std::array::from_fn(|i| {
            std::array::from_fn(|half| {
                std::array::from_fn(|lane| f16::from_f32(weight(half * LANES + lane, i)).to_bits())
            })
        }))
    }

    const BYTES: usize = 2;

    fn step_of_bytes(rows: &[&[u8]; PANEL_ROWS]) -> (Self::Step, bool) {
        let mut step = F16Step([[[0; LANES]; 2]; 2]);
        let mut finite = true;
        for lane in 0..PANEL_ROWS {
            let (values, _) = rows[lane].as_chunks::<2>();
            for i in 0..2 {
                let bits = u16::from_le_bytes(values[i]);
                finite &= bits & 0x7c00 != 0x7c00;
                step.0[i][lane / LANES][lane % LANES] = bits;
            }
        }
        (step, finite)
    }

    fn get(step: &Self::Step, lane: usize, i: usize) -> f32 {
        f16::from_bits(step.0[i][lane / LANES][lane % LANES]).to_f32()
    }

    #[inline(always)]
    fn widen<S: Simd>(s: S, step: &Self::Step, half: usize, i: usize) -> S::F {
        s.f16(&step.0[i][half])
    }
}

/// A weight matrix in panels; `kernels::matmul` draws the layout.
pub struct PanelMatrix<F: PanelFormat> {
    /// `[num_panels, steps]`; outputs and inputs beyond the matrix are 0.
    steps: Vec<F::Step>,
    num_outputs: usize,
    num_inputs: usize,
}

impl<F: PanelFormat> PanelMatrix<F> {
    /// Packs `weight(output, input)`, on all threads.
    pub fn pack(
        workers: &Workers,
        num_outputs: usize,
        num_inputs: usize,
        weight: impl Fn(usize, usize) -> f32 + Sync,
    ) -> Self {
        let per_panel = num_inputs.div_ceil(2);
        let steps = workers.collect(num_outputs.div_ceil(PANEL_ROWS) * per_panel, per_panel, |index| {
            let (panel, q) = (index / per_panel, index % per_panel);
            F::step(|lane, i| {
                let (output, input) = (panel * PANEL_ROWS + lane, 2 * q + i);
                if output < num_outputs && input < num_inputs { weight(output, input) } else { 0.0 }
            })
        });
        Self { steps, num_outputs, num_inputs }
    }

    /// Packs weights that are stored in this very format: `row` gives the bytes of an output's weights. `None` if one of
    /// them is NaN or infinite.
    pub fn pack_stored<'a>(
        workers: &Workers,
        num_outputs: usize,
        num_inputs: usize,
        row: impl Fn(usize) -> &'a [u8] + Sync,
    ) -> Option<Self> {
        let per_panel = num_inputs.div_ceil(2);
        let row_bytes = num_inputs * F::BYTES;
        let zeros = vec![0; row_bytes];
        let all_finite = AtomicBool::new(true);
        let num_panels = num_outputs.div_ceil(PANEL_ROWS);
        let pack_panel = |panel: usize, steps: &mut [MaybeUninit<F::Step>]| {
            let rows: [&[u8]; PANEL_ROWS] = std::array::from_fn(|lane| {
                let output = panel * PANEL_ROWS + lane;
                if output < num_outputs { &row(output)[..row_bytes] } else { &zeros }
            });
            let mut finite = true;
            for (q, slot) in steps.iter_mut().enumerate() {
                let bytes = 2 * q * F::BYTES..2 * (q + 1) * F::BYTES;
                // The last input of an odd number has no partner.
                let mut padded = [[0; 8]; PANEL_ROWS];
                let (step, step_finite) = if bytes.end <= row_bytes {
                    F::step_of_bytes(&std::array::from_fn(|lane| &rows[lane][bytes.clone()]))
                } else {
                    for lane in 0..PANEL_ROWS {
                        padded[lane][..F::BYTES].copy_from_slice(&rows[lane][bytes.start..]);
                    }
                    F::step_of_bytes(&std::array::from_fn(|lane| &padded[lane][..]))
                };
                finite &= step_finite;
                slot.write(step);
            }
            if !finite {
                all_finite.store(false, Ordering::Relaxed);
            }
        };
        // SAFETY: the loop over the steps of a panel writes each of them.
        let steps = unsafe { workers.collect_chunks(num_panels, per_panel, pack_panel) };
        all_finite.into_inner().then_some(Self { steps, num_outputs, num_inputs })
    }

    /// The rows of the weight matrix.
    pub fn num_outputs(&self) -> usize {
        self.num_outputs
    }

    /// The columns of the weight matrix.
    pub fn num_inputs(&self) -> usize {
        self.num_inputs
    }

    /// The memory that the packed weights take, in bytes.
    pub fn bytes(&self) -> usize {
        std::mem::size_of_val(&self.steps[..])
    }

    /// Unpacks one row of the matrix, the weights of one output: `out` is `[num_inputs]`.
    pub fn row(&self, output: usize, out: &mut [f32]) {
        assert!(output < self.num_outputs, "the row is one of the matrix");
        let steps = self.panel(output / PANEL_ROWS);
        for (input, out) in out[..self.num_inputs].iter_mut().enumerate() {
            *out = F::get(&steps[input / 2], output % PANEL_ROWS, input % 2);
        }
    }

    pub(super) fn num_panels(&self) -> usize {
        self.num_outputs.div_ceil(PANEL_ROWS)
    }

    pub(super) fn panel(&self, index: usize) -> &[F::Step] {
        let per_panel = self.num_inputs.div_ceil(2);
        &self.steps[index * per_panel..(index + 1) * per_panel]
    }
}
