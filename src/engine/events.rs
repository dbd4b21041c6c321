//! The tokens of a stream, each with its text.

use crate::generation::{GenerationPlan, TokenEvent};
use crate::text::{Detokenizer, Tokenizer};
use crate::types::{FinishReason, TokenId};

/// One generated token.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StreamedToken {
    /// The token.
    pub id: TokenId,
    /// The text that it adds. Empty while a character is incomplete, and for special tokens; the texts of a row, joined,
    /// are the text of its output.
    pub text: String,
    /// The row it belongs to. The tokens of several return sequences are interleaved; with beams, those of rows after
    /// the best one come at the end.
    pub index: usize,
    /// Its log-probability under the model's own logits, in nats. NaN for an end-of-sequence token that a beam search
    /// has appended without choosing it.
    pub logprob: f32,
    /// Its score after all processors.
    pub score: f32,
    /// Why the row ends with this token, if it does.
    pub finish_reason: Option<FinishReason>,
    /// With `top_logprobs`, the most probable tokens at its place with their log-probabilities under the model's own
    /// logits, the most probable first.
    pub top_logprobs: Vec<(TokenId, f32)>,
}

/// The texts of the rows of a request.
pub(super) struct RowTexts {
    /// `None` for a model without a tokenizer: texts are empty then.
    rows: Option<Vec<Detokenizer>>,
}

impl RowTexts {
    /// For rows that continue these prompts.
    pub(super) fn new<'a>(
        tokenizer: Option<&Tokenizer>,
        prompts: impl Iterator<Item = &'a [TokenId]>,
    ) -> Self {
        let detokenizers =
            |tokenizer| prompts.map(|prompt| Detokenizer::new(tokenizer, prompt, true)).collect::<Vec<_>>();
        Self { rows: tokenizer.map(detokenizers) }
    }

    /// For the rows of a plan's output.
    pub(super) fn of_plan(tokenizer: Option<&Tokenizer>, plan: &GenerationPlan) -> Self {
        let rows = plan.prompts().iter();
        Self::new(
            tokenizer,
            rows.flat_map(|prompt| std::iter::repeat_n(prompt.tokens(), plan.num_return_sequences())),
        )
    }

    /// Adds the text to an event.
    pub(super) fn token(&mut self, event: TokenEvent) -> StreamedToken {
        let mut text = String::new();
        if let Some(rows) = &mut self.rows {
            text = rows[event.row].push(event.token);
            if event.finish.is_some() {
                text.push_str(&rows[event.row].flush());
            }
        }
        StreamedToken {
            id: event.token,
            text,
            index: event.row,
            logprob: event.logprob,
            score: event.score,
            finish_reason: event.finish,
            top_logprobs: event.top_logprobs,
        }
    }
}
