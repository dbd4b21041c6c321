//! Calls that continue a text from its kept cache, and prompts that are computed to be continued.

use std::sync::Arc;

use super::{Call, Generator, Prompt};
use crate::engine::{Interrupt, KeptCache, salted};
use rsgen_core::{AdapterWeights, Error, Result, ResultExt, TokenId};
use rsgen_generation::PromptBatch;

/// How the prompts of a call relate to the caches that it continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    /// Continuations of the cached texts.
    #[default]
    Rest,
    /// Whole texts, which begin with the cached texts.
    Whole,
    /// Conversations, which may have a beginning in common with the cached texts.
    Conversation,
}

/// The kept caches of a call.
#[derive(Debug, Clone, Default)]
pub(super) struct Caches {
    /// One for all prompts, or one for each; none for a call that continues nothing.
    given: Vec<KeptCache>,
    form: Form,
    /// Whether the call returns kept caches of its texts.
    pub(super) is_returned: bool,
}

impl Call<'_> {
    /// Continues kept texts: the prompts are what follows them. A text is encoded without special tokens, and
    /// may be empty. One cache is for all prompts, several are for one each. A cache can be continued any
    /// number of times.
    ///
    /// ```
    /// # #[cfg(feature = "bundled")] {
    /// use rsgen::{GenerationConfig, Generator};
    ///
    /// let generator = Generator::bundled()?;
    /// let config = GenerationConfig::new().max_new_tokens(8);
    /// let story = generator.prefill("Once upon a time there was a fox.")?;
    /// let sad = generator.call(" It was sad").cache([&story]).config(&config).run()?;
    /// let glad = generator.call(" It was glad").cache([&story]).config(&config).run()?;
    /// assert!(sad.usage.cached_prompt_tokens > 0 && glad.usage.cached_prompt_tokens > 0);
    /// # }
    /// # Ok::<(), rsgen::Error>(())
    /// ```
    pub fn cache<'c>(self, caches: impl IntoIterator<Item = &'c KeptCache>) -> Self {
        self.with_caches(caches, Form::Rest)
    }

    /// Continues kept texts, as transformers' argument of that name does: the prompts are whole texts, which
    /// begin with the tokens of the caches.
    pub fn past_key_values<'c>(self, caches: impl IntoIterator<Item = &'c KeptCache>) -> Self {
        self.with_caches(caches, Form::Whole)
    }

    /// Keeps the texts of the call, each prompt with its continuation, for later calls: see
    /// `GeneratedRow::cache`.
    pub fn return_cache(mut self, returns: bool) -> Self {
        self.caches.is_returned = returns;
        self
    }

    fn with_caches<'c>(mut self, caches: impl IntoIterator<Item = &'c KeptCache>, form: Form) -> Self {
        self.caches.given = caches.into_iter().cloned().collect();
        self.caches.form = if self.is_chat { Form::Conversation } else { form };
        self
    }
}

impl Caches {
    /// The caches that texts follow.
    pub(super) fn followed(caches: &[KeptCache]) -> Self {
        Self { given: caches.to_vec(), ..Self::default() }
    }

    /// Checks that the caches belong to this generator and match the number of prompts, and renews them.
    pub(super) fn check(
        &self,
        generator: &Generator,
        num_prompts: usize,
        salt: Option<&Arc<str>>,
    ) -> Result<()> {
        if self.given.len() > 1 && self.given.len() != num_prompts {
            return Err(Error::input(format!(
                "there must be one cache for all prompts or one for each ({num_prompts}), got {}",
                self.given.len()
            )));
        }
        for cache in &self.given {
            if !cache.is_of(generator.engine()) {
                return Err(Error::input(format!(
                    "the cache must be of the generator that continues it, {}, but is of another one; make it anew: \
                     `prefill`",
                    generator.name()
                )));
            }
            if salt.is_some() && salted(cache.adapters(), salt.cloned()).as_ref() != cache.salt() {
                return Err(Error::input(
                    "must be that of the call which the cache comes from; leave it out",
                )
                .about("cache_salt"));
            }
            cache.renew();
        }
        Ok(())
    }

