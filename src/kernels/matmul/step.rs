//! The steps of panels that are written number by number: those of the key-value cache.

use half::bf16;

use super::rows::{Bf16Pair, InputPair};
use crate::kernels::simd::LANES;

/// Numbers of 32 outputs for two consecutive inputs, which change one after the other; zeros by default.
pub trait KvStep: Copy + Default + Send + Sync + 'static {
    /// One number, widened.
    fn get(&self, lane: usize, i: usize) -> f32;

    /// Replaces one number, rounded.
    fn set(&mut self, lane: usize, i: usize, value: f32);

    /// Replaces the numbers of one output in consecutive steps: `values` are those of all their inputs, the last of which
    /// may be missing.
    fn set_output(steps: &mut [Self], lane: usize, values: &[f32]);

    /// Replaces the numbers of one input: `values` are those of the first outputs.
    fn set_input(&mut self, i: usize, values: &[f32]);

    /// The step with the numbers of the `i`-th input alone, and zeros for the other one.
    #[doc(hidden)]
    #[must_use]
    fn only(&self, i: usize) -> Self;
}

/// Two vectors of words that hold two `bfloat16`: the low half of a word is the even input, the high half the odd one.
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

    fn set_output(steps: &mut [Self], lane: usize, values: &[f32]) {
        let (half, lane) = (lane / LANES, lane % LANES);
        let (pairs, last) = values.as_chunks::<2>();
        for (step, &[even, odd]) in steps.iter_mut().zip(pairs) {
            step.0[half][lane] = Bf16Pair::new(even, odd).0;
        }
        if let [even] = last {
            steps[pairs.len()].0[half][lane] = Bf16Pair::new(*even, 0.0).0;
        }
    }

    fn set_input(&mut self, i: usize, values: &[f32]) {
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

impl KvStep for F32Step {
    fn get(&self, lane: usize, i: usize) -> f32 {
        self.0[i][lane / LANES][lane % LANES]
    }

    fn set(&mut self, lane: usize, i: usize, value: f32) {
        self.0[i][lane / LANES][lane % LANES] = value;
    }

    fn set_output(steps: &mut [Self], lane: usize, values: &[f32]) {
        let (half, lane) = (lane / LANES, lane % LANES);
        for (step, pair) in steps.iter_mut().zip(values.chunks(2)) {
            for (of_input, &value) in step.0.iter_mut().zip(pair) {
                of_input[half][lane] = value;
            }
        }
    }

    fn set_input(&mut self, i: usize, values: &[f32]) {
        self.0[i].as_flattened_mut()[..values.len()].copy_from_slice(values);
    }

    #[inline(always)]
    fn only(&self, i: usize) -> Self {
        let mut only = Self::default();
        only.0[i] = self.0[i];
        only
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers_go_where_they_belong<T: KvStep>() {
        let values: Vec<f32> = (0..33).map(|value| value as f32).collect();
        let mut steps = [T::default(); 17];
        T::set_output(&mut steps, 19, &values);
        for (d, &value) in values.iter().enumerate() {
            assert_eq!((steps[d / 2].get(19, d % 2), steps[d / 2].get(18, d % 2)), (value, 0.0));
        }
        for i in 0..2 {
            let mut step = T::default();
            step.set(3, 1 - i, 7.0);
            step.set_input(i, &values[1..32]);
            assert_eq!((step.get(0, i), step.get(30, i), step.get(31, i)), (1.0, 31.0, 0.0));
            assert_eq!((step.get(3, 1 - i), step.get(2, 1 - i)), (7.0, 0.0));
            assert_eq!((step.only(i).get(3, i), step.only(i).get(3, 1 - i)), (4.0, 0.0));
        }
    }

    #[test]
    fn numbers_of_an_output_and_of_an_input_go_where_they_belong() {
        numbers_go_where_they_belong::<Bf16Step>();
        numbers_go_where_they_belong::<F32Step>();
    }
}
