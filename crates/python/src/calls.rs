//! The calls of a generator: the code that its methods share.
//!
//! It converts arguments, runs the work detached from Python, and wraps results. The layers below give
//! arguments their meaning.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::callbacks;
use super::chat::{self, Conversations};
use super::config::{self, from_keywords, told, warn};
use super::errors::to_python;
use super::exit::attached;
use super::generator::Generator;
use super::held::Held;
use super::large_arguments::LargeArguments;
use super::output::GenerationOutput;
use super::output_type;
use super::progress::ListProgress;
use super::prompts::shown;
use super::signals::{interruptible, polled};
use super::stream::TokenStream;
use super::streamer::Streamer;
use super::token_trie::TokenTrie;
use super::tool_calls::{self, Reading, ToolRequest};
use super::{
    adapters, constraints, embeddings, kept_cache, logging, prompts, seed, stopping_criteria, tokenizer,
};
use rsgen::engine::{self, Interrupt};
use rsgen::generator::{self, Call, Prepared, Prompt, Prompts};
use rsgen_core::error::{Error, Result};
use rsgen_generation::{GenerationConfig, Strategy};
use rsgen_text::{ChatOptions, ToolChoice};

/// The most bytes of a text that is encoded on an event loop: some milliseconds.
const MAX_TEXT_ON_LOOP: usize = 1 << 12;

/// The method of event loops.
pub(super) const ON_LOOP: Method = Method { name: "astream", strategy: None, to_the_end: true };

/// The keyword arguments of every call that are no fields of a configuration.
const OWN_KEYWORDS: [&str; 8] = [
    "logits_processor",
    "prefix_allowed_tokens_fn",
    "allowed_sequences",
    "stopping_criteria",
    "constraints",
    "adapter",
    "assistant_model",
    "assistant",
];

/// The keyword arguments for the prompt, its mask and its embeddings, and for what the decoder of a model with
/// an encoder begins with.
const PROMPT_KEYWORDS: [&str; 6] =
    ["inputs", "input_ids", "attention_mask", "inputs_embeds", "decoder_input_ids", "decoder_attention_mask"];

/// A method that generates.
pub(super) struct Method {
    pub(super) name: &'static str,
    /// The strategy whose fields it presets.
    pub(super) strategy: Option<Strategy>,
    /// Whether the default limit is the end of the context.
    pub(super) to_the_end: bool,
}

/// The prompt or the conversation of a call.
pub(super) enum Given<'a, 'py> {
    Prompt(Option<&'a Bound<'py, PyAny>>),
    Translation {
        texts: &'a Bound<'py, PyAny>,
        source: Option<String>,
        target: Option<String>,
        splits_sentences: bool,
    },
    Chat(&'a Bound<'py, PyAny>),
}

/// The arguments of such a method as Python objects.
pub(super) struct Arguments<'a, 'py> {
    pub(super) given: Given<'a, 'py>,
    pub(super) generation_config: Option<&'a Bound<'py, PyAny>>,
    pub(super) keywords: Option<&'a Bound<'py, PyDict>>,
}

/// Applies an argument to a call.
pub(super) type Edit = Box<dyn for<'a> FnOnce(Call<'a>) -> Call<'a> + Send>;

/// A call with converted arguments, which any thread can prepare.
pub(super) struct Converted {
    pub(super) start: Start,
    pub(super) config: GenerationConfig,
    edits: Vec<Edit>,
    to_the_end: bool,
}

pub(super) enum Start {
    Prompts(Prompts),
    Chat(Conversations, Box<ChatOptions>, ToolRequest),
}

impl Start {
    /// Whether it is one prompt, and not a list.
    fn is_one(&self) -> bool {
        match self {
            Self::Prompts(prompts) => matches!(prompts, Prompts::One(_)),
            Self::Chat(conversations, ..) => matches!(conversations, Conversations::One(_)),
        }
    }
}

impl Converted {
    /// Encodes the prompts and checks the call.
    fn prepare<'a>(
        self,
        generator: &'a generator::Generator,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Prepared<'a>> {
        let call = match self.start {
            Start::Prompts(prompts) => generator.call(prompts).config(&self.config),
            Start::Chat(conversations, options, request) => {
                let thinks = request.thinks.as_deref();
                conversations.call(generator, &options, &self.config, thinks, interrupted)?
            }
        };
        let call = self.edits.into_iter().fold(call, |call, edit| edit(call));
        call.prepare(self.to_the_end, interrupted)
    }

