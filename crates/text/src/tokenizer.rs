//! The tokenizer of a model. Encodes with its tokenizer.json or SentencePiece model, and decodes with this
//! crate's own decoder.
//!
//! Files are untrusted and checked when they are read. Special tokens are those that transformers finds in
//! the same folder.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::budget::Budget;
use super::decoder::{Decoder, DecoderState};
use super::sentencepiece::LlamaTokenizer;
use super::settings::Settings;
use super::sorted_tokens::SortedTokens;
use super::token_bytes::TokenBytes;
use super::tokenizer_json::TokenizerJson;
use super::worker;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::json::read_object;
use rsgen_core::types::TokenId;

/// The largest tokenizer file that is read.
pub const MAX_TOKENIZER_BYTES: usize = 64 << 20;
/// The longest text that ids are decoded to.
const MAX_DECODED_BYTES: usize = 1 << 30;
/// The highest token id that a vocabulary may use.
pub const MAX_TOKEN_ID: u32 = (1 << 22) - 1;

/// The files beside a vocabulary.
const BESIDE: [&str; 4] =
    ["config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"];

/// Text to token ids and back; cloning shares it, and it can be used from many threads.
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

struct Inner {
    encoder: Encoder,
    decoder: Decoder,
    /// By id.
    tokens: Box<[Option<Box<str>>]>,
    /// By id: left out of a text with `skip_special_tokens`.
    special: Box<[bool]>,
    vocab_size: usize,
    token_bytes: OnceLock<TokenBytes>,
    sorted_tokens: OnceLock<SortedTokens>,
    /// By name, such as `bos_token`.
    special_tokens: Box<[(String, String)]>,
    bos: Option<TokenId>,
    eos: Option<TokenId>,
    pad: Option<TokenId>,
    model_max_length: Option<usize>,
}

/// From text to ids.
enum Encoder {
    Json(Arc<TokenizerJson>),
    SentencePiece(Box<LlamaTokenizer>),
}

impl Tokenizer {
    /// Reads the files of a folder that belong to its tokenizer, as far as they are there; `read` gives their
    /// contents by name. `None` if there is neither a tokenizer.json nor what stands for one.
    ///
    /// # Errors
    /// `Load` when a file is larger than 64 MiB, damaged, or not supported; and what `read` returns.
    pub fn from_files<B: AsRef<[u8]>>(
        mut read: impl FnMut(&str) -> Result<Option<B>>,
    ) -> Result<Option<Self>> {
        let mut files: HashMap<&str, Arc<[u8]>> = HashMap::new();
        for name in BESIDE {
            files.extend(read_small(&mut read, name)?.map(|bytes| (name, bytes)));
        }
        let mut settings = Settings::read(&|name| files.get(name).cloned())?;
        let json = match read_small(&mut read, "tokenizer.json")? {
            Some(json) => {
                // It has a post-processor.
                (settings.add_bos_token, settings.add_eos_token) = (None, None);
                json
            }
            None => match read_small(&mut read, "tokenizer.model")? {
                Some(model) => return Self::of_pieces(&model, &mut settings).map(Some),
                None => match [read_small(&mut read, "vocab.json")?, read_small(&mut read, "merges.txt")?] {
                    [Some(vocab), Some(merges)] if settings.reads_merges()? => {
                        of_merges(&vocab, &merges)?.into()
                    }
                    _ => return Ok(None),
                },
            },
        };
        worker::run(&mut || false, "tokenizer.json", json.len(), move || {
            let mut settings = settings.clone();
            let encoder = TokenizerJson::new(&json, &mut settings)?;
            let (tokens, decoder) = (encoder.tokens()?, encoder.decoder(&settings)?);
            Ok(Self::new(Encoder::Json(Arc::new(encoder)), decoder, tokens, &settings))
        })
        .map(Some)
    }

