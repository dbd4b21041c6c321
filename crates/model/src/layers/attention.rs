//! Grouped-query self-attention over the KV cache, all of it or a sliding window.

use std::collections::HashSet;

use super::linear::Linear;
use super::{Norm, RotaryTables, normed};
use crate::Stage;
use crate::batch::Row;
use crate::cache::{BLOCK_TOKENS, KvDtype, KvRows, KvStore, KvView, TypedKv};
use crate::context::{ForwardContext, sized};
use crate::loader::{Loader, Part};
use crate::rows::ActiveRows;
use crate::spec::{AlibiSpec, AttentionSpec, Clip, HeadNormSpec, HeadScope, Qkv, QueryScale};
use crate::weights::ModelConfig;
use rsgen_core::error::{Error, Result};
use rsgen_core::types::BlockId;
use rsgen_kernels::quant::RowOrder;
use rsgen_kernels::tensor::ComputeDtype;
use rsgen_kernels::{
    AttentionShape, HeadBias, Isa, KvBlocks, KvStep, LayerBlocks, Queries, Work, attention,
    attention_weights, rotate,
};

/// Four projections, the first three stacked, and the heads.
#[derive(Debug)]
pub(crate) struct Attention {
    qkv: Linear,
    clip: Option<Clip>,
    head_norms: Option<HeadNorms>,
    query_scale: Option<QueryScale>,
    output: Linear,
    shape: AttentionShape,
    /// `[num_heads]` each.
    sinks: Option<Vec<f32>>,
    alibi: Option<AlibiSpec>,
    compute: ComputeDtype,
}

/// Norms of queries and keys.
#[derive(Debug)]
struct HeadNorms {
    query: Norm,
    key: Norm,
    /// The elements that are normalized together, of queries and of keys.
    widths: [usize; 2],
    after_rotation: bool,
}

impl Attention {
    /// Loads the attention of layer `layer`.
    pub(crate) fn load(
        loader: &Loader<'_>,
        config: &ModelConfig,
        layer: usize,
        spec: &AttentionSpec,
        is_transposed: bool,
    ) -> Result<Self> {
        let (hidden_size, head_dim) = (config.hidden_size, config.head_dim);
        let scale = if spec.inverse_layer_scale { spec.scale / (layer + 1) as f32 } else { spec.scale };
        let shape = AttentionShape {
            num_heads: config.num_attention_heads,
            num_kv_heads: config.num_key_value_heads,
            head_dim,
            scale,
            softcap: spec.softcap,
            window: config.window.of_layer(layer),
        };
        let (queries, keys) = (shape.num_heads * head_dim, shape.num_kv_heads * head_dim);
        let part = |name: &str, num_outputs| Part { is_transposed, ..Part::new(name, num_outputs) };
        let (parts, order) = match spec.qkv {
            Qkv::Separate([q, k, v]) => {
                (vec![part(q, queries), part(k, keys), part(v, keys)], RowOrder::Stacked)
            }
            Qkv::Stacked(name) => (vec![part(name, queries + 2 * keys)], RowOrder::Stacked),
            Qkv::Grouped(name) => {
                let order = RowOrder::Grouped { queries: shape.num_heads / shape.num_kv_heads, head_dim };
                (vec![part(name, queries + 2 * keys)], order)
            }
        };
        let output = part(spec.output, hidden_size);
        let sinks = spec.sinks.map(|name| loader.floats(name, &[shape.num_heads]));
        let head_norms = spec.head_norms.map(|spec| HeadNorms::load(loader, shape, spec));
        Ok(Self {
            qkv: Linear::load(loader, &parts, order, hidden_size, spec.qkv_bias)?,
            clip: spec.clip,
            head_norms: head_norms.transpose()?,
            query_scale: spec.query_scale,
            output: Linear::load(loader, &[output], RowOrder::Stacked, queries, spec.output_bias)?,
            shape,
            sinks: sinks.transpose()?,
            alibi: spec.alibi.clone(),
            compute: loader.compute(),
        })
    }

