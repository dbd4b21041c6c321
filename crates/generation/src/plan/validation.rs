//! Checks a configuration without a model: plans it for a model without limits.

use std::sync::Arc;

use rsgen_core::{LayerSet, Message, Result, TokenId};

use super::super::config::{GenerationConfig, OneOrMany};
use super::super::grammar::Bytes;
use super::super::prompt::PromptBatch;
use super::{DefaultLength, DraftContext, GenerationPlan, PlanContext};

/// A token of that model that no configuration would name.
const LAST_TOKEN: TokenId = TokenId(u32::MAX - 1);

impl GenerationConfig {
    /// Checks what can be checked without a model and a prompt: transformers' method of that name. A call
    /// checks all of it again, with the model's vocabulary, tokenizer, context and defaults.
    ///
    /// Returns warnings about likely mistakes, each with its remedy.
    ///
    /// # Errors
    /// `Config` for the first value that no model could make possible.
    pub fn validate(&self) -> Result<Vec<Message>> {
        let mut config = self.clone();
        // These need a tokenizer and a list of prompts.
        config.stop_strings = None;
        config.negative_prompt = None;
        config.clear_output_texts();
        config.token_healing = None;
        config.seed = config.seed.filter(|seed| matches!(seed, OneOrMany::One(_)));
        let mut context = PlanContext::new(u32::MAX as usize, usize::MAX);
        context.num_layers = LayerSet::CAPACITY - 1;
        // They may be for a list of prompts.
        context.num_requests = config.negative_prompt_ids.as_ref().map_or(1, |ids| ids.rows().len());
        context.default_length = DefaultLength::Context;
        context.model_defaults = Arc::new(Self::new().eos_token_id(LAST_TOKEN));
        // Any tokenizer with a token for each byte takes a grammar that this one takes.
        context.vocabulary = Some(Arc::new(Bytes::new()));
        // Their assistant comes with the call.
        let fields = [
            "num_assistant_tokens",
            "num_assistant_tokens_schedule",
            "assistant_confidence_threshold",
            "assistant_ensemble_weight",
        ];
        if fields.iter().any(|field| self.get(field).is_some()) {
            context.draft = Some(DraftContext::new(context.vocab_size, context.context_len));
        }
        let prompt = PromptBatch::single(vec![TokenId(0)])?;
        Ok(GenerationPlan::new(&config, prompt, &context)?.warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::AssistantTokensSchedule;
    use super::*;

    #[test]
    fn what_no_model_makes_possible_is_an_error_and_what_has_no_effect_a_warning() {
        let config = GenerationConfig::new;
        let lookup = |schedule| config().prompt_lookup_num_tokens(3).num_assistant_tokens_schedule(schedule);
        for schedule in [AssistantTokensSchedule::Constant, AssistantTokensSchedule::Adaptive] {
            assert_eq!(lookup(schedule).validate().unwrap(), Vec::<Message>::new());
        }
        for (impossible, field) in vec![
            (config().max_new_tokens(0), "max_new_tokens"),
            (config().top_p(1.5), "top_p"),
            (config().do_sample(true).temperature(0.0), "temperature"),
            (config().num_return_sequences(2), "num_return_sequences"),
            (config().num_beams(2).num_return_sequences(3), "num_return_sequences"),
            (config().num_beams(3).num_beam_groups(2).diversity_penalty(1.0), "num_beam_groups"),
            (config().num_beams(4).num_beam_groups(2), "diversity_penalty"),
            (config().num_beams(4).num_beam_groups(2).diversity_penalty(1.0).do_sample(true), "do_sample"),
            (config().num_beams(4).force_words_ids(Vec::new()), "force_words_ids"),
            (config().num_beams(4).length_penalty(f64::NAN), "length_penalty"),
            (config().max_time(-1.0), "max_time"),
            (config().regex("a("), "regex"),
            (config().grammar("start: other"), "grammar"),
            (config().json_schema(serde_json::json!({"not": {}})), "json_schema"),
            (config().regex("a").json_schema(serde_json::json!({})), "regex"),
        ] {
            let error = impossible.validate().unwrap_err();
            assert!(error.to_string().contains(&format!("`{field}`")), "{field}: {error}");
        }
        for (useless, field) in [
            (config().temperature(0.7), "temperature"),
            (config().early_stopping(true), "early_stopping"),
            (config().length_penalty(2.0), "length_penalty"),
            (config().num_beams(4).diversity_penalty(1.0), "diversity_penalty"),
            (config().penalty_alpha(0.6).do_sample(true), "penalty_alpha"),
            (config().max_length(9).max_new_tokens(5), "max_length"),
            (config().max_new_tokens(5).min_new_tokens(9), "min_new_tokens"),
            (lookup(AssistantTokensSchedule::Heuristic), "num_assistant_tokens_schedule"),
        ] {
            let warnings = useless.validate().unwrap();
            assert!(
                warnings.len() == 1 && warnings[0].to_string().contains(&format!("`{field}`")),
                "{field}: {warnings:?}"
            );
        }
    }

    #[test]
    fn what_only_a_model_can_tell_is_left_to_the_call() {
        let config = GenerationConfig::new()
            .do_sample(true)
            .seed([1, 2])
            .stop_strings("x".to_owned())
            .regex("[a-z]+")
            .suppress_tokens(vec![TokenId(4_000_000_000)])
            .exponential_decay_length_penalty((3, 1.1));
        assert_eq!(config.validate().unwrap(), Vec::<Message>::new());
        assert_eq!(GenerationConfig::new().validate().unwrap(), Vec::<Message>::new());
    }
}
