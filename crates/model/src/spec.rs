//! What a decoder is built of. A family fills in a [`DecoderSpec`]; the [`decoder`](crate::decoder) and its
//! layers read it, and know no family.

use rsgen_kernels::{Activation, GatedActivation, NormKind, RotaryPairs, Routing, Slopes};

use crate::encoder_spec::{CrossSpec, DistanceSpec, EncoderSpec, PositionSpec};
use crate::weights::TensorNames;
use crate::weights::{ModelConfig, RopeParameters};
use rsgen_core::error::Result;

/// The description of a decoder. Sizes and windows are those of its [`ModelConfig`].
#[derive(Debug)]
pub(crate) struct DecoderSpec {
    /// Where its tensors are.
    pub(crate) names: Names,
    /// The norms of layers, and the last one.
    pub(crate) norm: NormSpec,
    /// A norm of the embeddings.
    pub(crate) embedding_norm: Option<&'static str>,
    /// Where the norms of a layer are, and how its blocks are added up.
    pub(crate) placement: Placement,
    /// The embeddings of positions.
    pub(crate) positions: Option<PositionSpec>,
    /// The rotary embeddings.
    pub(crate) rotary: RotarySpec,
    /// The attention of a layer.
    pub(crate) attention: AttentionSpec,
    /// The MLP of a layer.
    pub(crate) mlp: MlpSpec,
    /// The experts that some layers have instead.
    pub(crate) experts: Option<ExpertsSpec>,
    /// The factors between the parts.
    pub(crate) scalings: Scalings,
    /// The attention to a source.
    pub(crate) cross: Option<CrossSpec>,
    /// What encodes it.
    pub(crate) encoder: Option<Box<EncoderSpec>>,
}

/// The names of tensors and of their scopes.
#[derive(Debug)]
pub(crate) struct Names {
    /// The scope of everything but the head, as checkpoints of the family have it. Those of the bare model
    /// have none, those of a wrapper have another.
    pub(crate) base: &'static str,
    /// The embedding, below it.
    pub(crate) embedding: &'static str,
    /// The list of layers.
    pub(crate) layers: &'static str,
    /// The norm after the last layer.
    pub(crate) norm: Option<&'static str>,
    /// The language-model head, beside the base.
    pub(crate) head: &'static str,
    /// Whether the head has biases.
    pub(crate) head_bias: bool,
    /// The scope of attention in a layer.
    pub(crate) attention: &'static str,
    /// The scope of the MLP in a layer.
    pub(crate) mlp: &'static str,
    /// Whether matrices are stored `[inputs, outputs]` (GPT-2's `Conv1D`).
    pub(crate) conv1d: bool,
    /// Projections between the embedding's width and the model's, `project_in` and `project_out`, and that width.
    pub(crate) embedding_width: Option<usize>,
}

/// A kind of norms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NormSpec {
    pub(crate) kind: NormKind,
    pub(crate) eps: f32,
    pub(crate) weight: NormWeight,
    pub(crate) bias: bool,
}

/// The weights of a norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormWeight {
    /// As they are stored.
    Stored,
    /// One more than what is stored.
    OnePlus,
    /// All 1, and not stored.
    Ones,
}

/// The norms around attention and around the MLP, by their names, and the sum of both blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    /// Those of the blocks' inputs.
    pub(crate) inputs: [Option<&'static str>; 2],
    /// Those of the blocks' outputs.
    pub(crate) outputs: [Option<&'static str>; 2],
    pub(crate) residual: Residual,
}

impl Placement {
    /// `x + block(norm(x))`, attention first.
    pub(crate) const fn before(attention: &'static str, mlp: &'static str) -> Self {
        Self { inputs: [Some(attention), Some(mlp)], outputs: [None, None], residual: Residual::Sequential }
    }

    /// `x + norm(block(x))`, attention first.
    pub(crate) const fn after(attention: &'static str, mlp: &'static str) -> Self {
        Self { inputs: [None, None], outputs: [Some(attention), Some(mlp)], residual: Residual::Sequential }
    }
}

/// How the outputs of attention and of the MLP are added to the residual stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residual {
    /// `x + a`, then its MLP.
    Sequential,
    /// `norm(x + a)`, then its MLP: the outputs' norms apply to the sums.
    NormOfSum,
    /// `(x + a) + m`, both of the same rows.
    Parallel,
    /// `(a + m) + x`, both of the same rows.
    ParallelSum,
}

