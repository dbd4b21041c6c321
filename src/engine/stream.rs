//! A request as a stream of tokens. It computes when the next token is requested; dropping it ends the
//! request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use super::core::Engine;
use super::estimate::Estimate;
use super::events::{RowTexts, StreamedToken};
use super::executor::Executor;
use super::output::GenerationOutput;
use super::queue::Interrupt;
use super::request::Request;
use super::slot::ModelRunner;
use super::trace::TimedEvent;
use rsgen_core::{Error, ErrorKind, Result, TokenId, message};
use rsgen_generation::GenerationPlan;
use rsgen_generation::plan::PlannedPrompt;
use rsgen_text::Tokenizer;

/// The tokens of one request, as they are generated. With beams they are those of the best sequence, each as
/// soon as nothing can change it, and the last ones at the end.
///
/// Iterating drives the model on the calling thread. Dropping the stream gives its cache blocks back. In a
/// forked process it fails with a `Fork` error.
pub struct TokenStream {
    engine: Arc<Engine>,
    tokenizer: Option<Tokenizer>,
    /// `None` once it has ended.
    request: Option<Request>,
    /// `None` before the first token.
    texts: Option<RowTexts>,
    ready: VecDeque<StreamedToken>,
    output: Option<GenerationOutput>,
    executor: Executor,
    cancelled: Arc<AtomicBool>,
}

impl TokenStream {
    /// A stream that has computed nothing yet. Its first token waits for room in the cache. `draft` is the
    /// model of its drafts.
    ///
    /// # Errors
    /// `Capacity` when the cache can never have room for it, or the memory none for its answer.
    pub fn new(
        engine: Arc<Engine>,
        draft: Option<&Arc<ModelRunner>>,
        tokenizer: Option<Tokenizer>,
        plan: GenerationPlan,
    ) -> Result<Self> {
        let runner = draft.map(|draft| &**draft);
        Estimate::of(&engine, runner, &plan).check(&engine, runner, 1)?;
        let request = Request::new(&engine, draft, plan, tokenizer.as_ref())?.streamed();
        Ok(Self {
            executor: Executor::new(&engine),
            engine,
            tokenizer,
            request: Some(request),
            texts: None,
            ready: VecDeque::new(),
            output: None,
            cancelled: Arc::default(),
        })
    }

    /// The next token; `None` at the end.
    ///
    /// # Errors
    /// The error that ended the request. There is no next token after it.
    pub fn next_token(&mut self, interrupted: &mut Interrupt<'_>) -> Result<Option<StreamedToken>> {
        loop {
            if let Poll::Ready(token) = self.poll_token(interrupted)? {
                return Ok(token);
            }
        }
    }

    /// Computes at most one pass. `Pending` means that the next token takes more passes, as within a long
    /// prompt. For callers that alternate between streams.
    ///
    /// # Errors
    /// As for [`TokenStream::next_token`].
    pub fn poll_token(&mut self, interrupted: &mut Interrupt<'_>) -> Result<Poll<Option<StreamedToken>>> {
        if self.ready.is_empty() && self.request.is_some() {
            self.engine.check_process()?;
            self.advance(interrupted)?;
        }
        let ended = self.request.is_none();
        Ok(match self.ready.pop_front() {
            None if !ended => Poll::Pending,
            token => Poll::Ready(token),
        })
    }

