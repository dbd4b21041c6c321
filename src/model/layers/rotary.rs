//! The angles of the rotary position embedding, in the variants of transformers' `modeling_rope_utils`.
//!
//! Frequencies are computed in `float32` where transformers does, in the same order, because an error of one part in
//! 10^7 is an error of 10^-3 radians at position 10,000.

use std::f64::consts::PI;

use crate::model::context::sized;
use crate::model::rows::ActiveRows;
use crate::weights::{ModelConfig, RopeKind};

/// The frequencies of a model.
#[derive(Debug)]
pub(in crate::model) struct RotaryEmbedding {
    /// One for each pair of dimensions that turn.
    inv_freq: Vec<f32>,
    /// What cosines and sines are multiplied with (1 except for yarn and longrope).
    attention_scaling: f32,
    /// What becomes of the frequencies in long sequences.
    long: Long,
}

/// How the frequencies depend on the length of the sequence.
#[derive(Debug)]
enum Long {
    /// Not at all.
    Same,
    /// Neural-tangent-kernel scaling, whose base grows with the sequence.
    Grown(Dynamic),
    /// Sequences of more than `above` tokens have these.
    Switched { above: usize, inv_freq: Vec<f32> },
}

#[derive(Debug)]
struct Dynamic {
    theta: f32,
    factor: f32,
    max_position_embeddings: usize,
}

impl RotaryEmbedding {
    /// The frequencies that a configuration describes.
    pub(in crate::model) fn new(config: &ModelConfig) -> Self {
        let (dim, theta) = (config.rope.dim, config.rope.theta);
        let plain = inverse_frequencies(theta as f32, dim);
        let mut rotary = Self { inv_freq: plain.clone(), attention_scaling: 1.0, long: Long::Same };
        match &config.rope.kind {
            RopeKind::Default => {}
            RopeKind::Linear { factor } => {
                rotary.inv_freq = plain.iter().map(|&frequency| frequency / *factor as f32).collect();
            }
            RopeKind::Dynamic { factor, .. } => {
                rotary.long = Long::Grown(Dynamic {
                    theta: theta as f32,
                    factor: *factor as f32,
                    max_position_embeddings: config.max_position_embeddings,
                });
            }
            RopeKind::Llama3 { .. } => rotary.inv_freq = llama3(&plain, &config.rope.kind),
            RopeKind::Yarn { .. } => {
                (rotary.inv_freq, rotary.attention_scaling) = yarn(theta, dim, &config.rope.kind);
            }
            RopeKind::LongRope {
                short_factor,
                long_factor,
                factor,
                attention_factor,
                original_max_position_embeddings,
            } => {
                let above = *original_max_position_embeddings;
                rotary.inv_freq = divided_frequencies(theta, dim, short_factor);
                rotary.long =
                    Long::Switched { above, inv_freq: divided_frequencies(theta, dim, long_factor) };
                let stretch = if *factor <= 1.0 { 0.0 } else { factor.ln() / (above as f64).ln() };
                rotary.attention_scaling = attention_factor.unwrap_or_else(|| (1.0 + stretch).sqrt()) as f32;
            }
        }
        rotary
    }

    /// The cosines of one row: half the dimensions of a head that turn.
    pub(in crate::model) fn row_len(&self) -> usize {
        self.inv_freq.len()
    }

    /// The length above which a sequence has other frequencies for all its tokens, if there is one.
    pub(in crate::model) fn switches_above(&self) -> Option<usize> {
        match self.long {
            Long::Switched { above, .. } => Some(above),
            _ => None,
        }
    }

    /// Computes cosines and sines of every row, `[num_rows, row_len]` each.
    pub(in crate::model) fn angles(&self, rows: &ActiveRows<'_>, cos: &mut Vec<f32>, sin: &mut Vec<f32>) {
        let half = self.row_len();
        let cos = sized(cos, rows.len() * half).chunks_exact_mut(half);
        let sin = sized(sin, rows.len() * half).chunks_exact_mut(half);
        let mut grown: Option<(usize, Vec<f32>)> = None;
        for ((row, cos), sin) in rows.iter().zip(cos).zip(sin) {
            let frequencies = match &self.long {
                Long::Grown(dynamic) if row.rope_len > dynamic.max_position_embeddings => {
                    if grown.as_ref().is_none_or(|(len, _)| *len != row.rope_len) {
                        grown = Some((row.rope_len, dynamic.inverse_frequencies(row.rope_len, 2 * half)));
                    }
                    grown.as_ref().map_or(&self.inv_freq, |(_, frequencies)| frequencies)
                }
                Long::Switched { above, inv_freq } if row.rope_len > *above => inv_freq,
                _ => &self.inv_freq,
            };
            for i in 0..half {
                let angle = row.position as f32 * frequencies[i];
                let (s, c) = f64::from(angle).sin_cos();
                (cos[i], sin[i]) = (c as f32 * self.attention_scaling, s as f32 * self.attention_scaling);
            }
        }
    }
}

