//! Products, rows and memory of every type of blocks.

mod indexed;

use super::*;
use crate::quant::{PackedMatrix, RowOrder};
use crate::tensor::{ComputeDtype, DType, Encoding, StoredMatrix, WeightType};
use crate::{Gated, GatedActivation, Inputs, Isa, MatrixOutput, PackedRows, Workers};

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
            let bits = [2, 3, 4, 5, 6].into_iter().find(|bits| kind.name().contains(&format!("int{bits} ")));
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

#[test]
fn weights_that_overflow_are_not_finite() {
    // A scale and a minimum of 32 weights with 8 bits.
    for (scale, minimum, is_finite) in
        [(1e36f32, 0.0f32, true), (1e37, 0.0, false), (1e-3, f32::MAX, true), (1e36, f32::MAX, false)]
    {
        let kind = BlockType::Affine8G32;
        let mut bytes = vec![0xff; kind.bytes()];
        bytes[..4].copy_from_slice(&scale.to_le_bytes());
        bytes[4..8].copy_from_slice(&minimum.to_le_bytes());
        assert_eq!(Encoding::Blocks(kind).all_finite(&bytes), is_finite, "{scale} {minimum}");
    }
}

/// Activations as integers of at most 127 in the unit of each 32.
fn rounded(x: &[f32]) -> Vec<f64> {
    let group = |group: &[f32]| {
        let largest = group.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        let (unit, inverse) = (f64::from(largest / 127.0), 127.0 / largest);
        group.iter().map(move |x| f64::from((x * inverse).round_ties_even()) * unit).collect::<Vec<_>>()
    };
    x.chunks_exact(32).flat_map(group).collect()
}

/// [`random_blocks`] without a code of 8 bits that is 0, which products with integers take as 1.
fn random_codes(kind: BlockType, count: usize) -> Vec<u8> {
    let mut bytes = random_blocks(kind, count, 77);
    for block in bytes.chunks_exact_mut(kind.bytes()) {
        let codes = &mut block[kind.bytes() - kind.elements().min(kind.bytes())..];
        match kind {
            BlockType::Q8_0 | BlockType::Int8 => {
                codes.iter_mut().filter(|code| **code == 0x80).for_each(|code| *code = 3);
            }
            _ if kind.name().contains("int8") => codes.iter_mut().for_each(|code| *code = (*code).max(1)),
            _ => {}
        }
    }
    bytes
}

#[test]
fn products_with_integers_are_those_of_rounded_activations_with_the_same_bits_everywhere() {
    let mut kinds = 0;
    for &kind in BlockType::ALL.iter().filter(|kind| kind.integer_format().is_some()) {
        kinds += 1;
        for (rows, blocks) in [(1, 1), (33, 2), (70, 5)] {
            let columns = blocks * kind.elements();
            let bytes = random_codes(kind, rows * blocks);
            let mut weights = vec![0.0; rows * columns];
            kind.dequantize(&bytes, &mut weights);
            let x = numbers(40 * columns);
            let activations = rounded(&x);
            let parts = [stored(kind, rows, columns, &bytes)];
            let mut first: Option<Vec<f32>> = None;
            for isa in Isa::available() {
                for threads in [1, 2] {
                    let workers = Workers::new(threads, isa).unwrap();
                    let packed =
                        PackedMatrix::pack(&workers, &parts, RowOrder::Stacked, None, ComputeDtype::Int8);
                    let matrix = packed.unwrap();
                    for m in [40, 1, 2, 5, 12, 13] {
                        let case = format!("{kind:?} {rows}x{columns} {m} {isa:?}");
                        let actual = product(&matrix, &workers, &x[..m * columns]);
                        let first = first.get_or_insert_with(|| actual.clone());
                        assert_bits(&actual, &first[..m * rows], &case);
                    }
                }
            }
            let first = first.unwrap();
            for (r, row) in activations.chunks_exact(columns).enumerate() {
                for (output, weights) in weights.chunks_exact(columns).enumerate() {
                    let products = row.iter().zip(weights).map(|(x, weight)| x * f64::from(*weight));
                    let (sum, size) =
                        products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + f64::abs(x)));
                    let actual = f64::from(first[r * rows + output]);
                    assert!(
                        (actual - sum).abs() <= 2e-5 * size + 1e-6,
                        "{kind:?}: {actual:e} is not {sum:e}"
                    );
                }
            }
        }
    }
    assert!(kinds > 25, "{kinds} types have integers");
}

