//! The table of request fields. The checks, `/openapi.json` and the documentation are made from it.
//!
//! OpenAI's fields and vLLM's are written here. Every other field of a [`GenerationConfig`] is a field of all
//! requests that generate, with the type and the documentation that it has there.

use std::sync::LazyLock;

use serde_json::{Value, json};

use rsgen_generation::config::FieldInfo;
use rsgen_generation::{GenerationConfig, Strategy};

/// A set of routes: those that accept a field.
pub(super) type Routes = u8;
/// `/v1/completions`
pub(super) const COMPLETIONS: Routes = 1;
/// `/v1/chat/completions`
pub(super) const CHAT: Routes = 2;
/// `/rsgen/v1/generate`
pub(super) const GENERATE: Routes = 4;
/// `/tokenize`
pub(super) const TOKENIZE: Routes = 8;
/// `/detokenize`
pub(super) const DETOKENIZE: Routes = 16;
/// `/apply-template`
pub(super) const TEMPLATE: Routes = 32;

/// The two routes of OpenAI.
pub(super) const OPENAI: Routes = COMPLETIONS | CHAT;
const GENERATING: Routes = OPENAI | GENERATE;
const CONVERSATION: Routes = CHAT | GENERATE | TOKENIZE | TEMPLATE;

/// The most rows that a request computes: prompts, times the rows or beams of each.
pub(super) const MAX_ROWS: usize = 64;
/// The most prompts of a request.
pub(super) const MAX_PROMPTS: usize = 128;
/// The most alternatives of a token.
pub(super) const MAX_LOGPROBS: i64 = 20;
/// The most stop strings.
const MAX_STOPS: usize = 16;
/// The most entries of other lists and maps.
const MAX_ENTRIES: usize = 1024;
/// The greatest number of tokens that a field may name.
const MAX_COUNT: i64 = i32::MAX as i64;
/// The longest text of a field that is no prompt.
const MAX_TEXT: usize = 4096;

/// The type and range of a field. Null counts as absent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// True or false.
    Bool,
    /// An integer in this range, both ends included.
    Integer(i64, i64),
    /// A number in this range, both ends included.
    Number(f64, f64),
    /// A text of so many bytes.
    Text(usize, usize),
    /// A text, or a list of so many, none of them empty.
    Texts(usize),
    /// A list of token ids.
    Ids,
    /// One token id, or a list of them.
    IdOrIds,
    /// Lists of token ids.
    IdLists,
    /// A map from token ids to biases.
    Biases,
    /// A text, a list of texts, a list of token ids, or a list of such lists.
    Prompt,
    /// A list of objects.
    Objects,
    /// An object.
    Object,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A field of [`GenerationConfig`] that checks its values by itself.
    Checked(&'static str),
    /// A field of other servers that is refused, never ignored. It may be empty.
    Unsupported,
}

/// A field of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) routes: Routes,
    /// Its default.
    pub(super) default: &'static str,
    /// Its documentation.
    pub(super) doc: &'static str,
    /// The field of [`GenerationConfig`] that it sets, or a part of it.
    pub(super) sets: &'static str,
}

const fn field(
    routes: Routes,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    sets: &'static str,
    doc: &'static str,
) -> Field {
    Field { name, kind, routes, default, doc, sets }
}

const COUNT: Kind = Kind::Integer(0, MAX_COUNT);

