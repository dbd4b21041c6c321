//! Thinking between two marks, at the beginning of a text.

use super::{Parts, Reader, Trimmed};
use crate::tool_calls::partial;

/// Reads thinking up to a mark. A text that does not begin with thinking is all answer, whatever marks come later.
pub(super) struct Marked {
    begins: &'static [&'static str],
    ends: &'static [&'static str],
    place: Place,
    reasoning: Trimmed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before anything; a mark may come. Within thinking that the prompt has begun it is there a second time.
    Start {
        is_open: bool,
        /// Whether the first letters of one are there.
        has_begun: bool,
    },
    Inside,
    /// After the end of thinking, before the first letter of the answer.
    Gap,
    Answer,
}

impl Marked {
    pub(super) fn new(begins: &'static [&'static str], ends: &'static [&'static str], is_open: bool) -> Self {
        Self {
            begins,
            ends,
            place: Place::Start { is_open, has_begun: false },
            reasoning: Trimmed::default(),
        }
    }
}

impl Reader for Marked {
    fn read(&mut self, text: &str, ends: bool, parts: &mut Parts) -> usize {
        let mut at = 0;
        loop {
            let rest = &text[at..];
            match self.place {
                Place::Start { is_open, .. } => {
                    let letters = rest.trim_start();
                    let space = rest.len() - letters.len();
                    let may_come = |mark: &&str| mark.len() > letters.len() && mark.starts_with(letters);
                    if let Some(mark) = self.begins.iter().find(|mark| letters.starts_with(**mark)) {
                        at += space + mark.len();
                        self.place = Place::Inside;
                    } else if !ends && self.begins.iter().any(may_come) {
                        self.place = Place::Start { is_open, has_begun: !letters.is_empty() };
                        return at;
                    } else {
                        self.place = if is_open { Place::Inside } else { Place::Answer };
                    }
                }
                Place::Inside => {
                    let found = self.ends.iter().filter_map(|mark| Some((rest.find(mark)?, mark.len())));
                    if let Some((end, len)) = found.min() {
                        self.reasoning.say(&rest[..end], parts);
                        at += end + len;
                        self.place = Place::Gap;
                    } else {
                        let held = if ends { 0 } else { partial(rest, self.ends) };
                        self.reasoning.say(&rest[..rest.len() - held], parts);
                        return text.len() - held;
                    }
                }
                Place::Gap => {
                    let letters = rest.trim_start();
                    at = text.len() - letters.len();
                    if letters.is_empty() {
                        return at;
                    }
                    self.place = Place::Answer;
                }
                Place::Answer => {
                    parts.answer(rest);
                    return text.len();
                }
            }
        }
    }

    fn is_reasoning(&self) -> bool {
        match self.place {
            Place::Start { is_open, has_begun } => is_open || has_begun,
            place => place == Place::Inside,
        }
    }
}
