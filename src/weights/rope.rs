//! The rotary position embedding of config.json: `rope_theta` and `rope_scaling` of transformers 4, and
//! `rope_parameters` of transformers 5.
//!
//! It takes exactly the fields that transformers 5.23 reads for each kind, with its defaults. The angles are
//! computed elsewhere.

use serde_json::{Map, Value};

use super::fields::Fields;
use crate::error::{Error, Result};

/// The longest context that a configuration may name.
pub(super) const MAX_POSITIONS: usize = 1 << 30;
const DEFAULT_THETA: f64 = 10_000.0;
const MAX_THETA: f64 = 1e15;
const MAX_FACTOR: f64 = 1e6;
const KINDS: &str = "default, linear, dynamic, llama3 or yarn";

/// How the rotation angles of positions are made.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeParameters {
    /// The base of the wavelengths.
    pub theta: f64,
    /// What is done to them for longer contexts.
    pub kind: RopeKind,
}

/// The kinds of rotary scaling, with transformers' names.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RopeKind {
    /// The wavelengths as they are.
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
}

impl RopeParameters {
    /// Reads them out of a whole config.json.
    pub(super) fn read(config: &Map<String, Value>, max_positions: usize, head_dim: usize) -> Result<Self> {
        let top = Fields::new(config, "");
        let empty = Map::new();
        // Transformers 5 prefers the old name when both are there.
        let mut name = "rope_scaling";
        let mut parameters = &empty;
        for candidate in ["rope_parameters", "rope_scaling"] {
            match top.get(candidate) {
                None => {}
                Some(Value::Object(object)) if object.is_empty() => {}
                Some(Value::Object(object)) => (name, parameters) = (candidate, object),
                Some(_) => return Err(top.wrong(candidate, "an object")),
            }
        }
        let prefix = format!("{name}.");
        let fields = Fields::new(parameters, &prefix);
        if let Some((key, _)) = parameters.iter().find(|(_, value)| value.is_object()) {
            return Err(fields.wrong(key, "a plain value: parameters per layer type are not supported"));
        }
        for fields in [fields, top] {
            if fields.get("partial_rotary_factor").is_some_and(|value| value.as_f64() != Some(1.0)) {
                return Err(fields.wrong("partial_rotary_factor", "1: partial rotation is not supported"));
            }
        }
        let theta = match fields.positive("rope_theta", MAX_THETA)? {
            Some(theta) => theta,
            None => top.positive("rope_theta", MAX_THETA)?.unwrap_or(DEFAULT_THETA),
        };
        let kind_field = if fields.get("rope_type").is_some() { "rope_type" } else { "type" };
        let kind = match fields.text(kind_field)?.unwrap_or("default") {
            "default" => RopeKind::Default,
            "linear" => RopeKind::Linear { factor: required(fields, "factor")? },
            "dynamic" if head_dim < 4 => {
                return Err(top.wrong("head_dim", "at least 4 for dynamic rotary scaling"));
            }
            "dynamic" => RopeKind::Dynamic {
                factor: required(fields, "factor")?,
                original_max_position_embeddings: max_positions,
            },
            "llama3" => llama3(fields, original_positions(fields, top, max_positions)?)?,
            "yarn" if theta <= 1.0 => return Err(fields.wrong("rope_theta", "above 1 for yarn")),
            "yarn" => yarn(fields, original_positions(fields, top, max_positions)?, max_positions)?,
            _ => return Err(fields.wrong(kind_field, KINDS)),
        };
        Ok(Self { theta, kind })
    }
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
    const NAME: &str = "original_max_position_embeddings";
    let outside = top.integer(NAME, 1..=MAX_POSITIONS)?;
    let inside = fields.integer(NAME, 1..=MAX_POSITIONS)?;
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
