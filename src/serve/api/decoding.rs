//! The decoding parameters of OpenAI's requests: a [`GenerationConfig`], and the parameters that it has no
//! field for.

use std::sync::Arc;

use super::fields::{CHAT, Routes, strategies};
use super::prompts::check_glossary;
use super::request::{Request, either};
use super::stop::{StopInNewText, Stops};
use super::{structure, tools};
use crate::engine::Interrupt;
use crate::generator::{Call, Generator, Reasoning, ToolUse};
use crate::serve::failure::Failure;
use rsgen_core::types::TokenId;
use rsgen_generation::config::MAX_ROWS;
use rsgen_generation::{
    DolaLayers, GenerationConfig, GenerationMode, LogitBias, OneOrMany, StoppingCriterion, Strategy,
    TokenTrie,
};

/// The lowest temperature; below it scores would overflow.
const LOWEST_TEMPERATURE: f64 = 0.01;
/// The default `max_tokens` of a completion.
const DEFAULT_NEW_TOKENS: usize = 16;
/// The fields that this file reads itself.
const OWN: &[&str] = &["temperature", "top_k", "max_new_tokens", "num_return_sequences"];

/// The decoding parameters of a request.
pub(super) struct Decoding {
    pub(super) config: GenerationConfig,
    /// The answers to each prompt.
    pub(super) n: usize,
    /// The rows computed for each prompt: more than `n` with `best_of`, one if all would be equal.
    pub(super) rows: usize,
    /// The requested number of new tokens, if any.
    pub(super) max_tokens: Option<usize>,
    /// The name of the field that sets it.
    pub(super) max_tokens_field: &'static str,
    /// The number of alternatives returned for each token; `None` for no log-probabilities.
    pub(super) logprobs: Option<usize>,
    pub(super) stops: Arc<Stops>,
    /// The tokens of `stop_token_ids`.
    pub(super) stop_token_ids: Vec<TokenId>,
    is_assisted: bool,
    allowed: Option<Vec<TokenId>>,
    pub(super) catalogue: Option<Arc<TokenTrie>>,
    /// The token that the model's outputs begin with, before an entry.
    pub(super) forced_first: Option<TokenId>,
    /// Whether an entry is named once for each prompt.
    pub(super) names_once: bool,
    cache_salt: Option<Arc<str>>,
    adapter: Option<String>,
    /// How the model calls the tools of a chat, and whether the grammar is that of their calls.
    pub(super) tools: Option<ToolUse>,
    pub(super) holds_calls: bool,
    /// How the model writes what it thinks in a chat, and for each prompt whether it has begun the thinking.
    pub(super) reasoning: Option<(Reasoning, Vec<bool>)>,
}

