//! The options of generation: one for each field of [`GenerationConfig`], made of its table of fields.
//!
//! A field added there gets its option, variable, help and line in docs/shell.md automatically.

use std::path::Path;
use std::sync::LazyLock;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;

use super::wording;
use rsgen_generation::{FieldInfo, FieldValue, GenerationConfig};

/// The headings of the long help, with their fields. Other fields follow.
const HEADINGS: [(&str, &[&str]); 10] = [
    (
        "Length",
        &[
            "max_new_tokens",
            "min_new_tokens",
            "max_length",
            "min_length",
            "max_time",
            "stop_strings",
            "attention_sinks",
            "window",
        ],
    ),
    (
        "Decoding",
        &[
            "do_sample",
            "temperature",
            "top_k",
            "top_p",
            "num_beams",
            "num_return_sequences",
            "seed",
            "compat",
            "prefill_chunk_size",
            "token_healing",
        ],
    ),
    ("Sampling", &["min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff", "renormalize_logits"]),
    (
        "Beams and other searches",
        &[
            "early_stopping",
            "length_penalty",
            "num_beam_groups",
            "diversity_penalty",
            "force_words_ids",
            "penalty_alpha",
            "dola_layers",
        ],
    ),
    (
        "Drafts",
        &[
            "num_assistant_tokens",
            "num_assistant_tokens_schedule",
            "assistant_confidence_threshold",
            "prompt_lookup_num_tokens",
            "max_matching_ngram_size",
            "assistant_early_exit",
            "assistant_ensemble_weight",
            "assistant_lookbehind",
            "target_lookbehind",
        ],
    ),
    ("Structured output", &["json_schema", "regex", "grammar"]),
    (
        "Penalties and biases",
        &[
            "repetition_penalty",
            "encoder_repetition_penalty",
            "frequency_penalty",
            "presence_penalty",
            "no_repeat_ngram_size",
            "encoder_no_repeat_ngram_size",
            "exponential_decay_length_penalty",
            "sequence_bias",
            "logit_bias",
            "bad_words_ids",
            "suppress_tokens",
            "begin_suppress_tokens",
            "remove_invalid_values",
            "watermarking_config",
        ],
    ),
    (
        "Guidance",
        &["guidance_scale", "negative_prompt", "negative_prompt_ids", "negative_prompt_attention_mask"],
    ),
    (
        "Special tokens",
        &["bos_token_id", "eos_token_id", "pad_token_id", "forced_bos_token_id", "forced_eos_token_id"],
    ),
    ("More results", &["top_logprobs", "output_scores", "output_logits", "output_events"]),
];

/// Fields for programs alone: arrays that no shell shows.
const NO_OPTIONS: [&str; 2] = ["output_hidden_states", "output_attentions"];

/// The heading of fields that are not in the list.
const OTHERS: &str = "Other fields";

/// The options of the short help, with words that fit on a line.
const COMMON: [(&str, &str); 9] = [
    ("max_new_tokens", "The most tokens to add [default: up to the end]"),
    ("stop_strings", "Stop after this text; may be repeated"),
    ("do_sample", "Draw each token at random"),
    ("num_beams", "How many beams [default: 1]"),
    ("num_return_sequences", "How many texts to give [default: 1]"),
    ("seed", "The same seed draws the same text"),
    ("temperature", "Below 1: likely tokens gain [default: 1]"),
    ("top_k", "From the K likeliest; 0: all [default: 50]"),
    ("top_p", "From the likeliest, in sum P [default: 1]"),
];

/// Defaults that differ from those of the library, since the command goes on to the end of the context.
const DEFAULTS: [(&str, &str); 2] = [("max_new_tokens", "up to the end"), ("max_length", "unset")];

/// The option of a field.
struct FieldOption {
    info: &'static FieldInfo,
    /// `top-p`
    long: String,
    /// `RSGEN_TOP_P`
    variable: String,
    heading: &'static str,
}

