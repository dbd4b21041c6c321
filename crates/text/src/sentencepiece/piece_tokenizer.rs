//! Tokenizers whose SentencePiece model only cuts texts: a vocab.json gives the ids of its pieces. The rules
//! are those of transformers' `MarianTokenizer` and `M2M100Tokenizer`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tokenizers::AddedToken;

use super::added_tokens::{AddedTokens, Part, check_ids};
use super::decode::{PieceDecoder, Rules};
use super::processor::{Found, Processor};
use crate::budget::Budget;
use crate::checks::check_added;
use crate::language_codes::{M2M100, WMT21};
use crate::languages::{LanguagePlace, Languages};
use crate::settings::Settings;
use crate::tokenizer::{MAX_TOKEN_ID, MAX_TOKENIZER_BYTES};
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::json::{read_object, shown};

type Vocab = HashMap<String, u32>;

/// What a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Target,
}

/// A tokenizer with a vocab.json beside its pieces.
#[derive(Debug)]
pub(crate) struct PieceTokenizer {
    source: Pieces,
    /// `None` is that of the source.
    target: Option<Pieces>,
    added: AddedTokens,
    special: HashSet<String>,
    split_special_tokens: bool,
    /// Whether a text begins with the language of its target: Marian.
    cuts_code: bool,
    /// The model whose rules texts are put together by.
    decodes: Arc<Processor>,
    /// All ids with their texts, and whether they are special; of a duplicate id the last one counts.
    pub(crate) tokens: Vec<(u32, String, bool)>,
    pub(crate) vocab_size: usize,
    pub(crate) languages: Option<Languages>,
}

/// A SentencePiece model with the ids of its pieces.
#[derive(Debug)]
struct Pieces {
    processor: Arc<Processor>,
    vocab: Arc<Vocab>,
    ids: Box<[u32]>,
    unknown: u32,
}

impl Pieces {
    fn new(
        processor: &Arc<Processor>,
        vocab: &Arc<Vocab>,
        added: &AddedTokens,
        unknown: &str,
    ) -> Result<Self> {
        let unknown = vocab.get(unknown).copied().ok_or_else(|| {
            let token = shown(&unknown.into());
            Error::load(format!("vocab.json: the unknown token {token} must be in it; download it again"))
        })?;
        let mut this =
            Self { processor: Arc::clone(processor), vocab: Arc::clone(vocab), ids: Box::default(), unknown };
        let pieces = &processor.vocabulary.pieces;
        this.ids = pieces.iter().map(|piece| this.id(added, &piece.text)).collect();
        Ok(this)
    }

    fn id(&self, added: &AddedTokens, text: &str) -> u32 {
        added.id(text).or_else(|| self.vocab.get(text).copied()).unwrap_or(self.unknown)
    }
}

impl PieceTokenizer {
    /// Reads the files of a `MarianTokenizer`.
    pub(crate) fn marian(
        source: &[u8],
        target: &[u8],
        vocab: &[u8],
        target_vocab: Option<&[u8]>,
        settings: &Settings,
    ) -> Result<Self> {
        let source = Arc::new(Processor::new(source).context(|| "source.spm")?);
        let target = Arc::new(Processor::new(target).context(|| "target.spm")?);
        let of_sources = Arc::new(read_vocab("vocab.json", vocab)?);
        let of_targets = target_vocab.map(|vocab| read_vocab("target_vocab.json", vocab)).transpose()?;
        let is_separate = of_targets.is_some();
        let of_targets = of_targets.map_or_else(|| Arc::clone(&of_sources), Arc::new);
        let added = number_added(BTreeMap::new(), by_id(&of_sources), settings)?;
        let decodes = if is_separate { &target } else { &source };
        // Ids beyond the vocabulary are those of pieces.
        let mut tokens: BTreeMap<u32, String> =
            (0..).zip(&decodes.vocabulary.pieces).map(|(id, piece)| (id, piece.text.to_string())).collect();
        tokens.extend(by_id(&of_targets));
        let codes = |vocab: &Vocab| -> Vec<(String, u32)> {
            let is_code = |token: &str| token.starts_with(">>") && token.ends_with("<<");
            let mut codes: Vec<(String, u32)> = vocab
                .iter()
                .filter(|(token, _)| is_code(token))
                .map(|(token, &id)| (token.clone(), id))
                .collect();
            codes.sort_unstable_by_key(|&(_, id)| id);
            codes
        };
        let codes = codes(&of_sources);
        let place = LanguagePlace::BeforeSource;
        let eos = settings.special_token("eos_token");
        let eos = eos.and_then(|eos| of_sources.get(eos).copied());
        let languages = (!codes.is_empty()).then(|| Languages::new(codes, place, eos));
        let decodes = Arc::clone(decodes);
        let mut this = Self::new(&source, &of_sources, added, tokens, decodes, settings)?;
        this.target = Some(Pieces::new(&target, &of_targets, &this.added, unknown(settings))?);
        (this.cuts_code, this.languages) = (true, languages);
        Ok(this)
    }

