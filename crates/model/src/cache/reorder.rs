//! Reorders the sequences of beams after a step.
//!
//! A beam search names a parent for each of its next beams. A parent with one child is moved; only further
//! children and parents without a child change reference counts. The same plan reorders the other state of a
//! beam, such as its processors. No floats are copied; the next append requests the copy of a shared last
//! block.

use super::sequence::SequenceCache;
use rsgen_core::error::{Error, Result};

/// The origin of one of the next sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReorderStep {
    /// The parent itself; it has no later child.
    Move(usize),
    /// A fork of the parent, which a later slot takes itself.
    Fork(usize),
}

/// How the sequences of one step become those of the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReorderPlan {
    steps: Vec<ReorderStep>,
    num_current: usize,
}

impl ReorderPlan {
    /// A plan for `num_current` sequences, where the next sequence `i` continues `parents[i]`. Parents may
    /// repeat and may be missing, and there may be more or fewer next sequences than current ones.
    /// O(parents + current).
    ///
    /// # Errors
    /// `Internal` when a parent does not exist.
    pub fn new(parents: &[usize], num_current: usize) -> Result<Self> {
        if let Some((slot, parent)) = parents.iter().enumerate().find(|&(_, &parent)| parent >= num_current) {
            return Err(Error::internal(format!(
                "a reorder gives slot {slot} the parent {parent}, but there are {num_current} sequences"
            )));
        }
        let mut taken = vec![false; num_current];
        let mut steps = Vec::with_capacity(parents.len());
        // Backwards: the last child takes the parent, so that it is still there when the others fork it.
        for &parent in parents.iter().rev() {
            let again = std::mem::replace(&mut taken[parent], true);
            steps.push(if again { ReorderStep::Fork(parent) } else { ReorderStep::Move(parent) });
        }
        steps.reverse();
        Ok(Self { steps, num_current })
    }

    /// What happens for each next slot, in order. Parents that no step names are dropped.
    pub fn steps(&self) -> &[ReorderStep] {
        &self.steps
    }

    /// Whether every sequence stays where it is.
    pub fn is_identity(&self) -> bool {
        self.steps.len() == self.num_current
            && self.steps.iter().enumerate().all(|(slot, &step)| step == ReorderStep::Move(slot))
    }

    /// The next sequences.
    ///
    /// # Panics
    /// When the length of `current` is not that of the plan.
    pub fn apply(&self, current: Vec<SequenceCache>) -> Vec<SequenceCache> {
        self.apply_with(current, SequenceCache::fork)
    }

    /// Reorders values that belong to the sequences, one each; `fork` copies one for a further child.
    ///
    /// # Panics
    /// When the length of `current` is not that of the plan.
    pub fn apply_with<T>(&self, current: Vec<T>, mut fork: impl FnMut(&T) -> T) -> Vec<T> {
        assert_eq!(current.len(), self.num_current, "the plan was made for another number of sequences");
        if self.is_identity() {
            return current;
        }
        let mut current: Vec<Option<T>> = current.into_iter().map(Some).collect();
        let next = self.steps.iter().map(|&step| match step {
            ReorderStep::Move(parent) => current[parent].take(),
            ReorderStep::Fork(parent) => current[parent].as_ref().map(&mut fork),
        });
        next.map(|value| value.expect("a parent is moved once, after its forks")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::ReorderStep::{Fork, Move};
    use super::*;
    use crate::cache::invariants::check;
    use crate::cache::tests::pool_of;

    #[test]
    fn a_parent_is_forked_for_all_children_but_the_last() {
        let plan = ReorderPlan::new(&[2, 2, 0, 2], 4).unwrap();
        assert_eq!(plan.steps(), [Fork(2), Fork(2), Move(0), Move(2)]);
        let mut forks = 0;
        let next = plan.apply_with(vec!['a', 'b', 'c', 'd'], |&value| {
            forks += 1;
            value
        });
        assert_eq!((next, forks), (vec!['c', 'c', 'a', 'c'], 2));
    }

    #[test]
    fn a_permutation_forks_nothing() {
        let plan = ReorderPlan::new(&[1, 2, 0], 3).unwrap();
        let next = plan.apply_with(vec!["a", "b", "c"], |_| unreachable!("nothing is forked"));
        assert_eq!(next, ["b", "c", "a"]);
        assert!(!plan.is_identity());
        assert!(ReorderPlan::new(&[0, 1, 2], 3).unwrap().is_identity());
        assert!(!ReorderPlan::new(&[0, 1], 3).unwrap().is_identity(), "the third is dropped");
    }

    #[test]
    fn the_number_of_sequences_may_change() {
        let grown = ReorderPlan::new(&[0, 0, 0], 1).unwrap();
        assert_eq!(grown.apply_with(vec![7], |&value| value), [7, 7, 7]);
        assert!(ReorderPlan::new(&[], 2).unwrap().apply_with(vec![1, 2], |&value| value).is_empty());
    }

    #[test]
    fn a_parent_that_does_not_exist_is_named() {
        let error = ReorderPlan::new(&[0, 3], 3).unwrap_err();
        assert_eq!(error.to_string(), "a reorder gives slot 1 the parent 3, but there are 3 sequences");
    }

    #[test]
    fn sequences_without_children_return_their_blocks() {
        let pool = pool_of(8);
        let current: Vec<_> = [10, 40, 64]
            .map(|tokens| {
                let mut sequence = SequenceCache::new(&pool);
                sequence.append(tokens).unwrap();
                sequence
            })
            .into();
        let next = ReorderPlan::new(&[1, 1, 1], 3).unwrap().apply(current);
        assert_eq!(next.iter().map(SequenceCache::len).collect::<Vec<_>>(), [40, 40, 40]);
        assert_eq!(pool.stats().used_blocks, 2);
        check(&pool, next.iter().map(SequenceCache::table)).unwrap();
    }
}
