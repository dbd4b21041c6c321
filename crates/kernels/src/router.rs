//! The router of a mixture of experts: from a row's scores to the experts that it takes, and back.

use super::Isa;
use super::residual::AddScaled;

/// How scores become the weights of the experts that are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// The softmax of all scores; `renormalize` divides by the sum over those that are taken.
    SoftmaxTopK {
        /// Whether the weights sum to 1.
        renormalize: bool,
    },
    /// The softmax of the scores that are taken.
    TopKSoftmax,
}

/// Takes the experts of a row: those of the largest scores, in descending order, the lower index on ties.
/// `picks` become pairs of an expert and its weight, as many as there is room for.
///
/// # Panics
/// When there are fewer scores than picks.
pub fn route(routing: Routing, scores: &mut [f32], picks: &mut [(usize, f32)]) {
    assert!(picks.len() <= scores.len(), "no expert is taken twice");
    if let Routing::SoftmaxTopK { .. } = routing {
        softmax(scores);
    }
    for taken in 0..picks.len() {
        let (done, rest) = picks.split_at_mut(taken);
        let mut best: Option<(usize, f32)> = None;
        for (expert, &score) in scores.iter().enumerate() {
            if best.is_none_or(|(_, best)| score > best) && done.iter().all(|&(other, _)| other != expert) {
                best = Some((expert, score));
            }
        }
        // No score is larger than NaN: the first that is left then.
        let left = || (0..scores.len()).find(|expert| done.iter().all(|&(other, _)| other != *expert));
        rest[0] = best.unwrap_or_else(|| (left().unwrap_or(0), f32::NAN));
    }
    match routing {
        Routing::SoftmaxTopK { renormalize: false } => {}
        Routing::SoftmaxTopK { renormalize: true } => {
            let sum: f32 = picks.iter().map(|&(_, weight)| weight).sum();
            picks.iter_mut().for_each(|(_, weight)| *weight /= sum);
        }
        Routing::TopKSoftmax => {
            let mut weights: Vec<f32> = picks.iter().map(|&(_, score)| score).collect();
            softmax(&mut weights);
            for ((_, out), weight) in picks.iter_mut().zip(weights) {
                *out = weight;
            }
        }
    }
}

/// With exponentials and sums in double precision: an expert that is taken or not changes a token.
fn softmax(scores: &mut [f32]) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponentials: Vec<f64> = scores.iter().map(|&score| f64::from(score - largest).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    for (score, exponential) in scores.iter_mut().zip(exponentials) {
        *score = (exponential / sum) as f32;
    }
}

/// `1 / (1 + exp(-x))`, rounded from double precision.
pub fn sigmoid(x: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(x)).exp())) as f32
}

/// `out += factor * x`, the product rounded before it is added.
///
/// # Panics
/// When the lengths differ.
pub fn add_weighted(isa: Isa, x: &[f32], factor: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "as many as there are");
    isa.run(AddScaled { x, factor, out });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picks(routing: Routing, scores: &[f32], k: usize) -> Vec<(usize, f32)> {
        let mut picks = vec![(0, 0.0); k];
        route(routing, &mut scores.to_vec(), &mut picks);
        picks
    }

    #[test]
    fn the_largest_scores_are_taken_and_ties_go_to_the_lower_index() {
        let plain = Routing::SoftmaxTopK { renormalize: false };
        for routing in [plain, Routing::SoftmaxTopK { renormalize: true }, Routing::TopKSoftmax] {
            let taken: Vec<_> =
                picks(routing, &[1.0, 3.0, 2.0, 3.0, -1.0], 4).iter().map(|&(e, _)| e).collect();
            assert_eq!(taken, [1, 3, 2, 0]);
            let taken = picks(routing, &[2.0; 9], 3);
            assert_eq!(taken.iter().map(|&(e, _)| e).collect::<Vec<_>>(), [0, 1, 2]);
            assert_eq!(picks(routing, &[f32::NAN; 3], 2).len(), 2);
        }
    }

    #[test]
    fn weights_are_those_of_the_softmax() {
        let scores = [0.5, 2.0, -1.0, 1.5];
        let all: f64 = scores.iter().map(|&score| f64::from(score).exp()).sum();
        let two: f64 = [2.0_f64, 1.5].iter().map(|score| score.exp()).sum();
        let near = |picks: Vec<(usize, f32)>, sum: f64| {
            for (expert, weight) in picks {
                let expected = f64::from(scores[expert]).exp() / sum;
                assert!((f64::from(weight) - expected).abs() < 1e-7, "{expert}: {weight} {expected}");
            }
        };
        near(picks(Routing::SoftmaxTopK { renormalize: false }, &scores, 2), all);
        near(picks(Routing::SoftmaxTopK { renormalize: true }, &scores, 2), two);
        near(picks(Routing::TopKSoftmax, &scores, 2), two);
    }
}
