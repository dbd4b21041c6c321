//! The types of tensors in GGUF files: names and sizes of blocks. Types that are not read are here for their
//! bounds and for the error that names them.

use rsgen_kernels::tensor::{BlockType, DType, Encoding};

/// A type: its number, its name, and the numbers and the bytes of a block.
type Type = (u32, &'static str, usize, usize);

const TYPES: [Type; 34] = [
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 40),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
];

fn find(id: u32) -> Option<&'static Type> {
    TYPES.iter().find(|(known, ..)| *known == id)
}

/// The name of a type.
pub(super) fn name(id: u32) -> String {
    find(id).map_or_else(|| format!("of the number {id}"), |(_, name, ..)| (*name).to_owned())
}

/// The numbers and the bytes of a block; `None` for an unknown type.
pub(super) fn block(id: u32) -> Option<(usize, usize)> {
    find(id).map(|&(_, _, elements, bytes)| (elements, bytes))
}

/// The encoding of a type; `None` for one that is not read.
pub(super) fn encoding(id: u32) -> Option<Encoding> {
    match id {
        0 => Some(DType::F32.into()),
        1 => Some(DType::F16.into()),
        30 => Some(DType::Bf16.into()),
        _ => BlockType::from_gguf(id).map(Encoding::Blocks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_has_the_sizes_of_the_table() {
        let mut count = 0;
        for (id, name, elements, bytes) in TYPES {
            let Some(encoding) = encoding(id) else { continue };
            assert_eq!((encoding.elements(), encoding.unit_bytes()), (elements, bytes), "{name}");
            count += 1;
        }
        assert_eq!(count, 16);
    }
}
