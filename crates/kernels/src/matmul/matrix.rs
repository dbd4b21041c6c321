//! Weight matrices in panels.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::format::{FileFormat, PANEL_ROWS, PanelFormat};
use super::rows::RowStep;
use crate::simd::{Simd, SimdOp};
use crate::threads::Workers;
use rsgen_core::error::Result;
use rsgen_core::sync::Mutex;

/// A weight matrix in panels; `kernels::matmul` draws the layout.
pub struct PanelMatrix<F: PanelFormat> {
    /// `[num_panels, steps]`; outputs and inputs beyond the matrix are 0.
    steps: Vec<F::Step>,
    num_outputs: usize,
    num_inputs: usize,
}

impl<F: PanelFormat> PanelMatrix<F> {
    /// Packs stored weights: `read(outputs, bytes)` writes those of neighbouring outputs,
    /// `[outputs, num_inputs]`. `None` if a weight is NaN or infinite.
    ///
    /// # Errors
    /// The first one of `read`.
    pub fn pack(
        workers: &Workers,
        num_outputs: usize,
        num_inputs: usize,
        read: impl Fn(Range<usize>, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<Option<Self>> {
        let (per_panel, row_bytes) = (num_inputs.div_ceil(F::Row::INPUTS), num_inputs * F::STORED_BYTES);
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

    /// The shape of the matrix in a file: panels, the steps of each, and the bytes of each step.
    pub fn file_shape(num_outputs: usize, num_inputs: usize) -> [usize; 3]
    where
        F: FileFormat,
    {
        [num_outputs.div_ceil(PANEL_ROWS), num_inputs.div_ceil(F::Row::INPUTS), F::STEP_BYTES]
    }

    /// Appends the matrix as a packed file holds it; nothing if files hold none of its format.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.steps.iter().for_each(|step| F::write(step, out));
    }

    /// The matrix that a file holds: `read(range, bytes)` copies a range of its bytes. `None` if no matrix is
    /// packed like that.
    ///
    /// # Errors
    /// The first one of `read`.
    pub fn read(
        workers: &Workers,
        num_outputs: usize,
        num_inputs: usize,
        read: impl Fn(Range<usize>, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<Option<Self>>
    where
        F: FileFormat,
    {
        let [num_panels, per_panel, step_bytes] = Self::file_shape(num_outputs, num_inputs);
        let panel_bytes = per_panel * step_bytes;
        let all_valid = AtomicBool::new(true);
        let buffers: Mutex<Vec<Vec<u8>>> = Mutex::default();
        let read_panel = |panel: usize, steps: &mut [MaybeUninit<F::Step>]| {
            let waiting = buffers.lock().pop();
            let mut buffer = waiting.unwrap_or_else(|| vec![0; panel_bytes]);
            read(panel * panel_bytes..(panel + 1) * panel_bytes, &mut buffer)?;
            for (step, bytes) in steps.iter_mut().zip(buffer.chunks_exact(step_bytes)) {
                let valid = F::read(bytes);
                if valid.is_none() {
                    all_valid.store(false, Ordering::Relaxed);
                }
                step.write(valid.unwrap_or_default());
            }
            buffers.lock().push(buffer);
            Ok(())
        };
        // SAFETY: reading a panel writes each of its steps.
        let steps = unsafe { workers.collect_chunks(num_panels, per_panel, read_panel)? };
        Ok(all_valid.into_inner().then_some(Self { steps, num_outputs, num_inputs }))
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
            *out = F::get(&steps[input / F::Row::INPUTS], output % PANEL_ROWS, input % F::Row::INPUTS);
        }
    }

    pub(super) fn num_panels(&self) -> usize {
        self.num_outputs.div_ceil(PANEL_ROWS)
    }

    pub(super) fn panel(&self, index: usize) -> &[F::Step] {
        let per_panel = self.num_inputs.div_ceil(F::Row::INPUTS);
        &self.steps[index * per_panel..(index + 1) * per_panel]
    }
}

/// The stored rows of a panel, to be packed into its steps.
struct PackPanel<'a, 'r, F: PanelFormat> {
    rows: [&'r [u8]; PANEL_ROWS],
    steps: &'a mut [MaybeUninit<F::Step>],
}

impl<F: PanelFormat> SimdOp for PackPanel<'_, '_, F> {
    type Output = bool;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> bool {
        F::pack(s, self.rows, self.steps)
    }
}
