//! The description of a model before it is loaded, as `--json` writes it.
//!
//! A model that cannot be loaded is described as far as its files can be read, with the reason.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

use super::adapter::AdapterDescription;
use crate::generator::{generation_defaults, open_tokenizer};
use rsgen_core::{Result, TokenId, escape};
use rsgen_generation::GenerationConfig;
use rsgen_model::cache::{KvDtype, KvLayout, blocks_for};
use rsgen_model::weights::{
    MAX_TEXT_BYTES, ModelConfig, ModelFiles, RopeKind, RopeParameters, TensorGroup, Weights, read_object,
};
use rsgen_model::{SUPPORTED_ARCHITECTURES, check};
use rsgen_text::Tokenizer;

/// All fields, in the order of the output. Unknown ones are left out.
#[derive(Serialize)]
pub(super) struct Description {
    /// The path or id that the user gave.
    pub(super) model: String,
    supported: bool,
    /// The first obstacle to loading it.
    pub(super) unsupported_because: Option<String>,
    pub(super) architecture: Option<String>,
    #[serde(flatten)]
    pub(super) weights: Option<WeightFacts>,
    #[serde(flatten)]
    pub(super) shape: Option<Shape>,
    pub(super) tokenizer: bool,
    /// The file of the tokenizer, and the kind of its model.
    pub(super) tokenizer_file: Option<&'static str>,
    pub(super) tokenizer_model: Option<&'static str>,
    pub(super) special_tokens: Option<SpecialTokens>,
    /// The defaults that calls take from the model's `generation_config.json`.
    pub(super) generation_config: Map<String, Value>,
    /// What `config.json` says of tasks, and no call applies: left out where it says nothing.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) never_applied: Map<String, Value>,
    /// Those that are to be described beside the model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) adapters: Vec<AdapterDescription>,
    pub(super) memory: Option<Memory>,
}

/// The contents of the headers of the weight files.
#[derive(Serialize)]
pub(super) struct WeightFacts {
    pub(super) parameters: u64,
    pub(super) weight_dtypes: Vec<&'static str>,
    pub(super) bytes_on_disk: u64,
    pub(super) tensor_groups: Vec<TensorSum>,
}

/// The tensors of a type in a part of the model.
#[derive(Serialize)]
pub(super) struct TensorSum {
    pub(super) group: &'static str,
    pub(super) dtype: String,
    pub(super) tensors: usize,
    pub(super) parameters: u64,
    pub(super) bytes: u64,
}

/// The sizes in `config.json`, by its names.
#[derive(Serialize)]
pub(super) struct Shape {
    pub(super) num_hidden_layers: usize,
    pub(super) num_attention_heads: usize,
    pub(super) num_key_value_heads: usize,
    pub(super) head_dim: usize,
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    /// Left out, with those of a token and their width, where the file names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) num_experts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) num_experts_per_tok: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) moe_intermediate_size: Option<u64>,
    pub(super) vocab_size: usize,
    pub(super) max_position_embeddings: usize,
    /// Left out where nothing is rotated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rope: Option<Rope>,
    pub(super) tie_word_embeddings: bool,
    pub(super) attention_bias: bool,
    pub(super) mlp_bias: bool,
    /// Left out, with the types of the layers, where no layer has a window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sliding_window: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) layer_types: Option<Vec<&'static str>>,
}

/// The rotary position embedding, by transformers' names.
#[derive(Serialize)]
pub(super) struct Rope {
    #[serde(rename = "rope_type")]
    pub(super) kind: &'static str,
    #[serde(rename = "rope_theta")]
    pub(super) theta: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) factor: Option<f64>,
    /// The rotated dimensions, if not all of a head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rotary_dim: Option<usize>,
}

/// The tokens that begin, end and pad texts.
#[derive(Serialize)]
pub(super) struct SpecialTokens {
    pub(super) bos: Option<SpecialToken>,
    pub(super) eos: Vec<SpecialToken>,
    pub(super) pad: Option<SpecialToken>,
}

