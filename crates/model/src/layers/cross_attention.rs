//! Attention of a decoder layer to an encoded source, and the keys and values that the source has for it.

use super::heads::Heads;
use super::linear::Linear;
use super::sight::{LayerPass, Sight};
use super::{Norm, normed};
use crate::Stage;
use crate::cache::{KvRows, KvStore};
use crate::context::{ForwardContext, sized};
use crate::loader::{Loader, Part};
use crate::rows::ActiveRows;
use crate::spec::{DecoderSpec, Qkv, Residual};
use crate::weights::ModelConfig;
use rsgen_core::error::{Error, Result};
use rsgen_core::types::BlockId;
use rsgen_kernels::Work;
use rsgen_kernels::quant::RowOrder;

/// The projections of queries and of outputs, and the norm.
#[derive(Debug)]
pub(crate) struct CrossAttention {
    query: Linear,
    output: Linear,
    heads: Heads,
    norm: Norm,
    /// Whether the norm is that of the sum, and not of the input.
    is_after: bool,
}

/// The keys and values of a source for one decoder layer.
#[derive(Debug)]
pub(crate) struct SourceKv(Linear);

/// The names of the projections of queries, keys and values.
fn names(spec: &DecoderSpec) -> Result<[&'static str; 3]> {
    match spec.attention.qkv {
        Qkv::Separate(names) => Ok(names),
        _ => Err(Error::internal("attention to a source has separate projections")),
    }
}

impl CrossAttention {
    /// Loads that of a decoder layer, if the family has any.
    pub(crate) fn load(
        loader: &Loader<'_>,
        config: &ModelConfig,
        spec: &DecoderSpec,
    ) -> Result<Option<Self>> {
        let Some(cross) = spec.cross else { return Ok(None) };
        let (hidden_size, attention) = (config.hidden_size, &spec.attention);
        let [query, ..] = names(spec)?;
        let norm = Norm::load(loader, cross.norm, hidden_size, spec.norm)?;
        let loader = loader.child(cross.scope);
        let heads = Heads::of_source(config, attention, loader.compute());
        let linear = |name: &str, outputs, inputs, bias| {
            Linear::load(&loader, &[Part::new(name, outputs)], RowOrder::Stacked, inputs, bias)
        };
        Ok(Some(Self {
            query: linear(query, heads.width(), hidden_size, attention.qkv_bias)?,
            output: linear(attention.output, hidden_size, heads.width(), attention.output_bias)?,
            heads,
            norm,
            is_after: spec.placement.residual == Residual::NormOfSum,
        }))
    }

    /// Adds the result of attention to the rows in `scratch.hidden`, and writes the weights that rows request to
    /// `weights`.
    pub(crate) fn forward(
        &self,
        pass: LayerPass<'_>,
        rows: &ActiveRows<'_>,
        kv: &KvStore,
        context: &mut ForwardContext<'_>,
        weights: &mut [f32],
    ) -> Result<()> {
        let pass = LayerPass { sight: Sight::Source, ..pass };
        let width = self.heads.width();
        let (workers, scratch) = (context.workers, &mut *context.scratch);
        let queries = sized(&mut scratch.qkv, rows.len() * width);
        let norm = Some(&self.norm).filter(|_| !self.is_after);
        self.query.forward(workers, normed(norm, &scratch.hidden), &mut scratch.packed, false, queries);
        context.timing.lap(Stage::Qkv, || self.query.work(rows.len()));
        self.heads.weights(pass, rows, kv, width, context, weights)?;
        self.heads.attend(pass, rows, kv, width, context)?;
        let scratch = &mut *context.scratch;
        self.output.forward(workers, &scratch.attended[..], &mut scratch.packed, true, &mut scratch.hidden);
        if self.is_after {
            self.norm.forward_rows(workers, &mut scratch.hidden);
        }
        context.timing.lap(Stage::Output, || self.output.work(rows.len()));
        context.check()
    }

    /// The memory that its matrices take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.query.bytes() + self.output.bytes()
    }
}

impl SourceKv {
    /// Loads that of a decoder layer.
    pub(crate) fn load(loader: &Loader<'_>, config: &ModelConfig, spec: &DecoderSpec) -> Result<Self> {
        let [_, key, value] = names(spec)?;
        let scope = spec.cross.ok_or_else(|| Error::internal("a decoder of sources attends to them"))?.scope;
        let width = config.num_key_value_heads * config.head_dim;
        let parts = [Part::new(key, width), Part::new(value, width)];
        let bias = spec.attention.qkv_bias;
        Linear::load(&loader.child(scope), &parts, RowOrder::Stacked, config.hidden_size, bias).map(Self)
    }

    /// Writes the keys and values of the rows in `scratch.hidden` to their slots in the cache of a layer.
    pub(crate) fn write(
        &self,
        layer: usize,
        slots: &[(BlockId, usize)],
        kv: &mut KvStore,
        context: &mut ForwardContext<'_>,
    ) -> Result<()> {
        let (workers, scratch) = (context.workers, &mut *context.scratch);
        let stride = self.0.num_outputs();
        let numbers = sized(&mut scratch.qkv, slots.len() * stride);
        self.0.forward(workers, &scratch.hidden[..], &mut scratch.packed, false, numbers);
        context.timing.lap(Stage::Qkv, || self.0.work(slots.len()));
        kv.write_all(
            workers,
            layer,
            slots,
            KvRows { numbers, stride, first: 0, prepare: |_, _: &mut [f32]| {} },
        );
        context.timing.lap(Stage::RopeKv, Work::default);
        context.check()
    }

    /// The memory that its matrices take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
