//! Weight matrices in panels.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use super::format::{PANEL_ROWS, PanelFormat};
use crate::kernels::threads::Workers;

/// The steps that are packed in one go, and the most bytes of a step's pair.
const STRIP: usize = 16;
const MOST_BYTES: usize = 8;

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

    /// Packs weights that are stored in this very format: `row` gives the bytes of an output's weights, or `None` for one
    /// that is zero throughout. `None` if a weight is NaN or infinite.
    pub fn pack_stored<'a>(
        workers: &Workers,
        num_outputs: usize,
        num_inputs: usize,
        row: impl Fn(usize) -> Option<&'a [u8]> + Sync,
    ) -> Option<Self> {
        let per_panel = num_inputs.div_ceil(2);
        let row_bytes = num_inputs * F::BYTES;
        let all_finite = AtomicBool::new(true);
        let num_panels = num_outputs.div_ceil(PANEL_ROWS);
        let pack_panel = |panel: usize, steps: &mut [MaybeUninit<F::Step>]| {
            let rows: [Option<&[u8]>; PANEL_ROWS] = std::array::from_fn(|lane| {
                let output = panel * PANEL_ROWS + lane;
                if output < num_outputs { row(output) } else { None }
            });
            let mut finite = true;
            for (strip, steps) in steps.chunks_mut(STRIP).enumerate() {
                // First a strip of each row side by side: each line of the file is read once, and in one go.
                let mut bytes = [[0; STRIP * MOST_BYTES]; PANEL_ROWS];
                let begin = strip * STRIP * 2 * F::BYTES;
                let end = row_bytes.min(begin + STRIP * 2 * F::BYTES);
                for (row, bytes) in rows.iter().zip(&mut bytes) {
                    if let Some(row) = row {
                        bytes[..end - begin].copy_from_slice(&row[begin..end]);
                    }
                }
                for (q, slot) in steps.iter_mut().enumerate() {
                    let pair = 2 * q * F::BYTES..2 * (q + 1) * F::BYTES;
                    let of_step = std::array::from_fn(|lane| &bytes[lane][pair.clone()]);
                    let (step, step_finite) = F::step_of_bytes(&of_step);
                    finite &= step_finite;
                    slot.write(step);
                }
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
