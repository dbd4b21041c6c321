//! The `decoder` section of a tokenizer.json as a chain of stages that works token by token.
//!
//! The `tokenizers` crate decodes a whole list of tokens at once. Decoding the last few again for each new
//! token is not exact (the last byte of a run of byte tokens can change its whole text). So each stage is a
//! state machine that emits the text that no later token can change and buffers the rest. Whole texts are
//! decoded in the same way; tests compare them with the crate. Speech decoders (CTC) and orders of stages
//! that would need the whole text are an error when the tokenizer is loaded.

use std::collections::HashSet;

use bytes::{byte_level_bytes, character_bytes, emit_byte_run, fallback_byte, take_text};
use clean_up::{clean_up, last_safe_cut};
use serde_json::Value;
use stages::add_stages;
use tokenizers::decoders::wordpiece::cleanup;

use super::expression::Expression;
use super::sentencepiece::{PieceDecoder, PieceState, is_space};
use rsgen_core::error::{Error, Result};

mod bytes;
mod clean_up;
mod stages;

/// The greatest factor by which all stages may lengthen a token.
const MAX_GROWTH: usize = 16;
/// What stands for invalid bytes.
const REPLACEMENT: &str = "\u{fffd}";

/// The decoder of a tokenizer. Immutable: the state of a text in progress is a [`DecoderState`].
#[derive(Debug)]
pub(super) struct Decoder {
    stages: Vec<Stage>,
}

/// The state of a text in progress: what the stages buffer.
#[derive(Debug, Clone)]
pub(super) struct DecoderState(Vec<StageState>);

#[derive(Debug)]
struct Stage {
    kind: Kind,
    /// An earlier stage joins all tokens into one, so the input is pieces of a single long token.
    fused: bool,
}

#[derive(Debug)]
enum Kind {
    /// Characters stand for bytes, as in GPT-2; joins all tokens.
    ByteLevel,
    /// Tokens `<0xNN>` are bytes; a run of them is text if the whole run is UTF-8, else U+FFFD for each byte.
    ByteFallback,
    Replace {
        pattern: String,
        content: String,
    },
    ReplaceRegex {
        pattern: Expression,
        content: String,
    },
    Strip {
        content: char,
        start: usize,
        stop: usize,
    },
    Metaspace {
        replacement: char,
        drop_in_first: bool,
    },
    WordPiece {
        prefix: String,
        cleanup: bool,
    },
    EndOfWord {
        suffix: String,
    },
    /// No decoder at all: tokens with spaces between.
    Spaced,
    /// A SentencePiece model; joins all tokens.
    Pieces(PieceDecoder),
    /// Each character is a byte, but for added tokens of these texts; joins all tokens. Invalid bytes are
    /// dropped.
    Bytes(HashSet<String>),
    /// Python's `strip()`, of the joined text.
    Trim,
    /// `clean_up_tokenization_spaces` of transformers.
    CleanUp,
}

#[derive(Debug, Clone, Default)]
struct StageState {
    /// Whether a token, or for `Strip` a character that stays, has been seen.
    started: bool,
    /// The number of characters that `Strip` has removed from the start.
    stripped: usize,
    /// Bytes that are not yet text.
    bytes: Vec<u8>,
    /// Text that a later token can still change; `None` before the first token.
    text: Option<String>,
    pieces: PieceState,
}

impl Decoder {
    /// Reads the `decoder` section; `clean_up` adds transformers' `clean_up_tokenization_spaces`.
    pub(super) fn from_json(decoder: &Value, clean_up: bool) -> Result<Self> {
        let mut stages = Vec::new();
        let mut fused = false;
        if decoder.is_null() {
            stages.push(Stage { kind: Kind::Spaced, fused });
        } else {
            add_stages(decoder, &mut stages, &mut fused)?;
        }
        let growth = stages.iter().fold(1, |growth: usize, stage| growth.saturating_mul(stage.growth()));
        if growth > MAX_GROWTH {
            return Err(Error::load(format!(
                "tokenizer.json: its decoder may make a text at most {MAX_GROWTH} times longer, found {growth}; shorten \
                 what it puts in"
            )));
        }
        if clean_up {
            stages.push(Stage { kind: Kind::CleanUp, fused: true });
        }
        Ok(Self { stages })
    }