    /// Computes one pass. The request is put back if it goes on; an error or a panic ends it.
    fn advance(&mut self, interrupted: &mut Interrupt<'_>) -> Result<()> {
        let Some(mut request) = self.request.take() else { return Ok(()) };
        let cancelled = &self.cancelled;
        let mut interrupted = || cancelled.load(Ordering::Relaxed) || interrupted();
        let requests = std::slice::from_mut(&mut request);
        let stepped = self
            .executor
            .step(&self.engine, requests, &mut interrupted)
            .and_then(|()| self.executor.advanced.pop().map(|(_, result)| result).transpose());
        match stepped {
            Ok(None) => self.request = Some(request),
            Ok(Some(())) => {
                let step = &request.stepped;
                if !step.events.is_empty() {
                    let tokenizer = self.tokenizer.as_ref();
                    let texts = || {
                        RowTexts::new(tokenizer, &request.prompts, request.rows_each, request.stops.as_ref())
                    };
                    let texts = self.texts.get_or_insert_with(texts);
                    self.ready.extend(step.events.iter().map(|event| texts.token(event.clone())));
                }
                let finished = step.finished;
                self.request = Some(request);
                if finished {
                    self.close();
                }
            }
            Err(error) => {
                // A cancelled stream keeps its output so far; a failed one has none.
                if error.kind() == ErrorKind::Cancelled {
                    self.request = Some(request);
                    self.close();
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the request and returns its cache blocks. The tokens so far become the output, which begins with
    /// those that the stream gave.
    pub fn close(&mut self) {
        if let Some(request) = self.request.take() {
            self.output = Some(GenerationOutput::new(request, self.tokenizer.as_ref()));
            self.engine.report(&self.executor.timing);
        }
    }

    /// The event of this number, as it happens: all events are kept, and those that tokens have brought along
    /// are there. `None` after the last one.
    ///
    /// # Errors
    /// `Input` for a call without `output_events`; the error that ended the request.
    pub fn event(&mut self, seq: usize, interrupted: &mut Interrupt<'_>) -> Result<Option<&TimedEvent>> {
        while self.request.is_some() && self.recorded().is_some_and(|events| events.len() <= seq) {
            self.engine.check_process()?;
            self.advance(interrupted)?;
        }
        match self.recorded() {
            Some(events) => Ok(events.get(seq)),
            None if self.request.is_none() && self.output.is_none() => Ok(None),
            None => Err(Error::input(message!(
                "the call records no events; call with " {output_events = true}
            ))),
        }
    }

    /// Whether it records events.
    pub fn records_events(&self) -> bool {
        self.recorded().is_some()
    }

    /// The events so far; `None` without `output_events`, and after an error.
    fn recorded(&self) -> Option<&[TimedEvent]> {
        match (&self.request, &self.output) {
            (Some(request), _) => request.events(),
            (None, Some(output)) => output.events.as_deref(),
            (None, None) => None,
        }
    }

    /// The ids of the prompt, padding included: healed once the first token is there. Empty after an error.
    pub fn prompt_ids(&self) -> &[TokenId] {
        match (&self.request, &self.output) {
            (Some(request), _) => request.prompts.first().map_or(&[], PlannedPrompt::input_ids),
            (None, Some(output)) => output.rows.first().map_or(&[], |row| &row.prompt_ids),
            (None, None) => &[],
        }
    }

    /// The tokens of the prompt so far that other requests had computed; see
    /// [`Usage::cached_prompt_tokens`](super::Usage::cached_prompt_tokens). 0 after an error.
    pub fn cached_prompt_tokens(&self) -> usize {
        match (&self.request, &self.output) {
            (Some(request), _) => request.cached_prompt_tokens(),
            (None, output) => output.as_ref().map_or(0, |output| output.usage.cached_prompt_tokens),
        }
    }

    /// The finished output, after the last token or after [`TokenStream::close`].
    pub fn output(&self) -> Option<&GenerationOutput> {
        self.output.as_ref()
    }

    /// Generates the rest and returns the output.
    ///
    /// # Errors
    /// As for [`TokenStream::next_token`]; `Cancelled` after an error.
    pub fn into_output(mut self) -> Result<GenerationOutput> {
        while self.next_token(&mut || false)?.is_some() {}
        self.output.take().ok_or_else(Error::cancelled)
    }

    /// A flag for other threads: setting it ends the stream with a `Cancelled` error, within milliseconds,
    /// even in the middle of a prompt.
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancelled)
    }
}

impl Iterator for TokenStream {
    type Item = Result<StreamedToken>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_token(&mut || false).transpose()
    }
}

impl std::fmt::Debug for TokenStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenStream").field("ended", &self.request.is_none()).finish_non_exhaustive()
    }
}
