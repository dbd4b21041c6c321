//! The decoder that the families share: embedding, layers, norm, head, and the forward pass through them.
//!
//! Each [`Family`] describes how its layers differ from llama's; nothing here names a family.

use super::CausalLm;
use super::batch::{ForwardBatch, ForwardOutput, Row, RowInput};
use super::context::{ForwardContext, Scratch, sized};
use super::family::Family;
use super::layers::{DecoderLayer, Embedding, Linear, RmsNorm, RotaryEmbedding};
use super::loader::Loader;
use super::rows::{ActiveRows, rank};
use super::timing::Stage;
use crate::cache::{KeyRotation, KvDtype, KvLayout, KvStore};
use crate::weights::ModelConfig;
use rsgen_core::error::{Error, Result};
use rsgen_core::memory;
use rsgen_core::types::{LayerShape, TokenId};
use rsgen_kernels::quant::RowOrder;
use rsgen_kernels::{Work, Workers};

/// Rows whose embeddings a thread looks up at a time.
const EMBEDDING_CHUNK_ROWS: usize = 16;

/// The places of the embedding and of the head in a checkpoint.
const EMBEDDING: &str = "model.embed_tokens";
const HEAD: &str = "lm_head";

/// A decoder with its weights packed.
pub(super) struct Decoder {
    embedding: Embedding,
    layers: Vec<DecoderLayer>,
    norm: RmsNorm,
    /// `[vocab_size, hidden_size]`
    head: Linear,
    rotary: RotaryEmbedding,
    num_kv_heads: usize,
    head_dim: usize,
    vocab_size: usize,
    hidden_size: usize,
}

impl Decoder {
    /// Loads all tensors of a model of the family `F`.
    pub(super) fn load<F: Family>(config: &ModelConfig, loader: &Loader<'_>) -> Result<Self> {
        let (hidden_size, vocab_size) = (config.hidden_size, config.vocab_size);
        let model = loader.child("model");
        let (embedding, head) = match tied_matrix(config, loader)? {
            Some(matrix) => (Embedding::Tied, matrix),
            None => (Embedding::load(&loader.child(EMBEDDING), vocab_size, hidden_size)?, HEAD),
        };
        let head =
            Linear::load(&loader.for_head(), &[(head, vocab_size)], RowOrder::Stacked, hidden_size, false)?;
        let (parts, layers) = (F::layer_parts(config), model.child("layers"));
        let layers = (0..config.num_hidden_layers)
            .map(|index| DecoderLayer::load(&layers.index(index), config, index, parts))
            .collect::<Result<_>>()?;
        Ok(Self {
            embedding,
            layers,
            norm: RmsNorm::load(&model, "norm", hidden_size, config.rms_norm_eps as f32)?,
            head,
            rotary: RotaryEmbedding::new(config),
            num_kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            vocab_size,
            hidden_size,
        })
    }

    /// Looks up the embeddings of the batch.
    fn embed(&self, workers: &Workers, batch: &ForwardBatch<'_>, hidden: &mut Vec<f32>) -> Result<()> {
        let width = self.hidden_size;
        for row in batch.rows {
            match row.input {
                RowInput::Token(token) if token.index() >= self.vocab_size => {
                    let message = format!("token {token} of a vocabulary of {}", self.vocab_size);
                    return Err(Error::internal(message));
                }
                RowInput::Embedding(index) if (index + 1) * width > batch.embeddings.len() => {
                    return Err(Error::internal(format!("the batch has no embedding {index}")));
                }
                _ => {}
            }
        }
        let hidden = sized(hidden, batch.rows.len() * width);
        workers.for_each_chunk(hidden, EMBEDDING_CHUNK_ROWS * width, |chunk, hidden| {
            let rows = &batch.rows[chunk * EMBEDDING_CHUNK_ROWS..];
            for (row, out) in rows.iter().zip(hidden.chunks_exact_mut(width)) {
                match row.input {
                    RowInput::Token(token) => self.embedding.embed(token, &self.head, out),
                    RowInput::Embedding(index) => {
                        out.copy_from_slice(&batch.embeddings[index * width..][..width]);
                    }
                }
            }
        });
        Ok(())
    }

