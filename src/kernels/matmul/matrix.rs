//! Weight matrices in panels.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::format::{PANEL_ROWS, PanelFormat};
use crate::error::Result;
use crate::kernels::simd::{LANES, Simd, SimdOp};
use crate::kernels::threads::Workers;
use crate::kernels::transpose::transpose;
use crate::sync::Mutex;

/// Bytes of a row that are packed at a time.
const STRIP: usize = 4 * LANES;

/// A weight matrix in panels; `kernels::matmul` draws the layout.
pub struct PanelMatrix<F: PanelFormat> {
    /// `[num_panels, steps]`; outputs and inputs beyond the matrix are 0.
    steps: Vec<F::Step>,
    num_outputs: usize,
    num_inputs: usize,
}

impl<F: PanelFormat> PanelMatrix<F> {
    /// Packs `weight(output, input)` number by number: what tests multiply with.
    #[cfg(test)]
    pub(super) fn pack(
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

    /// Packs weights that are stored in this very format: `read(outputs, bytes)` writes those of neighbouring outputs,
    /// `[outputs, num_inputs]`. `None` if a weight is NaN or infinite.
    ///
    /// # Errors
    /// The first one of `read`.
    pub fn pack_stored(
        workers: &Workers,
        num_outputs: usize,
        num_inputs: usize,
        read: impl Fn(Range<usize>, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<Option<Self>> {
        let (per_panel, row_bytes) = (num_inputs.div_ceil(2), num_inputs * F::WORDS * 2);
        let all_finite = AtomicBool::new(true);
        let num_panels = num_outputs.div_ceil(PANEL_ROWS);
        // What is read stays in the cache of the core that packs it.
        let buffers: Mutex<Vec<Vec<u8>>> = Mutex::default();
        let pack_panel = |panel: usize, steps: &mut [MaybeUninit<F::Step>]| {
            let outputs = panel * PANEL_ROWS..num_outputs.min((panel + 1) * PANEL_ROWS);
            let waiting = buffers.lock().pop();
            let mut buffer = waiting.unwrap_or_else(|| vec![0; PANEL_ROWS * row_bytes]);
            let stored = &mut buffer[..outputs.len() * row_bytes];
            read(outputs, stored)?;
            let rows: [&[u8]; PANEL_ROWS] = std::array::from_fn(|lane| {
                stored.get(lane * row_bytes..(lane + 1) * row_bytes).unwrap_or_default()
            });
            if !workers.isa().run(PackPanel::<F> { rows, steps }) {
                all_finite.store(false, Ordering::Relaxed);
            }
            buffers.lock().push(buffer);
            Ok(())
        };
        // SAFETY: packing a panel writes each of its steps.
        let steps = unsafe { workers.collect_chunks(num_panels, per_panel, pack_panel)? };
        Ok(all_finite.into_inner().then_some(Self { steps, num_outputs, num_inputs }))
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

/// The stored rows of a panel, to be packed into its steps; a row may lack what is zero at its end.
struct PackPanel<'a, 'r, F: PanelFormat> {
    rows: [&'r [u8]; PANEL_ROWS],
    steps: &'a mut [MaybeUninit<F::Step>],
}

impl<F: PanelFormat> SimdOp for PackPanel<'_, '_, F> {
    /// Whether all weights are finite.
    type Output = bool;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> bool {
        let mut all_finite = true;
        for (strip, steps) in self.steps.chunks_mut(LANES / F::WORDS).enumerate() {
            // `[word][half][lane]`
            let mut words = [[[0; LANES]; 2]; LANES];
            for half in 0..2 {
                let mut block = [s.splat(0.0); LANES];
                for (lane, words) in block.iter_mut().enumerate() {
                    let row = self.rows[half * LANES + lane];
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
            for (step, words) in steps.iter_mut().zip(words.chunks_exact(F::WORDS)) {
                let (packed, finite) = F::step_of_words(words);
                all_finite &= finite;
                step.write(packed);
            }
        }
        all_finite
    }
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
