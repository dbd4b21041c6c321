//! The rules of transformers' slow `LlamaTokenizer` around a SentencePiece model: added tokens, the space
//! before a text, and the tokens added around a prompt.
//!
//! The rules are those of transformers 4, the last version with such a class: `legacy` and `add_bos_token`
//! default to true. Other classes have other rules and are an error.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tokenizers::AddedToken;

use super::CONVERSION;
use super::added_tokens::{AddedTokens, Part, check_ids};
use super::decode::{PieceDecoder, Rules};
use super::normalizer::SPACE;
use super::processor::{Found, Processor};
use crate::budget::Budget;
use crate::checks::check_added;
use crate::settings::Settings;
use rsgen_core::error::{Error, Result};
use rsgen_core::json::shown;

/// The text of the unknown token where the files name none.
const UNKNOWN: &str = "<unk>";

/// A tokenizer from a `tokenizer.model`.
#[derive(Debug)]
pub(crate) struct LlamaTokenizer {
    processor: Arc<Processor>,
    added: AddedTokens,
    /// The id of each piece: an added token of the same text has precedence.
    ids: Box<[u32]>,
    /// The texts of the special tokens that have a name.
    special: HashSet<String>,
    special_ids: HashSet<u32>,
    legacy: bool,
    add_prefix_space: bool,
    split_special_tokens: bool,
    bos: Option<u32>,
    eos: Option<u32>,
    unknown: String,
    /// The number of tokens that the text of the unknown token is split into.
    unknown_len: usize,
}

impl LlamaTokenizer {
    /// Reads a model; the named tokens of the class are added to `settings`.
    pub(crate) fn new(model: &[u8], settings: &mut Settings) -> Result<Self> {
        match settings.class.as_deref() {
            None | Some("LlamaTokenizer" | "LlamaTokenizerFast") => {}
            Some(class) => {
                return Err(Error::load(format!(
                    "the class {} that tokenizer_config.json names has rules of its own, and only those of \
                     LlamaTokenizer are known; {CONVERSION}",
                    shown(&class.into())
                )));
            }
        }
        for (name, content) in [("unk_token", UNKNOWN), ("bos_token", "<s>"), ("eos_token", "</s>")] {
            settings.default_token(name, content);
        }
        let processor = Processor::new(model)?;
        let added = settings.added.values().chain(settings.special_tokens());
        added.into_iter().try_for_each(check_added)?;
        let added = added_by_id(&processor, settings);
        check_ids(&added)?;
        let added = AddedTokens::new(added);
        let vocabulary = &processor.vocabulary;
        let ids = vocabulary.pieces.iter().map(|piece| id_of(&added, &processor, &piece.text)).collect();
        let id_of_named = |name: &str| settings.special_token(name).and_then(|content| added.id(content));
        let special_ids = settings.special_tokens().filter_map(|token| added.id(&token.content)).collect();
        let mut this = Self {
            ids,
            special_ids,
            special: settings.special_tokens().map(|token| token.content.clone()).collect(),
            legacy: settings.legacy.unwrap_or(true),
            add_prefix_space: settings.add_prefix_space.unwrap_or(true),
            split_special_tokens: settings.split_special_tokens,
            bos: settings.add_bos_token.unwrap_or(true).then(|| id_of_named("bos_token")).flatten(),
            eos: settings.add_eos_token.unwrap_or(false).then(|| id_of_named("eos_token")).flatten(),
            unknown: settings.special_token("unk_token").unwrap_or(UNKNOWN).to_owned(),
            unknown_len: 0,
            added,
            processor: Arc::new(processor),
        };
        let mut ids = Vec::new();
        this.cut(&this.unknown, &mut ids, &Budget::new(&mut || false))?;
        this.unknown_len = ids.len();
        Ok(this)
    }

