//! How panels hold the scales of blocks. A weight is `number * scale - offset`; the product is exact, so that
//! fusing it with the difference changes no bit.

use half::f16;

use crate::simd::{LANES, Simd};

/// The scales of the blocks of 32 outputs.
pub(crate) trait Scales: Copy + Send + Sync + 'static {
    /// Those of one block.
    type OfBlock: Copy;
    /// All scales 0.
    const ZERO: Self;
    /// Whether there are offsets.
    const HAS_OFFSET: bool = false;

    /// Sets those of an output's block. Returns whether they are finite.
    fn set(&mut self, lane: usize, scales: Self::OfBlock) -> bool;

    /// Those of an output's block.
    fn get(&self, lane: usize) -> Self::OfBlock;

    /// The scale of a group of a block, and its offset or what is subtracted from numbers.
    fn of_group(scales: &Self::OfBlock, group: usize) -> [f32; 2];

    /// The weight of a number, given what [`Scales::of_group`] returned.
    fn scaled(number: f32, of_group: [f32; 2]) -> f32;

    /// The weight of a number in a group of a block.
    fn weight(scales: &Self::OfBlock, group: usize, number: f32) -> f32 {
        Self::scaled(number, Self::of_group(scales, group))
    }

    /// The scale of a group of 16 outputs, and minus its offset.
    fn vectors<S: Simd>(&self, s: S, half: usize, group: usize) -> [S::F; 2];

    /// The weights of numbers, given what [`Scales::vectors`] returned.
    #[inline(always)]
    fn weights<S: Simd>(s: S, numbers: S::F, [scale, offset]: [S::F; 2]) -> S::F {
        if Self::HAS_OFFSET { s.fma(numbers, scale, offset) } else { s.mul(numbers, scale) }
    }

    /// The numbers that make a code a weight, but for rounding, given what [`Scales::vectors`] returned: a factor, and
    /// what is added.
    #[inline(always)]
    fn linear<S: Simd>(_: S, vectors: [S::F; 2]) -> [S::F; 2] {
        vectors
    }
}

/// An `f16` for each output.
type Halves = [[u16; LANES]; 2];
/// A byte for each output.
type Bytes = [[u8; LANES]; 2];

fn at<T: Copy>(lanes: &[[T; LANES]; 2], lane: usize) -> T {
    lanes[lane / LANES][lane % LANES]
}

fn put<T>(lanes: &mut [[T; LANES]; 2], lane: usize, value: T) {
    lanes[lane / LANES][lane % LANES] = value;
}

/// One scale; codes are stored `EXCESS` too large.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct One<const EXCESS: u8>(Halves);

impl<const EXCESS: u8> Scales for One<EXCESS> {
    type OfBlock = f16;
    const ZERO: Self = Self([[0; LANES]; 2]);
    const HAS_OFFSET: bool = EXCESS > 0;

    fn set(&mut self, lane: usize, scale: f16) -> bool {
        put(&mut self.0, lane, scale.to_bits());
        scale.is_finite()
    }

    fn get(&self, lane: usize) -> f16 {
        f16::from_bits(at(&self.0, lane))
    }

    fn of_group(scale: &f16, _: usize) -> [f32; 2] {
        [scale.to_f32(), f32::from(EXCESS)]
    }

    #[inline(always)]
    fn scaled(number: f32, [scale, excess]: [f32; 2]) -> f32 {
        scale * (number - excess)
    }

    #[inline(always)]
    fn vectors<S: Simd>(&self, s: S, half: usize, _: usize) -> [S::F; 2] {
        let scale = s.f16(&self.0[half]);
        [scale, s.mul(scale, s.splat(-f32::from(EXCESS)))]
    }
}

/// A scale and a minimum, which is added.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct WithMinimum([Halves; 2]);

impl Scales for WithMinimum {
    type OfBlock = [f16; 2];
    const ZERO: Self = Self([[[0; LANES]; 2]; 2]);
    const HAS_OFFSET: bool = true;

    fn set(&mut self, lane: usize, scales: [f16; 2]) -> bool {
        for (halves, scale) in self.0.iter_mut().zip(scales) {
            put(halves, lane, scale.to_bits());
        }
        scales.iter().all(|scale| scale.is_finite())
    }

    fn get(&self, lane: usize) -> [f16; 2] {
        [0, 1].map(|i| f16::from_bits(at(&self.0[i], lane)))
    }

    fn of_group(scales: &[f16; 2], _: usize) -> [f32; 2] {
        scales.map(f16::to_f32)
    }