impl Decoding {
    /// Reads the fields of a request to `/v1/completions` or `/v1/chat/completions`. `num_prompts` counts its
    /// prompts.
    ///
    /// # Errors
    /// When fields contradict each other, or ask for too much.
    pub(super) fn new(
        generator: &Generator,
        request: &Request,
        route: Routes,
        num_prompts: usize,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Self, Failure> {
        let mut config = request.config(OWN)?;
        check_glossary(generator, request, &config)?;
        let (max_tokens_field, max_tokens) = max_tokens(request)?;
        config.max_new_tokens = max_tokens.filter(|&new| new > 0);
        let least = ("min_tokens", request.count("min_tokens"));
        config.min_new_tokens = either(least, ("min_new_tokens", config.min_new_tokens))?;

        let n = either(
            ("n", request.count("n")),
            ("num_return_sequences", request.count("num_return_sequences")),
        )?;
        let n = n.unwrap_or(1);
        let best_of = request.count("best_of").unwrap_or(n);
        if best_of < n {
            let message = format!("`best_of` must be at least `n` ({n}), but is {best_of}");
            return Err(Failure::invalid("best_of", message));
        }
        if request.is("stream") && best_of > n {
            let message =
                "`best_of` needs all answers before the first can be sent; leave it out, or `stream`";
            return Err(Failure::invalid("best_of", message));
        }
        if request.is("use_beam_search") {
            let given = (("num_beams", config.num_beams), ("best_of", request.count("best_of")));
            config.num_beams = Some(either(given.0, given.1)?.unwrap_or(n));
        }

        structure::set(request, &mut config)?;
        let has_grammar = config.grammar.is_some();
        let tools = tools::set(generator, request, &mut config, interrupted)?;
        let holds_calls = config.grammar.is_some() && !has_grammar;
        let strategy = strategy(request)?;
        sampling(request, strategy, &mut config)?;
        if let Some(strategy) = strategy {
            config =
                strategy.apply(&config, &GenerationConfig::new()).map_err(|error| named(error, request))?;
        }
        let is_assisted = strategy.is_some_and(|strategy| strategy.mode == GenerationMode::AssistedDecoding);
        let merged = config.merged_over(generator.generation_config());
        let mode = GenerationMode::of(&merged, false);
        let beams = merged.num_beams.unwrap_or(1);
        if mode.has_beams() && best_of != n && best_of != beams {
            let message = format!(
                "`best_of` ({best_of}) must be `num_beams` ({beams}) in beam search; leave out one of them"
            );
            return Err(Failure::invalid("best_of", message));
        }
        let rows = match () {
            () if mode.has_beams() => n,
            () if config.do_sample == Some(true) => best_of,
            // All rows would be equal.
            () => 1,
        };
        config.num_return_sequences = Some(rows);
        if max_tokens != Some(0) {
            check_size(num_prompts, rows.max(n).max(beams))?;
        }

        let logprobs = match (route, request.is("logprobs")) {
            (CHAT, true) => Some(request.count("top_logprobs").unwrap_or(0)),
            (CHAT, false) if request.count("top_logprobs").is_some_and(|count| count > 0) => {
                let message = "`top_logprobs` needs `logprobs`: set it to true, or leave both out";
                return Err(Failure::invalid("top_logprobs", message));
            }
            (CHAT, false) => None,
            _ => request.count("logprobs"),
        };
        let vocab_size = generator.engine().model().vocab_size();
        config.top_logprobs = logprobs.filter(|&count| count > 0).map(|count| count.min(vocab_size));

        let stop_token_ids = request.ids("stop_token_ids").unwrap_or_default();
        check_ids("stop_token_ids", &stop_token_ids, vocab_size)?;
        config.eos_token_id = end_tokens(request, &config, &merged, &stop_token_ids)?;
        config.switched_off.remove("eos_token_id");
        check_biases(config.logit_bias.as_ref(), vocab_size)?;
        let allowed = request.ids("allowed_token_ids");
        if allowed.as_ref().is_some_and(Vec::is_empty) {
            let message = "`allowed_token_ids` must hold at least one token id, but is empty; leave it out to allow all";
            return Err(Failure::invalid("allowed_token_ids", message));
        }
        check_ids("allowed_token_ids", allowed.as_deref().unwrap_or_default(), vocab_size)?;
        let stops = Arc::new(Stops::new(request.texts("stop"), request.is("include_stop_str_in_output"))?);
        Ok(Self {
            config,
            n,
            rows,
            max_tokens,
            max_tokens_field,
            logprobs,
            stops,
            stop_token_ids,
            is_assisted,
            allowed,
            catalogue: request.catalogue.clone(),
            forced_first: merged.forced_bos_token_id,
            names_once: mode.has_beams(),
            cache_salt: request.cache_salt(),
            adapter: request.adapter.clone(),
            tools,
            holds_calls,
            reasoning: None,
        })
    }

    /// Sets the default limit of new tokens, for prompts of up to `longest` tokens.
    pub(super) fn limit(&mut self, generator: &Generator, route: Routes, longest: usize) {
        if self.config.max_new_tokens.is_some() || self.config.max_length.is_some() {
            return;
        }
        let rest = super::prompts::context(generator).saturating_sub(longest).max(1);
        let default = generator.generation_config().max_new_tokens;
        self.config.max_new_tokens = Some(match route {
            CHAT => default.unwrap_or(rest),
            _ => DEFAULT_NEW_TOKENS.min(rest),
        });
    }

    /// The most new tokens of an answer, once [`Decoding::limit`] has set a default.
    pub(super) fn max_new_tokens(&self, generator: &Generator) -> usize {
        let limit = self.config.max_new_tokens.or(self.config.max_length);
        let given = if self.max_tokens == Some(0) { Some(0) } else { limit };
        given.unwrap_or(usize::MAX).min(super::prompts::context(generator))
    }

    /// Applies the parameters to a call.
    ///
    /// # Errors
    /// When a stop string cannot be matched.
    pub(super) fn apply<'a>(&self, generator: &Generator, call: Call<'a>) -> Result<Call<'a>, Failure> {
        let mut call = call.config(&self.config);
        if self.is_assisted {
            call = call.assisted();
        }
        if let Some(salt) = self.cache_salt.clone() {
            call = call.cache_salt(salt);
        }
        if let Some(adapter) = &self.adapter {
            call = call.adapter(adapter.clone());
        }
        if let Some(allowed) = self.allowed.clone() {
            call = call.prefix_allowed_tokens_fn(Arc::new(move |_: usize, _: &[TokenId]| allowed.clone()));
        }
        if let Some(trie) = self.catalogue.clone() {
            call = call.allowed_sequences(trie);
        }
        if !self.stops.is_empty() {
            let criterion: Arc<dyn StoppingCriterion> = Arc::new(StopInNewText::new(generator, &self.stops)?);
            call = call.criterion(criterion);
        }
        Ok(call)
    }
}

