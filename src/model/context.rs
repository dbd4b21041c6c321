//! What a forward pass works with besides model, batch and cache.

use super::timing::Timing;
use crate::error::{Error, Result};
use crate::kernels::{AttentionScratch, PackedRows, Workers};
use crate::types::BlockId;

/// The threads, the memory and the way to be interrupted of one forward pass.
pub struct ForwardContext<'a> {
    /// The threads.
    pub workers: &'a Workers,
    /// Memory that passes reuse.
    pub scratch: &'a mut Scratch,
    /// The stopwatch.
    pub timing: &'a mut Timing,
    /// Asked between the operations of a pass: true ends it.
    pub interrupted: &'a mut dyn FnMut() -> bool,
}

impl ForwardContext<'_> {
    /// Ends the pass here if it has been interrupted.
    ///
    /// # Errors
    /// `Cancelled`.
    pub fn check(&mut self) -> Result<()> {
        if (self.interrupted)() { Err(Error::cancelled()) } else { Ok(()) }
    }
}

/// The activations of a forward pass. Reusable: it grows to the largest batch it has seen.
#[derive(Default)]
pub struct Scratch {
    /// The rows that are being computed, by their place in the batch.
    pub(super) active: Vec<usize>,
    /// The residual stream, `[num_rows, hidden_size]`.
    pub(super) hidden: Vec<f32>,
    /// Those of its rows whose logits are wanted.
    pub(super) wanted: Vec<f32>,
    /// Logits on the way to places that are not next to each other, `[wanted rows, vocab_size]`.
    pub(super) scattered: Vec<f32>,
    /// The input of the next matrix.
    pub(super) packed: PackedRows,
    /// `[num_rows, (num_heads + 2 * num_kv_heads) * head_dim]`: queries, keys, values.
    pub(super) qkv: Vec<f32>,
    /// Where the keys and values of the rows go.
    pub(super) slots: Vec<(BlockId, usize)>,
    /// What attention works in.
    pub(super) attention: AttentionScratch,
    /// What attention gives, `[num_rows, num_heads * head_dim]`.
    pub(super) attended: Vec<f32>,
    /// `[num_rows, intermediate_size]`
    pub(super) activated: PackedRows,
    /// Cosines and sines of the rows' rotary angles, `[num_rows, dimensions that turn / 2]` each.
    pub(super) cos: Vec<f32>,
    pub(super) sin: Vec<f32>,
}

/// Gives a buffer the length of an output that is about to be overwritten.
pub(super) fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    buffer.resize(len, 0.0);
    buffer
}
