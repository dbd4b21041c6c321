//! Tokenizers from a SentencePiece model: encode as Google's library does, by the rules of transformers' slow
//! `LlamaTokenizer`, or of its `MarianTokenizer` and `M2M100Tokenizer`.
//!
//! The file is a protobuf message, parsed by `prost`. The algorithms are implemented here, because equal ids
//! need the library's order of merges, its single-precision sums and its quirks (docs/decisions/0005).
//! Training and sampling are not supported; the model types are BPE and unigram.

mod added_tokens;
mod bpe;
mod charsmap;
mod convert;
mod decode;
mod llama;
mod model_file;
mod normalizer;
mod piece_tokenizer;
mod prefix_trie;
mod processor;
mod unigram;
mod vocabulary;

/// The remedy for an unsupported model.
const CONVERSION: &str = "make a tokenizer.json of it: python -c \"from transformers import AutoTokenizer; \
     AutoTokenizer.from_pretrained('FOLDER').save_pretrained('FOLDER')\"";

pub(super) use added_tokens::{AddedTokens, Part, is_space};
pub(super) use convert::tokenizer_json;
pub(super) use decode::{PieceDecoder, PieceState};
pub(super) use llama::LlamaTokenizer;
pub(super) use piece_tokenizer::{PieceTokenizer, Side, number_added};

#[cfg(test)]
mod tests;
