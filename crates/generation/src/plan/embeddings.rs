//! What embeddings in place of tokens mean for a request: transformers' rules for `inputs_embeds`.

use rsgen_core::{Error, Message, Result, message, refuse_if};

use super::super::config::GenerationConfig;
use super::super::mode::GenerationMode;
use super::super::prompt::PromptBatch;
use super::PlanContext;

/// Embeddings must be of the model's size and leave room for a token, and drafts of a model need ids.
pub(super) fn check(
    prompts: &PromptBatch,
    mode: GenerationMode,
    merged: &GenerationConfig,
    context: &PlanContext,
) -> Result<()> {
    let Some(embeddings) = &prompts.rows()[0].embeddings else { return Ok(()) };
    if embeddings.hidden_size() != context.embedding_size {
        return Err(Error::input(format!(
            "must have embeddings of {} numbers, the size of the model's, but they have {}; `embed` \
                 of the generator gives those of tokens",
            context.embedding_size,
            embeddings.hidden_size()
        ))
        .about("inputs_embeds"));
    }
    for (index, row) in prompts.rows().iter().enumerate() {
        let real = row.mask.iter().filter(|&&real| real).count();
        if real >= context.context_len {
            return Err(Error::input(format!(
                "prompt {index} has {real} embeddings, but the model's context holds {} tokens and at least 1 is to be \
                 generated; shorten the prompt",
                context.context_len
            ))
            .concerning_prompt(index));
        }
    }
    let drafts = mode == GenerationMode::AssistedDecoding && merged.assistant_early_exit.is_none();
    refuse_if(drafts && prompts.width() == 0, "assistant_model", || {
        "drafts from token ids, but `inputs_embeds` came without any; give the `input_ids` that \
                 the embeddings stand for as well, or no assistant"
    })?;
    Ok(())
}

/// Warns of fields that look at the tokens of the prompt, as transformers does.
pub(super) fn warn_of_unseen_prompt(
    prompts: &PromptBatch,
    merged: &GenerationConfig,
    warnings: &mut Vec<Message>,
) {
    if prompts.embeddings_len().is_none() {
        return;
    }
    let is_set = |field: &str| match field {
        "repetition_penalty" => merged.repetition_penalty.is_some_and(|penalty| penalty != 1.0),
        "no_repeat_ngram_size" => merged.no_repeat_ngram_size.is_some_and(|size| size > 0),
        "encoder_repetition_penalty" => {
            merged.encoder_repetition_penalty.is_some_and(|penalty| penalty != 1.0)
        }
        _ => merged.encoder_no_repeat_ngram_size.is_some_and(|size| size > 0),
    };
    for field in ["repetition_penalty", "no_repeat_ngram_size"] {
        if prompts.width() == 0 && is_set(field) {
            warnings.push(message!({(field)} " sees the new tokens alone, because `inputs_embeds` came without `input_ids`"));
        }
    }
    for field in ["encoder_repetition_penalty", "encoder_no_repeat_ngram_size"] {
        if is_set(field) {
            warnings.push(message!({(field)} " has no effect with `inputs_embeds`; leave it out"));
        }
    }
}
