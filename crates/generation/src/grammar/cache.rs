//! The compiled grammars of a model, kept for later requests.

use std::collections::VecDeque;
use std::sync::Arc;

use rsgen_core::error::Result;
use rsgen_core::sync::Mutex;

use super::super::config::GenerationConfig;
use super::super::vocabulary::Vocabulary;
use super::compile::CompiledGrammar;
use super::source::GrammarSource;
use super::tokens::GrammarTokens;

/// The most grammars that are kept, and the longest texts of them together.
const MAX_KEPT: usize = 16;
const MAX_KEPT_TEXT: usize = 512 << 10;

/// A model's cache of compiled grammars and of its vocabulary as grammars read it. The owner of a model makes
/// it once and passes clones of it to its calls.
#[derive(Clone, Default)]
pub struct Grammars(Arc<Kept>);

#[derive(Default)]
struct Kept {
    tokens: Mutex<Option<Arc<GrammarTokens>>>,
    /// Newest last.
    compiled: Mutex<VecDeque<(GrammarSource, Arc<CompiledGrammar>)>>,
}

impl Grammars {
    /// Compiles the grammar that a call asks for, if any, so that its plans find it.
    ///
    /// # Errors
    /// `Config` when it cannot be compiled; `Cancelled` when `interrupted` returns true before.
    pub fn prepare(
        &self,
        config: &GenerationConfig,
        vocabulary: Option<&Arc<dyn Vocabulary>>,
        vocab_size: usize,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        // What else is wrong is said by the plan.
        if let (Ok(Some(source)), Some(vocabulary)) = (GrammarSource::of(config), vocabulary) {
            self.compiled(&source, vocabulary, vocab_size, interrupted)?;
        }
        Ok(())
    }

    /// A compiled grammar for one request.
    ///
    /// # Errors
    /// `Config`, `Cancelled`: see [`CompiledGrammar::new`].
    pub(super) fn compiled(
        &self,
        source: &GrammarSource,
        vocabulary: &Arc<dyn Vocabulary>,
        vocab_size: usize,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Arc<CompiledGrammar>> {
        if let Some(known) = self.known(source) {
            return Ok(for_request(&known));
        }
        let tokens = self.tokens(vocabulary, vocab_size)?;
        let compiled = compile(source, &tokens, interrupted)?;
        let mut kept = self.0.compiled.lock();
        kept.push_back((source.clone(), Arc::clone(&compiled)));
        let len = |(source, _): &(GrammarSource, _)| source.text().len();
        while kept.len() > MAX_KEPT || kept.iter().map(len).sum::<usize>() > MAX_KEPT_TEXT {
            kept.pop_front();
        }
        drop(kept);
        Ok(for_request(&compiled))
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

// Functions of their own, so that an unoptimized build has the kilobytes of a grammar on no stack while others are computed.
fn compile(
    source: &GrammarSource,
    tokens: &Arc<GrammarTokens>,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Arc<CompiledGrammar>> {
    CompiledGrammar::new(source, tokens, interrupted).map(Arc::new)
}

fn for_request(compiled: &CompiledGrammar) -> Arc<CompiledGrammar> {
    Arc::new(compiled.for_request())
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grammars({} kept)", self.0.compiled.lock().len())
    }
}
