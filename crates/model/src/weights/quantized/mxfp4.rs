//! MXFP4, as gpt-oss has its experts: `NAME_blocks` `[experts, rows, columns / 32, 16]`, two weights to a byte, and
//! `NAME_scales`, powers of two. The model's class keeps the experts transposed.

use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

use super::super::shards::Weights;
use super::Matrix;
use super::tensor::{Parts, QuantizedTensor};
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::escape;
use rsgen_kernels::tensor::{BlockType, Encoding};

pub(super) fn matrices(_: &Map<String, Value>, weights: &Weights) -> Result<Vec<Matrix>> {
    let mut names: Vec<String> =
        weights.names().filter_map(|name| name.strip_suffix("_blocks")).map(str::to_owned).collect();
    names.sort_unstable();
    let matrix = |name: String| {
        let parts = Parts::new(weights, format!("{name}_"));
        let tensor = matrix(parts).context(|| escape::name(&name).into_owned())?;
        Ok(Matrix { name, tensor })
    };
    names.into_iter().map(matrix).collect()
}

fn matrix(mut parts: Parts<'_>) -> Result<QuantizedTensor> {
    let (_, shape) = parts.take("blocks", &[Dtype::U8])?;
    let &[experts, rows, groups, 16] = &shape[..] else {
        return Err(Error::load(format!(
            "blocks must have the shape [experts, rows, groups, 16], found {shape:?}"
        )));
    };
    parts.take_shaped("scales", &[Dtype::U8, Dtype::F8_E8M0], &[experts, rows, groups])?;
    let row = move |parts: &[Vec<u8>], row: usize, out: &mut [u8]| {
        let scales = &parts[1][row * groups..];
        let codes = parts[0][row * groups * 16..].as_chunks::<16>().0;
        write_row(codes, scales, out);
    };
    let encoding = Encoding::Blocks(BlockType::MXFP4);
    QuantizedTensor::new(parts, encoding, &[experts, rows, 32 * groups], row)
}

/// Writes a row of blocks: neighbours share a byte in `codes`, and weights that are 16 apart in a block.
pub(super) fn write_row(codes: &[[u8; 16]], scales: &[u8], out: &mut [u8]) {
    for ((block, codes), &scale) in out.as_chunks_mut::<17>().0.iter_mut().zip(codes).zip(scales) {
        block[0] = scale;
        let code = |i: usize| codes[i / 2] >> (4 * (i % 2)) & 15;
        for (i, out) in block[1..].iter_mut().enumerate() {
            *out = code(i) | code(i + 16) << 4;
        }
    }
}
