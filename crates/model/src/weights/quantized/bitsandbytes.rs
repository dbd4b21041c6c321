//! bitsandbytes: `weight` as bytes of two codes each with `weight.absmax` for each block, which may be quantized
//! itself, and `weight.quant_state.bitsandbytes__nf4` or `__fp4`, JSON that says how; or `weight` as signed bytes
//! with `SCB`, the largest weight of each row.

use safetensors::tensor::Dtype;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::shards::Weights;
use super::tensor::{Parts, QuantizedTensor, float};
use super::{Matrix, each_module};
use rsgen_core::error::{Error, Result};
use rsgen_kernels::tensor::{BlockType, DType, Encoding};

/// The most bytes of a matrix's description.
const MAX_STATE: usize = 64 << 10;
/// The most bytes of a table.
const MAX_TABLE: usize = 4 << 10;

/// What codes of 4 bits are stored as.
const STORAGES: &[Dtype] = &[Dtype::U8, Dtype::I8, Dtype::BF16, Dtype::F16, Dtype::F32];

pub(super) fn matrices(_: &Map<String, Value>, weights: &Weights) -> Result<Vec<Matrix>> {
    let mut matrices = each_module(weights, "weight.absmax", four_bits)?;
    matrices.extend(each_module(weights, "SCB", eight_bits)?);
    Ok(matrices)
}

/// `quant_state`
#[derive(Deserialize)]
struct State {
    blocksize: usize,
    shape: [usize; 2],
    nested_blocksize: Option<usize>,
    nested_offset: Option<f32>,
}

fn four_bits(mut parts: Parts<'_>) -> Result<QuantizedTensor> {
    let kinds = [("nf4", BlockType::NF4), ("fp4", BlockType::FP4)];
    let state = |name: &str| format!("weight.quant_state.bitsandbytes__{name}");
    let Some((name, kind)) = kinds.into_iter().find(|(name, _)| parts.has(&state(name))) else {
        return Err(Error::load(format!(
            "{} or {} must be there; download the model again",
            state("nf4"),
            state("fp4")
        )));
    };
    // Bytes, which some models hold as numbers of another type: `bnb_4bit_quant_storage`.
    let (storage, stored) = parts.take("weight", STORAGES)?;
    let (absmax, num_blocks) = parts.take("weight.absmax", &[Dtype::F32, Dtype::U8])?;
    let text = parts.bytes(&state(name), &[Dtype::U8], MAX_STATE)?;
    let refused = |error: serde_json::Error| {
        Error::load(format!("{} must be a description of its quantization", state(name))).with_source(error)
    };
    let State { blocksize, shape: [rows, columns], nested_blocksize, nested_offset } =
        serde_json::from_slice(&text).map_err(refused)?;
    let num_weights = rows.checked_mul(columns).filter(|&count| count > 0 && blocksize > 0);
    let is_whole = num_weights.is_some_and(|count| {
        stored.iter().product::<usize>() * storage.bitsize() / 8 == count.div_ceil(2)
            && num_blocks.iter().product::<usize>() == count.div_ceil(blocksize)
    });
    if !is_whole {
        return Err(Error::load(format!(
            "{} says [{rows}, {columns}] in blocks of {blocksize}, which weight {stored:?} and weight.absmax {num_blocks:?} do \
             not hold; the file is damaged, download it again",
            state(name)
        )));
    }
    let numbers = table(&mut parts, "weight.quant_map", 16)?;
    // What the largest weights are, when they are quantized: part by part.
    let nested = if absmax == Dtype::U8 {
        let table = table(&mut parts, "weight.nested_quant_map", 256)?;
        let scales = parts.bytes("weight.nested_absmax", &[Dtype::F32], usize::MAX)?;
        let size = nested_blocksize.filter(|&size| size > 0).unwrap_or(256);
        if scales.len() / 4 != num_blocks.iter().product::<usize>().div_ceil(size) {
            return Err(Error::load(
                "weight.nested_absmax must have a number for each block of weight.absmax",
            ));
        }
        Some((table, scales, size, nested_offset.unwrap_or(0.0)))
    } else {
        None
    };
    let of_block = move |bytes: &[u8], block: usize| match &nested {
        None => float(Dtype::F32, bytes, block),
        Some((table, scales, size, offset)) => {
            table[usize::from(bytes[block])] * float(Dtype::F32, scales, block / size) + offset
        }
    };
    let code = |bytes: &[u8], at: usize| bytes[at / 2] >> (4 * (1 - at % 2)) & 15;
    let is_known = numbers == numbers_of(kind);
    let group = kind.elements();
    let fits = is_known && columns.is_multiple_of(group) && blocksize.is_multiple_of(group);
    let encoding = if fits { Encoding::Blocks(kind) } else { DType::F32.into() };
    let row = move |parts: &[Vec<u8>], row: usize, out: &mut [u8]| {
        let first = row * columns;
        if fits {
            for (index, block) in out.chunks_exact_mut(4 + group).enumerate() {
                let first = first + index * group;
                block[..4].copy_from_slice(&of_block(&parts[1], first / blocksize).to_le_bytes());
                for (i, out) in block[4..].iter_mut().enumerate() {
                    *out = code(&parts[0], first + i);
                }
            }
        } else {
            for (i, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let number = numbers[usize::from(code(&parts[0], first + i))];
                *out = (number * of_block(&parts[1], (first + i) / blocksize)).to_le_bytes();
            }
        }
    };
    QuantizedTensor::new(parts, encoding, &[rows, columns], row)
}

fn eight_bits(mut parts: Parts<'_>) -> Result<QuantizedTensor> {
    let (_, shape) = parts.take("weight", &[Dtype::I8])?;
    let &[rows, columns] = &shape[..] else {
        return Err(Error::load(format!("weight must be a matrix, found the shape {shape:?}")));
    };
    parts.take_shaped("SCB", &[Dtype::F32], &[rows])?;
    if parts.has("weight_format") {
        parts.take("weight_format", &[Dtype::U8])?;
    }
    let group = BlockType::Int8.elements();
    let row = move |parts: &[Vec<u8>], row: usize, out: &mut [u8]| {
        let codes = parts[0][row * columns..][..columns].chunks_exact(group);
        for (block, codes) in out.chunks_exact_mut(4 + group).zip(codes) {
            block[..4].copy_from_slice(&parts[1][4 * row..4 * row + 4]);
            block[4..].copy_from_slice(codes);
        }
    };
    QuantizedTensor::new(parts, Encoding::Blocks(BlockType::Int8), &shape, row)
}

/// The numbers of a table.
fn table(parts: &mut Parts<'_>, name: &str, len: usize) -> Result<Vec<f32>> {
    let bytes = parts.bytes(name, &[Dtype::F32], MAX_TABLE)?;
    if bytes.len() != 4 * len {
        return Err(Error::load(format!("{name} must have {len} numbers, found {}", bytes.len() / 4)));
    }
    Ok((0..len).map(|at| float(Dtype::F32, &bytes, at)).collect())
}

/// The numbers that the codes of a type stand for.
fn numbers_of(kind: BlockType) -> Vec<f32> {
    let mut block = vec![0; kind.bytes()];
    block[..4].copy_from_slice(&1f32.to_le_bytes());
    (0..16).for_each(|code| block[4 + usize::from(code)] = code);
    let mut numbers = vec![0.0; kind.elements()];
    kind.dequantize(&block, &mut numbers);
    numbers.truncate(16);
    numbers
}