    #[inline(always)]
    fn scaled(number: f32, [scale, minimum]: [f32; 2]) -> f32 {
        number * scale + minimum
    }

    #[inline(always)]
    fn vectors<S: Simd>(&self, s: S, half: usize, _: usize) -> [S::F; 2] {
        [s.f16(&self.0[0][half]), s.f16(&self.0[1][half])]
    }
}

/// Small integers for each group, in the units of two numbers of the block: scales and minima, which are
/// subtracted.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct TwoLevels<const GROUPS: usize> {
    units: [Halves; 2],
    integers: [[Bytes; 2]; GROUPS],
}

impl<const GROUPS: usize> Scales for TwoLevels<GROUPS> {
    type OfBlock = ([f16; 2], [[u8; 2]; GROUPS]);
    const ZERO: Self = Self { units: [[[0; LANES]; 2]; 2], integers: [[[[0; LANES]; 2]; 2]; GROUPS] };
    const HAS_OFFSET: bool = true;

    fn set(&mut self, lane: usize, (units, integers): Self::OfBlock) -> bool {
        for (halves, unit) in self.units.iter_mut().zip(units) {
            put(halves, lane, unit.to_bits());
        }
        for (bytes, integers) in self.integers.iter_mut().zip(integers) {
            put(&mut bytes[0], lane, integers[0]);
            put(&mut bytes[1], lane, integers[1]);
        }
        units.iter().all(|unit| unit.is_finite())
    }

    fn get(&self, lane: usize) -> Self::OfBlock {
        let units = [0, 1].map(|i| f16::from_bits(at(&self.units[i], lane)));
        (units, self.integers.map(|bytes| [at(&bytes[0], lane), at(&bytes[1], lane)]))
    }

    fn of_group((units, integers): &Self::OfBlock, group: usize) -> [f32; 2] {
        [0, 1].map(|i| units[i].to_f32() * f32::from(integers[group][i]))
    }

    #[inline(always)]
    fn scaled(number: f32, [scale, minimum]: [f32; 2]) -> f32 {
        number * scale - minimum
    }

    #[inline(always)]
    fn vectors<S: Simd>(&self, s: S, half: usize, group: usize) -> [S::F; 2] {
        // No `map`: what a closure of a library's function calls is not always inlined.
        let [scales, minima] = &self.integers[group];
        let (scales, minima) = (s.u8(&scales[half]), s.u8(&minima[half]));
        let minus = s.sub(s.splat(0.0), s.f16(&self.units[1][half]));
        [s.mul(s.f16(&self.units[0][half]), scales), s.mul(minus, minima)]
    }
}

/// [`TwoLevels`] with integers of 4 bits, in one byte.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct TwoSmallLevels<const GROUPS: usize> {
    units: [Halves; 2],
    integers: [Bytes; GROUPS],
}

impl<const GROUPS: usize> Scales for TwoSmallLevels<GROUPS> {
    type OfBlock = ([f16; 2], [u8; GROUPS]);
    const ZERO: Self = Self { units: [[[0; LANES]; 2]; 2], integers: [[[0; LANES]; 2]; GROUPS] };
    const HAS_OFFSET: bool = true;

    fn set(&mut self, lane: usize, (units, integers): Self::OfBlock) -> bool {
        for (halves, unit) in self.units.iter_mut().zip(units) {
            put(halves, lane, unit.to_bits());
        }
        for (bytes, integer) in self.integers.iter_mut().zip(integers) {
            put(bytes, lane, integer);
        }
        units.iter().all(|unit| unit.is_finite())
    }

    fn get(&self, lane: usize) -> Self::OfBlock {
        let units = [0, 1].map(|i| f16::from_bits(at(&self.units[i], lane)));
        (units, self.integers.map(|bytes| at(&bytes, lane)))
    }

    fn of_group((units, integers): &Self::OfBlock, group: usize) -> [f32; 2] {
        let integers = [integers[group] & 15, integers[group] >> 4];
        [0, 1].map(|i| units[i].to_f32() * f32::from(integers[i]))
    }

    #[inline(always)]
    fn scaled(number: f32, [scale, minimum]: [f32; 2]) -> f32 {
        number * scale - minimum
    }

