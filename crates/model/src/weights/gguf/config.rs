//! The config.json of a model in a GGUF file: from the keys of its metadata to transformers' fields.
//!
//! Fields have llama's names, which all families read. What llama.cpp implies by the architecture is in
//! `implied`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::architecture::Architecture;
use super::container::TensorInfo;
use super::tokenizer::TOKENS;
use super::value::{Metadata, Number, decimal, wrong};
use rsgen_core::error::{Error, Result};

/// The largest size of anything.
const MOST: u64 = 1 << 30;

/// What a file says about its model.
pub(super) struct Description<'a> {
    /// `general.architecture`.
    pub(super) architecture: &'a str,
    pub(super) metadata: &'a Metadata,
    pub(super) tensors: &'a HashMap<&'a str, &'a TensorInfo>,
    /// The numbers of a small float32 tensor.
    pub(super) floats: &'a dyn Fn(&str) -> Result<Option<Vec<f32>>>,
}

impl Description<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// The error for a key of the architecture.
    pub(super) fn wrong(&self, name: &str, rule: &str) -> Error {
        let key = self.key(name);
        wrong(&key, rule, self.metadata.get(&key))
    }

    /// A whole number.
    pub(super) fn count(&self, name: &str) -> Result<Option<u64>> {
        self.metadata.count(&self.key(name))
    }

    /// A number.
    pub(super) fn float(&self, name: &str) -> Result<Option<f64>> {
        self.metadata.float(&self.key(name))
    }

    /// True or false.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.metadata.flag(&self.key(name))
    }

    /// A list of numbers.
    pub(super) fn numbers(&self, name: &str) -> Result<Option<Vec<Number>>> {
        self.metadata.numbers(&self.key(name))
    }

    /// Whether there is a tensor of this name.
    pub(super) fn has(&self, tensor: &str) -> bool {
        self.tensors.contains_key(tensor)
    }

    fn size(&self, name: &str) -> Result<usize> {
        let size = self.count(name)?.filter(|size| (1..=MOST).contains(size));
        let rule = format!("a whole number from 1 to {MOST}");
        size.map(|size| size as usize).ok_or_else(|| self.wrong(name, &rule))
    }

    /// A size that some architectures give for each layer: it must be one for all.
    fn layer_size(&self, name: &str) -> Result<Option<u64>> {
        let Some(sizes) = self.numbers(name)? else { return Ok(None) };
        let first = sizes.first().and_then(|size| size.as_count()).filter(|size| (1..=MOST).contains(size));
        if first.is_none() || sizes.iter().any(|size| size.as_count() != first) {
            return Err(
                self.wrong(name, "one size for all layers: layers of several sizes are not supported")
            );
        }
        Ok(first)
    }

    pub(super) fn num_layers(&self) -> Result<usize> {
        self.layers("block_count")
    }

    /// The layers of the decoder, of models with an encoder.
    pub(super) fn num_decoder_layers(&self) -> Result<usize> {
        const NAME: &str = "decoder_block_count";
        if self.count(NAME)?.is_some() { self.layers(NAME) } else { self.num_layers() }
    }

    fn layers(&self, name: &str) -> Result<usize> {
        const MOST: usize = 1 << 10;
        let layers = self.size(name)?;
        if layers > MOST { Err(self.wrong(name, &format!("at most {MOST}"))) } else { Ok(layers) }
    }

    pub(super) fn hidden_size(&self) -> Result<usize> {
        self.size("embedding_length")
    }

    pub(super) fn num_heads(&self) -> Result<usize> {
        const NAME: &str = "attention.head_count";
        let heads = self.layer_size(NAME)?.ok_or_else(|| self.wrong(NAME, "given"))?;
        usize::try_from(heads).map_err(|_| self.wrong(NAME, "a number of heads"))
    }

    pub(super) fn num_kv_heads(&self) -> Result<usize> {
        const NAME: &str = "attention.head_count_kv";
        let Some(heads) = self.layer_size(NAME)? else { return self.num_heads() };
        usize::try_from(heads).map_err(|_| self.wrong(NAME, "a number of heads"))
    }

    pub(super) fn head_dim(&self) -> Result<usize> {
        let dim = match self.count("attention.key_length")? {
            Some(_) => self.size("attention.key_length")?,
            // Some converters leave it out where it is not the quotient.
            None => match self.tensors.get("blk.0.attn_q.weight").and_then(|tensor| tensor.shape.first()) {
                Some(rows) => rows / self.num_heads()?,
                None => self.hidden_size()? / self.num_heads()?,
            },
        };
        match self.count("attention.value_length")? {
            Some(value) if value != dim as u64 => Err(self.wrong(
                "attention.value_length",
                &format!("that of keys ({dim}): values of another width are not supported"),
            )),
            _ if dim == 0 => Err(self.wrong("attention.head_count", "at most embedding_length")),
            _ => Ok(dim),
        }
    }

    /// The rows of a part of the first layer that has it, or of one of its experts.
    pub(super) fn rows_of(&self, part: &str) -> Result<Option<usize>> {
        let names = (0..self.num_layers()?).map(|layer| format!("blk.{layer}.{part}.weight"));
        let found = names.into_iter().find_map(|name| self.tensors.get(&*name));
        Ok(found.and_then(|tensor| tensor.shape.iter().rev().nth(1).copied()))
    }

    /// The width of an expert's MLP.
    pub(super) fn expert_width(&self) -> Result<Option<usize>> {
        if let Some(width) = self.rows_of("ffn_up_exps")? {
            return Ok(Some(width));
        }
        if let Some(both) = self.rows_of("ffn_gate_up_exps")? {
            return Ok(Some(both / 2));
        }
        Ok(self.layer_size("expert_feed_forward_length")?.map(|width| width as usize))
    }

    /// The width of the MLP: that of its tensors, as some files state another.
    fn intermediate_size(&self) -> Result<Option<u64>> {
        let names = (0..self.num_layers()?).map(|layer| format!("blk.{layer}.ffn_down.weight"));
        let down = names.into_iter().find_map(|name| self.tensors.get(&*name));
        match down.and_then(|tensor| tensor.shape.last()) {
            Some(&width) => Ok(Some(width as u64)),
            None => self.layer_size("feed_forward_length"),
        }
    }
}

