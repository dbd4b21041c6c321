//! Products, rows and memory of every type of blocks.

use super::*;
use crate::quant::{PackedMatrix, RowOrder};
use crate::tensor::{ComputeDtype, DType, Encoding, StoredMatrix, WeightType};
use crate::{Inputs, Isa, MatrixOutput, PackedRows, Workers};

/// Blocks of random bits with sane scales: where a number has an exponent it is that of a small one.
fn random_blocks(kind: BlockType, count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let halves: &[usize] = match kind {
        BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 | BlockType::IQ4_NL | BlockType::IQ4_XS => &[0],
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4_K | BlockType::Q5_K => &[0, 2],
        BlockType::Q2_K => &[80, 82],
        BlockType::Q3_K => &[108],
        BlockType::Q6_K => &[208],
        _ => &[],
    };
    let mut bytes = Vec::new();
    for _ in 0..count {
        let mut block: Vec<u8> = (0..kind.bytes()).map(|_| (random() >> 11) as u8).collect();
        for &at in halves {
            let scale = half::f16::from_f32((random() % 2000) as f32 / 40_000.0 - 0.02);
            block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
        if !kind.is_of_ggml() {
            // A `float32` or two, for one of them the integer of zero, and a byte for each code.
            let codes = kind.bytes() - kind.elements();
            for scale in block[..codes].as_chunks_mut::<4>().0 {
                *scale = ((random() % 2000) as f32 / 40_000.0 - 0.02).to_le_bytes();
            }
            let bits = [2, 3, 4].into_iter().find(|bits| kind.name().contains(&format!("int{bits} ")));
            let is_four = matches!(kind, BlockType::NF4 | BlockType::FP4);
            let mask = bits.map_or(if is_four { 15 } else { 255 }, |bits| (1 << bits) - 1);
            for code in &mut block[codes..] {
                // All bits set are no number in one of the types.
                *code = if *code & 0x7f == 0x7f { 1 } else { *code & mask };
            }
        }
        if kind == BlockType::MXFP4 {
            block[0] = 115 + (random() % 10) as u8;
        }
        bytes.extend(block);
    }
    bytes
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 % 1009) as f32 / 333.0 - 1.5) * 0.7).collect()
}

fn stored(kind: BlockType, rows: usize, columns: usize, bytes: &[u8]) -> StoredMatrix<'_> {
    let encoding = Encoding::Blocks(kind);
    StoredMatrix { encoding, num_rows: rows, num_columns: columns, bytes: bytes.into(), cancelled: None }
}

fn pack(workers: &Workers, parts: &[StoredMatrix<'_>], order: RowOrder) -> PackedMatrix {
    PackedMatrix::pack(workers, parts, order, None, ComputeDtype::F32).unwrap()
}

fn product(matrix: &PackedMatrix, workers: &Workers, x: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len() / matrix.num_inputs() * matrix.num_outputs()];
    let mut rows = PackedRows::default();
    matrix.matmul(workers, Inputs::from(x), &mut rows, MatrixOutput::default(), &mut out);
    out
}

fn assert_bits(actual: &[f32], expected: &[f32], case: &str) {
    assert_eq!(actual.len(), expected.len());
    for (i, (a, b)) in actual.iter().zip(expected).enumerate() {
        assert!(a.to_bits() == b.to_bits(), "{case}: {a:e} is not {b:e} at {i}");
    }
}

