//! A tokenizer.json: text to ids by the `tokenizers` crate.
//!
//! The file is untrusted: it is checked first, and a panic of the crate's parser or encoder becomes an error.
//! Ids and special tokens are those of transformers 5.24 for the same folder, including the changes that its
//! classes make to the file (`tokenizer_class`). It passes on the decoder section, but does not decode.

use std::collections::HashSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::processors::roberta::RobertaProcessing;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{
    AddedToken, DecoderWrapper, Encoding, Model as _, ModelWrapper, NormalizedString, Normalizer as _,
    NormalizerWrapper, OffsetReferential, OffsetType, PostProcessorWrapper, PreTokenizedString,
    PreTokenizer as _, Token, TokenizerImpl,
};

use super::budget::check_length;
use super::checks;
use super::decoder::Decoder;
use super::languages::{LanguagePlace, Languages};
use super::settings::Settings;
use super::splitting::{Splitter, check_parts};
use super::tokenizer::MAX_TOKEN_ID;
use super::tokenizer_class::{Added, Around, Model, TokenizerClass, choose};
use super::worker;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::json::shown;
use rsgen_core::types::TokenId;

/// A text that is encoded on the thread of its caller: the stages of a real tokenizer take less than 10 ms
/// for it.
const QUICK_TEXT_BYTES: usize = 16 << 10;

/// The longest text that a normalizer may make before its length is checked: about a gigabyte of memory.
const MAX_NORMALIZED_BYTES: usize = 64 << 20;

type Backend = TokenizerImpl<ModelWrapper, NormalizerWrapper, Splitter, PostProcessorWrapper, DecoderWrapper>;

/// The file, read.
pub(super) struct TokenizerJson {
    pub(super) backend: Backend,
    /// The ids that the post-processor puts before and after a prompt.
    pub(super) around: [Vec<u32>; 2],
    class: Option<&'static TokenizerClass>,
    /// Whether a short text may take long.
    is_slow: bool,
    /// The factor by which its normalizer's own texts may lengthen a text.
    growth: usize,
}

impl TokenizerJson {
    /// Reads the file; the named tokens of a class that rebuilds it are added to `settings`.
    ///
    /// # Errors
    /// `Load` when it is damaged or not supported.
    pub(super) fn new(tokenizer_json: &[u8], settings: &mut Settings) -> Result<Self> {
        const BYTE_LEVEL: &[u8] = b"\"ByteLevel\"";
        let checks::Checked { ids_around, is_slow, growth } =
            checks::check(tokenizer_json).context(|| "tokenizer.json")?;
        let class = choose(settings.model_type.as_deref(), settings.class.as_deref(), || {
            tokenizer_json.windows(BYTE_LEVEL.len()).any(|part| part == BYTE_LEVEL)
        })?;
        let backend = guarded(|| {
            let file = serde_json::from_slice::<Backend>(tokenizer_json)?;
            settings.add_of_file(file.get_added_tokens_decoder());
            let padding = file.get_padding().map(|padding| padding.pad_token.clone());
            if let Some(class) = class {
                class.complete(settings);
            }
            settings.default_token("pad_token", &padding.unwrap_or_default());
            let mut backend = match class {
                Some(class) => rebuild(&file, class, settings)?,
                None => file,
            };
            // Prompts are neither cut nor padded here.
            backend.with_truncation(None)?;
            backend.with_padding(None);
            backend.set_encode_special_tokens(settings.split_special_tokens);
            add_tokens(&mut backend, class, settings)?;
            Ok(backend)
        })
        .map_err(|cause| match cause.downcast::<Error>() {
            Ok(error) => *error,
            Err(cause) => {
                Error::load("tokenizer.json: it cannot be used; download it again").with_source(cause)
            }
        })?;
        let highest = backend.get_vocab(true).into_values().max();
        if let Some(highest) = highest.filter(|&id| id > MAX_TOKEN_ID) {
            return Err(Error::load(format!(
                "tokenizer.json: token ids must be at most {MAX_TOKEN_ID}, found {highest}"
            )));
        }
        if let Some(&id) = ids_around.iter().find(|&&id| backend.id_to_token(id).is_none()) {
            return Err(Error::load(format!(
                "tokenizer.json: its post_processor must put tokens of its vocabulary around a prompt, found the id {id}"
            )));
        }
        let around = around(&backend)?;
        Ok(Self { backend, around, class, is_slow, growth })
    }

    /// Whether encoding a text takes so little that its caller may wait for it.
    pub(super) fn is_quick(&self, text: &str) -> bool {
        text.len() <= QUICK_TEXT_BYTES && !self.is_slow
    }

