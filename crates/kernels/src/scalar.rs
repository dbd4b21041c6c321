//! A naive twin of each kernel that reads like the formula. Tests compare the kernels with their twins.
//!
//! Sums are taken in `f64`, so a twin is the more exact of the two. Where a kernel promises bits, its twin
//! has the same ones.

use half::bf16;

use super::{
    Activation, AttentionShape, Distances, GatedActivation, HeadBias, Norm, NormKind, Places, RotaryPairs,
    Slopes,
};

/// `out[r, n] = sum over k of x[r, k] * weight[n, k]`; `x` is `[num_rows, k]`, `weight` `[n, k]`, row-major.
pub fn matmul(x: &[f32], weight: &[f32], k: usize, out: &mut [f32]) {
    let n = weight.len() / k;
    for (row, out) in x.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
        for (weights, out) in weight.chunks_exact(k).zip(out) {
            *out = row.iter().zip(weights).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>() as f32;
        }
    }
}

/// [`matmul`] in `bfloat16` arithmetic, to the last bit: the chain that [`super::Bf16Products`] promises.
///
/// Both factors are rounded to `bfloat16`; the odd input of each pair comes before the even one. What is
/// below 2^-126 is 0 here, as it is for the processor's instruction.
pub fn matmul_bf16(x: &[f32], weight: &[f32], k: usize, out: &mut [f32]) {
    let flushed = |value: f32| if value.is_subnormal() { 0.0f32.copysign(value) } else { value };
    let rounded = |value: f32| flushed(bf16::from_f32(value).to_f32());
    let n = weight.len() / k;
    for (row, out) in x.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
        for (weights, out) in weight.chunks_exact(k).zip(out) {
            let mut sum = 0.0f32;
            for pair in (0..k).step_by(2) {
                // An input without a partner stands beside a zero.
                for input in (pair..k.min(pair + 2)).rev() {
                    sum = flushed(rounded(row[input]).mul_add(rounded(weights[input]), sum));
                }
            }
            *out = sum;
        }
    }
}

/// See [`super::softmax`].
pub fn softmax(scores: &mut [f32]) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = scores.iter().map(|&x| f64::from(x - max).exp()).sum();
    for score in scores {
        *score = (f64::from(*score - max).exp() / sum) as f32;
    }
}

/// See [`super::log_sum_exp`].
pub fn log_sum_exp(scores: &[f32]) -> f32 {
    let max = f64::from(scores.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    (max + scores.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln()) as f32
}

/// See [`super::norm`].
pub fn norm(x: &[f32], norm: Norm<'_>, out: &mut [f32]) {
    let width = norm.weight.len();
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let mean_of =
            |of: &dyn Fn(f64) -> f64| x.iter().map(|&v| of(f64::from(v))).sum::<f64>() / width as f64;
        let mean = if norm.kind == NormKind::Layer { mean_of(&|v| v) } else { 0.0 };
        let scale = 1.0 / (mean_of(&|v| (v - mean).powi(2)) + f64::from(norm.eps)).sqrt();
        for (i, (&v, out)) in x.iter().zip(out).enumerate() {
            let bias = norm.bias.map_or(0.0, |bias| f64::from(bias[i]));
            *out = ((f64::from(v) - mean) * scale * f64::from(norm.weight[i]) + bias) as f32;
        }
    }
}

/// See [`super::rotate`].
pub fn rotate(pairs: RotaryPairs, x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    for head in x.chunks_exact_mut(head_dim) {
        for i in 0..half {
            let (first, second) = match pairs {
                RotaryPairs::Half => (i, i + half),
                RotaryPairs::Interleaved => (2 * i, 2 * i + 1),
            };
            let (a, b) = (head[first], head[second]);
            head[first] = a * cos[i] - b * sin[i];
            head[second] = b * cos[i] + a * sin[i];
        }
    }
}

/// An activation of one number.
pub fn activation(kind: Activation, x: f64) -> f64 {
    let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
    match kind {
        Activation::Silu => x * sigmoid(x),
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        }
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        Activation::Relu => x.max(0.0),
        Activation::Relu2 => x.max(0.0).powi(2),
        Activation::Xielu { positive, negative } if x > 0.0 => {
            f64::from(positive) * x * x + 0.5 * x + 0.0 * f64::from(negative)
        }
        Activation::Xielu { negative, .. } => f64::from(negative) * (x.exp_m1() - x) + 0.5 * x,
    }
}