    /// Computes logits of rows in `scratch.hidden`. `rows` are pairs of an active row and its row of
    /// `logits`.
    fn logits(
        &self,
        rows: impl Iterator<Item = (usize, usize)> + Clone,
        normalize: bool,
        context: &mut ForwardContext<'_>,
        logits: &mut [f32],
    ) -> Result<()> {
        let Some((_, first)) = rows.clone().next() else { return Ok(()) };
        let count = rows.clone().count();
        let (workers, scratch, width) = (context.workers, &mut *context.scratch, self.hidden_size);
        let inputs = sized(&mut scratch.head_inputs, count * width);
        for ((from, _), out) in rows.clone().zip(inputs.chunks_exact_mut(width)) {
            out.copy_from_slice(&scratch.hidden[from * width..(from + 1) * width]);
        }
        let inputs = if normalize { self.norm.of(inputs) } else { (&*inputs).into() };
        let contiguous = rows.clone().zip(first..).all(|((_, to), next)| to == next);
        if contiguous {
            let out = &mut logits[first * self.vocab_size..(first + count) * self.vocab_size];
            self.head.forward(workers, inputs, &mut scratch.packed, false, out);
        } else {
            let scattered = sized(&mut scratch.scattered, count * self.vocab_size);
            self.head.forward(workers, inputs, &mut scratch.packed, false, scattered);
            for ((_, to), row) in rows.zip(scattered.chunks_exact(self.vocab_size)) {
                logits[to * self.vocab_size..(to + 1) * self.vocab_size].copy_from_slice(row);
            }
        }
        context.timing.lap(Stage::Head, || self.head.work(count));
        context.check()
    }

    /// Writes the outputs requested of the state before layer `layer`, or after the last layer if `layer` is
    /// their number: hidden states, logits of inner layers, and the logits of rows that end here.
    fn collect_outputs(
        &self,
        layer: usize,
        rows: &ActiveRows<'_>,
        context: &mut ForwardContext<'_>,
        out: &mut ForwardOutput,
    ) -> Result<()> {
        let (width, last) = (self.hidden_size, layer == self.layers.len());
        let requested = rows.requesting(|row| row.outputs.hidden_states.contains(layer), num_hidden_states);
        for (active, first) in requested {
            let to = first + rank(rows.row(active).outputs.hidden_states, layer);
            let hidden = &context.scratch.hidden[active * width..(active + 1) * width];
            let out = &mut out.hidden_states[to * width..(to + 1) * width];
            if last {
                self.norm.forward(context.workers.isa(), hidden, out);
            } else {
                out.copy_from_slice(hidden);
            }
        }
        let inner = rows
            .requesting(|row| row.outputs.layer_logits.contains(layer), num_layer_logits)
            .map(|(active, first)| (active, first + rank(rows.row(active).outputs.layer_logits, layer)));
        self.logits(inner, last, context, &mut out.layer_logits)?;
        let ends = |row: &Row| row.outputs.logits && row.last_layer.unwrap_or(self.layers.len()) == layer;
        self.logits(rows.requesting(ends, num_logits), true, context, &mut out.logits)
    }

    /// Runs all rows through all layers.
    fn run(
        &self,
        rows: &mut ActiveRows<'_>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        out: &mut ForwardOutput,
    ) -> Result<()> {
        for (i, layer) in self.layers.iter().enumerate() {
            self.collect_outputs(i, rows, context, out)?;
            let Scratch { hidden, cos, sin, .. } = &mut *context.scratch;
            let half = self.rotary.num_frequencies();
            rows.retain(
                |row| row.last_layer.is_none_or(|last| last > i),
                &mut [(hidden, self.hidden_size), (cos, half), (sin, half)],
            );
            if rows.is_empty() {
                return Ok(());
            }
            layer.forward(i, rows, i + 1 == self.layers.len(), kv, context, &mut out.attentions)?;
        }
        self.collect_outputs(self.layers.len(), rows, context, out)
    }
}

