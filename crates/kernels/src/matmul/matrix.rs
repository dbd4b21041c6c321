//! Weight matrices in panels.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::format::{FileFormat, FileStep as _, PANEL_ROWS, PanelLayout, WeightStep};
use super::tile::{Chunk, Later, Region};
use crate::pages::Pages;
use crate::simd::{Simd, SimdOp};
use crate::threads::Workers;
use rsgen_core::{Mutex, Result};

/// A weight matrix in panels; `kernels::matmul` draws the layout.
pub struct PanelMatrix<F: PanelLayout> {
    /// `[num_panels, steps]`; outputs and inputs beyond the matrix are 0.
    steps: Pages<F::Weights>,
    num_outputs: usize,
    num_inputs: usize,
}

impl<F: PanelLayout> PanelMatrix<F> {
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
        let row_bytes = F::Weights::stored_bytes(num_inputs);
        let pack_panel = |panel: usize, buffer: &mut [u8], steps: &mut [MaybeUninit<F::Weights>]| {
            let outputs = panel * PANEL_ROWS..num_outputs.min((panel + 1) * PANEL_ROWS);
            let stored = &mut buffer[..outputs.len() * row_bytes];
            read(outputs, stored)?;
            let rows: [&[u8]; PANEL_ROWS] = std::array::from_fn(|lane| {
                stored.get(lane * row_bytes..(lane + 1) * row_bytes).unwrap_or_default()
            });
            Ok(workers.isa().run(PackPanel { rows, steps }))
        };
        // SAFETY: packing a panel writes each of its steps.
        unsafe { Self::collect(workers, num_outputs, num_inputs, PANEL_ROWS * row_bytes, pack_panel) }
    }

    /// Makes the steps of each panel: `make(panel, buffer, steps)` has a buffer of `buffer_bytes` and returns
    /// whether the weights are valid. `None` if some are not.
    ///
    /// # Errors
    /// The first one of `make`.
    ///
    /// # Safety
    /// `make` writes all steps of its panel, or fails.
    unsafe fn collect(
        workers: &Workers,
        num_outputs: usize,
        num_inputs: usize,
        buffer_bytes: usize,
        make: impl Fn(usize, &mut [u8], &mut [MaybeUninit<F::Weights>]) -> Result<bool> + Sync,
    ) -> Result<Option<Self>> {
        let (num_panels, per_panel) = (num_outputs.div_ceil(PANEL_ROWS), num_inputs.div_ceil(F::INPUTS));
        let all_valid = AtomicBool::new(true);
        // What is read stays in the cache of the core that packs it.
        let buffers: Mutex<Vec<Vec<u8>>> = Mutex::default();
        let make_panel = |panel: usize, steps: &mut [MaybeUninit<F::Weights>]| {
            let waiting = buffers.lock().pop();
            let mut buffer = waiting.unwrap_or_else(|| vec![0; buffer_bytes]);
            if !make(panel, &mut buffer, steps)? {
                all_valid.store(false, Ordering::Relaxed);
            }
            buffers.lock().push(buffer);
            Ok(())
        };
        // SAFETY: the caller promises that all steps are written.
        let steps = unsafe { workers.collect_chunks(num_panels, per_panel, make_panel)? };
        Ok(all_valid.into_inner().then_some(Self { steps, num_outputs, num_inputs }))
    }

    /// The shape of the matrix in a file: panels, the steps of each, and the bytes of each step.
    pub fn file_shape(num_outputs: usize, num_inputs: usize) -> [usize; 3]
    where
        F: FileFormat,
    {
        [num_outputs.div_ceil(PANEL_ROWS), num_inputs.div_ceil(F::INPUTS), size_of::<F::Weights>()]
    }

    /// Appends the matrix as a packed file holds it; nothing if files hold none of its format.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.steps.iter().for_each(|step| step.write(out));
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
        let [_, per_panel, step_bytes] = Self::file_shape(num_outputs, num_inputs);
        let panel_bytes = per_panel * step_bytes;
        let read_panel = |panel: usize, buffer: &mut [u8], steps: &mut [MaybeUninit<F::Weights>]| {
            read(panel * panel_bytes..(panel + 1) * panel_bytes, buffer)?;
            let mut all_valid = true;
            for (step, bytes) in steps.iter_mut().zip(buffer.chunks_exact(step_bytes)) {
                let valid = F::Weights::read(bytes);
                all_valid &= valid.is_some();
                step.write(valid.unwrap_or_default());
            }
            Ok(all_valid)
        };
        // SAFETY: reading a panel writes each of its steps.
        unsafe { Self::collect(workers, num_outputs, num_inputs, panel_bytes, read_panel) }
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
            *out = steps[input / F::INPUTS].weight(output % PANEL_ROWS, input % F::INPUTS);
        }
    }

    pub(super) fn num_panels(&self) -> usize {
        self.num_outputs.div_ceil(PANEL_ROWS)
    }

    /// The steps of a panel, before those of the others that follow them.
    pub(super) fn chunk(&self, panel: usize) -> Chunk<'_, F::Weights> {
        let steps = self.panel(panel);
        let following = self.bytes() - (panel + 1) * size_of_val(steps);
        Chunk { start: 0, steps, later: Later::Following(following) }
    }

    /// Where some inputs of a panel are in memory; those after its last one are the next panel's, if there is one.
    pub(crate) fn region(&self, panel: usize, inputs: Range<usize>) -> Region {
        let steps = self.panel(panel);
        let place = |input: usize| input * size_of::<F::Weights>() / F::INPUTS;
        let left = self.bytes() - panel * size_of_val(steps);
        let start = steps.as_ptr().cast::<u8>().wrapping_add(place(inputs.start));
        Region { start, bytes: place(inputs.end).min(left).saturating_sub(place(inputs.start)) }
    }

    pub(crate) fn panel(&self, index: usize) -> &[F::Weights] {
        let per_panel = self.num_inputs.div_ceil(F::INPUTS);
        &self.steps[index * per_panel..(index + 1) * per_panel]
    }
}

/// The stored rows of a panel, to be packed into its steps.
struct PackPanel<'a, 'r, T> {
    rows: [&'r [u8]; PANEL_ROWS],
    steps: &'a mut [MaybeUninit<T>],
}

impl<T: WeightStep> SimdOp for PackPanel<'_, '_, T> {
    type Output = bool;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> bool {
        T::pack(s, &self.rows, self.steps)
    }
}
