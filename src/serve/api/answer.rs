//! Builds an answer token by token: its text, its end, and its log-probabilities.
//!
//! Whole answers are made of the same pieces as streams, so both have the same text.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::decoding::Decoding;
use super::logprobs::{Logprobs, Scored, TokenNames};
use super::request::Request;
use super::stop::Stops;
use crate::engine::{HeldText, StreamedToken, TokenScore};
use crate::generator::{Generator, Reasoning, ToolUse, kept_tokens};
use rsgen_core::types::{FinishReason, TokenId};
use rsgen_generation::{TokenTrie, TrieEntry};
use rsgen_text::{Detokenizer, ReasoningParser, Tokenizer, ToolEvent, ToolParser};

/// The settings that all answers to a request share.
pub(super) struct AnswerSettings {
    stops: Arc<Stops>,
    stop_token_ids: Vec<TokenId>,
    tokenizer: Option<Tokenizer>,
    skip_special_tokens: bool,
    pub(super) logprobs: Option<usize>,
    pub(super) names: TokenNames,
    pub(super) returns_ids: bool,
    catalogue: Option<Arc<TokenTrie>>,
    forced_first: Option<TokenId>,
    /// Whether prompts are sources, which answers do not continue.
    have_source: bool,
    /// How the model calls the tools of a chat.
    pub(super) tools: Option<ToolUse>,
    /// How it writes what it thinks, and for each prompt whether it has begun the thinking.
    reasoning: Option<(Reasoning, Vec<bool>)>,
    /// The special tokens that both are written with.
    kept: Arc<[TokenId]>,
}

/// An answer under construction.
pub(super) struct Answer {
    settings: Arc<AnswerSettings>,
    detokenizer: Option<Detokenizer>,
    text: HeldText,
    /// The length of its text so far in characters, held-back text included.
    offset: usize,
    /// Its tokens and the sum of their log-probabilities, where it is one of a catalogue.
    row: (Vec<TokenId>, f64),
    /// What finds the calls in its text, where there are tools, and whether it has found one.
    tools: Option<ToolParser>,
    has_calls: bool,
    /// What finds the thinking before it.
    reasoning: Option<ReasoningParser>,
}

/// The entry of a catalogue that an answer is.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Entry {
    Named {
        #[serde(flatten)]
        entry: TrieEntry,
        /// The log-probability of its tokens, that of the end included.
        logprob: f64,
    },
    /// It was cut, or another answer to the prompt is the same.
    Unnamed,
}

/// The next piece of an answer, as a stream sends it.
#[derive(Debug, Clone, Default)]
pub(super) struct Piece {
    pub(super) text: String,
    /// The thinking, which is none of the text, and how many tokens it is.
    pub(super) reasoning: String,
    pub(super) reasoning_tokens: usize,
    /// The calls of tools, which are none of the text.
    pub(super) calls: Vec<ToolEvent>,
    /// At its end, whether it has called tools.
    pub(super) has_calls: bool,
    pub(super) ids: Vec<TokenId>,
    /// Its tokens with their log-probabilities, if requested.
    pub(super) tokens: Vec<Scored>,
    pub(super) finish: Option<FinishReason>,
    /// The stop string or the token of `stop_token_ids` that ended it.
    pub(super) stop_reason: Value,
    /// The entry that the whole answer is, in its last piece where it is one of a catalogue.
    pub(super) entry: Option<Entry>,
}

/// An answer as it is sent, or a part of one in a stream.
#[derive(Serialize)]
pub(super) struct Choice<'a> {
    pub(super) index: usize,
    #[serde(flatten)]
    pub(super) content: Content<'a>,
    pub(super) logprobs: Option<Logprobs<'a>>,
    pub(super) finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stop_reason: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entry: Option<&'a Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token_ids: Option<&'a [TokenId]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_logprobs: Option<Logprobs<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_token_ids: Option<&'a [TokenId]>,
}

/// What an answer says, under the name that its route has for it.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Content<'a> {
    Text(&'a str),
    Message(Value),
    Delta(Value),
}

