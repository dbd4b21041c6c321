//! An answer that is several messages, each with a head that says who is spoken to: harmony, as gpt-oss writes it.
//!
//! The head of a message goes from `<|start|>` or `<|channel|>` to `<|message|>`, its text to `<|end|>`,
//! `<|return|>` or `<|call|>`. The prompt ends with `<|start|>assistant`, so an answer begins within a head.

use super::{Parts, Reader, Trimmed};
use crate::tool_calls::partial;

/// The longest head, in bytes.
const MAX_HEAD: usize = 512;

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const ENDS: [&str; 3] = ["<|end|>", "<|return|>", "<|call|>"];
/// What ends the text of a message; the last two when its own end is missing.
const BOUNDS: [&str; 5] = [ENDS[0], ENDS[1], ENDS[2], START, CHANNEL];
/// What the rest of a head that the prompt has begun may begin with.
const RECIPIENT: &str = "to=";
/// The functions of the request among all that can be spoken to.
const FUNCTIONS: &str = "functions.";

/// Reads messages: analysis is thinking, and all others are the answer. Calls are written anew, all in one way.
pub(super) struct Messages {
    place: Place,
    reasoning: Trimmed,
    /// Whether an answer was there before, which the next one stands below.
    has_answer: bool,
    /// Whether anything was there before.
    has_begun: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a head.
    Head,
    Text(Kind),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    /// An answer, and whether it has begun.
    Answer(bool),
    Call,
}

impl Messages {
    pub(super) fn new(is_open: bool) -> Self {
        let place = if is_open { Place::Text(Kind::Reasoning) } else { Place::Head };
        Self { place, reasoning: Trimmed::default(), has_answer: false, has_begun: is_open }
    }

    /// Hands over a piece of a message's text.
    fn say(&mut self, kind: Kind, text: &str, parts: &mut Parts) {
        match kind {
            Kind::Reasoning => self.reasoning.say(text, parts),
            Kind::Answer(false) if !text.is_empty() => {
                if self.has_answer {
                    parts.answer("\n");
                }
                parts.answer(text);
                (self.has_answer, self.place) = (true, Place::Text(Kind::Answer(true)));
            }
            Kind::Answer(_) | Kind::Call => parts.answer(text),
        }
    }

    /// Reads a head, and returns its bytes; `None` when it is not whole.
    fn read_head(&mut self, text: &str, ends: bool, parts: &mut Parts) -> Option<usize> {
        let letters = text.trim_start();
        let space = text.len() - letters.len();
        if let Some(mark) = ENDS.iter().find(|mark| letters.starts_with(**mark)) {
            self.has_begun = true;
            return Some(space + mark.len());
        }
        let begins = |mark: &&str| letters.starts_with(*mark);
        let may_come = |mark: &&str| mark.len() > letters.len() && mark.starts_with(letters);
        let marks = [START, CHANNEL, MESSAGE, RECIPIENT];
        if marks.iter().any(begins) {
            if let Some(len) = letters.find(MESSAGE).filter(|&len| len <= MAX_HEAD) {
                self.begin(&letters[..len], parts);
                return Some(space + len + MESSAGE.len());
            }
            let is_long = letters.len() >= MAX_HEAD + MESSAGE.len();
            if !is_long && !ends {
                return None;
            }
            if !is_long && !begins(&RECIPIENT) {
                // It was cut off within a head.
                return Some(text.len());
            }
        } else if !ends && marks.iter().chain(&ENDS).any(may_come) {
            return None;
        } else if letters.is_empty() && self.has_begun {
            return Some(text.len());
        }
        // No head at all: it is said as it is.
        self.place = Place::Text(Kind::Answer(false));
        self.has_begun = true;
        // At least a letter, so that a mark here does not begin it again.
        let len = space + letters.chars().next().map_or(0, char::len_utf8);
        self.say(Kind::Answer(false), &text[..len], parts);
        Some(len)
    }

    /// Begins a message.
    fn begin(&mut self, head: &str, parts: &mut Parts) {
        let word = |after: &str| {
            let rest = head.split_once(after)?.1;
            rest.split(|letter: char| letter.is_whitespace() || letter == '<').next()
        };
        let channel = word(CHANNEL).unwrap_or_default();
        let kind = match word(RECIPIENT).and_then(|recipient| recipient.strip_prefix(FUNCTIONS)) {
            Some(name) => {
                parts.answer(&format!("{CHANNEL}commentary {RECIPIENT}{FUNCTIONS}{name}{MESSAGE}"));
                Kind::Call
            }
            None if channel.starts_with("analysis") => {
                self.reasoning.next();
                Kind::Reasoning
            }
            None => Kind::Answer(false),
        };
        (self.place, self.has_begun) = (Place::Text(kind), true);
    }
}

impl Reader for Messages {
    fn read(&mut self, text: &str, ends: bool, parts: &mut Parts) -> usize {
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let Place::Text(kind) = self.place else {
                match self.read_head(rest, ends, parts) {
                    Some(len) => at += len,
                    None => return at,
                }
                continue;
            };
            let found = BOUNDS.iter().filter_map(|mark| Some((rest.find(mark)?, *mark))).min();
            let Some((end, mark)) = found else {
                let held = if ends { 0 } else { partial(rest, &BOUNDS) };
                self.say(kind, &rest[..rest.len() - held], parts);
                return text.len() - held;
            };
            self.say(kind, &rest[..end], parts);
            at += end;
            if ENDS.contains(&mark) {
                at += mark.len();
            }
            if kind == Kind::Call {
                parts.answer(ENDS[2]);
            }
            self.place = Place::Head;
        }
        at
    }

    fn is_reasoning(&self) -> bool {
        self.place == Place::Text(Kind::Reasoning)
    }
}
