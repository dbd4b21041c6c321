//! Structured output: the tokens that a JSON schema, a regular expression or a grammar allows.
//!
//! The crate llguidance compiles the text of a grammar and tells which tokens may follow. A request compiles
//! its grammar once; each sequence has a [`GrammarState`] that follows its tokens, forks with it, and finds
//! back when tokens are dropped. A [`GrammarLogitsProcessor`] removes the tokens that the grammar does not
//! allow. An end-of-sequence token is allowed where the grammar may end, and is all that is allowed once it
//! has ended. [`GrammarCriteria`] ends rows that have no such token.

mod cache;
mod classes;
mod compile;
mod cost;
mod criteria;
mod keywords;
mod lark;
mod matcher;
mod processor;
mod schema;
mod source;
mod state;
#[cfg(test)]
mod tests;
mod tokens;

use std::sync::Arc;

use rsgen_core::error::{Error, Result};
use rsgen_core::message;
use rsgen_core::types::TokenId;

use super::config::Compat;
use super::logits::LogitsProcessor;
use super::mode::GenerationMode;
use super::resolved::ResolvedConfig;
use super::stopping::StoppingCriterion;
use super::thinking::Thinking;

pub use cache::Grammars;
use compile::CompiledGrammar;
use criteria::GrammarCriteria;
use processor::GrammarLogitsProcessor;
use source::GrammarSource;
use state::GrammarState;
pub(super) use tokens::Bytes;

/// The grammar of a request.
#[derive(Clone)]
pub(super) struct RequestGrammar {
    compiled: Arc<CompiledGrammar>,
    /// The tokens that end a row.
    eos_token_ids: Arc<[TokenId]>,
    /// The thinking before the text that follows it.
    thinking: Option<Arc<Thinking>>,
}

impl RequestGrammar {
    /// The grammar that the fields ask for, if any.
    ///
    /// # Errors
    /// `Config` when more than one is asked for, when there is no tokenizer, and when it cannot be compiled.
    pub(super) fn of(config: &ResolvedConfig, grammars: &Grammars) -> Result<Option<Self>> {
        use GenerationMode::{ConstrainedBeamSearch, GroupBeamSearch};
        let Some(source) = GrammarSource::of(&config.fields)? else { return Ok(None) };
        let field = source.field();
        let is_old = config.fields.compat == Some(Compat::V4_49) && config.mode.has_beams();
        if config.eos_token_ids.is_empty()
            && (is_old || matches!(config.mode, ConstrainedBeamSearch | GroupBeamSearch))
        {
            return Err(Error::config(message!(
                "must name a token when " {(field)} " is used in this search, whose beams end in no other way, but \
                 names none"
            ))
            .about("eos_token_id"));
        }
        let vocabulary = config.vocabulary.as_ref().ok_or_else(|| {
            Error::config(
                "needs the model's tokenizer, but the model folder has none; leave it out, or add its tokenizer.json",
            )
            .about(field)
        })?;
        let compiled = grammars.compiled(&source, vocabulary, config.vocab_size, &mut || false)?;
        let thinking = Thinking::of(&config.fields, config.vocabulary.as_ref()).map(Arc::new);
        Ok(Some(Self { compiled, eos_token_ids: config.eos_token_ids[..].into(), thinking }))
    }

    /// What removes the tokens that it does not allow.
    pub(super) fn processor(&self, mode: GenerationMode, has_catalogue: bool) -> Arc<dyn LogitsProcessor> {
        Arc::new(GrammarLogitsProcessor::new(self.clone(), mode.has_beams(), has_catalogue))
    }

    /// What ends rows where no token does.
    pub(super) fn criterion(&self) -> Option<Arc<dyn StoppingCriterion>> {
        self.eos_token_ids.is_empty().then(|| Arc::new(GrammarCriteria::new(self.clone())) as _)
    }

    /// The state of a sequence before its first token.
    fn state(&self) -> GrammarState {
        GrammarState::new(self.clone())
    }
}
