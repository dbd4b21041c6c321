//! A running request: its search, on the thread of its caller, and what the search wants from the next pass.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::blocks::RequestCache;
use super::core::Engine;
use super::kept::Keeper;
use super::output::Timings;
use super::pending::{PendingRows, SharedRows};
use super::queue::{Caller, Ticket};
use super::slot::ModelRunner;
use super::stop_text::StopTexts;
use super::trace::{Recorder, TimedEvent};
use rsgen_core::{Error, LayerSet, LayerShape, Result, RowOutputs};
use rsgen_generation::plan::PlannedPrompt;
use rsgen_generation::search;
use rsgen_generation::{
    GenerationPlan, Search, SearchOutput, SearchResults, SearchStep, SourceStates, StepCost,
};
use rsgen_model::ForwardOutput;
use rsgen_text::Tokenizer;

/// A search with its sequences. Dropping it stops the work and returns its cache blocks.
pub(super) struct Request {
    // Dropped first: it takes the rows out of the queue.
    ticket: Option<Ticket>,
    search: Box<dyn Search>,
    pending: SharedRows,
    /// The results of the last step.
    pub(super) stepped: SearchStep,
    /// The shape of the layer outputs, if it wants any.
    layers: Option<Arc<LayerShape>>,
    /// The memory for the results of the next pass.
    results: ForwardOutput,
    /// The prompts; the healed ones once they are healed.
    pub(super) prompts: Vec<PlannedPrompt>,
    /// The number of rows of the output of each prompt.
    pub(super) rows_each: usize,
    started: Instant,
    first_token: Option<Duration>,
    /// How long the search itself took since the last pass.
    searched: Duration,
    /// With `output_events`.
    recorder: Option<Recorder>,
    /// The stop strings that its texts end before.
    pub(super) stops: Option<Arc<StopTexts>>,
}

