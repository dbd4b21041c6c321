//! Speculative sampling (Leviathan et al., arXiv:2211.17192, algorithm 1) as transformers has it: accepts
//! drafted tokens so that the output is distributed as that of the model alone.
//!
//! With a weight of the ensemble the model's distribution is mixed with the assistant's (arXiv:2604.07622).

use rsgen_kernels::torch_reduce;

/// Whether a drafted token is accepted: `p` is its probability to the model, `q` to the assistant, and `r` a
/// number drawn from [0, 1).
pub(super) fn accepts(r: f32, p: f32, q: f32, ensemble_weight: Option<f64>) -> bool {
    let ratio = p / q;
    let ratio = match ensemble_weight {
        Some(weight) => (1.0 - weight) as f32 + weight as f32 * ratio,
        None => ratio,
    };
    r <= ratio
}

/// Makes of the model's probabilities `p` after a rejected token those that the token in its place is drawn
/// from: what they exceed the assistant's `q` by. They stay as they are when that is nothing, which rounding
/// alone can bring about.
pub(super) fn residual(p: &mut [f32], q: &[f32]) {
    let excess = |(&p, &q): (&f32, &f32)| (p - q).max(0.0);
    let differences: Vec<f32> = p.iter().zip(q).map(excess).collect();
    let sum = torch_reduce::sum(&differences);
    if sum > f32::MIN_POSITIVE {
        p.iter_mut().zip(&differences).for_each(|(p, difference)| *p = difference / sum);
    }
}

/// The mixture of the ensemble, in place of the model's probabilities `p`.
pub(super) fn mix(p: &mut [f32], q: &[f32], weight: f64) {
    let (of_p, of_q) = (weight as f32, (1.0 - weight) as f32);
    p.iter_mut().zip(q).for_each(|(p, q)| *p = of_p * *p + of_q * q);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_accepted_as_often_as_the_model_is_as_sure_as_the_assistant() {
        assert!(accepts(0.99, 0.5, 0.4, None), "more probable to the model");
        assert!(accepts(0.5, 0.2, 0.4, None) && !accepts(0.51, 0.2, 0.4, None));
        assert!(
            !accepts(0.0001, 0.0, 0.4, None) && accepts(0.0, 0.0, 0.4, None),
            "as transformers: r <= ratio"
        );
        assert!(accepts(0.75, 0.2, 0.4, Some(0.5)) && !accepts(0.76, 0.2, 0.4, Some(0.5)));
    }

    #[test]
    fn after_a_rejection_the_excess_of_the_model_is_drawn_from() {
        let mut p = [0.5, 0.25, 0.25];
        residual(&mut p, &[0.25, 0.75, 0.0]);
        assert_eq!(p, [0.5, 0.0, 0.5]);
        let mut same = [0.5, 0.5];
        residual(&mut same, &[0.5, 0.5]);
        assert_eq!(same, [0.5, 0.5]);
    }

    #[test]
    fn the_mixture_weighs_the_model() {
        let mut p = [1.0, 0.0];
        mix(&mut p, &[0.0, 1.0], 0.75);
        assert_eq!(p, [0.75, 0.25]);
    }
}
