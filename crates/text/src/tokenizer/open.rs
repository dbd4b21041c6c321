//! Opening a tokenizer: which files stand for one, by the class that reads them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::{Encoder, Inner, MAX_TOKENIZER_BYTES, Tokenizer};
use crate::byt5::ByT5Tokenizer;
use crate::decoder::Decoder;
use crate::languages::Languages;
use crate::sentencepiece::{self, LlamaTokenizer, PieceTokenizer};
use crate::settings::Settings;
use crate::tokenizer_class::Files;
use crate::tokenizer_json::TokenizerJson;
use crate::worker;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::json::read_object;

/// The files beside a vocabulary.
const BESIDE: [&str; 4] =
    ["config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"];

/// What a tokenizer is made of.
struct Parts {
    encoder: Encoder,
    decoder: Decoder,
    /// All ids with their texts, and whether they are special; of a duplicate id the last one counts.
    tokens: Vec<(u32, String, bool)>,
    vocab_size: usize,
    languages: Option<Languages>,
    around: [Vec<u32>; 2],
    file: &'static str,
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
        let mut read = |name: &str| read_small(&mut read, name);
        let mut files: HashMap<&str, Arc<[u8]>> = HashMap::new();
        for name in BESIDE {
            files.extend(read(name)?.map(|bytes| (name, bytes)));
        }
        let mut settings = Settings::read(&|name| files.get(name).cloned())?;
        let class = settings.class();
        // Without the files of such a class, there is no tokenizer.
        match class.as_ref().ok().and_then(|class| Some((*class)?.files)) {
            Some(Files::Marian) => return Self::of_marian(&mut read, settings),
            Some(Files::M2M100) => return Self::of_m2m100(&mut read, settings),
            Some(Files::Bytes) => return Self::of_bytes(settings).map(Some),
            _ => {}
        }
        let (file, json) = if let Some(json) = read("tokenizer.json")? {
            // It has a post-processor.
            (settings.add_bos_token, settings.add_eos_token) = (None, None);
            ("tokenizer.json", json)
        } else {
            let model = read("tokenizer.model")?.map(|model| ("tokenizer.model", model));
            match (class?, model) {
                (Some(class), model) if let Files::Pieces(name, order) = class.files => {
                    let model = match model {
                        None => read(name)?.map(|model| (name, model)),
                        found => found,
                    };
                    let Some((name, model)) = model else { return Ok(None) };
                    let json = sentencepiece::tokenizer_json(&model, class, order, &mut settings);
                    (name, json.context(|| name)?.into())
                }
                (_, Some((_, model))) => return Self::of_pieces(&model, &mut settings).map(Some),
                (class, None) => match [read("vocab.json")?, read("merges.txt")?] {
                    [Some(vocab), Some(merges)] if class.is_some_and(|it| it.files == Files::Merges) => {
                        ("vocab.json", of_merges(&vocab, &merges)?.into())
                    }
                    _ => return Ok(None),
                },
            }
        };
        worker::run(&mut || false, "tokenizer.json", json.len(), move || {
            let mut settings = settings.clone();
            let json = TokenizerJson::new(&json, &mut settings)?;
            let parts = Parts {
                decoder: json.decoder(&settings)?,
                tokens: json.tokens()?,
                vocab_size: json.vocab_size(),
                languages: json.languages(&settings)?,
                around: json.around.clone(),
                encoder: Encoder::Json(Arc::new(json)),
                file,
            };
            Ok(Self::new(parts, &settings))
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
        let tokens: Vec<_> =
            encoder.tokens().map(|(id, token, special)| (id, token.to_owned(), special)).collect();
        let mut texts: Vec<Option<&str>> = Vec::new();
        for (id, token, _) in &tokens {
            texts.resize(texts.len().max(*id as usize + 1), None);
            texts[*id as usize] = Some(token);
        }
        let parts = Parts {
            decoder: Decoder::of_pieces(encoder.decoder(settings), settings.clean_up),
            vocab_size: texts.into_iter().flatten().collect::<HashSet<_>>().len(),
            tokens,
            languages: None,
            around: [Vec::new(), Vec::new()],
            encoder: Encoder::SentencePiece(Box::new(encoder)),
            file: "tokenizer.model",
        };
        Ok(Self::new(parts, settings))
    }

    /// Reads the files of transformers' `MarianTokenizer`.
    fn of_marian(
        read: &mut impl FnMut(&str) -> Result<Option<Arc<[u8]>>>,
        mut settings: Settings,
    ) -> Result<Option<Self>> {
        let [Some(source), Some(target), Some(vocab)] =
            [read("source.spm")?, read("target.spm")?, read("vocab.json")?]
        else {
            return Ok(None);
        };
        let target_vocab = if settings.of_class.separate_vocabs {
            let rule = || Error::load("target_vocab.json: `separate_vocabs` needs this file; download it");
            Some(read("target_vocab.json")?.ok_or_else(rule)?)
        } else {
            None
        };
        settings.model_max_length.get_or_insert(512);
        complete(&mut settings)?;
        let encoder = PieceTokenizer::marian(&source, &target, &vocab, target_vocab.as_deref(), &settings)?;
        Ok(Some(Self::of_vocabulary(encoder, &settings)))
    }

    /// Reads the files of transformers' `M2M100Tokenizer`.
    fn of_m2m100(
        read: &mut impl FnMut(&str) -> Result<Option<Arc<[u8]>>>,
        mut settings: Settings,
    ) -> Result<Option<Self>> {
        let [Some(model), Some(vocab)] = [read("sentencepiece.bpe.model")?, read("vocab.json")?] else {
            return Ok(None);
        };
        complete(&mut settings)?;
        let encoder = PieceTokenizer::m2m100(&model, &vocab, &settings)?;
        Ok(Some(Self::of_vocabulary(encoder, &settings)))
    }

    fn of_vocabulary(mut encoder: PieceTokenizer, settings: &Settings) -> Self {
        let languages = encoder.languages.take();
        let eos = settings.special_token("eos_token").and_then(|token| encoder.id(token));
        let parts = Parts {
            decoder: Decoder::of_pieces(encoder.decoder(), settings.clean_up).trimmed(),
            tokens: std::mem::take(&mut encoder.tokens),
            vocab_size: encoder.vocab_size,
            languages,
            around: [Vec::new(), eos.into_iter().collect()],
            encoder: Encoder::Pieces(Box::new(encoder)),
            file: "vocab.json",
        };
        Self::new(parts, settings)
    }

    /// Transformers' `ByT5Tokenizer`, which reads no vocabulary.
    fn of_bytes(mut settings: Settings) -> Result<Self> {
        complete(&mut settings)?;
        let encoder = ByT5Tokenizer::new(&settings)?;
        let parts = Parts {
            decoder: encoder.decoder(settings.clean_up),
            tokens: encoder.tokens(),
            vocab_size: encoder.vocab_size(),
            languages: None,
            around: [Vec::new(), encoder.id("</s>").into_iter().collect()],
            encoder: Encoder::Bytes(Box::new(encoder)),
            file: "tokenizer_config.json",
        };
        Ok(Self::new(parts, &settings))
    }

    fn new(parts: Parts, settings: &Settings) -> Self {
        let Parts { encoder, decoder, tokens: all_tokens, vocab_size, languages, around, file } = parts;
        let length = all_tokens.iter().map(|&(id, ..)| id as usize + 1).max().unwrap_or(0);
        let mut tokens: Box<[Option<Box<str>>]> = vec![None; length].into_boxed_slice();
        let mut special = vec![false; length].into_boxed_slice();
        for (id, token, is_special) in all_tokens {
            (tokens[id as usize], special[id as usize]) = (Some(token.into_boxed_str()), is_special);
        }
        let id_of = |name: &str| settings.special_token(name).and_then(|token| encoder.id(token));
        let [bos, eos, pad] = ["bos_token", "eos_token", "pad_token"].map(id_of);
        let special_tokens =
            settings.named_tokens().map(|(name, token)| (name.to_owned(), token.to_owned())).collect();
        let (source, target) =
            languages.as_ref().map_or((None, None), |languages| (languages.source, languages.target));
        let inner = Inner {
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
            languages,
            pair: settings.of_class.pair.clone(),
            around,
            file,
            is_for_sources: settings.is_for_sources(),
        };
        Self { inner: Arc::new(inner), source, target }
    }
}

/// Sets the special tokens of the class.
fn complete(settings: &mut Settings) -> Result<()> {
    if let Some(class) = settings.class()? {
        class.complete(settings);
    }
    Ok(())
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