impl Request {
    /// Starts a request without computing anything. `draft` is the model of its drafts.
    ///
    /// # Errors
    /// `Capacity` when the cache can never have room for it.
    pub(super) fn new(
        engine: &Engine,
        draft: Option<&Arc<ModelRunner>>,
        plan: GenerationPlan,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Self> {
        let recorder = Recorder::new(&plan, tokenizer)?;
        let cache =
            RequestCache::new(engine.slots(), draft, &plan, engine.prefix_caching || plan.cache().is_shared)?;
        let sources = plan.prompts().iter().filter_map(|prompt| prompt.source().cloned());
        let pending = PendingRows::new(cache, engine.next_age(), plan.config().fields.prefill_chunk_size)
            .with_sources(sources, source_outputs(engine, &plan)?)
            .with_adapters(engine.adapters().get(&plan.cache().adapters)?);
        let wants_states = !plan.config().layer_outputs.is_none();
        Ok(Self {
            ticket: None,
            layers: wants_states.then(|| Arc::new(engine.model().layer_shape())),
            prompts: plan.prompts().to_vec(),
            rows_each: plan.num_return_sequences(),
            stops: StopTexts::of(&plan),
            search: search::build(plan),
            pending: engine.admit(pending),
            stepped: SearchStep::default(),
            results: ForwardOutput::default(),
            started: Instant::now(),
            first_token: None,
            searched: Duration::ZERO,
            recorder,
        })
    }

    /// Marks it as a stream: somebody waits for each token.
    pub(super) fn streamed(self) -> Self {
        self.pending.lock().is_streamed = true;
        self
    }

    /// The events so far; `None` when none are recorded.
    pub(super) fn events(&self) -> Option<&[TimedEvent]> {
        self.recorder.as_ref().map(Recorder::events)
    }

    /// The tokens of its prompts that other requests had computed.
    pub(super) fn cached_prompt_tokens(&self) -> usize {
        let prompt_tokens = self.prompts.iter().map(PlannedPrompt::num_tokens).sum();
        self.pending.lock().cached_prompt_tokens.min(prompt_tokens)
    }

    /// What the encoder computed of its sources, if that was asked for.
    pub(super) fn source_states(&self) -> Vec<Arc<SourceStates>> {
        self.pending.lock().sources.states()
    }

    /// A handle that makes kept caches of its texts.
    pub(super) fn keeper(&self) -> Keeper {
        Keeper::new(Arc::clone(&self.pending))
    }

    /// Where its time went until now.
    pub(super) fn timings(&self) -> Timings {
        let (total, encoder) = (self.started.elapsed(), self.pending.lock().encoder_time);
        Timings { first_token: self.first_token.unwrap_or(total), total, encoder }
    }

    /// Asks the search for its next rows and hands them in, unless earlier ones still wait.
    pub(super) fn hand_in(&mut self, caller: &Caller) {
        if self.ticket.is_none() {
            let (results, start) = (std::mem::take(&mut self.results), Instant::now());
            self.pending.lock().begin(results, |inputs| self.search.wants(inputs));
            self.searched += start.elapsed();
            self.ticket = Some(caller.hand_in(&self.pending));
        }
    }

    /// Advances the search if its rows are computed; see [`Request::stepped`]. Returns whether it did. `sums` is
    /// [memory that it borrows](Search::sums).
    ///
    /// # Errors
    /// The error of the pass, of the search or of a callback. The request cannot go on.
    pub(super) fn advance(&mut self, sums: &mut Vec<f32>) -> Result<bool> {
        let Some(computed) = self.ticket.as_ref().and_then(Ticket::result) else { return Ok(false) };
        self.ticket = None;
        let waited = computed?;
        let mut pending = self.pending.lock();
        let model = pending.runner().model();
        let (vocab_size, hidden_sizes) = (model.vocab_size(), [model.hidden_size(), model.last_size()]);
        self.results = pending.take_results();
        let waited = waited + std::mem::take(&mut self.searched);
        let cost = StepCost { waited: waited.as_secs_f64(), ..pending.cost };
        // The search may run callbacks of the caller, which take any time.
        drop(pending);
        let ForwardOutput { logits, hidden_states, layer_logits, attentions, cross_attentions } =
            &mut self.results;
        let results = SearchResults::of_logits(logits, vocab_size)
            .with_hidden_states(hidden_states, hidden_sizes)
            .with_layer_logits(layer_logits)
            .with_states([attentions, cross_attentions], self.layers.as_ref())
            .with_cost(cost);
        self.stepped.clear();
        let start = Instant::now();
        exchange(&mut *self.search, sums);
        let advanced = self.search.advance(results, &mut self.stepped);
        exchange(&mut *self.search, sums);
        advanced?;
        self.searched = start.elapsed();
        if let Some(prompts) = self.search.take_prompts() {
            if let Some(recorder) = &mut self.recorder {
                recorder.prompts(&prompts, self.rows_each, self.started.elapsed())?;
            }
            self.prompts = prompts;
        }
        if !self.stepped.events.is_empty() {
            self.first_token.get_or_insert_with(|| self.started.elapsed());
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.step(&self.stepped, self.started.elapsed())?;
        }
        Ok(true)
    }

    /// The output so far, and the recorder of its events. The sequences return their blocks.
    pub(super) fn finish(self) -> (SearchOutput, Option<Recorder>) {
        (self.search.finish(), self.recorder)
    }
}

/// What the rows of its sources are to give: as those of the decoder.
fn source_outputs(engine: &Engine, plan: &GenerationPlan) -> Result<RowOutputs> {
    let wanted = plan.config().layer_outputs;
    let mut outputs = RowOutputs { attentions: wanted.attentions, ..RowOutputs::NONE };
    if let Some(encoder) = engine.model().encoder().filter(|_| !wanted.hidden_states.is_empty()) {
        outputs.hidden_states = LayerSet::through(encoder.layer_shape().num_layers()).ok_or_else(|| {
            Error::config(format!(
                "is possible in encoders of up to {} layers; leave it out",
                LayerSet::CAPACITY - 1
            ))
            .about("output_hidden_states")
        })?;
    }
    Ok(outputs)
}

/// Lends a search its sums, or takes them back.
fn exchange(search: &mut dyn Search, sums: &mut Vec<f32>) {
    if let Some(own) = search.sums() {
        std::mem::swap(own, sums);
    }
}