/// The fields beyond those of [`GenerationConfig`], and those that mean more here.
#[rustfmt::skip]
pub(super) const OWN: &[Field] = &[
    field(OPENAI | TOKENIZE | DETOKENIZE | TEMPLATE | GENERATE, "model", Kind::Text(0, MAX_TEXT), "the served model", "", "The model's id; another one is not found. `dummy` counts as none."),
    field(COMPLETIONS, "prompt", Kind::Prompt, "required", "", "A text, token ids, or a list of either; at most 128."),
    field(GENERATE, "prompt", Kind::Prompt, "required, or `messages`", "", "A text, or token ids."),
    field(TOKENIZE, "prompt", Kind::Text(0, usize::MAX), "required, or `messages`", "", "The text to encode."),
    field(TOKENIZE, "return_token_strs", Kind::Bool, "false", "", "Adds `token_strs`, the tokens as the vocabulary writes them."),
    field(DETOKENIZE, "tokens", Kind::Ids, "required", "", "The ids to decode."),
    field(CHAT | TEMPLATE, "messages", Kind::Objects, "required", "", "The conversation: objects with `role` and `content`. The model's template makes the prompt of it."),
    field(GENERATE | TOKENIZE, "messages", Kind::Objects, "unset", "", "A conversation, in place of `prompt`."),
    field(CONVERSATION, "tools", Kind::Objects, "none", "", "The tools that the template shows to the model."),
    field(CHAT, "tool_choice", Kind::OneOf(&["auto", "none"]), "\"auto\"", "", "`none` leaves out the tools."),
    field(CONVERSATION, "documents", Kind::Objects, "none", "", "Documents that the template shows to the model."),
    field(CONVERSATION, "add_generation_prompt", Kind::Bool, "true", "", "Whether the prompt ends with the beginning of a reply."),
    field(CONVERSATION, "continue_final_message", Kind::Bool, "false", "", "Goes on with the last message; `add_generation_prompt` has to be false."),
    field(CONVERSATION, "chat_template_kwargs", Kind::Object, "none", "", "More variables of the template, such as `enable_thinking`; at most 16 KB."),
    field(OPENAI, "response_format", Kind::Object, "text", "json_schema", "`type`: `text`; `json_object` for any JSON object, or for one that the schema in `value` describes; `json_schema` with `json_schema: {\"schema\": …}` for what the schema says."),
    field(OPENAI, "structured_outputs", Kind::Object, "none", "json_schema, regex, grammar", "vLLM's form: an object with one of `json`, `json_object`, `regex`, `grammar` and `choice`."),
    field(OPENAI, "guided_json", Kind::Checked("a JSON schema or its text"), "none", "json_schema", "A JSON schema, as older versions of vLLM name it."),
    field(OPENAI, "guided_regex", Kind::Text(0, usize::MAX), "none", "regex", "A regular expression."),
    field(OPENAI, "guided_grammar", Kind::Text(0, usize::MAX), "none", "grammar", "A grammar in the notation of Lark."),
    field(OPENAI, "guided_choice", Kind::Texts(MAX_ENTRIES), "none", "grammar", "The answer is one of these texts."),
    field(COMPLETIONS, "max_tokens", COUNT, "16", "max_new_tokens", "The most new tokens; 0 with `echo` scores the prompt without generating."),
    field(CHAT, "max_tokens", Kind::Integer(1, MAX_COUNT), "the rest of the context", "max_new_tokens", "The most new tokens."),
    field(CHAT, "max_completion_tokens", Kind::Integer(1, MAX_COUNT), "the rest of the context", "max_new_tokens", "The same as `max_tokens`."),
    field(OPENAI, "temperature", Kind::Number(0.0, 100.0), "1", "temperature, do_sample", "Above 0 it samples; 0 takes the most probable token. Below 0.01 it counts as 0.01."),
    field(OPENAI, "top_p", Kind::Number(0.0, 1.0), "1", "top_p", "Samples among the most probable tokens that together reach this probability."),
    field(OPENAI, "top_k", Kind::Integer(-1, MAX_COUNT), "0", "top_k", "Samples among this many of the most probable tokens; 0 and -1 keep all."),
    field(OPENAI, "n", Kind::Integer(1, MAX_ROWS as i64), "1", "num_return_sequences", "The number of answers to each prompt; with `use_beam_search` the number of beams too."),
    field(COMPLETIONS, "best_of", Kind::Integer(1, MAX_ROWS as i64), "`n`", "num_return_sequences", "Generates so many answers, and returns the `n` whose tokens have the greatest log-probability on average. Not with `stream`."),
    field(OPENAI, "stream", Kind::Bool, "false", "", "Sends the answer as server-sent events while it is generated."),
    field(GENERATE, "stream", Kind::Bool, "true", "", "Sends events while they happen; false sends the output at the end."),
    field(OPENAI, "stream_options", Kind::Object, "none", "", "`include_usage` adds a last event with the token counts, `continuous_usage_stats` adds them to each."),
    field(COMPLETIONS, "logprobs", Kind::Integer(0, MAX_LOGPROBS), "none", "top_logprobs", "Adds the log-probability of each token, and so many of the most probable tokens at its place."),
    field(CHAT, "logprobs", Kind::Bool, "false", "", "Adds the log-probability of each token."),
    field(CHAT, "top_logprobs", Kind::Integer(0, MAX_LOGPROBS), "0", "top_logprobs", "So many of the most probable tokens at each place; needs `logprobs`."),
    field(GENERATE, "top_logprobs", Kind::Integer(0, 100), "0", "top_logprobs", "So many of the most probable tokens at each place of the output."),
    field(COMPLETIONS, "prompt_logprobs", Kind::Integer(0, MAX_LOGPROBS), "none", "", "Adds the log-probability of each token of the prompt, in vLLM's form. Not with `stream`."),
    field(COMPLETIONS, "echo", Kind::Bool, "false", "", "Puts the prompt before the answer, with `logprobs` its tokens too."),
    field(OPENAI, "stop", Kind::Texts(MAX_STOPS), "none", "", "Texts that end an answer when it comes to hold one; the answer ends before it."),
    field(OPENAI, "include_stop_str_in_output", Kind::Bool, "false", "", "The answer ends after the stop string."),
    field(OPENAI, "stop_token_ids", Kind::Ids, "none", "eos_token_id", "More tokens that end an answer."),
    field(OPENAI, "ignore_eos", Kind::Bool, "false", "eos_token_id", "The model's end-of-sequence token does not end an answer."),
    field(OPENAI, "min_tokens", COUNT, "0", "min_new_tokens", "The new tokens before which no end-of-sequence token is generated."),
    field(GENERATING, "seed", Kind::Integer(i64::MIN, i64::MAX), "drawn", "seed", "The seed of sampling; prompt `i` takes `seed + i`."),
    field(OPENAI, "logit_bias", Kind::Biases, "none", "logit_bias", "A map from token ids to biases from -100 to 100."),
    field(OPENAI, "bad_words", Kind::Texts(MAX_ENTRIES), "none", "bad_words_ids", "Texts that must not occur."),
    field(OPENAI, "allowed_token_ids", Kind::Ids, "all", "", "The only tokens that may be generated."),
    field(OPENAI, "use_beam_search", Kind::Bool, "false", "num_beams", "Beam search with `n` beams, or with `best_of`."),
    field(COMPLETIONS | TOKENIZE, "add_special_tokens", Kind::Bool, "true", "", "Whether the tokenizer adds special tokens to a text."),
    field(CHAT, "add_special_tokens", Kind::Bool, "false", "", "Whether the tokenizer adds special tokens to the text of the template, which writes its own."),
    field(OPENAI, "skip_special_tokens", Kind::Bool, "true", "", "Leaves special tokens out of the text."),
    field(OPENAI, "truncate_prompt_tokens", Kind::Integer(-1, MAX_COUNT), "none", "", "Keeps so many of the last tokens of a prompt; -1 keeps what the context holds."),
    field(OPENAI, "return_token_ids", Kind::Bool, "false", "", "Adds `token_ids` and `prompt_token_ids`."),
    field(OPENAI, "return_tokens_as_token_ids", Kind::Bool, "false", "", "Writes tokens as `token_id:5` in log-probabilities."),
    field(GENERATING, "cache_salt", Kind::Text(1, 1024), "none", "", "Shares cached prompts only with requests of the same salt; never with those of another API key."),
    field(OPENAI, "user", Kind::Text(0, MAX_TEXT), "none", "", "Accepted without effect."),
    field(OPENAI, "rsgen", Kind::Object, "none", "", "`strategy`, and any field of `GenerationConfig` by its name in transformers. Null switches one off that the model's file sets."),
    field(GENERATING, "strategy", Kind::Text(0, MAX_TEXT), "what the fields select", "", "The name of a strategy: its method in Python, which sets the fields that define it."),
    field(GENERATE, "use_assistant", Kind::Bool, "true", "", "Whether the assistant that the server was started with drafts tokens."),
    // Fields of other servers that this one does not support: refused, never ignored.
    field(COMPLETIONS, "suffix", Kind::Unsupported, "none", "", "Not supported."),
    field(CONVERSATION, "chat_template", Kind::Unsupported, "none", "", "Not supported: clients cannot bring a template."),
];

