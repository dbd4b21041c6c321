//! The activations of a decoder's MLP, alone or between a gate and an up projection.

use super::math::{erf_of_positive, exp, exp_m1};
use super::simd::{Simd, SimdOp};
use super::{Isa, Workers};

/// An activation of single numbers, with the names of transformers' `ACT2FN`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `silu`, `swish`: `x / (1 + exp(-x))`.
    Silu,
    /// `quick_gelu`: `x / (1 + exp(-1.702 x))`.
    QuickGelu,
    /// `gelu_new`, `gelu_fast`, `gelu_pytorch_tanh`: `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`.
    GeluTanh,
    /// `gelu`: `x (1 + erf(x / sqrt(2))) / 2`.
    Gelu,
    /// `relu`: `max(x, 0)`.
    Relu,
    /// `relu2`: `max(x, 0)^2`.
    Relu2,
    /// `xielu` (Huang and Schlag, arXiv:2411.13010), with its learned factors.
    Xielu {
        /// That of `x^2`, above 0.
        positive: f32,
        /// That of `exp(x) - 1 - x`, below 0.
        negative: f32,
    },
}

/// An activation of a gate that is multiplied with an up projection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GatedActivation {
    /// [`Activation::Silu`].
    Silu,
    /// [`Activation::GeluTanh`].
    GeluTanh,
    /// [`Activation::QuickGelu`].
    QuickGelu,
    /// `(up + 1) * gate / (1 + exp(-alpha gate))`, where `gate` is at most, and `up` within, `limit`.
    SwigluOai {
        /// The factor of the gate.
        alpha: f32,
        /// The largest gate and up.
        limit: f32,
    },
}

/// `x / (1 + exp(-z))`, where `z = x (linear + cubic x^2)`: 2 tanh is a sigmoid, so these are all activations
/// but a few.
const QUICK: [f32; 2] = [1.702, 0.0];
const TANH: [f32; 2] = [1.595_769_2, 0.071_354_82];

#[inline(always)]
fn sigmoid_times<S: Simd>(s: S, x: S::F, [linear, cubic]: [f32; 2]) -> S::F {
    over_exp(s, x, s.mul(x, s.fma(s.splat(cubic), s.mul(x, x), s.splat(linear))))
}

/// `x / (1 + exp(-z))`
#[inline(always)]
fn over_exp<S: Simd>(s: S, x: S::F, z: S::F) -> S::F {
    let e = exp(s, s.sub(s.splat(0.0), z));
    s.div(x, s.add(s.splat(1.0), e))
}

impl Activation {
    /// The activation of 16 numbers.
    #[inline(always)]
    pub(super) fn apply<S: Simd>(self, s: S, x: S::F) -> S::F {
        let zero = s.splat(0.0);
        match self {
            Self::Silu => over_exp(s, x, x),
            Self::QuickGelu => sigmoid_times(s, x, QUICK),
            Self::GeluTanh => sigmoid_times(s, x, TANH),
            Self::Gelu => {
                let size = s.max(x, s.sub(zero, x));
                let erf = erf_of_positive(s, s.mul(size, s.splat(std::f32::consts::FRAC_1_SQRT_2)));
                s.mul(s.splat(0.5), s.fma(size, erf, x))
            }
            Self::Relu => s.max(x, zero),
            Self::Relu2 => s.mul(s.max(x, zero), s.max(x, zero)),
            Self::Xielu { positive, negative } => {
                let (above, below) = (s.max(x, zero), s.min(x, zero));
                let curve = s.mul(s.sub(exp_m1(s, below), below), s.splat(negative));
                let square = s.mul(s.splat(positive), s.mul(above, above));
                s.add(s.add(square, curve), s.mul(s.splat(0.5), x))
            }
        }
    }
}

impl GatedActivation {
    /// Gates times ups.
    #[inline(always)]
    pub(super) fn apply<S: Simd>(self, s: S, mut gate: S::F, mut up: S::F) -> S::F {
        let (mut linear, mut cubic) = (1.0, 0.0);
        match self {
            Self::Silu => {}
            Self::GeluTanh => [linear, cubic] = TANH,
            Self::QuickGelu => [linear, cubic] = QUICK,
            Self::SwigluOai { alpha, limit } => {
                linear = alpha;
                gate = s.min(s.splat(limit), gate);
                up = s.add(s.max(s.splat(-limit), s.min(s.splat(limit), up)), s.splat(1.0));
            }
        }
        let z = if self == Self::Silu {
            gate
        } else {
            s.mul(gate, s.fma(s.splat(cubic), s.mul(gate, gate), s.splat(linear)))
        };
        s.mul(over_exp(s, gate, z), up)
    }
}

/// Replaces each number by `cap * tanh(x / cap)`, on all threads.
pub fn soft_cap(workers: &Workers, x: &mut [f32], cap: f32) {
    const CHUNK: usize = 1 << 14;
    let isa = workers.isa();
    workers.for_each_chunk(x, CHUNK, |_, x| each(isa, x, SoftCap(cap)));
}

/// `cap * tanh(x / cap)`
#[derive(Clone, Copy)]
pub(super) struct SoftCap(pub(super) f32);

