//! The decoder that the families share: embedding, layers, norm, head, and the forward pass through them.
//!
//! A [`DecoderSpec`] says what each part is; nothing here names a family.

use super::CausalLm;
use super::batch::{ForwardBatch, ForwardOutput, Row, RowInput};
use super::context::{ForwardContext, Scratch, sized};
use super::layers::{DecoderLayer, Embedding, Linear, Norm, RotaryTables, normed};
use super::loader::{Loader, Part};
use super::rows::{ActiveRows, rank};
use super::spec::{DecoderSpec, LogitScale, Names, Scalings};
use super::timing::Stage;
use crate::cache::{KeyRotation, KvDtype, KvLayout, KvStore};
use crate::weights::ModelConfig;
use rsgen_core::error::{Error, Result};
use rsgen_core::memory;
use rsgen_core::types::{LayerShape, TokenId};
use rsgen_kernels::quant::RowOrder;
use rsgen_kernels::{PackedRows, Work, Workers, norm_in_place, soft_cap};

/// Rows whose embeddings a thread looks up at a time.
const EMBEDDING_CHUNK_ROWS: usize = 16;

/// A decoder with its weights packed.
pub(super) struct Decoder {
    embedding: Embedding,
    embedding_norm: Option<Norm>,
    /// Learned position embeddings, and the row of position 0.
    positions: Option<(Embedding, usize)>,
    layers: Vec<DecoderLayer>,
    norm: Option<Norm>,
    /// `[vocab_size, hidden_size]`, or as wide as the embedding.
    head: Linear,
    /// Between the embedding's width and that of the layers.
    projections: Option<Projections>,
    scalings: Scalings,
    rotary: RotaryTables,
    /// The positions that there are.
    num_positions: usize,
    /// Whether a cached key fits another position once it is rotated.
    can_shift: bool,
    num_kv_heads: usize,
    head_dim: usize,
    vocab_size: usize,
    hidden_size: usize,
}

/// Projections around the layers.
struct Projections {
    input: Linear,
    output: Linear,
}

