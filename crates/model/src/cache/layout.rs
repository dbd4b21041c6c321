//! Sizes and offsets of a block of the KV cache.
//!
//! Attention kernels, storage and memory estimates must agree on the offsets of tokens, so all are computed
//! here. Sizes are checked once, when the layout is created.

use std::fmt;

use rsgen_core::error::{Error, Result};
use rsgen_core::types::BlockId;
use rsgen_kernels::{I8Step, KvStep as _};

/// Tokens in a block.
pub const BLOCK_TOKENS: usize = 32;

/// Dimensions in a plane of V.
pub const VALUE_PLANE: usize = 32;

/// Numbers of a step.
const STEP: usize = 64;

/// The blocks that `tokens` tokens of one sequence need.
pub const fn blocks_for(tokens: usize) -> usize {
    tokens.div_ceil(BLOCK_TOKENS)
}

/// How the numbers of the cache are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvDtype {
    /// 32-bit floats, as computed.
    F32,
    /// The upper half of a 32-bit float, rounded to nearest even.
    Bf16,
    /// 8-bit integers, and for each token, head, and key or value a scale: a 127th of the largest of its
    /// numbers.
    I8,
}

impl KvDtype {
    /// Bytes of one number.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::I8 => 1,
        }
    }

    /// Steps that hold the scales of a head's keys, and of its values, in a block.
    const fn scale_steps(self) -> usize {
        match self {
            Self::F32 | Self::Bf16 => 0,
            Self::I8 => I8Step::SCALE_STEPS,
        }
    }

    /// The name: `float32`, `bfloat16` or `int8`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
            Self::I8 => "int8",
        }
    }
}

impl fmt::Display for KvDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A copy within the store that must happen before a sequence writes to a block that was shared (copy on
/// write).
///
/// Perform the copies of a pass in the order in which they were returned, before the first write of the pass.
/// The source may be released or reused in between. Threads that share a store must therefore append, copy
/// and write under one lock, pass by pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "without the copy the sequence lacks the tokens of its last block"]
pub struct BlockCopy {
    /// The block that is read.
    pub source: BlockId,
    /// The block that is written; never the source.
    pub target: BlockId,
    /// How many tokens, from the start of the block, in all layers.
    pub tokens: usize,
}

/// The shape of a model's KV cache.
///
/// One block holds 32 tokens of all layers, `[num_layers][K | V]`, in the steps that kernels multiply with:
/// 64 numbers, of 32 outputs and two inputs. For K the outputs are tokens and the inputs dimensions,
/// `[num_kv_heads][ceil(head_dim / 2)]`; for V the outputs are the 32 dimensions of a plane and the inputs
/// tokens, `[num_kv_heads][planes][16]`. The padding of `head_dim` is zero. Scales, if the type has them, are
/// steps after those of each head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvLayout {
    num_layers: usize,
    num_kv_heads: usize,
    head_dim: usize,
    dtype: KvDtype,
}

impl KvLayout {
    /// The layout of a model.
    ///
    /// # Errors
    /// `Load` when a number is zero, or when one block would exceed the address space.
    pub fn new(num_layers: usize, num_kv_heads: usize, head_dim: usize, dtype: KvDtype) -> Result<Self> {
        let fields = [
            ("num_hidden_layers", num_layers),
            ("num_key_value_heads", num_kv_heads),
            ("head_dim", head_dim),
        ];
        for (name, value) in fields {
            if value == 0 {
                return Err(Error::load(format!(
                    "{name} must be at least 1 for a KV cache, got 0; correct config.json"
                )));
            }
        }
        // The other sizes are parts of this one and cannot overflow.
        let bytes = head_dim
            .checked_next_multiple_of(VALUE_PLANE)
            .and_then(|padded| padded.checked_add(head_dim.next_multiple_of(2)))
            .and_then(|dims| dims.checked_mul(BLOCK_TOKENS))
            .and_then(|head| head.checked_add(2 * dtype.scale_steps() * STEP))
            .and_then(|head| head.checked_mul(num_kv_heads))
            .and_then(|layer| layer.checked_mul(num_layers))
            .and_then(|block| block.checked_mul(dtype.bytes()));
        match bytes {
            Some(bytes) if isize::try_from(bytes).is_ok() => {
                Ok(Self { num_layers, num_kv_heads, head_dim, dtype })
            }
            _ => Err(Error::load(format!(
                "a KV cache of num_hidden_layers={num_layers}, num_key_value_heads={num_kv_heads}, \
                 head_dim={head_dim} exceeds the address space with its first {BLOCK_TOKENS} tokens; correct config.json"
            ))),
        }
    }

