//! Checks the ids of a request against the model's vocabulary: special tokens, prompts, unconditional
//! sequences.

use rsgen_core::{Error, Message, Result, TokenId, message};

use super::super::config::{GenerationConfig, OneOrMany};
use super::super::prompt::PromptBatch;
use super::PlanContext;

/// The tokens that end and pad rows.
pub(super) struct SpecialTokens {
    pub(super) eos: Vec<TokenId>,
    pub(super) pad: Option<TokenId>,
}

impl SpecialTokens {
    /// An id outside of the vocabulary is an error in a call; in the model's own files it is common (a pad
    /// token that the tokenizer knows and the model does not) and does no harm.
    pub(super) fn resolve(
        config: &GenerationConfig,
        merged: &GenerationConfig,
        context: &PlanContext,
        warnings: &mut Vec<Message>,
    ) -> Result<Self> {
        let check = |field: &str, id: Option<TokenId>| match id {
            Some(id) if id.index() >= context.vocab_size => Err(Error::config(message!(
                ("must be an id of the model's vocabulary, 0 to {}, but is {id}; ", context.vocab_size - 1)
                {None} " leaves it unset"
            ))
            .about(field)),
            _ => Ok(()),
        };
        check("pad_token_id", config.pad_token_id)?;
        check("bos_token_id", config.bos_token_id)?;
        for &id in config.eos_token_id.iter().flat_map(OneOrMany::as_slice) {
            check("eos_token_id", Some(id))?;
        }
        let mut eos = merged.eos_token_id.as_ref().map_or_else(Vec::new, |ids| ids.as_slice().to_vec());
        let all = eos.len();
        eos.retain(|id| id.index() < context.vocab_size);
        if eos.len() < all {
            warnings.push(message!(
                "the model's files list an " {eos_token_id} " outside of its vocabulary, which is ignored; \
                 set " {eos_token_id}
            ));
        }
        let pad = merged.pad_token_id.or(eos.first().copied());
        Ok(Self { eos, pad })
    }

    /// Finds the padding of prompts that came without a mask.
    pub(super) fn mask(&self, prompts: &mut PromptBatch, warnings: &mut Vec<Message>) -> Result<()> {
        prompts.infer_mask(self.pad, &self.eos)?;
        let ambiguous = |pad: TokenId| {
            self.eos.contains(&pad) && prompts.rows().iter().any(|row| row.input_ids.first() == Some(&pad))
        };
        if !prompts.mask_given() && prompts.rows().len() > 1 && self.pad.is_some_and(ambiguous) {
            warnings.push(message!(
                "padding cannot be told from the end-of-sequence token, so all ids count as real; give \
                 an attention_mask"
            ));
        }
        if let Some(index) = prompts.rows().iter().position(|row| row.mask.last() == Some(&false)) {
            warnings.push(message!(
                "prompt {index} is padded on the right, and generation goes on from its last real \
                 token; pad on the left"
            ));
        }
        Ok(())
    }
}

/// Real ids must be in the vocabulary, and leave room for one more token.
pub(super) fn check_prompts(prompts: &PromptBatch, context: &PlanContext) -> Result<()> {
    for (index, row) in prompts.rows().iter().enumerate() {
        let tokens = row.tokens();
        let prompt =
            if prompts.rows().len() == 1 { "the prompt".to_owned() } else { format!("prompt {index}") };
        let named =
            |error: Error| if prompts.rows().len() == 1 { error } else { error.concerning_prompt(index) };
        check_ids(&prompt, &tokens, context).map_err(named)?;
        if tokens.len() >= context.context_len {
            return Err(named(Error::input(format!(
                "{prompt} has {} tokens, but the model's context holds {} and at least 1 is to be generated; \
                 shorten the prompt",
                tokens.len(),
                context.context_len
            ))));
        }
    }
    Ok(())
}

/// Checks the prompts of the unconditional sequences and returns the length of the longest.
pub(super) fn check_unconditional(
    unconditional: &[Option<Vec<TokenId>>],
    context: &PlanContext,
) -> Result<usize> {
    let mut longest = 0;
    for unconditional in unconditional.iter().flatten() {
        check_ids("the unconditional prompt of a logits processor", unconditional, context)?;
        if unconditional.is_empty() || unconditional.len() >= context.context_len {
            return Err(Error::input(format!(
                "the unconditional prompt of a logits processor must have 1 to {} tokens, but has {}",
                context.context_len - 1,
                unconditional.len()
            )));
        }
        longest = longest.max(unconditional.len());
    }
    Ok(longest)
}

fn check_ids(what: &str, ids: &[TokenId], context: &PlanContext) -> Result<()> {
    match ids.iter().position(|id| id.index() >= context.vocab_size) {
        None => Ok(()),
        Some(position) => Err(Error::input(format!(
            "{what} holds the id {} (token {position}), but the model's vocabulary has the ids 0 to {}; \
             was it made by \
             another tokenizer?",
            ids[position],
            context.vocab_size - 1
        ))),
    }
}
