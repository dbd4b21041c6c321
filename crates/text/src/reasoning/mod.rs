//! The thinking of a model in the text of an answer: models write it before what they say, each in a form of its
//! own, and here the two are told apart while the text comes.
//!
//! `forms` is the table of forms, `marked` reads thinking between two marks, and `messages` answers that are
//! several messages. Calls of tools stay in the answer, where a [`ToolParser`](crate::ToolParser) finds them.

mod forms;
mod marked;
mod messages;

#[cfg(test)]
mod tests;

pub use forms::ReasoningForm;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningEvent {
    /// Thinking.
    Reasoning(String),
    /// What is said.
    Answer(String),
}

/// Tells thinking from the answer in a text that comes in pieces. Where it is cut changes neither.
///
/// ```
/// use rsgen_text::{ReasoningForm, ReasoningParser};
///
/// let form = ReasoningForm::named("qwen3")?.unwrap();
/// let whole = ReasoningParser::new(form, false).parse("<think>\nTwo and two.\n</think>\n\nFour.");
/// assert_eq!(whole, ("Two and two.".to_owned(), "Four.".to_owned()));
/// // Many templates begin the thinking in the prompt.
/// let whole = ReasoningParser::new(form, true).parse("Two and two.\n</think>\n\nFour.");
/// assert_eq!(whole, ("Two and two.".to_owned(), "Four.".to_owned()));
/// # Ok::<(), rsgen_core::error::Error>(())
/// ```
pub struct ReasoningParser {
    /// Text that is not read yet.
    held: String,
    reader: Box<dyn Reader>,
    /// Whether the last text was thinking.
    is_reasoning: bool,
}

impl std::fmt::Debug for ReasoningParser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReasoningParser").finish_non_exhaustive()
    }
}

/// Reads the text of a form.
trait Reader: Send {
    /// Reads on, and returns the bytes that it needs no more. `ends` says that no more text comes.
    fn read(&mut self, text: &str, ends: bool, parts: &mut Parts) -> usize;

    /// Whether what comes next is thinking, as far as one can tell.
    fn is_reasoning(&self) -> bool;
}

impl ReasoningParser {
    /// Before a text in this form. `is_open` says that its prompt has begun the thinking.
    #[must_use]
    pub fn new(form: &'static ReasoningForm, is_open: bool) -> Self {
        let reader = form.reader(is_open);
        Self { held: String::new(), is_reasoning: reader.is_reasoning(), reader }
    }

    /// The thinking and the answer of a whole text.
    #[must_use]
    pub fn parse(mut self, text: &str) -> (String, String) {
        self.split(text, true)
    }

    /// The thinking and the answer in the next piece of a text, as far as they are certain now; all of the rest where
    /// the text ends.
    pub fn split(&mut self, text: &str, ends: bool) -> (String, String) {
        let mut events = self.push(text);
        if ends {
            events.extend(self.finish());
        }
        let (mut reasoning, mut answer) = (String::new(), String::new());
        for event in events {
            match event {
                ReasoningEvent::Reasoning(text) => reasoning.push_str(&text),
                ReasoningEvent::Answer(text) => answer.push_str(&text),
            }
        }
        (reasoning, answer)
    }

    /// Reads the next piece of a text, and returns what is certain now.
    pub fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        self.held.push_str(text);
        self.read(false)
    }

    /// Returns the rest: the text ends here.
    pub fn finish(&mut self) -> Vec<ReasoningEvent> {
        self.read(true)
    }

    /// Whether the text is within thinking, where it stands now.
    #[must_use]
    pub fn is_reasoning(&self) -> bool {
        self.is_reasoning
    }

    fn read(&mut self, ends: bool) -> Vec<ReasoningEvent> {
        let mut parts = Parts::default();
        let len = self.reader.read(&self.held, ends, &mut parts);
        self.held.drain(..len);
        self.is_reasoning = self.reader.is_reasoning();
        parts.0
    }
}

/// What was found, in order.
#[derive(Default)]
struct Parts(Vec<ReasoningEvent>);

impl Parts {
    fn reasoning(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(ReasoningEvent::Reasoning(before)) => before.push_str(text),
            _ => self.0.push(ReasoningEvent::Reasoning(text.to_owned())),
        }
    }

    fn answer(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(ReasoningEvent::Answer(before)) => before.push_str(text),
            _ => self.0.push(ReasoningEvent::Answer(text.to_owned())),
        }
    }
}

/// Thinking without the spaces around it.
#[derive(Default)]
struct Trimmed {
    has_begun: bool,
    /// The spaces since the last letter.
    gap: String,
}

impl Trimmed {
    fn say(&mut self, text: &str, parts: &mut Parts) {
        let text = if self.has_begun { text } else { text.trim_start() };
        let letters = text.trim_end();
        if letters.is_empty() {
            self.gap.push_str(text);
            return;
        }
        self.has_begun = true;
        parts.reasoning(&std::mem::take(&mut self.gap));
        parts.reasoning(letters);
        text[letters.len()..].clone_into(&mut self.gap);
    }

    /// Goes on with other thinking on a line of its own.
    fn next(&mut self) {
        if self.has_begun {
            "\n".clone_into(&mut self.gap);
        }
    }
}