    /// Layers of the model.
    pub const fn num_layers(&self) -> usize {
        self.num_layers
    }

    /// Heads of K and V; several query heads may share one.
    pub const fn num_kv_heads(&self) -> usize {
        self.num_kv_heads
    }

    /// Dimensions of a head.
    pub const fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// How the numbers are stored.
    pub const fn dtype(&self) -> KvDtype {
        self.dtype
    }

    /// Planes of V: `ceil(head_dim / 32)`.
    pub const fn planes(&self) -> usize {
        self.head_dim.div_ceil(VALUE_PLANE)
    }

    /// Steps of the K of one head in one block: `[ceil(head_dim / 2)]`, then scales.
    pub const fn key_steps(&self) -> usize {
        self.head_dim.div_ceil(2) + self.dtype.scale_steps()
    }

    /// Steps of the V of one head in one block: `[planes][16]`, then scales.
    pub const fn value_steps(&self) -> usize {
        self.planes() * BLOCK_TOKENS / 2 + self.dtype.scale_steps()
    }

    /// Numbers of one token of one layer as the model gives them: `[num_kv_heads][head_dim]`, for K and for
    /// V.
    pub const fn row_elements(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }

    /// Steps of one layer in one block: K, then V.
    pub const fn layer_steps(&self) -> usize {
        self.num_kv_heads * (self.key_steps() + self.value_steps())
    }

    /// Steps of one block.
    pub const fn block_steps(&self) -> usize {
        self.num_layers * self.layer_steps()
    }

    /// Bytes of one block: what 32 tokens of one sequence cost.
    pub const fn bytes_per_block(&self) -> usize {
        self.block_steps() * STEP * self.dtype.bytes()
    }

    /// The offset of the K of head 0 of `layer` in a block; V follows the K of all heads.
    pub(super) const fn key_offset(&self, layer: usize) -> usize {
        layer * self.layer_steps()
    }

    /// The offset of the V of head 0 of `layer` in a block.
    pub(super) const fn value_offset(&self, layer: usize) -> usize {
        self.key_offset(layer) + self.num_kv_heads * self.key_steps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsgen_core::error::ErrorKind;

    #[test]
    fn the_sizes_of_a_block_are_those_of_its_parts() {
        // 22 layers and 4 heads of 64: no padding, so 2 × 64 numbers per head and token.
        let layout = KvLayout::new(22, 4, 64, KvDtype::Bf16).unwrap();
        assert_eq!(layout.bytes_per_block(), 22 * 4 * (64 + 64) * 32 * 2);
        assert_eq!(layout.value_offset(1) - layout.key_offset(1), 4 * 64 / 2);

        // 40 dimensions fill two planes, of which the second is padded to 32.
        let layout = KvLayout::new(1, 3, 40, KvDtype::F32).unwrap();
        assert_eq!(layout.planes(), 2);
        // Each of 32 tokens has a scale for its keys and one for its values.
        let scaled = KvLayout::new(2, 3, 40, KvDtype::I8).unwrap();
        assert_eq!(scaled.bytes_per_block(), 2 * 3 * ((40 + 64) * 32 + 2 * 32 * 4));
        assert_eq!(layout.bytes_per_block(), 3 * (40 + 64) * 32 * 4);
    }

    #[test]
    fn an_odd_head_is_padded_to_pairs() {
        let layout = KvLayout::new(1, 1, 33, KvDtype::F32).unwrap();
        assert_eq!(layout.bytes_per_block(), (34 + 64) * 32 * 4);
    }

    #[test]
    fn a_layout_that_cannot_exist_is_refused_by_name() {
        let zero = KvLayout::new(2, 0, 64, KvDtype::F32).unwrap_err();
        assert_eq!(zero.kind(), ErrorKind::Load);
        assert!(zero.to_string().contains("num_key_value_heads"), "{zero}");
        for (layers, heads, head_dim) in [(usize::MAX, 1, 1), (1 << 30, 1 << 30, 1), (1, 1, usize::MAX)] {
            let huge = KvLayout::new(layers, heads, head_dim, KvDtype::F32).unwrap_err();
            assert!(huge.to_string().contains("address space"), "{huge}");
        }
    }

    #[test]
    fn a_started_block_counts_in_full() {
        assert_eq!([0, 1, 32, 33].map(blocks_for), [0, 1, 1, 2]);
        assert_eq!(blocks_for(usize::MAX), usize::MAX / 32 + 1);
    }
}
