//! Shared by `/v1/completions` and `/v1/chat/completions`: runs a request, and writes its answers whole or as
//! a stream.

use std::collections::{BTreeMap, HashSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::Value;

use super::answer::{Answer, AnswerSettings, Choice, Piece};
use super::decoding::{Decoding, blamed, named, unbounded};
use super::fields::Routes;
use super::logprobs::Logprobs;
use super::prompts::{EncodedPrompt, check_context};
use super::reasoning;
use super::request::Request;
use super::text::{Text, check_memory};
use super::usage::{Counts, with_ignored};
use crate::engine::{GenerationOutput, Interrupt, StreamedToken, TokenScore, TokenStream};
use crate::generator::{Generator, Prepared, Prompt};
use crate::serve::app::App;
use crate::serve::failure::Failure;
use crate::serve::json::Admitted;
use crate::serve::places::Place;
use crate::serve::sse::{self, Events};
use crate::serve::work::{self, TokenReceiver};
use rsgen_core::types::{FinishReason, TokenId};
use rsgen_generation::OneOrMany;

/// How a route of OpenAI reads requests and writes answers.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) route: Routes,
    /// The prefix of ids.
    pub(super) id: &'static str,
    /// The type of a whole answer, and of a part of one in a stream.
    pub(super) object: &'static str,
    pub(super) chunk: &'static str,
    /// Refuses what this route does not support.
    pub(super) check: fn(&Request) -> Result<(), Failure>,
    /// Counts the prompts before they are encoded.
    pub(super) num_prompts: fn(&Request) -> usize,
    pub(super) prompts: fn(&Generator, &Request, &mut Interrupt<'_>) -> Result<Vec<EncodedPrompt>, Failure>,
    /// A whole answer.
    pub(super) choice: for<'a> fn(&'a AnswerSettings, usize, &'a Piece) -> Choice<'a>,
    /// The events that begin an answer in a stream, and those of a part of it.
    pub(super) first: fn(usize) -> Option<Choice<'static>>,
    pub(super) delta: for<'a> fn(&'a AnswerSettings, usize, &'a Piece) -> Vec<Choice<'a>>,
}

/// A request that is ready to run.
pub(super) struct Job {
    prompts: Vec<EncodedPrompt>,
    decoding: Decoding,
    settings: Arc<AnswerSettings>,
    /// With `echo` or `prompt_logprobs`, the scores of each prompt.
    scores: Vec<Vec<TokenScore>>,
    echoes: bool,
    returns_prompt_logprobs: bool,
    /// The unbounded field that the request sets, if any.
    pub(super) unbounded: Option<&'static str>,
}

/// The fields that all chunks of an answer share.
#[derive(Serialize)]
struct Head {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    system_fingerprint: String,
}

/// A chunk of a stream.
#[derive(Serialize)]
struct Chunk<'a> {
    #[serde(flatten)]
    head: &'a Head,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
}

