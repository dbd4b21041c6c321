//! AWQ, the layout of its matrix-matrix products: `qweight` `[inputs, outputs / 8]` and `qzeros`
//! `[groups, outputs / 8]`, words of eight outputs in an order of their own, and `scales` `[groups, outputs]`.

use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

use super::super::shards::Weights;
use super::integers::Groups;
use super::tensor::{FLOATS, Parts, QuantizedTensor, float, word};
use super::{Matrix, each_module};
use rsgen_core::error::{Error, Result};

/// Where the four bits of an output are in a word.
const SHIFTS: [usize; 8] = [0, 16, 4, 20, 8, 24, 12, 28];

pub(super) fn matrices(_: &Map<String, Value>, weights: &Weights) -> Result<Vec<Matrix>> {
    each_module(weights, "qweight", matrix)
}

fn matrix(mut parts: Parts<'_>) -> Result<QuantizedTensor> {
    let integers = &[Dtype::I32, Dtype::U32];
    let (_, shape) = parts.take("qweight", integers)?;
    let &[num_inputs, words] = &shape[..] else {
        return Err(Error::load(format!("qweight must be a matrix, found the shape {shape:?}")));
    };
    let num_outputs = 8 * words;
    let (dtype, shape) = parts.take("scales", FLOATS)?;
    let num_groups = shape.first().copied().unwrap_or(0);
    if shape != [num_groups, num_outputs] || num_groups == 0 || !num_inputs.is_multiple_of(num_groups) {
        return Err(Error::load(format!(
            "scales must have the shape [groups, {num_outputs}], found {shape:?}"
        )));
    }
    parts.take_shaped("qzeros", integers, &[num_groups, words])?;
    let groups = Groups::new(4, num_inputs, num_groups)?;
    let encoding = groups.encoding();
    let row = move |parts: &[Vec<u8>], output: usize, out: &mut [u8]| {
        let [weights, scales, zeros] = [&parts[0], &parts[1], &parts[2]];
        let four = |bytes: &[u8], row: usize| {
            (word(bytes, row * words + output / 8) >> SHIFTS[output % 8] & 15) as u8
        };
        let scale = |group: usize| (float(dtype, scales, group * num_outputs + output), four(zeros, group));
        groups.write(out, |input| four(weights, input), scale);
    };
    QuantizedTensor::new(parts, encoding, &[num_outputs, num_inputs], row)
}
