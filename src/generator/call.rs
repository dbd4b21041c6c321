//! A call with all its options: prompts, configuration, processors, constraints and criteria.

use std::sync::Arc;

use super::adapters::CallAdapters;
use super::defaults::{DEFAULT_NEW_TOKENS, of_call};
use super::kept::Caches;
use super::lists::check_lists;
use super::output_texts::{OutputTexts, PromptTexts};
use super::plans::{Planner, Plans};
use super::prompt::several_in_a_stream;
use super::sentences::CutTexts;
use super::source::{DecoderPrompts, room_in_cache};
use super::translate::Translation;
use super::{Generator, Prompt, Prompts, random};
use crate::engine::{self, GenerationOutput, Interrupt, ModelRunner, TokenStream};
use rsgen_core::{Error, ErrorKind, Message, Result, TokenId, message, refuse_if};
use rsgen_generation::constraint::Constraint;
use rsgen_generation::plan::PlannedPrompt;
use rsgen_generation::{
    DefaultLength, GenerationConfig, GenerationMode, LogitsProcessor, PlanContext, PrefixAllowedTokens,
    PromptBatch, StoppingCriterion, TokenTrie,
};

/// Builds a call.
///
/// ```
/// # #[cfg(feature = "bundled")] {
/// use rsgen::{GenerationConfig, Generator};
///
/// let generator = Generator::bundled()?;
/// let config = GenerationConfig::new().do_sample(true).seed(7).max_new_tokens(5);
/// let output = generator.call(vec!["Once upon a time", "One day"]).config(&config).run()?;
/// assert_eq!(output.texts().count(), 2);
/// # }
/// # Ok::<(), rsgen::Error>(())
/// ```
#[must_use = "a call does nothing until it is run or streamed"]
pub struct Call<'a> {
    generator: &'a Generator,
    prompts: Prompts,
    /// The texts of those that are given as their tokens.
    prompt_texts: Vec<Option<Arc<str>>>,
    /// In a box: a call is moved at each step of its making, and the stack of a small thread has no room for many copies.
    config: Box<GenerationConfig>,
    has_generation_config: bool,
    /// What the generator and the call give to the plans.
    pub(super) context: PlanContext,
    assistant: Option<Generator>,
    /// Whether the call names its own assistant, instead of using that of the generator.
    has_own_assistant: bool,
    /// What its strategy is to be, if it is named.
    mode: Option<GenerationMode>,
    pub(super) is_chat: bool,
    cache_salt: Option<Arc<str>>,
    pub(super) caches: Caches,
    pub(super) adapters: CallAdapters,
    /// What the decoder of a model with an encoder begins with.
    pub(super) decoder: DecoderPrompts,
    /// The languages, if it translates.
    pub(super) translation: Option<Translation>,
    pub(super) splits_sentences: bool,
    warnings: Vec<Message>,
}

/// A checked call, ready to run.
#[must_use = "a call does nothing until it is run or streamed"]
pub struct Prepared<'a> {
    generator: &'a Generator,
    pub(super) draft: Option<Arc<ModelRunner>>,
    pub(super) plans: Plans<'a>,
    /// The texts whose sentences its requests are.
    pub(super) cut: Option<CutTexts>,
    warnings: Vec<Message>,
}

impl<'a> Call<'a> {
    pub(super) fn new(generator: &'a Generator, prompts: Prompts) -> Self {
        let (shared, config) = (&generator.shared, &generator.shared.config);
        let model = shared.engine.model();
        let mut context = PlanContext::new(model.vocab_size(), config.max_position_embeddings);
        context.context_len = config.context_len();
        context.num_layers = model.num_layers();
        context.embedding_size = model.embedding_size();
        context.encoder = generator.encoder();
        context.tied_embeddings = config.tie_word_embeddings;
        context.isa = shared.engine.workers().isa();
        context.vocabulary.clone_from(&shared.vocabulary);
        context.model_name.clone_from(&shared.name);
        context.kept_tokens.clone_from(&shared.kept_tokens);
        context.grammars.clone_from(&shared.grammars);
        Self {
            generator,
            prompts,
            prompt_texts: Vec::new(),
            config: Box::default(),
            has_generation_config: false,
            context,
            assistant: generator.assistant().cloned(),
            has_own_assistant: false,
            mode: None,
            is_chat: false,
            cache_salt: None,
            caches: Caches::default(),
            adapters: CallAdapters::default(),
            decoder: DecoderPrompts::default(),
            translation: None,
            splits_sentences: false,
            warnings: Vec::new(),
        }
    }