impl Job {
    pub(super) fn new(
        generator: &Generator,
        request: &Request,
        form: &Form,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Self, Failure> {
        let mut decoding =
            Decoding::new(generator, request, form.route, (form.num_prompts)(request), interrupted)?;
        let prompts = (form.prompts)(generator, request, interrupted)?;
        reasoning::set(generator, request, &mut decoding, &prompts)?;
        let at_least = decoding.max_tokens.unwrap_or(1);
        check_context(generator, &prompts, at_least, decoding.max_tokens_field)?;
        let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(0);
        decoding.limit(generator, form.route, longest);
        let settings = Arc::new(AnswerSettings::new(generator, request, &decoding));
        let (echoes, prompt_logprobs) = (request.is("echo"), request.count("prompt_logprobs"));
        let of_echo = decoding.logprobs.filter(|_| echoes);
        if !request.is("stream") {
            let answers = |tokens: usize| tokens.saturating_mul(decoding.n);
            let of_prompts = answers(prompts.iter().map(|prompt| prompt.ids.len()).sum());
            let new = answers(prompts.len()).saturating_mul(decoding.max_new_tokens(generator));
            let listed =
                |tokens: usize, top: Option<usize>| top.map_or(0, |top| tokens.saturating_mul(top + 1));
            let of_prompts_listed = listed(of_prompts, of_echo) + listed(of_prompts, prompt_logprobs);
            check_memory(
                of_prompts.saturating_add(new),
                of_prompts_listed.saturating_add(listed(new, decoding.logprobs)),
            )?;
        }
        let mut scores = Vec::new();
        if let Some(top) = prompt_logprobs.max(of_echo) {
            let top = top.min(generator.engine().model().vocab_size());
            let texts = prompts.iter().map(|prompt| Ok(Prompt::Ids(prompt.ids.clone())));
            let adapted = request.adapter.as_ref().map(|name| generator.with_adapter(name)).transpose()?;
            let scorer = adapted.as_ref().unwrap_or(generator);
            scorer.score_texts(texts, top, interrupted, &mut |_, scored| {
                scores.push(scored?);
                Ok(())
            })?;
        }
        let returns_prompt_logprobs = prompt_logprobs.is_some();
        let unbounded = unbounded(request);
        Ok(Self { prompts, decoding, settings, scores, echoes, returns_prompt_logprobs, unbounded })
    }

    /// The prompt as the beginning of its answers; empty without `echo`.
    fn echo(&self, prompt: usize) -> Result<Piece, Failure> {
        if !self.echoes {
            return Ok(Piece::default());
        }
        let EncodedPrompt { ids, text } = &self.prompts[prompt];
        let text = match text {
            Some(text) => text.to_string(),
            None => self.settings.decode(ids)?,
        };
        let scores = self.scores.get(prompt).filter(|_| self.settings.logprobs.is_some());
        let mut tokens = scores.map(|scores| self.settings.prompt_tokens(scores)).unwrap_or_default();
        if self.decoding.config.token_healing != Some(true) {
            return Ok(Piece { text, tokens, ..Piece::default() });
        }
        // What heals a prompt strips it.
        let (stripped, before) = (text.trim(), text.len() - text.trim_start().len());
        let (before, len) = (text[..before].chars().count(), stripped.chars().count());
        for token in &mut tokens {
            token.offset = token.offset.saturating_sub(before).min(len);
        }
        let text = stripped.to_owned();
        Ok(Piece { text, tokens, ..Piece::default() })
    }

    pub(super) fn answer(&self, prompt: usize, echo: &Piece) -> Answer {
        Answer::new(&self.settings, prompt, &self.prompts[prompt].ids, echo.text.chars().count())
    }

    /// Adds the prompt's log-probabilities and ids to a choice, if requested.
    fn add_prompt<'a>(&'a self, prompt: usize, choice: &mut Choice<'a>) {
        let names = &self.settings.names;
        choice.prompt_logprobs =
            self.returns_prompt_logprobs.then(|| Logprobs::Prompt(names, &self.scores[prompt]));
        choice.prompt_token_ids = self.settings.returns_ids.then_some(&*self.prompts[prompt].ids);
    }