    #[inline(always)]
    fn vectors<S: Simd>(&self, s: S, half: usize, group: usize) -> [S::F; 2] {
        let integers = &self.integers[group][half];
        let mut parts = [[0; LANES]; 2];
        for lane in 0..LANES {
            (parts[0][lane], parts[1][lane]) = (integers[lane] & 15, integers[lane] >> 4);
        }
        let minus = s.sub(s.splat(0.0), s.f16(&self.units[1][half]));
        [s.mul(s.f16(&self.units[0][half]), s.u8(&parts[0])), s.mul(minus, s.u8(&parts[1]))]
    }
}

/// A small signed integer for each group, in the unit of one number of the block; codes are stored `EXCESS`
/// too large.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Signed<const GROUPS: usize, const EXCESS: u8> {
    unit: Halves,
    integers: [[[i8; LANES]; 2]; GROUPS],
}

impl<const GROUPS: usize, const EXCESS: u8> Scales for Signed<GROUPS, EXCESS> {
    type OfBlock = (f16, [i8; GROUPS]);
    const ZERO: Self = Self { unit: [[0; LANES]; 2], integers: [[[0; LANES]; 2]; GROUPS] };
    const HAS_OFFSET: bool = EXCESS > 0;

    fn set(&mut self, lane: usize, (unit, integers): Self::OfBlock) -> bool {
        put(&mut self.unit, lane, unit.to_bits());
        for (bytes, integer) in self.integers.iter_mut().zip(integers) {
            put(bytes, lane, integer);
        }
        unit.is_finite()
    }

    fn get(&self, lane: usize) -> Self::OfBlock {
        (f16::from_bits(at(&self.unit, lane)), self.integers.map(|bytes| at(&bytes, lane)))
    }

    fn of_group((unit, integers): &Self::OfBlock, group: usize) -> [f32; 2] {
        [unit.to_f32() * f32::from(integers[group]), f32::from(EXCESS)]
    }

    #[inline(always)]
    fn scaled(number: f32, [scale, excess]: [f32; 2]) -> f32 {
        scale * (number - excess)
    }

    #[inline(always)]
    fn vectors<S: Simd>(&self, s: S, half: usize, group: usize) -> [S::F; 2] {
        let scale = s.mul(s.f16(&self.unit[half]), s.i8(&self.integers[group][half]));
        [scale, s.mul(scale, s.splat(-f32::from(EXCESS)))]
    }
}

/// A power of two, by its exponent plus 127.
#[derive(Clone, Copy)]
pub(crate) struct Exponent(Bytes);

/// The exponent of a scale that is no number.
const NAN: u8 = 255;

/// The power of two of a byte in E8M0, its exponent plus 127. NaN for 255.
#[inline(always)]
pub fn e8m0(exponent: u8) -> f32 {
    match exponent {
        // 2^-127 has no leading one.
        0 => f32::from_bits(0x0040_0000),
        NAN => f32::NAN,
        exponent => f32::from_bits(u32::from(exponent) << 23),
    }
}

impl Scales for Exponent {
    type OfBlock = u8;
    const ZERO: Self = Self([[0; LANES]; 2]);

    fn set(&mut self, lane: usize, exponent: u8) -> bool {
        put(&mut self.0, lane, exponent);
        exponent != NAN
    }

    fn get(&self, lane: usize) -> u8 {
        at(&self.0, lane)
    }

    fn of_group(exponent: &u8, _: usize) -> [f32; 2] {
        [e8m0(*exponent), 0.0]
    }

    #[inline(always)]
    fn scaled(number: f32, [scale, _]: [f32; 2]) -> f32 {
        number * scale
    }

    #[inline(always)]
    fn vectors<S: Simd>(&self, s: S, half: usize, _: usize) -> [S::F; 2] {
        let mut scales = [0.0; LANES];
        for (scale, &exponent) in scales.iter_mut().zip(&self.0[half]) {
            *scale = e8m0(exponent);
        }
        [s.load(&scales), s.splat(0.0)]
    }
}

/// A `float32`, and the code of zero.
#[derive(Clone, Copy)]
pub(crate) struct ZeroPoint {
    scales: [[f32; LANES]; 2],
    zeros: Bytes,
}

impl Scales for ZeroPoint {
    type OfBlock = (f32, u8);
    const ZERO: Self = Self { scales: [[0.0; LANES]; 2], zeros: [[0; LANES]; 2] };

    fn set(&mut self, lane: usize, (scale, zero): (f32, u8)) -> bool {
        put(&mut self.scales, lane, scale);
        put(&mut self.zeros, lane, zero);
        scale.is_finite()
    }

