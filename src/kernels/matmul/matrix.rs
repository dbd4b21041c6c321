//! Weight matrices in panels.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use super::format::{PANEL_ROWS, PanelFormat};
use crate::kernels::threads::Workers;

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
        let zeros = vec![0; row_bytes];
        let all_finite = AtomicBool::new(true);
        let num_panels = num_outputs.div_ceil(PANEL_ROWS);
        let pack_panel = |panel: usize, steps: &mut [MaybeUninit<F::Step>]| {
            let rows: [&[u8]; PANEL_ROWS] = std::array::from_fn(|lane| {
                let output = panel * PANEL_ROWS + lane;
                let stored = if output < num_outputs { row(output) } else { None };
                stored.map_or(&zeros[..], |bytes| &bytes[..row_bytes])
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