    /// What the heads add to their scores.
    fn bias(&self) -> HeadBias<'_> {
        HeadBias {
            sinks: self.sinks.as_deref(),
            slopes: self.alibi.as_ref().map(AlibiSpec::slopes),
            distances: None,
        }
    }

    /// Prepares the queries, keys and values of a row, `[heads, head_dim]`: limits, norms and rotation.
    fn prepare(
        &self,
        isa: Isa,
        rotary: &RotaryTables,
        position: usize,
        [cos, sin]: [&[f32]; 2],
        qkv: &mut [f32],
    ) {
        let AttentionShape { num_heads, num_kv_heads, head_dim, .. } = self.shape;
        let (keys_at, values_at) = (num_heads * head_dim, (num_heads + num_kv_heads) * head_dim);
        let clip = |after_norms: bool, qkv: &mut [f32]| {
            if let Some(Clip { limit, .. }) = self.clip.filter(|clip| clip.after_norms == after_norms) {
                for value in qkv {
                    *value = value.clamp(-limit, limit);
                }
            }
        };
        let norms = |after_rotation: bool, qkv: &mut [f32]| {
            if let Some(norms) =
                self.head_norms.as_ref().filter(|norms| norms.after_rotation == after_rotation)
            {
                norms.query.forward_heads(isa, &mut qkv[..keys_at], norms.widths[0]);
                norms.key.forward_heads(isa, &mut qkv[keys_at..values_at], norms.widths[1]);
            }
        };
        clip(false, qkv);
        norms(false, qkv);
        clip(true, qkv);
        if !cos.is_empty() {
            // Queries and keys are adjacent, so all their heads are rotated in one call.
            rotate(isa, rotary.pairs(), &mut qkv[..values_at], head_dim, cos, sin);
        }
        norms(true, qkv);
        if let Some(QueryScale { beta, original }) = self.query_scale {
            let factor = 1.0 + beta * (position as f32 / original).floor().ln_1p();
            for query in &mut qkv[..keys_at] {
                *query *= factor;
            }
        }
    }

    /// Normalizes the rows in `scratch.hidden` with `norm`, projects them, and writes keys and values to the
    /// cache. The queries stay in `scratch.qkv`.
    pub(crate) fn project(
        &self,
        layer: usize,
        rows: &ActiveRows<'_>,
        norm: Option<&Norm>,
        rotary: &RotaryTables,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        let (workers, scratch) = (context.workers, &mut *context.scratch);
        let width = self.qkv.num_outputs();
        let qkv = sized(&mut scratch.qkv, rows.len() * width);
        self.qkv.forward(workers, normed(norm, &scratch.hidden), &mut scratch.packed, false, qkv);
        context.timing.lap(Stage::Qkv, || self.qkv.work(rows.len()));
        let (num_angles, angles) = (rotary.num_frequencies(), rotary.of_layer(layer));
        let (cos, sin) = (&scratch.cos, &scratch.sin);
        let prepare = |row: usize, qkv: &mut [f32]| {
            let of_row = row * num_angles + angles.start..row * num_angles + angles.end;
            let angles = [&cos[of_row.clone()], &sin[of_row]];
            self.prepare(workers.isa(), rotary, rows.row(row).position, angles, qkv);
        };
        scratch.slots.clear();
        scratch.slots.extend(rows.iter().map(|row| rows.batch().tables[row.table].slot(row.position)));
        let first = self.shape.num_heads * self.shape.head_dim;
        kv.write_all(workers, layer, &scratch.slots, KvRows { numbers: qkv, stride: width, first, prepare });
        context.timing.lap(Stage::RopeKv, Work::default);
        context.check()
    }

    /// Writes the weights of the rows that request them to `out`: those of each row,
    /// `[num_layers, num_heads, position + 1]`.
    pub(crate) fn weights(
        &self,
        layer: usize,
        rows: &ActiveRows<'_>,
        kv: &KvStore,
        context: &mut ForwardContext<'_>,
        out: &mut [f32],
    ) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let num_layers = kv.layout().num_layers();
        let len = |row: &Row| num_layers * self.shape.num_heads * (row.position + 1);
        let requested =
            rows.requesting(|row| row.outputs.attentions, |row| usize::from(row.outputs.attentions));
        let mut starts = Vec::new();
        let mut start = 0;
        for row in rows.batch().rows.iter().filter(|row| row.outputs.attentions) {
            starts.push(start);
            start += len(row);
        }
        for (active, index) in requested {
            let of_layer = len(rows.row(active)) / num_layers;
            let out = &mut out[starts[index] + layer * of_layer..][..of_layer];
            let workers = context.workers;
            let stride = self.qkv.num_outputs();
            let queries =
                &context.scratch.qkv[active * stride..][..self.shape.num_heads * self.shape.head_dim];
            self.with_blocks(layer, rows, kv, |blocks| {
                attention_weights(workers, self.shape, self.bias(), queries, active, blocks, out);
            });
            context.check()?;
        }
        Ok(())
    }

    /// The heads, and the window.
    pub(crate) fn shape(&self) -> AttentionShape {
        self.shape
    }

    /// Computes the result of attention for the queries in `scratch.qkv`, and adds it to `scratch.hidden` or
    /// writes it to `scratch.block`.
    pub(crate) fn attend(
        &self,
        layer: usize,
        rows: &ActiveRows<'_>,
        kv: &KvStore,
        to_block: bool,
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        let workers = context.workers;
        let scratch = &mut *context.scratch;
        let out = sized(&mut scratch.attended, rows.len() * self.shape.num_heads * self.shape.head_dim);
        let queries = Queries { values: &scratch.qkv, stride: self.qkv.num_outputs() };
        self.with_blocks(layer, rows, kv, |blocks| {
            attention(workers, self.shape, self.bias(), queries, blocks, &mut scratch.attention, out);
        });
        context.timing.lap(Stage::Attention, || self.work(rows, kv));
        context.check()?;
        let scratch = &mut *context.scratch;
        let out =
            if to_block { sized(&mut scratch.block, scratch.hidden.len()) } else { &mut scratch.hidden };
        self.output.forward(workers, &scratch.attended[..], &mut scratch.packed, !to_block, out);
        context.timing.lap(Stage::Output, || self.output.work(rows.len()));
        context.check()
    }

    /// Calls a function with the cache of a layer as the rows see it.
    fn with_blocks(
        &self,
        layer: usize,
        rows: &ActiveRows<'_>,
        kv: &KvStore,
        function: impl FnOnce(LayerBlocks<'_>),
    ) {
        match kv.blocks(layer) {
            KvView::F32(view) => function(LayerBlocks::F32(&RowBlocks { rows, view })),
            KvView::I8(view) => function(LayerBlocks::I8(&RowBlocks { rows, view })),
            KvView::Bf16(view) => function(LayerBlocks::Bf16(&RowBlocks { rows, view }, self.compute)),
        }
    }

    /// The work of attention: reads of the visible keys and values, each block once, and two products with
    /// each per head.
    fn work(&self, rows: &ActiveRows<'_>, kv: &KvStore) -> Work {
        let AttentionShape { num_heads, head_dim, window, .. } = self.shape;
        let (mut pairs, mut blocks) = (0, HashSet::<BlockId>::new());
        for row in rows.iter() {
            let end = row.position + 1;
            let first = window.map_or(0, |window| end.saturating_sub(window));
            pairs += end - first;
            let visible = first / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS);
            blocks.extend(&rows.batch().tables[row.table].blocks()[visible]);
        }
        let block = kv.layout().bytes_per_block() / kv.layout().num_layers();
        let flops = (4 * pairs * num_heads * head_dim) as u64;
        let in_bf16 = kv.layout().dtype() == KvDtype::Bf16 && self.compute == ComputeDtype::Bf16;
        let (f32_flops, bf16_flops) = if in_bf16 { (0, flops) } else { (flops, 0) };
        Work { bytes: (blocks.len() * block) as u64, f32_flops, bf16_flops, ..Work::default() }
    }

    /// The width of `scratch.qkv`.
    pub(crate) fn qkv_width(&self) -> usize {
        self.qkv.num_outputs()
    }

    /// The memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.qkv.bytes() + self.output.bytes()
    }
}

