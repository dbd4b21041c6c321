//! Tokenizers that come as a SentencePiece `tokenizer.model`: text to ids as Google's library cuts it, under the rules
//! of transformers' slow `LlamaTokenizer`.
//!
//! The file is a protobuf message, parsed by `prost`; all that follows from it is written here, because equal ids need
//! the library's own order of merges, its single-precision sums and its quirks (docs/decisions/0005). It trains
//! nothing, samples nothing, and knows the two kinds of model that language models have: BPE and unigram.

mod added_tokens;
mod bpe;
mod charsmap;
mod decode;
mod llama;
mod model_file;
mod normalizer;
mod prefix_trie;
mod processor;
mod unigram;
mod vocabulary;

/// What to do with a model that cannot be read here.
const CONVERSION: &str = "make a tokenizer.json of it: python -c \"from transformers import AutoTokenizer; \
     AutoTokenizer.from_pretrained('FOLDER').save_pretrained('FOLDER')\"";

pub(super) use decode::{PieceDecoder, PieceState};
pub(super) use llama::LlamaTokenizer;

#[cfg(test)]
mod tests;
