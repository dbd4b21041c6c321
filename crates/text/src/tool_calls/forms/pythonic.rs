//! Calls as Python writes them, in a list: `[weather(city="Bern"), time(zone=None)]`. Llama 3.2 and 4, `ToolACE`.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use super::super::Part;
use super::super::bodies::{Body, Status};
use super::{Arguments, Make, Mark, ToolForm, Writes};

const MAKE: Make =
    |tools| Box::new(Pythonic { tools: tools.shared_names(), has_calls: false, is_list: false });

pub(super) static FORM: ToolForm = ToolForm {
    name: "pythonic",
    signs: &[&["[func_name1("], &["func_name1(params_name1"]],
    marks: &[Mark("<|python_start|>", MAKE), Mark("<|python_tag|>", MAKE)],
    bare: Some((&['['], MAKE)),
    dropped: &["<|python_end|>", "<|eom|>"],
    inner: &[],
    writes: Writes {
        begin: "[",
        end: "]",
        call: ["", "(", ")"],
        between: ", ",
        arguments: Arguments::Python,
    },
};

/// The deepest nesting of values.
const MAX_DEPTH: usize = 64;

/// The list. A call comes when it is whole.
struct Pythonic {
    tools: Arc<[String]>,
    has_calls: bool,
    is_list: bool,
}

impl Body for Pythonic {
    fn read(&mut self, text: &str, ends: bool, parts: &mut Vec<Part>) -> (usize, Status) {
        let mut at = 0;
        let otherwise = |this: &Self| if this.has_calls { Status::Done } else { Status::Failed };
        loop {
            let rest = &text[at..];
            let Some(letter) = rest.chars().next() else {
                return (at, if ends { otherwise(self) } else { Status::More });
            };
            match letter {
                '[' if !self.is_list && !self.has_calls => self.is_list = true,
                ',' if self.has_calls => {}
                ']' if self.has_calls => return (at + 1, Status::Done),
                letter if letter.is_whitespace() => {}
                _ => {
                    let Some(len) = call_len(rest) else {
                        // It may still become one, unless its name is none.
                        let name = rest.split('(').next().unwrap_or_default();
                        let is_possible = !ends
                            && self.tools.iter().any(|tool| {
                                if name.len() < rest.len() { tool == name } else { tool.starts_with(name) }
                            });
                        return (at, if is_possible { Status::More } else { otherwise(self) });
                    };
                    let call = read_call(&rest[..len])
                        .filter(|(name, _)| self.tools.iter().any(|tool| tool == name));
                    let Some((name, arguments)) = call else { return (at, otherwise(self)) };
                    parts.push(Part::Begin(name.to_owned()));
                    parts.push(Part::Arguments(arguments));
                    self.has_calls = true;
                    at += len;
                    continue;
                }
            }
            at += letter.len_utf8();
        }
    }
}

/// The length of a call up to its last bracket, if that is there.
fn call_len(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut is_escaped) = (0_usize, None, false);
    for (at, letter) in text.char_indices() {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match (quote, letter) {
            (Some(_), '\\') => is_escaped = true,
            (Some(mark), letter) if letter == mark => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn read_call(text: &str) -> Option<(&str, String)> {
    let (name, rest) = text.split_once('(')?;
    let mut reader = Reader { rest, json: String::from("{") };
    reader.members(')', '=', 0)?;
    reader.json.push('}');
    reader.rest.trim().is_empty().then_some((name, reader.json))
}

/// Reads literals, and writes them as JSON.
struct Reader<'a> {
    rest: &'a str,
    json: String,
}

impl Reader<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes this letter, if it comes next.
    fn takes(&mut self, letter: char) -> bool {
        self.skip();
        self.rest.strip_prefix(letter).map(|rest| self.rest = rest).is_some()
    }

    /// Keys with values up to `end`: names before `=`, or texts before `:`.
    fn members(&mut self, end: char, sign: char, depth: usize) -> Option<()> {
        let mut is_first = true;
        while !self.takes(end) {
            if !is_first {
                self.json.push_str(", ");
            }
            is_first = false;
            if sign == '=' {
                self.skip();
                let (name, _) = self.rest.split_once('=')?;
                self.rest = &self.rest[name.len()..];
                let name = name.trim();
                if name.is_empty() || !name.chars().all(|letter| letter.is_alphanumeric() || letter == '_') {
                    return None;
                }
                self.json.push_str(&Value::from(name).to_string());
            } else {
                self.skip();
                let quote = self.rest.chars().next().filter(|letter| "'\"".contains(*letter))?;
                self.text(quote)?;
            }
            if !self.takes(sign) {
                return None;
            }
            self.json.push_str(": ");
            self.value(depth)?;
            if !self.takes(',') {
                return self.takes(end).then_some(());
            }
        }
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        self.skip();
        let letter = self.rest.chars().next().filter(|_| depth < MAX_DEPTH)?;
        match letter {
            '"' | '\'' => self.text(letter),
            '{' => {
                self.takes('{');
                self.json.push('{');
                self.members('}', ':', depth + 1)?;
                self.json.push('}');
                Some(())
            }
            '[' | '(' => {
                self.takes(letter);
                self.json.push('[');
                let end = if letter == '[' { ']' } else { ')' };
                let mut is_first = true;
                while !self.takes(end) {
                    if !is_first {
                        self.json.push_str(", ");
                    }
                    is_first = false;
                    self.value(depth + 1)?;
                    if !self.takes(',') {
                        self.takes(end).then_some(())?;
                        break;
                    }
                }
                self.json.push(']');
                Some(())
            }
            _ => {
                let len = self.rest.find([',', ')', ']', '}']).unwrap_or(self.rest.len());
                let word = self.rest[..len].trim();
                let json = match word {
                    "True" | "true" => "true".to_owned(),
                    "False" | "false" => "false".to_owned(),
                    "None" | "null" => "null".to_owned(),
                    word => word.parse::<serde_json::Number>().ok()?.to_string(),
                };
                self.json.push_str(&json);
                self.rest = &self.rest[len..];
                Some(())
            }
        }
    }

    /// A text in quotes.
    fn text(&mut self, quote: char) -> Option<()> {
        self.takes(quote);
        let mut text = String::new();
        let mut letters = self.rest.chars();
        loop {
            match letters.next()? {
                letter if letter == quote => break,
                '\\' => {
                    let digits = match letters.next()? {
                        'n' => {
                            text.push('\n');
                            0
                        }
                        't' => {
                            text.push('\t');
                            0
                        }
                        'r' => {
                            text.push('\r');
                            0
                        }
                        'x' => 2,
                        'u' => 4,
                        'U' => 8,
                        '\n' => 0,
                        letter @ ('\\' | '\'' | '"') => {
                            text.push(letter);
                            0
                        }
                        // Python keeps what is no escape.
                        other => {
                            let _ = write!(text, "\\{other}");
                            0
                        }
                    };
                    if digits > 0 {
                        let hex: String = letters.by_ref().take(digits).collect();
                        text.push(char::from_u32(u32::from_str_radix(&hex, 16).ok()?)?);
                    }
                }
                letter => text.push(letter),
            }
        }
        self.rest = letters.as_str();
        self.json.push_str(&Value::from(text).to_string());
        Some(())
    }
}