impl HeadNorms {
    fn load(loader: &Loader<'_>, shape: AttentionShape, spec: HeadNormSpec) -> Result<Self> {
        let head_dim = shape.head_dim;
        let load = |name: &str, num_heads: usize| match spec.scope {
            HeadScope::Each => Norm::load(loader, name, head_dim, spec.norm),
            HeadScope::EachOwn => Norm::load_tensor(loader, name, &[num_heads, head_dim], spec.norm),
            HeadScope::Whole => Norm::load(loader, name, num_heads * head_dim, spec.norm),
            HeadScope::EachListed => {
                let norms = loader.child(name).child("norms");
                let heads =
                    (0..num_heads).map(|head| Norm::load(&norms, &head.to_string(), head_dim, spec.norm));
                let heads = Norm::concat(heads.collect::<Result<_>>()?);
                heads.ok_or_else(|| Error::internal("attention has heads"))
            }
        };
        let width =
            |num_heads: usize| if spec.scope == HeadScope::Whole { num_heads * head_dim } else { head_dim };
        Ok(Self {
            query: load(spec.names[0], shape.num_heads)?,
            key: load(spec.names[1], shape.num_kv_heads)?,
            widths: [width(shape.num_heads), width(shape.num_kv_heads)],
            after_rotation: spec.after_rotation,
        })
    }
}

/// The cache of one layer as the rows see it.
struct RowBlocks<'a, T> {
    rows: &'a ActiveRows<'a>,
    view: TypedKv<'a, T>,
}

impl<T: KvStep> KvBlocks<T> for RowBlocks<'_, T> {
    fn context_len(&self, row: usize) -> usize {
        self.rows.row(row).position + 1
    }

    fn shared_blocks(&self, row: usize, other: usize) -> usize {
        let (row, other) = (self.rows.row(row).table, self.rows.row(other).table);
        if row == other {
            return usize::MAX;
        }
        let tables = self.rows.batch().tables;
        let pairs = tables[row].blocks().iter().zip(tables[other].blocks());
        pairs.take_while(|(block, other)| block == other).count()
    }

    fn keys(&self, row: usize, block: usize, kv_head: usize) -> &[T] {
        self.view.keys(self.rows.batch().tables[self.rows.row(row).table].blocks()[block], kv_head)
    }

    fn values(&self, row: usize, block: usize, kv_head: usize) -> &[T] {
        self.view.values(self.rows.batch().tables[self.rows.row(row).table].blocks()[block], kv_head)
    }
}
