//! A naive twin of each kernel that reads like the formula. Tests compare the kernels with their twins.
//!
//! Sums are taken in `f64`, so a twin is the more exact of the two. Where a kernel promises bits, its twin
//! has the same ones.

use half::bf16;

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

/// See [`super::rms_norm`].
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let mean = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / width as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        for ((&v, &w), out) in x.iter().zip(weight).zip(out) {
            *out = (f64::from(v) * scale * f64::from(w)) as f32;
        }
    }
}

/// See [`super::rotate_half`].
pub fn rotate_half(x: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    for head in x.chunks_exact_mut(head_dim) {
        for i in 0..half {
            let (a, b) = (head[i], head[i + half]);
            head[i] = a * cos[i] - b * sin[i];
            head[i + half] = b * cos[i] + a * sin[i];
        }
    }
}

/// `out = gate / (1 + exp(-gate)) * up`, row by row: `gate_up` is `[num_rows, 2 * width]`, each row the gates
/// and then the ups; `out` is `[num_rows, width]`. What [`super::gated_matmul`] makes of the products.
pub fn silu_mul(gate_up: &[f32], width: usize, out: &mut [f32]) {
    for (row, out) in gate_up.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
        for i in 0..width {
            let (gate, up) = (f64::from(row[i]), f64::from(row[width + i]));
            out[i] = (gate / (1.0 + (-gate).exp()) * up) as f32;
        }
    }
}

/// Attention of the query head of the last token over plain rows of keys and values, of which it sees the
/// last `window`.
///
/// `query` is `[head_dim]`, `keys` and `values` are `[num_tokens, head_dim]`.
pub fn attention(
    query: &[f32],
    keys: &[f32],
    values: &[f32],
    scale: f32,
    window: Option<usize>,
    out: &mut [f32],
) {
    let dim = query.len();
    let hidden = window.map_or(0, |window| (keys.len() / dim).saturating_sub(window));
    let (keys, values) = (&keys[hidden * dim..], &values[hidden * dim..]);
    let mut weights: Vec<f32> = keys
        .chunks_exact(dim)
        .map(|key| {
            let dot: f64 = query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
            (dot * f64::from(scale)) as f32
        })
        .collect();
    softmax(&mut weights);
    for (i, out) in out.iter_mut().enumerate() {
        let terms = weights.iter().zip(values.chunks_exact(dim));
        *out = terms.map(|(&w, value)| f64::from(w) * f64::from(value[i])).sum::<f64>() as f32;
    }
}
