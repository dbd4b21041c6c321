//! Strings to token ids and back: the tokenizer of a model folder, the bytes of each token, incremental
//! decoding.
//!
//! A tokenizer.json is read as the fast tokenizers of transformers 5.24 read it, a tokenizer.model as the
//! slow ones did until version 4, and the files of encoder-decoder models as their classes read them; quirks
//! included, because equal tokens begin with an equal prompt. It knows no models and opens no files: callers
//! pass their bytes.
#![forbid(unsafe_code)]

mod budget;
mod byt5;
mod chat_template;
mod checks;
mod class_settings;
mod decoder;
mod detokenizer;
mod expression;
mod jinja;
mod language_codes;
mod languages;
mod phrases;
mod reasoning;
mod sentencepiece;
mod sentences;
mod settings;
mod sorted_tokens;
mod splitting;
mod token_bytes;
mod tokenizer;
mod tokenizer_class;
mod tokenizer_json;
mod tool_calls;
mod translation_class;
mod worker;

pub use chat_template::{ChatOptions, ChatTemplate, ChatTemplates, Message};
pub use detokenizer::Detokenizer;
pub use languages::LanguagePlace;
pub use phrases::Phrases;
pub use reasoning::{ReasoningEvent, ReasoningForm, ReasoningParser};
pub use sentences::Sentences;
pub use tokenizer::{MAX_TOKEN_ID, MAX_TOKENIZER_BYTES, Tokenizer};
pub use tool_calls::{ToolCall, ToolChoice, ToolEvent, ToolForm, ToolParser, ToolTokens, Tools, new_call_id};