/// The error function, by its Taylor series.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    (sum * 2.0 / std::f64::consts::PI.sqrt()).clamp(-1.0, 1.0)
}

/// `out = act(gate) * up`, row by row: `gate_up` is `[num_rows, 2 * width]`, each row the gates and then the
/// ups; `out` is `[num_rows, width]`. What [`super::gated_matmul`] makes of the products.
pub fn gated(kind: GatedActivation, gate_up: &[f32], width: usize, out: &mut [f32]) {
    for (row, out) in gate_up.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
        for i in 0..width {
            let (gate, up) = (f64::from(row[i]), f64::from(row[width + i]));
            out[i] = match kind {
                GatedActivation::Silu => activation(Activation::Silu, gate) * up,
                GatedActivation::GeluTanh => activation(Activation::GeluTanh, gate) * up,
                GatedActivation::QuickGelu => activation(Activation::QuickGelu, gate) * up,
                GatedActivation::SwigluOai { alpha, limit } => {
                    let (alpha, limit) = (f64::from(alpha), f64::from(limit));
                    let (gate, up) = (gate.min(limit), up.clamp(-limit, limit));
                    gate / (1.0 + (-alpha * gate).exp()) * (up + 1.0)
                }
            } as f32;
        }
    }
}

/// The attention weights of query head `head` of the last token over plain rows of keys, of which it sees those
/// of the window: 0 for the others. `places` is where distances begin and end.
///
/// `query` is `[head_dim]`, `keys` is `[num_tokens, head_dim]`.
pub fn attention_weights(
    query: &[f32],
    keys: &[f32],
    shape: AttentionShape,
    bias: HeadBias<'_>,
    places: Places<'_>,
    head: usize,
) -> Vec<f32> {
    let num_tokens = keys.len() / query.len();
    let hidden = shape.window.map_or(0, |window| num_tokens.saturating_sub(window));
    let mut weights = vec![f32::NEG_INFINITY; num_tokens];
    for (token, key) in keys.chunks_exact(query.len()).enumerate().skip(hidden) {
        let dot: f64 = query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
        let mut score = dot * f64::from(shape.scale);
        if let Some(cap) = shape.softcap.map(f64::from) {
            score = cap * (score / cap).tanh();
        }
        let distance = bias.slopes.map_or(0.0, |Slopes { slopes, rounded }| {
            let (slope, last) = (slopes[head], num_tokens - 1);
            let product = |position: usize| f64::from(bf16(bf16(slope) * bf16(position as f32)));
            match rounded {
                None => f64::from(slope) * (last - token) as f64,
                Some(factor) => f64::from(factor) * (product(last) - product(token)),
            }
        });
        let place = places.tokens.map_or(token, |tokens| tokens[token]);
        let number = bias.distances.map_or(0.0, |Distances { numbers, reach }| {
            let reach = reach as isize;
            let distance = (place as isize - places.row as isize).clamp(-reach, reach);
            f64::from(numbers[head * (2 * reach as usize + 1) + (distance + reach) as usize])
        });
        weights[token] = (score - distance + number) as f32;
    }
    weights.extend(bias.sinks.map(|sinks| sinks[head]));
    softmax(&mut weights);
    weights.truncate(num_tokens);
    weights
}

/// The nearest number of bfloat16, the even one of two.
fn bf16(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// The values of tokens, `[num_tokens, head_dim]`, with their [`attention_weights`].
pub fn attention(weights: &[f32], values: &[f32], out: &mut [f32]) {
    let head_dim = out.len();
    for (i, out) in out.iter_mut().enumerate() {
        // Tokens that are not seen may hold anything.
        let terms = weights.iter().zip(values.chunks_exact(head_dim)).filter(|&(&weight, _)| weight != 0.0);
        *out = terms.map(|(&w, value)| f64::from(w) * f64::from(value[i])).sum::<f64>() as f32;
    }
}
