//! The adapters that a row is computed with, by their numbers.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};

/// An adapter that is loaded beside a model: another number for each that is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(pub u64);

/// Adapters and the weights that their products are added with; empty for the model alone.
///
/// Each is there once, in the order of the numbers, and none has weight 0: so two are equal when they change a
/// model alike.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AdapterWeights(Arc<[(AdapterId, f32)]>);

impl AdapterWeights {
    /// The weights of an adapter that is given several times add up.
    ///
    /// # Errors
    /// `Input` when a weight, or the sum of those of one adapter, is not finite in float32.
    pub fn new(given: impl IntoIterator<Item = (AdapterId, f64)>) -> Result<Self> {
        let mut all: Vec<(AdapterId, f64)> = given.into_iter().collect();
        all.sort_by_key(|&(id, _)| id);
        all.dedup_by(|next, first| {
            let is_same = next.0 == first.0;
            first.1 += if is_same { next.1 } else { 0.0 };
            is_same
        });
        let weights = all.into_iter().map(|(id, weight)| (id, weight as f32));
        let weights: Arc<[_]> = weights.filter(|&(_, weight)| weight != 0.0).collect();
        match weights.iter().find(|(_, weight)| !weight.is_finite()) {
            None => Ok(Self(weights)),
            Some((_, weight)) => Err(Error::input(format!(
                "must have weights that are finite numbers in float32, and so must be the sum of those of one adapter, got \
                 {weight}"
            ))
            .about("adapter")),
        }
    }

    /// The adapters with their weights.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (AdapterId, f32)> {
        self.0.iter().copied()
    }

    /// Whether it is the model alone.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A text that differs between different ones: `3`, or `3*0.5+7` with other weights than 1.
impl fmt::Display for AdapterWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (AdapterId(id), weight)) in self.iter().enumerate() {
            let plus = if index == 0 { "" } else { "+" };
            write!(f, "{plus}{id}")?;
            if weight != 1.0 {
                write!(f, "*{weight}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(given: &[(u64, f64)]) -> Result<AdapterWeights> {
        AdapterWeights::new(given.iter().map(|&(id, weight)| (AdapterId(id), weight)))
    }

    #[test]
    fn what_changes_a_model_alike_is_equal() {
        let expected = weights(&[(3, 0.5), (7, 1.0)]).unwrap();
        assert_eq!(expected.to_string(), "3*0.5+7");
        for given in [
            &[(7, 1.0), (3, 0.5)][..],
            &[(3, 0.25), (7, 1.0), (3, 0.25)],
            &[(2, 0.0), (3, 0.5), (7, 1.0), (9, -0.0), (9, 1e-60)],
            &[(3, 0.5), (8, 2.0), (7, 1.0), (8, -2.0)],
        ] {
            assert_eq!(weights(given).unwrap(), expected);
        }
        assert_ne!(weights(&[(3, 0.5), (7, -1.0)]).unwrap(), expected);
        assert!(weights(&[(3, 1.0), (3, -1.0)]).unwrap().is_empty());
        assert_eq!(weights(&[]).unwrap(), AdapterWeights::default());
    }

    #[test]
    fn weights_are_finite_and_so_are_their_sums() {
        let bad: [&[(u64, f64)]; 5] = [
            &[(1, f64::NAN)],
            &[(1, f64::INFINITY)],
            &[(1, -1e39)],
            &[(1, 3e38), (1, 3e38)],
            &[(1, f64::INFINITY), (1, f64::NEG_INFINITY)],
        ];
        for given in bad {
            assert!(weights(given).unwrap_err().to_string().contains("finite"), "{given:?}");
        }
    }
}