    pub(super) fn num_prompt_tokens(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.ids.len()).sum()
    }

    /// Whether the request only scores its prompts.
    fn only_scores(&self) -> bool {
        self.decoding.max_tokens == Some(0)
    }

    /// The text of the whole answer, and the output that it is made of.
    fn run(
        &self,
        generator: &Generator,
        request: &Request,
        (form, head): (&Form, &Head),
        interrupted: &mut Interrupt<'_>,
    ) -> Result<(Text, Option<GenerationOutput>), Failure> {
        let n = self.decoding.n;
        let mut text = Text::begin(head, "choices")?;
        let mut counts = Counts { prompt: self.num_prompt_tokens(), ..Counts::default() };
        let output = if self.only_scores() {
            None
        } else {
            let call = self.decoding.apply(generator, EncodedPrompt::call_all(&self.prompts, generator))?;
            let output = call.prepare(false, interrupted).and_then(|prepared| prepared.run(interrupted));
            Some(output.map_err(|error| named(error, request))?)
        };
        let mut named = HashSet::new();
        counts.cached = output.as_ref().map_or(0, |output| output.usage.cached_prompt_tokens);
        for prompt in 0..self.prompts.len() {
            let echo = self.echo(prompt)?;
            let mut rows = match &output {
                Some(output) => rows(output, prompt * self.decoding.rows..(prompt + 1) * self.decoding.rows),
                None => vec![Vec::new()],
            };
            counts.completion += rows.iter().map(Vec::len).sum::<usize>();
            if self.decoding.rows > n {
                rows.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
            }
            for index in 0..n {
                // Rows that would be equal are computed once.
                let tokens = rows.get(index).unwrap_or(&rows[0]);
                if index >= rows.len() {
                    counts.completion += tokens.len();
                }
                let mut answer = self.answer(prompt, &echo);
                let mut whole =
                    Piece { text: echo.text.clone(), tokens: echo.tokens.clone(), ..Piece::default() };
                for token in tokens {
                    whole.extend(answer.push(token));
                }
                whole.finish = whole.finish.or(Some(FinishReason::Length));
                counts.reasoning += whole.reasoning_tokens;
                if self.decoding.names_once {
                    whole.name_once(prompt, &mut named);
                }
                let mut choice = (form.choice)(&self.settings, prompt * n + index, &whole);
                choice.token_ids = self.settings.returns_ids.then_some(&whole.ids);
                self.add_prompt(prompt, &mut choice);
                text.item(&choice)?;
            }
        }
        Ok((text.end("usage", &counts.json())?, output))
    }

    /// A stream for each prompt.
    pub(super) fn streams(
        &self,
        generator: &Generator,
        request: &Request,
    ) -> Result<Vec<TokenStream>, Failure> {
        let seed = self.decoding.config.seed.clone();
        let stream = |(index, prompt): (u64, &EncodedPrompt)| {
            let call = self.decoding.apply(generator, prompt.call(generator))?;
            let mut config = self.decoding.config.of_prompt(index as usize, self.prompts.len());
            // As for a list of prompts.
            if let Some(OneOrMany::One(seed)) = seed {
                config.seed = Some(OneOrMany::One(seed.wrapping_add(index)));
            }
            let prepared = call.config(&config).prepare(false, &mut || false);
            prepared.and_then(Prepared::stream).map_err(|error| named(error, request))
        };
        (0..).zip(&self.prompts).map(stream).collect()
    }
}

/// The rows of an output in a range, as the tokens of a stream.
fn rows(output: &GenerationOutput, range: std::ops::Range<usize>) -> Vec<Vec<StreamedToken>> {
    let row = |index: usize| {
        let generated = &output.rows[index].generated;
        let top = output.top_logprobs(index).unwrap_or_default();
        let last = generated.token_ids.len().saturating_sub(1);
        let tokens = generated.token_ids.iter().enumerate();
        let token = |(step, &id): (usize, &TokenId)| StreamedToken {
            id,
            text: String::new(),
            healed: if step == 0 { output.rows[index].healed.clone() } else { String::new() },
            index,
            logprob: generated.logprobs.get(step).copied().unwrap_or(f32::NAN),
            score: f32::NAN,
            finish_reason: (step == last).then_some(generated.finish_reason),
            top_logprobs: top.get(step).map(|top| top.to_vec()).unwrap_or_default(),
        };
        tokens.map(token).collect()
    };
    range.map(row).collect()
}

/// The average log-probability of a row's tokens.
fn mean(tokens: &[StreamedToken]) -> f32 {
    tokens.iter().map(|token| token.logprob).sum::<f32>() / tokens.len().max(1) as f32
}

