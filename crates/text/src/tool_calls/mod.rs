//! Tool calls in the text of an answer: each model writes them in its own form, and here they are found while
//! the text comes.
//!
//! `forms` is the table of forms, `bodies` reads what stands between their marks, and `grammar` is the
//! opposite: the texts that are calls. What is no call stays text, whatever a model writes. A call counts
//! from the moment that its name and the beginning of its arguments are there; what a model then writes
//! comes as it is, and may be cut off.

mod bodies;
mod call;
mod forms;
mod grammar;
mod json;
mod tools;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use bodies::{Body, Status};
use forms::Mark;
pub use forms::ToolForm;
pub use grammar::{Tokens as ToolTokens, ToolChoice};
pub use tools::Tools;

/// A call that a model makes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCall {
    /// The name of the tool.
    pub name: String,
    /// The arguments as JSON; what the model wrote, if the answer was cut off or is no JSON.
    pub arguments: String,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolEvent {
    /// Text that is no call.
    Text(String),
    /// A call of the tool of this name begins; calls are counted from 0.
    Begin {
        /// Which call of the answer it is.
        index: usize,
        /// The name of the tool.
        name: String,
    },
    /// The next piece of the arguments.
    Arguments {
        /// Which call of the answer it is.
        index: usize,
        /// A piece of JSON.
        text: String,
    },
}

/// What a body finds.
#[derive(Debug)]
enum Part {
    Begin(String),
    Arguments(String),
}

/// Finds calls in an answer that comes in pieces. Where it is cut changes neither calls nor text.
///
/// ```
/// use rsgen_text::{ToolForm, ToolParser, Tools};
///
/// let form = ToolForm::named("hermes")?;
/// let (text, calls) = ToolParser::new(form, &Tools::default())
///     .parse("Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>");
/// assert_eq!(text, "Let me see.");
/// assert_eq!((&*calls[0].name, &*calls[0].arguments), ("weather", "{\"city\": \"Bern\"}"));
/// # Ok::<(), rsgen_core::error::Error>(())
/// ```
pub struct ToolParser {
    form: &'static ToolForm,
    tools: Tools,
    /// Text that is not read yet.
    held: String,
    /// The body that is read, and what was read of it before its first call: with the spaces before the mark,
    /// and with the mark, whose end is the second field.
    body: Option<Box<dyn Body>>,
    tried: Option<(String, usize)>,
    /// Whether only spaces were read since the last line break.
    is_line_blank: bool,
    /// Whether the last thing was a call: the spaces after it are none of the text.
    is_after_call: bool,
    /// The spaces before it, which stand between the text before and the text after.
    gap: String,
    num_calls: usize,
}

impl std::fmt::Debug for ToolParser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolParser").field("form", &self.form.name).finish_non_exhaustive()
    }
}

impl ToolParser {
    /// Before an answer in this form, which may call these tools.
    #[must_use]
    pub fn new(form: &'static ToolForm, tools: &Tools) -> Self {
        Self {
            form,
            tools: tools.clone(),
            held: String::new(),
            body: None,
            tried: None,
            is_line_blank: true,
            is_after_call: false,
            gap: String::new(),
            num_calls: 0,
        }
    }

    /// The text and the calls of a whole answer.
    #[must_use]
    pub fn parse(mut self, text: &str) -> (String, Vec<ToolCall>) {
        let mut events = self.push(text);
        events.extend(self.finish());
        let (mut text, mut calls) = (String::new(), Vec::new());
        for event in events {
            event.add_to(&mut text, &mut calls);
        }
        (text, calls)
    }