    /// Gives the texts of prompts that are their tokens, one for each prompt: a glossary finds its terms in them.
    #[cfg(feature = "serve")]
    pub(crate) fn prompt_texts(mut self, texts: Vec<Option<Arc<str>>>) -> Self {
        self.prompt_texts = texts;
        self
    }

    /// The configuration; what it leaves unset comes from the model's `generation_config.json`.
    pub fn config(mut self, config: &GenerationConfig) -> Self {
        *self.config = config.clone();
        self
    }

    /// Tells whether the configuration includes one that was passed as a whole, besides the fields of the
    /// call: see [`GenerationConfig::over_passed`]. In transformers 4.49 it replaces the model's file, except
    /// for the special tokens.
    pub fn has_generation_config(mut self, passed: bool) -> Self {
        self.has_generation_config = passed;
        self
    }

    /// Adds a custom logits processor.
    pub fn processor(mut self, processor: Arc<dyn LogitsProcessor>) -> Self {
        self.context.processors.push(processor);
        self
    }

    /// Sets the function that returns the tokens that may follow. It receives the index of the prompt in the
    /// call, or of the row when several rows are sampled for each prompt.
    pub fn prefix_allowed_tokens_fn(mut self, function: Arc<dyn PrefixAllowedTokens>) -> Self {
        self.context.prefix_allowed_tokens_fn = Some(function);
        self
    }

    /// Sets the catalogue that every output is of; [`GenerationOutput::entries`] names the entries. Rows end with
    /// an end-of-sequence token after an entry.
    pub fn allowed_sequences(mut self, trie: Arc<TokenTrie>) -> Self {
        self.context.allowed_sequences = Some(trie);
        self
    }

    /// Adds a constraint, which makes the call a constrained beam search.
    pub fn constraint(mut self, constraint: Arc<dyn Constraint>) -> Self {
        self.context.constraints.push(constraint);
        self
    }

    /// Adds a custom stopping criterion.
    pub fn criterion(mut self, criterion: Arc<dyn StoppingCriterion>) -> Self {
        self.context.criteria.push(criterion);
        self
    }

    /// Sets the model that drafts tokens, or none, in place of the one that the generator was opened with.
    /// Its weights are shared, and it gets a part of the generator's KV cache until its last handle is
    /// dropped.
    pub fn assistant(mut self, assistant: Option<&Generator>) -> Self {
        self.assistant = assistant.cloned();
        self.has_own_assistant = assistant.is_some();
        self
    }

    /// Makes it assisted decoding: without a source of drafts the call is an error.
    pub fn assisted(self) -> Self {
        self.mode(GenerationMode::AssistedDecoding)
    }

