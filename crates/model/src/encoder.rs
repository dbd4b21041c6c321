//! The encoder that the families share: the layers of a [`Decoder`](crate::decoder::Decoder) without a head, whose rows
//! see their whole source.

use std::sync::Arc;

use super::batch::{EncodeBatch, EncodeOutput, ForwardBatch, Row, SourceRow};
use super::context::{ForwardContext, Scratch};
use super::decoder::write_states;
use super::input::Input;
use super::layers::{DecoderLayer, Embedding, LayerPass, Linear, Norm, RotaryTables, Sight, Slots, SourceKv};
use super::loader::Loader;
use super::matrices::{SourceMatrix, common_scope};
use super::rows::{ActiveRows, rank};
use super::spec::DecoderSpec;
use super::timing::Stage;
use crate::Encoder;
use crate::cache::{BlockTable, KvCapacity, KvDtype, KvLayout, KvStore};
use crate::weights::ModelConfig;
use rsgen_core::error::{Error, Result};
use rsgen_core::memory;
use rsgen_core::types::{LayerShape, TokenId};
use rsgen_kernels::Work;

/// An encoder with its weights packed, and the projections to what the decoder attends to.
pub(super) struct SourceEncoder {
    input: Input,
    layers: Vec<DecoderLayer>,
    norm: Option<Norm>,
    rotary: RotaryTables,
    /// One for each layer of the decoder.
    outputs: Vec<SourceKv>,
    /// The decoder's, whose rows the embedding may have.
    head: Arc<Linear>,
    hidden_size: usize,
    num_heads: usize,
    /// The keys and values of one layer.
    layout: KvLayout,
}

impl SourceEncoder {
    /// Loads the encoder of a model, if it has one. `layers` is the scope of the decoder's layers, `embedding` its
    /// embedding and `head` its head.
    pub(super) fn load(
        loader: &Loader<'_>,
        layers: &Loader<'_>,
        config: &ModelConfig,
        spec: &DecoderSpec,
        matrix: &SourceMatrix<'_>,
        embedding: &Arc<Embedding>,
        head: &Arc<Linear>,
    ) -> Result<Option<Self>> {
        let (Some(encoder), Some(own)) = (&spec.encoder, &config.encoder) else { return Ok(None) };
        let (stack, own) = (&encoder.stack, &**own);
        let (_, side) = stack.names.base.rsplit_once('.').unwrap_or(("", stack.names.base));
        let model = common_scope(loader, encoder).child(side);
        let embedding = match matrix {
            SourceMatrix::Head => Arc::new(Embedding::Tied),
            SourceMatrix::Embedding => Arc::clone(embedding),
            SourceMatrix::Own(place) => {
                let scope = place.scope.child(place.name);
                Arc::new(Embedding::load(&scope, own.vocab_size, own.hidden_size)?)
            }
        };
        let input = Input::load(&model, own, stack, embedding)?;
        let list = model.child(stack.names.layers);
        let layer = |index| DecoderLayer::load(&list, own, index, stack);
        let output = |index| SourceKv::load(&layers.index(index), config, spec);
        let norm = stack.names.norm.map(|name| Norm::load(&model, name, own.hidden_size, stack.norm));
        Ok(Some(Self {
            input,
            layers: (0..own.num_hidden_layers).map(layer).collect::<Result<_>>()?,
            norm: norm.transpose()?,
            rotary: RotaryTables::new(&stack.rotary, own.max_position_embeddings),
            outputs: (0..config.num_hidden_layers).map(output).collect::<Result<_>>()?,
            head: Arc::clone(head),
            hidden_size: own.hidden_size,
            num_heads: own.num_attention_heads,
            layout: KvLayout::new(1, own.num_key_value_heads, own.head_dim, KvDtype::F32)?,
        }))
    }

    /// The memory that its matrices take beside the decoder's, in bytes.
    pub(super) fn bytes(&self, of_decoder: &Arc<Embedding>) -> usize {
        let embedding = self.input.embedding();
        let own = if Arc::ptr_eq(embedding, of_decoder) { 0 } else { embedding.bytes() };
        let layers: usize = self.layers.iter().map(DecoderLayer::bytes).sum();
        let outputs: usize = self.outputs.iter().map(SourceKv::bytes).sum();
        own + self.input.bytes() + layers + outputs
    }

    /// Runs all rows through all layers. The encoded rows are in `scratch.hidden` then.
    fn run(
        &self,
        rows: &mut ActiveRows<'_>,
        slots: &Slots,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        out: &mut EncodeOutput,
    ) -> Result<()> {
        let num_layers = self.layers.len();
        for (layer, stack) in self.layers.iter().enumerate() {
            self.write_states(layer, rows, context, out);
            let sight = Sight::Whole(slots);
            let pass = LayerPass { layer, num_layers, cached: 0, sight, rotary: &self.rotary };
            stack.forward(pass, rows, kv, context, [&mut out.attentions, &mut []])?;
        }
        if let Some(norm) = &self.norm {
            norm.forward_rows(context.workers, &mut context.scratch.hidden);
        }
        self.write_states(num_layers, rows, context, out);
        Ok(())
    }

