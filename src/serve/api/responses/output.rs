//! Answers as the Responses API writes them: items of thinking, text and calls of tools, whole or as numbered events.
//!
//! A whole answer is put together from the events of a stream, so both have the same items.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::super::answer::Piece;
use super::super::usage::Counts;
use crate::serve::failure::Failure;
use rsgen_core::types::FinishReason;
use rsgen_text::{ToolEvent, new_call_id};

/// A response under construction.
pub(super) struct Reply {
    /// All of it but the items.
    response: Map<String, Value>,
    /// The items that are complete.
    output: Vec<Value>,
    open: Option<Open>,
    /// The number of the next event.
    next: u64,
}

/// The item that is being written, and its text so far: thinking, what is said, or arguments.
struct Open {
    kind: Kind,
    item: Value,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
    Call,
}

impl Kind {
    /// What the ids of items begin with.
    fn prefix(self) -> &'static str {
        match self {
            Self::Reasoning => "rs",
            Self::Message => "msg",
            Self::Call => "fc",
        }
    }

    /// The names of the events of a part of its text, and of its end.
    fn events(self) -> (&'static str, &'static str) {
        match self {
            Self::Reasoning => ("response.reasoning_text.delta", "response.reasoning_text.done"),
            Self::Message => ("response.output_text.delta", "response.output_text.done"),
            Self::Call => ("response.function_call_arguments.delta", "response.function_call_arguments.done"),
        }
    }

    /// Its text as a part of an item; the arguments of a call are none.
    fn part(self, text: &str) -> Option<Value> {
        match self {
            Self::Reasoning => Some(json!({ "type": "reasoning_text", "text": text })),
            Self::Message => {
                Some(json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }))
            }
            Self::Call => None,
        }
    }
}

impl Reply {
    /// The response to a request, whose fields are in `response`: it is in progress.
    pub(super) fn new(response: Map<String, Value>) -> Self {
        Self { response, output: Vec::new(), open: None, next: 0 }
    }

    /// The events that begin it.
    pub(super) fn begin(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        for name in ["response.created", "response.in_progress"] {
            let response = self.whole();
            self.event(name, json!({ "response": response }), &mut events);
        }
        events
    }

    /// The events of the next piece; those of the last one end it.
    pub(super) fn events(&mut self, piece: &Piece, counts: Counts) -> Vec<Value> {
        let mut events = Vec::new();
        self.say(Kind::Reasoning, &piece.reasoning, &mut events);
        self.say(Kind::Message, &piece.text, &mut events);
        for event in &piece.calls {
            match event {
                ToolEvent::Begin { name, .. } => {
                    let call = json!({ "call_id": new_call_id(), "name": name, "arguments": "" });
                    self.open(Kind::Call, call, &mut events);
                }
                ToolEvent::Arguments { text, .. } => self.add(text, &mut events),
                _ => {}
            }
        }
        if let Some(finish) = piece.finish {
            let is_cut = matches!(finish, FinishReason::Length | FinishReason::Time);
            // An answer without a word is one, too.
            let has_said = |item: &Value| item["type"] != "reasoning";
            let says = self.open.as_ref().is_some_and(|open| open.kind != Kind::Reasoning);
            if !is_cut && !says && !self.output.iter().any(has_said) {
                self.open(Kind::Message, json!({ "role": "assistant" }), &mut events);
            }
            self.close(if is_cut { "incomplete" } else { "completed" }, &mut events);
            self.response.insert("usage".to_owned(), usage(counts));
            let name = if is_cut {
                let details = json!({ "reason": "max_output_tokens" });
                self.response.insert("incomplete_details".to_owned(), details);
                self.end("incomplete")
            } else {
                self.end("completed")
            };
            let response = self.whole();
            self.event(name, json!({ "response": response }), &mut events);
        }
        events
    }

    /// The events that end a response which failed.
    pub(super) fn failed(&mut self, failure: &Failure) -> Vec<Value> {
        let mut events = Vec::new();
        self.close("incomplete", &mut events);
        let code = if failure.status.is_server_error() { "server_error" } else { "invalid_prompt" };
        let error = json!({ "code": code, "message": failure.message });
        self.response.insert("error".to_owned(), error);
        let name = self.end("failed");
        let response = self.whole();
        self.event(name, json!({ "response": response }), &mut events);
        events
    }

    /// The response with its items.
    pub(super) fn whole(&self) -> Value {
        let mut response = self.response.clone();
        response.insert("output".to_owned(), self.output.clone().into());
        response.into()
    }

