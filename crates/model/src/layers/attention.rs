//! Grouped-query self-attention over the KV cache, all of it or a sliding window.

use std::collections::HashSet;

use super::linear::Linear;
use super::rms_norm::RmsNorm;
use super::{LayerParts, Projections};
use crate::Stage;
use crate::batch::Row;
use crate::cache::{BLOCK_TOKENS, KvDtype, KvRows, KvStore, KvView, TypedKv};
use crate::context::{ForwardContext, sized};
use crate::loader::Loader;
use crate::rows::ActiveRows;
use crate::weights::ModelConfig;
use rsgen_core::error::{Error, Result};
use rsgen_core::types::BlockId;
use rsgen_kernels::quant::RowOrder;
use rsgen_kernels::tensor::ComputeDtype;
use rsgen_kernels::{
    AttentionShape, KvBlocks, KvStep, LayerBlocks, Work, attention, attention_weights, rotate_half,
};

/// Four projections, the first three stacked, and the shape of the heads.
#[derive(Debug)]
pub(crate) struct Attention {
    qkv: Linear,
    head_norms: Option<HeadNorms>,
    output: Linear,
    shape: AttentionShape,
    compute: ComputeDtype,
}

/// RMS norms of each head, applied before RoPE.
#[derive(Debug)]
struct HeadNorms {
    query: RmsNorm,
    key: RmsNorm,
}

impl Attention {
    /// Loads the attention of layer `layer`.
    pub(crate) fn load(
        loader: &Loader<'_>,
        config: &ModelConfig,
        layer: usize,
        parts: LayerParts,
    ) -> Result<Self> {
        let (hidden_size, head_dim, eps) = (config.hidden_size, config.head_dim, config.rms_norm_eps as f32);
        let shape = AttentionShape {
            num_heads: config.num_attention_heads,
            num_kv_heads: config.num_key_value_heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            window: config.window.of_layer(layer),
        };
        let (queries, keys) = (shape.num_heads * head_dim, shape.num_kv_heads * head_dim);
        let qkv: &[_] = match parts.projections {
            Projections::Separate => &[("q_proj", queries), ("k_proj", keys), ("v_proj", keys)],
            Projections::Fused => &[("qkv_proj", queries + 2 * keys)],
        };
        let head_norms = || {
            let query = RmsNorm::load(loader, "q_norm", head_dim, eps)?;
            Ok::<_, Error>(HeadNorms { query, key: RmsNorm::load(loader, "k_norm", head_dim, eps)? })
        };
        Ok(Self {
            qkv: Linear::load(loader, qkv, RowOrder::Stacked, hidden_size, parts.qkv_bias)?,
            head_norms: parts.head_norms.then(head_norms).transpose()?,
            output: Linear::load(
                loader,
                &[("o_proj", hidden_size)],
                RowOrder::Stacked,
                queries,
                parts.output_bias,
            )?,
            shape,
            compute: loader.compute(),
        })
    }

    /// Normalizes the rows in `scratch.hidden` with `norm`, projects them, and writes keys and values to the
    /// cache. The queries stay in `scratch.qkv`.
    pub(crate) fn project(
        &self,
        layer: usize,
        rows: &ActiveRows<'_>,
        norm: &RmsNorm,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        let (workers, scratch) = (context.workers, &mut *context.scratch);
        let width = self.qkv.num_outputs();
        let qkv = sized(&mut scratch.qkv, rows.len() * width);
        self.qkv.forward(workers, norm.of(&scratch.hidden), &mut scratch.packed, false, qkv);
        context.timing.lap(Stage::Qkv, || self.qkv.work(rows.len()));
        let AttentionShape { num_heads, num_kv_heads, head_dim, .. } = self.shape;
        let (keys_at, values_at) = (num_heads * head_dim, (num_heads + num_kv_heads) * head_dim);
        let angles = scratch.cos.len() / rows.len();
        let (cos, sin) = (&scratch.cos, &scratch.sin);
        let prepare = |row: usize, qkv: &mut [f32]| {
            if let Some(norms) = &self.head_norms {
                norms.query.forward_in_place(workers.isa(), &mut qkv[..keys_at]);
                norms.key.forward_in_place(workers.isa(), &mut qkv[keys_at..values_at]);
            }
            // Queries and keys are adjacent, so all their heads are rotated in one call.
            let of_row = row * angles..(row + 1) * angles;
            rotate_half(workers.isa(), &mut qkv[..values_at], head_dim, &cos[of_row.clone()], &sin[of_row]);
        };
        scratch.slots.clear();
        scratch.slots.extend(rows.iter().map(|row| rows.batch().tables[row.table].slot(row.position)));
        let rows = KvRows { numbers: qkv, stride: width, first: keys_at, prepare };
        kv.write_all(workers, layer, &scratch.slots, rows);
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
                attention_weights(workers, self.shape, queries, active, blocks, out);
            });
            context.check()?;
        }
        Ok(())
    }

    /// The heads, and the window.
    pub(crate) fn shape(&self) -> AttentionShape {
        self.shape
    }

    /// Adds the result of attention for the queries in `scratch.qkv` to `scratch.hidden`.
    pub(crate) fn attend(
        &self,
        layer: usize,
        rows: &ActiveRows<'_>,
        kv: &KvStore,
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        let workers = context.workers;
        let scratch = &mut *context.scratch;
        let out = sized(&mut scratch.attended, rows.len() * self.shape.num_heads * self.shape.head_dim);
        let stride = self.qkv.num_outputs();
        self.with_blocks(layer, rows, kv, |blocks| {
            attention(workers, self.shape, &scratch.qkv, stride, blocks, &mut scratch.attention, out);
        });
        context.timing.lap(Stage::Attention, || self.work(rows, kv));
        context.check()?;
        let scratch = &mut *context.scratch;
        self.output.forward(workers, &scratch.attended[..], &mut scratch.packed, true, &mut scratch.hidden);
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