/// The error for a file without the tensors of a model.
pub(super) fn no_model() -> Error {
    Error::load(
        "the tensor token_embd.weight is missing; a file of a vocabulary or of an adapter alone is no model",
    )
}

/// The configuration of a model.
///
/// # Errors
/// `Load`, naming the key, when one is missing or out of its range.
pub(super) fn config(model: &Description<'_>, entry: &Architecture) -> Result<Map<String, Value>> {
    let vocab_size = model.tensors.get("token_embd.weight").and_then(|tensor| tensor.shape.first()).copied();
    // The tokenizer of a file of a vocabulary alone can be used.
    let tokens = if model.tensors.is_empty() { model.metadata.texts(TOKENS)? } else { None };
    let vocab_size = vocab_size.or(tokens.map(<[String]>::len)).ok_or_else(no_model)?;
    let head_dim = model.head_dim()?;
    let eps = ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"];
    let [first, second] = if entry.layer_norm { [eps[1], eps[0]] } else { eps };
    let mut config = Map::new();
    let mut set = |name: &str, value: Value| config.insert(name.to_owned(), value);
    set("architectures", json!([entry.class]));
    set("model_type", json!(entry.model_type));
    set("vocab_size", json!(vocab_size));
    set("hidden_size", json!(model.hidden_size()?));
    set("intermediate_size", json!(model.intermediate_size()?));
    set("num_hidden_layers", json!(model.num_layers()?));
    set("num_attention_heads", json!(model.num_heads()?));
    set("num_key_value_heads", json!(model.num_kv_heads()?));
    set("head_dim", json!(head_dim));
    set("max_position_embeddings", json!(model.size("context_length")?));
    if let Some(eps) = model.float(first)?.or(model.float(second)?) {
        set("rms_norm_eps", json!(eps));
    }
    set("tie_word_embeddings", json!(!model.has("output.weight")));
    let has_bias = |part: &str| model.has(&format!("blk.0.{part}.bias"));
    set("attention_bias", json!(has_bias("attn_q") || has_bias("attn_qkv")));
    set("mlp_bias", json!(has_bias("ffn_up")));
    // Names of the same fields in families whose own names have precedence.
    if let Some(dim) = model.count("rope.dimension_count")?.filter(|&dim| dim != head_dim as u64) {
        set("partial_rotary_factor", json!(partial_factor(model, dim, head_dim)?));
    }
    for (name, key) in [("bos", "bos"), ("eos", "eos"), ("pad", "padding")] {
        let id = model.metadata.count(&format!("tokenizer.ggml.{key}_token_id"))?;
        set(&format!("{name}_token_id"), json!(id));
    }
    let (rope, positions) = rope(model, head_dim)?;
    set("rope_parameters", rope.into());
    if let Some(positions) = positions {
        set("original_max_position_embeddings", json!(positions));
    }
    (entry.config)(model, &mut config)?;
    Ok(config)
}

/// The factor that gives `dim` of `head_dim` again when the product is cut to a whole number.
fn partial_factor(model: &Description<'_>, dim: u64, head_dim: usize) -> Result<f64> {
    if dim == 0 || dim > head_dim as u64 {
        return Err(model.wrong("rope.dimension_count", &format!("from 1 to {head_dim}")));
    }
    let factor = dim as f64 / head_dim as f64;
    Ok(if (factor * head_dim as f64) as u64 == dim { factor } else { factor.next_up() })
}