#[test]
fn gates_with_integers_feed_matrices_of_any_format_and_the_other_way_round() {
    let workers = Workers::new(2, Isa::select().unwrap()).unwrap();
    let width = 256;
    let x = numbers(3 * 256);
    let gated = Gated { activation: GatedActivation::Silu, bias: None, width };
    for (up, down) in [
        (BlockType::Q4_K, BlockType::Q6_K),
        (BlockType::Q4_K, BlockType::IQ4_NL),
        (BlockType::MXFP4, BlockType::Q8_0),
        (BlockType::IQ4_XS, BlockType::MXFP4),
    ] {
        let pack = |kind: BlockType, rows, order| {
            let bytes = random_codes(kind, rows * 256 / kind.elements());
            let parts = [stored(kind, rows, 256, &bytes)];
            PackedMatrix::pack(&workers, &parts, order, None, ComputeDtype::Int8).unwrap()
        };
        let (gate_up, down) = (pack(up, 2 * width, RowOrder::Gated), pack(down, 40, RowOrder::Stacked));
        let (mut rows, mut activated) = (PackedRows::default(), PackedRows::default());
        gate_up.gated_matmul(&workers, Inputs::from(&x[..]), &mut rows, gated, &down, &mut activated);
        let mut actual = vec![0.0; 3 * 40];
        down.matmul_packed(&workers, &activated, MatrixOutput::default(), &mut actual);
        let products = product(&gate_up, &workers, &x);
        let mut activations = Vec::new();
        for row in products.chunks_exact(2 * width) {
            for panel in row.chunks_exact(32) {
                let (gates, ups) = panel.split_at(16);
                activations.extend(gates.iter().zip(ups).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up));
            }
        }
        let expected = product(&down, &workers, &activations);
        for (actual, expected) in actual.iter().zip(&expected) {
            assert!(
                (actual - expected).abs() <= 0.02 * expected.abs().max(1.0),
                "{actual} is not {expected}"
            );
        }
    }
}

#[test]
fn activations_that_are_no_numbers_make_products_that_are_none() {
    let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
    let bytes = random_codes(BlockType::Q4_0, 35 * 2);
    let parts = [stored(BlockType::Q4_0, 35, 64, &bytes)];
    let matrix = PackedMatrix::pack(&workers, &parts, RowOrder::Stacked, None, ComputeDtype::Int8).unwrap();
    let mut x = vec![0.0; 2 * 64];
    assert!(product(&matrix, &workers, &x).iter().all(|sum| *sum == 0.0));
    (x[3], x[64]) = (f32::NAN, f32::INFINITY);
    assert!(product(&matrix, &workers, &x).iter().all(|sum| sum.is_nan()));
}

#[test]
fn the_smallest_code_of_8_bits_counts_as_the_next_one() {
    for isa in Isa::available() {
        let workers = Workers::new(1, isa).unwrap();
        let mut bytes = random_codes(BlockType::Q8_0, 40);
        let product = |bytes: &[u8]| {
            let parts = [stored(BlockType::Q8_0, 40, 32, bytes)];
            let packed = PackedMatrix::pack(&workers, &parts, RowOrder::Stacked, None, ComputeDtype::Int8);
            product(&packed.unwrap(), &workers, &numbers(3 * 32))
        };
        bytes.chunks_exact_mut(34).for_each(|block| block[5] = 0x81);
        let expected = product(&bytes);
        bytes.chunks_exact_mut(34).for_each(|block| block[5] = 0x80);
        assert_bits(&product(&bytes), &expected, &format!("{isa:?}"));
    }
}
