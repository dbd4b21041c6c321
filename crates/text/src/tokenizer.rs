//! The tokenizer of a model. Encodes with its tokenizer.json or SentencePiece model, and decodes with this
//! crate's own decoder.
//!
//! Files are untrusted and checked when they are read. Special tokens are those that transformers finds in
//! the same folder.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::budget::Budget;
use super::byt5::ByT5Tokenizer;
use super::decoder::{Decoder, DecoderState};
use super::languages::{LanguagePlace, Languages};
use super::sentencepiece::{LlamaTokenizer, PieceTokenizer, Side};
use super::sorted_tokens::SortedTokens;
use super::token_bytes::TokenBytes;
use super::tokenizer_json::TokenizerJson;
use super::worker;
use rsgen_core::error::{Error, Result};
use rsgen_core::types::TokenId;

mod open;

/// The largest tokenizer file that is read.
pub const MAX_TOKENIZER_BYTES: usize = 64 << 20;
/// The longest text that ids are decoded to.
const MAX_DECODED_BYTES: usize = 1 << 30;
/// The highest token id that a vocabulary may use.
pub const MAX_TOKEN_ID: u32 = (1 << 22) - 1;

/// Text to token ids and back; cloning shares it, and it can be used from many threads.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
    /// The languages of sources and targets, where it has languages.
    source: Option<TokenId>,
    target: Option<TokenId>,
}

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
    languages: Option<Languages>,
    /// What Marian's files name as the languages of sources and of targets.
    pair: [Option<String>; 2],
    /// What is put around a text by classes without languages.
    around: [Vec<u32>; 2],
    /// The file that holds the vocabulary.
    file: &'static str,
    is_for_sources: bool,
}

/// From text to ids.
enum Encoder {
    Json(Arc<TokenizerJson>),
    SentencePiece(Box<LlamaTokenizer>),
    /// With a vocabulary of its own beside the pieces.
    Pieces(Box<PieceTokenizer>),
    Bytes(Box<ByT5Tokenizer>),
}

impl Tokenizer {
    /// The most tokens of a text that is truncated, if its files name a limit.
    pub fn model_max_length(&self) -> Option<usize> {
        self.inner.model_max_length
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
        self.encode_as(Side::Source, text, add_special_tokens, interrupted)
    }