/// The place of the matrix that embedding and head share, if they share one. As in transformers 5, a
/// checkpoint with two different matrices overrules `tie_word_embeddings`, and one with a head alone is tied
/// to that.
fn tied_matrix(config: &ModelConfig, loader: &Loader<'_>) -> Result<Option<&'static str>> {
    if !config.tie_word_embeddings {
        return Ok(None);
    }
    match (loader.child(EMBEDDING).contains("weight"), loader.child(HEAD).contains("weight")) {
        (_, false) => Ok(Some(EMBEDDING)),
        (false, true) => Ok(Some(HEAD)),
        (true, true) if loader.equal([EMBEDDING, HEAD], config.vocab_size, config.hidden_size)? => {
            Ok(Some(EMBEDDING))
        }
        (true, true) => {
            loader.warn(format!(
                "`tie_word_embeddings` is true, but {EMBEDDING}.weight and {HEAD}.weight differ, so each is used for \
                 itself; set it to false in config.json"
            ));
            Ok(None)
        }
    }
}

fn num_logits(row: &Row) -> usize {
    usize::from(row.outputs.logits)
}

fn num_hidden_states(row: &Row) -> usize {
    row.outputs.hidden_states.len()
}

/// The attention weights of a head and layer.
fn num_weights(row: &Row) -> usize {
    if row.outputs.attentions { row.position + 1 } else { 0 }
}

fn num_layer_logits(row: &Row) -> usize {
    row.outputs.layer_logits.len()
}

impl CausalLm for Decoder {
    fn kv_layout(&self, dtype: KvDtype) -> Result<KvLayout> {
        KvLayout::new(self.layers.len(), self.num_kv_heads, self.head_dim, dtype)
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    fn num_layers(&self) -> usize {
        self.layers.len()
    }

    fn layer_shape(&self) -> LayerShape {
        let shapes = self.layers.iter().map(DecoderLayer::attention_shape);
        let num_heads = shapes.clone().next().map_or(0, |shape| shape.num_heads);
        LayerShape::new(self.hidden_size, num_heads, shapes.map(|shape| shape.window).collect())
    }

    fn embed(&self, tokens: &[TokenId], out: &mut [f32]) {
        for (&token, out) in tokens.iter().zip(out.chunks_exact_mut(self.hidden_size)) {
            self.embedding.embed(token, &self.head, out);
        }
    }

    fn weight_bytes(&self) -> usize {
        self.matrix_bytes() + self.embedding.bytes()
    }

    fn matrix_bytes(&self) -> usize {
        self.layers.iter().map(DecoderLayer::bytes).sum::<usize>() + self.head.bytes()
    }

    fn longrope_threshold(&self) -> Option<usize> {
        self.rotary.longrope_threshold()
    }

    fn keys_depend_on_length(&self) -> bool {
        self.rotary.depends_on_length()
    }

    fn rotation_back(&self, positions: usize) -> KeyRotation {
        self.rotary.rotation_back(positions)
    }

    fn forward(
        &self,
        batch: &ForwardBatch<'_>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        out: &mut ForwardOutput,
    ) -> Result<()> {
        let weights_each =
            self.layers.first().map_or(0, |layer| self.layers.len() * layer.attention_shape().num_heads);
        let total = |count: fn(&Row) -> usize| batch.rows.iter().map(count).sum::<usize>();
        for (buffer, len) in [
            (&mut out.logits, total(num_logits) * self.vocab_size),
            (&mut out.hidden_states, total(num_hidden_states) * self.hidden_size),
            (&mut out.layer_logits, total(num_layer_logits) * self.vocab_size),
            (&mut out.attentions, total(num_weights) * weights_each),
        ] {
            memory::reserve(buffer, len.saturating_sub(buffer.len()), "results of a pass")?;
            buffer.resize(len, 0.0);
        }

        self.embed(context.workers, batch, &mut context.scratch.hidden)?;
        context.timing.lap(Stage::Embedding, Work::default);
        let mut rows = ActiveRows::new(*batch, std::mem::take(&mut context.scratch.active));
        let Scratch { cos, sin, .. } = &mut *context.scratch;
        self.rotary.angles(&rows, cos, sin);
        context.timing.lap(Stage::RopeKv, Work::default);
        let done = self.run(&mut rows, kv, context, out);
        context.scratch.active = rows.into_memory();
        done
    }
}
