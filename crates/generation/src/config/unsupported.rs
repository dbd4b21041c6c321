//! Names that transformers' `generate` and `GenerationConfig` know and rsgen does not, with the reason and a
//! remedy.
//!
//! A call that uses one is an error, unless it is `None`. In a file they have no effect and are kept.

use super::FieldValue;

/// Each name, with the end of a sentence that begins with it.
const NAMES: &[(&str, &str)] = &[
    // Arguments of a call that are no fields.
    ("inputs", "is the prompt, the first argument of the call"),
    ("input_ids", "is the prompt, the first argument of the call"),
    (
        "generation_config",
        "is an argument of the call, not a field; pass it to the call, or `update` this one",
    ),
    ("logits_processor", "is an argument of the call, not a field; pass it to the call"),
    ("stopping_criteria", "is an argument of the call, not a field; pass it to the call"),
    ("prefix_allowed_tokens_fn", "is an argument of the call, not a field; pass it to the call"),
    ("allowed_sequences", "is an argument of the call, not a field; pass it to the call"),
    ("constraints", "is an argument of the call, not a field; pass it to the call, or set `force_words_ids`"),
    ("attention_mask", "is an argument of the call, not a field; pass it to the call"),
    ("decoder_input_ids", "is an argument of the call, not a field; pass it to the call"),
    ("decoder_attention_mask", "is an argument of the call, not a field; pass it to the call"),
    (
        "encoder_outputs",
        "are computed from the source, once for each; give the source, as the prompt or as inputs_embeds",
    ),
    ("tokenizer", "is the model's own, which is always at hand; leave it out"),
    (
        "streamer",
        "is an argument of `generate` and its kin, not a field; pass it to one of them, or iterate over what the method \
         `stream` returns",
    ),
    ("synced_gpus", "is about several GPUs, of which there are none; leave it out"),
    ("position_ids", "follow from the attention_mask; leave it out"),
    ("past_key_values", "is an argument of the call, not a field; pass it to the call, or `cache`"),
    ("inputs_embeds", "are the prompt, an argument of the call, not a field; pass them to the call"),
    (
        "custom_generate",
        "would run code of a model's folder, which rsgen never does; use the method of the strategy",
    ),
    ("trust_remote_code", "would run code of a model's folder, which rsgen never does; leave it out"),
    ("use_model_defaults", "is always so: fields that are unset come from the model's file; leave it out"),
    ("return_dict", "has no effect: results are always objects; leave it out"),
    // Assisted decoding.
    ("adapter", "is an argument of the call, not a field; pass it to the call"),
    ("assistant_model", "is an argument of the call, not a field; pass it to the call"),
    ("assistant_tokenizer", "is the assistant's own, which is always at hand; leave it out"),
    ("is_assistant", "is transformers' own flag; leave it out"),
    ("speculation_type", "is not possible in this version; leave it out"),
    ("use_mtp", "is not possible in this version; leave it out, the tokens are the same without"),
    // The cache, and compilation.
    ("cache_implementation", "is about torch's caches: rsgen has a single one, in blocks; leave it out"),
    (
        "cache_config",
        "is about torch's caches; Generator(kv_dtype=…, kv_cache_bytes=…) says how ours is kept",
    ),
    ("max_cache_len", "is about torch's caches; Generator(kv_cache_bytes=…) limits ours"),
    ("return_legacy_cache", "is about torch's caches; leave it out"),
    ("compile_config", "is about torch.compile; nothing is compiled here: leave it out"),
    ("disable_compile", "is about torch.compile; nothing is compiled here: leave it out"),
    ("continuous_batching_config", "is not needed: requests are computed together anyway; leave it out"),
    // Fields for other kinds of models, and for data that is never stored.
    ("forced_decoder_ids", "was removed from transformers; put the tokens at the end of the prompt"),
    ("generation_kwargs", "holds what is no field; set the fields themselves"),
    ("device", "must be \"cpu\", the only one there is; leave it out"),
];

/// Why a name of transformers is not a field, as the end of a sentence.
pub(super) fn reason(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, reason)| *reason)
}

/// Whether a value of such a field changes nothing, as transformers' defaults.
pub(super) fn is_noop(name: &str, value: &FieldValue) -> bool {
    match (name, value) {
        (name, FieldValue::Null) => reason(name).is_some(),
        (
            "is_assistant"
            | "return_legacy_cache"
            | "synced_gpus"
            | "trust_remote_code"
            | "use_mtp"
            | "disable_compile",
            FieldValue::Bool(false),
        )
        | ("use_model_defaults" | "return_dict", FieldValue::Bool(_)) => true,
        ("cache_implementation", FieldValue::Text(cache)) => cache == "dynamic",
        ("device", FieldValue::Text(device)) => device == "cpu",
        ("forced_decoder_ids", FieldValue::List(ids)) => ids.is_empty(),
        ("generation_kwargs", FieldValue::Map(entries)) => entries.is_empty(),
        _ => false,
    }
}

