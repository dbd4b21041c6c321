//! The rotary position embedding of config.json: `rope_theta` and `rope_scaling` of transformers 4, and
//! `rope_parameters` of transformers 5.
//!
//! It reads the fields that transformers 5.24 reads for each kind, with the same defaults.

use serde_json::{Map, Value};

use super::fields::Fields;
use rsgen_core::error::{Error, Result};

/// The longest context that a configuration may name.
pub(super) const MAX_POSITIONS: usize = 1 << 30;
const DEFAULT_THETA: f64 = 10_000.0;
const MAX_THETA: f64 = 1e15;
const MAX_FACTOR: f64 = 1e6;
const PARTIAL: &str = "partial_rotary_factor";
const ORIGINAL: &str = "original_max_position_embeddings";

/// Which rotary embeddings a family has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeRule {
    /// None.
    None,
    /// All kinds but longrope, each rotating whole heads.
    WholeHead,
    /// The same; `dynamic` with a field `alpha` is a base that is stretched once (`HunYuan`).
    Alpha,
    /// The same, rotating the part of a head that `partial_rotary_factor` says.
    Part,
    /// `default` and `longrope`, which old files call `su` or `yarn`; a head may be rotated in part (Phi-3).
    Phi3,
    /// The default kind, rotating the dimensions that `rotary_dim` says (GPT-J).
    Dims,
    /// [`RopeRule::WholeHead`], and layers with a window have the default kind with the base
    /// `rope_local_base_freq`. `rope_parameters` holds both by the type of the layer.
    ByLayerType,
}

/// The parameters of RoPE.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeParameters {
    /// The base of the wavelengths.
    pub theta: f64,
    /// The leading dimensions of a head that are rotated. An odd number rotates one more, as in transformers.
    pub dim: usize,
    /// The scaling for longer contexts.
    pub kind: RopeKind,
}

/// The kinds of rotary scaling, with transformers' names.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeKind {
    /// No scaling.
    Default,
    /// All frequencies divided.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// The base grows with the length of the sequence.
    Dynamic {
        /// How fast it grows.
        factor: f64,
        /// The length up to which it stays: `max_position_embeddings`.
        original_max_position_embeddings: usize,
    },
    /// Low frequencies divided, high ones kept, and a ramp between.
    Llama3 {
        /// The divisor of low frequencies.
        factor: f64,
        /// The ramp begins where a wavelength fits this often into the original context.
        low_freq_factor: f64,
        /// The ramp ends here; above `low_freq_factor`.
        high_freq_factor: f64,
        /// The context before scaling.
        original_max_position_embeddings: usize,
    },
    /// Interpolation by parts, with a factor on cosines and sines.
    Yarn {
        /// How many times longer the context is.
        factor: f64,
        /// The factor on cosines and sines; computed from the others when absent.
        attention_factor: Option<f64>,
        /// Rotations within the original context above which a frequency is kept.
        beta_fast: f64,
        /// Rotations below which it is divided.
        beta_slow: f64,
        /// With `mscale_all_dim`, replaces the factor's own part in the attention factor; never 0.
        mscale: Option<f64>,
        /// See `mscale`; never 0.
        mscale_all_dim: Option<f64>,
        /// Whether the ends of the ramp are rounded to whole dimensions.
        truncate: bool,
        /// The context before scaling.
        original_max_position_embeddings: usize,
    },
    /// Each frequency divided by a factor of its own, from one list up to the original context and from
    /// another beyond.
    LongRope {
        /// The divisors for sequences within the original context, one for each frequency.
        short_factor: Vec<f64>,
        /// The divisors for longer sequences.
        long_factor: Vec<f64>,
        /// How many times longer the context is.
        factor: f64,
        /// The factor on cosines and sines; computed from the others when absent.
        attention_factor: Option<f64>,
        /// The context before scaling; at least 2.
        original_max_position_embeddings: usize,
    },
}

impl RopeParameters {
    /// The same with the factors of longrope in float32, as they are used.
    pub(crate) fn rounded(&self) -> Self {
        let mut rounded = self.clone();
        if let RopeKind::LongRope { short_factor, long_factor, .. } = &mut rounded.kind {
            for factor in short_factor.iter_mut().chain(long_factor) {
                *factor = f64::from(*factor as f32);
            }
        }
        rounded
    }

