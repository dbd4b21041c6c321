//! torch's CPU random generator: for one seed it draws the numbers, and so the tokens, that torch draws.
//!
//! A Mersenne Twister (MT19937) seeded with the low 32 bits of the seed. torch defines how many words each
//! kind of draw takes and how they become a number. Not for cryptography.

use std::hash::{BuildHasher, Hasher, RandomState};

use rsgen_core::{Result, memory};

use crate::Isa;
use crate::torch_sort::topk;

const WORDS: usize = 624;
const SHIFT: usize = 397;

/// `torch.Generator()` on the CPU.
#[derive(Clone)]
pub struct TorchRng {
    state: Box<[u32; WORDS]>,
    /// The index of the next word of `state`; `WORDS` when the state must be renewed first.
    next: usize,
}

impl TorchRng {
    /// `torch.manual_seed(seed)`: only the low 32 bits count.
    pub fn manual_seed(seed: u64) -> Self {
        let mut state = Box::new([0; WORDS]);
        state[0] = seed as u32;
        for index in 1..WORDS {
            let last = state[index - 1];
            state[index] = 1_812_433_253_u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(index as u32);
        }
        Self { state, next: WORDS }
    }

    /// The words of the state, and the index of the next one.
    pub fn state(&self) -> (&[u32; WORDS], usize) {
        (&self.state, self.next)
    }

    /// A generator that goes on from a state; `None` for an index beyond the words.
    pub fn from_state(state: [u32; WORDS], next: usize) -> Option<Self> {
        (next <= WORDS).then(|| Self { state: Box::new(state), next })
    }

    /// A seed of 32 bits from the operating system's entropy, for requests without a seed.
    pub fn entropy_seed() -> u64 {
        // The standard library seeds its hash maps from the operating system.
        RandomState::new().build_hasher().finish() & 0xFFFF_FFFF
    }

    /// The next word of the twister.
    pub fn next_u32(&mut self) -> u32 {
        if self.next == WORDS {
            self.renew();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9D2C_5680;
        word ^= (word << 15) & 0xEFC6_0000;
        word ^ (word >> 18)
    }

    /// Two words as one, the first one high.
    pub fn next_u64(&mut self) -> u64 {
        let high = u64::from(self.next_u32());
        high << 32 | u64::from(self.next_u32())
    }

    /// Skips `count` words.
    pub fn skip(&mut self, mut count: usize) {
        while count > WORDS - self.next {
            count -= WORDS - self.next;
            self.renew();
        }
        self.next += count;
    }

    /// One element of `torch.rand`, in float32: a number of 24 bits from [0, 1).
    pub fn rand_f32(&mut self) -> f32 {
        (self.next_u32() & 0x00FF_FFFF) as f32 / 16_777_216.0
    }

    /// One element of `tensor.exponential_(1)`, in float32.
    pub fn exponential_f32(&mut self) -> f32 {
        exponential(self.uniform_f64())
    }

    /// A number of 53 bits from [0, 1).
    fn uniform_f64(&mut self) -> f64 {
        (self.next_u64() & ((1 << 53) - 1)) as f64 / (1_u64 << 53) as f64
    }

    /// `torch.multinomial(probabilities, count)` without replacement, of one row of weights, which need not
    /// sum to one: the `count` indices drawn, in the order drawn. For a matrix, torch draws the rows in
    /// order.
    ///
    /// Every weight takes two words, also a zero. The weights must be finite, not negative and not all zero.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for a copy of the weights.
    pub fn multinomial(&mut self, isa: Isa, probabilities: &[f32], count: usize) -> Result<Vec<usize>> {
        if count == 1 {
            return Ok(vec![self.draw(probabilities)]);
        }
        let mut ratios = memory::copied(probabilities, "probabilities")?;
        for ratio in &mut ratios {
            if *ratio == 0.0 {
                self.skip(2);
            } else {
                *ratio /= self.exponential_f32();
            }
        }
        Ok(topk(isa, &ratios, count)?.into_iter().map(|index| index as usize).collect())
    }

    /// A [`multinomial`](Self::multinomial) of one index: that of the largest `probability / exponential`,
    /// the lowest one on ties.
    pub fn draw(&mut self, probabilities: &[f32]) -> usize {
        let (mut best, mut largest) = (0, 0.0);
        for (index, &probability) in probabilities.iter().enumerate() {
            if probability == 0.0 {
                self.skip(2);
                continue;
            }
            let uniform = self.uniform_f64();
            // -ln(1 - u) is at least u, so most candidates are ruled out without a logarithm. The margin
            // exceeds the rounding error.
            if f64::from(probability) < f64::from(largest) * uniform * (1.0 - 1e-6) {
                continue;
            }
            let ratio = probability / exponential(uniform);
            if ratio > largest {
                (best, largest) = (index, ratio);
            }
        }
        best
    }

    /// Skips the words of a [`multinomial`](Self::multinomial) draw from a row of `len` weights.
    pub fn skip_multinomial(&mut self, len: usize) {
        self.skip(2 * len);
    }

    /// `torch.randperm(len)`.
    pub fn randperm(&mut self, len: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..len).collect();
        self.shuffle(&mut order, len);
        order
    }

