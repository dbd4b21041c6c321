//! Products, rows and memory of integers whose scales an index finds.

use super::*;

/// A matrix of the type, stored: the groups of inputs come from `seed`, and so do the integers.
fn stored_rows(kind: IndexedType, bits: u32, groups: usize, rows: usize, seed: usize) -> Vec<u8> {
    let mut bytes = vec![0; rows * kind.bytes()];
    let draw = |i: usize| (i + 1) * 7919 % 10_007;
    for (row, out) in bytes.chunks_exact_mut(kind.bytes()).enumerate() {
        kind.encode(
            out,
            |group| {
                let place = draw(row * groups + group + seed);
                ((place as f32 - 5000.0) / 90_000.0, (place % (1 << bits)) as u8)
            },
            |input| draw(input + 31 * seed) % groups,
            |input| (draw(row * kind.elements() + input + seed) % (1 << bits)) as u8,
        );
    }
    bytes
}

fn stored_indexed(kind: IndexedType, rows: usize, bytes: &[u8]) -> StoredMatrix<'_> {
    StoredMatrix {
        encoding: Encoding::Indexed(kind),
        num_rows: rows,
        num_columns: kind.elements(),
        bytes: bytes.into(),
        cancelled: None,
    }
}

fn as_floats(matrix: &StoredMatrix<'_>) -> Vec<u8> {
    matrix.to_f32().unwrap().iter().flat_map(|weight| weight.to_le_bytes()).collect()
}

#[test]
fn products_and_rows_have_the_bits_of_those_with_the_same_weights_in_float32() {
    for (bits, rows, columns, groups) in [
        (4, 70, 256, 2),
        (4, 33, 104, 5),
        (8, 40, 36, 1),
        (3, 64, 96, 3),
        (2, 1, 33, 1),
        (4, 5, 7, 1),
        (3, 8, 65, 4),
    ] {
        let kind = IndexedType::new(bits, columns, groups).unwrap();
        let bytes = stored_rows(kind, bits as u32, groups, rows, 3);
        let part = stored_indexed(kind, rows, &bytes);
        let floats = as_floats(&part);
        let wide = StoredMatrix { encoding: DType::F32.into(), bytes: floats[..].into(), ..part };
        let x = numbers(40 * columns);
        for isa in Isa::available() {
            for threads in [1, 2] {
                let workers = Workers::new(threads, isa).unwrap();
                let (matrix, wide) =
                    (pack(&workers, &[part], RowOrder::Stacked), pack(&workers, &[wide], RowOrder::Stacked));
                assert!(format!("{matrix:?}").contains(kind.name()), "{matrix:?}");
                for m in [1, 2, 5, 12, 13, 40] {
                    let expected = product(&wide, &workers, &x[..m * columns]);
                    let actual = product(&matrix, &workers, &x[..m * columns]);
                    assert_bits(&actual, &expected, &format!("{kind:?} {m} {isa:?}"));
                }
                let (mut one, mut other) = (vec![0.0; columns], vec![0.0; columns]);
                for output in 0..rows {
                    matrix.row(output, &mut one);
                    wide.row(output, &mut other);
                    assert_bits(&one, &other, "row");
                }
            }
        }
    }
}

#[test]
fn memory_is_that_of_a_gptq_file_and_little_more() {
    let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
    for (bits, group_size) in [(4, 128), (4, 64), (4, 32), (8, 128), (3, 128), (2, 128)] {
        let (rows, columns) = (512, 2048);
        let groups = columns / group_size;
        let kind = IndexedType::new(bits, columns, groups).unwrap();
        let bytes = stored_rows(kind, bits as u32, groups, rows, 1);
        let matrix = pack(&workers, &[stored_indexed(kind, rows, &bytes)], RowOrder::Stacked);
        // Words of the codes and of the zeros, scales in float16, and the index.
        let file = rows * (columns * bits / 8 + groups * 2 + groups * bits / 8) + 4 * columns;
        assert!(100 * matrix.bytes() <= 115 * file, "{bits}, {group_size}: {} for {file}", matrix.bytes());
    }
}

