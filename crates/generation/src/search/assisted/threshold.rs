//! The probability below which a draft ends, and its adaptation: transformers'
//! `assistant_confidence_threshold`.

/// The threshold of one row.
#[derive(Debug, Clone)]
pub(super) struct ConfidenceThreshold {
    /// 0 for none.
    threshold: f64,
    adapts: bool,
    /// The probability of each drafted token up to the first rejected one of its draft, and whether it was
    /// accepted.
    drafted: Vec<(f64, bool)>,
    /// The probabilities of the draft that is being checked.
    newest: Vec<f64>,
}

/// How many drafted tokens have to be known before the threshold adapts: more than these.
const MIN_DRAFTED: usize = 5;
/// The cost of a token that would be accepted but is not drafted; that of a rejected token is 1.
const FALSE_NEGATIVE_COST: f64 = 3.0;

impl ConfidenceThreshold {
    /// A threshold, 0 for none. transformers adapts it for a draft model alone.
    pub(super) fn new(threshold: f64, adapts: bool) -> Self {
        Self { threshold, adapts, drafted: Vec::new(), newest: Vec::new() }
    }

    /// Whether there is a threshold, so that probabilities have to be known.
    pub(super) fn is_on(&self) -> bool {
        self.threshold > 0.0
    }

    /// Whether a probability is below it.
    pub(super) fn is_above(&self, probability: f64) -> bool {
        probability < self.threshold
    }

    /// Takes note of a drafted token; whether the draft ends with it.
    pub(super) fn push(&mut self, probability: f32) -> bool {
        self.newest.push(f64::from(probability));
        self.is_above(f64::from(probability))
    }

    /// Takes note of how many tokens of the draft were accepted, and adapts.
    pub(super) fn update(&mut self, accepted: usize) {
        if !self.adapts {
            self.newest.clear();
            return;
        }
        let checked = self.newest.drain(..).take(accepted + 1).enumerate();
        self.drafted.extend(checked.map(|(index, probability)| (probability, index < accepted)));
        if self.drafted.len() > MIN_DRAFTED {
            self.threshold = best_threshold(&self.drafted).unwrap_or(self.threshold);
        }
    }
}

/// The threshold of the point on the ROC curve of `drafted` (probability, accepted) with the least cost: the
/// false positive rate plus three times the false negative rate; the highest of equals. `None` when all or
/// none were accepted.
///
/// The points are those of scikit-learn's `roc_curve`: one for each probability, without those on a straight
/// line between others.
fn best_threshold(drafted: &[(f64, bool)]) -> Option<f64> {
    let mut sorted = drafted.to_vec();
    sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut accepted, mut rejected) = (0_usize, 0_usize);
    let mut points: Vec<(f64, usize, usize)> = Vec::new();
    for (probability, is_accepted) in sorted {
        *(if is_accepted { &mut accepted } else { &mut rejected }) += 1;
        match points.last_mut() {
            Some(last) if last.0 == probability => (last.1, last.2) = (accepted, rejected),
            _ => points.push((probability, accepted, rejected)),
        }
    }
    if accepted == 0 || rejected == 0 {
        return None;
    }
    let is_corner = |index: usize| {
        let at = |index: usize| (points[index].1 as isize, points[index].2 as isize);
        if index == 0 || index + 1 == points.len() {
            return true;
        }
        let (before, here, after) = (at(index - 1), at(index), at(index + 1));
        after.0 - here.0 != here.0 - before.0 || after.1 - here.1 != here.1 - before.1
    };
    let mut best: Option<(f64, f64)> = None;
    for (index, &(probability, true_positives, false_positives)) in points.iter().enumerate() {
        let false_negative_rate = 1.0 - true_positives as f64 / accepted as f64;
        let cost = false_positives as f64 / rejected as f64 + FALSE_NEGATIVE_COST * false_negative_rate;
        if is_corner(index) && best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, probability));
        }
    }
    best.map(|(_, probability)| probability)
}

#[cfg(test)]
mod tests {
    use super::*;

    // sklearn.metrics.roc_curve and AssistedCandidateGenerator.update_candidate_strategy
    #[test]
    fn the_threshold_separates_accepted_tokens_from_rejected_ones_at_the_least_cost() {
        let of = |pairs: &[(f64, u8)]| {
            best_threshold(
                &pairs.iter().map(|&(probability, match_)| (probability, match_ == 1)).collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(&[(0.9, 1), (0.8, 1), (0.7, 1), (0.3, 0), (0.2, 0)]), Some(0.7));
        assert_eq!(of(&[(0.9, 1), (0.2, 1), (0.3, 0)]), Some(0.2), "a lost token costs three times as much");
        assert_eq!(of(&[(0.5, 1), (0.5, 0)]), Some(0.5));
        assert_eq!(of(&[(0.9, 1), (0.8, 1)]), None);
        assert_eq!(of(&[(0.9, 0), (0.8, 0)]), None);
    }

    #[test]
    fn tokens_after_the_first_rejected_one_do_not_count() {
        let mut threshold = ConfidenceThreshold::new(0.4, true);
        assert!(!threshold.push(0.9) && !threshold.push(0.5) && threshold.push(0.3));
        threshold.update(1);
        assert_eq!(threshold.drafted, [(f64::from(0.9_f32), true), (f64::from(0.5_f32), false)]);
        for _ in 0..4 {
            threshold.push(0.7);
            threshold.update(1);
        }
        assert_eq!(threshold.threshold, f64::from(0.7_f32), "from six tokens on it adapts");
        assert!(threshold.push(0.6));
        threshold.update(0);

        let mut fixed = ConfidenceThreshold::new(0.4, false);
        for _ in 0..9 {
            fixed.push(0.7);
            fixed.push(0.6);
            fixed.update(1);
        }
        assert_eq!(fixed.threshold, 0.4, "that of an early exit does not adapt");
        assert!(!ConfidenceThreshold::new(0.0, true).is_on());
    }
}