    /// Reads a `tokenizer.json` with, where the folder has them, `tokenizer_config.json` and
    /// `special_tokens_map.json`.
    ///
    /// # Errors
    /// As for [`Tokenizer::from_files`].
    pub fn from_bytes(
        tokenizer_json: &[u8],
        tokenizer_config: Option<&[u8]>,
        special_tokens_map: Option<&[u8]>,
    ) -> Result<Self> {
        let tokenizer = Self::from_files(|name| {
            Ok(match name {
                "tokenizer.json" => Some(tokenizer_json),
                "tokenizer_config.json" => tokenizer_config,
                "special_tokens_map.json" => special_tokens_map,
                _ => None,
            })
        })?;
        tokenizer.ok_or_else(|| Error::load("there is no tokenizer.json"))
    }

    /// Reads a SentencePiece `tokenizer.model` by the rules of transformers' slow `LlamaTokenizer`.
    fn of_pieces(model: &[u8], settings: &mut Settings) -> Result<Self> {
        let encoder = LlamaTokenizer::new(model, settings).context(|| "tokenizer.model")?;
        let tokens = encoder.tokens().map(|(id, token, special)| (id, token.to_owned(), special)).collect();
        let decoder = Decoder::of_pieces(encoder.decoder(settings), settings.clean_up);
        Ok(Self::new(Encoder::SentencePiece(Box::new(encoder)), decoder, tokens, settings))
    }

    /// `tokens` are all ids with their texts, and whether they are special; of a duplicate id the last one
    /// counts.
    fn new(
        encoder: Encoder,
        decoder: Decoder,
        all_tokens: Vec<(u32, String, bool)>,
        settings: &Settings,
    ) -> Self {
        let length = all_tokens.iter().map(|&(id, ..)| id as usize + 1).max().unwrap_or(0);
        let mut tokens: Box<[Option<Box<str>>]> = vec![None; length].into_boxed_slice();
        let mut special = vec![false; length].into_boxed_slice();
        for (id, token, is_special) in all_tokens {
            (tokens[id as usize], special[id as usize]) = (Some(token.into_boxed_str()), is_special);
        }
        let id_of = |name: &str| settings.special_token(name).and_then(|token| encoder.id(token));
        let [bos, eos, pad] = ["bos_token", "eos_token", "pad_token"].map(id_of);
        let vocab_size = match &encoder {
            Encoder::Json(json) => json.vocab_size(),
            Encoder::SentencePiece(_) => tokens.iter().flatten().collect::<HashSet<_>>().len(),
        };
        let special_tokens =
            settings.named_tokens().map(|(name, token)| (name.to_owned(), token.to_owned())).collect();
        Self(Arc::new(Inner {
            encoder,
            decoder,
            tokens,
            special,
            vocab_size,
            token_bytes: OnceLock::new(),
            sorted_tokens: OnceLock::new(),
            special_tokens,
            bos,
            eos,
            pad,
            model_max_length: settings.model_max_length,
        }))
    }

    /// The most tokens of a text that is truncated, if its files name a limit.
    pub fn model_max_length(&self) -> Option<usize> {
        self.0.model_max_length
    }