#[test]
fn parts_with_other_groups_are_matrices_of_their_own_and_gates_and_ups_become_numbers() {
    let workers = Workers::new(2, Isa::select().unwrap()).unwrap();
    let kind = IndexedType::new(4, 96, 3).unwrap();
    let [q, k] = [1, 2].map(|seed| stored_rows(kind, 4, 3, 40, seed));
    let (same, differ) =
        ([stored_indexed(kind, 40, &q); 2], [stored_indexed(kind, 40, &q), stored_indexed(kind, 40, &k)]);
    for parts in [same, differ] {
        let floats = parts.map(|part| as_floats(&part));
        let wide: Vec<_> = parts
            .iter()
            .zip(&floats)
            .map(|(part, floats)| StoredMatrix {
                encoding: DType::F32.into(),
                bytes: floats[..].into(),
                ..*part
            })
            .collect();
        let x = numbers(3 * 96);
        for order in [RowOrder::Stacked, RowOrder::Gated, RowOrder::GatedPairs] {
            let (matrix, wide) = (pack(&workers, &parts, order), pack(&workers, &wide, order));
            assert_bits(
                &product(&matrix, &workers, &x),
                &product(&wide, &workers, &x),
                &format!("{order:?}"),
            );
            let becomes_numbers =
                order != RowOrder::Stacked && q != k && parts[1].bytes.is_same(&differ[1].bytes);
            assert_eq!(matrix.bytes() == wide.bytes(), becomes_numbers, "{order:?}");
        }
    }
}

#[test]
fn gates_feed_the_next_matrix_as_those_in_float32_do() {
    let workers = Workers::new(2, Isa::select().unwrap()).unwrap();
    let (kind, width) = (IndexedType::new(4, 64, 2).unwrap(), 64);
    let (bytes, down) = (stored_rows(kind, 4, 2, 2 * width, 1), stored_rows(kind, 4, 2, 40, 2));
    let (parts, down) = (stored_indexed(kind, 2 * width, &bytes), stored_indexed(kind, 40, &down));
    let (floats, down_floats) = (as_floats(&parts), as_floats(&down));
    let wide = |part, floats| StoredMatrix { encoding: DType::F32.into(), bytes: floats, ..part };
    let result = |gate_up: StoredMatrix<'_>, down: StoredMatrix<'_>| {
        let (gate_up, down) =
            (pack(&workers, &[gate_up], RowOrder::Gated), pack(&workers, &[down], RowOrder::Stacked));
        let (mut rows, mut activated, mut out) =
            (PackedRows::default(), PackedRows::default(), vec![0.0; 3 * 40]);
        let gated = Gated { activation: GatedActivation::Silu, bias: None, width };
        let x = numbers(3 * 64);
        gate_up.gated_matmul(&workers, Inputs::from(&x[..]), &mut rows, gated, &down, &mut activated);
        down.matmul_packed(&workers, &activated, MatrixOutput::default(), &mut out);
        out
    };
    let expected = result(wide(parts, floats[..].into()), wide(down, down_floats[..].into()));
    assert_bits(&result(parts, down), &expected, "gated");
}

#[test]
fn scales_that_are_no_numbers_are_refused() {
    let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
    let kind = IndexedType::new(4, 32, 1).unwrap();
    let mut bytes = stored_rows(kind, 4, 1, 1, 1);
    assert!(Encoding::Indexed(kind).all_finite(&bytes));
    bytes[..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    assert!(!Encoding::Indexed(kind).all_finite(&bytes));
    let parts = [stored_indexed(kind, 1, &bytes)];
    let packed = PackedMatrix::pack(&workers, &parts, RowOrder::Stacked, None, ComputeDtype::F32);
    assert!(packed.unwrap_err().to_string().contains("finite"));
}

#[test]
fn there_is_no_type_where_float32_is_smaller() {
    assert!(IndexedType::new(4, 64, 8).is_some());
    assert!(IndexedType::new(4, 64, 64).is_none());
    assert!(IndexedType::new(8, 1 << 20, 1 << 17).is_none());
    assert!(IndexedType::new(5, 64, 1).is_none());
}