/// Fields with unbounded numbers, which can make scores infinite or NaN.
const UNBOUNDED: &[&str] = &["sequence_bias", "exponential_decay_length_penalty", "watermarking_config"];

/// The unbounded field that a request sets, if any.
pub(super) fn unbounded(request: &Request) -> Option<&'static str> {
    UNBOUNDED.iter().copied().find(|name| request.get(name).is_some())
}

/// Turns a numerical failure into one of the client's, if the request sets an unbounded field.
pub(super) fn blamed(failure: Failure, unbounded: Option<&'static str>) -> Failure {
    match unbounded {
        Some(field) if failure.code == Some("numerical_error") => {
            Failure::invalid(field, format!("`{field}` must be nearer to 0: {}", failure.message))
        }
        _ => failure,
    }
}

/// Translates a configuration error to the name that the request has for the field.
pub(super) fn named(error: rsgen_core::error::Error, request: &Request) -> Failure {
    let mut failure = blamed(Failure::from(error), unbounded(request));
    if let Some(param) = &mut failure.param
        && request.get(param).is_none()
        && let Some(own) = request.alias(param)
    {
        own.clone_into(param);
    }
    failure
}

/// Refuses more rows than a request may compute.
///
/// # Errors
/// When prompts times rows exceed the limit.
pub(super) fn check_size(num_prompts: usize, rows: usize) -> Result<(), Failure> {
    let all = num_prompts.saturating_mul(rows);
    if all <= MAX_ROWS {
        return Ok(());
    }
    let message = format!(
        "a request computes at most {MAX_ROWS} rows, but {num_prompts} prompts with {rows} rows or beams each are {all}; \
         make several requests"
    );
    Err(Failure::invalid(if num_prompts > 1 { "prompt" } else { "n" }, message))
}

fn max_tokens(request: &Request) -> Result<(&'static str, Option<usize>), Failure> {
    let fields =
        ["max_tokens", "max_completion_tokens", "max_new_tokens"].map(|name| (name, request.count(name)));
    let mut given = ("max_tokens", None);
    for (name, value) in fields {
        either(given, (name, value))?;
        if value.is_some() && given.1.is_none() {
            given = (name, value);
        }
    }
    if request.get("max_length").is_some() && given.1.is_some() {
        let message = format!("`{}` and `max_length` both limit the answer; leave out one of them", given.0);
        return Err(Failure::invalid("max_length", message));
    }
    Ok(given)
}

/// The strategy that the request names.
///
/// # Errors
/// When the name is unknown.
pub(super) fn strategy(request: &Request) -> Result<Option<&'static Strategy>, Failure> {
    let Some(name) = request.text("strategy") else { return Ok(None) };
    let has_name = |strategy: &&Strategy| {
        strategy.name == name || strategy.name.strip_suffix("_search").is_some_and(|short| short == name)
    };
    let found = Strategy::ALL.iter().find(has_name);
    let message = || format!("`strategy` must be one of {}, but is {name:?}", strategies());
    found.map(Some).ok_or_else(|| Failure::invalid("strategy", message()))
}

