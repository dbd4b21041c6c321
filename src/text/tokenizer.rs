//! The tokenizer of a model: text to ids by the `tokenizers` crate, ids to text by this crate's own decoder.
//!
//! A tokenizer.json is untrusted: its size is capped, growth bombs are refused, and a panic of the crate's parser or
//! encoder becomes an error. Ids and special tokens are those that transformers 5.23 gives for the same folder,
//! including what its `LlamaTokenizer` class changes about the file. It makes no chat prompts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence;
use tokenizers::decoders::strip::Strip;
use tokenizers::normalizers::replace::Replace;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper,
    PostProcessorWrapper, TokenizerImpl,
};

use super::checks::{self, Checked};
use super::decoder::{Decoder, DecoderState};
use super::settings::Settings;
use super::splitting::Splitter;
use super::token_bytes::TokenBytes;
use crate::error::{Error, Result, ResultExt as _};
use crate::types::TokenId;

/// The largest tokenizer file that is read.
pub const MAX_TOKENIZER_BYTES: usize = 64 << 20;
/// The highest token id that a vocabulary may use.
pub const MAX_TOKEN_ID: u32 = (1 << 22) - 1;
/// The longest text, in bytes, that a normalizer may make.
const MAX_NORMALIZED_BYTES: usize = 1 << 30;

type Backend = TokenizerImpl<ModelWrapper, NormalizerWrapper, Splitter, PostProcessorWrapper, DecoderWrapper>;

/// Text to token ids and back; cloning shares it, and it can be used from many threads.
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

