//! FP8: `weight` in E4M3 with `weight_scale_inv`, which is multiplied: a number for each block of
//! `weight_block_size`, or one for all. The scales of activations are left unused.

use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

use super::super::shards::Weights;
use super::fields::sizes;
use super::tensor::{Parts, QuantizedTensor, float};
use super::{Matrix, each_module};
use rsgen_core::error::{Error, Result};
use rsgen_kernels::tensor::{BlockType, DType, Encoding, e4m3, e8m0};

/// The types of scales: with `F8_E8M0` they are powers of two.
const SCALES: &[Dtype] = &[Dtype::F32, Dtype::BF16, Dtype::F16, Dtype::F8_E8M0];
/// The name of the scales.
const SCALE: &str = "weight_scale_inv";

pub(super) fn matrices(config: &Map<String, Value>, weights: &Weights) -> Result<Vec<Matrix>> {
    // Left out, it is that of transformers' class.
    let block_size = config.get("weight_block_size").map_or(Some([128; 2]), sizes);
    let mut matrices = each_module(weights, SCALE, |parts| matrix(parts, SCALE, block_size))?;
    // As the first writers of such files named them.
    let of_others = |parts: Parts<'_>| {
        let is_one = !parts.has(SCALE) && parts.is_stored_as("weight", Dtype::F8_E4M3);
        is_one.then(|| matrix(parts, "weight_scale", block_size)).transpose()
    };
    matrices.extend(each_module(weights, "weight_scale", of_others)?);
    Ok(matrices)
}

/// The matrix `weight` with scales of this name: one, one for each row, or one for each block of that size.
pub(super) fn matrix(
    mut parts: Parts<'_>,
    scale: &str,
    block_size: Option<[usize; 2]>,
) -> Result<QuantizedTensor> {
    let (_, shape) = parts.take("weight", &[Dtype::F8_E4M3])?;
    let &[num_rows, num_columns] = &shape[..] else {
        return Err(Error::load(format!("weight must be a matrix, found the shape {shape:?}")));
    };
    let (dtype, scales) = parts.take(scale, SCALES)?;
    let [rows, columns] = if scales.iter().product::<usize>() == 1 {
        [num_rows, num_columns]
    } else if scales == [num_rows, 1] || scales == [num_rows] {
        [1, num_columns]
    } else {
        let [rows, columns] = block_size.unwrap_or([1, 1]);
        if scales != [num_rows.div_ceil(rows), num_columns.div_ceil(columns)] {
            return Err(Error::load(format!(
                "{scale} must have a number for each block of [{rows}, {columns}] of {shape:?}, found the shape {scales:?}; \
                 the file is of another format than its configuration says"
            )));
        }
        [rows, columns]
    };
    let per_row = num_columns.div_ceil(columns);
    let kinds = [BlockType::E4M3G128, BlockType::E4M3G32];
    let fits = |kind: &BlockType| {
        num_columns.is_multiple_of(kind.elements())
            && (per_row == 1 || columns.is_multiple_of(kind.elements()))
    };
    // Others are no blocks: their weights are in `float32`.
    let kind = kinds.into_iter().find(fits);
    let encoding = kind.map_or(DType::F32.into(), Encoding::Blocks);
    let row = move |parts: &[Vec<u8>], row: usize, out: &mut [u8]| {
        let codes = &parts[0][row * num_columns..][..num_columns];
        let scale = |column: usize| scale_at(dtype, &parts[1], row / rows * per_row + column / columns);
        let Some(group) = kind.map(BlockType::elements) else {
            for (column, (out, &code)) in out.as_chunks_mut::<4>().0.iter_mut().zip(codes).enumerate() {
                *out = (e4m3(code) * scale(column)).to_le_bytes();
            }
            return;
        };
        for (index, (block, codes)) in
            out.chunks_exact_mut(4 + group).zip(codes.chunks_exact(group)).enumerate()
        {
            block[..4].copy_from_slice(&scale(index * group).to_le_bytes());
            block[4..].copy_from_slice(codes);
        }
    };
    QuantizedTensor::new(parts, encoding, &shape, row)
}

fn scale_at(dtype: Dtype, bytes: &[u8], at: usize) -> f32 {
    if dtype == Dtype::F8_E8M0 { e8m0(bytes[at]) } else { float(dtype, bytes, at) }
}
