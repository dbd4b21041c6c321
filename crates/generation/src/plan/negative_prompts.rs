//! The negative prompts of a request, for guidance.

use rsgen_core::{Error, Message, Result, TokenId, message, refuse_if};

use super::super::config::GenerationConfig;
use super::super::logits::masked_negative_prompts;
use super::PlanContext;

/// The negative prompts of the request without padding: one for all its `num_prompts` prompts, or one for
/// each; none when the fields name none.
///
/// # Errors
/// When their number or the shape of the mask is wrong.
pub(super) fn resolve(
    merged: &GenerationConfig,
    num_prompts: usize,
    context: &PlanContext,
) -> Result<Vec<Vec<TokenId>>> {
    if merged.negative_prompt.is_some() {
        return Err(Error::internal("the negative prompts of a call must be encoded before it is planned"));
    }
    let Some(ids) = &merged.negative_prompt_ids else {
        return match merged.negative_prompt_attention_mask {
            None => Ok(Vec::new()),
            Some(_) => Err(Error::config(message!(
                "goes with " {negative_prompt_ids} ", which is not set; leave it out"
            ))
            .about("negative_prompt_attention_mask")),
        };
    };
    let names = ["negative_prompt_ids", "negative_prompt_attention_mask"];
    let mut prompts = masked_negative_prompts(names, ids, merged.negative_prompt_attention_mask.as_ref())?;
    let all = num_prompts * context.num_requests;
    refuse_if(prompts.len() > 1 && prompts.len() != all, "negative_prompt_ids", || {
        format!("must be one prompt or a list of one for each prompt ({all}), but holds {}", prompts.len())
    })?;
    if prompts.len() > 1 {
        prompts = prompts.into_iter().skip(context.first_prompt).take(num_prompts).collect();
    }
    Ok(prompts)
}

/// Warns of negative prompts without guidance.
pub(super) fn warn_of_unused_fields(
    config: &GenerationConfig,
    merged: &GenerationConfig,
    warnings: &mut Vec<Message>,
) {
    if config.negative_prompt_ids.is_some() && matches!(merged.guidance_scale, None | Some(1.0)) {
        warnings.push(message!(
            "the negative prompt has no effect because " {guidance_scale} " is not set; set "
            {guidance_scale = 1.5}
        ));
    }
}
