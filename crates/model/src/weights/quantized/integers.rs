//! Rows of integers with scales and zeros, as blocks.

use safetensors::tensor::Dtype;

use super::tensor::{Parts, word};
use rsgen_core::error::{Error, Result};
use rsgen_kernels::tensor::{BlockType, DType, Encoding};

/// The most bytes of the groups of a matrix's inputs.
const MAX_INDEX_BYTES: usize = 4 << 20;

/// Integers of some bits, the same number of which share a scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Groups {
    encoding: Encoding,
    block_size: usize,
}

impl Groups {
    /// The groups of rows of `num_inputs`, `group_size` inputs to each. Groups that are no multiples of 32 are no
    /// blocks: their weights are in `float32`.
    ///
    /// # Errors
    /// `Load` when there are no integers of so many bits.
    pub(super) fn new(bits: usize, num_inputs: usize, group_size: usize) -> Result<Self> {
        let types = match bits {
            2 => [BlockType::U2G128, BlockType::U2G64, BlockType::U2G32],
            3 => [BlockType::U3G128, BlockType::U3G64, BlockType::U3G32],
            4 => [BlockType::U4G128, BlockType::U4G64, BlockType::U4G32],
            8 => [BlockType::U8G128, BlockType::U8G64, BlockType::U8G32],
            _ => {
                return Err(Error::load(format!(
                    "integers must have 2, 3, 4 or 8 bits, found {bits}; use the checkpoint in bfloat16 or its GGUF file"
                )));
            }
        };
        let fits = |kind: &BlockType| {
            group_size.is_multiple_of(kind.elements()) && num_inputs.is_multiple_of(kind.elements())
        };
        let Some(kind) = types.into_iter().find(fits) else { return Ok(Self::unordered()) };
        Ok(Self { encoding: Encoding::Blocks(kind), block_size: kind.elements() })
    }

    /// Those of inputs whose groups are not in order, which are no blocks: weights in `float32`.
    fn unordered() -> Self {
        Self { encoding: DType::F32.into(), block_size: 1 }
    }

    pub(super) fn encoding(self) -> Encoding {
        self.encoding
    }

    /// The group of each input: those that the tensor `name` holds, if the module has it; then inputs whose groups
    /// are not in order make their weights `float32`.
    ///
    /// # Errors
    /// `Load` when it holds no group of every input.
    pub(super) fn of_inputs(
        &mut self,
        parts: &mut Parts<'_>,
        name: &str,
        num_inputs: usize,
        num_groups: usize,
    ) -> Result<Vec<u32>> {
        let group_size = num_inputs.div_ceil(num_groups);
        let in_order: Vec<u32> = (0..num_inputs).map(|input| (input / group_size) as u32).collect();
        if !parts.has(name) {
            return Ok(in_order);
        }
        let bytes = parts.bytes(name, &[Dtype::I32, Dtype::U32], MAX_INDEX_BYTES)?;
        let named: Vec<u32> = (0..bytes.len() / 4).map(|input| word(&bytes, input)).collect();
        if named.len() != num_inputs || named.iter().any(|&group| group as usize >= num_groups) {
            return Err(Error::load(format!(
                "{name} must hold a group below {num_groups} for each of {num_inputs} inputs; the file is damaged, download it \
                 again"
            )));
        }
        if named != in_order {
            *self = Self::unordered();
        }
        Ok(named)
    }

    /// Writes a row: `code(input)` gives its integers, `scale(input)` those of the groups of inputs.
    pub(super) fn write(
        self,
        out: &mut [u8],
        code: impl Fn(usize) -> u8,
        scale: impl Fn(usize) -> (f32, u8),
    ) {
        if self.block_size == 1 {
            for (input, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let (scale, zero) = scale(input);
                *out = ((f32::from(code(input)) - f32::from(zero)) * scale).to_le_bytes();
            }
            return;
        }
        for (index, block) in out.chunks_exact_mut(5 + self.block_size).enumerate() {
            let first = index * self.block_size;
            let (scale, zero) = scale(first);
            block[..4].copy_from_slice(&scale.to_le_bytes());
            block[4] = zero;
            for (i, out) in block[5..].iter_mut().enumerate() {
                *out = code(first + i);
            }
        }
    }
}
