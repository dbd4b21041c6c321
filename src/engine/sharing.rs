//! Prefix sharing: a request adopts blocks that others have computed instead of its rows, and publishes its
//! own.
//!
//! A prompt waits while the same pass computes its next tokens for another request, and adopts them
//! afterwards. So prompts with the same beginning that arrive at once compute it about once.

use super::batching::{BatchBuilder, CacheCopy};
use super::pending::{PendingRows, live};
use rsgen_core::Result;
use rsgen_generation::search::{ModelRole, WantedRow};
use rsgen_model::cache::{Adopted, BLOCK_TOKENS};

impl PendingRows {
    /// At the first row of a sequence in a pass: adopts the tokens from there on that other requests have
    /// computed, and removes their rows. False when the row must wait for the next pass, because this one
    /// computes the same tokens for another request.
    pub(super) fn adopt(&mut self, index: usize, builder: &BatchBuilder) -> Result<bool> {
        let Self { inputs, sequences, positions, cache, copies, .. } = self;
        let sequence = live(sequences, inputs.rows[index].seq)?;
        // The last row is always computed, so that the pass has one.
        let rows = &inputs.rows[index..inputs.rows.len() - 1];
        if index < self.appended || !sequence.len().is_multiple_of(BLOCK_TOKENS) {
            return Ok(true);
        }
        let Some(text) = sequence.text_with(rows) else { return Ok(true) };
        if builder.computes(cache.salt(), &text, sequence.len()) {
            return Ok(false);
        }
        let is_prompt = rows[0].is_prompt && sequence.model == ModelRole::Target;
        let Adopted { tokens, copy } = sequence.adopt(&text);
        self.cached_prompt_tokens += if is_prompt { tokens } else { 0 };
        inputs.rows.drain(index..index + tokens);
        positions.drain(index..index + tokens);
        copies.extend(copy.map(CacheCopy::Block));
        Ok(true)
    }

    /// Registers the text that the rows before `end` compute in this pass, if they are rows of a prompt.
    pub(super) fn push_text(&self, end: usize, builder: &mut BatchBuilder) {
        let Some(last) = end.checked_sub(1).filter(|&last| last >= self.computed) else { return };
        let WantedRow { seq, is_prompt, .. } = self.inputs.rows[last];
        let goes_on = self.inputs.rows.get(end).is_some_and(|next| next.seq == seq && next.is_prompt);
        let sequence = self.sequences[seq.index()].as_ref().filter(|_| is_prompt);
        if let Some(text) = sequence.and_then(|sequence| sequence.text(self.positions[last].position + 1)) {
            let of_sequence = (self.computed..end).rev().take_while(|&row| self.inputs.rows[row].seq == seq);
            let first = self.positions[of_sequence.last().unwrap_or(last)].position;
            builder.push_text(self.cache.salt(), text, first, goes_on);
        }
    }

    /// Publishes the tokens of prompts in the next `count` rows, which are computed.
    pub(super) fn publish_prompts(&mut self, count: usize) {
        let rows = &self.inputs.rows[self.computed..self.computed + count];
        for (offset, row) in rows.iter().enumerate().filter(|(_, row)| row.is_prompt) {
            if rows.get(offset + 1).is_none_or(|next| next.seq != row.seq)
                && let Some(sequence) = &mut self.sequences[row.seq.index()]
            {
                sequence.publish(self.positions[self.computed + offset].position + 1);
            }
        }
    }

    /// Publishes all its tokens, if they are computed.
    pub(super) fn publish_all(&mut self) {
        if self.preemption.num_lost() == 0 && self.appended == self.computed {
            self.sequences.iter_mut().flatten().for_each(|sequence| sequence.publish(sequence.len()));
        }
    }
}

impl Drop for PendingRows {
    fn drop(&mut self) {
        self.publish_all();
    }
}