/// The ranges that the server allows for numbers of [`GenerationConfig`]. They keep scores finite and
/// requests within [`MAX_ROWS`].
const RANGES: &[(&str, Kind)] = &[
    ("num_beams", Kind::Integer(1, MAX_ROWS as i64)),
    ("num_beam_groups", Kind::Integer(1, MAX_ROWS as i64)),
    ("num_return_sequences", Kind::Integer(1, MAX_ROWS as i64)),
    ("max_new_tokens", Kind::Integer(1, MAX_COUNT)),
    ("max_length", Kind::Integer(1, MAX_COUNT)),
    ("max_time", Kind::Number(0.001, 86_400.0)),
    ("temperature", Kind::Number(0.01, 100.0)),
    ("prefill_chunk_size", Kind::Integer(16, MAX_COUNT)),
    ("penalty_alpha", Kind::Number(0.0, 1.0)),
    ("prompt_lookup_num_tokens", Kind::Integer(1, 256)),
    ("max_matching_ngram_size", Kind::Integer(1, 256)),
    ("num_assistant_tokens", Kind::Integer(1, 256)),
    ("assistant_confidence_threshold", Kind::Number(0.0, 1.0)),
    ("assistant_ensemble_weight", Kind::Number(0.01, 0.99)),
    ("length_penalty", Kind::Number(-10.0, 10.0)),
    ("diversity_penalty", Kind::Number(0.0, 100.0)),
    ("guidance_scale", Kind::Number(-100.0, 100.0)),
    ("repetition_penalty", Kind::Number(0.01, 100.0)),
    ("encoder_repetition_penalty", Kind::Number(0.01, 100.0)),
    ("frequency_penalty", Kind::Number(-2.0, 2.0)),
    ("presence_penalty", Kind::Number(-2.0, 2.0)),
    ("top_h", Kind::Number(0.001, 1.0)),
    ("top_p", Kind::Number(0.0, 1.0)),
    ("min_p", Kind::Number(0.0, 1.0)),
    ("typical_p", Kind::Number(0.001, 1.0)),
    ("epsilon_cutoff", Kind::Number(0.0, 0.999)),
    ("eta_cutoff", Kind::Number(0.0, 0.999)),
];