impl<'a> Choice<'a> {
    pub(super) fn new(index: usize, content: Content<'a>) -> Self {
        Self {
            index,
            content,
            logprobs: None,
            finish_reason: None,
            stop_reason: None,
            entry: None,
            token_ids: None,
            prompt_logprobs: None,
            prompt_token_ids: None,
        }
    }

    /// With the end of a piece, or that there is none.
    pub(super) fn ending(self, piece: &'a Piece) -> Self {
        let finish_reason = piece.finish.map(|reason| match finish_reason(reason) {
            "stop" if piece.has_calls => "tool_calls",
            reason => reason,
        });
        Self { finish_reason, stop_reason: Some(&piece.stop_reason), entry: piece.entry.as_ref(), ..self }
    }
}

impl AnswerSettings {
    pub(super) fn new(generator: &Generator, request: &Request, decoding: &Decoding) -> Self {
        let tokenizer = generator.tokenizer().ok().cloned();
        Self {
            stops: Arc::clone(&decoding.stops),
            stop_token_ids: decoding.stop_token_ids.clone(),
            names: TokenNames {
                tokenizer: tokenizer.clone(),
                as_ids: request.is("return_tokens_as_token_ids"),
            },
            tokenizer,
            skip_special_tokens: request.flag("skip_special_tokens").unwrap_or(true),
            logprobs: decoding.logprobs,
            returns_ids: request.is("return_token_ids"),
            catalogue: decoding.catalogue.clone(),
            forced_first: decoding.forced_first,
            have_source: generator.has_encoder(),
            tools: decoding.tools.clone(),
            kept: kept_tokens(
                decoding.reasoning.as_ref().map(|(reasoning, _)| reasoning),
                decoding.tools.as_ref(),
            ),
            reasoning: decoding.reasoning.clone(),
        }
    }

    /// The text of a prompt, where it was not given as text.
    pub(super) fn decode(&self, ids: &[TokenId]) -> rsgen_core::error::Result<String> {
        match &self.tokenizer {
            Some(tokenizer) => tokenizer.decode(ids, self.skip_special_tokens),
            None => Ok(String::new()),
        }
    }

    /// The tokens of a prompt, with their places in its text.
    pub(super) fn prompt_tokens(&self, scores: &[TokenScore]) -> Vec<Scored> {
        let mut detokenizer = self.detokenizer(&[]);
        let mut offset = 0;
        let token = |score: &TokenScore| {
            let scored = Scored {
                id: score.token_id,
                logprob: (score.rank > 0).then_some(score.logprob),
                top: score.top_logprobs.iter().copied().take(self.logprobs.unwrap_or(0)).collect(),
                offset,
            };
            offset += detokenizer
                .as_mut()
                .map_or(0, |detokenizer| detokenizer.push(score.token_id).chars().count());
            scored
        };
        scores.iter().map(token).collect()
    }

    fn detokenizer(&self, prompt: &[TokenId]) -> Option<Detokenizer> {
        let tokenizer = self.tokenizer.as_ref()?;
        let detokenizer = Detokenizer::new(tokenizer, prompt, self.skip_special_tokens);
        Some(detokenizer.keeping(&self.kept))
    }
}

impl Answer {
    /// An answer to the prompt of this number, whose text begins after `offset` characters.
    pub(super) fn new(
        settings: &Arc<AnswerSettings>,
        number: usize,
        prompt: &[TokenId],
        offset: usize,
    ) -> Self {
        let continued = if settings.have_source { &[] } else { prompt };
        let parser = |(reasoning, are_open): &(Reasoning, Vec<bool>)| reasoning.parser(are_open[number]);
        Self {
            detokenizer: settings.detokenizer(continued),
            text: settings.stops.held_text(),
            tools: settings.tools.as_ref().map(ToolUse::parser),
            settings: Arc::clone(settings),
            offset,
            row: Default::default(),
            has_calls: false,
            reasoning: settings.reasoning.as_ref().map(parser),
        }
    }