impl Decoder {
    /// Loads all tensors of a model.
    pub(super) fn load(config: &ModelConfig, spec: &DecoderSpec, loader: &Loader<'_>) -> Result<Self> {
        let (hidden_size, vocab_size, names) = (config.hidden_size, config.vocab_size, &spec.names);
        let (model, root) = scopes(loader, names);
        let width = names.embedding_width.unwrap_or(hidden_size);
        // Transformers 5 calls every head alike.
        let is_renamed = !root.child(names.head).contains("weight");
        let head = if is_renamed { "lm_head" } else { names.head };
        let places = Places { model: &model, root: &root, embedding: names.embedding, head };
        let (embedding, head) = if let Some(matrix) = places.tied(config, width)? {
            (Embedding::Tied, matrix)
        } else {
            let embedding = Embedding::load(&model.child(names.embedding), vocab_size, width)?;
            (embedding, (&root, head))
        };
        let head_part = [Part::new(head.1, vocab_size)];
        let head = Linear::load(&head.0.for_head(), &head_part, RowOrder::Stacked, width, names.head_bias)?;
        let layers = model.child(names.layers);
        let layers = (0..config.num_hidden_layers)
            .map(|index| DecoderLayer::load(&layers.index(index), config, index, spec))
            .collect::<Result<_>>()?;
        let positions = spec.positions.as_ref().map(|learned| {
            let rows = config.max_position_embeddings + learned.offset;
            Ok::<_, Error>((Embedding::load(&model.child(learned.name), rows, hidden_size)?, learned.offset))
        });
        let norm = |name: &str, width| Norm::load(&model, name, width, spec.norm);
        let projections = names.embedding_width.map(|width| {
            let load = |name: &str, outputs, inputs| {
                Linear::load(&model, &[Part::new(name, outputs)], RowOrder::Stacked, inputs, false)
            };
            let input = load("project_in", hidden_size, width)?;
            Ok::<_, Error>(Projections { input, output: load("project_out", width, hidden_size)? })
        });
        Ok(Self {
            embedding,
            embedding_norm: spec.embedding_norm.map(|name| norm(name, hidden_size)).transpose()?,
            positions: positions.transpose()?,
            layers,
            norm: names.norm.map(|name| norm(name, hidden_size)).transpose()?,
            head,
            projections: projections.transpose()?,
            scalings: spec.scalings,
            rotary: RotaryTables::new(&spec.rotary, config.max_position_embeddings),
            num_positions: spec.positions.as_ref().map_or(usize::MAX, |_| config.max_position_embeddings),
            can_shift: spec.positions.is_none()
                && spec.attention.head_norms.is_none_or(|norms| !norms.after_rotation),
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
            if row.position >= self.num_positions {
                let message = format!("position {} of a model with {}", row.position, self.num_positions);
                return Err(Error::internal(message));
            }
        }
        let hidden = sized(hidden, batch.rows.len() * width);
        if let Some(projections) = &self.projections {
            projections.embed(workers, &self.embedding, &self.head, batch, hidden);
        }
        workers.for_each_chunk(hidden, EMBEDDING_CHUNK_ROWS * width, |chunk, hidden| {
            let rows = &batch.rows[chunk * EMBEDDING_CHUNK_ROWS..];
            for (row, out) in rows.iter().zip(hidden.chunks_exact_mut(width)) {
                match row.input {
                    RowInput::Token(token) => {
                        if self.projections.is_none() {
                            self.embedding.embed(token, &self.head, out);
                        }
                        scale(out, self.scalings.embedding);
                    }
                    RowInput::Embedding(index) => {
                        out.copy_from_slice(&batch.embeddings[index * width..][..width]);
                    }
                }
                scale(out, self.scalings.input);
                if let Some((positions, offset)) = &self.positions {
                    positions.add(row.position + offset, out);
                }
                if let Some(norm) = &self.embedding_norm {
                    norm_in_place(workers.isa(), out, norm.kernel());
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
        let mut inputs = normed(self.norm.as_ref().filter(|_| normalize), inputs);
        if let Some(Projections { output, .. }) = &self.projections {
            let narrow = sized(&mut scratch.block, count * output.num_outputs());
            output.forward(workers, inputs, &mut scratch.packed, false, narrow);
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
        let (width, last) = (self.hidden_size, layer == self.layers.len());
        let requested = rows.requesting(|row| row.outputs.hidden_states.contains(layer), num_hidden_states);
        for (active, first) in requested {
            let to = first + rank(rows.row(active).outputs.hidden_states, layer);
            let hidden = &context.scratch.hidden[active * width..(active + 1) * width];
            let out = &mut out.hidden_states[to * width..(to + 1) * width];
            match self.norm.as_ref().filter(|_| last) {
                Some(norm) => norm.forward(context.workers.isa(), hidden, out),
                None => out.copy_from_slice(hidden),
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
            layer.forward(i, rows, &self.rotary, kv, context, &mut out.attentions)?;
        }
        self.collect_outputs(self.layers.len(), rows, context, out)
    }
}

impl Projections {
    /// Writes the embeddings of the batch's tokens to `hidden`, `[num_rows, hidden_size]`.
    fn embed(
        &self,
        workers: &Workers,
        embedding: &Embedding,
        head: &Linear,
        batch: &ForwardBatch<'_>,
        hidden: &mut [f32],
    ) {
        let width = self.input.num_inputs();
        let mut narrow = vec![0.0; batch.rows.len() * width];
        for (row, out) in batch.rows.iter().zip(narrow.chunks_exact_mut(width)) {
            if let RowInput::Token(token) = row.input {
                embedding.embed(token, head, out);
            }
        }
        self.input.forward(workers, &narrow[..], &mut PackedRows::default(), false, hidden);
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

/// Multiplies with a factor that is 1 in most models.
fn scale(values: &mut [f32], factor: f32) {
    if factor != 1.0 {
        for value in values {
            *value *= factor;
        }
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

/// The places of the embedding and of the head in a checkpoint.
struct Places<'a, 'b> {
    model: &'b Loader<'a>,
    root: &'b Loader<'a>,
    embedding: &'static str,
    head: &'static str,
}

impl<'a, 'b> Places<'a, 'b> {
    /// The place of the matrix that embedding and head share, if they share one. As in transformers 5, a
    /// checkpoint with two different matrices overrules `tie_word_embeddings`, and one with a head alone is
    /// tied to that.
    fn tied(&self, config: &ModelConfig, width: usize) -> Result<Option<(&'b Loader<'a>, &'static str)>> {
        if !config.tie_word_embeddings {
            return Ok(None);
        }
        let embedding = (self.model, self.embedding);
        let head = (self.root, self.head);
        let contains = |(scope, name): (&Loader<'_>, &str)| scope.child(name).contains("weight");
        match (contains(embedding), contains(head)) {
            (_, false) => Ok(Some(embedding)),
            (false, true) => Ok(Some(head)),
            (true, true) if Loader::equal([embedding, head], config.vocab_size, width)? => {
                Ok(Some(embedding))
            }
            (true, true) => {
                let [embedding, head] = [embedding, head].map(|(scope, name)| scope.full_name(name));
                self.root.warn(format!(
                    "`tie_word_embeddings` is true, but {embedding}.weight and {head}.weight differ, so each is used for \
                     itself; set it to false in config.json"
                ));
                Ok(None)
            }
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

    fn embed(&self, workers: &Workers, tokens: &[TokenId], out: &mut [f32]) {
        if let Some(projections) = &self.projections {
            let row = |&token| Row::of_token(token);
            let rows: Vec<_> = tokens.iter().map(row).collect();
            let batch = ForwardBatch { rows: &rows, tables: &[], sources: &[], embeddings: &[] };
            projections.embed(workers, &self.embedding, &self.head, &batch, out);
        }
        for (&token, out) in tokens.iter().zip(out.chunks_exact_mut(self.hidden_size)) {
            if self.projections.is_none() {
                self.embedding.embed(token, &self.head, out);
            }
            scale(out, self.scalings.embedding);
        }
    }

    fn weight_bytes(&self) -> usize {
        let positions = self.positions.as_ref().map_or(0, |(positions, _)| positions.bytes());
        let layers: usize = self.layers.iter().map(DecoderLayer::bytes).sum();
        layers + self.head.bytes() + self.embedding.bytes() + positions
    }

    fn matrix_bytes(&self) -> usize {
        self.layers.iter().map(DecoderLayer::bytes_per_token).sum::<usize>() + self.head.bytes()
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