/// A token, with its text if there is a tokenizer.
#[derive(Serialize)]
pub(super) struct SpecialToken {
    pub(super) id: u32,
    pub(super) token: Option<String>,
}

/// The memory of the model with its stored types and a float32 KV cache.
#[derive(Serialize)]
pub(super) struct Memory {
    pub(super) weight_bytes: u64,
    /// For one sequence; whole blocks.
    pub(super) kv_cache_bytes_per_1000_tokens: u64,
}

impl Description {
    /// Describes the model.
    ///
    /// # Errors
    /// When there is no `config.json`, or when it is no JSON.
    pub(super) fn of(files: &ModelFiles) -> Result<Self> {
        let text = files.config()?;
        let raw = read_object("config.json", &text, MAX_TEXT_BYTES)?;
        let mut obstacle = None;
        let config = ModelConfig::from_json(&text, SUPPORTED_ARCHITECTURES);
        let config = noted(config.and_then(|config| check(&config).map(|()| config)), &mut obstacle);
        let weights = noted(Weights::open(files), &mut obstacle);
        let tokenizer = noted(open_tokenizer(files), &mut obstacle).flatten();
        let generation_config =
            noted(generation_defaults(files, &raw, false), &mut obstacle).unwrap_or_default().0;

        if let Some(weights) = &weights {
            noted(readable(weights), &mut obstacle);
        }
        let kept_bytes = weights.as_ref().map(Weights::kept_len);
        let weights = weights.map(|weights| WeightFacts::of(&weights));
        let memory = match (&config, kept_bytes) {
            (Some(config), Some(bytes)) => noted(Memory::of(config, bytes), &mut obstacle),
            _ => None,
        };
        Ok(Self {
            model: files.name().to_owned(),
            supported: obstacle.is_none(),
            unsupported_because: obstacle,
            architecture: architecture(&raw),
            weights,
            shape: config.as_ref().map(Shape::of),
            tokenizer: tokenizer.is_some(),
            tokenizer_file: tokenizer.as_ref().map(Tokenizer::file),
            tokenizer_model: tokenizer.as_ref().map(Tokenizer::model),
            special_tokens: config
                .map(|config| SpecialTokens::of(&config, &generation_config, tokenizer.as_ref())),
            generation_config: generation_config.to_json(),
            never_applied: never_applied(&raw),
            adapters: Vec::new(),
            memory,
        })
    }
}