/// Output options of [`GenerationConfig`], which OpenAI's answers cannot return.
const OF_OUTPUTS: &[&str] = &[
    "output_scores",
    "output_logits",
    "output_hidden_states",
    "output_attentions",
    "output_events",
    "return_dict_in_generate",
    "top_logprobs",
];

/// All fields.
pub(super) static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let of_config = GenerationConfig::FIELDS.iter().filter_map(|info| {
        let has = |routes: Routes| OWN.iter().any(|own| own.name == info.name && own.routes & routes != 0);
        let of_outputs = OF_OUTPUTS.contains(&info.name);
        let routes = [(COMPLETIONS, !of_outputs), (CHAT, !of_outputs), (GENERATE, true)];
        let routes =
            routes.iter().filter(|(route, allowed)| *allowed && !has(*route)).map(|(route, _)| route);
        let routes = routes.fold(0, |all, route| all | route);
        (routes != 0).then(|| field(routes, info.name, kind(info), info.default, info.name, info.doc.trim()))
    });
    OWN.iter().copied().chain(of_config).collect()
});

/// The fields of a route.
pub(super) fn of_route(route: Routes) -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(move |field| field.routes & route != 0)
}

/// The kind of a field of [`GenerationConfig`] in a request.
fn kind(info: &'static FieldInfo) -> Kind {
    if let Some((_, kind)) = RANGES.iter().find(|(name, _)| *name == info.name) {
        return *kind;
    }
    match info.python_type().as_str() {
        "bool" => Kind::Bool,
        "int" if info.name.ends_with("_token_id") => Kind::Integer(0, i64::from(u32::MAX)),
        "int" => COUNT,
        "str | list[str]" => Kind::Texts(MAX_STOPS),
        "int | list[int]" => Kind::IdOrIds,
        "list[int]" => Kind::Ids,
        "list[list[int]]" => Kind::IdLists,
        _ => Kind::Checked(info.kind),
    }
}

