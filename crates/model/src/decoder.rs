//! The decoder that the families share: embedding, layers, norm, head, and the forward pass through them.
//!
//! A [`DecoderSpec`] says what each part is; nothing here names a family.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{ForwardBatch, ForwardOutput, Row};
use super::context::{ForwardContext, Scratch, sized};
use super::encoder::SourceEncoder;
use super::input::{Input, scale};
use super::layers::{
    DecoderLayer, Embedding, LayerPass, Linear, LoadedAdapter, Norm, RotaryTables, Sight, Unused, normed,
};
use super::loader::{Loader, Part};
use super::matrices::{Matrices, Place};
use super::rows::{ActiveRows, rank};
use super::spec::{DecoderSpec, LogitScale, Names, Scalings};
use super::timing::Stage;
use super::{CausalLm, Encoder};
use crate::cache::{KeyRotation, KvDtype, KvLayout, KvStore};
use crate::weights::{Factors, ModelConfig, TensorNames};
use rsgen_core::error::{Error, Result};
use rsgen_core::memory;
use rsgen_core::types::{LayerShape, TokenId};
use rsgen_kernels::quant::RowOrder;
use rsgen_kernels::{Work, Workers, soft_cap};

/// A decoder with its weights packed.
pub(super) struct Decoder {
    input: Input,
    layers: Vec<DecoderLayer>,
    norm: Option<Norm>,
    /// From the width of the layers to the embedding's.
    projection: Option<Linear>,
    /// `[vocab_size, hidden_size]`, or as wide as the embedding.
    head: Arc<Linear>,
    encoder: Option<SourceEncoder>,
    scalings: Scalings,
    tensor_names: TensorNames,
    rotary: RotaryTables,
    /// Whether a cached key fits another position once it is rotated.
    can_shift: bool,
    num_kv_heads: usize,
    head_dim: usize,
    vocab_size: usize,
    hidden_size: usize,
}

