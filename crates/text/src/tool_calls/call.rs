//! A call as a JSON object, read letter by letter: its name, and its arguments while they come.

use std::fmt::Write as _;
use std::sync::Arc;

use super::json::{JsonReader, Place};
use super::{Part, arguments_of};

/// The keys of the name, and those of the arguments, in the forms of all models.
const NAMES: [&str; 3] = ["name", "function", "tool_name"];
const ARGUMENTS: [&str; 2] = ["arguments", "parameters"];
/// The keys beside them.
const OTHERS: [&str; 3] = ["type", "id", "tool_call_id"];
/// OpenAI's key of an object with name and arguments.
const WRAPPER: &str = "function";

/// A call that is being read.
pub(super) struct CallReader {
    json: JsonReader,
    /// What was read, with control characters in texts as escapes.
    raw: String,
    /// The depth of the object that holds the name.
    level: usize,
    key: String,
    /// Where the key or the value that is being read begins.
    start: usize,
    name: Option<String>,
    arguments: Arguments,
    has_begun: bool,
    /// The tools, one of which it has to be, with no other keys.
    tools: Option<Arc<[String]>>,
}

enum Arguments {
    Unknown,
    /// They end later; those before this place of `raw` were handed over.
    Open(usize),
    /// They are whole, and this is to be handed over.
    Whole(String),
}

/// How far a call is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    More,
    Whole,
    /// No call, from this letter on.
    Wrong,
}

impl CallReader {
    /// Before the bracket of a call. With `tools`, an object that is not a call of one of them is none.
    pub(super) fn new(tools: Option<Arc<[String]>>) -> Self {
        Self {
            json: JsonReader::new(),
            raw: String::new(),
            level: 1,
            key: String::new(),
            start: 0,
            name: None,
            arguments: Arguments::Unknown,
            has_begun: false,
            tools,
        }
    }

    /// Whether its name was handed over.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether all of its arguments were handed over.
    pub(super) fn has_arguments(&self) -> bool {
        self.has_begun && matches!(self.arguments, Arguments::Whole(_))
    }

    /// Reads a letter.
    pub(super) fn push(&mut self, letter: char, parts: &mut Vec<Part>) -> Progress {
        let (before, depth, is_member) = (self.json.place(), self.json.depth(), self.json.is_member());
        if !self.json.push(letter) {
            return Progress::Wrong;
        }
        let place = self.raw.len();
        push_escaped(&mut self.raw, letter, self.json.is_in_text());
        let is_blank = letter.is_ascii_whitespace();
        if depth == self.level {
            let is_key = |place: Place| matches!(place, Place::Text { is_key: true });
            let begins_value = is_member && !is_blank;
            if begins_value || is_key(self.json.place()) && !in_text(before) {
                self.start = place;
            }
            let is_right = match self.json.place() {
                Place::Colon if is_key(before) => self.take_key(),
                _ if begins_value => self.begin_value(letter),
                _ => true,
            };
            if !is_right {
                return Progress::Wrong;
            }
        }
        let has_closed = self.json.depth() < self.level;
        let ends_value = self.json.depth() == self.level
            && self.json.place() == Place::After
            && (before != Place::After || depth > self.level)
            && !is_blank;
        if ends_value && !self.end_value() || has_closed && self.level == 1 && !self.end() {
            return Progress::Wrong;
        }
        if has_closed && self.level > 1 {
            self.level -= 1;
        }
        if !self.hand_over(parts) {
            return Progress::Wrong;
        }
        if self.json.place() == Place::End { Progress::Whole } else { Progress::More }
    }

    fn take_key(&mut self) -> bool {
        let Ok(key) = serde_json::from_str::<String>(&self.raw[self.start..]) else { return false };
        let mut known = NAMES.iter().chain(&ARGUMENTS).chain(&OTHERS);
        let is_right = self.tools.is_none() || self.has_begun || known.any(|known| *known == key);
        self.key = key;
        is_right
    }

    fn begin_value(&mut self, letter: char) -> bool {
        if self.key == WRAPPER && letter == '{' {
            self.level += 1;
        } else if self.holds_arguments() {
            match letter {
                '{' => self.arguments = Arguments::Open(self.start),
                '"' | 'n' => {}
                _ => return false,
            }
        }
        true
    }

    fn end_value(&mut self) -> bool {
        let value = &self.raw[self.start..];
        if self.name.is_none() && NAMES.contains(&&*self.key) && value.starts_with('"') {
            let Ok(name) = serde_json::from_str::<String>(value) else { return false };
            let is_tool = self.tools.as_ref().is_none_or(|tools| tools.is_empty() || tools.contains(&name));
            self.name = Some(name);
            return is_tool;
        }
        if self.holds_arguments() {
            let Some(rest) = (match self.arguments {
                Arguments::Open(start) => Some(self.raw[start..].to_owned()),
                _ => arguments_of(value),
            }) else {
                return false;
            };
            self.arguments = Arguments::Whole(rest);
        }
        true
    }

    /// Whether the arguments are the value of the key; the first ones count.
    fn holds_arguments(&self) -> bool {
        ARGUMENTS.contains(&&*self.key) && !matches!(self.arguments, Arguments::Whole(_))
    }

    /// The end of the object: a tool without parameters may have been called without arguments.
    fn end(&mut self) -> bool {
        if matches!(self.arguments, Arguments::Unknown) && self.name.is_some() && self.tools.is_none() {
            self.arguments = Arguments::Whole("{}".to_owned());
        }
        self.has_begun || self.name.is_some() && !matches!(self.arguments, Arguments::Unknown)
    }

    /// Hands over what is certain, once there is both a name and the beginning of arguments.
    fn hand_over(&mut self, parts: &mut Vec<Part>) -> bool {
        let Some(name) = &self.name else { return true };
        if matches!(self.arguments, Arguments::Unknown) {
            return true;
        }
        if !self.has_begun {
            if name.is_empty() {
                return false;
            }
            parts.push(Part::Begin(name.clone()));
            self.has_begun = true;
        }
        match &mut self.arguments {
            Arguments::Open(start) => {
                parts.push(Part::Arguments(self.raw[*start..].to_owned()));
                *start = self.raw.len();
            }
            Arguments::Whole(rest) if !rest.is_empty() => {
                parts.push(Part::Arguments(std::mem::take(rest)));
            }
            _ => {}
        }
        true
    }
}

fn in_text(place: Place) -> bool {
    matches!(place, Place::Text { .. } | Place::Escape { .. } | Place::Hex { .. })
}

/// Appends a letter of JSON; control characters within a text become escapes, which they have to be.
pub(super) fn push_escaped(raw: &mut String, letter: char, is_in_text: bool) {
    match letter {
        '\n' if is_in_text => raw.push_str("\\n"),
        '\t' if is_in_text => raw.push_str("\\t"),
        '\r' if is_in_text => raw.push_str("\\r"),
        letter if is_in_text && u32::from(letter) < 0x20 => {
            let _ = write!(raw, "\\u{:04x}", u32::from(letter));
        }
        letter => raw.push(letter),
    }
}