    /// Reads the files of a `M2M100Tokenizer`.
    pub(crate) fn m2m100(model: &[u8], vocab: &[u8], settings: &Settings) -> Result<Self> {
        let processor = Arc::new(Processor::new(model).context(|| "sentencepiece.bpe.model")?);
        let mut vocab = read_vocab("vocab.json", vocab)?;
        let codes = match settings.of_class.language_codes.as_deref() {
            None | Some("m2m100") => M2M100,
            Some("wmt21") => WMT21,
            Some(other) => {
                return Err(Error::load(format!(
                    "tokenizer_config.json: language_codes must be \"m2m100\" or \"wmt21\", found {}",
                    shown(&other.into())
                )));
            }
        };
        let added = number_added(BTreeMap::new(), by_id(&vocab), settings)?;
        let mut tokens = by_id(&vocab);
        let first = vocab.len() as u32;
        let ids: Vec<(String, u32)> =
            codes.split(' ').zip(first..).map(|(code, id)| (code.to_owned(), id)).collect();
        let vocab_size = num_texts(&vocab, &added);
        for (code, id) in &ids {
            tokens.insert(*id, format!("__{code}__"));
            vocab.insert(format!("__{code}__"), *id);
        }
        let beyond = first + ids.len() as u32;
        let nameless = settings.of_class.num_madeup_words.unwrap_or(8) as u32;
        tokens.extend((beyond..beyond + nameless).map(|id| (id, unknown(settings).to_owned())));
        let decodes = Arc::clone(&processor);
        let mut this = Self::new(&processor, &Arc::new(vocab), added, tokens, decodes, settings)?;
        let eos = settings.special_token("eos_token").and_then(|token| this.id(token));
        let languages = Languages::new(ids, LanguagePlace::Before, eos);
        let of_class = &settings.of_class;
        let source = of_class.src_lang.as_deref().unwrap_or("en");
        this.languages = Some(languages.with_defaults(Some(source), of_class.tgt_lang.as_deref())?);
        // The languages do not count.
        this.vocab_size = vocab_size;
        Ok(this)
    }

    fn new(
        source: &Arc<Processor>,
        vocab: &Arc<Vocab>,
        added: BTreeMap<u32, AddedToken>,
        mut tokens: BTreeMap<u32, String>,
        decodes: Arc<Processor>,
        settings: &Settings,
    ) -> Result<Self> {
        let special: HashSet<String> = settings.special_tokens().map(|token| token.content.clone()).collect();
        let special_ids: HashSet<u32> = added
            .iter()
            .filter(|(_, token)| token.special || special.contains(&token.content))
            .map(|(&id, _)| id)
            .collect();
        tokens.extend(added.iter().map(|(&id, token)| (id, token.content.clone())));
        if let Some((&highest, token)) = tokens.last_key_value().filter(|&(&id, _)| id > MAX_TOKEN_ID) {
            return Err(Error::load(format!(
                "vocab.json: token ids must be at most {MAX_TOKEN_ID}, found {highest} for {}",
                shown(&token.as_str().into())
            )));
        }
        let vocab_size = num_texts(vocab, &added);
        let added = AddedTokens::new(added);
        Ok(Self {
            source: Pieces::new(source, vocab, &added, unknown(settings))?,
            target: None,
            added,
            special,
            split_special_tokens: settings.split_special_tokens,
            cuts_code: false,
            decodes,
            tokens: tokens.into_iter().map(|(id, token)| (id, token, special_ids.contains(&id))).collect(),
            vocab_size,
            languages: None,
        })
    }