    /// Its items.
    pub(super) fn output(&self) -> &[Value] {
        &self.output
    }

    /// Sets how it ended. Returns the name of the event that says so.
    fn end(&mut self, status: &str) -> &'static str {
        self.response.insert("status".to_owned(), status.into());
        match status {
            "completed" => {
                self.response.insert("completed_at".to_owned(), now().into());
                "response.completed"
            }
            "incomplete" => "response.incomplete",
            _ => "response.failed",
        }
    }

    /// Adds a part of a text, to a new item if that of this kind is not open.
    fn say(&mut self, kind: Kind, text: &str, events: &mut Vec<Value>) {
        if text.is_empty() {
            return;
        }
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            let fields = match kind {
                Kind::Message => json!({ "role": "assistant" }),
                _ => json!({ "summary": [] }),
            };
            self.open(kind, fields, events);
        }
        self.add(text, events);
    }

    fn open(&mut self, kind: Kind, fields: Value, events: &mut Vec<Value>) {
        self.close("completed", events);
        let index = self.output.len();
        let id = self.response.get("id").and_then(Value::as_str).unwrap_or_default();
        let id = format!("{}_{}{index:04x}", kind.prefix(), id.trim_start_matches("resp_"));
        let kind_name = match kind {
            Kind::Reasoning => "reasoning",
            Kind::Message => "message",
            Kind::Call => "function_call",
        };
        let mut item = json!({ "id": id, "type": kind_name, "status": "in_progress" });
        if let (Some(item), Value::Object(fields)) = (item.as_object_mut(), fields) {
            item.extend(fields);
            if kind != Kind::Call {
                item.insert("content".to_owned(), json!([]));
            }
        }
        self.event("response.output_item.added", json!({ "output_index": index, "item": item }), events);
        self.open = Some(Open { kind, item, text: String::new() });
        if let Some(part) = kind.part("") {
            let at = self.place(kind);
            self.event("response.content_part.added", with(at, "part", part), events);
        }
    }

    /// Adds to the text of the open item.
    fn add(&mut self, text: &str, events: &mut Vec<Value>) {
        let Some(open) = &mut self.open else { return };
        open.text.push_str(text);
        let kind = open.kind;
        let mut fields = with(self.place(kind), "delta", text.into());
        if kind == Kind::Message {
            fields["logprobs"] = json!([]);
        }
        self.event(kind.events().0, fields, events);
    }

    /// Ends the open item.
    fn close(&mut self, status: &str, events: &mut Vec<Value>) {
        let Some(Open { kind, .. }) = self.open else { return };
        let at = self.place(kind);
        let Some(Open { mut item, text, .. }) = self.open.take() else { return };
        let name = if kind == Kind::Call { "arguments" } else { "text" };
        let mut fields = with(at.clone(), name, text.clone().into());
        match kind {
            Kind::Message => fields["logprobs"] = json!([]),
            Kind::Call => fields["name"] = item["name"].clone(),
            Kind::Reasoning => {}
        }
        self.event(kind.events().1, fields, events);
        match kind.part(&text) {
            Some(part) => {
                item["content"] = json!([part]);
                self.event("response.content_part.done", with(at, "part", part), events);
            }
            None => item["arguments"] = text.into(),
        }
        item["status"] = status.into();
        let index = self.output.len();
        self.event("response.output_item.done", json!({ "output_index": index, "item": item }), events);
        self.output.push(item);
    }

    /// Where the text of the open item is.
    fn place(&self, kind: Kind) -> Value {
        let id = self.open.as_ref().map_or(Value::Null, |open| open.item["id"].clone());
        let mut place = json!({ "item_id": id, "output_index": self.output.len() });
        if kind != Kind::Call {
            place["content_index"] = 0.into();
        }
        place
    }

    fn event(&mut self, name: &str, fields: Value, events: &mut Vec<Value>) {
        let mut event = json!({ "type": name, "sequence_number": self.next });
        self.next += 1;
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        events.push(event);
    }
}

fn with(mut object: Value, name: &str, value: Value) -> Value {
    object[name] = value;
    object
}

/// The seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn usage(counts: Counts) -> Value {
    let Counts { prompt, cached, completion, reasoning } = counts;
    json!({
        "input_tokens": prompt,
        "input_tokens_details": { "cached_tokens": cached, "cache_write_tokens": 0 },
        "output_tokens": completion,
        "output_tokens_details": { "reasoning_tokens": reasoning },
        "total_tokens": prompt + completion,
    })
}
