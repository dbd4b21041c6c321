//! Decodes pieces token by token, as the SentencePiece library and the classes of transformers on it do.
//!
//! Runs of pieces between shown special tokens are decoded separately; transformers puts spaces around added
//! tokens that are not special. One difference: with `legacy`, transformers adds a space before a run if a
//! special token follows, and drops one otherwise. That cannot be known before the text ends, so here a run
//! keeps the space it has.

use std::collections::HashSet;
use std::sync::Arc;

use super::normalizer::SPACE;
use super::processor::Processor;
use super::vocabulary::{PieceKind, byte_of};

/// The decoder. Immutable: a text in progress is a [`PieceState`].
#[derive(Debug)]
pub(crate) struct PieceDecoder {
    pub(super) processor: Arc<Processor>,
    /// The texts of special tokens by name.
    pub(super) special: HashSet<String>,
    /// The texts of other added tokens.
    pub(super) added: HashSet<String>,
    pub(super) rules: Rules,
}

/// What a class does between the runs that the library decodes.
#[derive(Debug)]
pub(super) enum Rules {
    Llama {
        legacy: bool,
        add_prefix_space: bool,
    },
    /// Runs are put together around special tokens; `MarianTokenizer` writes a space after each of these, and
    /// one for every character of a space that is left.
    Runs {
        is_marian: bool,
    },
}

/// The state of a text in progress.
#[derive(Debug, Clone, Default)]
pub(crate) struct PieceState {
    /// Whether text precedes this run, so that a space separates them.
    follows: bool,
    run: Option<Run>,
}

/// Tokens between two added ones.
#[derive(Debug, Clone, Default)]
struct Run {
    num_tokens: usize,
    after_special: bool,
    /// Whether the run has given any text.
    written: bool,
    stretch: Stretch,
}

/// Pieces between two special tokens.
#[derive(Debug, Clone, Default)]
struct Stretch {
    /// The bytes of an incomplete character.
    bytes: Vec<u8>,
    /// Whether a piece has given text or the space at the beginning was dropped: no further space is dropped.
    started: bool,
    keeps_space: bool,
}

impl PieceDecoder {
    /// Takes the next token and emits what is certain.
    pub(crate) fn push(&self, state: &mut PieceState, token: &str, mut emit: impl FnMut(&str)) {
        let (legacy, add_prefix_space) = match self.rules {
            Rules::Llama { legacy, add_prefix_space } => (legacy, add_prefix_space),
            Rules::Runs { is_marian: true } => {
                return self.push_to_run(state, token, |text| emit(&text.replace(SPACE, " ")));
            }
            Rules::Runs { is_marian: false } => return self.push_to_run(state, token, emit),
        };
        if self.added.contains(token) {
            if let Some(mut run) = state.run.take() {
                run.end_stretch(state.follows, &mut emit);
                state.follows |= run.written;
            }
            if state.follows {
                emit(" ");
            }
            emit(token);
            state.follows = true;
            return;
        }
        let follows = state.follows;
        let run = state.run.get_or_insert_default();
        let first = run.num_tokens == 0;
        let token = token.strip_prefix(SPACE).filter(|_| first && add_prefix_space).unwrap_or(token);
        if self.special.contains(token) {
            run.end_stretch(follows, &mut emit);
            run.write(token, follows, &mut emit);
            run.after_special = true;
            run.stretch.keeps_space = legacy;
        } else {
            if run.after_special
                && !legacy
                && run.num_tokens == 1
                && add_prefix_space
                && !token.starts_with(SPACE)
            {
                run.write(" ", follows, &mut emit);
            }
            run.after_special = false;
            self.add_piece(run, token, follows, &mut emit);
        }
        run.num_tokens += 1;
    }

    fn push_to_run(&self, state: &mut PieceState, token: &str, mut emit: impl FnMut(&str)) {
        let run = state.run.get_or_insert_default();
        if self.special.contains(token) {
            run.end_stretch(false, &mut emit);
            emit(token);
            if matches!(self.rules, Rules::Runs { is_marian: true }) {
                emit(" ");
            }
        } else {
            self.add_piece(run, token, false, &mut emit);
        }
    }

    /// Emits what was buffered: no token follows.
    pub(crate) fn finish(state: &mut PieceState, mut emit: impl FnMut(&str)) {
        let Some(run) = &mut state.run else { return };
        run.end_stretch(state.follows, &mut emit);
        // A last run without text is separated too.
        if state.follows && !run.written {
            emit(" ");
        }
    }