    /// The ids of a text; with `add_special_tokens` also those that the tokenizer puts around a prompt.
    ///
    /// # Errors
    /// `Input` when the tokenizer cannot encode the text, which only happens with a faulty tokenizer.json, or
    /// when the text has more than 8 MiB at any of its stages.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>> {
        self.encode_interruptible(text, add_special_tokens, &mut || false)
    }

    /// [`Tokenizer::encode`], until `interrupted` returns true. It is polled every few milliseconds, on this
    /// thread.
    ///
    /// # Errors
    /// As for [`Tokenizer::encode`], and `Cancelled`.
    pub fn encode_interruptible(
        &self,
        text: &str,
        add_special_tokens: bool,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<TokenId>> {
        let ids = match &self.0.encoder {
            Encoder::Json(_) if interrupted() => return Err(Error::cancelled()),
            Encoder::Json(json) if json.is_quick(text) => json.encode(text, add_special_tokens),
            Encoder::Json(json) => {
                let (json, text) = (Arc::clone(json), text.to_owned());
                worker::run(interrupted, "the tokenizer", text.len(), move || {
                    json.encode(&text, add_special_tokens)
                })
            }
            Encoder::SentencePiece(model) => {
                model.encode(text, add_special_tokens, &Budget::new(interrupted))
            }
        };
        Ok(ids?.into_iter().map(TokenId).collect())
    }

    /// The ids of a text as in [`Tokenizer::encode`], each with its offsets in the text: characters, as in
    /// transformers' `offset_mapping`. Tokens that were added around the text have none, and those of a
    /// tokenizer.model neither, as in transformers.
    ///
    /// # Errors
    /// As for [`Tokenizer::encode`].
    pub fn encode_with_offsets(
        &self,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<Vec<(TokenId, Option<Range<usize>>)>> {
        match &self.0.encoder {
            Encoder::Json(json) if json.is_quick(text) => json.encode_with_offsets(text, add_special_tokens),
            Encoder::Json(json) => {
                let (json, text) = (Arc::clone(json), text.to_owned());
                worker::run(&mut || false, "the tokenizer", text.len(), move || {
                    json.encode_with_offsets(&text, add_special_tokens)
                })
            }
            Encoder::SentencePiece(model) => {
                let ids = model.encode(text, add_special_tokens, &Budget::new(&mut || false))?;
                Ok(ids.into_iter().map(|id| (TokenId(id), None)).collect())
            }
        }
    }

    /// The text of ids. Skips ids that are not tokens, as transformers does, and special tokens with
    /// `skip_special_tokens`.
    ///
    /// # Errors
    /// `Input` when the text could be longer than a gigabyte.
    pub fn decode(&self, ids: &[TokenId], skip_special_tokens: bool) -> Result<String> {
        self.decode_interruptible(ids, skip_special_tokens, &mut || false)
    }

    /// [`Tokenizer::decode`], until `interrupted` returns true. It is polled every few milliseconds, on this
    /// thread.
    ///
    /// # Errors
    /// As for [`Tokenizer::decode`], and `Cancelled`.
    pub fn decode_interruptible(
        &self,
        ids: &[TokenId],
        skip_special_tokens: bool,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<String> {
        let budget = Budget::new(interrupted);
        let bytes = |&id: &TokenId| self.token(id).map_or(0, str::len);
        let longest = ids.iter().map(|id| self.0.decoder.longest(bytes(id))).fold(0, usize::saturating_add);
        if longest > MAX_DECODED_BYTES {
            return Err(Error::input(format!(
                "at most {MAX_DECODED_BYTES} bytes of text are decoded at a time, and these {} ids could give {longest}; \
                 decode them in parts",
                ids.len()
            )));
        }
        let mut state = self.start_decoding();
        let mut text = String::new();
        for id in ids {
            budget.work(bytes(id))?;
            self.decode_next(&mut state, *id, skip_special_tokens, &mut text);
        }
        self.finish_decoding(state, &mut text);
        Ok(text)
    }

    /// The number of different tokens, added ones included; transformers' `len(tokenizer)`.
    pub fn vocab_size(&self) -> usize {
        self.0.vocab_size
    }

    /// The highest token id plus one: the length of a table indexed by ids.
    pub fn len(&self) -> usize {
        self.0.tokens.len()
    }

    /// Whether the vocabulary is empty.
    pub fn is_empty(&self) -> bool {
        self.0.tokens.is_empty()
    }

    /// The token as the vocabulary writes it, such as `Ġthe` or `▁the`.
    pub fn token(&self, id: TokenId) -> Option<&str> {
        self.0.tokens.get(id.index())?.as_deref()
    }

    /// The id of a token as the vocabulary writes it.
    pub fn id(&self, token: &str) -> Option<TokenId> {
        self.0.encoder.id(token)
    }

    /// The file that holds the vocabulary: `tokenizer.json` or `tokenizer.model`.
    pub fn file(&self) -> &'static str {
        match &self.0.encoder {
            Encoder::Json(_) => "tokenizer.json",
            Encoder::SentencePiece(_) => "tokenizer.model",
        }
    }

    /// The kind of its model: `BPE`, `Unigram`, `WordPiece` or `WordLevel`.
    pub fn model(&self) -> &'static str {
        match &self.0.encoder {
            Encoder::Json(json) => json.model(),
            Encoder::SentencePiece(model) => model.model(),
        }
    }

    /// The bytes that a token adds in the middle of a text; empty for an id below [`Self::len`] that is not a
    /// token.
    pub fn token_bytes(&self, id: TokenId) -> Option<&[u8]> {
        let table = self.0.token_bytes.get_or_init(|| TokenBytes::new(&self.0.decoder, &self.0.tokens));
        table.get(id.index())
    }

    /// The tokens that begin with `text` as the vocabulary writes them, added tokens included, in the order
    /// of their texts.
    pub fn tokens_from(&self, text: &str) -> Vec<TokenId> {
        let Inner { tokens, sorted_tokens, .. } = &*self.0;
        let sorted = sorted_tokens.get_or_init(|| SortedTokens::new(tokens, |token| self.id(token)));
        sorted.starting_with(tokens, text).collect()
    }

    /// Whether `skip_special_tokens` skips this token.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.0.special.get(id.index()).copied().unwrap_or(false)
    }

    /// The special tokens that have names, such as `bos_token`, with their texts.
    pub fn special_tokens_map(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.special_tokens.iter().map(|(name, token)| (name.as_str(), token.as_str()))
    }

    /// The token that begins a text, if the folder names one.
    pub fn bos(&self) -> Option<TokenId> {
        self.0.bos
    }

    /// The token that ends a text, if the folder names one.
    pub fn eos(&self) -> Option<TokenId> {
        self.0.eos
    }

    /// The token that pads shorter rows, if the folder names one.
    pub fn pad(&self) -> Option<TokenId> {
        self.0.pad
    }

    /// The token that stands for what the vocabulary does not know, if the folder names one.
    pub fn unknown(&self) -> Option<TokenId> {
        let (_, token) = self.special_tokens_map().find(|(name, _)| *name == "unk_token")?;
        self.id(token)
    }

    pub(super) fn start_decoding(&self) -> DecoderState {
        self.0.decoder.start()
    }

    /// Appends to `text` what is certain once `id` is known.
    pub(super) fn decode_next(
        &self,
        state: &mut DecoderState,
        id: TokenId,
        skip_special_tokens: bool,
        text: &mut String,
    ) {
        if skip_special_tokens && self.is_special(id) {
            return;
        }
        if let Some(token) = self.token(id) {
            self.0.decoder.push(state, token, text);
        }
    }

    pub(super) fn finish_decoding(&self, state: DecoderState, text: &mut String) {
        self.0.decoder.finish(state, text);
    }
}