    /// The languages of its class.
    pub(super) fn languages(&self, settings: &Settings) -> Result<Option<Languages>> {
        let Some((class, Around::Language(place, source))) = self.class.map(|class| (class, class.around))
        else {
            return Ok(None);
        };
        let of_class = &settings.of_class;
        let place = if of_class.legacy_behaviour { LanguagePlace::After } else { place };
        let (source_of_files, target) = (of_class.src_lang.as_deref(), of_class.tgt_lang.as_deref());
        let known = class.languages.split(' ').chain(settings.extra_languages());
        let known = known.chain(source_of_files).chain(target);
        let codes = known.filter_map(|code| Some((code.to_owned(), self.id(code)?)));
        let eos = settings.special_token("eos_token").and_then(|token| self.id(token));
        let source = source_of_files.or(Some(source).filter(|code| self.id(code).is_some()));
        Languages::new(codes, place, eos).with_defaults(source, target).map(Some)
    }

    /// The ids of a text, without what is put around it.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let encoded = guarded(|| {
            let mut parts = self.split(text)?;
            let splits = parts.get_splits(OffsetReferential::Normalized, OffsetType::None);
            let added = splits
                .iter()
                .enumerate()
                .filter_map(|(at, (_, _, tokens))| Some((at, tokens.as_ref()?[0].id)));
            let mut added = added.collect::<Vec<_>>().into_iter().peekable();
            // Each part goes as soon as it is encoded.
            parts.split(|at, part| {
                ids.extend(
                    std::iter::from_fn(|| added.next_if(|&(before, _)| before < at)).map(|(_, id)| id),
                );
                worker::check()?;
                ids.extend(self.backend.get_model().tokenize(part.get())?.iter().map(|token| token.id));
                Ok(Vec::<NormalizedString>::new())
            })?;
            ids.extend(added.map(|(_, id)| id));
            Ok(())
        });
        encoded.map_err(|cause| failed_on(text, cause))?;
        Ok(ids)
    }

    /// As [`super::Tokenizer::encode_with_offsets`].
    pub(super) fn encode_with_offsets(
        &self,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<Vec<(TokenId, Option<Range<usize>>)>> {
        let encoding = guarded(|| {
            let mut parts = self.split(text)?;
            parts.tokenize(|part| {
                worker::check()?;
                self.backend.get_model().tokenize(part.get())
            })?;
            self.backend.post_process(
                parts.into_encoding(None, 0, OffsetType::Char)?,
                None,
                add_special_tokens,
            )
        })
        .map_err(|cause| failed_on(text, cause))?;
        let around = encoding.get_special_tokens_mask().iter().map(|&added| added != 0);
        let places = encoding.get_offsets().iter().zip(around);
        let places = places.map(|(&(start, end), added)| (!added).then_some(start..end));
        Ok(encoding.get_ids().iter().copied().map(TokenId).zip(places).collect())
    }

    /// The parts of a text that the model encodes, as the crate's own `encode` makes them.
    fn split(&self, text: &str) -> tokenizers::Result<PreTokenizedString> {
        check_length(text.len())?;
        let longest = text.len().saturating_mul(self.growth);
        if longest > MAX_NORMALIZED_BYTES {
            check_length(longest)?;
        }
        let normalizer = self.backend.get_normalizer();
        let mut parts = self.backend.get_added_vocabulary().extract_and_normalize(normalizer, text);
        check_parts(&parts)?;
        if let Some(splitter) = self.backend.get_pre_tokenizer() {
            splitter.pre_tokenize(&mut parts)?;
        }
        Ok(parts)
    }

    /// The number of different tokens.
    pub(super) fn vocab_size(&self) -> usize {
        self.backend.get_vocab_size(true)
    }

    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.backend.token_to_id(token)
    }

    /// All ids with their texts as they are decoded, and whether they are special.
    pub(super) fn tokens(&self) -> Result<Vec<(u32, String, bool)>> {
        let backend = &self.backend;
        let added = backend.get_added_tokens_decoder();
        let mut tokens = Vec::new();
        for id in backend.get_vocab(true).into_values() {
            let Some(token) = backend.id_to_token(id) else { continue };
            let special = backend.get_added_vocabulary().is_special_token(&token);
            let token = match added.get(&id) {
                Some(added) if added.normalized => normalized(backend, &token)?,
                _ => token,
            };
            tokens.push((id, token, special));
        }
        Ok(tokens)
    }

    pub(super) fn decoder(&self, settings: &Settings) -> Result<Decoder> {
        let decoder = serde_json::to_value(self.backend.get_decoder())
            .map_err(|error| Error::load("tokenizer.json: decoder").with_source(error))?;
        // The clean-up would remove spaces of BPE texts, so transformers applies it to other vocabularies
        // only.
        let is_bpe = matches!(self.backend.get_model(), ModelWrapper::BPE(_));
        Decoder::from_json(&decoder, settings.clean_up && (!is_bpe || settings.force_clean_up))
    }

    /// The kind of its model.
    pub(super) fn model(&self) -> &'static str {
        match self.backend.get_model() {
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::Unigram(_) => "Unigram",
            ModelWrapper::WordPiece(_) => "WordPiece",
            ModelWrapper::WordLevel(_) => "WordLevel",
        }
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