    /// Names the strategy. Assisted decoding needs a source of drafts then, and constrained beam search a
    /// constraint.
    pub fn mode(mut self, mode: GenerationMode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Shares computed prompts only with calls of the same salt, so that the time of a call tells one tenant
    /// nothing about the prompts of another. Without a salt it shares with all others without.
    pub fn cache_salt(mut self, salt: impl Into<Arc<str>>) -> Self {
        self.cache_salt = Some(salt.into());
        self
    }

    /// Makes it a reply in a conversation, limited by the context only: `max_length` of the model's file is
    /// ignored.
    pub(super) fn chat(mut self, warnings: Vec<Message>) -> Self {
        self.is_chat = true;
        self.warnings = warnings;
        self
    }

    /// Runs the call to its end. Warnings go to the log.
    ///
    /// # Errors
    /// As for [`Generator::generate`].
    pub fn run(self) -> Result<GenerationOutput> {
        let prepared = self.prepare(false, &mut || false)?;
        prepared.log_warnings();
        prepared.run(&mut || false)
    }

    /// Streams the call, which must have a single prompt. Warnings go to the log.
    ///
    /// # Errors
    /// As for [`Generator::stream`].
    pub fn stream(self) -> Result<TokenStream> {
        let prepared = self.prepare(true, &mut || false)?;
        prepared.log_warnings();
        prepared.stream()
    }

    /// Encodes the prompts and checks the call. With `to_the_end`, a call without a limit runs to the end of
    /// the context.
    ///
    /// # Errors
    /// When a field, a prompt or their combination is invalid; `Cancelled` when `interrupted` returns true
    /// before it is done.
    pub fn prepare(self, to_the_end: bool, interrupted: &mut Interrupt<'_>) -> Result<Prepared<'a>> {
        let (prepared, impossible) = self.prepare_possible(to_the_end, interrupted)?;
        let many = prepared.num_requests() + impossible.len() > 1;
        match impossible.into_iter().next() {
            None => Ok(prepared),
            Some((index, error)) if many => Err(error.of_prompt("prompt", index)),
            Some((_, error)) => Err(error),
        }
    }

    /// [`Call::prepare`], but leaves out invalid prompts. Returns the index and the error of each.
    ///
    /// # Errors
    /// When a field or the list of prompts is invalid; `Cancelled`.
    pub fn prepare_possible(
        self,
        to_the_end: bool,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<(Prepared<'a>, Vec<(usize, Error)>)> {
        let Self {
            generator,
            mut prompts,
            mut config,
            mut context,
            assistant,
            caches,
            mut adapters,
            mut decoder,
            mut warnings,
            ..
        } = self;
        let shared = &generator.shared;
        shared.engine.check_process()?;
        if caches.are_shared() {
            generator.check_no_encoder(
                "a kept cache",
                "leave out `cache`, `past_key_values` and `return_cache`",
            )?;
        }
        if self.is_chat {
            generator.check_no_encoder("a chat", "use `generate`")?;
        }
        context.model_defaults = of_call(&shared.generation_config, &config, self.has_generation_config);
        let mut cut = None;
        if self.splits_sentences {
            cut = Some(CutTexts::new(&mut prompts, &config.merged_over(&context.model_defaults))?);
        }
        let texts = PromptTexts { prompts: &prompts, texts: &self.prompt_texts };
        let output_texts = OutputTexts::take(generator, texts, &mut config, &mut context, interrupted)?;
        if let Some(translation) = &self.translation {
            prompts = translation.apply(generator, prompts, &mut config, interrupted)?;
        }
        adapters.find(generator, &prompts)?;
        caches.check(generator, prompts.len(), self.cache_salt.as_ref())?;
        caches.check_adapters(prompts.len(), |index| adapters.of(index))?;
        let bos = config.bos_token_id;
        let mut single = |index, prompt: Prompt| match prompt {
            Prompt::Embeddings { embeddings, input_ids } => {
                caches.check_embeddings(index)?;
                PromptBatch::with_embeddings(vec![embeddings], vec![input_ids], None)
            }
            prompt => PromptBatch::single(caches.encode(generator, index, prompt, bos, interrupted)?),
        };
        let batches: Vec<Result<PromptBatch>> = match prompts {
            Prompts::One(prompt) => vec![single(0, prompt)],
            Prompts::Batch(batch) => vec![caches.batch(batch)],
            Prompts::List(list) => {
                let mut batches = Vec::new();
                for (index, prompt) in list.into_iter().enumerate() {
                    let batch = single(index, prompt);
                    if let Err(error) = &batch
                        && error.kind() == ErrorKind::Cancelled
                    {
                        return Err(Error::cancelled());
                    }
                    batches.push(batch);
                }
                batches
            }
        };
        if batches.is_empty() && cut.is_none() {
            return Err(Error::input("the list of prompts is empty; give at least one prompt"));
        }
        let counts: Vec<usize> =
            batches.iter().map(|batch| batch.as_ref().map_or(1, |b| b.rows().len())).collect();
        let forced_bos = config.merged_over(&context.model_defaults).forced_bos_token_id;
        let mut decoder_field = decoder.are_given().then_some("decoder_input_ids");
        if let Some(rows) = output_texts.decoder_rows(forced_bos) {
            decoder.begin(rows)?;
            decoder_field = Some("target_prefix");
        }
        let decoder_prompts = decoder.divide(&counts)?;
        let draft = assistant.as_ref().map(|assistant| generator.draft_model(assistant)).transpose()?;
        if to_the_end {
            let (source_blocks, target_len) = generator.source_room(&batches);
            let room = room_in_cache(generator, draft.as_deref(), &config, source_blocks);
            context.max_position_embeddings = context.max_position_embeddings.min(room).min(target_len);
        }
        context.max_window = generator.max_window();
        let is_endless = to_the_end && config.merged_over(&context.model_defaults).has_sinks();
        if (self.is_chat || is_endless) && context.model_defaults.max_length.is_some() {
            Arc::make_mut(&mut context.model_defaults).max_length = None;
        }
        context.default_length =
            if to_the_end { DefaultLength::Context } else { DefaultLength::Tokens(DEFAULT_NEW_TOKENS) };
        let salt = shared.engine.private_salt().or(self.cache_salt);
        (context.shares_cache, context.keeps_cache) = (caches.are_shared(), caches.is_returned);
        context.draft = assistant.as_ref().map(|assistant| generator.draft_context(assistant)).transpose()?;
        context.num_requests = batches.len();
        context.keeps_prompts = self.is_chat;
        let num_prompts = counts.iter().sum();
        generator.encode_negative_prompts(&mut config, &mut context, num_prompts, interrupted)?;

        check_lists(&config, &context.model_defaults, batches.len())?;
        let merged = config.merged_over(&context.model_defaults);
        if let Some(cut) = &mut cut {
            cut.check(&merged, decoder_field)
                .map_err(|error| shared.inherited(error, &config, &context.model_defaults))?;
        }
        let is_constrained =
            merged.force_words_ids.is_some() || output_texts.force_words() || !context.constraints.is_empty();
        if self.mode == Some(GenerationMode::ConstrainedBeamSearch) && !is_constrained {
            return Err(Error::config(message!(
                "or " {constraints} " must be given in constrained beam search, got neither; without any it is beam search"
            ))
            .about("force_words_ids"));
        }
        let inherited = |error| shared.inherited(error, &config, &context.model_defaults);
        let vocabulary = context.vocabulary.as_ref();
        context.grammars.prepare(&merged, vocabulary, context.vocab_size, interrupted).map_err(inherited)?;
        let seeds = random::seeds(&config, &mut context, batches.len())?;
        let planner = Planner {
            generator,
            config,
            context,
            output_texts,
            seeds,
            decoder_prompts,
            adapters,
            caches,
            salt,
        };
        let (mut plans, mut impossible) = Plans::new(planner, draft.as_deref(), batches)?;
        if let Some(mode) = plans.without_drafts() {
            refuse_if(self.mode == Some(GenerationMode::AssistedDecoding), "assistant_model", || {
                message!(
                    "must be a Generator in assisted decoding, unless the model was opened with an `assistant`, \
                     or " {assistant_early_exit} " is set; give one with the same tokens"
                )
            })?;
            if self.has_own_assistant {
                warnings.push(message!({ assistant_model }(
                    " has no effect in {}; only greedy search and sampling are assisted",
                    mode
                )));
            }
        }
        if let Some(cut) = &mut cut {
            let mut kept = Vec::with_capacity(plans.len());
            impossible = cut.leave_out(impossible, |keeps| kept.push(keeps));
            plans.retain(kept);
        }
        Ok((Prepared { generator, draft, plans, cut, warnings }, impossible))
    }
}

impl Prepared<'_> {
    /// Warnings about likely mistakes of the caller, each once.
    pub fn warnings(&self) -> Vec<&Message> {
        let mut warnings: Vec<&Message> = Vec::new();
        let all = self.warnings.iter().chain(self.plans.warnings());
        for warning in all {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        warnings
    }

    /// The number of outputs that the call has: one for each prompt of a list.
    pub fn num_requests(&self) -> usize {
        self.cut.as_ref().map_or(self.plans.len(), CutTexts::len)
    }

    /// The number of rows of the output.
    pub fn num_rows(&self) -> usize {
        self.plans.num_rows()
    }

    /// Whether a last token of the prompts may change before generation begins.
    pub fn heals_prompts(&self) -> bool {
        self.plans.heals_prompts()
    }

    /// The ids of the first prompt, padding included; with healing, before its last token is chosen.
    pub fn prompt_ids(&self) -> &[TokenId] {
        self.plans.first().and_then(|plan| plan.prompts().first()).map_or(&[], PlannedPrompt::input_ids)
    }

    /// Runs the call to its end, or until `interrupted` returns true.
    ///
    /// # Errors
    /// As for [`Generator::generate`]; `Cancelled` when interrupted.
    pub fn run(self, interrupted: &mut Interrupt<'_>) -> Result<GenerationOutput> {
        self.run_each(interrupted, &mut |_, _| Ok(()))
    }

    /// [`Prepared::run`]; `finished` receives the output of each prompt as soon as it is ready, with its
    /// index among the valid prompts. An error that it returns stops the work.
    ///
    /// # Errors
    /// As for [`Prepared::run`], and the error of `finished`.
    pub fn run_each(
        self,
        interrupted: &mut Interrupt<'_>,
        finished: &mut dyn FnMut(usize, &GenerationOutput) -> Result<()>,
    ) -> Result<GenerationOutput> {
        let (output, result) = self.run_as_far(interrupted, finished);
        result.map(|()| output)
    }

    /// [`Prepared::run_each`], which returns the output of the prompts that are finished also when an error,
    /// which comes with it, ends the work before the others are.
    pub fn run_as_far(
        mut self,
        interrupted: &mut Interrupt<'_>,
        finished: &mut dyn FnMut(usize, &GenerationOutput) -> Result<()>,
    ) -> (GenerationOutput, Result<()>) {
        let shared = &self.generator.shared;
        let (memory, plans) = (self.plans.memory(), &mut self.plans);
        let mut run = |finished: &mut dyn FnMut(usize, &GenerationOutput) -> Result<()>| {
            let (draft, tokenizer) = (self.draft.as_ref(), shared.tokenizer.as_ref());
            engine::run(&shared.engine, draft, tokenizer, memory, plans, interrupted, finished)
        };
        if let Some(mut cut) = self.cut {
            if let Err(error) = cut.blank().iter().try_for_each(|(index, output)| finished(*index, output)) {
                return (cut.output(), Err(error));
            }
            let (_, result) = run(&mut |request, output| match cut.add(request, output) {
                Some((index, output)) => finished(index, &output),
                None => Ok(()),
            });
            return (cut.output(), result);
        }
        let (outputs, result) = run(finished);
        if result.is_ok() {
            self.plans.caches().renew();
        }
        (GenerationOutput::joined(outputs), result)
    }

    /// Streams the call.
    ///
    /// # Errors
    /// When there are several independent prompts, or when the cache has no room.
    pub fn stream(self) -> Result<TokenStream> {
        if self.cut.is_some() {
            return Err(Error::input(
                "a text that is split into sentences has no stream; do not split it, or run the call",
            ));
        }
        let shared = &self.generator.shared;
        let plan = self.plans.single().unwrap_or_else(|| Err(several_in_a_stream()))?;
        TokenStream::new(Arc::clone(&shared.engine), self.draft.as_ref(), shared.tokenizer.clone(), plan)
    }

    pub(super) fn log_warnings(&self) {
        for warning in self.warnings() {
            log::warn!("{warning}");
        }
    }
}