/// The rotary embeddings of the layers.
#[derive(Debug)]
pub(crate) struct RotarySpec {
    pub(crate) pairs: RotaryPairs,
    /// The tables.
    pub(crate) tables: Vec<RopeParameters>,
    /// The table of each layer.
    pub(crate) layers: Vec<Option<usize>>,
}

impl RotarySpec {
    /// No rotation.
    pub(crate) fn none(config: &ModelConfig) -> Self {
        Self { pairs: RotaryPairs::Half, tables: Vec::new(), layers: vec![None; config.num_hidden_layers] }
    }

    /// One table for all layers, or one for those with a window and one for the others.
    pub(crate) fn of(config: &ModelConfig, pairs: RotaryPairs) -> Self {
        let tables: Vec<_> = config.rope.iter().chain(&config.local_rope).cloned().collect();
        let of_layer = |layer: usize| {
            let is_local = config.local_rope.is_some() && config.window.is_sliding(layer);
            (!tables.is_empty()).then_some(usize::from(is_local))
        };
        Self { pairs, layers: (0..config.num_hidden_layers).map(of_layer).collect(), tables }
    }

    /// With the factors of longrope in float32, as they are used.
    pub(crate) fn rounded(&self) -> (RotaryPairs, Vec<RopeParameters>, Vec<Option<usize>>) {
        (self.pairs, self.tables.iter().map(RopeParameters::rounded).collect(), self.layers.clone())
    }

    /// Leaves out layers.
    #[must_use]
    pub(crate) fn only(mut self, has_rope: impl Fn(usize) -> bool) -> Self {
        for (layer, table) in self.layers.iter_mut().enumerate() {
            *table = table.filter(|_| has_rope(layer));
        }
        self
    }
}

/// The attention of a layer.
#[derive(Debug, Clone)]
pub(crate) struct AttentionSpec {
    pub(crate) qkv: Qkv,
    /// The output projection.
    pub(crate) output: &'static str,
    pub(crate) qkv_bias: bool,
    pub(crate) output_bias: bool,
    /// Queries, keys and values are kept within this, before the norms of heads or after them.
    pub(crate) clip: Option<Clip>,
    pub(crate) head_norms: Option<HeadNormSpec>,
    /// The factor of scores.
    pub(crate) scale: f32,
    /// Whether layer `i` divides it by `i + 1`.
    pub(crate) inverse_layer_scale: bool,
    pub(crate) softcap: Option<f32>,
    /// The tensor of the heads' sinks.
    pub(crate) sinks: Option<&'static str>,
    pub(crate) alibi: Option<AlibiSpec>,
    pub(crate) query_scale: Option<QueryScale>,
    pub(crate) distances: Option<DistanceSpec>,
}

/// `ALiBi`: scores sink with the distance of tokens.
#[derive(Debug, Clone)]
pub(crate) struct AlibiSpec {
    /// One for each head.
    pub(crate) slopes: Vec<f32>,
    /// See [`Slopes`](rsgen_kernels::Slopes).
    pub(crate) rounded: Option<f32>,
}

impl AlibiSpec {
    /// The slopes of so many heads: powers of 2 for as many as the largest power of 2, and others between.
    pub(crate) fn new(num_heads: usize) -> Self {
        let whole = 1 << num_heads.ilog2();
        let base = |heads: usize| 2.0_f64.powf(-8.0 / heads as f64) as f32;
        let first = (1..=whole).map(|power| base(whole).powi(power as i32));
        let between = (0..num_heads - whole).map(|place| base(2 * whole).powi(2 * place as i32 + 1));
        Self { slopes: first.chain(between).collect(), rounded: None }
    }

    /// As the kernels take them.
    pub(crate) fn slopes(&self) -> Slopes<'_> {
        Slopes { slopes: &self.slopes, rounded: self.rounded }
    }
}

