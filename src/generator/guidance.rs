//! Encodes the negative prompts that a call gives as text.

use std::sync::Arc;

use super::{Generator, Prompt};
use crate::engine::Interrupt;
use rsgen_core::{Result, message, refuse_if};
use rsgen_generation::config::{NegativePromptIds, OneOrMany};
use rsgen_generation::{GenerationConfig, PlanContext};

impl Generator {
    /// Replaces `negative_prompt` by the ids of its texts, in the fields of a call with `num_prompts` prompts and in
    /// the model's defaults.
    ///
    /// # Errors
    /// When the ids are given as well, the texts are neither one nor as many as the prompts, or a text cannot be
    /// encoded; `Cancelled`.
    pub(super) fn encode_negative_prompts(
        &self,
        config: &mut GenerationConfig,
        context: &mut PlanContext,
        num_prompts: usize,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<()> {
        if config.merged_over(&context.model_defaults).negative_prompt.is_none() {
            return Ok(());
        }
        if config.negative_prompt.is_none() && config.negative_prompt_ids.is_some() {
            // The ids of the call come before the text of the file.
            Arc::make_mut(&mut context.model_defaults).negative_prompt = None;
            return Ok(());
        }
        let merged = config.merged_over(&context.model_defaults);
        refuse_if(
            merged.negative_prompt_ids.is_some(),
            "negative_prompt",
            || message!("and " {negative_prompt_ids} " say the same in two ways; leave out one of them"),
        )?;
        let texts = merged.negative_prompt.iter().flat_map(OneOrMany::as_slice);
        let count = texts.clone().count();
        refuse_if(count == 0, "negative_prompt", || {
            message!(
                "must be a text, or one for each prompt, but is an empty list; " {None} " leaves it unset"
            )
        })?;
        // Before the texts are encoded: that takes long for a list of a million.
        refuse_if(count > 1 && count != num_prompts, "negative_prompt", || {
            format!("must be a text, or one for each prompt ({num_prompts}), but holds {count}")
        })?;
        let ids = texts
            .map(|text| self.encode_prompt(Prompt::Text(text.clone()), config.bos_token_id, interrupted));
        config.negative_prompt_ids = Some(NegativePromptIds::new(ids.collect::<Result<_>>()?));
        config.negative_prompt = None;
        if context.model_defaults.negative_prompt.is_some() {
            Arc::make_mut(&mut context.model_defaults).negative_prompt = None;
        }
        Ok(())
    }
}
