//! The languages that a tokenizer knows, and where their tokens go.

use std::collections::HashSet;

use rsgen_core::error::{Error, Result};
use rsgen_core::json::shown;
use rsgen_core::types::TokenId;

/// Where the token of a language goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LanguagePlace {
    /// Before a text, `</s>` after it: NLLB, M2M100 and mBART-50.
    Before,
    /// After a text and its `</s>`: mBART, and NLLB with `legacy_behaviour`.
    After,
    /// The language of the target, `>>fra<<` of Marian, before a source.
    BeforeSource,
}

/// The languages of a tokenizer.
#[derive(Debug)]
pub(super) struct Languages {
    codes: Vec<(String, TokenId)>,
    pub(super) place: LanguagePlace,
    pub(super) eos: Option<u32>,
    /// The language of a source where none is named, and that of a target.
    pub(super) source: Option<TokenId>,
    pub(super) target: Option<TokenId>,
}

impl Languages {
    /// `codes` are names with their ids; of equal names the first counts.
    pub(super) fn new(
        codes: impl IntoIterator<Item = (String, u32)>,
        place: LanguagePlace,
        eos: Option<u32>,
    ) -> Self {
        let mut seen = HashSet::new();
        let codes = codes.into_iter().map(|(code, id)| (code, TokenId(id)));
        let codes = codes.filter(|(code, _)| seen.insert(code.clone())).collect();
        Self { codes, place, eos, source: None, target: None }
    }

    /// Sets the languages that the files name.
    pub(super) fn with_defaults(mut self, source: Option<&str>, target: Option<&str>) -> Result<Self> {
        let id = |field: &str, code: Option<&str>| {
            code.map(|code| self.id(code)).transpose().map_err(|error| {
                Error::load(format!("tokenizer_config.json: {field} must be one of its languages"))
                    .with_source(error)
            })
        };
        (self.source, self.target) = (id("src_lang", source)?, id("tgt_lang", target)?);
        Ok(self)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.codes.iter().map(|(code, _)| code.as_str())
    }

    pub(super) fn name(&self, id: TokenId) -> Option<&str> {
        self.codes.iter().find(|&&(_, known)| known == id).map(|(code, _)| code.as_str())
    }

    pub(super) fn id(&self, code: &str) -> Result<TokenId> {
        self.codes.iter().find(|(known, _)| known == code).map(|&(_, id)| id).ok_or_else(|| {
            let some: Vec<&str> = self.names().take(3).collect();
            let rule = match some.as_slice() {
                [] => "is given, but this tokenizer has no languages; leave it out".to_owned(),
                some => {
                    let more = if self.codes.len() > some.len() { ", …" } else { "" };
                    format!("must be one of its {} languages: {}{more}", self.codes.len(), some.join(", "))
                }
            };
            Error::input(format!("the language {} {rule}", shown(&code.into())))
        })
    }

    /// The ids before and after a text of a language.
    pub(super) fn around(&self, language: Option<TokenId>) -> [Vec<u32>; 2] {
        let language = language.map(|id| id.0);
        match self.place {
            LanguagePlace::Before => [language.into_iter().collect(), self.eos.into_iter().collect()],
            LanguagePlace::After => [Vec::new(), self.eos.into_iter().chain(language).collect()],
            LanguagePlace::BeforeSource => [Vec::new(), self.eos.into_iter().collect()],
        }
    }
}
