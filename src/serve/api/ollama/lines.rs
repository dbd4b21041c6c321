//! Answers as Ollama writes them: lines of JSON, of which the last one has the counts and the times.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::super::answer::Piece;
use super::super::usage::Counts;
use crate::serve::json::object;
use rsgen_core::types::FinishReason;
use rsgen_text::ToolEvent;

/// The field that holds what the model says: of a chat, and of a prompt.
pub(super) const MESSAGE: &str = "message";
pub(super) const RESPONSE: &str = "response";

/// The field that holds what it thinks, beside what it says.
const THINKING: &str = "thinking";

/// What a line says.
#[derive(Default)]
struct Said<'a> {
    text: &'a str,
    thinking: &'a str,
    calls: Vec<Value>,
}

/// An answer under construction.
pub(super) struct Reply {
    model: String,
    content: &'static str,
    arrived: Instant,
    began: Instant,
    /// When its first token came.
    first: Option<Instant>,
    shows_thinking: bool,
    /// The name and the arguments of the call that is not complete.
    call: Option<(String, String)>,
}

impl Reply {
    pub(super) fn new(model: String, content: &'static str, arrived: Instant, shows_thinking: bool) -> Self {
        Self { model, content, arrived, began: Instant::now(), first: None, shows_thinking, call: None }
    }

    /// The lines of the next piece.
    pub(super) fn lines(&mut self, piece: &Piece, counts: Counts) -> Vec<Value> {
        let first = *self.first.get_or_insert_with(Instant::now);
        let mut calls = Vec::new();
        for event in &piece.calls {
            match event {
                ToolEvent::Begin { name, .. } => {
                    calls.extend(self.complete());
                    self.call = Some((name.clone(), String::new()));
                }
                ToolEvent::Arguments { text, .. } => {
                    if let Some((_, arguments)) = &mut self.call {
                        arguments.push_str(text);
                    }
                }
                _ => {}
            }
        }
        if piece.finish.is_some() {
            calls.extend(self.complete());
        }
        let mut lines = Vec::new();
        if self.shows_thinking && !piece.reasoning.is_empty() {
            let said = Said { thinking: &piece.reasoning, ..Said::default() };
            lines.push(line(&self.model, self.content, said, false));
        }
        if !piece.text.is_empty() || !calls.is_empty() {
            let said = Said { text: &piece.text, calls, ..Said::default() };
            lines.push(line(&self.model, self.content, said, false));
        }
        if let Some(finish) = piece.finish {
            let reason = match finish {
                FinishReason::Length | FinishReason::Time => "length",
                _ => "stop",
            };
            let mut last = last(&self.model, self.content, reason);
            for (name, value) in [
                ("total_duration", nanoseconds(self.arrived)),
                ("load_duration", 0),
                ("prompt_eval_count", counts.prompt as u64),
                ("prompt_eval_duration", whole(first - self.began)),
                ("eval_count", counts.completion as u64),
                ("eval_duration", nanoseconds(first)),
            ] {
                last[name] = value.into();
            }
            lines.push(last);
        }
        lines
    }

    /// The call that is complete. Arguments that the limit of tokens cut are no JSON.
    fn complete(&mut self) -> Option<Value> {
        let (name, arguments) = self.call.take()?;
        let arguments = object(arguments.as_bytes()).map(|(arguments, _)| arguments).unwrap_or_default();
        Some(json!({ "function": { "name": name, "arguments": arguments } }))
    }
}

/// The last line of an answer that ended for this reason.
pub(super) fn last(model: &str, content: &str, reason: &str) -> Value {
    let mut line = line(model, content, Said::default(), true);
    line["done_reason"] = reason.into();
    line
}

fn line(model: &str, content: &str, said: Said<'_>, done: bool) -> Value {
    let Said { text, thinking, calls } = said;
    let mut line = json!({ "model": model, "created_at": timestamp(SystemTime::now()) });
    line[content] = if content == MESSAGE {
        let mut message = json!({ "role": "assistant", "content": text });
        if !thinking.is_empty() {
            message[THINKING] = thinking.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        message
    } else {
        text.into()
    };
    if content != MESSAGE && !thinking.is_empty() {
        line[THINKING] = thinking.into();
    }
    line["done"] = done.into();
    line
}

/// An answer with its next line.
pub(super) fn joined(whole: Option<Value>, mut line: Value, content: &str) -> Value {
    let Some(mut whole) = whole else { return line };
    for name in [if content == MESSAGE { "content" } else { content }, THINKING] {
        let text = |line: &mut Value| {
            let holder = if content == MESSAGE { &mut line[MESSAGE] } else { line };
            match holder.get_mut(name).map(Value::take) {
                Some(Value::String(text)) => text,
                _ => String::new(),
            }
        };
        let mut all = text(&mut whole);
        all.push_str(&text(&mut line));
        let holder = if content == MESSAGE { &mut line[MESSAGE] } else { &mut line };
        if name != THINKING || !all.is_empty() {
            holder[name] = all.into();
        }
    }
    if content == MESSAGE {
        let calls = |line: &mut Value| match line[MESSAGE].get_mut("tool_calls").map(Value::take) {
            Some(Value::Array(calls)) => calls,
            _ => Vec::new(),
        };
        let mut all = calls(&mut whole);
        all.extend(calls(&mut line));
        if !all.is_empty() {
            line[MESSAGE]["tool_calls"] = all.into();
        }
    }
    line
}

/// The nanoseconds since a moment.
pub(super) fn nanoseconds(since: Instant) -> u64 {
    whole(since.elapsed())
}

fn whole(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// A moment as RFC 3339 writes it, in UTC.
pub(super) fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years that begin in March end with the leap day; 400 of them have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:09}Z", since.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (951_868_800, "2000-03-01T00:00:00"),
            (1_709_164_800, "2024-02-29T00:00:00"),
            (1_735_689_599, "2024-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            let time = UNIX_EPOCH + Duration::new(seconds, 5);
            assert_eq!(timestamp(time), format!("{text}.000000005Z"));
        }
    }

    #[test]
    fn lines_join_to_their_answer() {
        let call = |name: &str| json!({ "function": { "name": name, "arguments": {} } });
        let lines = [("a", vec![call("f")]), ("b", Vec::new()), ("", vec![call("g")])];
        let mut whole = None;
        for (text, calls) in lines {
            let said = Said { text, thinking: "t", calls };
            whole = Some(joined(whole, line("m", MESSAGE, said, false), MESSAGE));
        }
        let whole = joined(whole, last("m", MESSAGE, "stop"), MESSAGE);
        let message = json!({ "role": "assistant", "content": "ab", "thinking": "ttt", "tool_calls": [call("f"), call("g")] });
        assert_eq!((&whole[MESSAGE], &whole["done_reason"]), (&message, &json!("stop")));
        let said = |text: &'static str, thinking: &'static str| Said { text, thinking, ..Said::default() };
        let first = line("m", RESPONSE, said("a", "t"), false);
        let whole = joined(Some(first), line("m", RESPONSE, said("b", ""), true), RESPONSE);
        assert_eq!((&whole[RESPONSE], &whole["done"]), (&json!("ab"), &json!(true)));
        assert_eq!(whole[THINKING], "t");
    }
}
