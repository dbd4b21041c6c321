//! The table of request fields. The checks, `/openapi.json` and the documentation are made from it.
//!
//! OpenAI's fields and vLLM's are written here. Every other field of a [`GenerationConfig`] is a field of all
//! requests that generate, with the type and the documentation that it has there.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{anthropic, embeddings, ollama, responses, score};
use rsgen_generation::config::{FieldKind, Heading, MAX_COUNT, MAX_ENTRIES, MAX_ROWS, MAX_STOPS, MAX_TEXT};
use rsgen_generation::{GenerationConfig, Strategy};

/// A set of routes: those that accept a field.
pub(super) type Routes = u32;
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

/// `/rsgen/v1/translate`
pub(super) const TRANSLATE: Routes = 64;
/// `/translate`, as LibreTranslate has it
pub(super) const LIBRETRANSLATE: Routes = 128;
/// `/v1/embeddings`
pub(super) const EMBEDDINGS: Routes = 256;
/// `/v1/score`
pub(super) const SCORE: Routes = 512;
/// `/v1/rerank`
pub(super) const RERANK: Routes = 1024;
/// `/v1/messages`
pub(super) const MESSAGES: Routes = 2048;
/// `/v1/messages/count_tokens`
pub(super) const COUNT_TOKENS: Routes = 4096;
/// `/api/chat`
pub(super) const OLLAMA_CHAT: Routes = 8192;
/// `/api/generate`
pub(super) const OLLAMA_GENERATE: Routes = 16384;
/// `/api/embed`
pub(super) const OLLAMA_EMBED: Routes = 32768;
/// `/api/show`
pub(super) const OLLAMA_SHOW: Routes = 65536;

/// `/v1/responses`
pub(super) const RESPONSES: Routes = 131_072;

/// The two routes of OpenAI with its older protocol.
pub(super) const OPENAI: Routes = COMPLETIONS | CHAT;
/// The routes that have `rsgen`, an object of transformers' fields.
pub(super) const WITH_RSGEN: Routes = OPENAI | MESSAGES | RESPONSES;
/// The routes of Ollama.
pub(super) const OLLAMA: Routes = OLLAMA_CHAT | OLLAMA_GENERATE | OLLAMA_EMBED | OLLAMA_SHOW;
/// The routes whose answers are generated.
pub(super) const GENERATED: Routes = WITH_RSGEN | OF_RSGEN | OLLAMA_CHAT | OLLAMA_GENERATE;
/// The routes that make vectors of texts.
pub(super) const POOLED: Routes = EMBEDDINGS | SCORE | RERANK;
/// The routes with transformers' names and defaults.
pub(super) const OF_RSGEN: Routes = GENERATE | TRANSLATE;
const GENERATING: Routes = OPENAI | OF_RSGEN;
const CONVERSATION: Routes = CHAT | GENERATE | TOKENIZE | TEMPLATE;

/// The most prompts of a request.
pub(super) const MAX_PROMPTS: usize = 128;
/// The most texts of a request for their vectors, as OpenAI has it.
pub(super) const MAX_INPUTS: usize = 2048;
/// The most alternatives of a token.
const MAX_LOGPROBS: i128 = 20;

/// The type and range of a field. Null counts as absent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// A value of this kind.
    Of(FieldKind),
    /// A text, a list of texts, a list of token ids, or a list of such lists, of up to so many prompts.
    /// `prompts` says what is wrong with others.
    Prompt(usize),
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

pub(super) const fn field(
    routes: Routes,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    sets: &'static str,
    doc: &'static str,
) -> Field {
    Field { name, kind, routes, default, doc, sets }
}