    /// The ids of a text; with `add_special_tokens` also those added around a prompt.
    pub(crate) fn encode(
        &self,
        text: &str,
        add_special_tokens: bool,
        budget: &Budget<'_>,
    ) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        if add_special_tokens {
            ids.extend(self.bos);
        }
        if self.legacy || text.is_empty() {
            self.encode_parts(text, &mut ids, budget)?;
        } else {
            let begin = if self.add_prefix_space { SPACE } else { "" };
            let from = ids.len();
            let special_at =
                self.encode_parts(&format!("{begin}{}", text.replace(SPACE, " ")), &mut ids, budget)?;
            // The space added before a special token is removed again.
            let space = self.processor.vocabulary.textual(SPACE).map(|piece| self.ids[piece as usize]);
            if special_at == Some(from + 1) && space == Some(ids[from]) {
                ids.remove(from);
            }
        }
        if add_special_tokens {
            ids.extend(self.eos);
        }
        Ok(ids)
    }

    /// The id of a token by its text.
    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.added.id(token).or_else(|| self.processor.vocabulary.named(token))
    }

    /// All ids with their texts and whether they are special; of a duplicate id the last one counts.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (u32, &str, bool)> {
        let pieces = (0_u32..).zip(&self.processor.vocabulary.pieces);
        let pieces = pieces.map(|(id, piece)| (id, &*piece.text, self.special.contains(&*piece.text)));
        let added = self.added.iter().map(|(id, token)| {
            let content = token.content.as_str();
            (id, content, token.special || self.special.contains(content))
        });
        pieces.chain(added)
    }

    /// The decoder of this tokenizer.
    pub(crate) fn decoder(&self, settings: &Settings) -> PieceDecoder {
        let vocabulary_len = self.processor.vocabulary.pieces.len();
        let beyond = |id: u32| id as usize >= vocabulary_len;
        let added = self.added.iter().map(|(id, token)| (id, token.content.as_str()));
        let set_apart = added.filter(|&(id, content)| {
            !self.special.contains(content) || (beyond(id) && settings.is_extra(content))
        });
        PieceDecoder {
            added: set_apart.map(|(_, content)| content.to_owned()).collect(),
            processor: self.processor.clone(),
            special: self.special.clone(),
            rules: Rules::Llama { legacy: self.legacy, add_prefix_space: self.add_prefix_space },
        }
    }

    /// The type of the model.
    pub(crate) fn model(&self) -> &'static str {
        if self.processor.is_bpe() { "BPE" } else { "Unigram" }
    }

    /// Appends the ids of a text and returns the index of the first special token among them.
    fn encode_parts(&self, text: &str, ids: &mut Vec<u32>, budget: &Budget<'_>) -> Result<Option<usize>> {
        let mut special_at = None;
        if self.split_special_tokens {
            self.encode_part(text, ids, budget)?;
            return Ok(special_at);
        }
        for part in self.added.split(text, budget)? {
            match part {
                Part::Token(id) => {
                    if special_at.is_none() && self.special_ids.contains(&id) {
                        special_at = Some(ids.len());
                    }
                    ids.push(id);
                }
                Part::Text(text) => self.encode_part(&text, ids, budget)?,
            }
        }
        Ok(special_at)
    }

    /// Encodes a part without added tokens. Without `legacy` the model adds no space before it, but would
    /// drop an existing one; so the part is encoded after the text of the unknown token, whose tokens are
    /// then removed.
    fn encode_part(&self, text: &str, ids: &mut Vec<u32>, budget: &Budget<'_>) -> Result<()> {
        if self.legacy || !text.starts_with([' ', '▁']) {
            return self.cut(text, ids, budget);
        }
        let from = ids.len();
        self.cut(&format!("{}{text}", self.unknown), ids, budget)?;
        if ids.len() - from >= self.unknown_len {
            ids.drain(from..from + self.unknown_len);
        }
        Ok(())
    }

    fn cut(&self, text: &str, ids: &mut Vec<u32>, budget: &Budget<'_>) -> Result<()> {
        let add_dummy_prefix = self.legacy && self.processor.normalizer.add_dummy_prefix;
        self.processor.encode(text, add_dummy_prefix, budget, |found| {
            ids.push(match found {
                Found::Piece(piece) => self.ids[piece as usize],
                Found::Unknown(text) => id_of(&self.added, &self.processor, text),
            });
        })
    }
}

/// A token's text as transformers changes it.
fn id_of(added: &AddedTokens, processor: &Processor, text: &str) -> u32 {
    let vocabulary = &processor.vocabulary;
    added.id(text).or_else(|| vocabulary.named(text)).unwrap_or(vocabulary.unknown)
}

/// The added tokens of the files, then the named special tokens: with the id of the piece of the same text,
/// else after the vocabulary.
fn added_by_id(processor: &Processor, settings: &Settings) -> BTreeMap<u32, AddedToken> {
    let vocabulary = &processor.vocabulary;
    let mut by_id: BTreeMap<u32, AddedToken> = settings.added.clone();
    let mut known: HashMap<String, u32> = HashMap::new();
    for (id, piece) in (0_u32..).zip(&vocabulary.pieces).filter(|(id, _)| !by_id.contains_key(id)) {
        known.insert(piece.text.to_string(), id);
    }
    known.extend(by_id.iter().map(|(&id, token)| (token.content.clone(), id)));
    for token in settings.special_tokens().filter(|token| !token.content.is_empty()) {
        let next = known.len() as u32;
        let id = *known.entry(token.content.clone()).or_insert(next);
        let listed = by_id.get(&id).is_some_and(|listed| listed.content == token.content);
        if !listed || !settings.is_extra(&token.content) {
            by_id.insert(id, token.clone());
        }
    }
    by_id
}
