//! Every format, instruction set and number of rows against the naive twin, and the promise that a row's
//! result does not depend on its company.

use half::{bf16, f16};

use super::format::WeightStep;
use super::*;
use crate::{GatedActivation, Isa, Norm, NormKind, norm, scalar};

fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Numbers in the type that `F` packs.
trait Stored: PanelFormat {
    fn store(value: f32, out: &mut [u8]);
}

impl Stored for Bf16Panels {
    fn store(value: f32, out: &mut [u8]) {
        out.copy_from_slice(&bf16::from_f32(value).to_le_bytes());
    }
}

impl Stored for Bf16Products {
    fn store(value: f32, out: &mut [u8]) {
        Bf16Panels::store(value, out);
    }
}

impl Stored for EmulatedBf16Products {
    fn store(value: f32, out: &mut [u8]) {
        Bf16Panels::store(value, out);
    }
}

impl Stored for F16Panels {
    fn store(value: f32, out: &mut [u8]) {
        out.copy_from_slice(&f16::from_f32(value).to_le_bytes());
    }
}

macro_rules! stored_as_f32 {
    ($($format:ident)*) => {
        $(impl Stored for $format {
            fn store(value: f32, out: &mut [u8]) {
                out.copy_from_slice(&value.to_le_bytes());
            }
        })*
    };
}

stored_as_f32!(F32Panels I8Groups I4Groups);

fn pack<F: Stored>(
    workers: &Workers,
    num_outputs: usize,
    num_inputs: usize,
    weight: impl Fn(usize, usize) -> f32 + Sync,
) -> PanelMatrix<F> {
    let read = |outputs: Range<usize>, bytes: &mut [u8]| {
        for (i, out) in bytes.chunks_exact_mut(<F::Step as WeightStep>::stored_bytes(1)).enumerate() {
            F::store(weight(outputs.start + i / num_inputs, i % num_inputs), out);
        }
        Ok(())
    };
    PanelMatrix::pack(workers, num_outputs, num_inputs, read).unwrap().expect("finite weights")
}

/// The matrix as `F` stores it.
fn rounded<F: Stored>(weight: &[f32], num_inputs: usize) -> Vec<f32> {
    let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
    let num_outputs = weight.len() / num_inputs;
    let matrix =
        pack::<F>(&workers, num_outputs, num_inputs, |output, input| weight[output * num_inputs + input]);
    let mut rows = vec![0.0; weight.len()];
    rows.chunks_exact_mut(num_inputs).enumerate().for_each(|(output, row)| matrix.row(output, row));
    rows
}

fn multiply<F: Stored>(isa: Isa, threads: usize, x: &[f32], weight: &[f32], k: usize) -> Vec<f32> {
    let workers = Workers::new(threads, isa).unwrap();
    let n = weight.len() / k;
    let matrix = pack::<F>(&workers, n, k, |output, input| weight[output * k + input]);
    let mut rows = PackedRows::default();
    rows.pack::<F::Row>(&workers, x.into(), k);
    let mut out = vec![f32::NAN; x.len() / k * n];
    matmul(&workers, &rows, &matrix, MatrixOutput::default(), &mut out);
    out
}

