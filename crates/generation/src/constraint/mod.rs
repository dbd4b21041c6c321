//! Constraints: token sequences that the output of a constrained beam search must contain.
//!
//! One file per kind. A constraint is a small state machine that takes the tokens of a sequence one by one
//! and tells which token would advance it. `ConstraintListState` tracks several at once, with at most one in
//! progress.

mod disjunctive;
mod phrasal;
mod state;

use std::sync::Arc;

use rsgen_core::{Error, Result, TokenId};

pub use disjunctive::DisjunctiveConstraint;
pub use phrasal::PhrasalConstraint;
pub(super) use state::ConstraintListState;

/// The most steps that a constraint may take.
const MAX_STEPS: usize = 10_000;

/// The effect of a token on a constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConstraintStep {
    /// The token was a step forward.
    pub stepped: bool,
    /// With it the constraint is fulfilled.
    pub completed: bool,
    /// The token broke the progress, which starts over.
    pub reset: bool,
}

/// A condition on the tokens of an output.
pub trait Constraint: Send + Sync {
    /// The tokens that would advance it; empty when it is fulfilled.
    ///
    /// # Errors
    /// Any error ends the request.
    fn advance(&self) -> Result<Vec<TokenId>>;

    /// Whether the token would advance it.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    fn does_advance(&self, token: TokenId) -> Result<bool>;

    /// Takes a token.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    fn update(&mut self, token: TokenId) -> Result<ConstraintStep>;

    /// The most steps that are left; 0 when it is fulfilled.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    fn remaining(&self) -> Result<usize>;

    /// The most steps it takes, from its beginning.
    fn max_steps(&self) -> usize;

    /// A copy without progress.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    fn fresh(&self) -> Result<Box<dyn Constraint>>;

    /// A copy with its progress.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    fn fork(&self) -> Result<Box<dyn Constraint>>;

    /// What a copy by [`fork`](Self::fork) that took the token does to this one: nothing, unless they share
    /// their progress.
    ///
    /// # Errors
    /// As for [`advance`](Self::advance).
    fn fork_took(&mut self, _token: TokenId) -> Result<()> {
        Ok(())
    }

    /// Every token that it can ever request, to check them against the vocabulary in advance; empty if
    /// unknown.
    fn tokens(&self) -> Vec<TokenId> {
        Vec::new()
    }
}

impl std::fmt::Debug for dyn Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint").field("max_steps", &self.max_steps()).finish_non_exhaustive()
    }
}

/// Runs a custom constraint through once, so that one that can never be fulfilled is an error before anything
/// is computed: transformers' `Constraint.test`.
///
/// # Errors
/// `Callback` with the rule that it breaks, and its own errors.
pub fn check(constraint: &dyn Constraint) -> Result<()> {
    let broken = |rule: &str| Err(Error::callback(format!("a constraint breaks a rule: {rule}")));
    let mut trial = constraint.fresh()?;
    let max_steps = trial.max_steps();
    if !(1..=MAX_STEPS).contains(&max_steps) {
        return broken(&format!(
            "`seqlen`, its number of steps, must be 1 to {MAX_STEPS}, but is {max_steps}"
        ));
    }
    for _ in 0..MAX_STEPS {
        let Some(&token) = trial.advance()?.first() else {
            return broken("advance() must name a token until it is fulfilled, but names none");
        };
        if !trial.does_advance(token)? {
            return broken(&format!(
                "does_advance() must be true for what advance() names, but is false for {token}"
            ));
        }
        if trial.update(token)?.completed {
            return match trial.remaining()? {
                0 => Ok(()),
                left => broken(&format!("remaining() must be 0 once it is fulfilled, but is {left}")),
            };
        }
    }
    broken(&format!("update() with what advance() names must fulfil it, but {MAX_STEPS} steps have not"))
}

/// The constraints of a request.
pub(super) type Constraints = Vec<Arc<dyn Constraint>>;