    /// Adds a token.
    pub(super) fn push(&mut self, token: &StreamedToken) -> Piece {
        let mut text = String::new();
        if let Some(detokenizer) = &mut self.detokenizer {
            text.clone_from(&token.healed);
            text.push_str(&detokenizer.push(token.id));
            if token.finish_reason.is_some() {
                text.push_str(&detokenizer.flush());
            }
        }
        let tokens = self.settings.logprobs.map(|_| Scored {
            id: token.id,
            logprob: Some(token.logprob),
            top: token.top_logprobs.clone(),
            offset: self.offset + if self.detokenizer.is_some() { token.healed.chars().count() } else { 0 },
        });
        self.offset += text.chars().count();
        let (text, stop) = self.text.push(&text, token.finish_reason);
        let stop_reason = match token.finish_reason {
            Some(FinishReason::Stop) => stop.into(),
            Some(FinishReason::Eos) if self.settings.stop_token_ids.contains(&token.id) => token.id.0.into(),
            _ => Value::Null,
        };
        let (ids, tokens) = (vec![token.id], tokens.into_iter().collect());
        let entry = self.entry(token);
        let (mut text, mut reasoning, mut reasoning_tokens) = (text, String::new(), 0);
        if let Some(parser) = &mut self.reasoning {
            let before = parser.is_reasoning();
            (reasoning, text) = parser.split(&text, token.finish_reason.is_some());
            reasoning_tokens = usize::from(before || parser.is_reasoning());
        }
        let (text, calls) = self.calls(text, token.finish_reason.is_some());
        let has_calls = self.has_calls;
        Piece {
            text,
            reasoning,
            reasoning_tokens,
            calls,
            has_calls,
            ids,
            tokens,
            finish: token.finish_reason,
            stop_reason,
            entry,
        }
    }

    /// Takes the calls of tools out of a text.
    fn calls(&mut self, text: String, ends: bool) -> (String, Vec<ToolEvent>) {
        let Some(parser) = &mut self.tools else { return (text, Vec::new()) };
        let mut events = parser.push(&text);
        if ends {
            events.extend(parser.finish());
        }
        let mut text = String::new();
        events.retain(|event| match event {
            ToolEvent::Text(more) => {
                text.push_str(more);
                false
            }
            _ => true,
        });
        self.has_calls |= !events.is_empty();
        (text, events)
    }

    /// The entry that the answer is, once it ends with this token.
    fn entry(&mut self, token: &StreamedToken) -> Option<Entry> {
        let trie = self.settings.catalogue.as_ref()?;
        let (ids, logprob) = &mut self.row;
        ids.push(token.id);
        *logprob += f64::from(token.logprob);
        let reason = token.finish_reason?;
        let of_rest = || match ids.split_first() {
            Some((first, rest)) if Some(*first) == self.settings.forced_first => trie.entry(rest),
            _ => None,
        };
        let entry = (reason == FinishReason::Eos).then(|| trie.entry(ids).or_else(of_rest)).flatten();
        Some(entry.map_or(Entry::Unnamed, |entry| Entry::Named { entry, logprob: *logprob }))
    }
}

impl Piece {
    /// Appends the next piece.
    pub(super) fn extend(&mut self, next: Self) {
        self.text.push_str(&next.text);
        self.reasoning.push_str(&next.reasoning);
        self.reasoning_tokens += next.reasoning_tokens;
        self.calls.extend(next.calls);
        self.has_calls = next.has_calls;
        self.ids.extend(next.ids);
        self.tokens.extend(next.tokens);
        self.finish = next.finish;
        self.stop_reason = next.stop_reason;
        self.entry = next.entry;
    }

    /// Whether there is nothing to send of it: a token that ends within a character adds no text yet.
    pub(super) fn is_silent(&self) -> bool {
        self.text.is_empty()
            && self.reasoning.is_empty()
            && self.calls.is_empty()
            && self.tokens.is_empty()
            && self.finish.is_none()
    }

    /// Leaves out an entry that another answer to the prompt has named.
    pub(super) fn name_once(&mut self, prompt: usize, named: &mut HashSet<(usize, usize)>) {
        if let Some(Entry::Named { entry, .. }) = &self.entry
            && !named.insert((prompt, entry.index))
        {
            self.entry = Some(Entry::Unnamed);
        }
    }
}

/// OpenAI's name of the reason why an answer ended.
fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length | FinishReason::Time => "length",
        _ => "stop",
    }
}