pub(super) const BOOL: Kind = Kind::Of(FieldKind::Bool);
const IDS: Kind = Kind::Of(FieldKind::IDS);
pub(super) const OBJECT: Kind = Kind::Of(FieldKind::Object);
pub(super) const OBJECTS: Kind = Kind::Of(FieldKind::List(&FieldKind::Object, usize::MAX));
pub(super) const TEXT: Kind = text(0, usize::MAX);
const TEXTS: Kind = Kind::Of(FieldKind::OneOrMany(&FieldKind::Text(0, usize::MAX), MAX_PROMPTS));
pub(super) const NAME: Kind = text(0, MAX_TEXT);
pub(super) const COUNT: Kind = integer(0, MAX_COUNT);
const ROWS: Kind = integer(1, MAX_ROWS as i128);

pub(super) const fn text(least: usize, most: usize) -> Kind {
    Kind::Of(FieldKind::Text(least, most))
}

pub(super) const fn texts(most: usize) -> Kind {
    Kind::Of(FieldKind::OneOrMany(&FieldKind::Text(1, MAX_TEXT), most))
}

pub(super) const fn integer(least: i128, most: i128) -> Kind {
    Kind::Of(FieldKind::Int(least, most))
}

pub(super) const fn number(least: f64, most: f64) -> Kind {
    Kind::Of(FieldKind::Float(least, most))
}