fn products_equal_their_twin<F: Stored>() {
    for (n, k) in [(1, 1), (5, 3), (16, 8), (33, 17), (64, 64), (100, 31), (320, 130), (40, 1100)] {
        let weight = rounded::<F>(&numbers(n * k, 7), k);
        let x = numbers(70 * k, 3);
        for m in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 24, 25, 70] {
            let mut expected = vec![0.0; m * n];
            scalar::matmul(&x[..m * k], &weight, k, &mut expected);
            let mut first: Option<Vec<f32>> = None;
            for isa in Isa::available() {
                let actual = multiply::<F>(isa, 2, &x[..m * k], &weight, k);
                for (a, b) in actual.iter().zip(&expected) {
                    assert!((a - b).abs() < 1e-6 * k as f32, "{isa:?} m={m} n={n} k={k}: {a} {b}");
                }
                let first = first.get_or_insert_with(|| actual.clone());
                assert!(first.iter().zip(&actual).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }
    }
}

#[test]
fn bf16_products_equal_their_twin_and_each_other_on_every_instruction_set() {
    products_equal_their_twin::<Bf16Panels>();
}

#[test]
fn f16_products_equal_their_twin_and_each_other_on_every_instruction_set() {
    products_equal_their_twin::<F16Panels>();
}

#[test]
fn f32_products_equal_their_twin_and_each_other_on_every_instruction_set() {
    products_equal_their_twin::<F32Panels>();
}

#[test]
fn products_in_bfloat16_have_the_bits_of_their_twin_on_every_instruction_set() {
    for (n, k) in [(1, 1), (5, 3), (33, 17), (64, 64), (100, 31), (320, 130)] {
        let weight = numbers(n * k, 7);
        let mut x = numbers(300 * k, 3);
        // Ties of the rounding, to even, down and up.
        (x[0], x[k]) = (1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0);
        let mut expected = vec![0.0; 300 * n];
        scalar::matmul_bf16(&x, &weight, k, &mut expected);
        for m in (1..=16).chain([24, 25, 70, 300]) {
            for isa in Isa::available() {
                for multiply in [multiply::<Bf16Products>, multiply::<EmulatedBf16Products>] {
                    let actual = multiply(isa, 2, &x[..m * k], &weight, k);
                    let same = actual.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{isa:?} m={m} n={n} k={k}");
                }
            }
        }
    }
}

#[test]
fn infinities_and_nan_pass_through_products_in_bfloat16() {
    let weight = vec![1.0, -1.0, 2.0, 0.5];
    let formats = [multiply::<Bf16Products>, multiply::<EmulatedBf16Products>];
    for (isa, multiply) in
        Isa::available().into_iter().flat_map(|isa| formats.map(|multiply| (isa, multiply)))
    {
        let run = |x: [f32; 2]| multiply(isa, 1, &x, &weight, 2);
        assert_eq!(run([f32::INFINITY, 1.0]), [f32::INFINITY, f32::INFINITY], "{isa:?}");
        assert!(run([f32::INFINITY, f32::INFINITY])[0].is_nan(), "{isa:?}");
        assert!(run([f32::from_bits(0x7f80_0001), 1.0])[1].is_nan(), "{isa:?}");
        // Beyond the largest `bfloat16` a number rounds to infinity.
        assert_eq!(run([f32::MAX, 0.0])[1], f32::INFINITY, "{isa:?}");
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_company_and_with_any_thread_count() {
    a_row_does_not_depend_on_its_company::<Bf16Panels>();
    a_row_does_not_depend_on_its_company::<Bf16Products>();
    a_row_does_not_depend_on_its_company::<EmulatedBf16Products>();
}

fn a_row_does_not_depend_on_its_company<F: Stored>() {
    let (n, k) = (96, 200);
    let weight = numbers(n * k, 1);
    let x = numbers(300 * k, 2);
    for isa in Isa::available() {
        let alone = multiply::<F>(isa, 1, &x[..k], &weight, k);
        for m in [1, 2, 3, 8, 17, 64, 300] {
            for threads in [1, 2, 3] {
                let together = multiply::<F>(isa, threads, &x[..m * k], &weight, k);
                assert!(
                    alone.iter().zip(&together).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{isa:?} m={m}"
                );
            }
        }
    }
}

#[test]
fn bias_and_accumulation_come_after_the_sum() {
    let workers = Workers::new(2, Isa::select().unwrap()).unwrap();
    let (m, n, k) = (3, 37, 10);
    let (x, weight, bias) = (numbers(m * k, 4), numbers(n * k, 5), numbers(n, 6));
    let plain = multiply::<F32Panels>(workers.isa(), 2, &x, &weight, k);
    let matrix = pack::<F32Panels>(&workers, n, k, |output, input| weight[output * k + input]);
    let mut rows = PackedRows::default();
    rows.pack::<[f32; 2]>(&workers, x[..].into(), k);
    let before = numbers(m * n, 8);
    let mut out = before.clone();
    let output = MatrixOutput { bias: Some(&bias), accumulate: true, columns: None };
    matmul(&workers, &rows, &matrix, output, &mut out);
    for i in 0..m * n {
        assert_eq!(out[i], before[i] + (plain[i] + bias[i % n]));
    }
}

#[test]
fn gated_outputs_are_those_of_the_plain_ones() {
    let (k, width) = (10, 21);
    // Gates and ups of a width that is no multiple of 16: the last 11 of each are padding.
    let (weight, bias) = (numbers(2 * width * k, 5), numbers(2 * width, 6));
    let padded = 2 * 32;
    let row_of = |output: usize| {
        let (half, place) = (output % 32 / 16, output / 32 * 16 + output % 16);
        (place < width).then_some(half * width + place)
    };
    let padded_bias: Vec<f32> =
        (0..padded).map(|output| row_of(output).map_or(0.0, |row| bias[row])).collect();
    for isa in Isa::available() {
        let workers = Workers::new(2, isa).unwrap();
        let matrix = pack::<F32Panels>(&workers, padded, k, |output, input| {
            row_of(output).map_or(0.0, |row| weight[row * k + input])
        });
        // Rows for several groups, of which other threads have made more.
        let others = Workers::new(3, isa).unwrap();
        for m in [1, 2, 5, 13, 30, 300] {
            let x = numbers(m * k, 4);
            let mut plain = multiply::<F32Panels>(isa, 2, &x, &weight, k);
            for row in plain.chunks_exact_mut(2 * width) {
                row.iter_mut().zip(&bias).for_each(|(sum, bias)| *sum += bias);
            }
            let (mut expected, mut out) = (vec![0.0; m * width], vec![f32::NAN; m * width]);
            scalar::gated(GatedActivation::Silu, &plain, width, &mut expected);
            let mut rows = PackedRows::default();
            rows.pack::<[f32; 2]>(&others, x[..].into(), k);
            let mut packed = PackedRows::default();
            let gated = Gated { activation: GatedActivation::Silu, bias: Some(&padded_bias), width };
            gated_matmul(&workers, &rows, &matrix, gated, None, &mut packed);
            // Times one, to see what was packed.
            let one = |output, input| f32::from(u8::from(output == input));
            let unit = pack::<F32Panels>(&workers, width, width, one);
            matmul(&workers, &packed, &unit, MatrixOutput::default(), &mut out);
            for (out, expected) in out.iter().zip(&expected) {
                assert!((out - expected).abs() <= 4e-6 * expected.abs().max(1e-2), "{out} {expected}");
            }
            // In two steps, with room for more to be added in between.
            let (mut products, mut gates) = (vec![f32::NAN; m * padded], vec![f32::NAN; m * width]);
            let output = MatrixOutput { bias: Some(&padded_bias), ..MatrixOutput::default() };
            matmul(&workers, &rows, &matrix, output, &mut products);
            gate_products(&workers, &products, GatedActivation::Silu, width, &mut gates);
            assert_eq!(gates, out);
        }
    }
}

#[test]
fn rows_that_are_normalized_on_their_way_have_the_bits_of_those_that_were_before() {
    for k in [1, 2, 15, 32, 33, 130] {
        let (weight, norm_weight) = (numbers(20 * k, 5), numbers(k, 6));
        let (norm_bias, eps) = (numbers(k, 7), 1e-5);
        let rms = Norm { kind: NormKind::Rms, weight: &norm_weight, bias: None, eps };
        let layer = Norm { kind: NormKind::Layer, bias: Some(&norm_bias), ..rms };
        for (isa, described) in Isa::available().into_iter().flat_map(|isa| [(isa, rms), (isa, layer)]) {
            let workers = Workers::new(2, isa).unwrap();
            let matrix = pack::<Bf16Products>(&workers, 20, k, |output, input| weight[output * k + input]);
            for m in [1, 2, 5, 13, 30] {
                let x = numbers(m * k, 4);
                let mut normed = vec![0.0; x.len()];
                norm(isa, &x, described, &mut normed);
                let product = |inputs: Inputs<'_>| {
                    let (mut rows, mut out) = (PackedRows::default(), vec![f32::NAN; m * 20]);
                    rows.pack::<super::rows::Bf16Pair>(&workers, inputs, k);
                    matmul(&workers, &rows, &matrix, MatrixOutput::default(), &mut out);
                    out
                };
                let on_the_way = product(Inputs { values: &x, prologue: Prologue::Norm(described) });
                assert_eq!(on_the_way, product(normed[..].into()), "{isa:?} {m} {k}");
            }
        }
    }
}

#[test]
fn rows_are_unpacked_as_they_were_packed() {
    let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
    let (n, k) = (45, 7);
    let weight = rounded::<Bf16Panels>(&numbers(n * k, 9), k);
    let matrix = pack::<Bf16Panels>(&workers, n, k, |output, input| weight[output * k + input]);
    let mut row = vec![0.0; k];
    for output in 0..n {
        matrix.row(output, &mut row);
        assert_eq!(row, weight[output * k..(output + 1) * k]);
    }
}

/// Activations as groups hold them.
fn rounded_rows(x: &[f32], k: usize, group: usize) -> Vec<f32> {
    let mut rounded = x.to_vec();
    for row in rounded.chunks_exact_mut(k) {
        for group in row.chunks_mut(group) {
            let largest = group.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
            for x in group {
                *x = (*x * (127.0 / largest)).round_ties_even() * (largest / 127.0);
            }
        }
    }
    rounded
}

fn integers_equal_their_twin<F: Stored>() {
    for (n, k) in [(1, 1), (5, 3), (16, 8), (33, 17), (64, 64), (40, 100), (100, 31), (320, 130), (40, 1100)]
    {
        let weight = numbers(n * k, 7);
        let stored = rounded::<F>(&weight, k);
        let x = rounded_rows(&numbers(70 * k, 3), k, F::Row::INPUTS);
        for m in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 24, 25, 70] {
            let mut expected = vec![0.0; m * n];
            scalar::matmul(&x[..m * k], &stored, k, &mut expected);
            let mut first: Option<Vec<f32>> = None;
            for isa in Isa::available() {
                let actual = multiply::<F>(isa, 2, &x[..m * k], &weight, k);
                for (a, b) in actual.iter().zip(&expected) {
                    assert!((a - b).abs() < 2e-6 * k as f32, "{isa:?} m={m} n={n} k={k}: {a} {b}");
                }
                let first = first.get_or_insert_with(|| actual.clone());
                assert!(first.iter().zip(&actual).all(|(a, b)| a.to_bits() == b.to_bits()), "{isa:?}");
            }
        }
    }
}

#[test]
fn products_of_integers_equal_their_twin_and_each_other_on_every_instruction_set() {
    integers_equal_their_twin::<I8Groups>();
    integers_equal_their_twin::<I4Groups>();
}

#[test]
fn a_row_of_integers_has_the_same_bits_in_any_company_and_with_any_thread_count() {
    a_row_does_not_depend_on_its_company::<I8Groups>();
    a_row_does_not_depend_on_its_company::<I4Groups>();
}

/// The relative error of a matrix of normally distributed weights.
fn error_of_normal_weights<F: Stored>() -> f64 {
    let uniform = numbers(2 * 64 * 2048, 11);
    let (radii, angles) = uniform.split_at(64 * 2048);
    let normal: Vec<f32> = radii
        .iter()
        .zip(angles)
        .map(|(radius, angle)| {
            (-2.0 * radius.abs().max(1e-7).ln()).sqrt() * (std::f32::consts::PI * angle).cos()
        })
        .map(|weight| 0.02 * weight)
        .collect();
    let stored = rounded::<F>(&normal, 2048);
    let squares =
        |values: &mut dyn Iterator<Item = f32>| values.map(|value| f64::from(value * value)).sum::<f64>();
    let error = squares(&mut normal.iter().zip(&stored).map(|(weight, stored)| weight - stored));
    (error / squares(&mut normal.iter().copied())).sqrt()
}

#[test]
fn rounding_to_integers_keeps_normally_distributed_weights_within_its_bounds() {
    let (int8, int4) = (error_of_normal_weights::<I8Groups>(), error_of_normal_weights::<I4Groups>());
    assert!((0.003..=0.006).contains(&int8), "{int8}");
    assert!((0.04..=0.08).contains(&int4), "{int4}");
}

#[test]
fn groups_of_zeros_of_tiny_and_of_huge_weights_are_rounded_like_others() {
    fn check<F: Stored>(steps: f32) {
        for unit in [0.0, 1e-37, 1e-20, 1e-3, 1.0, 1e30, 3e38] {
            let weight: Vec<f32> =
                (0..200).map(|i| unit * ((i * 37 % 101) as f32 / 50.0 - 1.0).clamp(-1.0, 1.0)).collect();
            for (weight, stored) in weight.iter().zip(rounded::<F>(&weight, 100)) {
                // A scale below the least normal number is 0.
                let most = if unit < 1e-30 { unit } else { unit / steps };
                assert!((weight - stored).abs() <= most, "{unit}: {weight} {stored}");
            }
        }
    }
    check::<I8Groups>(200.0);
    check::<I4Groups>(6.0);
}

#[test]
fn infinities_and_nan_show_in_products_of_integers() {
    fn check<F: Stored>() {
        let (k, weight) = (100, numbers(3 * 100, 5));
        for isa in Isa::available() {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for place in [0, 17, 63, 99] {
                    let mut x = numbers(2 * k, 4);
                    let clean = multiply::<F>(isa, 1, &x, &weight, k);
                    x[k + place] = bad;
                    let out = multiply::<F>(isa, 1, &x, &weight, k);
                    assert!(
                        out[..3] == clean[..3] && out[3..].iter().all(|sum| sum.is_nan()),
                        "{isa:?} {bad}"
                    );
                }
            }
            let zeros = multiply::<F>(isa, 1, &[0.0; 100], &weight, k);
            assert_eq!(zeros, [0.0; 3]);
        }
    }
    check::<I8Groups>();
    check::<I4Groups>();
}

