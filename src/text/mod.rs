//! Strings to token ids and back: the tokenizer of a model folder, the bytes of each token, incremental decoding.
//!
//! It follows the fast tokenizers of transformers 5.23, quirks included, because equal tokens begin with an equal
//! prompt. It knows no model and opens no file: files come in as bytes.

mod chat_template;
mod checks;
mod decoder;
mod detokenizer;
mod jinja;
mod settings;
mod splitting;
mod token_bytes;
mod tokenizer;

pub use chat_template::{ChatOptions, ChatTemplate, ChatTemplates, Message};
pub use detokenizer::Detokenizer;
pub use tokenizer::{MAX_TOKEN_ID, MAX_TOKENIZER_BYTES, Tokenizer};