    /// Reads the next piece of an answer, and returns what is certain now.
    pub fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        self.held.push_str(text);
        self.read(false)
    }

    /// Returns the rest: the answer ends here.
    pub fn finish(&mut self) -> Vec<ToolEvent> {
        self.read(true)
    }

    fn read(&mut self, ends: bool) -> Vec<ToolEvent> {
        let mut events = Vec::new();
        loop {
            let goes_on = match self.body.take() {
                Some(body) => self.read_body(body, ends, &mut events),
                None => self.read_text(ends, &mut events),
            };
            if !goes_on {
                return events;
            }
        }
    }

    /// Reads up to the next mark, and returns whether there was one.
    fn read_text(&mut self, ends: bool, events: &mut Vec<ToolEvent>) -> bool {
        let bare = self.form.bare.and_then(|(letters, make)| {
            let at = line_start(&self.held, letters, self.is_line_blank)?;
            Some((at, 0, Some(make)))
        });
        let marks = self.form.marks.iter().map(|&Mark(mark, make)| (mark, Some(make)));
        let all = marks.chain(self.form.dropped.iter().map(|&mark| (mark, None)));
        let found = all.filter_map(|(mark, make)| Some((self.held.find(mark)?, mark.len(), make)));
        if let Some((at, len, make)) = found.chain(bare).min_by_key(|(at, ..)| *at) {
            let rest = self.held.split_off(at + len);
            let before = std::mem::replace(&mut self.held, rest);
            let (before, mark) = before.split_at(at);
            let text = before.trim_end();
            let (text, space) = before.split_at(text.len());
            self.say(text, events);
            // After a call, spaces are none of the text.
            let space = if self.is_after_call { "" } else { space };
            if !self.is_after_call {
                space.clone_into(&mut self.gap);
            }
            match make {
                Some(make) => {
                    self.tried = Some((format!("{space}{mark}"), space.len() + mark.len()));
                    self.body = Some(make(&self.tools));
                }
                None => self.is_after_call = true,
            }
            return true;
        }
        let mut certain = self.held.len();
        if !ends {
            let marks = self.form.marks.iter().map(|mark| mark.0).chain(self.form.dropped.iter().copied());
            certain -= partial(&self.held, &marks.collect::<Vec<_>>());
            certain = self.held[..certain].trim_end().len();
        }
        let rest = self.held.split_off(certain);
        let text = std::mem::replace(&mut self.held, rest);
        // An answer may be cut off within the mark that closes its last call.
        let is_cut = |mark: &&str| mark.len() > text.trim().len() && mark.starts_with(text.trim());
        if !(ends && self.is_after_call && self.form.dropped.iter().any(is_cut)) {
            self.say(&text, events);
        }
        false
    }

    /// Reads on in calls, and returns whether they have ended.
    fn read_body(&mut self, mut body: Box<dyn Body>, ends: bool, events: &mut Vec<ToolEvent>) -> bool {
        let mut parts = Vec::new();
        let (len, status) = body.read(&self.held, ends, &mut parts);
        let rest = self.held.split_off(len);
        let read = std::mem::replace(&mut self.held, rest);
        for part in parts {
            let index = self.num_calls.saturating_sub(1);
            match (part, events.last_mut()) {
                (Part::Begin(name), _) => {
                    events.push(ToolEvent::Begin { index: self.num_calls, name });
                    self.num_calls += 1;
                    self.is_after_call = true;
                    self.tried = None;
                }
                (Part::Arguments(more), Some(ToolEvent::Arguments { text, .. })) => text.push_str(&more),
                (Part::Arguments(text), _) => events.push(ToolEvent::Arguments { index, text }),
            }
        }
        if let Some((tried, _)) = &mut self.tried {
            tried.push_str(&read);
        }
        match status {
            Status::More => {
                self.body = Some(body);
                false
            }
            Status::Done => {
                self.is_line_blank = false;
                true
            }
            Status::Failed => {
                let (tried, mark) = self.tried.take().unwrap_or_default();
                self.held.insert_str(0, &tried);
                // At least a letter is text now, so that it goes on behind it.
                let first = self.held[mark..].chars().next().map_or(0, char::len_utf8);
                let is_bare = mark == 0 || tried[..mark].trim().is_empty();
                let rest = self.held.split_off(if is_bare { mark + first } else { mark });
                let text = std::mem::replace(&mut self.held, rest);
                self.say(&text, events);
                true
            }
        }
    }

    /// Hands over text.
    fn say(&mut self, text: &str, events: &mut Vec<ToolEvent>) {
        let said = if self.is_after_call { text.trim_start() } else { text };
        if let Some(line) = text.rfind('\n') {
            self.is_line_blank = text[line..].trim().is_empty();
        } else {
            self.is_line_blank &= text.trim().is_empty();
        }
        if said.is_empty() {
            return;
        }
        let gap = std::mem::take(&mut self.gap);
        let said = if self.is_after_call { format!("{gap}{said}") } else { said.to_owned() };
        self.is_after_call = false;
        match events.last_mut() {
            Some(ToolEvent::Text(before)) => before.push_str(&said),
            _ => events.push(ToolEvent::Text(said)),
        }
    }
}

impl ToolEvent {
    /// Adds it to the text and the calls before it.
    pub fn add_to(self, text: &mut String, calls: &mut Vec<ToolCall>) {
        match self {
            Self::Text(more) => text.push_str(&more),
            Self::Begin { name, .. } => calls.push(ToolCall { name, arguments: String::new() }),
            Self::Arguments { text: more, .. } => {
                if let Some(call) = calls.last_mut() {
                    call.arguments.push_str(&more);
                }
            }
        }
    }
}

/// A new id of a call: nine letters and digits, since templates of Mistral take no other.
#[must_use]
pub fn new_call_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let mut number = now.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(std::process::id()) << 32;
    // The last digits count, so that no two of a process are equal.
    let mut count = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut id = String::with_capacity(9);
    for place in 0..9 {
        let rest = if place < 4 { &mut number } else { &mut count };
        id.push(char::from(DIGITS[(*rest % 36) as usize]));
        *rest /= 36;
    }
    id
}

/// The place of the first of these letters that begins a line, apart from spaces.
fn line_start(text: &str, letters: &[char], mut is_line_blank: bool) -> Option<usize> {
    for (at, letter) in text.char_indices() {
        match letter {
            '\n' => is_line_blank = true,
            letter if is_line_blank && letters.contains(&letter) => return Some(at),
            letter => is_line_blank &= letter.is_whitespace(),
        }
    }
    None
}

/// The bytes at the end of a text with which one of the marks begins.
pub(crate) fn partial(text: &str, marks: &[&str]) -> usize {
    let longest = marks.iter().map(|mark| mark.len()).max().unwrap_or(0);
    let begins = |len: &usize| {
        let from = text.len() - len;
        text.is_char_boundary(from)
            && marks.iter().any(|mark| mark.len() > *len && mark.starts_with(&text[from..]))
    };
    (1..=longest.min(text.len())).rev().find(begins).unwrap_or(0)
}

/// The JSON of arguments that are a value: an object within a text, or nothing.
fn arguments_of(value: &str) -> Option<String> {
    match serde_json::from_str::<Value>(value) {
        Ok(Value::Null) => Some("{}".to_owned()),
        Ok(Value::String(text)) if text.trim().is_empty() => Some("{}".to_owned()),
        Ok(Value::String(text)) => {
            serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_object()).then_some(text)
        }
        _ => None,
    }
}
