//! MLX: `weight` `[outputs, inputs * bits / 32]` of words, `scales` and `biases` `[outputs, groups]`. Embeddings are
//! stored like that as well.

use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

use super::super::shards::Weights;
use super::config::{integer, wrong};
use super::tensor::{FLOATS, Parts, QuantizedTensor, bits, float, word};
use super::{Matrix, modules};
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_kernels::tensor::{BlockType, Encoding};

pub(super) fn matrices(config: &Map<String, Value>, weights: &Weights) -> Result<Vec<Matrix>> {
    let mode = config.get("mode").and_then(Value::as_str).unwrap_or("affine");
    if mode != "affine" {
        return Err(wrong(
            "mode",
            "\"affine\"; use the checkpoint in bfloat16 or its GGUF file",
            &mode.into(),
        ));
    }
    let group_size = integer(config, "group_size")?.unwrap_or(64);
    let of_module = |module: String| {
        let own = config.get(&module).and_then(Value::as_object);
        let size = own.map_or(Ok(None), |own| integer(own, "group_size"))?.unwrap_or(group_size);
        let tensor = matrix(Parts::new(weights, format!("{module}.")), size);
        let tensor = tensor.context(|| escape::name(&module).into_owned())?;
        Ok(Matrix { name: format!("{module}.weight"), tensor })
    };
    modules(weights, "scales").into_iter().map(of_module).collect()
}

fn matrix(mut parts: Parts<'_>, group_size: usize) -> Result<QuantizedTensor> {
    let (_, shape) = parts.take("weight", &[Dtype::U32])?;
    let (dtype, scales) = parts.take("scales", FLOATS)?;
    let (&[rows, words], &[_, groups]) = (&shape[..], &scales[..]) else {
        return Err(Error::load(format!(
            "weight and scales must be matrices, found {shape:?} and {scales:?}"
        )));
    };
    let columns = groups.saturating_mul(group_size);
    parts.take_shaped("biases", &[dtype], &[rows, groups])?;
    let num_bits = (32 * words).checked_div(columns).unwrap_or(0);
    let kind = match (num_bits, group_size) {
        _ if scales != [rows, groups] || words * 32 != num_bits * columns => None,
        (4, 32) => Some(BlockType::Affine4G32),
        (4, 64) => Some(BlockType::Affine4G64),
        (4, 128) => Some(BlockType::Affine4G128),
        (8, 32) => Some(BlockType::Affine8G32),
        (8, 64) => Some(BlockType::Affine8G64),
        (8, 128) => Some(BlockType::Affine8G128),
        _ => None,
    };
    let kind = kind.ok_or_else(|| {
        Error::load(format!(
            "weight must have 4 or 8 bits in groups of 32, 64 or 128, found the shapes {shape:?} and {scales:?} with groups of \
             {group_size}; use the checkpoint in bfloat16 or its GGUF file"
        ))
    })?;
    let row = move |parts: &[Vec<u8>], row: usize, out: &mut [u8]| {
        for (group, block) in out.chunks_exact_mut(8 + group_size).enumerate() {
            let at = row * groups + group;
            block[..4].copy_from_slice(&float(dtype, &parts[1], at).to_le_bytes());
            block[4..8].copy_from_slice(&float(dtype, &parts[2], at).to_le_bytes());
            for (i, out) in block[8..].iter_mut().enumerate() {
                let first = (group * group_size + i) * num_bits;
                *out = bits(|at| word(&parts[0], row * words + at), first, num_bits);
            }
        }
    };
    QuantizedTensor::new(parts, Encoding::Blocks(kind), &[rows, columns], row)
}