/// Whether an entry of a file would change the tokens of transformers.
pub(super) fn changes_tokens(name: &str, value: &FieldValue) -> bool {
    let of_results = ["forced_decoder_ids", "generation_kwargs"];
    let quantized = name == "cache_implementation" && *value == FieldValue::from("quantized");
    quantized || (of_results.contains(&name) && !is_noop(name, value))
}

#[cfg(test)]
mod tests {
    use super::super::GenerationConfig;
    use super::*;

    /// Every field of transformers' `GenerationConfig` in 4.49.0 and 5.23.0 that is not private.
    const FIELDS_OF_TRANSFORMERS: &str = "max_length max_new_tokens min_length min_new_tokens early_stopping max_time \
        stop_strings do_sample num_beams num_beam_groups diversity_penalty penalty_alpha dola_layers constraints \
        force_words_ids low_memory use_mtp use_cache cache_implementation cache_config max_cache_len \
        return_legacy_cache prefill_chunk_size compile_config disable_compile continuous_batching_config temperature \
        top_k top_p min_p top_h typical_p epsilon_cutoff eta_cutoff repetition_penalty encoder_repetition_penalty \
        length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids sequence_bias \
        renormalize_logits forced_bos_token_id forced_eos_token_id remove_invalid_values \
        exponential_decay_length_penalty suppress_tokens begin_suppress_tokens forced_decoder_ids token_healing \
        guidance_scale watermarking_config num_return_sequences output_scores output_logits output_attentions \
        output_hidden_states return_dict_in_generate pad_token_id bos_token_id eos_token_id decoder_start_token_id \
        is_assistant num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold \
        assistant_early_exit assistant_lookbehind target_lookbehind \
        assistant_ensemble_weight speculation_type generation_kwargs";

    #[test]
    fn every_field_of_transformers_is_taken_or_refused_with_a_remedy() {
        for name in FIELDS_OF_TRANSFORMERS.split_whitespace() {
            let refused = reason(name);
            assert!(GenerationConfig::is_field(name) != refused.is_some(), "{name}: one of the two");
            let mut config = GenerationConfig::new();
            config.set(name, &FieldValue::Null).unwrap();
            assert_eq!(config, GenerationConfig::new(), "{name}: None leaves it out");
            if let Some(reason) = refused {
                let error = config.set(name, &FieldValue::Bool(true)).unwrap_err().to_string();
                assert_eq!(error, format!("`{name}` {reason}"));
            }
        }
    }

    #[test]
    fn values_that_ask_for_nothing_are_taken() {
        let mut config = GenerationConfig::new();
        for (name, value) in [
            ("is_assistant", FieldValue::Bool(false)),
            ("synced_gpus", FieldValue::Bool(false)),
            ("cache_implementation", "dynamic".into()),
            ("device", "cpu".into()),
        ] {
            config.set(name, &value).unwrap();
        }
        assert_eq!(config, GenerationConfig::new());
        assert!(config.set("device", &"cuda".into()).unwrap_err().to_string().contains("must be \"cpu\""));
        assert!(config.set("use_mtp", &FieldValue::Bool(true)).is_err());
    }

    #[test]
    fn a_file_says_what_it_asks_for_that_is_missing() {
        let file = |text| GenerationConfig::from_json_file(text).unwrap();
        let neutral = file(
            r#"{"is_assistant": false, "cache_implementation": null, "use_mtp": false,
                "transformers_version": "5.23.0", "watermarking_config": null, "trainer_seed": 3, "forced_decoder_ids": []}"#,
        );
        assert_eq!(neutral.unsupported_warning(), None);
        let asking = file(
            r#"{"forced_decoder_ids": [[1, 2]], "generation_kwargs": {"a": 2.5}, "is_assistant": true}"#,
        );
        assert_eq!(asking.unsupported(), ["forced_decoder_ids", "generation_kwargs"]);
        let warning = asking.unsupported_warning().unwrap();
        assert!(
            warning.contains("`forced_decoder_ids`, `generation_kwargs` would change the tokens and have no"),
            "{warning}"
        );
    }

    #[test]
    fn no_name_is_a_field_too() {
        let fields: Vec<_> = NAMES.iter().filter(|(name, _)| GenerationConfig::is_field(name)).collect();
        assert!(fields.is_empty(), "{fields:?}");
    }
}
