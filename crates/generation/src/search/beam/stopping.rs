//! Which candidates end: criteria judge those of all prompts together.

use super::{BeamSearch, Drawn};
use crate::stopping::StopContext;
use rsgen_core::error::Result;

impl BeamSearch {
    /// Applies the stopping criteria to the candidates of all prompts. `scores` are those of the prompts that
    /// have candidates, one after the other.
    pub(super) fn check_stopping(&mut self, drawn: &mut [Drawn], scores: &[f32]) -> Result<()> {
        let (config, all_ids) = (&self.plan.config, &mut self.scratch.ids);
        if !self.plan.criteria.judges_steps() {
            let mut ids = all_ids.pop().unwrap_or_default();
            for (drawn, scores) in
                drawn.iter_mut().zip(scores.chunks_exact(config.num_beams * config.vocab_size))
            {
                for candidate in &mut drawn.candidates {
                    let row_index = drawn.prompt_index * config.num_beams + candidate.parent;
                    ids.clone_from(&self.sequences.sequence(row_index).ids);
                    ids.push(candidate.token);
                    let scores = &scores[candidate.parent * config.vocab_size..][..config.vocab_size];
                    candidate.finish =
                        self.plan.should_stop(&ids, (drawn.prompt_index, row_index), scores)?;
                }
            }
            all_ids.push(ids);
            return Ok(());
        }
        all_ids.resize_with(drawn.iter().map(|drawn| drawn.candidates.len()).sum(), Vec::new);
        let (mut rows, mut places) = (Vec::new(), all_ids.iter_mut());
        for (drawn, scores) in drawn.iter().zip(scores.chunks_exact(config.num_beams * config.vocab_size)) {
            for (candidate, ids) in drawn.candidates.iter().zip(&mut places) {
                let row_index = drawn.prompt_index * config.num_beams + candidate.parent;
                ids.clone_from(&self.sequences.sequence(row_index).ids);
                ids.push(candidate.token);
                rows.push(StopContext {
                    input_ids: ids,
                    prompt_len: config.prompt_len,
                    prompt_index: drawn.prompt_index,
                    row_index,
                    scores: &scores[candidate.parent * config.vocab_size..][..config.vocab_size],
                    isa: config.isa,
                    has_ended: false,
                });
            }
        }
        // Prompts without candidates have as many rows as the others.
        let rows_each = drawn.iter().map(|drawn| drawn.candidates.len()).max().unwrap_or_default();
        let is_drawn = |prompt_index: &usize| drawn.iter().any(|drawn| drawn.prompt_index == *prompt_index);
        let sequences = &self.sequences;
        let ended = (0..self.items.len()).filter(|prompt_index| !is_drawn(prompt_index));
        let ended = ended.flat_map(|prompt_index| {
            (0..rows_each).map(move |row| {
                let row_index = prompt_index * config.num_beams + row % config.num_beams;
                (prompt_index, row_index, &sequences.sequence(row_index).ids[..])
            })
        });
        let finishes = self.plan.should_stop_rows(&rows, ended, |row| row.prompt_index)?;
        let candidates = drawn.iter_mut().flat_map(|drawn| &mut drawn.candidates);
        candidates.zip(finishes).for_each(|(candidate, finish)| candidate.finish = finish);
        Ok(())
    }
}