/// The entries that transformers' pipelines of version 4 applied to a task.
fn never_applied(raw: &Map<String, Value>) -> Map<String, Value> {
    let is_said = |(name, value): &(&String, &Value)| {
        matches!(name.as_str(), "task_specific_params" | "prefix") && !value.is_null() && *value != ""
    };
    let said = raw.iter().filter(is_said);
    said.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The value, or `None` after noting the first obstacle.
fn noted<T>(result: Result<T>, obstacle: &mut Option<String>) -> Option<T> {
    result.map_err(|error| obstacle.get_or_insert_with(|| error.to_string()).clone()).ok()
}

/// Refuses matrices of types that are not read.
fn readable(weights: &Weights) -> Result<()> {
    if weights.packed()?.is_some() {
        return Ok(());
    }
    let mut matrices = weights.names().filter(|name| name.ends_with(".weight"));
    matrices.try_for_each(|name| weights.tensor(name).map(drop))
}

fn architecture(raw: &Map<String, Value>) -> Option<String> {
    let named = raw.get("architectures").and_then(|names| names.get(0)).or_else(|| raw.get("model_type"));
    Some(escape::name(named?.as_str()?).into_owned())
}

impl WeightFacts {
    fn of(weights: &Weights) -> Self {
        // Tensors of other types, such as a position buffer, are not parameters.
        let tensors = || weights.names().filter_map(|name| weights.tensor(name).ok().flatten());
        let mut dtypes: BTreeSet<&'static str> = tensors().map(|tensor| tensor.encoding.name()).collect();
        let mut parameters = tensors().map(|tensor| tensor.shape.iter().product::<usize>() as u64).sum();
        for (dtype, count) in weights.packed_parameters() {
            dtypes.insert(dtype.name());
            parameters += count;
        }
        let group = |group: TensorGroup| {
            let TensorGroup { group, dtype, tensors, parameters, bytes } = group;
            TensorSum { group, dtype, tensors, parameters, bytes }
        };
        Self {
            parameters,
            weight_dtypes: dtypes.into_iter().collect(),
            bytes_on_disk: weights.data_len(),
            tensor_groups: weights.groups().into_iter().map(group).collect(),
        }
    }
}

impl Shape {
    fn of(config: &ModelConfig) -> Self {
        let count = |names: &[&str]| {
            names.iter().find_map(|name| config.raw.get(*name)?.as_u64()).filter(|&count| count > 0)
        };
        let num_experts = count(&["num_experts", "num_local_experts"]);
        Self {
            num_experts,
            num_experts_per_tok: num_experts.and_then(|_| count(&["num_experts_per_tok"])),
            moe_intermediate_size: num_experts.and_then(|_| count(&["moe_intermediate_size"])),
            num_hidden_layers: config.num_hidden_layers,
            num_attention_heads: config.num_attention_heads,
            num_key_value_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            hidden_size: config.hidden_size,
            intermediate_size: config.intermediate_size,
            vocab_size: config.vocab_size,
            max_position_embeddings: config.max_position_embeddings,
            rope: config.rope.as_ref().map(|rope| Rope::of(rope, config.head_dim)),
            tie_word_embeddings: config.tie_word_embeddings,
            attention_bias: config.attention_bias,
            mlp_bias: config.mlp_bias,
            sliding_window: config.window.size,
            layer_types: config
                .window
                .size
                .map(|_| config.window.layer_types.iter().map(|layer_type| layer_type.as_str()).collect()),
        }
    }
}

impl Rope {
    fn of(rope: &RopeParameters, head_dim: usize) -> Self {
        let (kind, factor) = match rope.kind {
            RopeKind::Default => ("default", None),
            RopeKind::Linear { factor } => ("linear", Some(factor)),
            RopeKind::Dynamic { factor, .. } => ("dynamic", Some(factor)),
            RopeKind::Llama3 { factor, .. } => ("llama3", Some(factor)),
            RopeKind::Yarn { factor, .. } => ("yarn", Some(factor)),
            RopeKind::LongRope { factor, .. } => ("longrope", Some(factor)),
        };
        Self { kind, theta: rope.theta, factor, rotary_dim: Some(rope.dim).filter(|&dim| dim < head_dim) }
    }
}

impl SpecialTokens {
    /// The tokens as calls use them: from `generation_config.json`, and missing ones from `config.json`.
    fn of(config: &ModelConfig, generation: &GenerationConfig, tokenizer: Option<&Tokenizer>) -> Self {
        let described = |id: TokenId| SpecialToken {
            id: id.0,
            token: tokenizer.and_then(|tokenizer| tokenizer.token(id)).map(str::to_owned),
        };
        let eos =
            generation.eos_token_id.as_ref().map_or(config.eos_token_ids.as_slice(), |ids| ids.as_slice());
        Self {
            bos: generation.bos_token_id.or(config.bos_token_id).map(described),
            eos: eos.iter().copied().map(described).collect(),
            pad: generation.pad_token_id.or(config.pad_token_id).map(described),
        }
    }
}

impl Memory {
    fn of(config: &ModelConfig, weight_bytes: u64) -> Result<Self> {
        const TOKENS: usize = 1000;
        let (layers, heads) = (config.num_hidden_layers, config.num_key_value_heads);
        let layout = KvLayout::new(layers, heads, config.head_dim, KvDtype::F32)?;
        Ok(Self {
            weight_bytes,
            kv_cache_bytes_per_1000_tokens: layout.bytes_per_block() as u64 * blocks_for(TOKENS) as u64,
        })
    }
}
