//! The operations of a search on the sequences of its request: create, fork, cut, release and reorder.

use super::pending::{PendingRows, live};
use super::sequence::Sequence;
use rsgen_core::{Error, Result, SeqId};
use rsgen_generation::search::SequenceOp;
use rsgen_model::cache::ReorderPlan;

impl PendingRows {
    /// Performs an operation of the search.
    pub(super) fn change_sequences(&mut self, op: SequenceOp) -> Result<()> {
        match op {
            SequenceOp::Create { seq, model, source } => {
                let sequence = self.cache.sequence(model)?;
                self.put(seq, sequence.with_source(source))
            }
            SequenceOp::Fork { parent, child } => {
                let fork = live(&mut self.sequences, parent)?.fork();
                self.put(child, fork)
            }
            SequenceOp::Truncate { seq, len } => {
                live(&mut self.sequences, seq)?.truncate(len);
                Ok(())
            }
            SequenceOp::Release { seq } => {
                let sequence = live(&mut self.sequences, seq)?;
                if self.cache.is_kept {
                    // All rows of earlier steps are computed.
                    sequence.publish(sequence.len());
                }
                self.sequences[seq.index()] = None;
                Ok(())
            }
            SequenceOp::Reorder { seqs, parents } => self.reorder(&seqs, &parents),
        }
    }

    /// Replaces each of `seqs` by a copy of its parent, all at once.
    fn reorder(&mut self, seqs: &[SeqId], parents: &[SeqId]) -> Result<()> {
        let unknown = || Error::internal("a reorder names a parent that is not among its sequences");
        let indices =
            parents.iter().map(|parent| seqs.iter().position(|seq| seq == parent).ok_or_else(unknown));
        let plan = ReorderPlan::new(&indices.collect::<Result<Vec<_>>>()?, seqs.len())?;
        let mut current = Vec::with_capacity(seqs.len());
        for &seq in seqs {
            live(&mut self.sequences, seq)?;
            current.extend(self.sequences[seq.index()].take());
        }
        for (&seq, sequence) in seqs.iter().zip(plan.apply_with(current, Sequence::fork)) {
            self.put(seq, sequence)?;
        }
        Ok(())
    }

    fn put(&mut self, seq: SeqId, sequence: Sequence) -> Result<()> {
        if self.sequences.len() <= seq.index() {
            self.sequences.resize_with(seq.index() + 1, || None);
        }
        match self.sequences[seq.index()].replace(sequence) {
            None => Ok(()),
            Some(_) => Err(Error::internal(format!("a search creates sequence {seq}, which exists already"))),
        }
    }
}