/// The ids that the post-processor adds before and after a prompt.
fn around(backend: &Backend) -> Result<[Vec<u32>; 2]> {
    const PROMPT: u32 = u32::MAX;
    let unusable = "tokenizer.json: its post_processor cannot be used; download it again";
    let prompt = Encoding::from_tokens(vec![Token::new(PROMPT, String::new(), (0, 0))], 0);
    let processed = guarded(|| backend.post_process(prompt, None, true))
        .map_err(|cause| Error::load(unusable).with_source(cause))?;
    let mut sides = processed.get_ids().split(|&id| id == PROMPT).map(<[u32]>::to_vec);
    match (sides.next(), sides.next(), sides.next()) {
        (Some(before), Some(after), None) => Ok([before, after]),
        _ => Err(Error::load(unusable)),
    }
}

#[cold]
fn failed_on(text: &str, cause: tokenizers::Error) -> Error {
    let cause = match cause.downcast::<Error>() {
        Ok(error) => return *error,
        Err(cause) => cause,
    };
    Error::input(format!(
        "the tokenizer failed on a text of {} bytes; its tokenizer.json may be damaged",
        text.len()
    ))
    .with_source(cause)
}

/// An added token that is matched in normalized prompts is also decoded from its normalized form.
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

/// What a class makes of the vocabulary and the merges of a file.
fn rebuild(file: &Backend, class: &TokenizerClass, settings: &Settings) -> tokenizers::Result<Backend> {
    let model = match class.model {
        Model::Bpe { fuse_unknown } => bpe(file, class, settings, fuse_unknown)?.into(),
        Model::Unigram { unknown } => unigram(file, unknown, settings)?.into(),
    };
    let mut backend = Backend::new(model);
    let charsmap = if class.normalizer_of_map.is_empty() { None } else { charsmap(file)? };
    let normalizer = match charsmap {
        Some(map) => class.normalizer_of_map.replace("$charsmap", &map),
        None => class.normalizer.to_owned(),
    };
    let section = |text| class.section(text, settings.add_prefix_space, settings.legacy.unwrap_or(false));
    backend.with_normalizer(serde_json::from_str::<Option<NormalizerWrapper>>(&normalizer)?);
    backend.with_pre_tokenizer(Some(serde_json::from_str::<Splitter>(&section(class.pre_tokenizer))?));
    backend.with_decoder(Some(serde_json::from_str::<DecoderWrapper>(&section(class.decoder))?));
    if class.around == Around::OfFile {
        backend.with_post_processor(file.get_post_processor().cloned());
    }
    Ok(backend)
}

fn bpe(
    file: &Backend,
    class: &TokenizerClass,
    settings: &Settings,
    fuse_unknown: bool,
) -> tokenizers::Result<BPE> {
    let mut bpe = match file.get_model() {
        ModelWrapper::BPE(bpe) => bpe.clone(),
        other => BPE::builder()
            .vocab_and_merges(other.get_vocab().into_iter().collect::<Vocab>(), vec![])
            .build()?,
    };
    // Python's text where a file sets it to none.
    let unknown = settings.special_token("unk_token").unwrap_or("None").to_owned();
    (bpe.dropout, bpe.unk_token) = (None, class.has_unknown.then_some(unknown));
    (bpe.fuse_unk, bpe.byte_fallback) = (fuse_unknown, class.byte_fallback);
    (bpe.ignore_merges, bpe.continuing_subword_prefix, bpe.end_of_word_suffix) = (false, None, None);
    Ok(bpe)
}

fn unigram(file: &Backend, unknown: Option<usize>, settings: &Settings) -> tokenizers::Result<Unigram> {
    let ModelWrapper::Unigram(model) = file.get_model() else {
        let rule =
            "tokenizer.json: the class that tokenizer_config.json names needs a model of the type Unigram";
        return Err(Error::load(format!("{rule}; correct tokenizer_class")).into());
    };
    let unknown = unknown.map_or_else(|| unknown_piece(model, settings), Ok)?;
    Unigram::from(model.iter().cloned().collect(), Some(unknown), false)
}

