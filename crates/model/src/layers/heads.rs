//! The heads of attention: from queries and the cache to weighted values.

use std::collections::HashSet;

use super::sight::LayerPass;
use crate::Stage;
use crate::batch::Row;
use crate::cache::{BLOCK_TOKENS, KvDtype, KvStore};
use crate::context::{ForwardContext, sized};
use crate::loader::Loader;
use crate::rows::ActiveRows;
use crate::spec::{AlibiSpec, AttentionSpec};
use crate::weights::ModelConfig;
use rsgen_core::error::Result;
use rsgen_core::types::BlockId;
use rsgen_kernels::tensor::ComputeDtype;
use rsgen_kernels::{AttentionShape, Distances, HeadBias, Queries, Work, attention, attention_weights};

/// The heads, and what they add to their scores.
#[derive(Debug)]
pub(crate) struct Heads {
    shape: AttentionShape,
    /// `[num_heads]` each.
    sinks: Option<Vec<f32>>,
    alibi: Option<AlibiSpec>,
    /// The numbers of distances up to the last with one of its own.
    distances: Option<(Vec<f32>, usize)>,
    compute: ComputeDtype,
}

impl Heads {
    /// Loads those of layer `layer`. `loader` is the scope of its attention, and `first` of that of the first layer.
    pub(crate) fn load(
        loader: &Loader<'_>,
        first: &Loader<'_>,
        config: &ModelConfig,
        layer: usize,
        spec: &AttentionSpec,
    ) -> Result<Self> {
        let scale = if spec.inverse_layer_scale { spec.scale / (layer + 1) as f32 } else { spec.scale };
        let shape = AttentionShape {
            num_heads: config.num_attention_heads,
            num_kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            scale,
            softcap: spec.softcap,
            window: config.window.of_layer(layer),
        };
        let distances = spec.distances.map(|distances| {
            let scope = if distances.each_layer { loader } else { first };
            let table = scope.floats(distances.name, &[distances.buckets, shape.num_heads])?;
            Ok((distances.numbers(&table), distances.reach))
        });
        Ok(Self {
            shape,
            sinks: spec.sinks.map(|name| loader.floats(name, &[shape.num_heads])).transpose()?,
            alibi: spec.alibi.clone(),
            distances: distances.transpose()?,
            compute: loader.compute(),
        })
    }

    /// Heads that attend to a source: these, without what depends on positions.
    pub(crate) fn of_source(config: &ModelConfig, spec: &AttentionSpec, compute: ComputeDtype) -> Self {
        let shape = AttentionShape {
            num_heads: config.num_attention_heads,
            num_kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            scale: spec.scale,
            softcap: spec.softcap,
            window: None,
        };
        Self { shape, sinks: None, alibi: None, distances: None, compute }
    }

    /// What the heads add to their scores.
    fn bias(&self) -> HeadBias<'_> {
        let distances = self.distances.as_ref();
        HeadBias {
            sinks: self.sinks.as_deref(),
            slopes: self.alibi.as_ref().map(AlibiSpec::slopes),
            distances: distances.map(|(numbers, reach)| Distances { numbers, reach: *reach }),
        }
    }

    /// Their number, and their window.
    pub(crate) fn shape(&self) -> AttentionShape {
        self.shape
    }

    /// The elements of the queries of a row.
    pub(crate) fn width(&self) -> usize {
        self.shape.num_heads * self.shape.head_dim
    }

    /// Writes the weights of the rows that request them to `out`: those of each row,
    /// `[num_layers, num_heads, tokens that it sees]`. The queries of a row are the first of each `stride` numbers of
    /// `scratch.qkv`.
    pub(crate) fn weights(
        &self,
        pass: LayerPass<'_>,
        rows: &ActiveRows<'_>,
        kv: &KvStore,
        stride: usize,
        context: &mut ForwardContext<'_>,
        out: &mut [f32],
    ) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let len = |row: &Row| pass.num_layers * self.shape.num_heads * pass.context_len(rows, row);
        let requested =
            rows.requesting(|row| row.outputs.attentions, |row| usize::from(row.outputs.attentions));
        let mut starts = Vec::new();
        let mut start = 0;
        for row in rows.batch().rows.iter().filter(|row| row.outputs.attentions) {
            starts.push(start);
            start += len(row);
        }
        for (active, index) in requested {
            let of_layer = len(rows.row(active)) / pass.num_layers;
            let out = &mut out[starts[index] + pass.layer * of_layer..][..of_layer];
            let workers = context.workers;
            let queries = &context.scratch.qkv[active * stride..][..self.width()];
            pass.with_blocks(rows, kv, self.compute, |blocks| {
                attention_weights(workers, self.shape, self.bias(), queries, active, blocks, out);
            });
            context.check()?;
        }
        Ok(())
    }

    /// Computes the weighted values of all rows into `scratch.attended`. The queries of a row are the first of each
    /// `stride` numbers of `scratch.qkv`.
    pub(crate) fn attend(
        &self,
        pass: LayerPass<'_>,
        rows: &ActiveRows<'_>,
        kv: &KvStore,
        stride: usize,
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        let workers = context.workers;
        let scratch = &mut *context.scratch;
        let out = sized(&mut scratch.attended, rows.len() * self.width());
        let queries = Queries { values: &scratch.qkv, stride };
        pass.with_blocks(rows, kv, self.compute, |blocks| {
            attention(workers, self.shape, self.bias(), queries, blocks, &mut scratch.attention, out);
        });
        context.timing.lap(Stage::Attention, || self.work(pass, rows, kv));
        context.check()
    }

    /// The work of attention: reads of the visible keys and values, each block once, and two products with
    /// each per head.
    fn work(&self, pass: LayerPass<'_>, rows: &ActiveRows<'_>, kv: &KvStore) -> Work {
        let AttentionShape { num_heads, head_dim, window, .. } = self.shape;
        let (mut pairs, mut blocks) = (0, HashSet::<BlockId>::new());
        for row in rows.iter() {
            let end = pass.context_len(rows, row);
            let first = window.map_or(0, |window| end.saturating_sub(window));
            pairs += end - first;
            let visible = first / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS);
            blocks.extend(&pass.sight.table(rows, row).blocks()[visible]);
        }
        let block = kv.layout().bytes_per_block() / kv.layout().num_layers();
        let flops = (4 * pairs * num_heads * head_dim) as u64;
        let in_bf16 = kv.layout().dtype() == KvDtype::Bf16 && self.compute == ComputeDtype::Bf16;
        let (f32_flops, bf16_flops) = if in_bf16 { (0, flops) } else { (flops, 0) };
        Work { bytes: (blocks.len() * block) as u64, f32_flops, bf16_flops, ..Work::default() }
    }
}