    /// Reads them out of a whole config.json: those of most layers, and those of layers with a window, where
    /// they are others.
    pub(super) fn read(
        config: &Map<String, Value>,
        rule: RopeRule,
        max_positions: usize,
        head_dim: usize,
    ) -> Result<[Option<Self>; 2]> {
        let top = Fields::new(config, "");
        if rule == RopeRule::None {
            return Ok([None, None]);
        }
        let empty = Map::new();
        // Transformers 5 prefers the old name when both are there.
        let mut name = "rope_scaling";
        let mut parameters = &empty;
        let mut nested = None;
        for candidate in ["rope_parameters", "rope_scaling"] {
            match top.get(candidate) {
                None => {}
                Some(Value::Object(object)) if object.is_empty() => {}
                Some(Value::Object(object))
                    if rule == RopeRule::ByLayerType && object.contains_key("full_attention") =>
                {
                    nested = Some(object);
                }
                Some(Value::Object(object)) => (name, parameters) = (candidate, object),
                Some(_) => return Err(top.wrong(candidate, "an object")),
            }
        }
        let read = |prefix: &str, parameters: &Map<String, Value>, theta: &str| {
            Self::read_one(Fields::new(parameters, prefix), top, theta, rule, max_positions, head_dim)
        };
        let prefix = format!("{name}.");
        if rule != RopeRule::ByLayerType {
            return Ok([Some(read(&prefix, parameters, "rope_theta")?), None]);
        }
        let of_type = |layer_type: &str, fallback| {
            let found = nested.and_then(|object| object.get(layer_type)).and_then(Value::as_object);
            found.unwrap_or(fallback)
        };
        let full = if parameters.is_empty() { of_type("full_attention", parameters) } else { parameters };
        let full = read(&prefix, full, "rope_theta")?;
        let local = of_type("sliding_attention", &empty);
        let local = read("rope_parameters.sliding_attention.", local, "rope_local_base_freq")?;
        Ok([Some(full), Some(local)])
    }

    /// Reads one set of them; `theta` names the base beside them.
    fn read_one(
        fields: Fields<'_>,
        top: Fields<'_>,
        theta: &str,
        rule: RopeRule,
        max_positions: usize,
        head_dim: usize,
    ) -> Result<Self> {
        if let Some(key) = fields.nested() {
            return Err(fields.wrong(key, "a plain value: parameters per layer type are not supported"));
        }
        let mut theta = match fields.positive("rope_theta", MAX_THETA)? {
            Some(theta) => theta,
            None => top.positive(theta, MAX_THETA)?.unwrap_or(DEFAULT_THETA),
        };
        let dim = match rule {
            RopeRule::Part | RopeRule::Phi3 => partial_dim(fields, top, head_dim)?,
            RopeRule::Dims => top.integer("rotary_dim", 2..=head_dim)?.unwrap_or(head_dim),
            _ => whole_dim(fields, top, head_dim)?,
        };
        let kind_field = if fields.get("rope_type").is_some() { "rope_type" } else { "type" };
        let kind = match (rule, fields.text(kind_field)?.unwrap_or("default")) {
            (_, "default") => RopeKind::Default,
            (RopeRule::Phi3, "longrope" | "su" | "yarn") => {
                let original = top.integer(ORIGINAL, 2..=MAX_POSITIONS)?.unwrap_or(max_positions);
                longrope(fields, original, max_positions, dim.div_ceil(2))?
            }
            (RopeRule::Phi3, _) => return Err(fields.wrong(kind_field, "default or longrope")),
            (RopeRule::Dims, _) => return Err(fields.wrong(kind_field, "default")),
            (RopeRule::Alpha, "dynamic") if fields.get("alpha").is_some() => {
                let alpha = required(fields, "alpha")?;
                theta *= alpha.powf(head_dim as f64 / (head_dim as f64 - 2.0));
                RopeKind::Default
            }
            (_, "linear") => RopeKind::Linear { factor: required(fields, "factor")? },
            (_, "dynamic") if head_dim < 4 => {
                return Err(top.wrong("head_dim", "at least 4 for dynamic rotary scaling"));
            }
            (_, "dynamic") => RopeKind::Dynamic {
                factor: required(fields, "factor")?,
                original_max_position_embeddings: max_positions,
            },
            (_, "llama3") => llama3(fields, original_positions(fields, top, max_positions)?)?,
            (_, "yarn") if theta <= 1.0 => return Err(fields.wrong("rope_theta", "above 1 for yarn")),
            (_, "yarn") => yarn(fields, original_positions(fields, top, max_positions)?, max_positions)?,
            _ => return Err(fields.wrong(kind_field, "default, linear, dynamic, llama3 or yarn")),
        };
        Ok(Self { theta, dim, kind })
    }
}