impl Encoder {
    fn id(&self, token: &str) -> Option<TokenId> {
        let id = match self {
            Self::Json(json) => json.id(token),
            Self::SentencePiece(model) => model.id(token),
        };
        id.map(TokenId)
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

/// A file of at most 64 MiB.
fn read_small<B: AsRef<[u8]>>(
    read: &mut impl FnMut(&str) -> Result<Option<B>>,
    name: &str,
) -> Result<Option<Arc<[u8]>>> {
    let Some(bytes) = read(name)? else { return Ok(None) };
    let length = bytes.as_ref().len();
    if length > MAX_TOKENIZER_BYTES {
        return Err(Error::load(format!(
            "{name}: a file of at most {MAX_TOKENIZER_BYTES} bytes is read, found {length}"
        )));
    }
    Ok(Some(bytes.as_ref().into()))
}

/// A vocab.json and a merges.txt as a tokenizer.json without the other sections.
fn of_merges(vocab: &[u8], merges: &[u8]) -> Result<Vec<u8>> {
    let vocab = Value::Object(read_object("vocab.json", vocab, MAX_TOKENIZER_BYTES)?);
    let merges = std::str::from_utf8(merges)
        .map_err(|error| Error::load("merges.txt: it must be UTF-8").with_source(error))?;
    let merges: Vec<&str> = merges.lines().filter(|line| !line.starts_with("#version")).collect();
    let json = json!({"version": "1.0", "model": {"type": "BPE", "vocab": vocab, "merges": merges}});
    Ok(json.to_string().into_bytes())
}

#[cfg(test)]
mod goldens;
#[cfg(test)]
mod hostile;
#[cfg(test)]
pub(super) mod tests;