    /// The decoder of a SentencePiece model.
    pub(super) fn of_pieces(pieces: PieceDecoder, clean_up: bool) -> Self {
        let mut stages = vec![Stage { kind: Kind::Pieces(pieces), fused: false }];
        if clean_up {
            stages.push(Stage { kind: Kind::CleanUp, fused: true });
        }
        Self { stages }
    }

    /// Without white space at both ends of a text, before it is cleaned up.
    pub(super) fn trimmed(mut self) -> Self {
        self.stages.insert(1, Stage { kind: Kind::Trim, fused: true });
        self
    }

    /// The decoder of a tokenizer whose tokens are bytes, and of its added tokens.
    pub(super) fn of_bytes(added: impl Iterator<Item = String>, clean_up: bool) -> Self {
        let mut stages = vec![Stage { kind: Kind::Bytes(added.collect()), fused: false }];
        if clean_up {
            stages.push(Stage { kind: Kind::CleanUp, fused: true });
        }
        Self { stages }
    }

    /// The state before the first token.
    pub(super) fn start(&self) -> DecoderState {
        DecoderState(vec![StageState::default(); self.stages.len()])
    }

    /// Takes the next token and appends to `out` what is now certain.
    pub(super) fn push(&self, state: &mut DecoderState, token: &str, out: &mut String) {
        feed(&self.stages, &mut state.0, token, out);
    }

    /// Ends the text: appends to `out` what was buffered.
    pub(super) fn finish(&self, mut state: DecoderState, out: &mut String) {
        let mut states = state.0.as_mut_slice();
        let mut stages = self.stages.as_slice();
        while let ([stage, later @ ..], [first, rest @ ..]) = (stages, states) {
            stage.finish(first, |piece| feed(later, rest, piece, out));
            (stages, states) = (later, rest);
        }
    }

    /// The most bytes that the text of a token of this length has.
    pub(super) fn longest(&self, bytes: usize) -> usize {
        self.stages.iter().fold(bytes, |bytes, stage| stage.longest(bytes))
    }

    /// The bytes that a token adds in the middle of a text.
    pub(super) fn bytes(&self, token: &str) -> Vec<u8> {
        let mut text = token.to_owned();
        for stage in &self.stages {
            text = match &stage.kind {
                Kind::ByteLevel => return byte_level_bytes(&text),
                Kind::Pieces(pieces) => return pieces.bytes(&text),
                Kind::ByteFallback => match fallback_byte(&text) {
                    Some(byte) => return vec![byte],
                    None => text,
                },
                Kind::Metaspace { replacement, drop_in_first: true } if stage.fused => {
                    text.replace(*replacement, "")
                }
                Kind::Metaspace { replacement, .. } => text.replace(*replacement, " "),
                Kind::WordPiece { .. } | Kind::Spaced => stage.later_token(&text),
                Kind::EndOfWord { suffix } => text.replace(suffix.as_str(), " "),
                Kind::Replace { pattern, content } => text.replace(pattern.as_str(), content),
                Kind::ReplaceRegex { pattern, content } => replace_regex(pattern, content, &text),
                Kind::Strip { content, start, stop } if !stage.fused => {
                    strip(&text, *content, *start, *stop).to_owned()
                }
                Kind::Bytes(added) => return character_bytes(&text, added),
                Kind::Strip { .. } | Kind::Trim | Kind::CleanUp => text,
            };
        }
        text.into_bytes()
    }
}

