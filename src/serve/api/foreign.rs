//! Fields of other servers that would change an answer, and that this one lacks: they are refused, unless
//! their value changes nothing. Fields without an effect on an answer are ignored.

use serde_json::Value;

use crate::serve::failure::Failure;
use rsgen_generation::FieldValue;

// Those of llama.cpp, text-generation-webui, KoboldCpp, vLLM, SGLang, TGI, Ollama and OpenAI.
/// The values that change nothing beside null, as a JSON list, and the fields that have them. After `=` is what
/// to use here.
#[rustfmt::skip]
const FOREIGN: &[(&str, &str)] = &[
    ("[-1]", "adaptive_target n_predict=max_tokens"),
    ("[0]", "\
        dry_multiplier dynatemp_range min_keep mirostat mirostat_mode n_probs=logprobs skew \
        smoothing_factor top_a top_n_tokens=top_logprobs xtc_probability"),
    ("[[]]", "functions=tools logits_processors lora sampler_order"),
    ("[1]", "best_of=n rep_pen=repetition_penalty repeat_penalty=repetition_penalty tfs tfs_z"),
    (r#"[[], ""]"#, "banned_strings=bad_words lora_path sampler_priority samplers stop_regex=stop"),
    ("[-1, 0]", "nsigma top_n_sigma"),
    (r#"[""]"#, "\
        adapter_id custom_logit_processor custom_token_bans=suppress_tokens ebnf=grammar \
        format=response_format grammar_string=grammar"),
    ("[false]", "\
        decoder_input_details=prompt_logprobs dynamic_temperature echo \
        no_stop_trim=include_stop_str_in_output temperature_last watermark=watermarking_config"),
    ("[]", "\
        audio guided_whitespace_pattern prompt_embeds=prompt prompt_logprobs \
        truncate=truncate_prompt_tokens web_search_options"),
    (r#"["auto", "none"]"#, "function_call=tool_choice"),
    (r#"[["text"]]"#, "modalities"),
    ("[{}]", "options"),
    (r#"["medium"]"#, "verbosity"),
];

/// The fields, each with the values that change nothing and with what to use here, which may be nothing.
pub(super) fn fields() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    FOREIGN.iter().flat_map(|(neutral, names)| {
        names.split_ascii_whitespace().map(|name| {
            let (name, instead) = name.split_once('=').unwrap_or((name, ""));
            (name, *neutral, instead)
        })
    })
}

/// Whether a field is one of these, with a value that changes nothing.
///
/// # Errors
/// When its value changes the answer.
pub(super) fn check(name: &str, value: &Value) -> Result<bool, Failure> {
    let Some((_, neutral, instead)) = fields().find(|(foreign, ..)| *foreign == name) else {
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
