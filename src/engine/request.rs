//! A running request: its search, on the thread of its caller, and what the search wants from the next pass.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::blocks::RequestCache;
use super::core::Engine;
use super::kept::Keeper;
use super::output::Timings;
use super::pass_logits::LogitsPart;
use super::pending::{PendingRows, SharedRows};
use super::queue::{Caller, Ticket};
use super::slot::ModelRunner;
use super::stop_text::StopTexts;
use super::trace::{Recorder, TimedEvent};
use rsgen_core::{Error, LayerSet, LayerShape, Result, RowOutputs, memory};
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
    /// Whether the search calls what the caller gave.
    pub(super) calls_back: bool,
    pending: SharedRows,
    /// The results of the last step.
    pub(super) stepped: SearchStep,
    /// Whether its rows are computed, and its search has not advanced by them.
    pub(super) is_ready: bool,
    /// What its search has come to on another thread, if it ran there.
    pub(super) found: Option<Result<()>>,
    /// The shape of the layer outputs, if it wants any.
    layers: Option<Arc<LayerShape>>,
    /// The results of the last pass, whose memory is for those of the next one.
    results: ForwardOutput,
    /// Their logits, if a pass shares them.
    part: Option<LogitsPart>,
    cost: StepCost,
    /// The numbers of the logits and of the hidden states of a row.
    vocab_size: usize,
    hidden_sizes: [usize; 2],
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

/// Memory that searches borrow one after another.
#[derive(Default)]
pub(super) struct SearchScratch {
    /// See [`Search::sums`].
    sums: Vec<f32>,
    /// Logits that processors may change.
    logits: Vec<f32>,
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
            .with_adapters(engine.adapters().get(&plan.cache().adapters)?)
            .of_search();
        let wants_states = !plan.config().layer_outputs.is_none();
        Ok(Self {
            ticket: None,
            calls_back: plan.calls_back(),
            is_ready: false,
            found: None,
            cost: StepCost::default(),
            vocab_size: 0,
            hidden_sizes: [0; 2],
            layers: wants_states.then(|| Arc::new(engine.model().layer_shape())),
            prompts: plan.prompts().to_vec(),
            rows_each: plan.num_return_sequences(),
            stops: StopTexts::of(&plan),
            search: search::build(plan),
            pending: engine.admit(pending),
            stepped: SearchStep::default(),
            results: ForwardOutput::default(),
            part: None,
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

    /// Takes the results of its rows if they are computed. Returns whether they are, and the search can advance.
    ///
    /// # Errors
    /// The error of the pass. The request cannot go on.
    pub(super) fn take_results(&mut self) -> Result<bool> {
        let Some(computed) = self.ticket.as_ref().and_then(Ticket::result) else { return Ok(false) };
        self.ticket = None;
        let waited = computed?;
        let mut pending = self.pending.lock();
        let model = pending.runner().model();
        (self.vocab_size, self.hidden_sizes) = (model.vocab_size(), [model.hidden_size(), model.last_size()]);
        (self.results, self.part) = (pending.take_results(), pending.take_part());
        let waited = waited + std::mem::take(&mut self.searched);
        self.cost = StepCost { waited: waited.as_secs_f64(), ..pending.cost };
        self.is_ready = true;
        Ok(true)
    }

    /// The logits that its search has to look through; 0 unless it can advance.
    pub(super) fn num_logits(&self) -> usize {
        let logits = self.part.as_ref().map_or(&self.results.logits[..], LogitsPart::logits);
        if self.is_ready { logits.len() } else { 0 }
    }

    /// Advances the search, if it [is ready](Request::is_ready); on any thread, unless it [calls back](Request::calls_back). `scratch` is
    /// memory that it borrows.
    ///
    /// # Errors
    /// The error of the search or of a callback. The request cannot go on.
    pub(super) fn search(&mut self, scratch: &mut SearchScratch) -> Result<()> {
        self.is_ready = false;
        let ForwardOutput { logits, hidden_states, layer_logits, attentions, cross_attentions } =
            &mut self.results;
        let SearchScratch { sums, logits: own } = scratch;
        let logits = match self.part.take() {
            None => logits,
            Some(part) => {
                own.clear();
                memory::extend(own, part.logits(), "logits")?;
                own
            }
        };
        let results = SearchResults::of_logits(logits, self.vocab_size)
            .with_hidden_states(hidden_states, self.hidden_sizes)
            .with_layer_logits(layer_logits)
            .with_states([attentions, cross_attentions], self.layers.as_ref())
            .with_cost(self.cost);
        self.stepped.clear();
        let start = Instant::now();
        exchange(&mut *self.search, sums);
        let advanced = self.search.advance(results, &mut self.stepped);
        exchange(&mut *self.search, sums);
        self.searched = start.elapsed();
        advanced
    }

    /// Notes what the search has found; see [`Request::stepped`].
    ///
    /// # Errors
    /// The error of the text of a token.
    pub(super) fn note_step(&mut self) -> Result<()> {
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
        Ok(())
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