static OPTIONS: LazyLock<Vec<FieldOption>> = LazyLock::new(|| {
    let listed =
        || HEADINGS.iter().flat_map(|(heading, names)| names.iter().map(move |name| (*heading, *name)));
    let option = |info: &'static FieldInfo| {
        let heading = listed().find(|(_, name)| *name == info.name).map_or(OTHERS, |(heading, _)| heading);
        let variable = format!("RSGEN_{}", info.name.to_ascii_uppercase());
        FieldOption { info, long: info.name.replace('_', "-"), variable, heading }
    };
    let fields = GenerationConfig::FIELDS.iter().filter(|info| !NO_OPTIONS.contains(&info.name));
    let mut options: Vec<FieldOption> = fields.map(option).collect();
    options
        .sort_by_key(|option| listed().position(|(_, name)| name == option.info.name).unwrap_or(usize::MAX));
    options
});

/// The given fields; all others come from the model's defaults.
#[derive(Debug, Clone)]
pub(super) struct DecodingArguments(pub(super) GenerationConfig);

impl Args for DecodingArguments {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for DecodingArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut arguments = Self(GenerationConfig::new());
        arguments.update_from_arg_matches(matches)?;
        Ok(arguments)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for FieldOption { info, .. } in OPTIONS.iter() {
            let Some(values) = matches.get_many::<FieldValue>(info.name) else { continue };
            let values: Vec<FieldValue> = values.cloned().collect();
            let value = if let [value] = &values[..] { value.clone() } else { FieldValue::List(values) };
            self.0
                .set_in_call(info.name, &value)
                .map_err(|error| clap::Error::raw(ErrorKind::ValueValidation, wording::told(&error)))?;
        }
        Ok(())
    }
}

/// The short help of a field's option, without its default.
pub(super) fn help(name: &str) -> &'static str {
    let own = COMMON.iter().find(|(common, _)| *common == name).map(|(_, help)| *help);
    let doc = || GenerationConfig::FIELDS.iter().find(|info| info.name == name).map(|info| info.doc);
    let text = own.or_else(doc).unwrap_or_default().trim().trim_end_matches('.');
    let end = ["; ", ". ", " [default"].iter().filter_map(|end| text.find(end)).min();
    &text[..end.unwrap_or(text.len())]
}

fn argument(option: &'static FieldOption) -> Arg {
    let FieldOption { info, long, variable, heading } = option;
    let default = DEFAULTS.iter().find(|(name, _)| *name == info.name).map_or(info.default, |(_, own)| own);
    let described = info.doc.trim().trim_end_matches('.');
    let long_help =
        if default == "unset" { described.to_owned() } else { format!("{described} [default: {default}]") };
    let long_help = wording::described(&long_help);
    let common = COMMON.iter().find(|(name, _)| *name == info.name).map(|(_, help)| *help);
    let arg = Arg::new(info.name)
        .long(long.as_str())
        .env(variable.as_str())
        .help(common.map_or_else(|| wording::described(help(info.name)), str::to_owned))
        .long_help(long_help)
        .help_heading(*heading)
        .hide_short_help(common.is_none())
        // A field without effect has no help.
        .hide(info.doc.trim_start().starts_with("Accepted"))
        .value_parser(|text: &str| value(info, text));
    let arg = if info.name == "stop_strings" { arg.alias("stop") } else { arg };
    let python = info.python_type();
    match info.name {
        "json_schema" => return arg.value_name("FILE|JSON"),
        "grammar" => return arg.value_name("FILE|TEXT"),
        _ => {}
    }
    match python.split([' ', '[']).next().unwrap_or_default() {
        "bool" => arg.value_name("BOOL").num_args(0..=1).require_equals(true).default_missing_value("true"),
        "str" => arg.value_name("TEXT").action(ArgAction::Append),
        "int" => arg.value_name("N").allow_negative_numbers(true),
        "float" => arg.value_name("X").allow_negative_numbers(true),
        "Literal" => arg.value_name("CHOICE"),
        "list" if python == "list[int]" => arg.value_name("IDS").allow_negative_numbers(true),
        _ => arg.value_name("JSON").allow_negative_numbers(true),
    }
}

