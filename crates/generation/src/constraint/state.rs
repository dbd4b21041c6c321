//! Several constraints at once: which are fulfilled, which one is in progress, which are pending.

use rsgen_core::{Result, TokenId};

use super::{Constraint, Constraints};

/// transformers' `ConstraintListState`. Its state depends only on the tokens of a sequence, prompt included.
pub(crate) struct ConstraintListState {
    /// The number of constraints that are fulfilled.
    complete: usize,
    in_progress: Option<Box<dyn Constraint>>,
    pending: Vec<Box<dyn Constraint>>,
    max_steps: usize,
}

impl ConstraintListState {
    /// After these tokens.
    pub(crate) fn after(constraints: &Constraints, tokens: &[TokenId]) -> Result<Self> {
        let mut state = Self {
            complete: 0,
            in_progress: None,
            pending: constraints.iter().map(|constraint| constraint.fresh()).collect::<Result<_>>()?,
            max_steps: constraints.iter().map(|constraint| constraint.max_steps()).max().unwrap_or(0),
        };
        for &token in tokens {
            if state.is_completed() {
                break;
            }
            state.add(token)?;
        }
        Ok(state)
    }

    /// Whether all constraints are fulfilled.
    pub(crate) fn is_completed(&self) -> bool {
        self.pending.is_empty() && self.in_progress.is_none()
    }

    /// The progress of all constraints together.
    pub(crate) fn bank(&self) -> Result<usize> {
        let steps = match &self.in_progress {
            Some(constraint) => self.max_steps - constraint.remaining()?.min(self.max_steps),
            None => 0,
        };
        Ok(self.complete * self.max_steps + steps)
    }

    /// The tokens that would advance the constraint in progress, or else any pending one.
    pub(crate) fn advance(&self) -> Result<Vec<TokenId>> {
        if let Some(constraint) = &self.in_progress {
            return constraint.advance();
        }
        let tokens = self.pending.iter().map(|constraint| constraint.advance());
        Ok(tokens.collect::<Result<Vec<_>>>()?.concat())
    }

    /// Takes a token. A token that breaks a constraint is not tried on the others.
    pub(crate) fn add(&mut self, token: TokenId) -> Result<()> {
        if let Some(mut constraint) = self.in_progress.take() {
            let step = constraint.update(token)?;
            if step.completed {
                self.complete += 1;
            } else if step.reset {
                self.pending.push(constraint.fresh()?);
            } else {
                self.in_progress = Some(constraint);
            }
            return Ok(());
        }
        for index in 0..self.pending.len() {
            if self.pending[index].does_advance(token)? {
                let mut constraint = self.pending.remove(index);
                if constraint.update(token)?.completed {
                    self.complete += 1;
                } else {
                    self.in_progress = Some(constraint);
                }
                break;
            }
        }
        Ok(())
    }

    /// What a fork that took the token does to this one.
    pub(crate) fn fork_took(&mut self, token: TokenId) -> Result<()> {
        self.in_progress.as_mut().map_or(Ok(()), |constraint| constraint.fork_took(token))
    }