/// The rotary embedding, and the context before scaling where longrope needs it beside.
fn rope(model: &Description<'_>, head_dim: usize) -> Result<(Map<String, Value>, Option<u64>)> {
    const SCALING: &str = "rope.scaling.type";
    let theta = model.float("rope.freq_base")?.unwrap_or(10_000.0);
    let mut rope = Map::new();
    let mut set = |name: &str, value: Value| rope.insert(name.to_owned(), value);
    set("rope_theta", json!(theta));
    let original = model.count("rope.scaling.original_context_length")?;
    let key = model.key(SCALING);
    let kind = model.metadata.text(&key)?.unwrap_or("none");
    if let Some(short) = (model.floats)("rope_factors_short.weight")? {
        let long = (model.floats)("rope_factors_long.weight")?;
        let long = long.ok_or_else(|| {
            Error::load("the tensor rope_factors_long.weight is missing beside rope_factors_short.weight")
        })?;
        let list = |factors: Vec<f32>| json!(factors.into_iter().map(decimal).collect::<Vec<_>>());
        set("rope_type", json!("longrope"));
        set("short_factor", list(short));
        set("long_factor", list(long));
        let context = model.size("context_length")? as f64;
        let original = original.ok_or_else(|| {
            model.wrong("rope.scaling.original_context_length", "given beside rope_factors_short.weight")
        })?;
        let implied = if context > original as f64 {
            (1.0 + (context / original as f64).ln() / (original as f64).ln()).sqrt()
        } else {
            1.0
        };
        let factor = model.float("rope.scaling.attn_factor")?;
        if let Some(factor) = factor.filter(|&factor| factor as f32 != implied as f32) {
            set("attention_factor", json!(factor));
        }
        return Ok((rope, Some(original)));
    }
    let factor =
        || model.float("rope.scaling.factor")?.ok_or_else(|| model.wrong("rope.scaling.factor", "given"));
    match kind {
        "none" => {
            let freqs = (model.floats)("rope_freqs.weight")?;
            let scaling = freqs.map(|freqs| llama3(&freqs, theta, head_dim)).transpose()?;
            if let Some((factor, original)) = scaling.filter(|&(factor, _)| factor != 1.0) {
                set("rope_type", json!("llama3"));
                set("factor", json!(factor));
                set("low_freq_factor", json!(LOW));
                set("high_freq_factor", json!(HIGH));
                set("original_max_position_embeddings", json!(original as u64));
            } else {
                set("rope_type", json!("default"));
            }
        }
        "linear" => {
            set("rope_type", json!("linear"));
            set("factor", json!(factor()?));
        }
        "yarn" => {
            set("rope_type", json!("yarn"));
            set("factor", json!(factor()?));
            set("original_max_position_embeddings", json!(original));
            for (key, name) in [
                ("yarn_attn_factor", "attention_factor"),
                ("yarn_beta_fast", "beta_fast"),
                ("yarn_beta_slow", "beta_slow"),
            ] {
                if let Some(value) = model.float(&format!("rope.scaling.{key}"))? {
                    set(name, json!(value));
                }
            }
        }
        _ => return Err(wrong(&key, "none, linear, yarn or longrope", model.metadata.get(&key))),
    }
    Ok((rope, None))
}

/// Llama 3's ramp between low and high frequencies, which its files do not state.
const LOW: f64 = 1.0;
const HIGH: f64 = 4.0;
/// Its original context, where the ramp holds no frequency that tells it.
const ORIGINAL: f64 = 8192.0;

/// The factor and the original context of Llama 3's scaling, of which the file has the divisors of all
/// frequencies.
///
/// # Errors
/// `Load` when they are not those of any factor.
fn llama3(divisors: &[f32], theta: f64, head_dim: usize) -> Result<(f64, f64)> {
    let factor = decimal(divisors.iter().copied().fold(1.0_f32, f32::max));
    let wavelength =
        |place: usize| 2.0 * std::f64::consts::PI * theta.powf(2.0 * place as f64 / head_dim as f64);
    let on_ramp = divisors.iter().position(|&divisor| 1.0 < divisor && f64::from(divisor) < factor);
    let original = match on_ramp {
        Some(place) => {
            let smooth = (1.0 / f64::from(divisors[place]) - 1.0 / factor) / (1.0 - 1.0 / factor);
            (wavelength(place) * (LOW + smooth * (HIGH - LOW))).round()
        }
        // All that lie between the last frequency that is kept and the first that is divided are the same.
        None => match divisors.iter().position(|&divisor| divisor > 1.0) {
            Some(first) if wavelength(first) <= ORIGINAL => wavelength(first).floor(),
            _ => ORIGINAL,
        },
    };
    let expected = |place: usize| {
        let length = wavelength(place);
        if length < original / HIGH {
            1.0
        } else if length > original / LOW {
            factor
        } else {
            let smooth = (original / length - LOW) / (HIGH - LOW);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    let is_same =
        |(place, &divisor): (usize, &f32)| (f64::from(divisor) / expected(place) - 1.0).abs() < 1e-4;
    if 2 * divisors.len() == head_dim && divisors.iter().enumerate().all(is_same) {
        return Ok((factor, original));
    }
    Err(Error::load(
        "the tensor rope_freqs.weight must hold Llama 3's divisors of rotary frequencies, for some factor and original \
         context; use the model in safetensors format",
    ))
}