#[test]
fn products_with_blocks_have_the_bits_of_those_with_the_same_weights_in_float32() {
    for &kind in BlockType::ALL {
        for (rows, blocks) in [(1, 1), (33, 2), (64, 1), (70, 3)] {
            let columns = blocks * kind.elements();
            let bytes = random_blocks(kind, rows * blocks, (rows * 31 + blocks) as u32);
            let mut weights = vec![0.0; rows * columns];
            kind.dequantize(&bytes, &mut weights);
            let x = numbers(40 * columns);
            let floats: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
            let parts = [stored(kind, rows, columns, &bytes)];
            let wide = [StoredMatrix { encoding: DType::F32.into(), ..stored(kind, rows, columns, &floats) }];
            for isa in Isa::available() {
                for threads in [1, 2] {
                    let workers = Workers::new(threads, isa).unwrap();
                    let matrix = pack(&workers, &parts, RowOrder::Stacked);
                    let wide = pack(&workers, &wide, RowOrder::Stacked);
                    for m in [1, 2, 5, 12, 13, 40] {
                        let expected = product(&wide, &workers, &x[..m * columns]);
                        let actual = product(&matrix, &workers, &x[..m * columns]);
                        assert_bits(&actual, &expected, &format!("{kind:?} {rows}x{columns} {m} {isa:?}"));
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_of_a_packed_matrix_is_that_of_its_blocks() {
    let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
    for &kind in BlockType::ALL {
        let columns = 2 * kind.elements();
        let bytes = random_blocks(kind, 35 * 2, 5);
        let matrix = pack(&workers, &[stored(kind, 35, columns, &bytes)], RowOrder::Stacked);
        let (mut weights, mut row) = (vec![0.0; 35 * columns], vec![0.0; columns]);
        kind.dequantize(&bytes, &mut weights);
        for (output, expected) in weights.chunks_exact(columns).enumerate() {
            matrix.row(output, &mut row);
            assert_bits(&row, expected, &format!("{kind:?}"));
        }
    }
}

#[test]
fn memory_is_that_of_the_file_and_at_most_an_eighth_more() {
    let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
    for &kind in BlockType::ALL.iter().filter(|kind| kind.is_of_ggml()) {
        let (rows, blocks) = (64, 4);
        let bytes = random_blocks(kind, rows * blocks, 3);
        let parts = [stored(kind, rows, blocks * kind.elements(), &bytes)];
        let matrix = pack(&workers, &parts, RowOrder::Stacked);
        assert!(8 * matrix.bytes() <= 9 * bytes.len(), "{kind:?}: {} for {}", matrix.bytes(), bytes.len());
    }
}

#[test]
fn parts_of_different_types_keep_them() {
    let workers = Workers::new(2, Isa::select().unwrap()).unwrap();
    let columns = 256;
    let (q, k) = (random_blocks(BlockType::Q4_K, 40, 1), random_blocks(BlockType::Q6_K, 20, 2));
    let v: Vec<u8> = numbers(20 * columns).iter().flat_map(|value| value.to_le_bytes()).collect();
    let plain = StoredMatrix { encoding: DType::F32.into(), ..stored(BlockType::Q8_0, 20, columns, &v) };
    let parts = [stored(BlockType::Q4_K, 40, columns, &q), stored(BlockType::Q6_K, 20, columns, &k), plain];
    let (mixed, x) = (pack(&workers, &parts, RowOrder::Stacked), numbers(3 * columns));
    let float = Some(WeightType::Float(DType::F32));
    let wide = PackedMatrix::pack(&workers, &parts, RowOrder::Stacked, float, ComputeDtype::F32).unwrap();
    assert!(mixed.bytes() < wide.bytes() / 2);
    assert_bits(&product(&mixed, &workers, &x), &product(&wide, &workers, &x), "mixed");
    let bias = numbers(80);
    let output = MatrixOutput { bias: Some(&bias), accumulate: true, columns: None };
    let (mut one, mut other) = (numbers(3 * 80), numbers(3 * 80));
    mixed.matmul(&workers, Inputs::from(&x[..]), &mut PackedRows::default(), output, &mut one);
    wide.matmul(&workers, Inputs::from(&x[..]), &mut PackedRows::default(), output, &mut other);
    assert_bits(&one, &other, "mixed, with a bias");
    let (mut row, mut other) = (vec![0.0; columns], vec![0.0; columns]);
    for output in [0, 39, 40, 59, 60, 79] {
        mixed.row(output, &mut row);
        wide.row(output, &mut other);
        assert_bits(&row, &other, "row");
    }
}

#[test]
fn gates_and_ups_of_two_types_become_floats() {
    let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
    let (gate, up) = (random_blocks(BlockType::Q4_0, 17, 1), random_blocks(BlockType::Q8_0, 17, 2));
    let parts = [stored(BlockType::Q4_0, 17, 32, &gate), stored(BlockType::Q8_0, 17, 32, &up)];
    assert!(format!("{:?}", pack(&workers, &parts, RowOrder::Gated)).contains("float32"));
    let parts = [parts[0], parts[0]];
    assert!(format!("{:?}", pack(&workers, &parts, RowOrder::Gated)).contains("Q4_0"));
}

#[test]
fn scales_that_are_no_numbers_are_refused() {
    let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
    for &kind in BlockType::ALL {
        let mut bytes = vec![0xff; kind.bytes()];
        let parts = [stored(kind, 1, kind.elements(), &bytes)];
        let packed = PackedMatrix::pack(&workers, &parts, RowOrder::Stacked, None, ComputeDtype::F32);
        assert!(packed.unwrap_err().to_string().contains("finite"), "{kind:?}");
        assert!(!Encoding::Blocks(kind).all_finite(&bytes));
        bytes = random_blocks(kind, 1, 9);
        assert!(Encoding::Blocks(kind).all_finite(&bytes));
    }
}