/// The place of the unknown token, which Pegasus finds by its text and score.
fn unknown_piece(model: &Unigram, settings: &Settings) -> Result<usize> {
    let text = settings.special_token("unk_token").unwrap_or_default();
    let is_unknown = |(piece, score): &(String, f64)| piece == text && *score == 0.0;
    let place = model.iter().skip(1).position(is_unknown);
    place.map(|place| place + 1).ok_or_else(|| {
        Error::load(format!(
            "tokenizer.json: its model must have {} with the score 0 behind the first piece, as the class of \
             tokenizer_config.json wants it; correct tokenizer_class",
            shown(&text.into())
        ))
    })
}

/// The map of characters of a file, where its normalizer has one.
fn charsmap(file: &Backend) -> tokenizers::Result<Option<String>> {
    let normalizer = serde_json::to_value(file.get_normalizer())?;
    let parts = normalizer["normalizers"].as_array().map_or(std::slice::from_ref(&normalizer), Vec::as_slice);
    let map = parts.iter().find(|part| part["type"] == "Precompiled");
    Ok(map.and_then(|part| part["precompiled_charsmap"].as_str()).map(str::to_owned))
}

/// Puts the named tokens around prompts, as far as there are such.
fn put_around(backend: &mut Backend, settings: &Settings, bos: bool, eos: bool) -> tokenizers::Result<()> {
    let token = |wanted: bool, name| settings.special_token(name).filter(|_| wanted).map(str::to_owned);
    let [bos, eos] = [token(bos, "bos_token"), token(eos, "eos_token")];
    let ids = [&bos, &eos].into_iter().flatten();
    let ids: Vec<(String, u32)> =
        ids.filter_map(|token| Some((token.clone(), backend.token_to_id(token)?))).collect();
    let parts: Vec<String> = bos.into_iter().chain(["$A".to_owned()]).chain(eos).collect();
    let template = TemplateProcessing::builder().try_single(parts)?.special_tokens(ids).build()?;
    backend.with_post_processor(Some(template));
    Ok(())
}

/// Adds the tokens that the settings list and the vocabulary lacks, in transformers' order.
fn add_tokens(
    backend: &mut Backend,
    class: Option<&TokenizerClass>,
    settings: &Settings,
) -> tokenizers::Result<()> {
    let known = backend.get_added_tokens_decoder();
    let mut listed: HashSet<&str> = known.values().map(|token| token.content.as_str()).collect();
    let mut wanted: Vec<AddedToken> = Vec::new();
    // The crate looks through all for each one that it has.
    let same: HashSet<&AddedToken> = known.values().collect();
    for token in settings.added.values() {
        let special = token.special || settings.is_named(&token.content);
        wanted.extend(Some(token.clone().special(special)).filter(|token| !same.contains(token)));
        listed.insert(&token.content);
    }
    wanted.extend(settings.special_tokens().filter(|token| listed.insert(&token.content)).cloned());
    match class.map(|class| class.added) {
        Some(Added::Again) => {
            wanted.extend(settings.special_tokens().map(|token| token.clone().special(true)));
        }
        Some(Added::AgainPlain) => {
            let contents = settings.special_tokens().map(|token| token.content.as_str());
            wanted.extend(contents.map(|content| AddedToken::from(content, true)));
        }
        Some(Added::Once) | None => {}
    }
    wanted.iter().try_for_each(checks::check_added)?;
    if !wanted.is_empty() {
        backend.add_tokens(&wanted);
    }
    let [bos, eos] = [settings.add_bos_token, settings.add_eos_token];
    let own = class.map(|class| class.around).filter(|&around| around != Around::OfFile);
    match own {
        // Whatever the files say.
        Some(Around::Eos) => put_around(backend, settings, false, true)?,
        Some(Around::ClsSep) => put_roberta(backend, settings)?,
        Some(Around::Language(..)) => {}
        _ if own.is_some() || bos.is_some() || eos.is_some() => {
            put_around(backend, settings, bos.unwrap_or(own == Some(Around::Bos)), eos.unwrap_or(false))?;
        }
        _ => {}
    }
    Ok(())
}

/// Puts `cls_token` and `sep_token` around prompts.
fn put_roberta(backend: &mut Backend, settings: &Settings) -> tokenizers::Result<()> {
    let token = |name: &str| {
        let token = settings.special_token(name).unwrap_or_default();
        let rule = || Error::load(format!("tokenizer_config.json: {name} must be a token of the vocabulary"));
        Ok::<_, Error>((token.to_owned(), backend.token_to_id(token).ok_or_else(rule)?))
    };
    let around = RobertaProcessing::new(token("sep_token")?, token("cls_token")?);
    let space = settings.add_prefix_space.unwrap_or(false);
    backend.with_post_processor(Some(around.trim_offsets(true).add_prefix_space(space)));
    Ok(())
}