impl Decoder {
    /// Loads all tensors of a model.
    pub(super) fn load(config: &ModelConfig, spec: &DecoderSpec, loader: &Loader<'_>) -> Result<Self> {
        let (hidden_size, vocab_size, names) = (config.hidden_size, config.vocab_size, &spec.names);
        let (model, root) = scopes(loader, names);
        let width = names.embedding_width.unwrap_or(hidden_size);
        let Matrices { embedding, head, source } = Matrices::find(loader, [&model, &root], config, spec)?;
        let embedding = embedding.map_or(Ok(Embedding::Tied), |Place { scope, name }| {
            Embedding::load(&scope.child(name), vocab_size, width)
        });
        let embedding = Arc::new(embedding?);
        let head_part = [Part::new(head.name, vocab_size)];
        let head =
            Linear::load(&head.scope.for_head(), &head_part, RowOrder::Stacked, width, names.head_bias)?;
        let head = match spec.encoder.as_ref().and_then(|encoder| encoder.head_bias) {
            Some(name) if root.contains(name) => head.with_bias(Some(root.floats(name, &[1, vocab_size])?)),
            _ => head,
        };
        let head = Arc::new(head);
        let list = model.child(names.layers);
        let layer = |index| DecoderLayer::load(&list, config, index, spec);
        let layers = (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?;
        let input = Input::load(&model, config, spec, embedding)?;
        let norm = names.norm.map(|name| Norm::load(&model, name, hidden_size, spec.norm));
        let projection = names.embedding_width.map(|width| {
            let part = [Part::new("project_out", width)];
            Linear::load(&model, &part, RowOrder::Stacked, hidden_size, false)
        });
        let encoder = SourceEncoder::load(loader, &list, config, spec, &source, input.embedding(), &head)?;
        Ok(Self {
            input,
            layers,
            norm: norm.transpose()?,
            projection: projection.transpose()?,
            head,
            encoder,
            scalings: spec.scalings,
            tensor_names: spec.tensor_names(),
            rotary: RotaryTables::new(&spec.rotary, config.max_position_embeddings),
            can_shift: spec.positions.is_none()
                && spec.encoder.is_none()
                && spec.attention.head_norms.is_none_or(|norms| !norms.after_rotation),
            num_kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            vocab_size,
            hidden_size,
        })
    }

    /// Writes the states after the last layer of rows in `scratch.hidden`, as the head reads them. `rows` are
    /// pairs of an active row and the place of its state.
    fn last_states(
        &self,
        rows: impl Iterator<Item = (usize, usize)>,
        context: &mut ForwardContext<'_>,
        out: &mut [f32],
    ) {
        let (workers, scratch, width) = (context.workers, &mut *context.scratch, self.hidden_size);
        for (active, to) in rows {
            let hidden = &scratch.hidden[active * width..(active + 1) * width];
            let out = &mut out[to..to + self.last_size()];
            match (&self.projection, &self.norm) {
                (Some(projection), norm) => {
                    projection.forward(
                        workers,
                        normed(norm.as_ref(), hidden),
                        &mut scratch.packed,
                        false,
                        out,
                    );
                }
                (None, Some(norm)) => norm.forward(workers.isa(), hidden, out),
                (None, None) => out.copy_from_slice(hidden),
            }
        }
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
        let mut inputs = normed(self.norm.as_ref().filter(|_| normalize), inputs);
        if let Some(projection) = &self.projection {
            let narrow = sized(&mut scratch.block, count * projection.num_outputs());
            projection.forward(workers, inputs, &mut scratch.packed, false, narrow);
            inputs = (&*narrow).into();
        }
        let contiguous = rows.clone().zip(first..).all(|((_, to), next)| to == next);
        let out = if contiguous {
            &mut logits[first * self.vocab_size..(first + count) * self.vocab_size]
        } else {
            sized(&mut scratch.scattered, count * self.vocab_size)
        };
        self.head.forward(workers, inputs, &mut scratch.packed, false, out);
        if normalize {
            self.scalings.finish(workers, out);
        }
        if !contiguous {
            let scattered = &scratch.scattered;
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
        let last = layer == self.layers.len();
        let states = rows
            .requesting(
                |row| row.outputs.hidden_states.contains(layer),
                |row| self.hidden_len(row.outputs.hidden_states),
            )
            .map(|(active, first)| {
                (active, first + rank(rows.row(active).outputs.hidden_states, layer) * self.hidden_size)
            });
        if last {
            self.last_states(states, context, &mut out.hidden_states);
        } else {
            write_states(states, self.hidden_size, context, &mut out.hidden_states);
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
            let pass = LayerPass {
                layer: i,
                num_layers: self.layers.len(),
                cached: i,
                sight: Sight::Past,
                rotary: &self.rotary,
            };
            let weights = [&mut out.attentions[..], &mut out.cross_attentions];
            layer.forward(pass, rows, kv, context, weights)?;
        }
        self.collect_outputs(self.layers.len(), rows, context, out)
    }
}

impl Scalings {
    /// Scales and bends logits.
    fn finish(&self, workers: &Workers, logits: &mut [f32]) {
        const CHUNK: usize = 1 << 14;
        match self.logits {
            LogitScale::One => {}
            LogitScale::Times(factor) => {
                workers.for_each_chunk(logits, CHUNK, |_, logits| scale(logits, factor));
            }
            LogitScale::Over(divisor) => workers.for_each_chunk(logits, CHUNK, |_, logits| {
                for logit in logits {
                    *logit /= divisor;
                }
            }),
        }
        if let Some(cap) = self.softcap {
            soft_cap(workers, logits, cap);
        }
    }
}

/// Writes hidden states to `out`. `rows` are pairs of an active row and the place of its state.
pub(super) fn write_states(
    rows: impl Iterator<Item = (usize, usize)>,
    width: usize,
    context: &ForwardContext<'_>,
    out: &mut [f32],
) {
    for (active, to) in rows {
        out[to..to + width].copy_from_slice(&context.scratch.hidden[active * width..(active + 1) * width]);
    }
}

/// The scopes of the model's tensors and of its head. Beside those of the family, checkpoints have those of
/// the bare model, without a head, and of two generations of wrappers.
fn scopes<'a>(loader: &Loader<'a>, names: &Names) -> (Loader<'a>, Loader<'a>) {
    let Names { base, layers, .. } = *names;
    let wrapper = loader.child("language_model");
    let nested = loader.child("model").child("language_model");
    let below =
        |scope: &Loader<'a>, base: &str| base.split('.').fold(scope.clone(), |scope, name| scope.child(name));
    let bare = base.rsplit_once('.').map(|(_, last)| below(loader, last));
    let candidates = [
        (below(loader, base), loader.clone()),
        (below(&wrapper, base), wrapper),
        (nested, loader.clone()),
        (bare.unwrap_or_else(|| loader.clone()), loader.clone()),
        (loader.clone(), loader.clone()),
    ];
    let first = format!("{layers}.0.");
    let found = candidates.iter().position(|(model, _)| model.has_any(&first)).unwrap_or(0);
    let [family, old, new, last, bare] = candidates;
    [family, old, new, last, bare].into_iter().nth(found).unwrap_or_else(|| (loader.clone(), loader.clone()))
}

fn num_logits(row: &Row) -> usize {
    usize::from(row.outputs.logits)
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

    fn embedding_size(&self) -> usize {
        self.input.embedding_size()
    }

    fn last_size(&self) -> usize {
        self.projection.as_ref().map_or(self.hidden_size, Linear::num_outputs)
    }

    fn num_layers(&self) -> usize {
        self.layers.len()
    }

    fn layer_shape(&self) -> LayerShape {
        let shapes = self.layers.iter().map(DecoderLayer::attention_shape);
        let num_heads = shapes.clone().next().map_or(0, |shape| shape.num_heads);
        LayerShape::new(self.hidden_size, num_heads, shapes.map(|shape| shape.window).collect())
            .with_last_size(self.last_size())
    }

    fn embed(&self, tokens: &[TokenId], out: &mut [f32]) {
        self.input.of_tokens(tokens, &self.head, out);
    }

    fn weight_bytes(&self) -> usize {
        let layers: usize = self.layers.iter().map(DecoderLayer::bytes).sum();
        let embedding = self.input.embedding();
        let encoder = self.encoder.as_ref().map_or(0, |encoder| encoder.bytes(embedding));
        layers + self.head.bytes() + embedding.bytes() + self.input.bytes() + encoder
    }

    fn matrix_bytes(&self) -> usize {
        self.layers.iter().map(DecoderLayer::bytes_per_token).sum::<usize>() + self.head.bytes()
    }

    fn adapter(
        &self,
        workers: &Workers,
        factors: BTreeMap<String, Factors>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<LoadedAdapter> {
        let layers = self.layers.iter().map(DecoderLayer::maps);
        LoadedAdapter::load(workers, Unused::new(factors, &self.tensor_names), layers, interrupted)
    }

    fn longrope_threshold(&self) -> Option<usize> {
        self.rotary.longrope_threshold()
    }

    fn keys_depend_on_length(&self) -> bool {
        self.rotary.depends_on_length()
    }

    fn can_shift(&self) -> bool {
        self.can_shift
    }

    fn rotation_back(&self, positions: usize) -> Vec<KeyRotation> {
        self.rotary.rotation_back(positions)
    }

    fn forward(
        &self,
        batch: &ForwardBatch<'_>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        out: &mut ForwardOutput,
    ) -> Result<()> {
        let has_source = |row: &Row| batch.sources.get(row.source).is_some_and(|source| !source.is_empty());
        if self.encoder.is_some() && !batch.rows.iter().all(has_source) {
            return Err(Error::internal("a row of a model with an encoder has a source"));
        }
        let seen = |row: &Row| batch.sources.get(row.source).map_or(0, |source| source.len());
        let cross = |row: &Row| if row.outputs.attentions { seen(row) } else { 0 };
        let weights_each =
            self.layers.first().map_or(0, |layer| self.layers.len() * layer.attention_shape().num_heads);
        let states = |row: &Row| self.hidden_len(row.outputs.hidden_states);
        let total = |count: fn(&Row) -> usize| batch.rows.iter().map(count).sum::<usize>();
        for (buffer, len) in [
            (&mut out.logits, total(num_logits) * self.vocab_size),
            (&mut out.hidden_states, batch.rows.iter().map(states).sum()),
            (&mut out.layer_logits, total(num_layer_logits) * self.vocab_size),
            (&mut out.attentions, total(num_weights) * weights_each),
            (&mut out.cross_attentions, batch.rows.iter().map(cross).sum::<usize>() * weights_each),
        ] {
            memory::reserve(buffer, len.saturating_sub(buffer.len()), "results of a pass")?;
            buffer.resize(len, 0.0);
        }

        let hidden = &mut context.scratch.hidden;
        self.input.of_rows(context.workers, batch.rows, None, batch.embeddings, &self.head, hidden)?;
        context.timing.lap(Stage::Embedding, Work::default);
        let mut rows = ActiveRows::new(*batch, std::mem::take(&mut context.scratch.active));
        let Scratch { cos, sin, .. } = &mut *context.scratch;
        self.rotary.angles(&rows, cos, sin);
        context.timing.lap(Stage::RopeKv, Work::default);
        let done = self.run(&mut rows, kv, context, out);
        context.scratch.active = rows.into_memory();
        done
    }

    fn encoder(&self) -> Option<&dyn Encoder> {
        self.encoder.as_ref().map(|encoder| encoder as &dyn Encoder)
    }
}
