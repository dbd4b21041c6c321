//! Fields of other servers that would change an answer, and that this one lacks: they are refused, unless their
//! value changes nothing. Fields without an effect on an answer are ignored.

use serde_json::Value;

use crate::serve::failure::Failure;
use rsgen_generation::FieldValue;

/// A field, the values that change nothing beside null, as a JSON list, and what to use here.
#[rustfmt::skip]
pub(super) const FOREIGN: &[(&str, &str, &str)] = &[
    // llama.cpp
    ("adaptive_target", "[-1]", ""),
    ("dry_multiplier", "[0]", ""),
    ("dynatemp_range", "[0]", ""),
    ("lora", "[[]]", ""),
    ("min_keep", "[0]", ""),
    ("mirostat", "[0]", ""),
    ("n_predict", "[-1]", "max_tokens"),
    ("n_probs", "[0]", "logprobs"),
    ("repeat_penalty", "[1]", "repetition_penalty"),
    ("samplers", "[[], \"\"]", ""),
    ("top_n_sigma", "[-1, 0]", ""),
    ("xtc_probability", "[0]", ""),
    // text-generation-webui, KoboldCpp and Aphrodite
    ("banned_strings", "[[], \"\"]", "bad_words"),
    ("custom_token_bans", "[\"\"]", "suppress_tokens"),
    ("dynamic_temperature", "[false]", ""),
    ("grammar_string", "[\"\"]", "grammar"),
    ("mirostat_mode", "[0]", ""),
    ("nsigma", "[-1, 0]", ""),
    ("rep_pen", "[1]", "repetition_penalty"),
    ("sampler_order", "[[]]", ""),
    ("sampler_priority", "[[], \"\"]", ""),
    ("skew", "[0]", ""),
    ("smoothing_factor", "[0]", ""),
    ("temperature_last", "[false]", ""),
    ("tfs", "[1]", ""),
    ("tfs_z", "[1]", ""),
    ("top_a", "[0]", ""),
    // vLLM
    ("best_of", "[1]", "n"),
    ("echo", "[false]", ""),
    ("guided_whitespace_pattern", "[]", ""),
    ("logits_processors", "[[]]", ""),
    ("prompt_embeds", "[]", "prompt"),
    ("prompt_logprobs", "[]", ""),
    // SGLang and TGI
    ("adapter_id", "[\"\"]", ""),
    ("custom_logit_processor", "[\"\"]", ""),
    ("decoder_input_details", "[false]", "prompt_logprobs"),
    ("ebnf", "[\"\"]", "grammar"),
    ("lora_path", "[[], \"\"]", ""),
    ("no_stop_trim", "[false]", "include_stop_str_in_output"),
    ("stop_regex", "[[], \"\"]", "stop"),
    ("top_n_tokens", "[0]", "top_logprobs"),
    ("truncate", "[]", "truncate_prompt_tokens"),
    ("watermark", "[false]", "watermarking_config"),
    // OpenAI and Ollama
    ("audio", "[]", ""),
    ("format", "[\"\"]", "response_format"),
    ("function_call", "[\"auto\", \"none\"]", "tool_choice"),
    ("functions", "[[]]", "tools"),
    ("modalities", "[[\"text\"]]", ""),
    ("options", "[{}]", ""),
    ("reasoning_effort", "[]", "chat_template_kwargs"),
    ("verbosity", "[\"medium\"]", ""),
    ("web_search_options", "[]", ""),
];

/// Whether a field is one of these, with a value that changes nothing.
///
/// # Errors
/// When its value changes the answer.
pub(super) fn check(name: &str, value: &Value) -> Result<bool, Failure> {
    let Some((_, neutral, instead)) = FOREIGN.iter().find(|(foreign, ..)| *foreign == name) else {
        return Ok(false);
    };
    let neutral: Vec<Value> = serde_json::from_str(neutral).unwrap_or_default();
    let is_same = |other: &Value| other == value || other.is_number() && other.as_f64() == value.as_f64();
    if value.is_null() || neutral.iter().any(is_same) {
        return Ok(true);
    }
    let instead = if instead.is_empty() { String::new() } else { format!(", or use `{instead}`") };
    let value = FieldValue::from(value.clone());
    let message =
        format!("`{name}` is not supported here, and {value} would change the answer; leave it out{instead}");
    Err(Failure::unsupported(name, message))
}