    /// The ids of a target of an encoder-decoder model, as transformers' `text_target`: Marian's have pieces of
    /// their own, and multilingual ones the language of targets. Others are the same as [`Tokenizer::encode`].
    ///
    /// # Errors
    /// As for [`Tokenizer::encode`].
    pub fn encode_target(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>> {
        self.encode_target_interruptible(text, add_special_tokens, &mut || false)
    }

    /// [`Tokenizer::encode_target`], until `interrupted` returns true. It is polled every few milliseconds, on
    /// this thread.
    ///
    /// # Errors
    /// As for [`Tokenizer::encode`], and `Cancelled`.
    pub fn encode_target_interruptible(
        &self,
        text: &str,
        add_special_tokens: bool,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<TokenId>> {
        self.encode_as(Side::Target, text, add_special_tokens, interrupted)
    }

    fn encode_as(
        &self,
        side: Side,
        text: &str,
        add_special_tokens: bool,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<TokenId>> {
        let ids = match &self.inner.encoder {
            Encoder::Json(_) if interrupted() => return Err(Error::cancelled()),
            Encoder::Json(json) if json.is_quick(text) => json.encode(text),
            Encoder::Json(json) => {
                let (json, text) = (Arc::clone(json), text.to_owned());
                worker::run(interrupted, "the tokenizer", text.len(), move || json.encode(&text))
            }
            Encoder::SentencePiece(model) => {
                return Ok(token_ids(model.encode(text, add_special_tokens, &Budget::new(interrupted))?));
            }
            Encoder::Pieces(model) => model.encode(side, text, &Budget::new(interrupted)),
            Encoder::Bytes(model) => model.encode(text, &Budget::new(interrupted)),
        };
        let mut ids = ids?;
        if add_special_tokens {
            let [before, after] = self.around(side);
            let ends = matches!(self.inner.encoder, Encoder::Bytes(_)) && ids.ends_with(&after);
            ids.splice(0..0, before);
            ids.extend(after.into_iter().filter(|_| !ends));
        }
        if let (Side::Source, Some(target)) = (side, self.target_in_source()) {
            ids.insert(0, target.0);
        }
        Ok(token_ids(ids))
    }

    /// What special tokens are put around a text.
    fn around(&self, side: Side) -> [Vec<u32>; 2] {
        let Some(languages) = &self.inner.languages else { return self.inner.around.clone() };
        languages.around(match side {
            Side::Source => self.source,
            Side::Target => self.target.or(self.source),
        })
    }

    /// The language of the target, where it is written before a source.
    fn target_in_source(&self) -> Option<TokenId> {
        let place = self.inner.languages.as_ref()?.place;
        self.target.filter(|_| place == LanguagePlace::BeforeSource)
    }

    /// Whether its texts are sources of an encoder-decoder model, which are padded behind their end.
    pub fn is_for_sources(&self) -> bool {
        self.inner.is_for_sources
    }

    /// The languages that it knows, as its files name them: `deu_Latn`, `de_DE`, `de` or `>>deu<<`.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        self.inner.languages.iter().flat_map(Languages::names)
    }

    /// Where the token of a language goes; `None` without languages.
    pub fn language_place(&self) -> Option<LanguagePlace> {
        self.inner.languages.as_ref().map(|languages| languages.place)
    }

    /// The id of a language's token: `forced_bos_token_id` to translate into it, unless its place is
    /// [`LanguagePlace::BeforeSource`].
    ///
    /// # Errors
    /// `Input` when it is none of [`Tokenizer::languages`].
    pub fn language_id(&self, language: &str) -> Result<TokenId> {
        match &self.inner.languages {
            Some(languages) => languages.id(language),
            None => Languages::new([], LanguagePlace::Before, None).id(language),
        }
    }

    /// The language of sources.
    pub fn source_language(&self) -> Option<&str> {
        self.inner.languages.as_ref()?.name(self.source?)
    }

    /// The language of targets.
    pub fn target_language(&self) -> Option<&str> {
        self.inner.languages.as_ref()?.name(self.target?)
    }

    /// The languages of sources and of targets that the files of a model of a single pair name, such as `en` and
    /// `de`.
    pub fn language_pair(&self) -> [Option<&str>; 2] {
        self.inner.pair.each_ref().map(Option::as_deref)
    }

    /// The same tokenizer for other languages; `None` keeps one.
    ///
    /// # Errors
    /// `Input` when one is none of [`Tokenizer::languages`].
    pub fn with_languages(&self, source: Option<&str>, target: Option<&str>) -> Result<Self> {
        let id = |language: Option<&str>| language.map(|language| self.language_id(language)).transpose();
        let (source, target) = (id(source)?.or(self.source), id(target)?.or(self.target));
        Ok(Self { inner: Arc::clone(&self.inner), source, target })
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
        self.encode_with_offsets_interruptible(text, add_special_tokens, &mut || false)
    }

    /// Whether [`Tokenizer::encode_with_offsets`] knows offsets.
    pub fn has_offsets(&self) -> bool {
        matches!(self.inner.encoder, Encoder::Json(_))
    }

    /// [`Tokenizer::encode_with_offsets`], until `interrupted` returns true.
    ///
    /// # Errors
    /// As for [`Tokenizer::encode`], and `Cancelled`.
    pub fn encode_with_offsets_interruptible(
        &self,
        text: &str,
        add_special_tokens: bool,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<(TokenId, Option<Range<usize>>)>> {
        let Encoder::Json(json) = &self.inner.encoder else {
            let ids = self.encode_interruptible(text, add_special_tokens, interrupted)?;
            return Ok(ids.into_iter().map(|id| (id, None)).collect());
        };
        let mut ids = if json.is_quick(text) {
            json.encode_with_offsets(text, add_special_tokens)
        } else {
            let (json, text) = (Arc::clone(json), text.to_owned());
            worker::run(interrupted, "the tokenizer", text.len(), move || {
                json.encode_with_offsets(&text, add_special_tokens)
            })
        }?;
        if self.inner.languages.is_some() && add_special_tokens {
            let [before, after] = self.around(Side::Source);
            let added = |id: u32| (TokenId(id), None);
            ids.splice(0..0, before.into_iter().map(added));
            ids.extend(after.into_iter().map(added));
        }
        if let Some(target) = self.target_in_source() {
            ids.insert(0, (target, None));
        }
        Ok(ids)
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
        let mut longest = 0_usize;
        for id in ids {
            budget.work(0)?;
            longest = longest.saturating_add(self.inner.decoder.longest(bytes(id)));
        }
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
        self.inner.vocab_size
    }

    /// The highest token id plus one: the length of a table indexed by ids.
    pub fn len(&self) -> usize {
        self.inner.tokens.len()
    }

    /// Whether the vocabulary is empty.
    pub fn is_empty(&self) -> bool {
        self.inner.tokens.is_empty()
    }

    /// The token as the vocabulary writes it, such as `Ġthe` or `▁the`.
    pub fn token(&self, id: TokenId) -> Option<&str> {
        self.inner.tokens.get(id.index())?.as_deref()
    }

    /// The id of a token as the vocabulary writes it.
    pub fn id(&self, token: &str) -> Option<TokenId> {
        self.inner.encoder.id(token)
    }

    /// The file that holds the vocabulary, such as `tokenizer.json`.
    pub fn file(&self) -> &'static str {
        self.inner.file
    }

    /// The kind of its model: `BPE`, `Unigram`, `WordPiece`, `WordLevel` or `Bytes`.
    pub fn model(&self) -> &'static str {
        match &self.inner.encoder {
            Encoder::Json(json) => json.model(),
            Encoder::SentencePiece(model) => model.model(),
            Encoder::Pieces(model) => model.model(),
            Encoder::Bytes(_) => "Bytes",
        }
    }

    /// The bytes that a token adds in the middle of a text; empty for an id below [`Self::len`] that is not a
    /// token.
    pub fn token_bytes(&self, id: TokenId) -> Option<&[u8]> {
        let table =
            self.inner.token_bytes.get_or_init(|| TokenBytes::new(&self.inner.decoder, &self.inner.tokens));
        table.get(id.index())
    }

    /// The tokens that begin with `text` as the vocabulary writes them, added tokens included, in the order
    /// of their texts.
    pub fn tokens_from(&self, text: &str) -> Vec<TokenId> {
        let Inner { tokens, sorted_tokens, .. } = &*self.inner;
        let sorted = sorted_tokens.get_or_init(|| SortedTokens::new(tokens, |token| self.id(token)));
        sorted.starting_with(tokens, text).collect()
    }

    /// Whether `skip_special_tokens` skips this token.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.inner.special.get(id.index()).copied().unwrap_or(false)
    }

