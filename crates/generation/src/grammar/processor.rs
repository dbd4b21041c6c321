//! Removes the tokens that the grammar of a request does not allow.

use rsgen_core::error::{Error, Result};
use rsgen_core::message;
use rsgen_core::types::TokenId;
use rsgen_kernels::{keep_masked, maximum};

use super::super::logits::{LogitsProcessor, ProcessorState, RowContext};
use super::state::Allowed;
use super::{GrammarState, RequestGrammar};

/// Removes all tokens but those that a grammar allows.
///
/// It runs after the processors of other fields and of the caller, before the warpers. Where these have
/// removed all that the grammar allows, the allowed tokens get the score 0: the grammar counts for more.
pub(super) struct GrammarLogitsProcessor {
    grammar: RequestGrammar,
    /// Beams with tokens that the grammar does not allow may run, but never win.
    has_beams: bool,
    /// Whether the output is of a catalogue as well, which counts as much as the grammar.
    has_catalogue: bool,
}

impl GrammarLogitsProcessor {
    pub(super) fn new(grammar: RequestGrammar, has_beams: bool, has_catalogue: bool) -> Self {
        Self { grammar, has_beams, has_catalogue }
    }

    /// Removes what is not allowed.
    pub(super) fn remove(&self, scores: &mut [f32], allowed: &Allowed) {
        let ends: &[TokenId] = match allowed {
            Allowed::Tokens { may_end: true, .. } | Allowed::All { may_end: true } | Allowed::End => {
                &self.grammar.eos_token_ids
            }
            _ => &[],
        };
        let ends: Vec<(usize, f32)> =
            ends.iter().filter_map(|id| Some((id.index(), *scores.get(id.index())?))).collect();
        match allowed {
            Allowed::Tokens { mask, .. } => {
                keep_masked(scores, mask.as_slice());
                // The id after the last token stands for the end.
                if let Some(beyond) = scores.get_mut(self.grammar.compiled.tokens.len..) {
                    beyond.fill(f32::NEG_INFINITY);
                }
                super::super::logits::remove(scores, &self.grammar.eos_token_ids);
            }
            Allowed::All { .. } => super::super::logits::remove(scores, &self.grammar.eos_token_ids),
            Allowed::Only(tokens) => {
                let kept: Vec<(usize, f32)> =
                    tokens.iter().filter_map(|id| Some((id.index(), *scores.get(id.index())?))).collect();
                scores.fill(f32::NEG_INFINITY);
                for (id, score) in kept {
                    scores[id] = score;
                }
            }
            _ => scores.fill(f32::NEG_INFINITY),
        }
        for (id, score) in ends {
            scores[id] = score;
        }
    }
}

impl LogitsProcessor for GrammarLogitsProcessor {
    fn name(&self) -> &'static str {
        self.grammar.compiled.field
    }

    fn new_state(&self) -> Option<Box<dyn ProcessorState>> {
        Some(Box::new(self.grammar.state()))
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let new_tokens = row.input_ids.get(row.prompt_len..).unwrap_or_default();
        let allowed = match row.state::<GrammarState>() {
            Some(state) => state.allowed(new_tokens)?,
            None => self.grammar.state().allowed(new_tokens)?,
        };
        if matches!(allowed, Allowed::Nothing) && !self.has_beams {
            return Err(Error::config(format!(
                "allows no token of the model's vocabulary after {} new tokens; loosen it, or leave out \
                 what forces other tokens",
                new_tokens.len()
            ))
            .about(self.name()));
        }
        self.remove(scores, &allowed);
        if maximum(row.isa, scores) == f32::NEG_INFINITY {
            if self.has_catalogue && self.has_beams {
                return Ok(());
            }
            if self.has_catalogue {
                return Err(Error::config(message!(
                    ("allows no token after {} new tokens by which ", new_tokens.len()) {allowed_sequences}
                    " goes on as well; loosen one of them, or set " {num_beams = 4} ", for example"
                ))
                .about(self.name()));
            }
            scores.fill(0.0);
            self.remove(scores, &allowed);
        }
        Ok(())
    }
}