    /// Checks that it can be a stream, before anything is encoded.
    fn check_stream(self) -> Result<Self> {
        match &self.start {
            Start::Prompts(prompts) => prompts.check_stream().map(|()| self),
            Start::Chat(..) => Ok(self),
        }
    }

    /// Opens its stream, on a thread that is detached from Python.
    fn open(
        self,
        generator: &generator::Generator,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<engine::TokenStream> {
        let prepared = self.check_stream()?.prepare(generator, interrupted)?;
        let warned = attached(|py| warn(py, prepared.warnings().into_iter().map(told)));
        warned.ok_or_else(Error::cancelled)?.map_err(raised)?;
        prepared.stream()
    }

    /// Whether preparing may block an event loop for too long.
    fn is_long(&self) -> bool {
        let encodes = match &self.start {
            Start::Prompts(Prompts::One(Prompt::Text(text))) => text.len() > MAX_TEXT_ON_LOOP,
            Start::Prompts(Prompts::List(_)) => true,
            _ => false,
        };
        let config = &self.config;
        let compiles = config.grammar.is_some() || config.regex.is_some() || config.json_schema.is_some();
        encodes || compiles || config.negative_prompt.is_some() || config.has_output_texts()
    }
}

impl Generator {
    /// Converts the arguments of a call. Returns the slots of its callbacks and what its texts are read as.
    pub(super) fn convert(
        py: Python<'_>,
        generator: &generator::Generator,
        method: &Method,
        given: &Arguments<'_, '_>,
    ) -> PyResult<(Converted, Held, Reading)> {
        let keyword = |name: &str| -> PyResult<_> {
            let value = given.keywords.map(|keywords| keywords.get_item(name)).transpose()?.flatten();
            Ok(value.filter(|value| !value.is_none()))
        };
        let [processors, allowed_tokens, catalogue, criteria, constraints, adapter, assistants @ ..] =
            OWN_KEYWORDS;
        let others = match given.given {
            Given::Prompt(_) | Given::Translation { .. } => &PROMPT_KEYWORDS[..],
            Given::Chat(_) => &[&chat::KEYWORDS[..], &tool_calls::KEYWORDS].concat(),
        };
        tokenizer::check(generator, given.keywords)?;
        let (random_state, fields) = seed::taken(given.keywords)?;
        let mut config = from_keywords(
            method.name,
            fields.as_ref(),
            &[others, &OWN_KEYWORDS, &tokenizer::KEYWORDS, &kept_cache::KEYWORDS, &output_type::KEYWORDS]
                .concat(),
        )?;
        let passed = given.generation_config.map(config::passed).transpose()?.unwrap_or_default();
        config = match &method.strategy {
            Some(strategy) => strategy.apply(&config, &passed).map_err(|error| to_python(py, error))?,
            None => config.over_passed(&passed),
        };
        let (output_type, description) = output_type::requested(py, given.keywords, &mut config)?;
        let mut edits = kept_cache::continued(given.keywords)?;
        edits.extend(random_state);
        if let Given::Translation { source, target, splits_sentences, .. } = &given.given {
            let (source, target) = (source.clone(), target.clone());
            let splits_sentences = *splits_sentences;
            edits.push(Box::new(move |call| {
                let call = call.translation(source.as_deref(), target.as_deref());
                if splits_sentences { call.split_sentences() } else { call }
            }));
        }
        let prompt = match &given.given {
            Given::Prompt(prompt) => *prompt,
            Given::Translation { texts, .. } => Some(*texts),
            Given::Chat(_) => None,
        };
        let start = match &given.given {
            Given::Prompt(_) | Given::Translation { .. } => {
                let [inputs, input_ids, mask, embeds, decoder_ids, decoder_mask] =
                    PROMPT_KEYWORDS.map(keyword);
                let named = [prompt.cloned(), inputs?, input_ids?];
                let mut prompts = match embeds? {
                    Some(embeds) => embeddings::of_call(&embeds, named, mask?)?,
                    None => prompts::of_call(named, mask?)?,
                };
                if let Some(description) = description {
                    output_type::describe(py, &mut prompts, &description)?;
                }
                if let Some(ids) = decoder_ids? {
                    let rows = prompts::sequences(&ids)?;
                    edits.push(Box::new(|call| call.decoder_input_ids(rows)));
                }
                if let Some(mask) = decoder_mask? {
                    let rows = prompts::mask_of_decoder(&mask)?;
                    edits.push(Box::new(|call| call.decoder_attention_mask(rows)));
                }
                Start::Prompts(prompts)
            }
            Given::Chat(messages) => {
                let mut conversations = Conversations::extract(messages)?;
                if let Some(description) = description {
                    conversations.describe(py, &description)?;
                }
                let request = ToolRequest::extract(given.keywords)?;
                let mut options = chat::options(given.keywords)?;
                if request.choice == ToolChoice::None {
                    options.tools = None;
                }
                Start::Chat(conversations, Box::new(options), request)
            }
        };
        let (is_given, mut slots) = (given.generation_config.is_some(), Vec::new());
        edits.push(Box::new(move |call| call.has_generation_config(is_given)));
        for processor in callbacks::processors(keyword(processors)?.as_ref(), &mut slots)? {
            edits.push(Box::new(|call| call.processor(processor)));
        }
        if let Some(function) = keyword(allowed_tokens)? {
            let function = callbacks::allowed_tokens(&function, &mut slots)?;
            edits.push(Box::new(|call| call.prefix_allowed_tokens_fn(function)));
        }
        if let Some(trie) = keyword(catalogue)? {
            let given = trie.cast::<TokenTrie>().map_err(|_| {
                type_error!(
                    "`{catalogue}` must be a TokenTrie, got {}; make one once: rsgen.TokenTrie(texts, tokenizer=gen)",
                    shown(&trie)
                )
            })?;
            let trie = Arc::clone(given.get().inner());
            edits.push(Box::new(|call| call.allowed_sequences(trie)));
        }
        for criterion in stopping_criteria::criteria(keyword(criteria)?.as_ref(), &mut slots)? {
            edits.push(Box::new(|call| call.criterion(criterion)));
        }
        for constraint in constraints::constraints(keyword(constraints)?.as_ref(), &mut slots)? {
            edits.push(Box::new(|call| call.constraint(constraint)));
        }
        if let Some(given) = keyword(adapter)? {
            let sums = adapters::sums(&given, start.is_one())?;
            edits.push(Box::new(|call| call.adapters(sums)));
        }
        if let Some(assistant) = assistant(given.keywords, assistants)? {
            let assistant =
                assistant.cast::<Generator>().ok().map(|assistant| assistant.get().inner(py)).transpose()?;
            edits.push(Box::new(move |call| call.assistant(assistant.as_deref())));
        }
        if let Some(strategy) = method.strategy {
            edits.push(Box::new(move |call| call.mode(strategy.mode)));
        }
        let call = Converted { start, config, edits, to_the_end: method.to_the_end };
        Ok((call, Held::new(slots), Reading { output_type, tools: None, thinks: None }))
    }

