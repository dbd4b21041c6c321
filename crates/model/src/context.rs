//! The threads, scratch memory, timing and interrupt of a forward pass.

use super::layers::{ExpertRows, LowRankMemory, MlpMemory};
use super::timing::Timing;
use rsgen_core::error::{Error, Result};
use rsgen_core::types::BlockId;
use rsgen_kernels::{AttentionScratch, PackedRows, Workers};

/// The threads, scratch memory, timing and interrupt of a forward pass.
pub struct ForwardContext<'a> {
    /// The threads.
    pub workers: &'a Workers,
    /// Memory that passes share.
    pub scratch: &'a mut Scratch,
    /// The stopwatch.
    pub timing: &'a mut Timing,
    /// Polled between the operations of a pass. True ends the pass.
    pub interrupted: &'a mut dyn FnMut() -> bool,
}

impl ForwardContext<'_> {
    /// Returns an error if the pass is interrupted.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn check(&mut self) -> Result<()> {
        if (self.interrupted)() { Err(Error::cancelled()) } else { Ok(()) }
    }
}

/// The activations of a forward pass. They grow to the largest batch so far.
#[derive(Default)]
pub struct Scratch {
    /// The batch indices of the rows that are still computed.
    pub(super) active: Vec<usize>,
    /// The residual stream, `[num_rows, hidden_size]`.
    pub(super) hidden: Vec<f32>,
    /// The rows of `hidden` whose logits are requested.
    pub(super) head_inputs: Vec<f32>,
    /// Logits whose rows are not adjacent in the output, `[requested rows, vocab_size]`.
    pub(super) scattered: Vec<f32>,
    /// The input of the next matrix.
    pub(super) packed: PackedRows,
    /// `[num_rows, (num_heads + 2 * num_kv_heads) * head_dim]`: queries, keys, values.
    pub(super) qkv: Vec<f32>,
    /// The cache slots for the keys and values of the rows.
    pub(super) slots: Vec<(BlockId, usize)>,
    /// The scratch memory of attention.
    pub(super) attention: AttentionScratch,
    /// The output of attention, `[num_rows, num_heads * head_dim]`.
    pub(super) attended: Vec<f32>,
    /// The output of a block that is not added to the residual stream at once, `[num_rows, hidden_size]`.
    pub(super) block: Vec<f32>,
    /// The activations of MLPs.
    pub(super) mlp: MlpMemory,
    /// Those of mixtures of experts.
    pub(super) experts: Experts,
    /// Those of adapters.
    pub(super) low_rank: LowRankMemory,
    /// Cosines and sines of the rows' rotary angles, `[num_rows, frequencies of all tables]` each.
    pub(super) cos: Vec<f32>,
    pub(super) sin: Vec<f32>,
}

/// The activations of a mixture of experts.
#[derive(Default)]
pub(super) struct Experts {
    /// `[num_rows, hidden_size]`
    pub(super) inputs: Vec<f32>,
    /// `[num_rows, experts]`
    pub(super) scores: Vec<f32>,
    /// The experts of each row and their weights, `[num_rows, slots]`.
    pub(super) picks: Vec<(usize, f32)>,
    /// The slots of all rows, those of an expert side by side.
    pub(super) by_expert: Vec<usize>,
    /// The rows of experts that are computed at the same time.
    pub(super) rows: Vec<ExpertRows>,
    /// `[num_rows, slots, hidden_size]`
    pub(super) slots: Vec<f32>,
    /// The results of the expert of all tokens, `[num_rows, hidden_size]`.
    pub(super) shared: Vec<f32>,
    /// The weighted sums, `[num_rows, hidden_size]`.
    pub(super) sums: Vec<f32>,
}

/// Resizes a buffer for an output that overwrites it.
pub(super) fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    buffer.resize(len, 0.0);
    buffer
}
