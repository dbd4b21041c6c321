//! The compiled grammars of a model, kept for later requests.

use std::collections::VecDeque;
use std::sync::Arc;

use rsgen_core::error::Result;
use rsgen_core::sync::Mutex;

use super::super::vocabulary::Vocabulary;
use super::compile::CompiledGrammar;
use super::source::GrammarSource;
use super::tokens::GrammarTokens;

/// The most grammars that are kept, and the longest text of one.
const MAX_KEPT: usize = 16;
const MAX_KEPT_TEXT: usize = 32 << 10;

/// What a model keeps of the grammars of its calls: its tokens as grammars read them, and the last grammars. The owner of a
/// model makes it once and passes clones of it to its calls.
#[derive(Clone, Default)]
pub struct Grammars(Arc<Kept>);

#[derive(Default)]
struct Kept {
    tokens: Mutex<Option<Arc<GrammarTokens>>>,
    /// Newest last.
    compiled: Mutex<VecDeque<(GrammarSource, Arc<CompiledGrammar>)>>,
}

impl Grammars {
    /// A compiled grammar for one request.
    ///
    /// # Errors
    /// `Config`, `Capacity`: see [`CompiledGrammar::new`].
    pub(super) fn compiled(
        &self,
        source: &GrammarSource,
        vocabulary: &Arc<dyn Vocabulary>,
        vocab_size: usize,
    ) -> Result<Arc<CompiledGrammar>> {
        if let Some(known) = self.known(source) {
            return Ok(Arc::new(known.for_request()));
        }
        let compiled = Arc::new(CompiledGrammar::new(source, &self.tokens(vocabulary, vocab_size)?)?);
        if source.text().len() <= MAX_KEPT_TEXT {
            let mut kept = self.0.compiled.lock();
            while kept.len() >= MAX_KEPT {
                kept.pop_front();
            }
            kept.push_back((source.clone(), Arc::clone(&compiled)));
        }
        Ok(Arc::new(compiled.for_request()))
    }

    fn known(&self, source: &GrammarSource) -> Option<Arc<CompiledGrammar>> {
        let mut kept = self.0.compiled.lock();
        let index = kept.iter().position(|(known, _)| known == source)?;
        let newest = kept.remove(index)?;
        let known = Arc::clone(&newest.1);
        kept.push_back(newest);
        Some(known)
    }

    /// The tokens, read once.
    fn tokens(&self, vocabulary: &Arc<dyn Vocabulary>, vocab_size: usize) -> Result<Arc<GrammarTokens>> {
        let mut tokens = self.0.tokens.lock();
        if let Some(tokens) = &*tokens {
            return Ok(Arc::clone(tokens));
        }
        let read = Arc::new(GrammarTokens::new(&**vocabulary, vocab_size)?);
        *tokens = Some(Arc::clone(&read));
        Ok(read)
    }
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grammars({} kept)", self.0.compiled.lock().len())
    }
}
