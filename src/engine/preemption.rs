//! The preemption of a request: the blocks it has lost, and the tokens it computes again once it has blocks.

use super::blocks::RequestCache;
use super::sequence::Sequence;
use super::sources::Sources;
use rsgen_core::{Result, SeqId};
use rsgen_generation::search::ModelRole;
use rsgen_model::cache::{Preempted, SequenceCache};

/// The preemption of a request; nothing by default.
#[derive(Default)]
pub(super) struct Preemption {
    /// The tables of the preempted sequences, by [`ModelRole`].
    taken: [Option<Preempted>; 2],
    /// Cached tokens that must be computed again before anything else, in reverse order.
    lost: Vec<(SeqId, usize)>,
    /// How many of them are in the current pass.
    in_pass: usize,
}

impl Preemption {
    /// Whether the request has lost its blocks.
    pub(super) fn is_preempted(&self) -> bool {
        self.taken.iter().any(Option::is_some)
    }

    /// How many tokens must be computed again, once it has blocks.
    pub(super) fn num_lost(&self) -> usize {
        self.lost.len()
    }

    /// The tokens that must be computed again, in order.
    pub(super) fn lost(&self) -> impl Iterator<Item = (SeqId, usize)> {
        self.lost.iter().rev().copied()
    }

    /// Takes all blocks of the request.
    pub(super) fn preempt(
        &mut self,
        cache: &mut RequestCache,
        sequences: &mut [Option<Sequence>],
        sources: &mut Sources,
    ) {
        for (role, taken) in [ModelRole::Target, ModelRole::Draft].into_iter().zip(&mut self.taken) {
            let Some(pool) = cache.pool(role).filter(|_| taken.is_none()) else { continue };
            *taken = Some(pool.preempt(of_model(sequences, sources, role)));
        }
        cache.give_back();
        self.lost.clear();
    }

    /// Gets the blocks back, all or none.
    ///
    /// # Errors
    /// `Capacity` while there are not enough.
    pub(super) fn restore(
        &mut self,
        cache: &mut RequestCache,
        sequences: &mut [Option<Sequence>],
        sources: &mut Sources,
    ) -> Result<()> {
        if !self.is_preempted() {
            return Ok(());
        }
        for role in [ModelRole::Target, ModelRole::Draft] {
            let Some(taken) = self.taken[role as usize].take() else { continue };
            match taken.restore(of_model(sequences, sources, role)) {
                Ok(tokens) => {
                    let seqs: Vec<SeqId> = (0..)
                        .map(SeqId)
                        .zip(&*sequences)
                        .filter_map(|(seq, sequence)| {
                            sequence.as_ref().filter(|own| own.model == role).map(|_| seq)
                        })
                        .collect();
                    for tokens in tokens {
                        match seqs.get(tokens.sequence) {
                            Some(&seq) => self.lost.extend(tokens.positions.map(|position| (seq, position))),
                            None => sources.lose(role, tokens.sequence - seqs.len()),
                        }
                    }
                }
                Err(error) => {
                    self.taken[role as usize] = Some(taken);
                    // Never holds blocks of one model while it waits for those of the other.
                    self.preempt(cache, sequences, sources);
                    return Err(error);
                }
            }
        }
        self.lost.reverse();
        Ok(())
    }

    /// Notes how many lost tokens the current pass computes.
    pub(super) fn begin_pass(&mut self, tokens: usize) {
        self.in_pass = tokens;
    }

    /// The pass is computed. Returns whether it computed lost tokens, which have no results.
    pub(super) fn end_pass(&mut self) -> bool {
        let count = std::mem::take(&mut self.in_pass);
        self.lost.truncate(self.lost.len() - count);
        count > 0
    }
}

/// The caches of the sequences of a model, then those of its sources.
fn of_model<'a>(
    sequences: &'a mut [Option<Sequence>],
    sources: &'a mut Sources,
    role: ModelRole,
) -> impl Iterator<Item = &'a mut SequenceCache> {
    let of_model = sequences.iter_mut().flatten().filter(move |sequence| sequence.model == role);
    of_model.map(Sequence::cache_mut).chain(sources.caches_mut(role))
}