    fn get(&self, lane: usize) -> (f32, u8) {
        (at(&self.scales, lane), at(&self.zeros, lane))
    }

    fn of_group(&(scale, zero): &(f32, u8), _: usize) -> [f32; 2] {
        [scale, f32::from(zero)]
    }

    #[inline(always)]
    fn scaled(number: f32, [scale, zero]: [f32; 2]) -> f32 {
        (number - zero) * scale
    }

    #[inline(always)]
    fn vectors<S: Simd>(&self, s: S, half: usize, _: usize) -> [S::F; 2] {
        [s.load(&self.scales[half]), s.u8(&self.zeros[half])]
    }

    #[inline(always)]
    fn weights<S: Simd>(s: S, numbers: S::F, [scale, zero]: [S::F; 2]) -> S::F {
        s.mul(s.sub(numbers, zero), scale)
    }

    #[inline(always)]
    fn linear<S: Simd>(s: S, [scale, zero]: [S::F; 2]) -> [S::F; 2] {
        [scale, s.mul(scale, s.sub(s.splat(0.0), zero))]
    }
}

/// A `float32` and a minimum, which is added to the rounded product.
#[derive(Clone, Copy)]
pub(crate) struct FloatMinimum([[[f32; LANES]; 2]; 2]);

impl Scales for FloatMinimum {
    type OfBlock = [f32; 2];
    const ZERO: Self = Self([[[0.0; LANES]; 2]; 2]);

    fn set(&mut self, lane: usize, scales: [f32; 2]) -> bool {
        self.0.iter_mut().zip(scales).for_each(|(lanes, scale)| put(lanes, lane, scale));
        scales.iter().all(|scale| scale.is_finite())
    }

    fn get(&self, lane: usize) -> [f32; 2] {
        self.0.each_ref().map(|lanes| at(lanes, lane))
    }

    fn of_group(scales: &[f32; 2], _: usize) -> [f32; 2] {
        *scales
    }

    #[inline(always)]
    fn scaled(number: f32, [scale, minimum]: [f32; 2]) -> f32 {
        number * scale + minimum
    }

    #[inline(always)]
    fn vectors<S: Simd>(&self, s: S, half: usize, _: usize) -> [S::F; 2] {
        [s.load(&self.0[0][half]), s.load(&self.0[1][half])]
    }

    #[inline(always)]
    fn weights<S: Simd>(s: S, numbers: S::F, [scale, minimum]: [S::F; 2]) -> S::F {
        s.add(s.mul(numbers, scale), minimum)
    }
}

/// A `float32`. With `PER_127`, it is the largest weight, which 127 stands for, and codes are 128 too large.
#[derive(Clone, Copy)]
pub(crate) struct Float<const PER_127: bool>([[f32; LANES]; 2]);

impl<const PER_127: bool> Float<PER_127> {
    const INVERSE: f32 = 1.0 / 127.0;
}

impl<const PER_127: bool> Scales for Float<PER_127> {
    type OfBlock = f32;
    const ZERO: Self = Self([[0.0; LANES]; 2]);

    fn set(&mut self, lane: usize, scale: f32) -> bool {
        put(&mut self.0, lane, scale);
        scale.is_finite()
    }

    fn get(&self, lane: usize) -> f32 {
        at(&self.0, lane)
    }

    fn of_group(scale: &f32, _: usize) -> [f32; 2] {
        [*scale, 0.0]
    }

    #[inline(always)]
    fn scaled(number: f32, [scale, _]: [f32; 2]) -> f32 {
        if PER_127 { (number - 128.0) * scale * Self::INVERSE } else { number * scale }
    }

    #[inline(always)]
    fn vectors<S: Simd>(&self, s: S, half: usize, _: usize) -> [S::F; 2] {
        [s.load(&self.0[half]), s.splat(0.0)]
    }

    #[inline(always)]
    fn weights<S: Simd>(s: S, numbers: S::F, [scale, _]: [S::F; 2]) -> S::F {
        if PER_127 {
            let integers = s.sub(numbers, s.splat(128.0));
            s.mul(s.mul(integers, scale), s.splat(Self::INVERSE))
        } else {
            s.mul(numbers, scale)
        }
    }

    #[inline(always)]
    fn linear<S: Simd>(s: S, [scale, none]: [S::F; 2]) -> [S::F; 2] {
        if !PER_127 {
            return [scale, none];
        }
        let scale = s.mul(scale, s.splat(Self::INVERSE));
        [scale, s.mul(scale, s.splat(-128.0))]
    }
}
