//! The steps of KV-cache panels, which are written number by number.

use half::bf16;

use super::format::PANEL_ROWS;
use super::rows::{Bf16Pair, InputPair};
use crate::simd::LANES;

/// Numbers of 32 outputs for two consecutive inputs, each written by itself; zeros by default.
///
/// The keys of 32 tokens are a step for each two dimensions, `[ceil(head_dim / 2)]`, whose outputs are the
/// tokens. Their values are a step for each two tokens, `[ceil(head_dim / 32)][16]`, whose outputs are 32
/// dimensions. Either is followed by [`KvStep::SCALE_STEPS`] steps with the tokens' scales.
pub trait KvStep: Copy + Default + Send + Sync + 'static {
    /// The steps that hold the scales of 32 tokens; 0 for formats without scales.
    const SCALE_STEPS: usize = 0;

    /// One number, widened and without its scale.
    fn get(&self, lane: usize, i: usize) -> f32;

    /// Replaces one number, rounded.
    fn set(&mut self, lane: usize, i: usize, value: f32);

    /// Replaces the numbers of one output in consecutive steps: `values` are those of all their inputs, the
    /// last of which may be missing. With scales they are multiplied by `inverse` first.
    fn set_output(steps: &mut [Self], lane: usize, values: &[f32], inverse: f32);

    /// Replaces the numbers of one input: `values` are those of the first outputs. With scales they are
    /// multiplied by `inverse` first.
    fn set_input(&mut self, i: usize, values: &[f32], inverse: f32);

    /// The step with the numbers of the `i`-th input alone, and zeros for the other one.
    #[doc(hidden)]
    #[must_use]
    fn only(&self, i: usize) -> Self;

    /// The scale of a token with these numbers, and what they are multiplied by to be stored.
    #[doc(hidden)]
    fn scale_of(_numbers: &[f32]) -> (f32, f32) {
        (1.0, 1.0)
    }

    /// The scales that the last of a head's steps hold.
    #[doc(hidden)]
    #[inline(always)]
    fn scales(_steps: &[Self]) -> Option<[f32; PANEL_ROWS]> {
        None
    }

    /// The scale of a token; 1 for formats without scales.
    #[doc(hidden)]
    fn scale(_steps: &[Self], _token: usize) -> f32 {
        1.0
    }

    /// Replaces the scale of a token in the last of a head's steps.
    #[doc(hidden)]
    fn set_scale(_steps: &mut [Self], _token: usize, _scale: f32) {}

    /// Stores the key of a token.
    fn set_key(steps: &mut [Self], token: usize, numbers: &[f32]) {
        let (scale, inverse) = Self::scale_of(numbers);
        Self::set_output(steps, token, numbers, inverse);
        Self::set_scale(steps, token, scale);
    }

    /// Stores the value of a token.
    fn set_value(steps: &mut [Self], token: usize, numbers: &[f32]) {
        let (scale, inverse) = Self::scale_of(numbers);
        let planes = steps.chunks_exact_mut(PANEL_ROWS / 2);
        for (plane, numbers) in planes.zip(numbers.chunks(PANEL_ROWS)) {
            plane[token / 2].set_input(token % 2, numbers, inverse);
        }
        Self::set_scale(steps, token, scale);
    }

    /// A dimension of the stored key of a token.
    fn key(steps: &[Self], token: usize, dimension: usize) -> f32 {
        steps[dimension / 2].get(token, dimension % 2) * Self::scale(steps, token)
    }

    /// A dimension of the stored value of a token.
    fn value(steps: &[Self], token: usize, dimension: usize) -> f32 {
        let plane = dimension / PANEL_ROWS * (PANEL_ROWS / 2);
        steps[plane + token / 2].get(dimension % PANEL_ROWS, token % 2) * Self::scale(steps, token)
    }
}

/// Two vectors of words that hold two `bfloat16`: the low half of a word is the even input, the high half the
/// odd one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(align(64))]
pub struct Bf16Step(pub(super) [[u32; LANES]; 2]);

impl KvStep for Bf16Step {
    fn get(&self, lane: usize, i: usize) -> f32 {
        bf16::from_bits((self.0[lane / LANES][lane % LANES] >> (16 * i)) as u16).to_f32()
    }

    fn set(&mut self, lane: usize, i: usize, value: f32) {
        let word = &mut self.0[lane / LANES][lane % LANES];
        *word = *word & !(0xffff << (16 * i)) | u32::from(bf16::from_f32(value).to_bits()) << (16 * i);
    }