/// Parses the value of a field: a text where it takes one, else JSON, or a JSON list without its brackets.
fn value(info: &FieldInfo, text: &str) -> Result<FieldValue, String> {
    let file = text_of_file(info.name, text)?;
    let text = file.as_deref().unwrap_or(text);
    let json = |text: &str| serde_json::from_str::<Value>(text).ok().map(FieldValue::from);
    let flag = match text.to_ascii_lowercase().as_str() {
        "1" | "y" | "yes" | "t" | "true" | "on" => Some(true),
        "0" | "n" | "no" | "f" | "false" | "off" => Some(false),
        _ => None,
    };
    let candidates = [
        (text == "null").then_some(FieldValue::Null),
        Some(FieldValue::from(text)),
        json(text),
        text.parse().ok().map(FieldValue::Float),
        json(&format!("[{text}]")),
        flag.map(FieldValue::Bool),
    ];
    let is_possible = |value: &FieldValue| GenerationConfig::new().set(info.name, value).is_ok();
    candidates.into_iter().flatten().find(is_possible).ok_or_else(|| {
        let within = json(text).filter(|value| info.explain(value).is_some());
        let error = within.and_then(|value| GenerationConfig::new().set(info.name, &value).err());
        error.map_or_else(|| format!("it must be {}", info.kind), |error| wording::told(&error))
    })
}

/// The longest file of a schema or a grammar.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The text of the file that a field may name in place of its text: a schema begins with a brace, and a grammar has a colon.
fn text_of_file(name: &str, text: &str) -> Result<Option<String>, String> {
    let is_text = match name {
        "json_schema" => {
            text.trim_start().starts_with('{') || ["true", "false", "null"].contains(&text.trim())
        }
        "grammar" => text.contains(':') && !Path::new(text).is_file(),
        _ => true,
    };
    if is_text {
        return Ok(None);
    }
    let is_short =
        |path: &Path| std::fs::metadata(path).map(|file| file.is_file() && file.len() <= MAX_FILE_BYTES);
    match is_short(Path::new(text)) {
        Ok(true) => {
            std::fs::read_to_string(text).map(Some).map_err(|error| format!("the file {text:?}: {error}"))
        }
        Ok(false) => Err(format!("it must be a file of at most {MAX_FILE_BYTES} bytes, or the text itself")),
        Err(error) => Err(format!("it is neither the text itself nor a file: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, text: &str) -> Result<FieldValue, String> {
        value(GenerationConfig::FIELDS.iter().find(|info| info.name == name).unwrap(), text)
    }

    #[test]
    fn values_have_the_type_of_their_field() {
        let ids = |ids: &[i128]| ids.iter().map(|&id| FieldValue::Int(id)).collect::<FieldValue>();
        for (name, text, expected) in [
            ("top_p", ".5", FieldValue::Float(0.5)),
            ("top_k", "7", FieldValue::Int(7)),
            ("do_sample", "YES", FieldValue::Bool(true)),
            ("do_sample", "0", FieldValue::Bool(false)),
            ("stop_strings", "42", FieldValue::from("42")),
            ("compat", "4.49", FieldValue::from("4.49")),
            ("early_stopping", "never", FieldValue::from("never")),
            ("early_stopping", "true", FieldValue::Bool(true)),
            ("dola_layers", "high", FieldValue::from("high")),
            ("dola_layers", "0,2", ids(&[0, 2])),
            ("eos_token_id", "1", FieldValue::Int(1)),
            ("eos_token_id", "1, 2", ids(&[1, 2])),
            ("eos_token_id", "null", FieldValue::Null),
            ("force_words_ids", "[[5, 6]]", [ids(&[5, 6])].into_iter().collect()),
            ("force_words_ids", "[5, 6]", [ids(&[5, 6])].into_iter().collect()),
        ] {
            assert_eq!(parsed(name, text), Ok(expected), "{name}={text}");
        }
        assert_eq!(parsed("top_k", "many").unwrap_err(), "it must be an integer of 0 or more");
        assert!(parsed("do_sample", "maybe").is_err());
    }

    #[test]
    fn every_field_has_its_option_and_a_heading() {
        assert_eq!(OPTIONS.len() + NO_OPTIONS.len(), GenerationConfig::FIELDS.len());
        for (_, names) in HEADINGS {
            assert!(names.iter().all(|name| GenerationConfig::is_field(name)), "{names:?}");
        }
        let others = OPTIONS.iter().filter(|option| option.heading == OTHERS);
        let shown: Vec<&str> =
            others.filter(|option| !argument(option).is_hide_set()).map(|option| option.info.name).collect();
        assert!(shown.is_empty(), "give them a heading: {shown:?}");
    }
}
