//! What stands between the marks of calls: JSON objects, or a name before the JSON of its arguments.

use std::sync::Arc;

use super::Part;
use super::call::{CallReader, Progress, push_escaped};
use super::json::{JsonReader, Place};

/// The longest text before the arguments, in bytes.
const MAX_HEAD: usize = 512;

/// How far the text of calls was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// It may go on.
    More,
    /// The calls have ended.
    Done,
    /// There was no call: it is text.
    Failed,
}

/// Reads the text of calls from behind the mark that they begin with.
pub(super) trait Body: Send {
    /// Reads on, and returns the bytes that it needs no more. `ends` says that no more text comes.
    fn read(&mut self, text: &str, ends: bool, parts: &mut Vec<Part>) -> (usize, Status);
}

/// One object or several, in a list or not.
pub(super) struct JsonCalls {
    end: &'static str,
    tools: Option<Arc<[String]>>,
    call: Option<CallReader>,
    has_calls: bool,
    is_list: bool,
    /// Arguments that are no JSON are handed over as they are, up to the end.
    is_raw: bool,
}

impl JsonCalls {
    /// Up to the mark `end`, if it is not empty. With `tools`, anything but calls of them is text.
    pub(super) fn new(end: &'static str, tools: Option<Arc<[String]>>) -> Self {
        Self { end, tools, call: None, has_calls: false, is_list: false, is_raw: false }
    }

    /// Reads what stands between calls, up to the next one.
    fn between(&mut self, text: &str, ends: bool) -> (usize, Option<Status>) {
        for (at, letter) in text.char_indices() {
            let rest = &text[at..];
            match letter {
                // A bracket too much, or too little, is a common slip.
                ',' | ';' | ']' | '}' if self.has_calls => {}
                '[' if !self.has_calls && !self.is_list => self.is_list = true,
                '{' => {
                    self.call = Some(CallReader::new(self.tools.clone()));
                    return (at, None);
                }
                letter if letter.is_whitespace() => {}
                _ if !self.has_calls => return (at, Some(Status::Failed)),
                _ => return end_of(self.end, rest, at, ends),
            }
        }
        let at_end = if self.has_calls { Status::Done } else { Status::Failed };
        (text.len(), Some(if ends { at_end } else { Status::More }))
    }
}

/// What follows calls: the mark that ends them, or already the text after them.
fn end_of(end: &str, rest: &str, at: usize, ends: bool) -> (usize, Option<Status>) {
    if !end.is_empty() && rest.starts_with(end) {
        return (at + end.len(), Some(Status::Done));
    }
    let may_come = !ends && rest.len() < end.len() && end.starts_with(rest);
    (at, Some(if may_come { Status::More } else { Status::Done }))
}

/// Hands over text up to the mark `end`.
fn read_raw(end: &str, text: &str, ends: bool, parts: &mut Vec<Part>) -> (usize, Status) {
    let (len, after, status) = match text.find(end).filter(|_| !end.is_empty()) {
        Some(at) => (at, at + end.len(), Status::Done),
        None if ends => (text.len(), text.len(), Status::Done),
        None => {
            let len = text.len() - super::partial(text, &[end]);
            (len, len, Status::More)
        }
    };
    if len > 0 {
        parts.push(Part::Arguments(text[..len].to_owned()));
    }
    (after, status)
}

impl Body for JsonCalls {
    fn read(&mut self, text: &str, ends: bool, parts: &mut Vec<Part>) -> (usize, Status) {
        let mut at = 0;
        loop {
            if self.is_raw {
                let (len, status) = read_raw(self.end, &text[at..], ends, parts);
                return (at + len, status);
            }
            let Some(call) = &mut self.call else {
                let (len, status) = self.between(&text[at..], ends);
                at += len;
                match status {
                    Some(status) => return (at, status),
                    None => continue,
                }
            };
            let mut progress = Progress::More;
            for letter in text[at..].chars() {
                progress = call.push(letter, parts);
                if progress == Progress::Wrong {
                    break;
                }
                at += letter.len_utf8();
                if progress == Progress::Whole {
                    break;
                }
            }
            match progress {
                Progress::Wrong if !call.has_begun() => return (at, Status::Failed),
                Progress::Wrong if !call.has_arguments() => self.is_raw = true,
                Progress::Whole | Progress::Wrong => (self.call, self.has_calls) = (None, true),
                Progress::More if !ends => return (at, Status::More),
                Progress::More => {
                    return (at, if call.has_begun() { Status::Done } else { Status::Failed });
                }
            }
        }
    }
}

/// A name, and then the object of its arguments.
pub(super) struct Named {
    /// The name in the text before the arguments.
    name: fn(&str) -> Option<&str>,
    end: &'static str,
    json: Option<JsonReader>,
    is_raw: bool,
}

impl Named {
    pub(super) fn new(name: fn(&str) -> Option<&str>, end: &'static str) -> Self {
        Self { name, end, json: None, is_raw: false }
    }
}

/// Whether a text can be the name of a tool.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || "_-.:/".contains(letter))
}

impl Body for Named {
    fn read(&mut self, text: &str, ends: bool, parts: &mut Vec<Part>) -> (usize, Status) {
        let mut at = 0;
        if self.is_raw {
            return read_raw(self.end, text, ends, parts);
        }
        let json = if let Some(json) = &mut self.json {
            json
        } else {
            let head = text.find('{').filter(|&head| head <= MAX_HEAD);
            let Some(head) = head else {
                let may_come = !ends && text.len() <= MAX_HEAD && !text.contains('{');
                return (0, if may_come { Status::More } else { Status::Failed });
            };
            match (self.name)(&text[..head]).map(str::trim).filter(|name| is_name(name)) {
                Some(name) => parts.push(Part::Begin(name.to_owned())),
                None => return (0, Status::Failed),
            }
            at = head;
            self.json.insert(JsonReader::new())
        };
        let mut arguments = String::new();
        while json.place() != Place::End
            && let Some(letter) = text[at..].chars().next()
        {
            if !json.push(letter) {
                self.is_raw = true;
                break;
            }
            push_escaped(&mut arguments, letter, json.is_in_text());
            at += letter.len_utf8();
        }
        let has_ended = json.place() == Place::End;
        if !arguments.is_empty() {
            parts.push(Part::Arguments(arguments));
        }
        if self.is_raw {
            let (len, status) = read_raw(self.end, &text[at..], ends, parts);
            return (at + len, status);
        }
        if !has_ended {
            return (at, if ends { Status::Done } else { Status::More });
        }
        if self.end.is_empty() {
            return (at, Status::Done);
        }
        // The end of a block of code may stand before the mark.
        let rest = text[at..].trim_start_matches(|letter: char| letter.is_whitespace() || letter == '`');
        at = text.len() - rest.len();
        if rest.is_empty() && !ends {
            return (at, Status::More);
        }
        let (at, status) = end_of(self.end, rest, at, ends);
        (at, status.unwrap_or(Status::Done))
    }
}