impl Stage {
    /// Takes one token, or one piece of the joined token, and emits what is certain.
    fn push(&self, state: &mut StageState, token: &str, mut emit: impl FnMut(&str)) {
        match &self.kind {
            Kind::ByteLevel => {
                state.bytes.extend(byte_level_bytes(token));
                let text = take_text(&mut state.bytes, false, REPLACEMENT);
                emit(&text);
            }
            Kind::ByteFallback => {
                if let Some(byte) = fallback_byte(token) {
                    state.bytes.push(byte);
                } else {
                    emit_byte_run(&mut state.bytes, &mut emit);
                    emit(token);
                }
            }
            Kind::Replace { pattern, content } if self.fused => {
                let mut held = state.text.take().unwrap_or_default();
                held.push_str(token);
                let (text, kept) = replace_certain(&held, pattern, content);
                emit(&text);
                state.text = Some(kept.to_owned());
            }
            Kind::Replace { pattern, content } => emit(&token.replace(pattern.as_str(), content)),
            Kind::ReplaceRegex { pattern, content } => emit(&replace_regex(pattern, content, token)),
            Kind::Strip { content, start, stop } if self.fused => {
                let piece = strip_start(state, token, *content, *start);
                let rest = piece.trim_end_matches(*content);
                let held = state.text.get_or_insert_default();
                if !rest.is_empty() {
                    emit(held);
                    emit(rest);
                    held.clear();
                }
                held.push_str(&piece[rest.len()..]);
                // It holds nothing but what may be stripped.
                let most = stop.saturating_mul(content.len_utf8());
                if held.len() > most {
                    emit(&held[most..]);
                    held.truncate(most);
                }
            }
            Kind::Strip { content, start, stop } => emit(strip(token, *content, *start, *stop)),
            Kind::Metaspace { replacement, drop_in_first } => {
                let first = self.fused || !state.started;
                let with = if first && *drop_in_first { "" } else { " " };
                emit(&token.replace(*replacement, with));
            }
            Kind::WordPiece { cleanup: wanted, .. } => {
                if state.started {
                    emit(&self.later_token(token));
                } else if *wanted {
                    emit(&cleanup(token));
                } else {
                    emit(token);
                }
            }
            Kind::EndOfWord { suffix } => {
                if let Some(held) = state.text.replace(token.to_owned()) {
                    emit(&held.replace(suffix.as_str(), " "));
                }
            }
            Kind::Spaced if state.started => emit(&self.later_token(token)),
            Kind::Spaced => emit(token),
            Kind::Pieces(pieces) => pieces.push(&mut state.pieces, token, emit),
            Kind::Bytes(added) => {
                state.bytes.extend(character_bytes(token, added));
                let text = take_text(&mut state.bytes, false, "");
                emit(&text);
            }
            Kind::Trim => {
                let token = if state.text.is_none() { token.trim_start_matches(is_space) } else { token };
                let rest = token.trim_end_matches(is_space);
                if !rest.is_empty() {
                    emit(&state.text.take().unwrap_or_default());
                    emit(rest);
                    state.text = Some(String::new());
                }
                if let Some(held) = &mut state.text {
                    held.push_str(&token[rest.len()..]);
                }
            }
            Kind::CleanUp => {
                let held = state.text.get_or_insert_default();
                // What is held has no safe cut behind its first character.
                let last = held.chars().next_back().map_or(0, char::len_utf8);
                let new = held.len() - last;
                held.push_str(token);
                let cut = last_safe_cut(&held[new..]);
                if cut > 0 {
                    let kept = held.split_off(new + cut);
                    emit(&clean_up(held));
                    *held = kept;
                }
            }
        }
        if !matches!(self.kind, Kind::Strip { .. }) {
            state.started = true;
        }
    }

    /// Emits what was buffered: no token follows.
    fn finish(&self, state: &mut StageState, mut emit: impl FnMut(&str)) {
        match &self.kind {
            Kind::ByteLevel => emit(&take_text(&mut state.bytes, true, REPLACEMENT)),
            Kind::ByteFallback => emit_byte_run(&mut state.bytes, &mut emit),
            Kind::Pieces(_) => PieceDecoder::finish(&mut state.pieces, emit),
            Kind::EndOfWord { suffix } => {
                if let Some(held) = state.text.take() {
                    emit(&held.replace(suffix.as_str(), ""));
                }
            }
            Kind::Replace { .. } => {
                if let Some(held) = state.text.take() {
                    emit(&held);
                }
            }
            Kind::CleanUp => {
                if let Some(held) = state.text.take() {
                    emit(&clean_up(&held));
                }
            }
            // These buffer only what they leave out.
            Kind::Strip { .. }
            | Kind::Trim
            | Kind::Bytes(_)
            | Kind::ReplaceRegex { .. }
            | Kind::Metaspace { .. }
            | Kind::WordPiece { .. }
            | Kind::Spaced => {}
        }
    }