    /// The ids of a text, without those that are put around it.
    pub(crate) fn encode(&self, side: Side, text: &str, budget: &Budget<'_>) -> Result<Vec<u32>> {
        let pieces = self.target.as_ref().filter(|_| side == Side::Target).unwrap_or(&self.source);
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        if self.split_special_tokens {
            self.encode_part(pieces, text, &mut ids, budget)?;
            return Ok(ids);
        }
        for part in self.added.split(text, budget)? {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => self.encode_part(pieces, &text, &mut ids, budget)?,
            }
        }
        Ok(ids)
    }

    fn encode_part(
        &self,
        pieces: &Pieces,
        text: &str,
        ids: &mut Vec<u32>,
        budget: &Budget<'_>,
    ) -> Result<()> {
        let mut text = text;
        let code = text.strip_prefix(">>").filter(|_| self.cuts_code).and_then(|rest| rest.find("<<"));
        if let Some(length) = code {
            let (code, rest) = text.split_at(length + 4);
            ids.push(pieces.id(&self.added, code));
            text = rest;
        }
        let add_dummy_prefix = pieces.processor.normalizer.add_dummy_prefix;
        pieces.processor.encode(text, add_dummy_prefix, budget, |found| {
            ids.push(match found {
                Found::Piece(piece) => pieces.ids[piece as usize],
                Found::Unknown(text) => pieces.id(&self.added, text),
            });
        })
    }

    /// The id of a token by its text.
    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.added.id(token).or_else(|| self.source.vocab.get(token).copied())
    }

    /// The decoder of this tokenizer.
    pub(crate) fn decoder(&self) -> PieceDecoder {
        PieceDecoder {
            processor: Arc::clone(&self.decodes),
            special: self.special.clone(),
            added: HashSet::new(),
            rules: Rules::Runs { is_marian: self.cuts_code },
        }
    }

    /// The type of the model.
    pub(crate) fn model(&self) -> &'static str {
        if self.source.processor.is_bpe() { "BPE" } else { "Unigram" }
    }
}

/// The number of different tokens.
fn num_texts(vocab: &Vocab, added: &BTreeMap<u32, AddedToken>) -> usize {
    vocab.keys().chain(added.values().map(|token| &token.content)).collect::<HashSet<_>>().len()
}

fn unknown(settings: &Settings) -> &str {
    settings.special_token("unk_token").unwrap_or("<unk>")
}

fn read_vocab(file: &str, bytes: &[u8]) -> Result<Vocab> {
    let object = read_object(file, bytes, MAX_TOKENIZER_BYTES)?;
    object
        .into_iter()
        .map(|(token, id)| {
            let number = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let number = number.ok_or_else(|| {
                let token = shown(&token.as_str().into());
                Error::load(format!("{file}: {token} must have a token id, found {}", shown(&id)))
            })?;
            Ok((token, number))
        })
        .collect()
}

/// Tokens by id; of several with one id, the last in the order of their texts.
fn by_id(vocab: &Vocab) -> BTreeMap<u32, String> {
    let mut tokens: Vec<(&String, u32)> = vocab.iter().map(|(token, &id)| (token, id)).collect();
    tokens.sort_unstable();
    tokens.into_iter().map(|(token, id)| (id, token.clone())).collect()
}

/// The added tokens by id as transformers' `PythonBackend` numbers them: `first` and those of the files, then
/// the special ones that are none of them, with the id of the same text in the vocabulary or one behind it.
pub(crate) fn number_added(
    first: BTreeMap<u32, AddedToken>,
    vocab: impl IntoIterator<Item = (u32, String)>,
    settings: &Settings,
) -> Result<BTreeMap<u32, AddedToken>> {
    settings.added.values().chain(settings.special_tokens()).try_for_each(check_added)?;
    let mut by_id = first;
    by_id.extend(settings.added.iter().map(|(&id, token)| (id, token.clone())));
    let mut known: HashMap<String, u32> = vocab.into_iter().map(|(id, token)| (token, id)).collect();
    let listed: HashMap<String, u32> = by_id.iter().map(|(&id, token)| (token.content.clone(), id)).collect();
    known.extend(listed.clone());
    for token in settings.special_tokens().filter(|token| !token.content.is_empty()) {
        if listed.contains_key(&token.content) {
            continue;
        }
        let next = known.len() as u32;
        let id = *known.entry(token.content.clone()).or_insert(next);
        // Only the text of a special token counts, not its flags.
        by_id.insert(id, AddedToken::from(token.content.as_str(), true));
    }
    check_ids(&by_id)?;
    Ok(by_id)
}