#[test]
fn gated_outputs_of_integers_are_packed_as_rows_of_the_next_matrix() {
    let (k, width) = (70, 37);
    let weight = numbers(2 * 64 * k, 5);
    // 37 gates and ups are three groups of 16: the last 11 of each are padding.
    let row_of = |output: usize| {
        let (half, place) = (output % 32 / 16, output / 32 * 16 + output % 16);
        (place < width).then_some(half * width + place)
    };
    let next = numbers(5 * width, 9);
    for isa in Isa::available() {
        let workers = Workers::new(2, isa).unwrap();
        let matrix = pack::<I4Groups>(&workers, 96, k, |output, input| {
            row_of(output).map_or(0.0, |row| weight[row * k + input])
        });
        for m in [1, 7, 13, 30] {
            let x = numbers(m * k, 4);
            let plain = multiply::<I4Groups>(isa, 2, &x, &weight[..2 * width * k], k);
            let mut gated = vec![0.0; m * width];
            scalar::gated(GatedActivation::Silu, &plain, width, &mut gated);
            let mut expected = vec![0.0; m * 5];
            scalar::matmul(&gated, &rounded::<I4Groups>(&next, width), width, &mut expected);
            let (mut rows, mut packed) = (PackedRows::default(), PackedRows::default());
            rows.pack::<<I4Groups as PanelProducts>::Row>(&workers, x[..].into(), k);
            let described = Gated { activation: GatedActivation::Silu, bias: None, width };
            gated_matmul(&workers, &rows, &matrix, described, None, &mut packed);
            let matrix = pack::<I4Groups>(&workers, 5, width, |output, input| next[output * width + input]);
            let mut out = vec![f32::NAN; m * 5];
            matmul(&workers, &packed, &matrix, MatrixOutput::default(), &mut out);
            let largest = gated.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
            for (out, expected) in out.iter().zip(&expected) {
                assert!((out - expected).abs() <= 0.01 * width as f32 * largest, "{isa:?} {out} {expected}");
            }
        }
    }
}

#[test]
fn a_region_of_inputs_goes_on_in_the_next_panel_and_ends_with_the_weights() {
    let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
    let matrix = pack::<F32Panels>(&workers, 2 * PANEL_ROWS, 128, |_, _| 1.0);
    let bytes_of_input = size_of::<f32>() * PANEL_ROWS;
    let region = matrix.region(0, 96..160);
    assert_eq!(region.start, matrix.panel(0).as_ptr().cast::<u8>().wrapping_add(96 * bytes_of_input));
    let bytes = |inputs| matrix.region(1, inputs).bytes;
    assert_eq!(region.bytes, 64 * bytes_of_input);
    assert_eq!(
        [bytes(0..64), bytes(96..160), bytes(128..192)],
        [64, 32, 0].map(|inputs| inputs * bytes_of_input)
    );
}