    /// A copy with its progress.
    pub(crate) fn fork(&self) -> Result<Self> {
        Ok(Self {
            complete: self.complete,
            in_progress: self.in_progress.as_ref().map(|constraint| constraint.fork()).transpose()?,
            pending: self.pending.iter().map(|constraint| constraint.fresh()).collect::<Result<_>>()?,
            max_steps: self.max_steps,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{DisjunctiveConstraint, PhrasalConstraint};
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    fn phrase(tokens: &[u32]) -> Arc<dyn Constraint> {
        Arc::new(PhrasalConstraint::new(ids(tokens)).unwrap())
    }

    fn after(constraints: &Constraints, tokens: &[u32]) -> (bool, usize, Vec<TokenId>) {
        let state = ConstraintListState::after(constraints, &ids(tokens)).unwrap();
        (state.is_completed(), state.bank().unwrap(), state.advance().unwrap())
    }

    #[test]
    fn a_token_that_breaks_a_phrase_does_not_begin_it_again() {
        let constraints = vec![phrase(&[5, 6, 7])];
        assert_eq!(after(&constraints, &[1, 5, 6]), (false, 2, ids(&[7])));
        assert_eq!(after(&constraints, &[5, 6, 7, 1]), (true, 3, ids(&[])));
        assert_eq!(after(&constraints, &[5, 5, 6, 7]), (false, 0, ids(&[5])));
    }

    #[test]
    fn one_constraint_at_a_time_makes_progress_and_a_broken_one_waits_last() {
        let constraints = vec![phrase(&[1, 2]), phrase(&[3]), phrase(&[1, 4])];
        assert_eq!(after(&constraints, &[]), (false, 0, ids(&[1, 3, 1])));
        assert_eq!(after(&constraints, &[1]), (false, 1, ids(&[2])), "the first that takes the token has it");
        assert_eq!(after(&constraints, &[1, 9]), (false, 0, ids(&[3, 1, 1])));
        assert_eq!(after(&constraints, &[3, 1, 2, 1, 4]), (true, 6, ids(&[])));
    }

    #[test]
    fn copies_of_a_choice_that_is_half_done_share_their_progress_in_transformers_4_49() {
        let banks = |phrases: &[&[u32]], tokens: &[u32], tried: &[u32]| -> Vec<usize> {
            let phrases: Vec<_> = phrases.iter().map(|phrase| ids(phrase)).collect();
            let constraints: Constraints = vec![Arc::new(DisjunctiveConstraint::new(&phrases).unwrap())];
            let mut state = ConstraintListState::after(&constraints, &ids(tokens)).unwrap();
            let mut bank = |&token: &u32| {
                let mut fork = state.fork().unwrap();
                fork.add(TokenId(token)).unwrap();
                state.fork_took(TokenId(token)).unwrap();
                fork.bank().unwrap()
            };
            tried.iter().map(&mut bank).collect()
        };
        assert_eq!(banks(&[&[1, 2], &[1, 3], &[1, 4]], &[1], &[2, 3, 4]), [2, 0, 0]);
        // The third follows the first, as if they were one sequence.
        assert_eq!(banks(&[&[1, 2, 4], &[1, 3, 5], &[1, 4, 5]], &[1], &[2, 3, 4]), [2, 0, 3]);
        // Before a phrase has begun, each token is progress.
        assert_eq!(banks(&[&[1, 2], &[3, 4]], &[], &[1, 3]), [1, 1]);
    }

    #[test]
    fn one_phrase_of_several_is_enough() {
        let any = DisjunctiveConstraint::new(&[ids(&[1, 2, 3]), ids(&[1, 4]), ids(&[5])]).unwrap();
        let constraints: Constraints = vec![Arc::new(any)];
        assert_eq!(after(&constraints, &[]), (false, 0, ids(&[1, 5])));
        assert_eq!(after(&constraints, &[1]), (false, 1, ids(&[2, 4])));
        assert!(after(&constraints, &[1, 4]).0);
        assert!(after(&constraints, &[5]).0);
        assert_eq!(after(&constraints, &[1, 5]), (false, 0, ids(&[1, 5])));
    }

    #[test]
    fn a_copy_of_a_choice_that_is_half_done_goes_its_own_way() {
        let any = DisjunctiveConstraint::new(&[ids(&[1, 2, 3]), ids(&[1, 4, 5])]).unwrap();
        let constraints: Constraints = vec![Arc::new(any)];
        let state = ConstraintListState::after(&constraints, &ids(&[1])).unwrap();
        for token in state.advance().unwrap() {
            let mut advanced = state.fork().unwrap();
            advanced.add(token).unwrap();
            assert_eq!(advanced.bank().unwrap(), 2);
        }
        assert_eq!((state.bank().unwrap(), state.advance().unwrap()), (1, ids(&[2, 4])));
    }

    #[test]
    fn impossible_constraints_are_refused() {
        assert!(PhrasalConstraint::new(Vec::new()).is_err());
        assert!(DisjunctiveConstraint::new(&[]).is_err());
        assert!(DisjunctiveConstraint::new(&[ids(&[1]), Vec::new()]).is_err());
        let error = DisjunctiveConstraint::new(&[ids(&[1, 2]), ids(&[1])]).unwrap_err().to_string();
        assert!(error.contains("phrase 1 begins phrase 0"), "{error}");
        assert!(DisjunctiveConstraint::new(&[ids(&[1]), ids(&[1])]).is_err(), "twice the same");
    }
}
