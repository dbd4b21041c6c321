//! Rows of integers with scales and zeros, as blocks or with an index of groups.

use safetensors::tensor::Dtype;

use super::tensor::{Parts, word};
use rsgen_core::error::{Error, Result};
use rsgen_kernels::tensor::{BlockType, DType, Encoding, IndexedType};

/// The most bytes of the groups of a matrix's inputs.
const MAX_INDEX_BYTES: usize = 4 << 20;

/// Integers of some bits, whose groups of inputs share a scale.
#[derive(Debug)]
pub(super) struct Groups {
    bits: usize,
    num_inputs: usize,
    /// The number of groups.
    count: usize,
    /// The group of each input, where they are not in order.
    index: Option<Vec<u32>>,
}

impl Groups {
    /// The groups of rows of `num_inputs`, all of one size but for the last.
    ///
    /// # Errors
    /// `Load` when there are no integers of so many bits.
    pub(super) fn new(bits: usize, num_inputs: usize, num_groups: usize) -> Result<Self> {
        if !matches!(bits, 2 | 3 | 4 | 8) {
            return Err(Error::load(format!(
                "integers must have 2, 3, 4 or 8 bits, found {bits}; use the checkpoint in bfloat16 or its GGUF file"
            )));
        }
        Ok(Self { bits, num_inputs, count: num_groups, index: None })
    }

    /// Takes the group of each input from the tensor `name`, if the module has it. Groups are in order if it
    /// holds `unset`.
    ///
    /// # Errors
    /// `Load` when it holds no group of every input.
    pub(super) fn with_index(
        mut self,
        parts: &mut Parts<'_>,
        name: &str,
        unset: Option<u32>,
    ) -> Result<Self> {
        if !parts.has(name) {
            return Ok(self);
        }
        let (num_inputs, num_groups) = (self.num_inputs, self.count);
        let bytes = parts.bytes(name, &[Dtype::I32, Dtype::U32], MAX_INDEX_BYTES)?;
        let named: Vec<u32> = (0..bytes.len() / 4).map(|input| word(&bytes, input)).collect();
        if unset.is_some_and(|unset| named.contains(&unset)) {
            return Ok(self);
        }
        if named.len() != num_inputs || named.iter().any(|&group| group as usize >= num_groups) {
            return Err(Error::load(format!(
                "{name} must hold a group below {num_groups} for each of {num_inputs} inputs; the file is damaged, download it \
                 again"
            )));
        }
        let is_in_order = named.iter().enumerate().all(|(input, &group)| group as usize == self.group(input));
        self.index = (!is_in_order).then_some(named);
        Ok(self)
    }

    /// The group of an input.
    fn group(&self, input: usize) -> usize {
        let in_order = || input / self.num_inputs.div_ceil(self.count);
        self.index.as_ref().map_or_else(in_order, |index| index[input] as usize)
    }

    /// How rows are presented: in blocks if the groups are in order and whole ones, else with an index.
    /// `float32` if that is no smaller.
    pub(super) fn encoding(&self) -> Encoding {
        let types = match self.bits {
            2 => [BlockType::U2G128, BlockType::U2G64, BlockType::U2G32],
            3 => [BlockType::U3G128, BlockType::U3G64, BlockType::U3G32],
            4 => [BlockType::U4G128, BlockType::U4G64, BlockType::U4G32],
            _ => [BlockType::U8G128, BlockType::U8G64, BlockType::U8G32],
        };
        let group_size = self.num_inputs.div_ceil(self.count);
        let fits = |kind: &BlockType| {
            group_size.is_multiple_of(kind.elements()) && self.num_inputs.is_multiple_of(kind.elements())
        };
        let blocks = types.into_iter().find(fits).filter(|_| self.index.is_none()).map(Encoding::Blocks);
        let indexed = || IndexedType::new(self.bits, self.num_inputs, self.count).map(Encoding::Indexed);
        blocks.or_else(indexed).unwrap_or(DType::F32.into())
    }

    /// Writes a row: `code(input)` gives its integers, `scale(group)` those of the groups.
    pub(super) fn write(
        &self,
        out: &mut [u8],
        code: impl Fn(usize) -> u8,
        scale: impl Fn(usize) -> (f32, u8),
    ) {
        match self.encoding() {
            Encoding::Indexed(kind) => kind.encode(out, scale, |input| self.group(input), code),
            Encoding::Blocks(kind) => {
                let size = kind.elements();
                for (index, block) in out.chunks_exact_mut(kind.bytes()).enumerate() {
                    let (scale, zero) = scale(self.group(index * size));
                    block[..4].copy_from_slice(&scale.to_le_bytes());
                    block[4] = zero;
                    block[5..].iter_mut().enumerate().for_each(|(i, out)| *out = code(index * size + i));
                }
            }
            Encoding::Plain(_) => {
                for (input, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    let (scale, zero) = scale(self.group(input));
                    *out = ((f32::from(code(input)) - f32::from(zero)) * scale).to_le_bytes();
                }
            }
        }
    }
}
