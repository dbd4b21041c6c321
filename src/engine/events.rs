//! The tokens of a stream, each with its text.

use std::sync::Arc;

use super::stop_text::{HeldText, StopTexts};
use rsgen_core::{FinishReason, TokenId};
use rsgen_generation::TokenEvent;
use rsgen_generation::plan::PlannedPrompt;
use rsgen_text::{Detokenizer, Tokenizer};

/// One generated token.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StreamedToken {
    /// The token.
    pub id: TokenId,
    /// The text that it adds. Empty while a character is incomplete or may begin a stop string that is left out,
    /// and for special tokens; the texts of a row, joined, are the text of its output.
    pub text: String,
    /// What `token_healing` has added to the text of the prompt: the beginning of the text of a row's first
    /// token.
    pub healed: String,
    /// The row it belongs to. The tokens of several return sequences are interleaved; with beams, those of
    /// rows after the best one come at the end.
    pub index: usize,
    /// Its log-probability under the model's own logits, in nats. NaN for an end-of-sequence token that a
    /// beam search has appended without choosing it.
    pub logprob: f32,
    /// Its score after all processors.
    pub score: f32,
    /// Why the row ends with this token, if it does.
    pub finish_reason: Option<FinishReason>,
    /// With `top_logprobs`, the most probable tokens at its place with their log-probabilities under the
    /// model's own logits, the most probable first.
    pub top_logprobs: Vec<(TokenId, f32)>,
}

/// The texts of the rows of a request.
pub(super) struct RowTexts {
    /// `None` for a model without a tokenizer: texts are empty then.
    rows: Option<Vec<RowText>>,
}

struct RowText {
    detokenizer: Detokenizer,
    /// What healing has added to the prompt, until the first token.
    healed: String,
    /// With stop strings that are left out.
    held: Option<HeldText>,
}

/// Begins the text that continues a prompt, after the text that healing has added to it, or that of the target's
/// prefix.
///
/// Where the last token was replaced by one that does not extend it, that is what differs from the text
/// before.
pub(super) fn continued(tokenizer: &Tokenizer, prompt: &PlannedPrompt) -> (Detokenizer, String) {
    let Some(((&last, before), tail)) = prompt.tokens().split_last().zip(prompt.tail()) else {
        let (before, prefix) = prompt.split_target_prefix();
        let mut detokenizer = Detokenizer::new(tokenizer, before, true);
        let text = prefix.iter().map(|&token| detokenizer.push(token)).collect();
        return (detokenizer, text);
    };
    let mut detokenizer = Detokenizer::new(tokenizer, before, true);
    let mut given = detokenizer.clone();
    let mut given_text = given.push(tail);
    given_text.push_str(&given.flush());
    let mut healed = detokenizer.push(last);
    let equal = healed.chars().zip(given_text.chars()).take_while(|(a, b)| a == b);
    let equal: usize = equal.map(|(char, _)| char.len_utf8()).sum();
    healed.drain(..equal);
    (detokenizer, healed)
}

impl RowTexts {
    /// For rows that continue these prompts, so many each, and end before these stop strings.
    pub(super) fn new(
        tokenizer: Option<&Tokenizer>,
        prompts: &[PlannedPrompt],
        rows_each: usize,
        stops: Option<&Arc<StopTexts>>,
    ) -> Self {
        let row = |tokenizer, prompt| {
            let (detokenizer, healed) = continued(tokenizer, prompt);
            let held =
                stops.map(|stops| HeldText::new(Arc::clone(stops), stops.end_of(tokenizer, prompt, &healed)));
            RowText { detokenizer, healed, held }
        };
        let rows = prompts.iter().flat_map(|prompt| std::iter::repeat_n(prompt, rows_each));
        Self { rows: tokenizer.map(|tokenizer| rows.map(|prompt| row(tokenizer, prompt)).collect()) }
    }

    /// Adds the text to an event.
    pub(super) fn token(&mut self, event: TokenEvent) -> StreamedToken {
        let (mut text, mut healed) = (String::new(), String::new());
        if let Some(rows) = &mut self.rows {
            let row = &mut rows[event.row];
            healed = std::mem::take(&mut row.healed);
            text.push_str(&healed);
            text.push_str(&row.detokenizer.push(event.token));
            if event.finish.is_some() {
                text.push_str(&row.detokenizer.flush());
            }
            if let Some(held) = &mut row.held {
                text = held.push(&text, event.finish).0;
            }
        }
        StreamedToken {
            id: event.token,
            text,
            healed,
            index: event.row,
            logprob: event.logprob,
            score: event.score,
            finish_reason: event.finish,
            top_logprobs: event.top_logprobs,
        }
    }
}