    /// The tokens of a prompt, after those of the cache that it continues.
    pub(super) fn encode(
        &self,
        generator: &Generator,
        index: usize,
        prompt: Prompt,
        bos: Option<TokenId>,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Vec<TokenId>> {
        let Some(cache) = self.of(index) else { return generator.encode_prompt(prompt, bos, interrupted) };
        if self.form == Form::Rest {
            let rest = generator.encode_text(prompt, false, interrupted)?;
            return Ok([cache.token_ids(), &rest].concat());
        }
        let whole = generator.encode_prompt(prompt, bos, interrupted)?;
        self.check_beginning(cache, &whole)?;
        Ok(whole)
    }

    /// Refuses embeddings as a prompt that continues a cache, which holds tokens.
    pub(super) fn check_embeddings(&self, index: usize) -> Result<()> {
        match self.of(index) {
            Some(_) => {
                Err(Error::input("do not continue a `cache`, which holds tokens; leave one of them out")
                    .about("inputs_embeds"))
            }
            None => Ok(()),
        }
    }

    /// A batch of ids, each row after the tokens of the cache that it continues.
    pub(super) fn batch(&self, batch: PromptBatch) -> Result<PromptBatch> {
        if self.given.is_empty() {
            return Ok(batch);
        }
        if self.form == Form::Rest {
            return match batch.rows() {
                [row] => {
                    let before = self.of(0).map_or(&[][..], KeptCache::token_ids);
                    PromptBatch::single([before, &row.tokens()].concat())
                }
                rows => Err(Error::input(format!(
                    "what follows a `cache` must be a text, ids in one dimension or a list of those, got an array of {} \
                     rows; give its rows as a list, or whole texts beside `past_key_values`",
                    rows.len()
                ))),
            };
        }
        let many = batch.rows().len() > 1;
        for (index, row) in batch.rows().iter().enumerate() {
            let Some(cache) = self.of(index) else { continue };
            let named = |error: Error| if many { error.of_prompt("prompt", index) } else { error };
            self.check_beginning(cache, &row.tokens()).map_err(named)?;
        }
        Ok(batch)
    }

    fn check_beginning(&self, cache: &KeptCache, whole: &[TokenId]) -> Result<()> {
        let held = cache.token_ids();
        let common = held.iter().zip(whole).take_while(|(a, b)| a == b).count();
        if self.form == Form::Conversation || common == held.len() {
            return Ok(());
        }
        Err(Error::input(format!(
            "the prompt beside `past_key_values` must be the whole text and begin with the {} tokens of the cache, but only \
             {common} are the same; give the whole ids, or only what follows beside `cache`",
            held.len()
        )))
    }

    /// The cache salt of a prompt's request: that of the cache that it continues, else `given`.
    pub(super) fn salt(&self, index: usize, given: Option<Arc<str>>) -> Option<Arc<str>> {
        self.of(index).map_or(given, |cache| cache.salt().cloned())
    }

    /// Refuses a cache that was computed with other adapters than those of the prompt which continues it.
    pub(super) fn check_adapters<'a>(
        &self,
        num_prompts: usize,
        adapters: impl Fn(usize) -> &'a AdapterWeights,
    ) -> Result<()> {
        let differs = |index: usize| self.of(index).is_some_and(|cache| cache.adapters() != adapters(index));
        if (0..num_prompts).any(differs) {
            return Err(Error::input(
                "must be that of the call which the cache comes from; name it again, or make the cache anew",
            )
            .about("adapter"));
        }
        Ok(())
    }

    /// Whether the requests share blocks even without prefix caching.
    pub(super) fn are_shared(&self) -> bool {
        self.is_returned || !self.given.is_empty()
    }

    /// Renews the caches, whose blocks may have been evicted and computed again.
    pub(super) fn renew(&self) {
        self.given.iter().for_each(KeptCache::renew);
    }

    pub(super) fn of(&self, index: usize) -> Option<&KeptCache> {
        self.given.get(index).or(self.given.first())
    }
}

impl Generator {
    /// Computes a prompt and keeps its cache, so that calls can continue it: see [`Call::cache`].
    ///
    /// # Errors
    /// When the prompt cannot be encoded, has no token, or is longer than the context or the cache.
    pub fn prefill(&self, prompt: impl Into<Prompt>) -> Result<KeptCache> {
        self.prefill_interruptible(prompt.into(), None, &mut || false)
    }

    /// [`Generator::prefill`] of what follows a kept text, or of a whole prompt, until `interrupted` returns
    /// true.
    ///
    /// # Errors
    /// As for [`Generator::prefill`]; `Input` when the cache is of another generator; `Cancelled`.
    pub fn prefill_interruptible(
        &self,
        prompt: Prompt,
        cache: Option<&KeptCache>,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<KeptCache> {
        let caches = Caches { given: cache.into_iter().cloned().collect(), ..Caches::default() };
        self.engine().check_process()?;
        self.check_no_encoder("`prefill`", "give the whole source to the call")?;
        caches.check(self, 1, None)?;
        caches.check_adapters(1, |_| &self.adapters)?;
        let token_ids = caches.encode(self, 0, prompt, None, interrupted)?;
        self.engine().check_token_ids(&token_ids)?;
        self.check_context(token_ids.len())?;
        let salt = caches.salt(0, salted(&self.adapters, self.engine().private_salt()));
        let kept = self.engine().prefill(token_ids, salt, self.adapters.clone(), interrupted);
        caches.renew();
        kept.context(|| "the prompt")
    }
}
