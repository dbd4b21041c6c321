//! GPTQ: `qweight` `[inputs * bits / 32, outputs]`, packed along the inputs, `qzeros`
//! `[groups, outputs * bits / 32]`, packed along the outputs, `scales` `[groups, outputs]`, and `g_idx`, the group
//! of each input. The first version of the format stores zeros one too small.

use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

use super::super::shards::Weights;
use super::config::integer;
use super::integers::Groups;
use super::tensor::{FLOATS, Parts, QuantizedTensor, bits, float, word};
use super::{Matrix, each_module};
use rsgen_core::error::{Error, Result};

pub(super) fn matrices(config: &Map<String, Value>, weights: &Weights) -> Result<Vec<Matrix>> {
    let num_bits = integer(config, "bits")?.unwrap_or(4);
    let format = config.get("checkpoint_format").or_else(|| config.get("format")).and_then(Value::as_str);
    let excess = u8::from(format.is_none_or(|format| format.eq_ignore_ascii_case("gptq")));
    each_module(weights, "qweight", |parts| matrix(parts, num_bits, excess))
}

fn matrix(mut parts: Parts<'_>, num_bits: usize, excess: u8) -> Result<QuantizedTensor> {
    let integers = &[Dtype::I32, Dtype::U32];
    let (_, shape) = parts.take("qweight", integers)?;
    let &[words, num_outputs] = &shape[..] else {
        return Err(Error::load(format!("qweight must be a matrix, found the shape {shape:?}")));
    };
    let (dtype, shape) = parts.take("scales", FLOATS)?;
    let num_groups = shape.first().copied().unwrap_or(0);
    if shape != [num_groups, num_outputs] || num_groups == 0 {
        return Err(Error::load(format!(
            "scales must have the shape [groups, {num_outputs}], found {shape:?}"
        )));
    }
    // Some modules have bits of their own, by patterns of their names.
    let (_, shape) = parts.take("qzeros", integers)?;
    let words_of = |bits: usize| (num_outputs * bits).div_ceil(32);
    let found = [num_bits, 4, 8, 2, 3].into_iter().find(|&bits| shape == [num_groups, words_of(bits)]);
    let num_bits = found.ok_or_else(|| {
        Error::load(format!(
            "qzeros must have the shape [{num_groups}, {}], found {shape:?}",
            words_of(num_bits)
        ))
    })?;
    let (num_inputs, zero_words) = (words * 32 / num_bits, words_of(num_bits));
    let groups = Groups::new(num_bits, num_inputs, num_groups)?.with_index(&mut parts, "g_idx", None)?;
    let encoding = groups.encoding();
    let row = move |parts: &[Vec<u8>], output: usize, out: &mut [u8]| {
        let [weights, scales, zeros] = [&parts[0], &parts[1], &parts[2]];
        let code =
            |input: usize| bits(|at| word(weights, at * num_outputs + output), input * num_bits, num_bits);
        let scale = |group: usize| {
            let zero = bits(|at| word(zeros, group * zero_words + at), output * num_bits, num_bits);
            (float(dtype, scales, group * num_outputs + output), zero.wrapping_add(excess))
        };
        groups.write(out, code, scale);
    };
    QuantizedTensor::new(parts, encoding, &[num_outputs, num_inputs], row)
}