    /// The first `count` places of a [`randperm`](Self::randperm), if `order` holds the numbers below its
    /// length.
    pub fn shuffle(&mut self, order: &mut [u32], count: u32) {
        let len = order.len() as u32;
        for index in 0..count.min(len.saturating_sub(1)) {
            let other = index + self.next_u32() % (len - index);
            order.swap(index as usize, other as usize);
        }
    }

    /// Whether `number` is among the first `count` of [`randperm(len)`](Self::randperm): follows it through
    /// the shuffle.
    pub fn randperm_begins_with(&mut self, len: u32, count: u32, number: u32) -> bool {
        if number >= len {
            return false;
        }
        let mut place = number;
        for index in 0..count {
            // The last place is left over, so torch draws nothing for it.
            let rest = len - index;
            let other = if rest > 1 { index + self.next_u32() % rest } else { index };
            if other == place {
                return true;
            }
            if index == place {
                place = other;
            }
        }
        false
    }

    #[cold]
    fn renew(&mut self) {
        fn twisted(word: u32, next: u32) -> u32 {
            let joined = (word & 0x8000_0000) | (next & 0x7FFF_FFFF);
            (joined >> 1) ^ (0x9908_B0DF & (joined & 1).wrapping_neg())
        }
        // In ranges whose indices do not wrap around, so that the loops vectorize.
        let state = &mut *self.state;
        for index in 0..WORDS - SHIFT {
            state[index] = state[index + SHIFT] ^ twisted(state[index], state[index + 1]);
        }
        for index in WORDS - SHIFT..WORDS - 1 {
            state[index] = state[index + SHIFT - WORDS] ^ twisted(state[index], state[index + 1]);
        }
        state[WORDS - 1] = state[SHIFT - 1] ^ twisted(state[WORDS - 1], state[0]);
        self.next = 0;
    }
}

/// The exponential variate of a uniform one.
fn exponential(uniform: f64) -> f32 {
    -(-uniform).ln_1p() as f32
}

impl std::fmt::Debug for TorchRng {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TorchRng").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The expected values are printed by torch 2.13, for example:
    // python -c "import torch; torch.manual_seed(42); print(torch.rand(3).tolist())"

    fn rand3(seed: u64) -> [f32; 3] {
        let mut rng = TorchRng::manual_seed(seed);
        [rng.rand_f32(), rng.rand_f32(), rng.rand_f32()]
    }

    #[test]
    fn rand_equals_torch() {
        assert_eq!(rand3(0), [0.496_256_6, 0.768_221_8, 0.088_477_43]);
        assert_eq!(rand3(42), [0.882_269_26, 0.915_003_96, 0.382_863_76]);
        assert_eq!(rand3(u64::MAX), [0.993_799_4, 0.571_306_35, 0.570_008_04]);
    }

    #[test]
    fn only_the_low_32_bits_of_a_seed_count() {
        assert_eq!(rand3((1 << 32) + 42), rand3(42));
    }