impl Kind {
    /// The rule that `value` breaks, to complete "must be …"; `None` if it is valid.
    pub(super) fn refuses(self, value: &Value) -> Option<String> {
        let is_valid = match self {
            Self::Bool => value.is_boolean(),
            Self::Integer(least, most) => {
                integer(value).is_some_and(|value| (i128::from(least)..=i128::from(most)).contains(&value))
            }
            Self::Number(least, most) => value.as_f64().is_some_and(|value| (least..=most).contains(&value)),
            Self::Text(least, most) => {
                value.as_str().is_some_and(|text| (least..=most).contains(&text.len()))
            }
            Self::Texts(most) => match value {
                Value::String(text) => is_short(text),
                Value::Array(texts) => {
                    texts.len() <= most && texts.iter().all(|text| text.as_str().is_some_and(is_short))
                }
                _ => false,
            },
            Self::Ids => value.as_array().is_some_and(|ids| ids.iter().all(is_id)),
            Self::IdOrIds => is_id(value) || Self::Ids.refuses(value).is_none(),
            Self::IdLists => {
                let lists = value.as_array();
                lists.is_some_and(|lists| {
                    lists.len() <= MAX_ENTRIES && lists.iter().all(|ids| Self::Ids.refuses(ids).is_none())
                })
            }
            Self::Biases => value.as_object().is_some_and(|biases| {
                biases.len() <= MAX_ENTRIES
                    && biases.iter().all(|(id, bias)| {
                        id.parse::<u32>().is_ok()
                            && bias.as_f64().is_some_and(|bias| (-100.0..=100.0).contains(&bias))
                    })
            }),
            Self::Prompt => value.is_string() || value.is_array(),
            Self::Objects => value.as_array().is_some_and(|values| values.iter().all(Value::is_object)),
            Self::Object => value.is_object(),
            Self::OneOf(names) => value.as_str().is_some_and(|name| names.contains(&name)),
            Self::Checked(_) | Self::Unsupported => true,
        };
        (!is_valid).then(|| self.describe())
    }

