//! MLX: `weight` `[outputs, inputs * bits / 32]` of words, `scales` and `biases` `[outputs, groups]`. Embeddings are
//! stored like that as well, and experts in stacks. In the mode `mxfp4` scales are powers of two without biases.

use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

use super::super::shards::Weights;
use super::config::integer;
use super::mxfp4::write_row;
use super::tensor::{FLOATS, Parts, QuantizedTensor, bits, float, word};
use super::{Matrix, modules};
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_kernels::tensor::{BlockType, DType, Encoding};

/// Where stacks of experts are.
const STACKS: [&str; 2] = [".switch_mlp", ".experts"];
/// The most experts of a stack.
const MAX_EXPERTS: usize = 1 << 12;

/// How a module is quantized.
struct Settings {
    is_mxfp4: bool,
    group_size: usize,
}

pub(super) fn matrices(config: &Map<String, Value>, weights: &Weights) -> Result<Vec<Matrix>> {
    let mut matrices = Vec::new();
    for module in modules(weights, "scales") {
        let named = of_module(config, weights, &module).context(|| escape::name(&module).into_owned())?;
        matrices.extend(named);
    }
    Ok(matrices)
}

/// The settings of a module: its own, or those of all.
fn settings(config: &Map<String, Value>, module: &str) -> Result<Settings> {
    let own = config.get(module).and_then(Value::as_object);
    let mode = own.and_then(|own| own.get("mode")).or_else(|| config.get("mode")).and_then(Value::as_str);
    let is_mxfp4 = mode.is_some_and(|mode| mode.eq_ignore_ascii_case("mxfp4"));
    let own = own.map_or(Ok(None), |own| integer(own, "group_size"))?;
    let group_size = match own {
        Some(size) => size,
        None => integer(config, "group_size")?.unwrap_or(if is_mxfp4 { 32 } else { 64 }),
    };
    Ok(Settings { is_mxfp4, group_size })
}

fn of_module(config: &Map<String, Value>, weights: &Weights, module: &str) -> Result<Vec<Matrix>> {
    let settings = settings(config, module)?;
    let prefix = format!("{module}.");
    let whole = Parts::new(weights, prefix.clone());
    let shape = whole.shape("weight").unwrap_or_default();
    let stack = module
        .rsplit_once('.')
        .and_then(|(scope, name)| Some((STACKS.iter().find_map(|stack| scope.strip_suffix(stack))?, name)));
    let (&[count, ..], Some((scope, name))) = (&shape[..], stack.filter(|_| shape.len() == 3)) else {
        let tensor = matrix(whole, &settings)?;
        return Ok(vec![Matrix { name: format!("{prefix}weight"), tensor }]);
    };
    if !(2..=MAX_EXPERTS).contains(&count) {
        return Err(Error::load(format!(
            "weight must be a stack of 2 to {MAX_EXPERTS} experts, found the shape {shape:?}"
        )));
    }
    let mut matrices = Vec::with_capacity(2 * count);
    for expert in 0..count {
        let parts = || Parts::of_stack(weights, prefix.clone(), expert, count);
        let name = format!("{scope}.experts.{expert}.{name}");
        matrices.push(Matrix { name: format!("{name}.weight"), tensor: matrix(parts(), &settings)? });
        if whole.has("bias") {
            matrices.push(Matrix { name: format!("{name}.bias"), tensor: bias(parts())? });
        }
    }
    Ok(matrices)
}

fn matrix(mut parts: Parts<'_>, settings: &Settings) -> Result<QuantizedTensor> {
    let &Settings { is_mxfp4, group_size } = settings;
    let (_, shape) = parts.take("weight", &[Dtype::U32])?;
    let types = if is_mxfp4 { &[Dtype::U8, Dtype::F8_E8M0] } else { FLOATS };
    let (dtype, scales) = parts.take("scales", types)?;
    let (&[rows, words], &[_, groups]) = (&shape[..], &scales[..]) else {
        return Err(Error::load(format!(
            "weight and scales must be matrices, found {shape:?} and {scales:?}"
        )));
    };
    let columns = groups.saturating_mul(group_size);
    let num_bits = words.saturating_mul(32).checked_div(columns).unwrap_or(0);
    let fits = scales == [rows, groups] && words.checked_mul(32) == num_bits.checked_mul(columns);
    let kind = block_type(is_mxfp4, num_bits, group_size).filter(|_| fits);
    let kind = kind.ok_or_else(|| {
        Error::load(format!(
            "weight must have 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128, or in the mode \"mxfp4\" 4 bits in groups of \
             32, found the shapes {shape:?} and {scales:?} with groups of {group_size}; use the checkpoint in bfloat16 or \
             its GGUF file"
        ))
    })?;
    let shape = [rows, columns];
    if kind == BlockType::MXFP4 {
        let row = move |parts: &[Vec<u8>], row: usize, out: &mut [u8]| {
            let codes = parts[0][row * groups * 16..].as_chunks().0;
            write_row(codes, &parts[1][row * groups..], out);
        };
        return QuantizedTensor::new(parts, Encoding::Blocks(kind), &shape, row);
    }
    parts.take_shaped("biases", &[dtype], &[rows, groups])?;
    // Some groups are several blocks with the same scale.
    let block_size = kind.elements();
    let row = move |parts: &[Vec<u8>], row: usize, out: &mut [u8]| {
        for (index, block) in out.chunks_exact_mut(8 + block_size).enumerate() {
            let first = index * block_size;
            let at = row * groups + first / group_size;
            block[..4].copy_from_slice(&float(dtype, &parts[1], at).to_le_bytes());
            block[4..8].copy_from_slice(&float(dtype, &parts[2], at).to_le_bytes());
            for (i, out) in block[8..].iter_mut().enumerate() {
                *out = bits(|at| word(&parts[0], row * words + at), (first + i) * num_bits, num_bits);
            }
        }
    };
    QuantizedTensor::new(parts, Encoding::Blocks(kind), &shape, row)
}

fn block_type(is_mxfp4: bool, num_bits: usize, group_size: usize) -> Option<BlockType> {
    Some(match (num_bits, group_size) {
        (4, 32) if is_mxfp4 => BlockType::MXFP4,
        _ if is_mxfp4 => return None,
        (2, 32) => BlockType::Affine2G32,
        (2, 64 | 128) => BlockType::Affine2G64,
        (3, 32) => BlockType::Affine3G32,
        (3, 64 | 128) => BlockType::Affine3G64,
        (4, 32) => BlockType::Affine4G32,
        (4, 64) => BlockType::Affine4G64,
        (4, 128) => BlockType::Affine4G128,
        (5, 32) => BlockType::Affine5G32,
        (5, 64 | 128) => BlockType::Affine5G64,
        (6, 32) => BlockType::Affine6G32,
        (6, 64 | 128) => BlockType::Affine6G64,
        (8, 32) => BlockType::Affine8G32,
        (8, 64) => BlockType::Affine8G64,
        (8, 128) => BlockType::Affine8G128,
        _ => return None,
    })
}

/// The biases of an expert.
fn bias(mut parts: Parts<'_>) -> Result<QuantizedTensor> {
    let (dtype, shape) = parts.take("bias", FLOATS)?;
    let row = move |parts: &[Vec<u8>], _: usize, out: &mut [u8]| {
        for (at, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *out = float(dtype, &parts[0], at).to_le_bytes();
        }
    };
    let &[_] = &shape[..] else {
        return Err(Error::load(format!(
            "bias must have a number for each output of each expert, found {shape:?}"
        )));
    };
    QuantizedTensor::new(parts, DType::F32.into(), &shape, row)
}