    // torch.manual_seed(42); torch.empty(6).exponential_(1).tolist()
    #[test]
    fn exponential_equals_torch() {
        let mut rng = TorchRng::manual_seed(42);
        let drawn: Vec<f32> = (0..6).map(|_| rng.exponential_f32()).collect();
        let torch = [
            0.059_914_015_233_516_69_f64,
            0.064_976_125_955_581_67,
            0.131_916_776_299_476_62,
            0.054_012_950_509_786_606,
            0.746_910_691_261_291_5,
            0.647_762_358_188_629_2,
        ];
        assert_eq!(drawn, torch.map(|value| value as f32));
    }

    // torch.manual_seed(42); torch.randperm(12).tolist()
    #[test]
    fn randperm_equals_torch() {
        assert_eq!(TorchRng::manual_seed(42).randperm(12), [6, 8, 1, 7, 0, 2, 10, 11, 4, 3, 5, 9]);
        assert!(TorchRng::manual_seed(42).randperm(0).is_empty());
    }

    // p = torch.tensor([[.1, .2, .3, .15, .25, 0.], [.5, 0., .1, .1, .1, .2]]); torch.manual_seed(42)
    // [torch.multinomial(p, k).tolist() for _ in range(n)]
    #[test]
    fn multinomial_equals_torch() {
        let p: [[f32; 6]; 2] = [[0.1, 0.2, 0.3, 0.15, 0.25, 0.0], [0.5, 0.0, 0.1, 0.1, 0.1, 0.2]];
        let mut rng = TorchRng::manual_seed(42);
        let ones: Vec<[usize; 2]> = (0..6)
            .map(|_| {
                [
                    rng.multinomial(Isa::fastest(), &p[0], 1).unwrap()[0],
                    rng.multinomial(Isa::fastest(), &p[1], 1).unwrap()[0],
                ]
            })
            .collect();
        assert_eq!(ones, [[1, 2], [4, 2], [1, 0], [1, 5], [4, 0], [0, 3]]);

        let mut rng = TorchRng::manual_seed(42);
        let threes: Vec<Vec<usize>> =
            (0..6).map(|row| rng.multinomial(Isa::fastest(), &p[row % 2], 3).unwrap()).collect();
        assert_eq!(threes, [[1, 3, 2], [2, 3, 4], [4, 2, 3], [2, 5, 0], [1, 0, 3], [0, 2, 3]]);
    }

    // p = torch.arange(1, 1001).float(); p = (p / p.sum()).repeat(3, 1); torch.manual_seed(1234)
    // [torch.multinomial(p, 1).squeeze(1).tolist() for _ in range(4)]
    #[test]
    fn multinomial_equals_torch_across_renewals_of_the_state() {
        let p: Vec<f32> = (1..=1000_u16).map(|weight| f32::from(weight) / 500_500.0).collect();
        let mut rng = TorchRng::manual_seed(1234);
        let drawn: Vec<usize> = (0..12).map(|_| rng.multinomial(Isa::fastest(), &p, 1).unwrap()[0]).collect();
        assert_eq!(drawn, [702, 311, 690, 314, 434, 273, 987, 589, 763, 347, 641, 944]);
    }

    #[test]
    fn what_loses_without_a_logarithm_would_have_lost_with_it() {
        let (mut rng, mut slow) = (TorchRng::manual_seed(3), TorchRng::manual_seed(3));
        for row in 0..300_u32 {
            let hash = |index: u32| ((index + row).wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0;
            let p: Vec<f32> =
                (0..=row).map(|index| hash(index).powi(row as i32 % 40).max(0.1) - 0.1).collect();
            let mut expected = (0, 0.0);
            for (index, &weight) in p.iter().enumerate() {
                let ratio = weight / slow.exponential_f32();
                if ratio > expected.1 {
                    expected = (index, ratio);
                }
            }
            assert_eq!(rng.multinomial(Isa::fastest(), &p, 1).unwrap(), [expected.0]);
        }
    }

    #[test]
    fn skipping_words_equals_drawing_them() {
        for count in [0, 1, 2, 623, 624, 625, 1248, 5000] {
            let mut drawn = TorchRng::manual_seed(7);
            let mut skipped = drawn.clone();
            drawn.next_u32();
            skipped.next_u32();
            for _ in 0..count {
                drawn.next_u32();
            }
            skipped.skip(count);
            assert_eq!(drawn.next_u32(), skipped.next_u32(), "{count} words");
        }
    }
}
