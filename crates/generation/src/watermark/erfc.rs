//! The complementary error function, which the standard library does not have.
//!
//! Near 0 it is 1 minus a series, summed in pairs of numbers that are about twice as long as an `f64`, so
//! that nothing is lost by the subtraction. Farther out it is a continued fraction of positive terms. The
//! error is a few units of the last place.

/// `1 - erf(x)`: `2 / sqrt(pi)` times the integral of `exp(-t²)` from `x` to infinity.
pub(super) fn erfc(x: f64) -> f64 {
    match x {
        _ if x.is_nan() => x,
        _ if x >= LARGE => tail(x),
        _ if x <= -LARGE => 2.0 - tail(-x),
        _ => {
            let one_less = Pair { high: 1.0, low: 0.0 }.plus(erf(x).times(Pair { high: -1.0, low: 0.0 }));
            one_less.high + one_less.low
        }
    }
}

/// From here on the continued fraction converges fast.
const LARGE: f64 = 3.0;

/// A number as the sum of two, the second far smaller than the first.
#[derive(Clone, Copy)]
struct Pair {
    high: f64,
    low: f64,
}

/// `2 / sqrt(pi)`
const SCALE: Pair = Pair { high: std::f64::consts::FRAC_2_SQRT_PI, low: 1.533_545_961_316_588e-17 };
/// `1 / sqrt(pi)`
const TAIL_SCALE: f64 = 0.564_189_583_547_756_3;

impl Pair {
    /// The sum of two numbers, exactly.
    fn of_sum(a: f64, b: f64) -> Self {
        let high = a + b;
        let of_b = high - a;
        Self { high, low: (a - (high - of_b)) + (b - of_b) }
    }

    /// The product of two numbers, exactly.
    fn of_product(a: f64, b: f64) -> Self {
        let high = a * b;
        Self { high, low: a.mul_add(b, -high) }
    }

    fn plus(self, other: Self) -> Self {
        let sum = Self::of_sum(self.high, other.high);
        Self::of_sum(sum.high, sum.low + self.low + other.low)
    }

    fn times(self, other: Self) -> Self {
        let product = Self::of_product(self.high, other.high);
        Self::of_sum(product.high, product.low + (self.high * other.low + self.low * other.high))
    }

    fn over(self, divisor: f64) -> Self {
        let high = self.high / divisor;
        let rest = (-high).mul_add(divisor, self.high) + self.low;
        Self::of_sum(high, rest / divisor)
    }
}

/// `erf(x)`: `2 / sqrt(pi)` times the sum of `(-1)^n x^(2n + 1) / (n! (2n + 1))`.
fn erf(x: f64) -> Pair {
    let square = Pair::of_product(-x, x);
    let mut power = Pair { high: x, low: 0.0 };
    let mut sum = power;
    for n in 1..200 {
        power = power.times(square).over(f64::from(n));
        let term = power.over(f64::from(2 * n + 1));
        sum = sum.plus(term);
        if term.high.abs() <= sum.high.abs() * 1e-33 {
            break;
        }
    }
    sum.times(SCALE)
}

/// `erfc` of a large number: `exp(-x²) / sqrt(pi)` times the continued fraction
/// `1 / (x + (1/2) / (x + (2/2) / (x + …)))`.
fn tail(x: f64) -> f64 {
    const TERMS: u32 = 120;
    if x > 28.0 {
        return 0.0;
    }
    let denominator = (1..=TERMS).rev().fold(x, |rest, n| x + f64::from(n) * 0.5 / rest);
    let square = Pair::of_product(x, x);
    (-square.high).exp() * (1.0 - square.low) * TAIL_SCALE / denominator
}

#[cfg(test)]
mod tests {
    use super::*;

    // torch.special.erfc(torch.tensor([x], dtype=torch.float64)).item()
    #[test]
    fn it_is_that_of_torch_within_rounding() {
        for &(x, expected) in VALUES {
            let found = erfc(x);
            assert!(
                (found - expected).abs() <= 6.0 * f64::EPSILON * expected,
                "erfc({x}) = {found:e}, {expected:e}"
            );
        }
        assert_eq!(
            (erfc(f64::INFINITY), erfc(f64::NEG_INFINITY), erfc(40.0), erfc(0.0)),
            (0.0, 2.0, 0.0, 1.0)
        );
        assert!(erfc(f64::NAN).is_nan());
    }

    #[allow(clippy::unreadable_literal, clippy::excessive_precision, reason = "as torch prints them")]
    const VALUES: &[(f64, f64)] = &[
        (-7.0, 2.0),
        (-4.5, 1.999999999803384),
        (-3.0, 1.9999779095030015),
        (-2.9, 1.9999589021219006),
        (-1.0, 1.8427007929497148),
        (-0.3, 1.3286267594591274),
        (-1e-09, 1.0000000011283792),
        (1e-09, 0.9999999988716208),
        (0.1, 0.887537083981715),
        (0.25, 0.7236736098317631),
        (0.5, 0.4795001221869535),
        (0.75, 0.28884436634648486),
        (1.0, 0.15729920705028513),
        (1.5, 0.033894853524689274),
        (1.9, 0.0072095707647425325),
        (2.1, 0.002979466656332984),
        (2.5, 0.0004069520174449589),
        (2.99, 2.3525603080640195e-05),
        (3.0, 2.209049699858544e-05),
        (3.01, 2.0738963637132634e-05),
        (3.7, 1.6715105790914599e-07),
        (4.4, 4.891710270605872e-10),
        (5.5, 7.357847917974398e-15),
        (7.0, 4.183825607779414e-23),
        (9.9, 1.5431200214053075e-44),
        (14.0, 3.0372298477503115e-87),
        (20.0, 5.395865611607901e-176),
        (26.0, 5.663192408856143e-296),
    ];
}
