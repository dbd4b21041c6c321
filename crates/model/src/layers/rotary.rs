//! Rotary position embedding, in the variants of transformers' `modeling_rope_utils`.
//!
//! Frequencies are computed in `float32` where transformers does, in the same order: a relative error of
//! 10^-7 becomes 10^-3 radians at position 10,000.

use std::f64::consts::PI;
use std::ops::Range;

use crate::cache::KeyRotation;
use crate::context::sized;
use crate::rows::ActiveRows;
use crate::spec::RotarySpec;
use crate::weights::{RopeKind, RopeParameters};
use rsgen_kernels::RotaryPairs;

/// The tables of a model, side by side.
#[derive(Debug)]
pub(crate) struct RotaryTables {
    tables: Vec<RotaryEmbedding>,
    pairs: RotaryPairs,
    /// The table of each layer.
    layers: Vec<Option<usize>>,
}

impl RotaryTables {
    /// The tables that a family describes.
    pub(crate) fn new(spec: &RotarySpec, max_position_embeddings: usize) -> Self {
        let tables = spec.tables.iter().map(|rope| RotaryEmbedding::new(rope, max_position_embeddings));
        Self { tables: tables.collect(), pairs: spec.pairs, layers: spec.layers.clone() }
    }

    /// The cosines of a row: those of all tables.
    pub(crate) fn num_frequencies(&self) -> usize {
        self.tables.iter().map(RotaryEmbedding::num_frequencies).sum()
    }

    /// Where those of a layer are, among the cosines of a row.
    pub(crate) fn of_layer(&self, layer: usize) -> Range<usize> {
        let Some(table) = self.layers[layer] else { return 0..0 };
        let start = self.tables[..table].iter().map(RotaryEmbedding::num_frequencies).sum();
        start..start + self.tables[table].num_frequencies()
    }

    /// Which dimensions are rotated together.
    pub(crate) fn pairs(&self) -> RotaryPairs {
        self.pairs
    }

    /// The sequence length above which longrope uses its long factors; `None` without longrope.
    pub(crate) fn longrope_threshold(&self) -> Option<usize> {
        self.tables.iter().find_map(RotaryEmbedding::longrope_threshold)
    }

    /// Whether the frequencies depend on the length of the sequence.
    pub(crate) fn depends_on_length(&self) -> bool {
        self.tables.iter().any(RotaryEmbedding::depends_on_length)
    }

    /// The rotation of each layer's keys back by so many positions, with the frequencies of short texts. It
    /// changes no length, so attention scaling has no part in it.
    pub(crate) fn rotation_back(&self, positions: usize) -> Vec<KeyRotation> {
        let none = KeyRotation { pairs: self.pairs, cos: Vec::new(), sin: Vec::new() };
        let of_layer = |table: &Option<usize>| {
            table
                .map_or_else(|| none.clone(), |table| self.tables[table].rotation_back(self.pairs, positions))
        };
        self.layers.iter().map(of_layer).collect()
    }

    /// Computes cosines and sines of every row, `[num_rows, num_frequencies]` each.
    pub(crate) fn angles(&self, rows: &ActiveRows<'_>, cos: &mut Vec<f32>, sin: &mut Vec<f32>) {
        let width = self.num_frequencies();
        let (cos, sin) = (sized(cos, rows.len() * width), sized(sin, rows.len() * width));
        let mut first = 0;
        for table in &self.tables {
            table.angles(rows, width, &mut cos[first..], &mut sin[first..]);
            first += table.num_frequencies();
        }
    }
}

/// The frequencies of a table.
#[derive(Debug)]
pub(crate) struct RotaryEmbedding {
    /// One inverse frequency per pair of rotated dimensions.
    inv_freq: Vec<f32>,
    /// The factor of cosines and sines (1 except for yarn and longrope).
    attention_scaling: f32,
    /// How the frequencies depend on the sequence length.
    update: FrequencyUpdate,
}

/// How the frequencies depend on the sequence length.
#[derive(Debug)]
enum FrequencyUpdate {
    /// Not at all.
    Constant,
    /// Dynamic NTK scaling: the base grows with the sequence.
    Dynamic(DynamicNtk),
    /// Longrope: sequences of more than `threshold` tokens use the long factors.
    LongRope { threshold: usize, long_inv_freq: Vec<f32> },
}