/// Whether the request samples, and the sampling fields with OpenAI's defaults. The model's own defaults for
/// them are ignored.
fn sampling(
    request: &Request,
    strategy: Option<&Strategy>,
    config: &mut GenerationConfig,
) -> Result<(), Failure> {
    let temperature = request.number("temperature");
    let is_deterministic = request.is("use_beam_search")
        || config.num_beams.is_some_and(|beams| beams > 1)
        || config.penalty_alpha.is_some_and(|alpha| alpha > 0.0)
        || config.dola_layers.is_some()
        || config.force_words_ids.is_some()
        || config.forces_texts();
    let of_strategy = strategy.map(|strategy| {
        use GenerationMode::{AssistedDecoding, BeamSample, Dola, PromptLookup, Sample};
        match strategy.mode {
            Sample | BeamSample => true,
            Dola | PromptLookup | AssistedDecoding => temperature.is_some_and(|value| value > 0.0),
            _ => false,
        }
    });
    let default = of_strategy.unwrap_or(match temperature {
        Some(temperature) => temperature > 0.0 && !request.is("use_beam_search"),
        None => !is_deterministic,
    });
    let samples = config.do_sample.unwrap_or(default);
    match temperature {
        Some(0.0) if samples => {
            return Err(Failure::invalid(
                "temperature",
                "`temperature` is 0, which takes the most probable token, but the request asks for sampling; leave out one of them",
            ));
        }
        // 1 is the default, which clients send unasked.
        Some(value) if value != 0.0 && value != 1.0 && !samples => {
            return Err(Failure::invalid(
                "temperature",
                format!(
                    "`temperature` is {value}, but the request asks for a search that does not sample; leave out one of them"
                ),
            ));
        }
        _ => {}
    }
    config.do_sample = Some(samples);
    config.top_k = request.integer("top_k").map(|top_k| top_k.max(0) as usize);
    if samples {
        config.temperature = Some(temperature.unwrap_or(1.0).max(LOWEST_TEMPERATURE));
        config.top_p = config.top_p.or(Some(1.0));
        config.top_k = config.top_k.or(Some(0));
    }
    let is_dola = strategy.is_some_and(|strategy| strategy.mode == GenerationMode::Dola);
    if is_dola && config.dola_layers.is_none() {
        config.dola_layers = Some(DolaLayers::High);
    }
    Ok(())
}

/// The tokens that end an answer; `None` for the model's own.
fn end_tokens(
    request: &Request,
    given: &GenerationConfig,
    merged: &GenerationConfig,
    stop_token_ids: &[TokenId],
) -> Result<Option<OneOrMany<TokenId>>, Failure> {
    let own = given.eos_token_id.clone().or_else(|| {
        let is_off = given.switched_off.contains("eos_token_id");
        if is_off { Some(OneOrMany::Many(Vec::new())) } else { None }
    });
    let ignores = request.is("ignore_eos");
    if ignores && given.eos_token_id.is_some() {
        let message = "`ignore_eos` leaves out the end-of-sequence tokens that `eos_token_id` names; leave out one of them";
        return Err(Failure::invalid("ignore_eos", message));
    }
    if own.is_none() && !ignores && stop_token_ids.is_empty() {
        return Ok(None);
    }
    let mut ids = match (ignores, own.as_ref().or(merged.eos_token_id.as_ref())) {
        (false, Some(ids)) => ids.as_slice().to_vec(),
        _ => Vec::new(),
    };
    ids.extend(stop_token_ids);
    ids.sort_unstable();
    ids.dedup();
    Ok(Some(OneOrMany::Many(ids)))
}

fn check_biases(biases: Option<&LogitBias>, vocab_size: usize) -> Result<(), Failure> {
    let ids: Vec<TokenId> = biases.iter().flat_map(|bias| bias.entries()).map(|(id, _)| *id).collect();
    check_ids("logit_bias", &ids, vocab_size)
}

/// Refuses ids outside of the vocabulary.
fn check_ids(field: &str, ids: &[TokenId], vocab_size: usize) -> Result<(), Failure> {
    match ids.iter().find(|id| id.index() >= vocab_size) {
        None => Ok(()),
        Some(id) => Err(Failure::invalid(
            field,
            format!("`{field}` holds the id {id}, but the vocabulary has the ids 0 to {}", vocab_size - 1),
        )),
    }
}