impl Dynamic {
    fn inverse_frequencies(&self, len: usize, dim: usize) -> Vec<f32> {
        let growth = self.factor * len as f32 / self.max_position_embeddings as f32 - (self.factor - 1.0);
        let exponent = dim as f64 / (dim as f64 - 2.0);
        inverse_frequencies(self.theta * growth.powf(exponent as f32), dim)
    }
}

/// `1 / theta^(2i / dim)`
fn inverse_frequencies(theta: f32, dim: usize) -> Vec<f32> {
    powers(theta, dim).map(|power| 1.0 / power).collect()
}

/// `1 / (divisor[i] * theta^(2i / dim))`
fn divided_frequencies(theta: f64, dim: usize, divisors: &[f64]) -> Vec<f32> {
    powers(theta as f32, dim).zip(divisors).map(|(power, &divisor)| 1.0 / (divisor as f32 * power)).collect()
}

/// `theta^(2i / dim)`, rounded to `float32` from a more exact one.
fn powers(theta: f32, dim: usize) -> impl Iterator<Item = f32> {
    (0..dim.div_ceil(2)).map(move |i| f64::from(theta).powf(f64::from(2.0 * i as f32 / dim as f32)) as f32)
}

/// Long wavelengths are stretched by the factor, short ones are kept, those between are blended.
fn llama3(plain: &[f32], kind: &RopeKind) -> Vec<f32> {
    let RopeKind::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } =
        kind
    else {
        return plain.to_vec();
    };
    let (factor, low, high) = (*factor as f32, *low_freq_factor as f32, *high_freq_factor as f32);
    let context = *original_max_position_embeddings as f32;
    let long = (*original_max_position_embeddings as f64 / low_freq_factor) as f32;
    let short = (*original_max_position_embeddings as f64 / high_freq_factor) as f32;
    let stretch = |&frequency: &f32| {
        let wavelength = (2.0 * PI) as f32 / frequency;
        if wavelength > long {
            frequency / factor
        } else if wavelength < short {
            frequency
        } else {
            let smooth = (context / wavelength - low) / (high - low);
            (1.0 - smooth) * frequency / factor + smooth * frequency
        }
    };
    plain.iter().map(stretch).collect()
}

/// Peng et al., arXiv:2309.00071: the frequencies, and the scaling of attention.
fn yarn(theta: f64, dim: usize, kind: &RopeKind) -> (Vec<f32>, f32) {
    let RopeKind::Yarn {
        factor,
        attention_factor,
        beta_fast,
        beta_slow,
        mscale,
        mscale_all_dim,
        truncate,
        original_max_position_embeddings,
    } = kind
    else {
        return (inverse_frequencies(theta as f32, dim), 1.0);
    };
    let magnitude = |mscale: f64| if *factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 };
    let attention_scaling = attention_factor.unwrap_or_else(|| match (mscale, mscale_all_dim) {
        (Some(one), Some(all)) if *one != 0.0 && *all != 0.0 => magnitude(*one) / magnitude(*all),
        _ => magnitude(1.0),
    });

    // The dimension that makes that many turns within the original context.
    let dimension = |turns: f64| {
        dim as f64 * (*original_max_position_embeddings as f64 / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln())
    };
    let (mut low, mut high) = (dimension(*beta_fast), dimension(*beta_slow));
    if *truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(dim as f64 - 1.0));
    if low == high {
        high += 0.001;
    }
    let blend = |(i, power): (usize, f32)| {
        let ramp = ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
        let kept = 1.0 - ramp;
        (1.0 / (*factor as f32 * power)) * (1.0 - kept) + (1.0 / power) * kept
    };
    (powers(theta as f32, dim).enumerate().map(blend).collect(), attention_scaling as f32)
}