#[derive(Debug)]
struct DynamicNtk {
    theta: f32,
    factor: f32,
    max_position_embeddings: usize,
}

impl RotaryEmbedding {
    /// The frequencies of these parameters.
    fn new(rope: &RopeParameters, max_position_embeddings: usize) -> Self {
        let (dim, theta) = (rope.dim, rope.theta);
        let plain = inverse_frequencies(theta as f32, dim);
        let mut rotary =
            Self { inv_freq: plain.clone(), attention_scaling: 1.0, update: FrequencyUpdate::Constant };
        match &rope.kind {
            RopeKind::Default => {}
            RopeKind::Linear { factor } => {
                rotary.inv_freq = plain.iter().map(|&frequency| frequency / *factor as f32).collect();
            }
            RopeKind::Dynamic { factor, .. } => {
                rotary.update = FrequencyUpdate::Dynamic(DynamicNtk {
                    theta: theta as f32,
                    factor: *factor as f32,
                    max_position_embeddings,
                });
            }
            RopeKind::Llama3 { .. } => rotary.inv_freq = llama3(&plain, &rope.kind),
            RopeKind::Yarn { .. } => {
                (rotary.inv_freq, rotary.attention_scaling) = yarn(theta, dim, &rope.kind);
            }
            RopeKind::LongRope {
                short_factor,
                long_factor,
                factor,
                attention_factor,
                original_max_position_embeddings,
            } => {
                let threshold = *original_max_position_embeddings;
                rotary.inv_freq = divided_frequencies(theta, dim, short_factor);
                rotary.update = FrequencyUpdate::LongRope {
                    threshold,
                    long_inv_freq: divided_frequencies(theta, dim, long_factor),
                };
                let growth = if *factor <= 1.0 { 0.0 } else { factor.ln() / (threshold as f64).ln() };
                rotary.attention_scaling = attention_factor.unwrap_or_else(|| (1.0 + growth).sqrt()) as f32;
            }
        }
        rotary
    }

    /// The cosines of a row: half the rotated dimensions.
    fn num_frequencies(&self) -> usize {
        self.inv_freq.len()
    }

    /// The sequence length above which longrope uses its long factors; `None` without longrope.
    fn longrope_threshold(&self) -> Option<usize> {
        match self.update {
            FrequencyUpdate::LongRope { threshold, .. } => Some(threshold),
            _ => None,
        }
    }

    /// Whether the frequencies depend on the length of the sequence.
    fn depends_on_length(&self) -> bool {
        !matches!(self.update, FrequencyUpdate::Constant)
    }

    fn rotation_back(&self, pairs: RotaryPairs, positions: usize) -> KeyRotation {
        let angles = self.inv_freq.iter().map(|&frequency| -f64::from(frequency) * positions as f64);
        let (sin, cos) = angles.map(f64::sin_cos).map(|(sin, cos)| (sin as f32, cos as f32)).unzip();
        KeyRotation { pairs, cos, sin }
    }

    /// Computes cosines and sines of every row, each row's `width` after those of the row before.
    fn angles(&self, rows: &ActiveRows<'_>, width: usize, cos: &mut [f32], sin: &mut [f32]) {
        let half = self.num_frequencies();
        let (cos, sin) = (cos.chunks_mut(width), sin.chunks_mut(width));
        // The frequencies of the last dynamic row, and its sequence length.
        let mut rescaled: Option<(usize, Vec<f32>)> = None;
        for ((row, cos), sin) in rows.iter().zip(cos).zip(sin) {
            let frequencies = match &self.update {
                FrequencyUpdate::Dynamic(dynamic) if row.rope_seq_len > dynamic.max_position_embeddings => {
                    let seq_len = row.rope_seq_len;
                    if rescaled.as_ref().is_none_or(|(len, _)| *len != seq_len) {
                        rescaled = Some((seq_len, dynamic.inverse_frequencies(seq_len, 2 * half)));
                    }
                    rescaled.as_ref().map_or(&self.inv_freq, |(_, frequencies)| frequencies)
                }
                FrequencyUpdate::LongRope { threshold, long_inv_freq } if row.rope_seq_len > *threshold => {
                    long_inv_freq
                }
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

impl DynamicNtk {
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

/// Scales low frequencies by the factor, keeps high ones, and interpolates between.
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