impl Head {
    fn new(app: &App, request: &Request, form: &Form, is_stream: bool) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            id: app.state.new_id(form.id),
            object: if is_stream { form.chunk } else { form.object },
            created: now.unwrap_or_default().as_secs(),
            model: request.model(app),
            system_fingerprint: app.fingerprint.clone(),
        }
    }
}

/// Answers a request.
pub(super) async fn answer(admitted: Admitted, form: &'static Form) -> Result<Response, Failure> {
    let Admitted { app, fields, place, tenant } = admitted;
    let request = Request::new(&app, form.route, fields)?.of(tenant);
    (form.check)(&request)?;
    let ignored = request.ignored().to_vec();
    let response = if request.is("stream") {
        stream(app, request, place, form).await?
    } else {
        let head = Head::new(&app, &request, form, false);
        let held = place.clone();
        let answered = work::run(&app, place, move |generator, interrupted| {
            let answers = Job::new(generator, &request, form, interrupted)
                .and_then(|job| job.run(generator, &request, (form, &head), interrupted));
            Ok(answers)
        });
        let (text, output) = answered.await?.map_err(|failure| app.public(failure))?;
        if let Some(output) = &output {
            app.metrics.finished(&held, output);
        }
        text.into_response()
    };
    Ok(with_ignored(response, &ignored))
}

async fn stream(
    app: Arc<App>,
    request: Request,
    place: Place,
    form: &'static Form,
) -> Result<Response, Failure> {
    let options = request.get("stream_options").cloned().unwrap_or_default();
    let option = |name: &str| match &options[name] {
        Value::Null => Ok(false),
        Value::Bool(value) => Ok(*value),
        _ => {
            Err(Failure::invalid("stream_options", format!("`stream_options.{name}` must be true or false")))
        }
    };
    let (includes_usage, continuous) = (option("include_usage")?, option("continuous_usage_stats")?);
    let head = Head::new(&app, &request, form, true);
    let prepared = work::run(&app, place.clone(), move |generator, interrupted| {
        let prepared = Job::new(generator, &request, form, interrupted).and_then(|job| {
            let streams = if job.only_scores() { Vec::new() } else { job.streams(generator, &request)? };
            Ok((job, streams))
        });
        Ok(prepared)
    });
    let (job, streams) = prepared.await?.map_err(|failure| app.public(failure))?;
    let count = streams.len();
    let receivers =
        streams.into_iter().map(|stream| work::tokens(&app, stream, place.clone(), count)).collect();
    drop(place);
    Ok(sse::events(&app.state, move |events| async move {
        let mut writer =
            Writer { job, form, head, events, counts: Counts::default(), includes_usage, continuous };
        writer.write(receivers).await
    }))
}

/// Writes the events of a stream.
struct Writer {
    job: Job,
    form: &'static Form,
    head: Head,
    events: Events,
    counts: Counts,
    includes_usage: bool,
    continuous: bool,
}