    /// The factor by which the stage can lengthen a token, besides a space before it.
    fn growth(&self) -> usize {
        let growth = match &self.kind {
            // U+FFFD for each byte.
            Kind::ByteLevel => REPLACEMENT.len(),
            Kind::Replace { pattern, content } => content.len().div_ceil(pattern.len()),
            Kind::ReplaceRegex { content, .. } => content.len(),
            // A space before each character, and at the end.
            Kind::EndOfWord { suffix } if suffix.is_empty() => 2,
            _ => 1,
        };
        growth.max(1)
    }

    /// The most bytes that the stage makes of so many.
    fn longest(&self, bytes: usize) -> usize {
        match &self.kind {
            Kind::Pieces(pieces) => pieces.longest(bytes),
            _ => bytes.saturating_mul(self.growth()).saturating_add(1),
        }
    }

    /// Takes a token that is not the first, for the stages that separate words.
    fn later_token(&self, token: &str) -> String {
        let Kind::WordPiece { prefix, cleanup: wanted } = &self.kind else {
            return format!(" {token}");
        };
        let text = token.strip_prefix(prefix.as_str()).map_or_else(|| format!(" {token}"), str::to_owned);
        if *wanted { cleanup(&text) } else { text }
    }
}

/// Sends a token through the stages.
fn feed(stages: &[Stage], states: &mut [StageState], token: &str, out: &mut String) {
    match (stages, states) {
        ([stage, later @ ..], [state, rest @ ..]) => {
            stage.push(state, token, |piece| feed(later, rest, piece, out));
        }
        _ => out.push_str(token),
    }
}

/// Replaces matches in `held`. Also returns the end that may begin another match.
fn replace_certain<'a>(held: &'a str, pattern: &str, content: &str) -> (String, &'a str) {
    let mut text = String::new();
    let mut rest = held;
    while let Some((before, after)) = rest.split_once(pattern) {
        text.push_str(before);
        text.push_str(content);
        rest = after;
    }
    let longest = rest.len().min(pattern.len() - 1);
    let kept = (1..=longest)
        .rev()
        .map(|length| rest.len() - length)
        .find(|&at| rest.is_char_boundary(at) && pattern.starts_with(&rest[at..]))
        .unwrap_or(rest.len());
    text.push_str(&rest[..kept]);
    (text, &rest[kept..])
}

/// A token on which the search takes too long stays as it is.
fn replace_regex(pattern: &Expression, content: &str, token: &str) -> String {
    let parts = pattern.parts(token);
    let text =
        |((start, end), found): ((usize, usize), bool)| if found { content } else { &token[start..end] };
    parts.map_or_else(|_| token.to_owned(), |parts| parts.into_iter().map(text).collect())
}

fn strip(token: &str, content: char, start: usize, stop: usize) -> &str {
    let count = token.chars().take(start).take_while(|&char| char == content).count();
    let token = &token[count * content.len_utf8()..];
    let count = token.chars().rev().take(stop).take_while(|&char| char == content).count();
    &token[..token.len() - count * content.len_utf8()]
}

/// Strips up to `start` characters from the beginning of the whole text, of which `piece` is the next part.
fn strip_start<'a>(state: &mut StageState, piece: &'a str, content: char, start: usize) -> &'a str {
    let mut rest = piece;
    while !state.started && !rest.is_empty() {
        match rest.strip_prefix(content) {
            Some(after) if state.stripped < start => {
                state.stripped += 1;
                rest = after;
            }
            _ => state.started = true,
        }
    }
    rest
}

#[cfg(test)]
mod tests;