    /// Prepares a call, and issues its warnings if wanted. Call and result are in boxes: an unoptimized build copies them from
    /// frame to frame otherwise, and threads may have stacks of 128 KB.
    pub(super) fn prepare<'a>(
        py: Python<'_>,
        generator: &'a generator::Generator,
        call: Converted,
        warns: bool,
    ) -> PyResult<Box<Prepared<'a>>> {
        let call = Box::new(call);
        let prepared = polled(py, move |interrupted| call.prepare(generator, interrupted).map(Box::new))?;
        if warns {
            warn(py, prepared.warnings().into_iter().map(told))?;
        }
        Ok(prepared)
    }

    pub(super) fn run(
        &self,
        py: Python<'_>,
        method: &Method,
        given: &Arguments<'_, '_>,
    ) -> PyResult<GenerationOutput> {
        let progress = ListProgress::take(given.keywords)?;
        let streamer = Streamer::take(given.keywords)?;
        let inner = self.inner(py)?;
        let (prepared, _held, reading) = Self::begin(py, &inner, method, given)?;
        let progress = ListProgress::new(progress.as_ref(), prepared.num_requests())?;
        Self::finish(py, method, prepared, streamer, &progress, reading)
    }

    /// Reads the arguments of a call, and prepares it.
    fn begin<'a>(
        py: Python<'_>,
        inner: &'a generator::Generator,
        method: &Method,
        given: &Arguments<'_, '_>,
    ) -> PyResult<(Box<Prepared<'a>>, Held, Reading)> {
        let (mut call, held, mut reading) = Self::convert(py, inner, method, given)?;
        Self::read_tools(py, inner, &mut call, &mut reading)?;
        Ok((Self::prepare(py, inner, call, true)?, held, reading))
    }

    /// Computes a prepared call.
    fn finish(
        py: Python<'_>,
        method: &Method,
        prepared: Box<Prepared<'_>>,
        streamer: Option<Streamer>,
        progress: &ListProgress,
        reading: Reading,
    ) -> PyResult<GenerationOutput> {
        let (is_list, mut finished) = (prepared.num_requests() > 1, None);
        let output = match streamer {
            Some(streamer) => streamer.run(*prepared).and_then(|output| {
                progress.step().map_err(|error| to_python(py, error))?;
                Ok(output)
            }),
            None => interruptible(py, |interrupted| {
                let (output, result) = prepared.run_as_far(interrupted, &mut |_, _| progress.step());
                match result {
                    Ok(()) => Ok(output),
                    Err(error) => {
                        finished = Some(output);
                        Err(error)
                    }
                }
            }),
        };
        if let Ok(output) = &output {
            logging::ended(method.name, output);
        }
        logging::flush(py);
        match (progress.outcome(py, output), finished) {
            (Ok(output), _) => GenerationOutput::new(py, output, reading),
            (Err(error), Some(finished)) if is_list => {
                // Whatever ended a list, what of it was finished is not lost, if the class has room for it.
                let finished = Bound::new(py, GenerationOutput::new(py, finished, reading)?)?;
                let _ = error.value(py).setattr("finished", finished);
                Err(error)
            }
            (Err(error), _) => Err(error),
        }
    }

    pub(super) fn open_stream(
        &self,
        py: Python<'_>,
        name: &'static str,
        given: &Arguments<'_, '_>,
    ) -> PyResult<Py<TokenStream>> {
        let method = Method { name, strategy: None, to_the_end: true };
        let inner = self.inner(py)?;
        let (mut call, held, mut reading) = Self::convert(py, &inner, &method, given)?;
        Self::read_tools(py, &inner, &mut call, &mut reading)?;
        let call = call.check_stream().map_err(|error| to_python(py, error))?;
        let stream = Self::prepare(py, &inner, call, true)?.stream().map_err(|error| to_python(py, error))?;
        self.opened().keep(py, TokenStream::new(stream, held, reading, self.threads()))
    }

    /// Opens a stream for an event loop. Slow preparation is left to the thread that computes the first
    /// token; its errors come with that token.
    pub(super) fn open_on_loop(
        &self,
        py: Python<'_>,
        given: &Arguments<'_, '_>,
    ) -> PyResult<Py<TokenStream>> {
        let inner = self.inner(py)?;
        if let Some(large) = LargeArguments::of(given)? {
            let (generator, records_events, held) = ((*inner).clone(), large.records_events, large.held());
            let open = move |stream: &TokenStream, interrupted: &mut Interrupt<'_>| {
                let converted = attached(|py| large.convert(py, &generator, stream));
                let call = converted.ok_or_else(Error::cancelled)?.map_err(raised)?;
                call.open(&generator, interrupted)
            };
            let stream = TokenStream::unopened(Box::new(open), records_events, held, None, self.threads());
            return self.opened().keep(py, stream);
        }
        let (call, held, reading) = Self::convert(py, &inner, &ON_LOOP, given)?;
        let call = call.check_stream().map_err(|error| to_python(py, error))?;
        if !call.is_long() {
            let stream = Self::prepare(py, &inner, call, true)?.stream();
            let stream = stream.map_err(|error| to_python(py, error))?;
            return self.opened().keep(py, TokenStream::new(stream, held, reading, self.threads()));
        }
        let (generator, records_events) = ((*inner).clone(), call.config.output_events == Some(true));
        let open = move |_: &TokenStream, interrupted: &mut Interrupt<'_>| call.open(&generator, interrupted);
        let stream =
            TokenStream::unopened(Box::new(open), records_events, held, Some(reading), self.threads());
        self.opened().keep(py, stream)
    }
}

/// The error of a thread that is detached from Python for an exception.
fn raised(error: PyErr) -> Error {
    Error::callback("the arguments raise an exception").with_source(error)
}

/// The assistant of a call, by either name: a generator, or `None` itself for a call without one.
fn assistant<'py>(
    keywords: Option<&Bound<'py, PyDict>>,
    names: [&str; 2],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut found: Option<Bound<'py, PyAny>> = None;
    for name in names {
        let Some(given) = keywords.map(|keywords| keywords.get_item(name)).transpose()?.flatten() else {
            continue;
        };
        if !given.is_none() && !given.is_instance_of::<Generator>() {
            return Err(type_error!(
                "`{name}` must be a Generator or None, got {}; open it once, as in rsgen.Generator(\"path\")",
                shown(&given)
            ));
        }
        if found.as_ref().is_some_and(|before| !given.is(before)) {
            let [first, second] = names;
            return Err(config_error!(
                given.py(),
                "`{first}` and `{second}` are one argument, got two values; leave one out"
            ));
        }
        found = Some(given);
    }
    Ok(found)
}