/// How queries, keys and values are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Qkv {
    /// Three matrices.
    Separate([&'static str; 3]),
    /// One: the queries of all heads, then the keys, then the values.
    Stacked(&'static str),
    /// One: for each key-value head its queries, its key and its value.
    Grouped(&'static str),
}

/// Limits of queries, keys and values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clip {
    pub(crate) limit: f32,
    pub(crate) after_norms: bool,
}

/// Norms of queries and keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadNormSpec {
    /// Those of queries and of keys.
    pub(crate) names: [&'static str; 2],
    pub(crate) norm: NormSpec,
    pub(crate) scope: HeadScope,
    /// Whether they follow the rotation.
    pub(crate) after_rotation: bool,
}

/// What a norm of queries or keys spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadScope {
    /// Each head, with the same weights.
    Each,
    /// Each head, with weights of its own: a tensor `[heads, head_dim]`.
    EachOwn,
    /// Each head, with weights of its own: tensors `norms.HEAD`.
    EachListed,
    /// All heads together.
    Whole,
}

/// `1 + beta * ln(1 + floor(position / original))`: a factor of the queries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueryScale {
    pub(crate) beta: f32,
    pub(crate) original: f32,
}

/// An MLP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MlpSpec {
    pub(crate) layout: MlpLayout,
    pub(crate) down: &'static str,
    pub(crate) bias: bool,
}

