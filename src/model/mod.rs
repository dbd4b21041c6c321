//! Forward passes: token ids and a KV cache in, logits and hidden states out.
//!
//! There is no prefill and no decode here, only a ragged batch of rows ([`ForwardBatch`]): a chunk of a prompt, one
//! new token of each of eight beams and the six tokens of a speculative check are all just rows.
//!
//! An architecture is a file and a line in the [`registry`](load). Those in llama's manner share the `decoder`, which is
//! put together from the `layers`, and say as a `Family` in what they differ.

mod batch;
mod context;
mod decoder;
mod family;
mod layers;
mod llama;
mod loader;
mod mistral;
mod phi3;
mod qwen2;
mod qwen3;
mod registry;
mod rows;
mod timing;

pub use batch::{ForwardBatch, ForwardOutput, Row, RowInput};
pub use context::{ForwardContext, Scratch};
pub use loader::{LoadProgress, Loader, LoaderOptions};
pub use registry::{SUPPORTED_ARCHITECTURES, load};
pub use timing::{PassKind, PassTimes, Stage, StageTime, Timing};

use crate::cache::{KvLayout, KvStore};
use crate::error::Result;

/// A model that predicts the next token.
pub trait CausalLm: Send + Sync {
    /// The shape of the model's part of the KV cache, in elements of the type that the cache is to hold.
    ///
    /// # Errors
    /// When there is no such cache on this machine.
    fn kv_layout(&self, dtype: crate::cache::KvDtype) -> Result<KvLayout>;

    /// The number of tokens that logits are for.
    fn vocab_size(&self) -> usize;

    /// The elements of a hidden state.
    fn hidden_size(&self) -> usize;

    /// The number of decoder layers.
    fn num_layers(&self) -> usize;

    /// The memory that the packed weights take, in bytes.
    fn weight_bytes(&self) -> usize;

    /// The part of the weights that a pass over one token reads, in bytes: all but an untied embedding.
    fn matrix_bytes(&self) -> usize;

    /// The length above which the keys and values of all tokens of a sequence are others, if there is one: a sequence that
    /// grows beyond it, or shrinks back, has to be computed anew from its first token. See [`Row::rope_len`].
    fn switches_above(&self) -> Option<usize> {
        None
    }

    /// Computes all rows of the batch: writes their keys and values to the cache, and what they ask for to `out`.
    ///
    /// A row's result does not depend on the other rows of the batch, except on those before it in its own sequence.
    ///
    /// # Errors
    /// `Cancelled` when the context says so; the cache entries of the batch's rows are undefined then. `Internal` when
    /// the batch does not fit the model.
    fn forward(
        &self,
        batch: &ForwardBatch<'_>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        out: &mut ForwardOutput,
    ) -> Result<()>;
}
