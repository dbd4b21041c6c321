//! The options of generation: one for each field of [`GenerationConfig`], made from its field table.
//!
//! A field added there gets its option, variable, help and line in docs/shell.md automatically.

use std::path::Path;
use std::sync::LazyLock;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;

use super::prompt::without_mark;
use super::wording;
use rsgen_generation::config::{FieldKind, Glossary, Heading};
use rsgen_generation::{FieldInfo, FieldValue, GenerationConfig};

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
}

/// The options in the order of their headings. No shell shows arrays.
static OPTIONS: LazyLock<Vec<FieldOption>> = LazyLock::new(|| {
    let fields = GenerationConfig::FIELDS.iter().filter(|info| info.heading != Heading::Arrays);
    let mut options: Vec<FieldOption> = fields
        .map(|info| {
            let variable = format!("RSGEN_{}", info.name.to_ascii_uppercase());
            FieldOption { info, long: info.name.replace('_', "-"), variable }
        })
        .collect();
    options.sort_by_key(|option| option.info.heading);
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
    let doc = || FieldInfo::of(name).map(|info| info.doc);
    let text = own.or_else(doc).unwrap_or_default().trim().trim_end_matches('.');
    let end = ["; ", ". ", " [default"].iter().filter_map(|end| text.find(end)).min();
    &text[..end.unwrap_or(text.len())]
}

fn argument(option: &'static FieldOption) -> Arg {
    let FieldOption { info, long, variable } = option;
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
        .help_heading(info.heading.as_str())
        .hide_short_help(common.is_none())
        .hide(info.heading == Heading::Accepted)
        .value_parser(|text: &str| value(info, text));
    let arg = if info.name == "stop_strings" { arg.alias("stop") } else { arg };
    match info.name {
        "json_schema" | "glossary" => arg.value_name("FILE|JSON"),
        "grammar" => arg.value_name("FILE|TEXT"),
        _ => with_values(arg, info.kind),
    }
}

/// The option with what it takes.
fn with_values(arg: Arg, kind: FieldKind) -> Arg {
    match kind {
        FieldKind::Bool => {
            arg.value_name("BOOL").num_args(0..=1).require_equals(true).default_missing_value("true")
        }
        FieldKind::Text(..) => arg.value_name("TEXT").action(ArgAction::Append),
        FieldKind::Int(..) | FieldKind::Id => arg.value_name("N").allow_negative_numbers(true),
        FieldKind::Float(..) => arg.value_name("X").allow_negative_numbers(true),
        FieldKind::Word(_) => arg.value_name("CHOICE"),
        FieldKind::List(FieldKind::Id, _) => arg.value_name("IDS").allow_negative_numbers(true),
        FieldKind::OneOrMany(kind, _) | FieldKind::Described(_, kind) => with_values(arg, *kind),
        FieldKind::AnyOf([first @ (FieldKind::Bool | FieldKind::Word(_)), ..]) => with_values(arg, *first),
        _ => arg.value_name("JSON").allow_negative_numbers(true),
    }
}

/// Parses the value of a field: a text where it takes one, else JSON, or a JSON list without its brackets.
fn value(info: &FieldInfo, text: &str) -> Result<FieldValue, String> {
    let file = text_of_file(info.name, text)?;
    // A file of JSON has what the option may be itself.
    if let (Some(text), "glossary") = (&file, info.name)
        && !text.trim_start().starts_with('{')
    {
        let glossary = Glossary::from_tsv(text)?;
        return GenerationConfig::new().glossary(glossary).get(info.name).ok_or_else(String::new);
    }
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
        error.map_or_else(|| format!("it must be {}", info.kind.describe()), |error| wording::told(&error))
    })
}

/// The longest file of a schema, a grammar or a glossary.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The text of the file that a field may name in place of its text: a schema and a glossary begin with a brace, and
/// a grammar has a colon.
fn text_of_file(name: &str, text: &str) -> Result<Option<String>, String> {
    let is_text = match name {
        "json_schema" | "glossary" => {
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
        Ok(true) => std::fs::read_to_string(text)
            .map(without_mark)
            .map(Some)
            .map_err(|error| format!("the file {text:?}: {error}")),
        Ok(false) => Err(format!("it must be a file of at most {MAX_FILE_BYTES} bytes, or the text itself")),
        Err(error) => Err(format!("it is neither the text itself nor a file: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, text: &str) -> Result<FieldValue, String> {
        value(FieldInfo::of(name).unwrap(), text)
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
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("terms.tsv");
        std::fs::write(&file, "house\tHaus\ngreen tea\tGr\u{fc}ntee\tGr\u{fc}ntees\n").unwrap();
        let terms = serde_json::json!({ "house": "Haus", "green tea": ["Gr\u{fc}ntee", "Gr\u{fc}ntees"] });
        for text in [file.to_str().unwrap(), &terms.to_string()] {
            assert_eq!(parsed("glossary", text), Ok(terms.clone().into()));
        }
        std::fs::write(&file, format!("\u{feff}\n{terms}\n")).unwrap();
        assert_eq!(parsed("glossary", file.to_str().unwrap()), Ok(terms.into()));
        std::fs::write(&file, "house Haus").unwrap();
        assert_eq!(
            parsed("glossary", file.to_str().unwrap()).unwrap_err(),
            "line 1 must be a term, a tab and its translation"
        );
        assert_eq!(parsed("top_k", "many").unwrap_err(), "it must be an integer of 0 or more");
        assert!(parsed("do_sample", "maybe").is_err());
    }

    #[test]
    fn every_field_has_its_option_and_a_heading() {
        let arrays = GenerationConfig::FIELDS.iter().filter(|info| info.heading == Heading::Arrays).count();
        assert_eq!(OPTIONS.len() + arrays, GenerationConfig::FIELDS.len());
        for option in OPTIONS.iter() {
            let (info, arg) = (option.info, argument(option));
            assert_eq!(arg.get_long(), Some(&*info.name.replace('_', "-")));
            assert_eq!(arg.get_help_heading(), Some(info.heading.as_str()), "{}", info.name);
            assert_eq!(arg.is_hide_set(), info.heading == Heading::Accepted, "{}", info.name);
        }
    }
}