impl Writer {
    async fn write(&mut self, mut receivers: Vec<TokenReceiver>) -> Result<(), Failure> {
        let (n, rows) = (self.job.decoding.n, self.job.decoding.rows);
        self.counts.prompt = self.job.num_prompt_tokens();
        let mut answers = Vec::with_capacity(self.job.prompts.len() * rows);
        for prompt in 0..self.job.prompts.len() {
            let mut echo = self.job.echo(prompt)?;
            if receivers.is_empty() {
                echo.finish = Some(FinishReason::Length);
            }
            for index in prompt * n..(prompt + 1) * n {
                self.begin(prompt, index, &echo).await?;
            }
            answers.extend((0..rows).map(|_| self.job.answer(prompt, &echo)));
        }
        let mut named = HashSet::new();
        loop {
            let (tokens, failed) = next(&mut receivers).await;
            if tokens.is_empty() && failed.is_none() {
                break;
            }
            self.counts.cached = receivers.iter().map(TokenReceiver::cached_tokens).sum();
            let mut pieces: BTreeMap<usize, Piece> = BTreeMap::new();
            for (prompt, token) in tokens {
                let mut piece = answers[prompt * rows + token.index].push(&token);
                if self.job.decoding.names_once {
                    piece.name_once(prompt, &mut named);
                }
                // Rows that would be equal are computed once.
                let copies = if rows < n { 0..n } else { token.index..token.index + 1 };
                for copy in copies {
                    self.counts.completion += 1;
                    self.counts.reasoning += piece.reasoning_tokens;
                    pieces.entry(prompt * n + copy).or_default().extend(piece.clone());
                }
            }
            for (index, piece) in pieces {
                self.send(index, &piece).await?;
            }
            if let Some(failure) = failed {
                return Err(blamed(failure, self.job.unbounded));
            }
        }
        if self.includes_usage {
            let usage = Some(self.counts.json());
            self.events.send(&Chunk { head: &self.head, choices: &[], usage }).await?;
        }
        self.events.send_text("[DONE]").await;
        Ok(())
    }

    /// Sends the first chunks of an answer: its role, its prompt.
    async fn begin(&self, prompt: usize, index: usize, echo: &Piece) -> Result<(), Failure> {
        let first = (self.form.first)(index);
        let is_silent =
            first.is_none() && echo.text.is_empty() && echo.tokens.is_empty() && echo.finish.is_none();
        let mut choices: Vec<Choice<'_>> = first.into_iter().collect();
        if choices.is_empty()
            && (!is_silent || self.job.settings.returns_ids || self.job.returns_prompt_logprobs)
        {
            choices = (self.form.delta)(&self.job.settings, index, echo);
        }
        if let Some(choice) = choices.first_mut() {
            self.job.add_prompt(prompt, choice);
        }
        self.send_choices(choices).await
    }

    async fn send(&self, index: usize, piece: &Piece) -> Result<(), Failure> {
        let has_ids = self.job.settings.returns_ids;
        if piece.is_silent() && !has_ids {
            return Ok(());
        }
        let mut choices = (self.form.delta)(&self.job.settings, index, piece);
        if let (true, Some(choice)) = (has_ids, choices.first_mut()) {
            choice.token_ids = Some(&piece.ids);
        }
        self.send_choices(choices).await
    }

    async fn send_choices(&self, choices: Vec<Choice<'_>>) -> Result<(), Failure> {
        for choice in choices {
            let null = self.includes_usage.then_some(Value::Null);
            let usage = if self.continuous { Some(self.counts.json()) } else { null };
            self.events.send(&Chunk { head: &self.head, choices: &[choice], usage }).await?;
        }
        Ok(())
    }
}

/// Waits for the next token of any stream, and returns it with all tokens that are ready, each with the index
/// of its stream. Empty when all have ended. A failure is the end.
async fn next(receivers: &mut [TokenReceiver]) -> (Vec<(usize, StreamedToken)>, Option<Failure>) {
    let first = poll_fn(|context| {
        let mut has_ended = true;
        for (index, receiver) in receivers.iter_mut().enumerate() {
            match pin!(receiver.next()).poll(context) {
                Poll::Ready(Some(token)) => return Poll::Ready(Some((index, token))),
                Poll::Ready(None) => {}
                Poll::Pending => has_ended = false,
            }
        }
        if has_ended { Poll::Ready(None) } else { Poll::Pending }
    });
    let first = first.await;
    let ready = |(index, receiver)| TokenReceiver::ready(receiver).map(move |token| (index, token));
    let mut tokens = Vec::new();
    for (index, token) in first.into_iter().chain(receivers.iter_mut().enumerate().flat_map(ready)) {
        match token {
            Ok(token) => tokens.push((index, token)),
            Err(failure) => return (tokens, Some(failure)),
        }
    }
    (tokens, None)
}
