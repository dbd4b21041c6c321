//! The least and greatest length of a request, from four fields and the model's context, by transformers'
//! rules.

use rsgen_core::{Error, Message, Result, message};

use super::super::config::GenerationConfig;
use super::super::prompt::PromptBatch;
use super::super::stopping::MaxLengthCriteria;
use super::{DefaultLength, PlanContext};

/// The limits of a row's number of ids, padding included.
pub(super) struct Lengths {
    pub(super) max_length: usize,
    pub(super) min_length: usize,
    /// Whether the caller or the model chose the limit.
    chosen: bool,
}

impl Lengths {
    pub(super) fn resolve(
        call: &GenerationConfig,
        merged: &GenerationConfig,
        prompts: &PromptBatch,
        context: &PlanContext,
        warnings: &mut Vec<Message>,
    ) -> Result<Self> {
        let prompt_len = prompts.width();
        // Lengths count the embeddings of a prompt unless its ids stand for them, one for each.
        let unseen_len = prompts.embeddings_len().filter(|&len| len != prompt_len).unwrap_or(0);
        let chosen = merged.max_new_tokens.is_some() || merged.max_length.is_some();
        let max_length = max_length(call, merged, (prompt_len, unseen_len), context, warnings)?;
        let min_length = min_length(call, merged, (prompt_len, unseen_len), warnings);
        if max_length < min_length {
            warnings.push(message!(
                "the least length of {min_length} tokens cannot be reached, because generation stops at \
                 {max_length}; decrease " {min_new_tokens} " or " {min_length} ", or increase "
                {max_new_tokens}
            ));
        }
        Ok(Self { max_length, min_length, chosen })
    }

    /// Warns when a requested limit does not fit into the model's context.
    pub(super) fn warn_of_context(
        &self,
        room: &[usize],
        prompt_len: usize,
        context: &PlanContext,
        warnings: &mut Vec<Message>,
    ) {
        if !self.chosen {
            return;
        }
        let wanted = self.max_length - prompt_len;
        if let Some(smallest) = room.iter().copied().min().filter(|&room| room < wanted) {
            warnings.push(message!(
                ("the model's context of {} tokens has room for {smallest} new tokens, so generation stops there \
                  and not after {wanted}; shorten the prompt or decrease ", context.context_len)
                {max_new_tokens}
            ));
        }
    }
}

fn max_length(
    call: &GenerationConfig,
    merged: &GenerationConfig,
    (prompt_len, unseen_len): (usize, usize),
    context: &PlanContext,
    warnings: &mut Vec<Message>,
) -> Result<usize> {
    match (merged.max_new_tokens, merged.max_length) {
        (Some(0), _) => Err(Error::config(message!(
            "must be 1 or more, but is 0; " {None} " leaves it unset"
        ))
        .about("max_new_tokens")),
        (Some(new), max_length) => {
            // `max_new_tokens` overrides the model's own `max_length` without a warning.
            if let Some(max_length) = max_length.filter(|_| call.max_length.is_some()) {
                warnings.push(message!(
                    {max_new_tokens} " ({new}) and " {max_length} " ({max_length}) are both set; "
                    {max_new_tokens} " holds"
                ));
            }
            Ok(prompt_len.saturating_add(new))
        }
        (None, Some(max_length)) if prompt_len + unseen_len >= max_length => Err(Error::config(message!(
            ("counts the prompt and must be more than its {} tokens, but is {max_length}; set ",
             prompt_len + unseen_len)
            {max_new_tokens} " instead"
        ))
        .about("max_length")),
        (None, Some(max_length)) => Ok(max_length - unseen_len),
        (None, None) => {
            let most = context.max_position_embeddings;
            let max_length = match context.default_length {
                // The context counts all positions; of embeddings the ids that stand for them are the same
                // ones.
                DefaultLength::Context if unseen_len > 0 => most.saturating_sub(unseen_len) + prompt_len,
                DefaultLength::Context => most,
                DefaultLength::Tokens(new) => most.min(prompt_len.saturating_add(new)),
            };
            if prompt_len >= max_length {
                return Err(Error::input(message!(
                    ("the prompt has {} tokens, which leaves no room for new ones in the model's context of {most}; \
                      shorten it, or set ", prompt_len + unseen_len)
                    {max_new_tokens}
                )));
            }
            // A criterion of the caller's takes the place of the one that would stop there.
            let is_replaced = context.criteria.iter().any(|own| own.name() == MaxLengthCriteria::NAME);
            if context.default_length != DefaultLength::Context && !is_replaced {
                warnings.push(message!(
                    ("generation stops after {} new tokens, because nothing limits it; set ", max_length - prompt_len)
                    {max_new_tokens}
                ));
            }
            Ok(max_length)
        }
    }
}

fn min_length(
    call: &GenerationConfig,
    merged: &GenerationConfig,
    (prompt_len, unseen_len): (usize, usize),
    warnings: &mut Vec<Message>,
) -> usize {
    match (merged.min_new_tokens, merged.min_length) {
        (Some(new), min_length) => {
            if let Some(min_length) = min_length.filter(|_| call.min_length.is_some()) {
                warnings.push(message!(
                    {min_new_tokens} " ({new}) and " {min_length} " ({min_length}) are both set; "
                    {min_new_tokens} " holds"
                ));
            }
            prompt_len.saturating_add(new)
        }
        (None, min_length) => min_length.unwrap_or(0).saturating_sub(unseen_len),
    }
}