    /// The special tokens that have names, such as `bos_token`, with their texts.
    pub fn special_tokens_map(&self) -> impl Iterator<Item = (&str, &str)> {
        self.inner.special_tokens.iter().map(|(name, token)| (name.as_str(), token.as_str()))
    }

    /// The token that begins a text, if the folder names one.
    pub fn bos(&self) -> Option<TokenId> {
        self.inner.bos
    }

    /// The token that ends a text, if the folder names one.
    pub fn eos(&self) -> Option<TokenId> {
        self.inner.eos
    }

    /// The token that pads shorter rows, if the folder names one.
    pub fn pad(&self) -> Option<TokenId> {
        self.inner.pad
    }

    /// The token that stands for what the vocabulary does not know, if the folder names one.
    pub fn unknown(&self) -> Option<TokenId> {
        let (_, token) = self.special_tokens_map().find(|(name, _)| *name == "unk_token")?;
        self.id(token)
    }

    pub(super) fn start_decoding(&self) -> DecoderState {
        self.inner.decoder.start()
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
            self.inner.decoder.push(state, token, text);
        }
    }

    pub(super) fn finish_decoding(&self, state: DecoderState, text: &mut String) {
        self.inner.decoder.finish(state, text);
    }
}

impl Encoder {
    fn id(&self, token: &str) -> Option<TokenId> {
        let id = match self {
            Self::Json(json) => json.id(token),
            Self::SentencePiece(model) => model.id(token),
            Self::Pieces(model) => model.id(token),
            Self::Bytes(model) => model.id(token),
        };
        id.map(TokenId)
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

fn token_ids(ids: Vec<u32>) -> Vec<TokenId> {
    ids.into_iter().map(TokenId).collect()
}

#[cfg(test)]
mod goldens;
#[cfg(test)]
mod hostile;
#[cfg(test)]
pub(super) mod tests;
#[cfg(test)]
mod translation;
