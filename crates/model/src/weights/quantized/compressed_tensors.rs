//! compressed-tensors: integers in `weight_packed` with `weight_shape`, or `weight` as signed bytes or in E4M3, with
//! `weight_scale` and, where zero is not in the middle, `weight_zero_point`. What is done to activations at run time
//! is left out.

use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

use super::super::shards::Weights;
use super::config::wrong;
use super::fields::{self, COMPRESSED, Rule, sizes};
use super::integers::Groups;
use super::tensor::{FLOATS, Parts, QuantizedTensor, bits, float, word};
use super::{Matrix, each_module, float8};
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;

pub(super) fn matrices(config: &Map<String, Value>, weights: &Weights) -> Result<Vec<Matrix>> {
    let groups = config.get("config_groups").and_then(Value::as_object);
    let groups = || groups.into_iter().flat_map(|groups| groups.iter());
    for (name, group) in groups() {
        let Some(group) = group.as_object() else {
            return Err(wrong(&format!("config_groups.{}", escape::name(name)), "an object", group));
        };
        let scope = format!("config_groups.{}.", escape::name(name));
        fields::check(&[("format", COMPRESSED, false), ("weights", Rule::Object, false)], group, &scope)?;
        if let Some(weights) = group.get("weights").and_then(Value::as_object) {
            let rules = [("block_structure", Rule::Sizes, false)];
            fields::check(&rules, weights, &format!("{scope}weights."))?;
        }
    }
    if let Some(sparsity) = config.get("sparsity_config").and_then(Value::as_object) {
        fields::check(&[("format", Rule::Text(&["dense"]), false)], sparsity, "sparsity_config.")?;
    }
    let mut matrices = each_module(weights, "weight_packed", packed)?;
    let block_size = groups().find_map(|(_, group)| sizes(group.get("weights")?.get("block_structure")?));
    let bytes = each_module(weights, "weight_scale", |parts| {
        if parts.has("weight_packed") {
            Ok(None)
        } else if parts.is_stored_as("weight", Dtype::I8) {
            signed(parts).map(Some)
        } else {
            float8::matrix(parts, "weight_scale", block_size).map(Some)
        }
    });
    matrices.extend(bytes?);
    Ok(matrices)
}

/// Integers in words along the inputs.
fn packed(mut parts: Parts<'_>) -> Result<QuantizedTensor> {
    let (_, shape) = parts.take("weight_packed", &[Dtype::I32])?;
    let (dtype, scales) = parts.take("weight_scale", FLOATS)?;
    let sizes = parts.bytes("weight_shape", &[Dtype::I64, Dtype::I32], 16)?;
    let size = sizes.len() / 2;
    let [num_outputs, num_inputs] = [0, 1].map(|at| word(&sizes, at * size / 4) as usize);
    let words = shape.get(1).copied().unwrap_or(0);
    let num_bits = [4, 8, 2, 3].into_iter().find(|bits| (num_inputs * bits).div_ceil(32) == words);
    let (Some(num_bits), true) = (num_bits, shape == [num_outputs, words] && num_inputs > 0) else {
        return Err(Error::load(format!(
            "weight_packed must hold [{num_outputs}, {num_inputs}] integers of 2, 3, 4 or 8 bits, found the shape {shape:?}"
        )));
    };
    let zero_type = if parts.has("weight_zero_point") {
        Some(parts.take("weight_zero_point", &[Dtype::I32, Dtype::I8])?)
    } else {
        None
    };
    let middle = 1u8 << (num_bits - 1);
    let of_scales = Scales::new(dtype, &scales, num_outputs)?;
    let num_groups = of_scales.num_groups;
    let groups = Groups::new(num_bits, num_inputs, num_groups)?;
    if let Some((dtype, shape)) = &zero_type {
        let rows = if *dtype == Dtype::I8 { num_outputs } else { (num_outputs * num_bits).div_ceil(32) };
        if shape != &[rows, num_groups] {
            return Err(Error::load(format!(
                "weight_zero_point must have the shape [{rows}, {num_groups}], found {shape:?}"
            )));
        }
    }
    // The library fills an index that it makes with -1, and takes groups in order where one is left.
    let groups = groups.with_index(&mut parts, "weight_g_idx", Some(u32::MAX))?;
    let encoding = groups.encoding();
    let zero_type = zero_type.map(|(dtype, _)| dtype);
    let row = move |parts: &[Vec<u8>], output: usize, out: &mut [u8]| {
        let code = |input: usize| bits(|at| word(&parts[0], output * words + at), input * num_bits, num_bits);
        let scale = |group: usize| {
            let zero = match zero_type {
                None => middle,
                Some(Dtype::I8) => parts[3][output * num_groups + group].wrapping_add(middle),
                Some(_) => bits(|at| word(&parts[3], at * num_groups + group), output * num_bits, num_bits),
            };
            (of_scales.at(&parts[1], output, group), zero)
        };
        groups.write(out, code, scale);
    };
    QuantizedTensor::new(parts, encoding, &[num_outputs, num_inputs], row)
}

/// Signed bytes.
fn signed(mut parts: Parts<'_>) -> Result<QuantizedTensor> {
    let (_, shape) = parts.take("weight", &[Dtype::I8])?;
    let &[num_outputs, num_inputs] = &shape[..] else {
        return Err(Error::load(format!("weight must be a matrix, found the shape {shape:?}")));
    };
    let (dtype, scales) = parts.take("weight_scale", FLOATS)?;
    let of_scales = Scales::new(dtype, &scales, num_outputs)?;
    let num_groups = of_scales.num_groups;
    let has_zero = parts.has("weight_zero_point");
    if has_zero {
        let zeros: &[usize] = if scales.len() == 2 { &[num_outputs, num_groups] } else { &scales };
        parts.take_shaped("weight_zero_point", &[Dtype::I8], zeros)?;
    }
    let groups = Groups::new(8, num_inputs, num_groups)?;
    let encoding = groups.encoding();
    let row = move |parts: &[Vec<u8>], output: usize, out: &mut [u8]| {
        let scale = |group: usize| {
            let zero = if has_zero { parts[2][of_scales.place(output, group)] ^ 0x80 } else { 0x80 };
            (of_scales.at(&parts[1], output, group), zero)
        };
        groups.write(out, |input| parts[0][output * num_inputs + input] ^ 0x80, scale);
    };
    QuantizedTensor::new(parts, encoding, &shape, row)
}

/// `weight_scale`: one, `[outputs, 1]`, or `[outputs, groups]`.
#[derive(Clone, Copy)]
struct Scales {
    dtype: Dtype,
    num_groups: usize,
    is_one: bool,
}

impl Scales {
    fn new(dtype: Dtype, shape: &[usize], num_outputs: usize) -> Result<Self> {
        let is_one = shape.iter().product::<usize>() == 1;
        let num_groups = match *shape {
            _ if is_one => 1,
            [outputs] if outputs == num_outputs => 1,
            [outputs, groups] if outputs == num_outputs && groups > 0 => groups,
            _ => {
                return Err(Error::load(format!(
                    "weight_scale must have the shape [{num_outputs}, groups], found {shape:?}"
                )));
            }
        };
        Ok(Self { dtype, num_groups, is_one })
    }

    fn place(self, output: usize, group: usize) -> usize {
        if self.is_one { 0 } else { output * self.num_groups + group }
    }

    fn at(self, bytes: &[u8], output: usize, group: usize) -> f32 {
        float(self.dtype, bytes, self.place(output, group))
    }
}
