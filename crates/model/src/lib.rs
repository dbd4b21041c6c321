//! Forward passes: from token ids and a KV cache to logits and hidden states.
//!
//! Prefill and decode are not distinguished. A pass computes a ragged batch of rows ([`ForwardBatch`]): a
//! chunk of a prompt, or one new token of each of eight beams.
//!
//! A family of models is a file in `families` and a line in its table. All share the `decoder`, which is built
//! from the `layers`; a family describes in a `DecoderSpec` what they are.
#![forbid(unsafe_code)]

mod batch;
pub mod cache;
mod context;
mod decoder;
mod encoder;
mod encoder_spec;
#[expect(clippy::unnecessary_wraps, reason = "the table holds functions of one type")]
mod families;
mod input;
mod layers;
mod loader;
mod matrices;
mod rows;
mod spec;
mod timing;
pub mod weights;

pub use batch::{EncodeBatch, EncodeOutput, ForwardBatch, ForwardOutput, Row, RowInput, SourceRow};
pub use context::{ForwardContext, Scratch};
pub use families::{SUPPORTED_ARCHITECTURES, check, has_stacked_experts, load, tensor_names};
pub use layers::{LoadedAdapter, WeightedAdapters};
pub use loader::{LoadProgress, Loaded, Loader, LoaderOptions};
pub use timing::{PassKind, PassTimes, Stage, StageTime, Timing};

use std::collections::BTreeMap;

use crate::cache::{KeyRotation, KvLayout, KvStore};
use crate::weights::Factors;
use rsgen_core::error::Result;
use rsgen_core::types::{LayerSet, LayerShape, TokenId};
use rsgen_kernels::Workers;

/// A model that predicts the next token.
pub trait CausalLm: Send + Sync {
    /// The shape of the model's part of the KV cache, in elements of the type that the cache is to hold.
    ///
    /// # Errors
    /// When there is no such cache on this machine.
    fn kv_layout(&self, dtype: crate::cache::KvDtype) -> Result<KvLayout>;

    /// The number of logits of a row.
    fn vocab_size(&self) -> usize;

    /// The elements of a hidden state before a layer.
    fn hidden_size(&self) -> usize;

    /// The elements of the hidden state after the last layer.
    fn last_size(&self) -> usize {
        self.hidden_size()
    }

    /// The elements of an embedding.
    fn embedding_size(&self) -> usize {
        self.hidden_size()
    }

    /// The elements of the hidden states of these layers of a token.
    fn hidden_len(&self, layers: LayerSet) -> usize {
        let last = usize::from(layers.contains(self.num_layers()));
        (layers.len() - last) * self.hidden_size() + last * self.last_size()
    }

    /// The number of decoder layers.
    fn num_layers(&self) -> usize;

    /// The sizes of what the layers deliver.
    fn layer_shape(&self) -> LayerShape;

    /// Writes the embeddings of tokens to `out`, `[tokens, embedding_size]`, as a row takes them: scaled, and
    /// without positions.
    ///
    /// # Panics
    /// When a token is not in the vocabulary, or `out` is of another size.
    fn embed(&self, tokens: &[TokenId], out: &mut [f32]);

    /// The memory that the packed weights take, in bytes.
    fn weight_bytes(&self) -> usize;

    /// The weights that a pass over one token reads, in bytes: all but an untied embedding.
    fn matrix_bytes(&self) -> usize;

    /// The sequence length above which longrope uses its long factors (`original_max_position_embeddings`);
    /// `None` without longrope. A sequence that crosses it must be recomputed from its first token. See
    /// [`Row::rope_seq_len`].
    fn longrope_threshold(&self) -> Option<usize> {
        None
    }

    /// Whether the keys of a token depend on the length of its text as well, and not only on the tokens up to
    /// it: with dynamic RoPE and longrope.
    fn keys_depend_on_length(&self) -> bool {
        false
    }

    /// Whether a cached token can move to another position: not with learned positions.
    fn can_shift(&self) -> bool;

    /// How the key of a token is rotated in each layer that moves `positions` positions to the front, in texts of up to
    /// [`longrope_threshold`](Self::longrope_threshold) tokens.
    fn rotation_back(&self, positions: usize) -> Vec<KeyRotation>;

    /// Computes all rows of the batch: writes their keys and values to the cache, and the requested outputs
    /// to `out`.
    ///
    /// Of the other rows of the batch, a row depends only on the earlier ones of its own sequence.
    ///
    /// # Errors
    /// `Cancelled` when the context is interrupted; the cache entries of the batch's rows are undefined then.
    /// `Internal` when the batch does not fit the model.
    fn forward(
        &self,
        batch: &ForwardBatch<'_>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        out: &mut ForwardOutput,
    ) -> Result<()>;

    /// Packs the factors of an adapter for this model, so that rows can name it.
    ///
    /// # Errors
    /// `Load` when they are not for the matrices of its layers; `Cancelled` when interrupted.
    fn adapter(
        &self,
        workers: &Workers,
        factors: BTreeMap<String, Factors>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<LoadedAdapter>;

    /// The encoder of a model that reads a source; `None` for the others.
    fn encoder(&self) -> Option<&dyn Encoder> {
        None
    }
}

/// The encoder of a model: it reads a source as a whole, and the decoder attends to what it gives.
pub trait Encoder: Send + Sync {
    /// The most tokens of a source, hidden ones included; `None` without a limit.
    fn max_source_len(&self) -> Option<usize>;

    /// The tokens that there are: ids from here on are not in the encoder's vocabulary.
    fn source_vocab_size(&self) -> usize;

    /// The sizes of what the encoder's layers deliver.
    fn layer_shape(&self) -> LayerShape;

    /// The slots of a source's tokens, hidden ones included, which the model's positions follow. Those of a source
    /// that is given as embeddings are 0, 1, 2, ….
    fn slots(&self, ids: &[TokenId]) -> Vec<usize> {
        (0..ids.len()).collect()
    }

    /// Writes the embeddings of tokens to `out`, `[tokens, hidden_size]`, as a row takes them: scaled, and
    /// without positions.
    ///
    /// # Panics
    /// When a token is not in the vocabulary, or `out` is of another size.
    fn embed(&self, tokens: &[TokenId], out: &mut [f32]);

    /// Encodes whole sources: writes the keys and values of each decoder layer's attention to the source to its
    /// table, in the layout of [`CausalLm::kv_layout`], and the requested outputs to `out`.
    ///
    /// What a source gives depends on the inputs and slots of its own rows only.
    ///
    /// # Errors
    /// `Cancelled` when the context is interrupted; the entries of the tables are undefined then.
    /// `Internal` when the batch does not fit the model.
    fn encode(
        &self,
        batch: &EncodeBatch<'_>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        out: &mut EncodeOutput,
    ) -> Result<()>;
}
