//! Constraints in the choice of the next beams. Besides the most probable continuations, those that advance a
//! constraint are candidates, and the beams are taken round-robin from the candidates grouped by their
//! progress.

use std::collections::HashSet;

use rsgen_core::{Error, Result, TokenId};

use super::super::super::constraint::{ConstraintListState, Constraints};
use super::candidates::Continuation;
use rsgen_kernels::torch_sort::descending_order;

/// Replaces some of the next beams by ones that make progress. `rows` are the ids of the beams so far,
/// `accumulated` the scores of all their continuations, `[beams, vocab_size]`. With `copies_share`, the tokens
/// that may follow are tried as in transformers 4.49, where the copies of a choice share their progress.
pub(super) fn prefer_progress(
    constraints: &Constraints,
    rows: &[&[TokenId]],
    accumulated: &[f32],
    next: &mut Vec<Continuation>,
    copies_share: bool,
) -> Result<()> {
    let num_beams = rows.len();
    let vocab_size = accumulated.len() / num_beams;
    let bank = |beam: &Continuation| {
        let ids = [rows[beam.parent], &[beam.token]].concat();
        ConstraintListState::after(constraints, &ids)?.bank()
    };
    let mut banks: Vec<usize> = next.iter().map(bank).collect::<Result<_>>()?;
    // Beams may hold the same ids, so a sequence is told by the first beam with its ids and by its last
    // token.
    let first_equal = |parent: usize| rows.iter().position(|row| *row == rows[parent]);
    let mut sequences: HashSet<_> = next.iter().map(|beam| (first_equal(beam.parent), beam.token)).collect();
    for (parent, ids) in rows.iter().enumerate() {
        let mut state = ConstraintListState::after(constraints, ids)?;
        if state.is_completed() {
            continue;
        }
        let first = first_equal(parent);
        for token in state.advance()? {
            if token.index() >= vocab_size {
                return Err(Error::callback(format!(
                    "a constraint's advance() must name ids of the model's vocabulary, 0 to {}, but names {token}",
                    vocab_size - 1
                )));
            }
            let mut advanced = state.fork()?;
            advanced.add(token)?;
            if copies_share {
                state.fork_took(token)?;
            }
            if !sequences.insert((first, token)) {
                continue;
            }
            banks.push(advanced.bank()?);
            let score = accumulated[parent * vocab_size + token.index()];
            next.push(Continuation { parent, token, score });
        }
    }
    if next.len() == num_beams {
        return Ok(());
    }
    // A step of progress outweighs any difference of scores below 100.
    let keys: Vec<f32> =
        banks.iter().zip(next.iter()).map(|(&bank, beam)| (bank * 100) as f32 + beam.score).collect();
    let ranked: Vec<usize> =
        descending_order(&keys).into_iter().map(|candidate| candidate as usize).collect();
    let mut turn = 0;
    let mut turns = Vec::with_capacity(ranked.len());
    for (rank, &candidate) in ranked.iter().enumerate() {
        turn = if rank > 0 && banks[candidate] == banks[ranked[rank - 1]] { turn + 1 } else { 0 };
        turns.push((turn, candidate));
    }
    turns.sort_by_key(|&(turn, _)| turn);
    *next = turns.iter().take(num_beams).map(|&(_, candidate)| next[candidate].clone()).collect();
    Ok(())
}
