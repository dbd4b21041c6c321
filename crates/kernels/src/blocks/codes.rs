//! How panels hold codes: in planes of some bits each.

use crate::simd::{LANES, Simd};

/// The codes of the blocks of 32 outputs.
pub(crate) trait Codes: Copy + Send + Sync + 'static {
    /// All codes 0.
    const ZERO: Self;

    /// The bits of a code.
    const BITS: u32;

    /// Sets the codes of an output's block.
    fn set(&mut self, lane: usize, codes: &[u8]);

    /// The code of a weight.
    fn get(&self, lane: usize, i: usize) -> u8;

    /// Those of a weight of 16 outputs.
    fn vector<S: Simd>(&self, s: S, half: usize, i: usize) -> S::I;

    /// Those of four weights from weight `i` on, a multiple of 4, of 16 outputs: a byte each.
    fn fours<S: Simd>(&self, s: S, half: usize, i: usize) -> S::I;
}

/// `BITS` bits of each code in words of 32 bits, `[word][half][lane]`. The weights of a word are those of four
/// bytes in turn: weight 0 has the low bits of the first byte, weight 3 those of the last, weight 4 the next
/// bits of the first.
#[derive(Clone, Copy)]
pub(crate) struct Plane<const BITS: u32, const WORDS: usize>([[[u32; LANES]; 2]; WORDS]);

impl<const BITS: u32, const WORDS: usize> Plane<BITS, WORDS> {
    const CODES: usize = 32 / BITS as usize;
    const MASK: u32 = (1 << BITS) - 1;

    /// Where the bits of a weight begin in its word.
    #[inline(always)]
    const fn shift(i: usize) -> u32 {
        let i = i % Self::CODES;
        (8 * (i % 4) + BITS as usize * (i / 4)) as u32
    }
}

impl<const BITS: u32, const WORDS: usize> Codes for Plane<BITS, WORDS> {
    const ZERO: Self = Self([[[0; LANES]; 2]; WORDS]);
    const BITS: u32 = BITS;

    fn set(&mut self, lane: usize, codes: &[u8]) {
        for (word, codes) in self.0.iter_mut().zip(codes.chunks_exact(Self::CODES)) {
            let (mut bits, (fours, _)) = (0, codes.as_chunks::<4>());
            for (k, &four) in fours.iter().enumerate() {
                bits |= (u32::from_le_bytes(four) & (Self::MASK * 0x0101_0101)) << (BITS * k as u32);
            }
            word[lane / LANES][lane % LANES] = bits;
        }
    }

    fn get(&self, lane: usize, i: usize) -> u8 {
        let word = self.0[i / Self::CODES][lane / LANES][lane % LANES];
        (word >> Self::shift(i) & Self::MASK) as u8
    }

    #[inline(always)]
    fn vector<S: Simd>(&self, s: S, half: usize, i: usize) -> S::I {
        s.bits(&self.0[i / Self::CODES][half], Self::shift(i), Self::MASK)
    }

    #[inline(always)]
    fn fours<S: Simd>(&self, s: S, half: usize, i: usize) -> S::I {
        s.bits(&self.0[i / Self::CODES][half], Self::shift(i), Self::MASK * 0x0101_0101)
    }
}

/// Codes whose low bits, `BITS` of them, are in one plane and the others in a second one.
#[derive(Clone, Copy)]
pub(crate) struct Joined<const BITS: u32, L, H>(L, H);

impl<const BITS: u32, L: Codes, H: Codes> Codes for Joined<BITS, L, H> {
    const ZERO: Self = Self(L::ZERO, H::ZERO);
    const BITS: u32 = BITS + H::BITS;

    fn set(&mut self, lane: usize, codes: &[u8]) {
        self.0.set(lane, codes);
        let mut high = [0; super::MOST_ELEMENTS];
        for (high, &code) in high.iter_mut().zip(codes) {
            *high = code >> BITS;
        }
        self.1.set(lane, &high[..codes.len()]);
    }

    fn get(&self, lane: usize, i: usize) -> u8 {
        self.0.get(lane, i) | self.1.get(lane, i) << BITS
    }

    #[inline(always)]
    fn vector<S: Simd>(&self, s: S, half: usize, i: usize) -> S::I {
        s.join::<BITS>(self.0.vector(s, half, i), self.1.vector(s, half, i))
    }

    #[inline(always)]
    fn fours<S: Simd>(&self, s: S, half: usize, i: usize) -> S::I {
        s.join::<BITS>(self.0.fours(s, half, i), self.1.fours(s, half, i))
    }
}