    /// Writes the hidden states that rows request of the state before layer `layer`, or after the last one.
    fn write_states(
        &self,
        layer: usize,
        rows: &ActiveRows<'_>,
        context: &ForwardContext<'_>,
        out: &mut EncodeOutput,
    ) {
        let width = self.hidden_size;
        let requested =
            rows.requesting(|row| row.outputs.hidden_states.contains(layer), |row| self.hidden_len(row));
        let places = requested.map(|(active, first)| {
            (active, first + rank(rows.row(active).outputs.hidden_states, layer) * width)
        });
        write_states(places, width, context, &mut out.hidden_states);
    }

    /// The numbers of the hidden states that a row requests.
    fn hidden_len(&self, row: &Row) -> usize {
        row.outputs.hidden_states.len() * self.hidden_size
    }
}

/// The rows of sources as those of sequences that hold nothing else.
fn rows_of(batch: &EncodeBatch<'_>) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::with_capacity(batch.rows.len());
    for &SourceRow { input, source, outputs, .. } in batch.rows {
        let before = rows.last().map_or(0, |row| row.table);
        let position = if source == before { rows.last().map_or(0, |row| row.position + 1) } else { 0 };
        let follows = source == before || source == before + 1 && !rows.is_empty();
        if !follows || source >= batch.tables.len() || position >= batch.tables[source].len() {
            return Err(Error::internal("the rows of a source are adjacent, and as many as its table has"));
        }
        rows.push(Row {
            input,
            table: source,
            source,
            position,
            rope_seq_len: 1,
            adapters: None,
            last_layer: None,
            outputs,
        });
    }
    let total: usize = batch.tables.iter().map(|table| table.len()).sum();
    if total != rows.len() {
        return Err(Error::internal(format!("{} rows of sources of {total} tokens", rows.len())));
    }
    Ok(rows)
}

impl Encoder for SourceEncoder {
    fn max_source_len(&self) -> Option<usize> {
        Some(self.input.num_positions()).filter(|&positions| positions != usize::MAX)
    }

    fn source_vocab_size(&self) -> usize {
        self.input.vocab_size()
    }

    fn layer_shape(&self) -> LayerShape {
        LayerShape::new(self.hidden_size, self.num_heads, vec![None; self.layers.len()])
    }

    fn slots(&self, ids: &[TokenId]) -> Vec<usize> {
        self.input.positions().map_or_else(|| (0..ids.len()).collect(), |positions| positions.of_tokens(ids))
    }

    fn embed(&self, tokens: &[TokenId], out: &mut [f32]) {
        self.input.of_tokens(tokens, &self.head, out);
    }

    fn encode(
        &self,
        batch: &EncodeBatch<'_>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
        out: &mut EncodeOutput,
    ) -> Result<()> {
        let rows = rows_of(batch)?;
        if rows.is_empty() {
            return Ok(());
        }
        let weights = |row: &Row| if row.outputs.attentions { batch.tables[row.table].len() } else { 0 };
        let states: usize = rows.iter().map(|row| self.hidden_len(row)).sum();
        let weights: usize = rows.iter().map(weights).sum();
        for (buffer, len) in [
            (&mut out.hidden_states, states),
            (&mut out.attentions, weights * self.layers.len() * self.num_heads),
        ] {
            memory::reserve(buffer, len.saturating_sub(buffer.len()), "results of a pass")?;
            buffer.resize(len, 0.0);
        }
        let slots = Slots::new(batch.rows.iter().map(|row| (row.source, row.slot)));
        let (head, hidden) = (&self.head, &mut context.scratch.hidden);
        self.input.of_rows(context.workers, &rows, Some(slots.rows()), batch.embeddings, head, hidden)?;
        context.timing.lap(Stage::Embedding, Work::default);

        // The keys and values of a layer, whose memory the next one takes.
        let mut num_blocks = 0;
        let table = |source: &&BlockTable| {
            let table = BlockTable::adjacent(num_blocks as u32, source.len());
            num_blocks += table.blocks().len();
            table
        };
        let tables: Vec<_> = batch.tables.iter().map(table).collect();
        let tables: Vec<_> = tables.iter().collect();
        let mut own = KvStore::new(KvCapacity::from_blocks(self.layout, num_blocks)?);
        own.ensure(num_blocks, context.workers)?;
        context.timing.lap(Stage::Cache, Work::default);
        let forward = ForwardBatch {
            rows: &rows,
            tables: &tables,
            sources: &[],
            embeddings: batch.embeddings,
            adapters: &[],
        };
        let mut active = ActiveRows::new(forward, std::mem::take(&mut context.scratch.active));
        let Scratch { cos, sin, .. } = &mut *context.scratch;
        self.rotary.angles(&active, cos, sin);
        let done = self.run(&mut active, &slots, &mut own, context, out);
        context.scratch.active = active.into_memory();
        done?;
        let slots: Vec<_> = rows.iter().map(|row| batch.tables[row.table].slot(row.position)).collect();
        self.outputs
            .iter()
            .enumerate()
            .try_for_each(|(layer, output)| output.write(layer, &slots, kv, context))
    }
}
