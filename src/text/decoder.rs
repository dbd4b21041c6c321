//! The `decoder` section of a tokenizer.json as a chain of stages that works token by token.
//!
//! The `tokenizers` crate decodes a whole list of tokens at once. Decoding the last few again for each new token is
//! not exact (the last byte of a run of byte tokens can change its whole text). So each stage is a state machine that
//! emits the text that no later token can change and buffers the rest. Whole texts are decoded in the same way; tests
//! compare them with the crate. Speech decoders (CTC) and orders of stages that would need the whole text are an
//! error when the tokenizer is loaded.

use clean_up::{clean_up, last_safe_cut};
use serde_json::Value;
use tokenizers::Decoder as _;
use tokenizers::decoders::wordpiece::cleanup;
use tokenizers::normalizers::replace::{Replace, ReplacePattern};

use super::sentencepiece::{PieceDecoder, PieceState};
use crate::error::{Error, Result};

mod clean_up;

/// The most stages, more than any tokenizer has; each is one level of recursion.
const MAX_STAGES: usize = 64;
/// The longest pattern or replacement of a stage.
const MAX_PATTERN_BYTES: usize = 1024;
/// The length of U+FFFD.
const REPLACEMENT_BYTES: usize = '\u{fffd}'.len_utf8();

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
    ReplaceRegex(Replace),
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
                Kind::ReplaceRegex(replace) => replace_regex(replace, &text),
                Kind::Strip { content, start, stop } if !stage.fused => {
                    strip(&text, *content, *start, *stop).to_owned()
                }
                Kind::Strip { .. } | Kind::CleanUp => text,
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
                let text = take_text(&mut state.bytes, false);
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
            Kind::ReplaceRegex(replace) => emit(&replace_regex(replace, token)),
            Kind::Strip { content, start, stop } if self.fused => {
                let mut held = state.text.take().unwrap_or_default();
                held.push_str(strip_start(state, token, *content, *start));
                let trailing = held.chars().rev().take(*stop).take_while(|char| char == content).count();
                let kept = held.split_off(held.len() - trailing * content.len_utf8());
                emit(&held);
                state.text = Some(kept);
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
            Kind::CleanUp => {
                let mut held = state.text.take().unwrap_or_default();
                held.push_str(token);
                let kept = held.split_off(last_safe_cut(&held));
                emit(&clean_up(&held));
                state.text = Some(kept);
            }
        }
        if !matches!(self.kind, Kind::Strip { .. }) {
            state.started = true;
        }
    }

    /// Emits what was buffered: no token follows.
    fn finish(&self, state: &mut StageState, mut emit: impl FnMut(&str)) {
        match &self.kind {
            Kind::ByteLevel => emit(&take_text(&mut state.bytes, true)),
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
            // `Strip` buffers only the end that it strips.
            Kind::Strip { .. }
            | Kind::ReplaceRegex(_)
            | Kind::Metaspace { .. }
            | Kind::WordPiece { .. }
            | Kind::Spaced => {}
        }
    }

    /// The most bytes that the stage makes of so many.
    fn longest(&self, bytes: usize) -> usize {
        let growth = match &self.kind {
            // U+FFFD for each byte.
            Kind::ByteLevel => REPLACEMENT_BYTES,
            Kind::Replace { pattern, content } => content.len().div_ceil(pattern.len()),
            Kind::ReplaceRegex(replace) => replace.content.len(),
            // A space before each character, and at the end.
            Kind::EndOfWord { suffix } if suffix.is_empty() => 2,
            Kind::Pieces(pieces) => return pieces.longest(bytes),
            _ => 1,
        };
        bytes.saturating_mul(growth.max(1)).saturating_add(1)
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

fn add_stages(decoder: &Value, stages: &mut Vec<Stage>, fused: &mut bool) -> Result<()> {
    let name = decoder["type"].as_str().unwrap_or_default();
    let text = |field: &str| -> Result<String> {
        match decoder[field].as_str() {
            Some(text) if text.len() <= MAX_PATTERN_BYTES => Ok(text.to_owned()),
            Some(text) => Err(unusable(
                name,
                &format!("`{field}` may have at most {MAX_PATTERN_BYTES} bytes, found {}", text.len()),
            )),
            None => Err(unusable(name, &format!("`{field}` must be a string, found {}", decoder[field]))),
        }
    };
    let character = |field: &str| -> Result<char> {
        text(field)?.chars().next().ok_or_else(|| unusable(name, &format!("`{field}` must be one character")))
    };
    let count = |field: &str| usize::try_from(decoder[field].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let kind = match name {
        "Sequence" => {
            for part in decoder["decoders"].as_array().into_iter().flatten() {
                add_stages(part, stages, fused)?;
            }
            return Ok(());
        }
        "Fuse" => {
            *fused = true;
            return Ok(());
        }
        "ByteLevel" => Kind::ByteLevel,
        "ByteFallback" => Kind::ByteFallback,
        "Replace" => match (decoder["pattern"]["String"].as_str(), decoder["pattern"]["Regex"].as_str()) {
            (Some(pattern), _) if !pattern.is_empty() && pattern.len() <= MAX_PATTERN_BYTES => {
                Kind::Replace { pattern: pattern.to_owned(), content: text("content")? }
            }
            (_, Some(pattern)) => {
                let replace = Replace::new(ReplacePattern::Regex(pattern.to_owned()), text("content")?)
                    .map_err(|error| {
                        unusable(name, "the regular expression is not valid").with_source(error)
                    })?;
                Kind::ReplaceRegex(replace)
            }
            _ => return Err(unusable(name, "`pattern` must be a short text or a regular expression")),
        },
        "Strip" => Kind::Strip { content: character("content")?, start: count("start"), stop: count("stop") },
        "Metaspace" => Kind::Metaspace {
            replacement: character("replacement")?,
            drop_in_first: decoder["prepend_scheme"].as_str() != Some("never"),
        },
        "WordPiece" => {
            Kind::WordPiece { prefix: text("prefix")?, cleanup: decoder["cleanup"].as_bool().unwrap_or(true) }
        }
        "BPEDecoder" => Kind::EndOfWord { suffix: text("suffix")? },
        _ => return Err(unusable(name, "this kind cannot be used to generate text")),
    };
    let needs_tokens = matches!(
        kind,
        Kind::ByteLevel
            | Kind::ByteFallback
            | Kind::ReplaceRegex(_)
            | Kind::WordPiece { .. }
            | Kind::EndOfWord { .. }
    );
    if *fused && needs_tokens {
        return Err(unusable(name, "it must come before the stage that joins the tokens"));
    }
    if stages.len() == MAX_STAGES {
        return Err(unusable(name, &format!("a decoder may have at most {MAX_STAGES} stages")));
    }
    let joins = matches!(kind, Kind::ByteLevel);
    stages.push(Stage { kind, fused: *fused });
    *fused |= joins;
    Ok(())
}

fn unusable(name: &str, rule: &str) -> Error {
    Error::load(format!("tokenizer.json: decoder {name:?}: {rule}"))
}

/// The byte that each character below U+0144 stands for in byte-level vocabularies: printable Latin-1 characters
/// stand for themselves, the other bytes follow from U+0100 on, in order.
const BYTE_OF_CHAR: [Option<u8>; 0x144] = {
    let mut table = [None; 0x144];
    let mut next = 0x100;
    let mut byte = 0_usize;
    while byte < 256 {
        if matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) {
            table[byte] = Some(byte as u8);
        } else {
            table[next] = Some(byte as u8);
            next += 1;
        }
        byte += 1;
    }
    table
};

/// A token with a character that stands for no byte is its own text.
fn byte_level_bytes(token: &str) -> Vec<u8> {
    let byte = |char: char| BYTE_OF_CHAR.get(char as usize).copied().flatten();
    token.chars().map(byte).collect::<Option<Vec<u8>>>().unwrap_or_else(|| token.as_bytes().to_vec())
}

fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

fn emit_byte_run(run: &mut Vec<u8>, emit: &mut impl FnMut(&str)) {
    match str::from_utf8(run) {
        Ok("") => {}
        Ok(text) => emit(text),
        Err(_) => (0..run.len()).for_each(|_| emit("\u{fffd}")),
    }
    run.clear();
}

/// Removes the text at the start of `bytes` and returns it, invalid parts as U+FFFD. A character that may still be
/// completed stays, unless `last`.
fn take_text(bytes: &mut Vec<u8>, last: bool) -> String {
    let mut text = String::new();
    let mut taken = 0;
    while taken < bytes.len() {
        match str::from_utf8(&bytes[taken..]) {
            Ok(valid) => {
                text.push_str(valid);
                taken = bytes.len();
            }
            Err(error) => {
                let valid = &bytes[taken..taken + error.valid_up_to()];
                text.push_str(&String::from_utf8_lossy(valid));
                taken += valid.len();
                match error.error_len() {
                    Some(length) => taken += length,
                    None if last => taken = bytes.len(),
                    None => break,
                }
                text.push('\u{fffd}');
            }
        }
    }
    bytes.drain(..taken);
    text
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

fn replace_regex(replace: &Replace, token: &str) -> String {
    let replaced = replace.decode_chain(vec![token.to_owned()]);
    replaced.ok().and_then(|mut texts| texts.pop()).unwrap_or_else(|| token.to_owned())
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