/// The fields beyond those of [`GenerationConfig`], and those that mean more here.
#[rustfmt::skip]
const OWN: &[Field] = &[
    field(WITH_RSGEN | OLLAMA | COUNT_TOKENS | POOLED | TOKENIZE | DETOKENIZE | TEMPLATE | OF_RSGEN, "model", NAME, "the served model", "", "The model's id, or with an adapter `ID:ADAPTER` or the adapter's name; another one is not found. `dummy` counts as none."),
    field(COMPLETIONS, "prompt", Kind::Prompt(MAX_PROMPTS), "required", "", "A text, token ids, or a list of either; at most 128."),
    field(GENERATE, "prompt", Kind::Prompt(MAX_PROMPTS), "required, or `messages`", "", "A text, or token ids."),
    field(TRANSLATE, "texts", TEXTS, "required", "", "A text, or a list of up to 128."),
    field(LIBRETRANSLATE, "q", TEXTS, "required", "", "A text, or a list of up to 128; a form repeats the field. Each is translated sentence by sentence."),
    field(TRANSLATE, "source", NAME, "that of the tokenizer's files", "", "The language of the texts, as the model names it."),
    field(TRANSLATE, "target", NAME, "that of the tokenizer's files", "", "The language to translate into. A model of a single pair takes none."),
    field(LIBRETRANSLATE, "source", NAME, "required", "", "The language of the texts, one of `/languages`; `auto` where the model has no choice."),
    field(LIBRETRANSLATE, "target", NAME, "required", "", "The language to translate into, one of `/languages`; `auto` where the model has no choice."),
    field(TRANSLATE, "split", Kind::Of(FieldKind::Word(&["sentences"])), "none", "", "`sentences` translates each text sentence by sentence."),
    field(LIBRETRANSLATE, "format", Kind::Of(FieldKind::Described("\"text\": HTML is not parsed, so give the texts between its tags", &FieldKind::Word(&["text"]))), "\"text\"", "", "The form of the texts; `html` is not supported."),
    field(LIBRETRANSLATE, "alternatives", integer(0, MAX_ROWS as i128 - 1), "0", "num_return_sequences", "So many other translations by beam search, less those that are equal."),
    field(LIBRETRANSLATE, "api_key", NAME, "none", "", "The API key, in place of the header `Authorization`. The body has at most 64 KiB then."),
    field(TOKENIZE, "prompt", TEXT, "required, or `messages`", "", "The text to encode."),
    field(TOKENIZE, "return_token_strs", BOOL, "false", "", "Adds `token_strs`, the tokens as the vocabulary writes them."),
    field(DETOKENIZE, "tokens", IDS, "required", "", "The ids to decode."),
    field(CHAT | TEMPLATE, "messages", OBJECTS, "required", "", "The conversation, in any form of OpenAI's API that is text. The model's template makes the prompt of it."),
    field(GENERATE | TOKENIZE, "messages", OBJECTS, "unset", "", "A conversation, in place of `prompt`."),
    field(CONVERSATION, "tools", OBJECTS, "none", "", "The tools that the template shows to the model, as OpenAI has them; an error if it shows none. Chats answer with `tool_calls`."),
    field(CHAT, "tool_choice", Kind::Of(FieldKind::AnyOf(&[FieldKind::Word(&["auto", "none", "required"]), FieldKind::Object])), "\"auto\"", "grammar", "Whether the model calls tools: as it likes; none, and it is shown none; at least one; or the one that `{\"type\": \"function\", \"function\": {\"name\": …}}` names. A grammar holds calls that have to be made to the schemas of the tools."),
    field(CHAT, "parallel_tool_calls", BOOL, "true", "", "Whether an answer that has to call tools may make several calls."),
    field(CONVERSATION, "documents", OBJECTS, "none", "", "Documents that the template shows to the model."),
    field(CONVERSATION, "add_generation_prompt", BOOL, "true", "", "Whether the prompt ends with the beginning of a reply."),
    field(CONVERSATION, "continue_final_message", BOOL, "false", "", "Goes on with the last message; `add_generation_prompt` has to be false."),
    field(CONVERSATION | MESSAGES | COUNT_TOKENS | RESPONSES, "chat_template_kwargs", OBJECT, "none", "", "More variables of the template, such as `enable_thinking`; at most 16 KB."),
    field(CONVERSATION, "reasoning_effort", NAME, "none", "", "How much the model thinks, as the template understands it: its variable of this name, such as `low` or `high`."),
    field(OPENAI, "response_format", OBJECT, "text", "json_schema", "`type`: `text`; `json_object` for any JSON object, or for one that the schema in `value` describes; `json_schema` with `json_schema: {\"schema\": …}` for what the schema says."),
    field(OPENAI, "structured_outputs", OBJECT, "none", "json_schema, regex, grammar", "vLLM's form: an object with one of `json`, `json_object`, `regex`, `grammar` and `choice`."),
    field(OPENAI, "guided_json", Kind::Of(FieldKind::SCHEMA), "none", "json_schema", "A JSON schema, as older versions of vLLM name it."),
    field(OPENAI, "guided_regex", TEXT, "none", "regex", "A regular expression."),
    field(OPENAI, "guided_grammar", TEXT, "none", "grammar", "A grammar in the notation of Lark."),
    field(OPENAI, "guided_choice", texts(MAX_ENTRIES), "none", "grammar", "The answer is one of these texts."),
    field(COMPLETIONS, "max_tokens", COUNT, "16", "max_new_tokens", "The most new tokens; 0 with `echo` scores the prompt without generating."),
    field(CHAT, "max_tokens", integer(1, MAX_COUNT), "the rest of the context", "max_new_tokens", "The most new tokens."),
    field(CHAT, "max_completion_tokens", integer(1, MAX_COUNT), "the rest of the context", "max_new_tokens", "The same as `max_tokens`."),
    field(WITH_RSGEN, "temperature", number(0.0, 100.0), "1", "temperature, do_sample", "Above 0 it samples; 0 takes the most probable token. Below 0.01 it counts as 0.01."),
    field(WITH_RSGEN, "top_k", integer(-1, MAX_COUNT), "0", "top_k", "Samples among this many of the most probable tokens; 0 and -1 keep all."),
    field(OPENAI, "n", ROWS, "1", "num_return_sequences", "The number of answers to each prompt; with `use_beam_search` the number of beams too."),
    field(COMPLETIONS, "best_of", ROWS, "`n`", "num_return_sequences", "Generates so many answers, and returns the `n` whose tokens have the greatest log-probability on average. Not with `stream`."),
    field(WITH_RSGEN, "stream", BOOL, "false", "", "Sends the answer as server-sent events while it is generated."),
    field(GENERATE, "stream", BOOL, "true", "", "Sends events while they happen; false sends the output at the end."),
    field(TRANSLATE, "stream", BOOL, "false", "", "Sends events while they happen, for a single text."),
    field(OPENAI, "stream_options", OBJECT, "none", "", "`include_usage` adds a last event with the token counts, `continuous_usage_stats` adds them to each."),
    field(COMPLETIONS, "logprobs", integer(0, MAX_LOGPROBS), "none", "top_logprobs", "Adds the log-probability of each token, and so many of the most probable tokens at its place."),
    field(CHAT, "logprobs", BOOL, "false", "", "Adds the log-probability of each token."),
    field(CHAT, "top_logprobs", integer(0, MAX_LOGPROBS), "0", "top_logprobs", "So many of the most probable tokens at each place; needs `logprobs`."),
    field(COMPLETIONS, "prompt_logprobs", integer(0, MAX_LOGPROBS), "none", "", "Adds the log-probability of each token of the prompt, in vLLM's form. Not with `stream`."),
    field(COMPLETIONS, "echo", BOOL, "false", "", "Puts the prompt before the answer, with `logprobs` its tokens too."),
    field(OPENAI, "stop", texts(MAX_STOPS), "none", "", "Texts that end an answer when it comes to hold one; the answer ends before it."),
    field(OPENAI, "include_stop_str_in_output", BOOL, "false", "", "The answer ends after the stop string."),
    field(OPENAI, "stop_token_ids", IDS, "none", "eos_token_id", "More tokens that end an answer."),
    field(OPENAI, "ignore_eos", BOOL, "false", "eos_token_id", "The model's end-of-sequence token does not end an answer."),
    field(OPENAI, "min_tokens", COUNT, "0", "min_new_tokens", "The new tokens before which no end-of-sequence token is generated."),
    field(GENERATING | MESSAGES | RESPONSES, "seed", integer(i64::MIN as i128, i64::MAX as i128), "drawn", "seed", "The seed of sampling; prompt `i` takes `seed + i`."),
    field(OPENAI, "allowed_token_ids", IDS, "all", "prefix_allowed_tokens_fn", "The only tokens that may be generated."),
    field(OPENAI | GENERATE, "allowed_sequences", NAME, "none", "", "The name of a catalogue that the server was started with: each answer is one of its entries, which `entry` of a choice names."),
    field(OPENAI, "use_beam_search", BOOL, "false", "num_beams", "Beam search with `n` beams, or with `best_of`."),
    field(COMPLETIONS | POOLED | TOKENIZE, "add_special_tokens", BOOL, "true", "", "Whether the tokenizer adds special tokens to a text."),
    field(CHAT, "add_special_tokens", BOOL, "false", "", "Whether the tokenizer adds special tokens to the text of the template, which writes its own."),
    field(OPENAI, "skip_special_tokens", BOOL, "true", "", "Leaves special tokens out of the text."),
    field(OPENAI | POOLED, "truncate_prompt_tokens", integer(-1, MAX_COUNT), "none", "", "Keeps so many of the last tokens of a prompt; -1 keeps what the context holds."),
    field(OPENAI, "return_token_ids", BOOL, "false", "", "Adds `token_ids` and `prompt_token_ids`."),
    field(OPENAI, "return_tokens_as_token_ids", BOOL, "false", "", "Writes tokens as `token_id:5` in log-probabilities."),
    field(GENERATING | MESSAGES | RESPONSES | POOLED, "cache_salt", text(1, 1024), "none", "", "Shares cached prompts only with requests of the same salt; never with those of another API key."),
    field(OPENAI | POOLED, "user", NAME, "none", "", "Accepted without effect."),
    field(WITH_RSGEN, "rsgen", OBJECT, "none", "", "`strategy`, and any field of `GenerationConfig` by its name in transformers. Null switches one off that the model's file sets."),
    field(GENERATING | MESSAGES | RESPONSES, "strategy", NAME, "what the fields select", "", "The name of a strategy: its method in Python, which sets the fields that define it."),
    field(OF_RSGEN, "use_assistant", BOOL, "true", "", "Whether the assistant that the server was started with drafts tokens."),
    // Other servers have these, and this one has not: they are refused, never ignored.
    field(COMPLETIONS, "suffix", Kind::Unsupported, "none", "", "Not supported."),
    field(CHAT, "glossary", Kind::Unsupported, "none", "", "Not supported: a conversation is no text to translate."),
    field(CONVERSATION, "chat_template", Kind::Unsupported, "none", "", "Not supported: clients cannot bring a template."),
];