    fn set_output(steps: &mut [Self], lane: usize, values: &[f32], _: f32) {
        let (half, lane) = (lane / LANES, lane % LANES);
        let (pairs, last) = values.as_chunks::<2>();
        for (step, &[even, odd]) in steps.iter_mut().zip(pairs) {
            step.0[half][lane] = Bf16Pair::new(even, odd).0;
        }
        if let [even] = last {
            steps[pairs.len()].0[half][lane] = Bf16Pair::new(*even, 0.0).0;
        }
    }

    fn set_input(&mut self, i: usize, values: &[f32], _: f32) {
        for (word, &value) in self.0.as_flattened_mut().iter_mut().zip(values) {
            let pair = if i == 0 { Bf16Pair::new(value, 0.0) } else { Bf16Pair::new(0.0, value) };
            *word = *word & !(0xffff << (16 * i)) | pair.0;
        }
    }

    #[inline(always)]
    fn only(&self, i: usize) -> Self {
        Self(self.0.map(|words| words.map(|word| word & (0xffff << (16 * i)))))
    }
}

/// `float32`, `[input][half][lane]`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(align(64))]
pub struct F32Step(pub(super) [[[f32; LANES]; 2]; 2]);

impl F32Step {
    /// The weights of 16 outputs for an input.
    #[inline(always)]
    pub(crate) fn lanes_mut(&mut self, i: usize, half: usize) -> &mut [f32; LANES] {
        &mut self.0[i][half]
    }
}

impl KvStep for F32Step {
    fn get(&self, lane: usize, i: usize) -> f32 {
        self.0[i][lane / LANES][lane % LANES]
    }

    fn set(&mut self, lane: usize, i: usize, value: f32) {
        self.0[i][lane / LANES][lane % LANES] = value;
    }

    fn set_output(steps: &mut [Self], lane: usize, values: &[f32], _: f32) {
        let (half, lane) = (lane / LANES, lane % LANES);
        for (step, pair) in steps.iter_mut().zip(values.chunks(2)) {
            for (of_input, &value) in step.0.iter_mut().zip(pair) {
                of_input[half][lane] = value;
            }
        }
    }

    fn set_input(&mut self, i: usize, values: &[f32], _: f32) {
        self.0[i].as_flattened_mut()[..values.len()].copy_from_slice(values);
    }

    #[inline(always)]
    fn only(&self, i: usize) -> Self {
        let mut only = Self::default();
        only.0[i] = self.0[i];
        only
    }
}

/// 8-bit integers, `[input][half][lane]`, in the unit of their token's scale.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(align(64))]
pub struct I8Step(pub(super) [[[i8; LANES]; 2]; 2]);

impl I8Step {
    /// The largest number.
    const MOST: f32 = 127.0;

    /// The nearest integer, ties to even, of a number that is within the range; 0 for NaN.
    #[inline(always)]
    fn nearest(value: f32) -> i8 {
        // Adding 1.5 * 2^23 rounds to an integer, which is vector work where `round` is a call.
        const ROUND: f32 = 12_582_912.0;
        ((value + ROUND) - ROUND) as i8
    }
}

impl KvStep for I8Step {
    const SCALE_STEPS: usize = PANEL_ROWS * size_of::<f32>() / size_of::<Self>();

    fn get(&self, lane: usize, i: usize) -> f32 {
        f32::from(self.0[i][lane / LANES][lane % LANES])
    }

    fn set(&mut self, lane: usize, i: usize, value: f32) {
        self.0[i][lane / LANES][lane % LANES] = Self::nearest(value);
    }

    fn set_output(steps: &mut [Self], lane: usize, values: &[f32], inverse: f32) {
        let (half, lane) = (lane / LANES, lane % LANES);
        for (step, pair) in steps.iter_mut().zip(values.chunks(2)) {
            for (of_input, &value) in step.0.iter_mut().zip(pair) {
                of_input[half][lane] = Self::nearest(value * inverse);
            }
        }
    }

    fn set_input(&mut self, i: usize, values: &[f32], inverse: f32) {
        for (number, &value) in self.0[i].as_flattened_mut().iter_mut().zip(values) {
            *number = Self::nearest(value * inverse);
        }
    }

    #[inline(always)]
    fn only(&self, i: usize) -> Self {
        let mut only = Self::default();
        only.0[i] = self.0[i];
        only
    }