impl SoftCap {
    #[inline(always)]
    pub(super) fn apply<S: Simd>(self, s: S, x: S::F) -> S::F {
        /// Beyond this, `tanh` is 1.
        const ONE: f32 = 10.0;
        let x = s.div(x, s.splat(self.0));
        let x = s.min(s.splat(ONE), s.max(s.splat(-ONE), x));
        let e = exp_m1(s, s.add(x, x));
        s.mul(s.div(e, s.add(e, s.splat(2.0))), s.splat(self.0))
    }
}

/// A function of single numbers.
trait Elementwise: Copy {
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F;
}

impl Elementwise for SoftCap {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
        self.apply(s, x)
    }
}

fn each(isa: Isa, x: &mut [f32], function: impl Elementwise) {
    isa.run(Each { x, function });
}

struct Each<'a, T> {
    x: &'a mut [f32],
    function: T,
}

impl<T: Elementwise> SimdOp for Each<'_, T> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) {
        let (full, rest) = self.x.as_chunks_mut();
        for vector in full {
            s.store(self.function.of(s, s.load(vector)), vector);
        }
        if !rest.is_empty() {
            let mut padded = [0.0; crate::simd::LANES];
            padded[..rest.len()].copy_from_slice(rest);
            s.store(self.function.of(s, s.load(&padded)), &mut padded);
            rest.copy_from_slice(&padded[..rest.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar;
    use crate::simd::LANES;

    impl Elementwise for Activation {
        #[inline(always)]
        fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
            self.apply(s, x)
        }
    }

    const ALL: [Activation; 8] = [
        Activation::Silu,
        Activation::QuickGelu,
        Activation::GeluTanh,
        Activation::Gelu,
        Activation::Relu,
        Activation::Relu2,
        Activation::Xielu { positive: 0.8, negative: 1.3 },
        Activation::Xielu { positive: 3.0, negative: 0.6 },
    ];

    /// The function of each number, the same on every instruction set.
    fn on_every_isa(x: &[f32], function: impl Elementwise) -> Vec<f32> {
        let apply = |isa| {
            let mut x = x.to_vec();
            each(isa, &mut x, function);
            x
        };
        let results: Vec<_> = Isa::available().into_iter().map(apply).collect();
        assert!(results.iter().all(|other| *other == results[0]));
        results[0].clone()
    }

    fn numbers() -> Vec<f32> {
        (-60_000..60_007).map(|i| i as f32 * 2e-4).collect()
    }

    #[test]
    fn activations_equal_their_twins() {
        let x = numbers();
        for kind in ALL {
            for (&x, y) in x.iter().zip(on_every_isa(&x, kind)) {
                let expected = scalar::activation(kind, f64::from(x));
                // torch adds 1 to a number near -1 as well, and loses as many digits.
                let error = (f64::from(y) - expected).abs();
                let most = 3e-7 * expected.abs().max(f64::from(x).abs()).max(1e-3);
                assert!(error <= most, "{kind:?}({x}) is {y}, not {expected}");
            }
        }
    }

    #[test]
    fn a_soft_cap_bends_like_tanh() {
        let x = numbers();
        for cap in [0.5, 3.0, 30.0, 50.0] {
            for (&x, y) in x.iter().zip(on_every_isa(&x, SoftCap(cap))) {
                let expected = f64::from(cap) * (f64::from(x) / f64::from(cap)).tanh();
                assert!((f64::from(y) - expected).abs() <= 4e-7 * expected.abs(), "{x}: {y} {expected}");
            }
        }
    }

    struct Gates(GatedActivation, [f32; LANES], [f32; LANES]);

    impl SimdOp for Gates {
        type Output = [f32; LANES];

        #[inline(always)]
        fn eval<S: Simd>(self, s: S) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            s.store(self.0.apply(s, s.load(&self.1), s.load(&self.2)), &mut out);
            out
        }
    }

    #[test]
    fn gates_equal_their_twins_and_are_equal_on_every_instruction_set() {
        let oai = GatedActivation::SwigluOai { alpha: 1.702, limit: 4.0 };
        for kind in [GatedActivation::Silu, GatedActivation::GeluTanh, GatedActivation::QuickGelu, oai] {
            for start in -100..100 {
                let gate: [f32; LANES] = std::array::from_fn(|lane| start as f32 * 0.1 + lane as f32 * 0.07);
                let up: [f32; LANES] = std::array::from_fn(|lane| (lane as f32 * 0.9).sin() * 30.0);
                let mut expected = [0.0; LANES];
                scalar::gated(kind, &[gate, up].concat(), LANES, &mut expected);
                let results: Vec<_> =
                    Isa::available().into_iter().map(|isa| isa.run(Gates(kind, gate, up))).collect();
                for lane in 0..LANES {
                    let error = (results[0][lane] - expected[lane]).abs();
                    assert!(error <= 4e-6 * expected[lane].abs().max(1e-3), "{}: {error}", gate[lane]);
                }
                assert!(results.iter().all(|other| *other == results[0]));
            }
        }
    }
}
