//! Reductions of a slice to one number in a fixed order: element `i` goes to lane `i % 16`, and the lanes are
//! then combined as a tree. So the result does not depend on the width of the machine's registers.

use super::simd::{LANES, Simd};

/// The sum of 16 lanes, pairwise: lane `i` with lane `i + 8`, then 4, 2 and 1.
#[inline(always)]
pub(crate) fn sum_lanes<S: Simd>(s: S, lanes: S::F) -> f32 {
    let lanes = s.add(lanes, s.swap::<8>(lanes));
    let lanes = s.add(lanes, s.swap::<4>(lanes));
    let lanes = s.add(lanes, s.swap::<2>(lanes));
    first_lane(s, s.add(lanes, s.swap::<1>(lanes)))
}

/// The largest of 16 lanes. A NaN may be passed over.
#[inline(always)]
pub(crate) fn max_lanes<S: Simd>(s: S, lanes: S::F) -> f32 {
    let lanes = s.max(lanes, s.swap::<8>(lanes));
    let lanes = s.max(lanes, s.swap::<4>(lanes));
    let lanes = s.max(lanes, s.swap::<2>(lanes));
    first_lane(s, s.max(lanes, s.swap::<1>(lanes)))
}

#[inline(always)]
fn first_lane<S: Simd>(s: S, lanes: S::F) -> f32 {
    let mut values = [0.0; LANES];
    s.store(lanes, &mut values);
    values[0]
}

/// Splits into full vectors and a last one that is padded with `fill`.
#[inline(always)]
pub(crate) fn vectors(x: &[f32], fill: f32) -> (&[[f32; LANES]], Option<[f32; LANES]>) {
    let (full, rest) = x.as_chunks::<LANES>();
    let last = (!rest.is_empty()).then(|| {
        let mut padded = [fill; LANES];
        padded[..rest.len()].copy_from_slice(rest);
        padded
    });
    (full, last)
}

/// The largest element; `-inf` for an empty slice. A NaN may be passed over, but not by the sums that follow
/// it.
#[inline(always)]
pub(crate) fn max<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (full, last) = vectors(x, f32::NEG_INFINITY);
    let mut lanes = s.splat(f32::NEG_INFINITY);
    for vector in full.iter().chain(&last) {
        lanes = s.max(lanes, s.load(vector));
    }
    max_lanes(s, lanes)
}

/// The sum of the squares.
#[inline(always)]
pub(crate) fn sum_of_squares<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (full, last) = vectors(x, 0.0);
    let mut lanes = s.splat(0.0);
    for vector in full.iter().chain(&last) {
        let v = s.load(vector);
        lanes = s.fma(v, v, lanes);
    }
    sum_lanes(s, lanes)
}

/// The sum of the elements.
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (full, last) = vectors(x, 0.0);
    let mut lanes = s.splat(0.0);
    for vector in full.iter().chain(&last) {
        lanes = s.add(lanes, s.load(vector));
    }
    sum_lanes(s, lanes)
}

/// The sum of the squares of the differences from a number.
#[inline(always)]
pub(crate) fn sum_of_squared_differences<S: Simd>(s: S, x: &[f32], from: f32) -> f32 {
    let (full, last) = vectors(x, from);
    let mut lanes = s.splat(0.0);
    for vector in full.iter().chain(&last) {
        let v = s.sub(s.load(vector), s.splat(from));
        lanes = s.fma(v, v, lanes);
    }
    sum_lanes(s, lanes)
}
