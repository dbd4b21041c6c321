//! Fields of other servers that would change an answer, and that this one lacks: they are refused, unless
//! their value changes nothing. Fields without an effect on an answer are ignored.

use serde_json::Value;

use crate::serve::failure::Failure;
use rsgen_generation::{FieldValue, GenerationConfig};

// Those of llama.cpp, text-generation-webui, KoboldCpp, vLLM, SGLang, TGI, Ollama, Mistral and OpenAI.
//
// Absent on purpose, and so ignored: what its own server reads beside another field of this list alone, such as
// `mirostat_tau`; what chooses a place, a priority or a format of metrics; `spaces_between_special_tokens`, which
// has no effect with the tokenizers of tokenizer.json there either.
/// The values that change nothing beside null, as a JSON list, and the fields that have them. After `=` is what
/// to use here.
#[rustfmt::skip]
const FOREIGN: &[(&str, &str)] = &[
    ("[-1]", "adaptive_target n_predict=max_tokens num_predict=max_tokens"),
    ("[0]", "\
        dry_multiplier dynatemp_range min_keep mirostat mirostat_mode n_indent n_probs=logprobs skew \
        smoothing_factor top_a top_n_tokens=top_logprobs xtc_probability"),
    ("[[]]", "\
        functions=tools grammar_triggers images logits_processors logprob_token_ids=top_logprobs lora \
        sampler_order stop_sequence=stop stop_sequences=stop"),
    ("[1]", "\
        beam_width=num_beams best_of=n rep_pen=repetition_penalty repeat_penalty=repetition_penalty tfs tfs_z \
        typical=typical_p"),
    (r#"[[], ""]"#, "\
        banned_strings=bad_words banned_tokens=bad_words custom_stopping_strings=stop lora_path sampler_priority \
        samplers stop_regex=stop stopping_strings=stop"),
    ("[-1, 0]", "nsigma t_max_predict_ms=max_time top_n_sigma"),
    (r#"[""]"#, "\
        adapter_id character custom_logit_processor custom_token_bans=suppress_tokens ebnf=grammar \
        format=response_format grammar_string=grammar instruction_template instruction_template_str memory \
        negative_prompt=negative_prompt_ids preset system=messages template"),
    ("[false]", "\
        auto_max_new_tokens=max_tokens ban_eos_token=suppress_tokens bypass_eos=suppress_tokens \
        continue_=continue_final_message decoder_input_details=prompt_logprobs dynamic_temperature echo \
        grammar_lazy no_stop_trim=include_stop_str_in_output post_sampling_probs raw return_full_text=echo \
        return_hidden_states safe_prompt temperature_last use_default_badwordsids=suppress_tokens \
        watermark=watermarking_config"),
    ("[true]", "add_bos_token=add_special_tokens detokenize=return_token_ids"),
    ("[]", "\
        audio guided_whitespace_pattern max_output_tokens=max_tokens prompt_embeds=prompt prompt_logprobs \
        random_seed=seed repetition_detection \
        truncate=truncate_prompt_tokens web_search_options"),
    (r#"["auto", "none"]"#, "function_call=tool_choice"),
    (r#"["instruct"]"#, "mode"),
    (r#"[["text"]]"#, "modalities"),
    ("[{}]", "custom_params options vllm_xargs"),
    (r#"["medium"]"#, "verbosity"),
];

/// How far back penalties look, in the same form. Without a penalty these have no effect. Penalties of rsgen look
/// at the whole text, as -1 says in llama.cpp and 0 in text-generation-webui.
const RANGES: &[(&str, &str)] = &[
    ("[-1]", "penalty_last_n repeat_last_n"),
    ("[0]", "repetition_penalty_range"),
    ("[0, 1]", "rep_pen_slope"),
    ("[]", "rep_pen_range"),
];

/// The penalties, each with the value that switches it off.
pub(super) const PENALTIES: [(&str, f64); 3] =
    [("frequency_penalty", 0.0), ("presence_penalty", 0.0), ("repetition_penalty", 1.0)];

/// The fields, each with the values that change nothing and with what to use here, which may be nothing.
pub(super) fn fields() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    of(FOREIGN)
}

/// The fields that matter beside a penalty, in the same form.
pub(super) fn ranges() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    of(RANGES)
}

type Table = &'static [(&'static str, &'static str)];

fn of(table: Table) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    table.iter().flat_map(|(neutral, names)| {
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
        return Ok(ranges().any(|(range, neutral, _)| range == name && is_neutral(value, neutral)));
    };
    if is_neutral(value, neutral) {
        return Ok(true);
    }
    let instead = if instead.is_empty() { String::new() } else { format!(", or use `{instead}`") };
    let value = FieldValue::from(value.clone());
    let message =
        format!("`{name}` is not supported here, and {value} would change the answer; leave it out{instead}");
    Err(Failure::unsupported(name, message))
}

/// Checks the fields that were left over, beside the penalty of this name, if there is one.
///
/// # Errors
/// When one of them would change what the penalty does.
pub(super) fn check_ranges(ignored: &[String], penalty: Option<&str>) -> Result<(), Failure> {
    let Some(penalty) = penalty else { return Ok(()) };
    let Some(name) = ignored.iter().find(|name| ranges().any(|(range, ..)| range == name.as_str())) else {
        return Ok(());
    };
    let message = format!(
        "`{name}` is not supported here, and would change what `{penalty}` does, which looks at the whole text; \
         leave out one of them"
    );
    Err(Failure::unsupported(name.as_str(), message))
}

/// The penalty that is in effect: `given` has the value of the request, none where it leaves the model's.
pub(super) fn penalty(
    given: impl Fn(&str) -> Option<Value>,
    model: &GenerationConfig,
) -> Option<&'static str> {
    let of_model = |name: &str| match name {
        "frequency_penalty" => model.frequency_penalty,
        "presence_penalty" => model.presence_penalty,
        _ => model.repetition_penalty,
    };
    let is_on = |&&(name, off): &&(&str, f64)| {
        let value = match given(name) {
            Some(value) => value.as_f64(),
            None => of_model(name),
        };
        value.is_some_and(|value| value != off)
    };
    PENALTIES.iter().find(is_on).map(|(name, _)| *name)
}

fn is_neutral(value: &Value, neutral: &str) -> bool {
    let neutral: Vec<Value> = serde_json::from_str(neutral).unwrap_or_default();
    let is_same = |other: &Value| other == value || other.is_number() && other.as_f64() == value.as_f64();
    value.is_null() || neutral.iter().any(is_same)
}
