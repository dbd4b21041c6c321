//! Grouped-query self-attention over the KV cache, all of it or a sliding window: projections, norms and rotation.

use super::heads::Heads;
use super::linear::Linear;
use super::sight::LayerPass;
use super::{LowRankPass, Norm, RotaryTables, Site, normed};
use crate::Stage;
use crate::cache::{KvRows, KvStore};
use crate::context::{ForwardContext, sized};
use crate::loader::{Loader, Part};
use crate::rows::ActiveRows;
use crate::spec::{AttentionSpec, Clip, HeadNormSpec, HeadScope, Qkv, QueryScale};
use crate::weights::ModelConfig;
use rsgen_core::error::{Error, Result};
use rsgen_kernels::quant::RowOrder;
use rsgen_kernels::{AttentionShape, Isa, Work, rotate};

/// Four projections, the first three stacked, and the heads.
#[derive(Debug)]
pub(crate) struct Attention {
    qkv: Linear,
    clip: Option<Clip>,
    head_norms: Option<HeadNorms>,
    query_scale: Option<QueryScale>,
    output: Linear,
    heads: Heads,
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
    /// Loads the attention of layer `layer`. `loader` is its scope, and `first` that of the first layer's.
    pub(crate) fn load(
        loader: &Loader<'_>,
        first: &Loader<'_>,
        config: &ModelConfig,
        layer: usize,
        spec: &AttentionSpec,
        is_transposed: bool,
    ) -> Result<Self> {
        let (hidden_size, head_dim) = (config.hidden_size, config.head_dim);
        let heads = Heads::load(loader, first, config, layer, spec)?;
        let shape = heads.shape();
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
        let head_norms = spec.head_norms.map(|spec| HeadNorms::load(loader, shape, spec));
        Ok(Self {
            qkv: Linear::load(loader, &parts, order, hidden_size, spec.qkv_bias)?,
            clip: spec.clip,
            head_norms: head_norms.transpose()?,
            query_scale: spec.query_scale,
            output: Linear::load(loader, &[output], RowOrder::Stacked, queries, spec.output_bias)?,
            heads,
        })
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
        let AttentionShape { num_heads, num_kv_heads, head_dim, .. } = self.heads.shape();
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
        pass: LayerPass<'_>,
        rows: &ActiveRows<'_>,
        norm: Option<&Norm>,
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        let (workers, scratch) = (context.workers, &mut *context.scratch);
        let width = self.qkv.num_outputs();
        let qkv = sized(&mut scratch.qkv, rows.len() * width);
        let x = normed(norm, &scratch.hidden);
        self.qkv.forward(workers, x, &mut scratch.packed, false, qkv);
        let adapters = LowRankPass { rows, layer: pass.layer, workers };
        if adapters.changes(&[Site::Qkv]) {
            adapters.add(Site::Qkv, x, &mut scratch.low_rank, qkv);
        }
        context.timing.lap(Stage::Qkv, || self.qkv.work(rows.len()));
        let rotary = pass.rotary;
        let (num_angles, angles) = (rotary.num_frequencies(), rotary.of_layer(pass.layer));
        let (cos, sin) = (&scratch.cos, &scratch.sin);
        let prepare = |row: usize, qkv: &mut [f32]| {
            let of_row = row * num_angles + angles.start..row * num_angles + angles.end;
            let angles = [&cos[of_row.clone()], &sin[of_row]];
            self.prepare(workers.isa(), rotary, rows.row(row).position, angles, qkv);
        };
        scratch.slots.clear();
        scratch.slots.extend(rows.iter().map(|row| rows.batch().tables[row.table].slot(row.position)));
        let rows = KvRows { numbers: qkv, stride: width, first: self.heads.width(), prepare };
        kv.write_all(workers, pass.cached, &scratch.slots, rows);
        context.timing.lap(Stage::RopeKv, Work::default);
        context.check()
    }

    /// Writes the weights of the rows that request them to `out`, as [`Heads::weights`] does.
    pub(crate) fn weights(
        &self,
        pass: LayerPass<'_>,
        rows: &ActiveRows<'_>,
        kv: &KvStore,
        context: &mut ForwardContext<'_>,
        out: &mut [f32],
    ) -> Result<()> {
        self.heads.weights(pass, rows, kv, self.qkv_width(), context, out)
    }

    /// The heads, and the window.
    pub(crate) fn shape(&self) -> AttentionShape {
        self.heads.shape()
    }

    /// Computes the result of attention for the queries in `scratch.qkv`, and adds it to `scratch.hidden` or
    /// writes it to `scratch.block`.
    pub(crate) fn attend(
        &self,
        pass: LayerPass<'_>,
        rows: &ActiveRows<'_>,
        kv: &KvStore,
        to_block: bool,
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        self.heads.attend(pass, rows, kv, self.qkv_width(), context)?;
        let (workers, scratch) = (context.workers, &mut *context.scratch);
        let out =
            if to_block { sized(&mut scratch.block, scratch.hidden.len()) } else { &mut scratch.hidden };
        let x = &scratch.attended[..];
        self.output.forward(workers, x, &mut scratch.packed, !to_block, out);
        let adapters = LowRankPass { rows, layer: pass.layer, workers };
        if adapters.changes(&[Site::Output]) {
            adapters.add(Site::Output, x.into(), &mut scratch.low_rank, out);
        }
        context.timing.lap(Stage::Output, || self.output.work(rows.len()));
        context.check()
    }

    /// The width of `scratch.qkv`.
    pub(crate) fn qkv_width(&self) -> usize {
        self.qkv.num_outputs()
    }

    /// The maps before and after attention.
    pub(crate) fn maps(&self) -> [&Linear; 2] {
        [&self.qkv, &self.output]
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