/// The tables of fields: a route that is a translation of another protocol has its own.
const TABLES: &[&[Field]] =
    &[OWN, embeddings::FIELDS, score::FIELDS, responses::FIELDS, anthropic::FIELDS, ollama::FIELDS];

/// All fields.
pub(super) static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let of_config = GenerationConfig::FIELDS.iter().filter_map(|info| {
        let has = |routes: Routes| own().any(|own| own.name == info.name && own.routes & routes != 0);
        // What an output holds besides has no place in OpenAI's answers.
        let of_outputs = matches!(info.heading, Heading::Results | Heading::Arrays)
            || info.name == "return_dict_in_generate";
        // A conversation is no text to translate, and answers in OpenAI's form hold new tokens alone.
        let of_texts = matches!(info.name, "glossary" | "target_prefix");
        // An answer there is one message.
        let of_many = info.name == "num_return_sequences";
        let routes = [
            (COMPLETIONS, !of_outputs && info.name != "target_prefix"),
            (CHAT, !of_outputs && !of_texts),
            (OF_RSGEN, true),
            (MESSAGES, !of_outputs && !of_texts && !of_many),
            (RESPONSES, !of_outputs && !of_texts && !of_many),
        ];
        let routes =
            routes.iter().filter(|(route, allowed)| *allowed && !has(*route)).map(|(route, _)| route);
        let routes = routes.fold(0, |all, route| all | route);
        (routes != 0).then(|| {
            field(routes, info.name, Kind::Of(info.served), info.default, info.name, info.doc.trim())
        })
    });
    own().copied().chain(of_config).collect()
});