/// The projections before the activation, which is the configuration's `hidden_act`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MlpLayout {
    /// `act(gate(x)) * up(x)`
    Gated { gate: &'static str, up: &'static str },
    /// The same, with the rows of both in one matrix, gates first.
    GatedStacked { gate_up: &'static str },
    /// `act(up(x))`
    Plain { up: &'static str },
    /// The same with `xIELU`, whose factors are learned.
    Xielu { up: &'static str },
}

/// A mixture of experts.
#[derive(Debug, Clone)]
pub(crate) struct ExpertsSpec {
    /// The scope in a layer.
    pub(crate) scope: &'static str,
    /// The router's weights and its biases.
    pub(crate) router: &'static str,
    pub(crate) router_bias: Option<&'static str>,
    pub(crate) routing: Routing,
    pub(crate) num_experts: usize,
    /// How many a token takes.
    pub(crate) num_experts_per_tok: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) layout: ExpertLayout,
    pub(crate) activation: GatedActivation,
    /// An MLP that all tokens take, and its width.
    pub(crate) shared: Option<SharedExpert>,
    /// Which layers have experts.
    pub(crate) layers: Vec<bool>,
}

/// How the matrices of experts are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExpertLayout {
    /// `experts.INDEX.{gate, up, down}`.
    Listed([&'static str; 3]),
    /// Two stacks: `[experts, gates and ups, inputs]` and `[experts, outputs, inputs]`.
    Stacked([&'static str; 2]),
    /// Two stacks of transposed matrices, whose gates and ups alternate, with biases.
    Alternating([&'static str; 2]),
}

/// The expert of all tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedExpert {
    /// Its scope, in the layer.
    pub(crate) scope: &'static str,
    pub(crate) mlp: MlpSpec,
    pub(crate) intermediate_size: usize,
    /// A projection to one number, whose sigmoid is its factor.
    pub(crate) gate: Option<&'static str>,
}

/// The factors between the parts of a decoder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalings {
    /// Of the embeddings of tokens, not of embeddings that are given.
    pub(crate) embedding: f32,
    /// Of all embeddings.
    pub(crate) input: f32,
    /// Of what a block adds to the residual stream.
    pub(crate) residual: f32,
    pub(crate) logits: LogitScale,
    /// Bends logits to less than this.
    pub(crate) softcap: Option<f32>,
}

/// A factor of the logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LogitScale {
    One,
    Times(f32),
    Over(f32),
}

impl DecoderSpec {
    /// The names of its tensors in a model with a head.
    pub(crate) fn tensor_names(&self) -> TensorNames {
        let Names { base, embedding, head, layers, conv1d, .. } = self.names;
        let encoder = self.encoder.as_ref();
        let (base, embedding) = encoder.map_or((base, embedding), |encoder| (encoder.base, "shared"));
        TensorNames { base, embedding, head, layers, transposed_layers: conv1d }
    }

    /// A llama, from which the others differ.
    pub(crate) fn llama(config: &ModelConfig) -> Self {
        Self {
            names: Names {
                base: "model",
                embedding: "embed_tokens",
                layers: "layers",
                norm: Some("norm"),
                head: "lm_head",
                head_bias: false,
                attention: "self_attn",
                mlp: "mlp",
                conv1d: false,
                embedding_width: None,
            },
            norm: NormSpec::rms(config),
            embedding_norm: None,
            placement: Placement::before("input_layernorm", "post_attention_layernorm"),
            positions: None,
            rotary: RotarySpec::of(config, RotaryPairs::Half),
            attention: AttentionSpec {
                qkv: Qkv::Separate(["q_proj", "k_proj", "v_proj"]),
                output: "o_proj",
                qkv_bias: config.attention_bias,
                output_bias: config.attention_bias,
                clip: None,
                head_norms: None,
                scale: 1.0 / (config.head_dim as f32).sqrt(),
                inverse_layer_scale: false,
                softcap: None,
                sinks: None,
                alibi: None,
                query_scale: None,
                distances: None,
            },
            mlp: MlpSpec {
                layout: MlpLayout::Gated { gate: "gate_proj", up: "up_proj" },
                down: "down_proj",
                bias: config.mlp_bias,
            },
            experts: None,
            scalings: Scalings {
                embedding: 1.0,
                input: 1.0,
                residual: 1.0,
                logits: LogitScale::One,
                softcap: None,
            },
            cross: None,
            encoder: None,
        }
    }
}

impl ExpertsSpec {
    /// Experts in all layers, called as Qwen's are, with the numbers of the configuration.
    pub(crate) fn of(config: &ModelConfig, routing: Routing, intermediate_size: usize) -> Result<Self> {
        let fields = config.fields();
        let num_experts = fields.count("num_experts")?;
        let missing =
            || fields.wrong("num_experts_per_tok", &format!("a whole number from 1 to {num_experts}"));
        Ok(Self {
            scope: "mlp",
            router: "gate.weight",
            router_bias: None,
            routing,
            num_experts,
            num_experts_per_tok: fields
                .integer("num_experts_per_tok", 1..=num_experts)?
                .ok_or_else(missing)?,
            intermediate_size,
            layout: ExpertLayout::Listed(["gate_proj", "up_proj", "down_proj"]),
            activation: gated_activation(config)?,
            shared: None,
            layers: vec![true; config.num_hidden_layers],
        })
    }
}

impl MlpSpec {
    /// Checks that the configuration names an activation that the layout has.
    pub(crate) fn check(&self, config: &ModelConfig) -> Result<()> {
        match self.layout {
            MlpLayout::Gated { .. } | MlpLayout::GatedStacked { .. } => gated_activation(config).map(|_| ()),
            MlpLayout::Plain { .. } => plain_activation(config).map(|_| ()),
            MlpLayout::Xielu { .. } if config.hidden_act == "xielu" => Ok(()),
            MlpLayout::Xielu { .. } => Err(config.fields().wrong("hidden_act", "xielu")),
        }
    }
}

/// The activation of a gate that the configuration names.
pub(crate) fn gated_activation(config: &ModelConfig) -> Result<GatedActivation> {
    match &*config.hidden_act {
        "silu" | "swish" => Ok(GatedActivation::Silu),
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok(GatedActivation::GeluTanh),
        "quick_gelu" => Ok(GatedActivation::QuickGelu),
        _ => Err(config
            .fields()
            .wrong("hidden_act", "\"silu\", \"gelu_pytorch_tanh\" or \"quick_gelu\" in a gated MLP")),
    }
}

/// The activation of an MLP without gates that the configuration names.
pub(crate) fn plain_activation(config: &ModelConfig) -> Result<Activation> {
    match &*config.hidden_act {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
        "quick_gelu" => Ok(Activation::QuickGelu),
        "gelu" => Ok(Activation::Gelu),
        "relu" => Ok(Activation::Relu),
        "relu2" => Ok(Activation::Relu2),
        _ => Err(config.fields().wrong("hidden_act", "silu, gelu, gelu_new, quick_gelu, relu or relu2")),
    }
}

impl NormSpec {
    /// RMS norms with the `eps` of the configuration.
    pub(crate) fn rms(config: &ModelConfig) -> Self {
        let eps = config.rms_norm_eps as f32;
        Self { kind: NormKind::Rms, eps, weight: NormWeight::Stored, bias: false }
    }

    /// Layer norms with weights and biases.
    pub(crate) fn layer(config: &ModelConfig) -> Self {
        Self { kind: NormKind::Layer, bias: true, ..Self::rms(config) }
    }

    /// The same without biases.
    pub(crate) fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }

    /// The same with one more than the stored weights.
    pub(crate) fn one_plus(self) -> Self {
        Self { weight: NormWeight::OnePlus, ..self }
    }
}

impl HeadNormSpec {
    /// Norms of each head, called `q_norm` and `k_norm`.
    pub(crate) fn each(norm: NormSpec) -> Self {
        Self { names: ["q_norm", "k_norm"], norm, scope: HeadScope::Each, after_rotation: false }
    }
}