    /// NaN if a number is not finite, so that every result shows it.
    fn scale_of(numbers: &[f32]) -> (f32, f32) {
        let largest = numbers.iter().fold(0.0f32, |largest, &number| largest.max(number.abs()));
        let scale = largest / Self::MOST;
        if !numbers.iter().all(|number| number.is_finite()) {
            (f32::NAN, 0.0)
        } else if scale.is_normal() {
            (scale, Self::MOST / largest)
        } else {
            (0.0, 0.0)
        }
    }

    #[inline(always)]
    fn scales(steps: &[Self]) -> Option<[f32; PANEL_ROWS]> {
        let steps: &[Self; Self::SCALE_STEPS] = steps.last_chunk()?;
        let mut scales = [0.0; PANEL_ROWS];
        for (scales, step) in scales.as_chunks_mut::<LANES>().0.iter_mut().zip(steps) {
            let bytes = step.0.as_flattened().as_flattened();
            for (scale, &bytes) in scales.iter_mut().zip(bytes.as_chunks().0) {
                *scale = f32::from_le_bytes(bytes.map(i8::cast_unsigned));
            }
        }
        Some(scales)
    }

    fn scale(steps: &[Self], token: usize) -> f32 {
        let first = steps.len() - Self::SCALE_STEPS;
        let bytes = steps[first + token / LANES].0.as_flattened().as_flattened();
        f32::from_le_bytes(bytes.as_chunks().0[token % LANES].map(i8::cast_unsigned))
    }

    fn set_scale(steps: &mut [Self], token: usize, scale: f32) {
        let first = steps.len() - Self::SCALE_STEPS;
        let bytes = steps[first + token / LANES].0.as_flattened_mut().as_flattened_mut();
        bytes.as_chunks_mut().0[token % LANES] = scale.to_le_bytes().map(u8::cast_signed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers_go_where_they_belong<T: KvStep>() {
        let values: Vec<f32> = (0..33).map(|value| value as f32).collect();
        let mut steps = [T::default(); 17];
        T::set_output(&mut steps, 19, &values, 1.0);
        for (d, &value) in values.iter().enumerate() {
            assert_eq!((steps[d / 2].get(19, d % 2), steps[d / 2].get(18, d % 2)), (value, 0.0));
        }
        for i in 0..2 {
            let mut step = T::default();
            step.set(3, 1 - i, 7.0);
            step.set_input(i, &values[1..32], 1.0);
            assert_eq!((step.get(0, i), step.get(30, i), step.get(31, i)), (1.0, 31.0, 0.0));
            assert_eq!((step.get(3, 1 - i), step.get(2, 1 - i)), (7.0, 0.0));
            assert_eq!((step.only(i).get(3, i), step.only(i).get(3, 1 - i)), (4.0, 0.0));
        }
    }

    #[test]
    fn numbers_of_an_output_and_of_an_input_go_where_they_belong() {
        numbers_go_where_they_belong::<Bf16Step>();
        numbers_go_where_they_belong::<F32Step>();
        numbers_go_where_they_belong::<I8Step>();
    }

    #[test]
    fn scaled_numbers_are_within_half_a_unit_of_a_127th_of_the_largest() {
        let (dim, mut keys, mut values) = (40, [I8Step::default(); 20 + 2], [I8Step::default(); 32 + 2]);
        for token in 0..32 {
            let numbers: Vec<f32> =
                (0..dim).map(|d| ((token * dim + d) as f32).sin() * token as f32).collect();
            I8Step::set_key(&mut keys, token, &numbers);
            I8Step::set_value(&mut values, token, &numbers);
            let largest = numbers.iter().fold(0.0f32, |largest, number| largest.max(number.abs()));
            for (d, &number) in numbers.iter().enumerate() {
                for stored in [I8Step::key(&keys, token, d), I8Step::value(&values, token, d)] {
                    assert!(
                        (stored - number).abs() <= 0.501 * largest / 127.0,
                        "{token} {d} {stored} {number}"
                    );
                }
            }
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            I8Step::set_key(&mut keys, 3, &[1.0, bad]);
            assert!(I8Step::key(&keys, 3, 0).is_nan() && I8Step::key(&keys, 4, 0).is_finite());
        }
        I8Step::set_key(&mut keys, 3, &[0.0, f32::MIN_POSITIVE]);
        assert_eq!((I8Step::key(&keys, 3, 0), I8Step::key(&keys, 3, 1)), (0.0, 0.0));
    }
}