/// The fields of the tables, which come before those of [`GenerationConfig`] alone.
pub(super) fn own() -> impl Iterator<Item = &'static Field> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// The fields of a route.
pub(super) fn of_route(route: Routes) -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(move |field| field.routes & route != 0)
}

impl Kind {
    /// The rule that `value` breaks, to complete "must be …"; `None` if it is valid.
    pub(super) fn refuses(self, value: &Value) -> Option<String> {
        let is_valid = match self {
            Self::Of(kind) => kind.accepts(value),
            Self::Prompt(_) => value.is_string() || value.is_array(),
            Self::Unsupported => true,
        };
        (!is_valid).then(|| self.describe())
    }

    /// The rule for values, in words.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Of(kind) => kind.describe(),
            Self::Prompt(_) => {
                "a text, a list of texts, a list of token ids, or a list of such lists".to_owned()
            }
            Self::Unsupported => "left out".to_owned(),
        }
    }

    /// The JSON schema of valid values, null included; `last` is the greatest token id.
    pub(super) fn schema(self, last: usize) -> Value {
        match self {
            Self::Of(kind) => kind.schema(last),
            Self::Prompt(most) => {
                let text = json!({ "type": "string" });
                let id = json!({ "type": "integer", "minimum": 0, "maximum": last });
                let ids = json!({ "type": "array", "items": id, "minItems": 1 });
                let prompts =
                    |kind: &Value| json!({ "type": "array", "items": kind, "minItems": 1, "maxItems": most });
                json!({ "anyOf": [text, prompts(&text), ids, prompts(&ids)] })
            }
            Self::Unsupported => FieldKind::Text(0, 0).schema(last),
        }
    }
}

/// The names of the strategies.
pub(super) fn strategies() -> String {
    Strategy::ALL.iter().map(|strategy| strategy.name).collect::<Vec<_>>().join(", ")
}