    /// The rule for values, in words.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Integer(least, MAX_COUNT) => format!("an integer of {least} or more"),
            Self::Integer(least, most) => format!("an integer from {least} to {most}"),
            Self::Number(least, most) => format!("a number from {least} to {most}"),
            Self::Text(_, usize::MAX) => "a text".to_owned(),
            Self::Text(least, most) => format!("a text of {least} to {most} bytes"),
            Self::Texts(most) => {
                format!("a text of 1 to {MAX_TEXT} bytes, or a list of up to {most} such texts")
            }
            Self::Ids => "a list of token ids".to_owned(),
            Self::IdOrIds => "a token id or a list of them".to_owned(),
            Self::IdLists => format!("a list of up to {MAX_ENTRIES} lists of token ids"),
            Self::Biases => format!("a map from up to {MAX_ENTRIES} token ids to numbers from -100 to 100"),
            Self::Prompt => {
                "a text, a list of texts, a list of token ids, or a list of such lists".to_owned()
            }
            Self::Objects => "a list of objects".to_owned(),
            Self::Object => "an object".to_owned(),
            Self::OneOf(names) => {
                names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ")
            }
            Self::Checked(kind) => kind.to_owned(),
            Self::Unsupported => "left out".to_owned(),
        }
    }

    /// The JSON schema of valid values, null included; `last` is the greatest token id.
    pub(super) fn schema(self, last: usize) -> Value {
        let id = json!({ "type": "integer", "minimum": 0, "maximum": last });
        let ids = json!({ "type": "array", "items": id });
        let text = json!({ "type": "string", "minLength": 1, "maxLength": MAX_TEXT });
        match self {
            Self::Bool => json!({ "type": ["boolean", "null"] }),
            Self::Integer(least, most) => {
                json!({ "type": ["integer", "null"], "minimum": least, "maximum": most })
            }
            Self::Number(least, most) => {
                json!({ "type": ["number", "null"], "minimum": least, "maximum": most })
            }
            Self::Text(_, usize::MAX) => json!({ "type": ["string", "null"] }),
            Self::Text(least, most) => {
                json!({ "type": ["string", "null"], "minLength": least, "maxLength": most })
            }
            Self::Texts(most) => {
                json!({ "anyOf": [text, { "type": "array", "items": text, "maxItems": most }, { "type": "null" }] })
            }
            Self::Ids => json!({ "type": ["array", "null"], "items": id }),
            Self::IdOrIds => json!({ "anyOf": [id, ids, { "type": "null" }] }),
            Self::IdLists => json!({ "type": ["array", "null"], "items": ids, "maxItems": MAX_ENTRIES }),
            Self::Biases => json!({
                "type": ["object", "null"],
                "propertyNames": { "pattern": "^[0-9]{1,9}$" },
                "additionalProperties": { "type": "number", "minimum": -100, "maximum": 100 },
                "maxProperties": MAX_ENTRIES,
            }),
            Self::Prompt => {
                let texts = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": MAX_PROMPTS });
                let some = json!({ "type": "array", "items": id, "minItems": 1 });
                let lists = json!({ "type": "array", "items": some, "minItems": 1, "maxItems": MAX_PROMPTS });
                json!({ "anyOf": [{ "type": "string" }, texts, some, lists] })
            }
            Self::Objects => json!({ "type": ["array", "null"], "items": { "type": "object" } }),
            Self::Object => json!({ "type": ["object", "null"] }),
            Self::OneOf(names) => {
                json!({ "enum": names.iter().copied().map(Some).chain([None]).collect::<Vec<_>>() })
            }
            Self::Checked(_) => json!({}),
            Self::Unsupported => json!({ "type": ["string", "null"], "maxLength": 0 }),
        }
    }
}

/// An integer; JSON does not tell 5.0 from 5.
pub(super) fn integer(value: &Value) -> Option<i128> {
    let Value::Number(number) = value else { return None };
    let whole = |value: f64| (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i128);
    number.as_i128().or_else(|| number.as_f64().and_then(whole))
}

fn is_id(value: &Value) -> bool {
    integer(value).is_some_and(|id| (0..=i128::from(u32::MAX)).contains(&id))
}

fn is_short(text: &str) -> bool {
    (1..=MAX_TEXT).contains(&text.len())
}

/// The names of the strategies.
pub(super) fn strategies() -> String {
    Strategy::ALL.iter().map(|strategy| strategy.name).collect::<Vec<_>>().join(", ")
}