struct Inner {
    backend: Backend,
    /// How many times longer the normalizer can make a text.
    growth: usize,
    decoder: Decoder,
    /// By id.
    tokens: Box<[Option<Box<str>>]>,
    /// By id: left out of a text with `skip_special_tokens`.
    special: Box<[bool]>,
    vocab_size: usize,
    token_bytes: OnceLock<TokenBytes>,
    bos: Option<TokenId>,
    eos: Option<TokenId>,
    pad: Option<TokenId>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json` with, where the folder has them, `tokenizer_config.json` and
    /// `special_tokens_map.json`.
    ///
    /// # Errors
    /// `Load` when a file is larger than 64 MiB, damaged, or needs what this crate does not have.
    pub fn from_bytes(
        tokenizer_json: &[u8],
        tokenizer_config: Option<&[u8]>,
        special_tokens_map: Option<&[u8]>,
    ) -> Result<Self> {
        let files = [
            ("tokenizer.json", Some(tokenizer_json)),
            ("tokenizer_config.json", tokenizer_config),
            ("special_tokens_map.json", special_tokens_map),
        ];
        for (name, bytes) in files {
            let length = bytes.map_or(0, <[u8]>::len);
            if length > MAX_TOKENIZER_BYTES {
                return Err(Error::load(format!(
                    "{name}: a file of at most {MAX_TOKENIZER_BYTES} bytes is read, found {length}"
                )));
            }
        }
        let checked = checks::check(tokenizer_json).context(|| "tokenizer.json")?;
        let mut settings = Settings::read(tokenizer_config, special_tokens_map)?;
        let backend = guarded(|| {
            let mut backend = serde_json::from_slice::<Backend>(tokenizer_json)?;
            if is_rebuilt_as_llama(&settings, tokenizer_json) {
                for (name, content) in [("unk_token", "<unk>"), ("bos_token", "<s>"), ("eos_token", "</s>")] {
                    settings.default_token(name, content);
                }
                backend = rebuild_as_llama(&backend, &settings)?;
            }
            // Prompts are neither cut nor padded here.
            backend.with_truncation(None)?;
            backend.with_padding(None);
            backend.set_encode_special_tokens(settings.split_special_tokens);
            add_tokens(&mut backend, &settings);
            Ok(backend)
        })
        .map_err(|cause| {
            Error::load("tokenizer.json: it cannot be used; download it again").with_source(cause)
        })?;
        Self::new(backend, &settings, &checked)
    }

    fn new(backend: Backend, settings: &Settings, checked: &Checked) -> Result<Self> {
        let vocabulary = backend.get_vocab(true);
        let highest = vocabulary.values().copied().max();
        if let Some(highest) = highest.filter(|&id| id > MAX_TOKEN_ID) {
            return Err(Error::load(format!(
                "tokenizer.json: token ids must be at most {MAX_TOKEN_ID}, found {highest}"
            )));
        }
        let length = highest.map_or(0, |id| id as usize + 1);
        let mut tokens: Box<[Option<Box<str>>]> = vec![None; length].into_boxed_slice();
        let mut special = vec![false; length].into_boxed_slice();
        let added = backend.get_added_tokens_decoder();
        for &id in vocabulary.values() {
            let Some(token) = backend.id_to_token(id) else { continue };
            special[id as usize] = backend.get_added_vocabulary().is_special_token(&token);
            let token = match added.get(&id) {
                Some(added) if added.normalized => normalized(&backend, &token)?,
                _ => token,
            };
            tokens[id as usize] = Some(token.into_boxed_str());
        }
        let around = checked.ids_around.iter();
        if let Some(id) = around.copied().find(|&id| tokens.get(id as usize).is_none_or(Option::is_none)) {
            return Err(Error::load(format!(
                "tokenizer.json: its post_processor must put tokens of its vocabulary around a prompt, found the id {id}"
            )));
        }
        let decoder = serde_json::to_value(backend.get_decoder())
            .map_err(|error| Error::load("tokenizer.json: decoder").with_source(error))?;
        // The clean-up destroys spaces of BPE texts, so transformers does it for other vocabularies only.
        let is_bpe = matches!(backend.get_model(), ModelWrapper::BPE(_));
        let decoder =
            Decoder::from_json(&decoder, settings.clean_up && (!is_bpe || settings.force_clean_up))?;
        let id_of = |name: &str| {
            settings.special_token(name).and_then(|token| backend.token_to_id(token)).map(TokenId)
        };
        let [bos, eos, pad] = ["bos_token", "eos_token", "pad_token"].map(id_of);
        let vocab_size = vocabulary.len();
        let token_bytes = OnceLock::new();
        Ok(Self(Arc::new(Inner {
            backend,
            growth: checked.growth,
            decoder,
            tokens,
            special,
            vocab_size,
            token_bytes,
            bos,
            eos,
            pad,
        })))
    }

    /// The ids of a text; with `add_special_tokens` also those that the tokenizer puts around a prompt.
    ///
    /// # Errors
    /// `Input` when the tokenizer cannot encode the text, which only a faulty tokenizer.json brings about, or when its
    /// normalizer could make the text longer than a gigabyte.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>> {
        let growth = self.0.growth;
        if text.len().saturating_mul(growth) > MAX_NORMALIZED_BYTES {
            return Err(Error::input(format!(
                "the text has {} bytes, and the tokenizer can make them {growth} times as many, but at most \
                 {MAX_NORMALIZED_BYTES} are encoded at a time; shorten it",
                text.len()
            )));
        }
        let encoding = guarded(|| self.0.backend.encode_fast(text, add_special_tokens)).map_err(|cause| {
            Error::input(format!(
                "the tokenizer failed on a text of {} bytes; its tokenizer.json may be damaged",
                text.len()
            ))
            .with_source(cause)
        })?;
        Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
    }

    /// The text of ids; ids that are no token are left out, as transformers does, and so are special tokens with
    /// `skip_special_tokens`.
    pub fn decode(&self, ids: &[TokenId], skip_special_tokens: bool) -> String {
        let mut state = self.start_decoding();
        let mut text = String::new();
        for &id in ids {
            self.decode_next(&mut state, id, skip_special_tokens, &mut text);
        }
        self.finish_decoding(state, &mut text);
        text
    }

    /// The number of different tokens, added ones included; transformers' `len(tokenizer)`.
    pub fn vocab_size(&self) -> usize {
        self.0.vocab_size
    }

    /// The highest token id plus one: the length of a table indexed by ids.
    pub fn len(&self) -> usize {
        self.0.tokens.len()
    }

    /// Whether there is no token at all.
    pub fn is_empty(&self) -> bool {
        self.0.tokens.is_empty()
    }

    /// The token as the vocabulary writes it, such as `Ġthe` or `▁the`.
    pub fn token(&self, id: TokenId) -> Option<&str> {
        self.0.tokens.get(id.index())?.as_deref()
    }

    /// The id of a token as the vocabulary writes it.
    pub fn id(&self, token: &str) -> Option<TokenId> {
        self.0.backend.token_to_id(token).map(TokenId)
    }

    /// The bytes that a token adds in the middle of a text; empty for an id below [`Self::len`] that is no token.
    pub fn token_bytes(&self, id: TokenId) -> Option<&[u8]> {
        let table = self.0.token_bytes.get_or_init(|| TokenBytes::new(&self.0.decoder, &self.0.tokens));
        table.get(id.index())
    }

    /// Whether `skip_special_tokens` leaves this token out.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.0.special.get(id.index()).copied().unwrap_or(false)
    }

    /// The token that begins a text, where the folder names one.
    pub fn bos(&self) -> Option<TokenId> {
        self.0.bos
    }

    /// The token that ends a text, where the folder names one.
    pub fn eos(&self) -> Option<TokenId> {
        self.0.eos
    }

    /// The token that fills up shorter rows, where the folder names one.
    pub fn pad(&self) -> Option<TokenId> {
        self.0.pad
    }

    pub(super) fn start_decoding(&self) -> DecoderState {
        self.0.decoder.start()
    }

    /// Adds to `text` what is certain once `id` is known.
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

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

/// Runs code of the `tokenizers` crate; a panic becomes an error with its message.
fn guarded<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> tokenizers::Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(message.unwrap_or("the tokenizer panicked").into())
    })
}

/// An added token that is looked for in normalized prompts is also decoded from its normalized form.
fn normalized(backend: &Backend, token: &str) -> Result<String> {
    guarded(|| {
        let mut text = NormalizedString::from(token);
        if let Some(normalizer) = backend.get_normalizer() {
            normalizer.normalize(&mut text)?;
        }
        Ok(text.get().to_owned())
    })
    .map_err(|cause| Error::load(format!("tokenizer.json: added token {token:?}")).with_source(cause))
}

/// Whether transformers 5.23 takes only the vocabulary from the file, and builds the rest as `LlamaTokenizer`.
fn is_rebuilt_as_llama(settings: &Settings, tokenizer_json: &[u8]) -> bool {
    const BYTE_LEVEL: &[u8] = b"\"ByteLevel\"";
    settings.class.as_deref() == Some("LlamaTokenizer")
        && !tokenizer_json.windows(BYTE_LEVEL.len()).any(|window| window == BYTE_LEVEL)
}

fn rebuild_as_llama(file: &Backend, settings: &Settings) -> tokenizers::Result<Backend> {
    let ModelWrapper::BPE(bpe) = file.get_model() else {
        return Ok(file.clone());
    };
    let mut bpe = bpe.clone();
    (bpe.dropout, bpe.unk_token) = (None, None);
    (bpe.fuse_unk, bpe.byte_fallback, bpe.ignore_merges) = (true, true, false);
    let mut backend = Backend::new(bpe.into());
    let add_prefix_space = settings.add_prefix_space.unwrap_or(true);
    let scheme = match (add_prefix_space, settings.legacy) {
        (false, _) => PrependScheme::Never,
        (true, true) => PrependScheme::Always,
        (true, false) => PrependScheme::First,
    };
    backend.with_pre_tokenizer(Some(Metaspace::new('▁', scheme, false)));
    let mut decoders: Vec<DecoderWrapper> =
        vec![Replace::new("▁", " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
    if add_prefix_space {
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    backend.with_decoder(Some(Sequence::new(decoders)));
    backend.with_post_processor(file.get_post_processor().cloned());
    if settings.added.is_none() {
        let mut added: Vec<(u32, AddedToken)> = file.get_added_tokens_decoder().into_iter().collect();
        added.sort_by_key(|&(id, _)| id);
        let named = |token: AddedToken| {
            let special = token.special || settings.is_named(&token.content);
            token.special(special)
        };
        let added: Vec<AddedToken> = added.into_iter().map(|(_, token)| named(token)).collect();
        backend.add_tokens(&added);
    }
    Ok(backend)
}

/// Adds what the settings list and the vocabulary does not have yet, in transformers' order.
fn add_tokens(backend: &mut Backend, settings: &Settings) {
    let known = backend.get_added_tokens_decoder();
    let mut wanted: Vec<AddedToken> = Vec::new();
    for (_, token) in settings.added.iter().flatten() {
        if !known.values().any(|other| other == token) {
            let special = token.special || settings.is_named(&token.content);
            wanted.push(token.clone().special(special));
        }
    }
    for token in settings.special_tokens() {
        let listed = known.values().chain(&wanted).any(|other| other.content == token.content);
        if !listed {
            wanted.push(token.clone());
        }
    }
    if !wanted.is_empty() {
        backend.add_tokens(&wanted);
    }
}

#[cfg(test)]
pub(super) mod tests;