/// All dimensions of a head; a `partial_rotary_factor` must agree.
fn whole_dim(fields: Fields<'_>, top: Fields<'_>, head_dim: usize) -> Result<usize> {
    for fields in [fields, top] {
        if fields.get(PARTIAL).is_some_and(|value| value.as_f64() != Some(1.0)) {
            return Err(fields.wrong(PARTIAL, "1: partial rotation is not supported in this architecture"));
        }
    }
    Ok(head_dim)
}

/// The rotated dimensions of a head by `partial_rotary_factor`; the one among the parameters wins.
fn partial_dim(fields: Fields<'_>, top: Fields<'_>, head_dim: usize) -> Result<usize> {
    let inside = fields.positive(PARTIAL, 1.0)?;
    let outside = top.positive(PARTIAL, 1.0)?;
    let dim = (head_dim as f64 * inside.or(outside).unwrap_or(1.0)) as usize;
    if dim == 0 {
        let fields = if inside.is_some() { fields } else { top };
        return Err(
            fields.wrong(PARTIAL, &format!("so large that one of the {head_dim} dimensions of a head turns"))
        );
    }
    Ok(dim)
}

fn longrope(
    fields: Fields<'_>,
    original_max_position_embeddings: usize,
    max_positions: usize,
    num_frequencies: usize,
) -> Result<RopeKind> {
    let list = |name: &str| {
        let factor =
            |value: &Value| value.as_f64().filter(|factor| (1.0 / MAX_FACTOR..=MAX_FACTOR).contains(factor));
        let factors: Option<Vec<f64>> =
            fields.get(name).and_then(Value::as_array).and_then(|list| list.iter().map(factor).collect());
        let rule =
            || format!("a list of {num_frequencies} numbers from {:e} to {MAX_FACTOR:e}", 1.0 / MAX_FACTOR);
        let factors = factors.filter(|factors| factors.len() == num_frequencies);
        factors.ok_or_else(|| fields.wrong(name, &rule()))
    };
    let ratio = max_positions as f64 / original_max_position_embeddings as f64;
    Ok(RopeKind::LongRope {
        short_factor: list("short_factor")?,
        long_factor: list("long_factor")?,
        factor: fields.positive("factor", MAX_FACTOR)?.unwrap_or(ratio),
        attention_factor: fields.positive("attention_factor", MAX_FACTOR)?,
        original_max_position_embeddings,
    })
}

fn llama3(fields: Fields<'_>, original_max_position_embeddings: usize) -> Result<RopeKind> {
    let low_freq_factor = required(fields, "low_freq_factor")?;
    let high_freq_factor = required(fields, "high_freq_factor")?;
    if high_freq_factor <= low_freq_factor {
        return Err(
            fields.wrong("high_freq_factor", &format!("a number above low_freq_factor ({low_freq_factor})"))
        );
    }
    let factor = required(fields, "factor")?;
    Ok(RopeKind::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings })
}

fn yarn(
    fields: Fields<'_>,
    original_max_position_embeddings: usize,
    max_positions: usize,
) -> Result<RopeKind> {
    let ratio = max_positions as f64 / original_max_position_embeddings as f64;
    Ok(RopeKind::Yarn {
        factor: fields.positive("factor", MAX_FACTOR)?.unwrap_or(ratio),
        attention_factor: fields.positive("attention_factor", MAX_FACTOR)?,
        beta_fast: positive_unless_zero(fields, "beta_fast")?.unwrap_or(32.0),
        beta_slow: positive_unless_zero(fields, "beta_slow")?.unwrap_or(1.0),
        mscale: positive_unless_zero(fields, "mscale")?,
        mscale_all_dim: positive_unless_zero(fields, "mscale_all_dim")?,
        truncate: fields.flag("truncate")?.unwrap_or(true),
        original_max_position_embeddings,
    })
}

/// The context before scaling: a field beside the parameters wins over one among them.
fn original_positions(fields: Fields<'_>, top: Fields<'_>, max_positions: usize) -> Result<usize> {
    let outside = top.integer(ORIGINAL, 1..=MAX_POSITIONS)?;
    let inside = fields.integer(ORIGINAL, 1..=MAX_POSITIONS)?;
    Ok(outside.or(inside).unwrap_or(max_positions))
}

fn required(fields: Fields<'_>, name: &str) -> Result<f64> {
    let missing = || -> Error { fields.wrong(name, "given for this rope_type") };
    fields.positive(name, MAX_FACTOR)?.ok_or_else(missing)
}

/// Transformers takes 0 for absent in these fields.
fn positive_unless_zero(fields: Fields<'_>, name: &str) -> Result<Option<f64>> {
    if fields.get(name).and_then(Value::as_f64) == Some(0.0) {
        return Ok(None);
    }
    fields.positive(name, MAX_FACTOR)
}