    /// The most bytes that the text of a token of this length has: spaces around it, or the text of the
    /// unknown piece.
    pub(crate) fn longest(&self, bytes: usize) -> usize {
        bytes.max(self.processor.unknown_surface.len()).saturating_add(2)
    }

    /// The bytes that a token adds in the middle of a text.
    pub(crate) fn bytes(&self, token: &str) -> Vec<u8> {
        if self.special.contains(token) || self.added.contains(token) {
            return token.as_bytes().to_vec();
        }
        match self.processor.vocabulary.kind_of(token) {
            PieceKind::Byte => byte_of(token).into_iter().collect(),
            PieceKind::Control => Vec::new(),
            PieceKind::Unknown if !matches!(self.rules, Rules::Runs { is_marian: true }) => {
                self.unknown(token).as_bytes().to_vec()
            }
            _ => token.replace(SPACE, " ").into_bytes(),
        }
    }

    fn add_piece(&self, run: &mut Run, token: &str, follows: bool, emit: &mut impl FnMut(&str)) {
        let kind = self.processor.vocabulary.kind_of(token);
        if kind == PieceKind::Byte {
            run.stretch.bytes.extend(byte_of(token));
            run.stretch.started = true;
            let text = take_characters(&mut run.stretch.bytes, false);
            return run.write(&text, follows, emit);
        }
        run.end_bytes(follows, emit);
        let normalizer = &self.processor.normalizer;
        let adds_prefix =
            normalizer.add_dummy_prefix && !matches!(self.rules, Rules::Llama { legacy: false, .. });
        let drops = !run.stretch.started
            && !run.stretch.keeps_space
            && (adds_prefix || normalizer.remove_extra_whitespaces);
        match kind {
            PieceKind::Control => {}
            PieceKind::Unknown => {
                let text = self.unknown(token);
                run.stretch.started |= !text.is_empty();
                run.write(text, follows, emit);
            }
            _ => {
                let rest = token.strip_prefix(SPACE).filter(|_| drops);
                // If extra spaces are removed, drops every space before the text, else only the first.
                run.stretch.started |= rest.is_some() && !normalizer.remove_extra_whitespaces;
                let text = rest.unwrap_or(token).replace(SPACE, " ");
                run.stretch.started |= !text.is_empty();
                run.write(&text, follows, emit);
            }
        }
    }

    /// The text of a piece. The unknown piece has its own; a token that is not a piece is its own text.
    fn unknown<'a>(&'a self, token: &'a str) -> &'a str {
        let vocabulary = &self.processor.vocabulary;
        if vocabulary.text(vocabulary.unknown) == token { &self.processor.unknown_surface } else { token }
    }
}

impl Run {
    /// Emits text of the run, separated from the text before it.
    fn write(&mut self, text: &str, follows: bool, emit: &mut impl FnMut(&str)) {
        if text.is_empty() {
            return;
        }
        if follows && !self.written {
            emit(" ");
        }
        self.written = true;
        emit(text);
    }

    /// Half a character is written as U+FFFD for each byte.
    fn end_bytes(&mut self, follows: bool, emit: &mut impl FnMut(&str)) {
        let text = take_characters(&mut self.stretch.bytes, true);
        self.write(&text, follows, emit);
    }

    fn end_stretch(&mut self, follows: bool, emit: &mut impl FnMut(&str)) {
        self.end_bytes(follows, emit);
        self.stretch = Stretch::default();
    }
}

/// Removes characters from the beginning, U+FFFD for each invalid byte; half a character stays, unless
/// `last`.
fn take_characters(bytes: &mut Vec<u8>, last: bool) -> String {
    let mut text = String::new();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let (valid, taken) = match str::from_utf8(rest) {
            Ok(valid) => (valid, rest.len()),
            Err(error) => {
                let valid = str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default();
                if error.error_len().is_none() && !last {
                    text.push_str(valid);
                    rest = &rest[valid.len()..];
                    break;
                }
                (valid, valid.len() + 1)
            }
        };
        text.push_str(valid);
        if valid.len() < taken {
            text.push('\u{fffd}');
        }
        rest = &rest[taken..];
    }
    let kept = rest.len();
    bytes.drain(..bytes.len() - kept);
    text
}
