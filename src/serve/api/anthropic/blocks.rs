//! Answers as Anthropic writes them: blocks of thinking, of text and of calls of tools, whole or as events.
//!
//! A whole answer is put together from the events of a stream, so both have the same blocks.

use serde_json::{Value, json};

use super::super::answer::Piece;
use super::super::usage::Counts;
use super::thinking::Thinking;
use crate::serve::json::object;
use rsgen_core::types::FinishReason;
use rsgen_text::{ToolEvent, new_call_id};

/// The signature of thinking. Nothing is told by it: any thinking may be given back.
const SIGNATURE: &str = "unsigned";

/// An answer under construction.
pub(super) struct Message {
    id: String,
    model: String,
    thinking: Thinking,
    /// The blocks so far; the last one is open.
    blocks: Vec<Value>,
    is_open: bool,
    /// The JSON of the arguments of the open call.
    input: String,
    has_begun: bool,
    /// The reason why it ended, and the text that ended it.
    stop: (Value, Value),
}

impl Message {
    pub(super) fn new(id: String, model: String, thinking: Thinking) -> Self {
        Self {
            id,
            model,
            thinking,
            blocks: Vec::new(),
            is_open: false,
            input: String::new(),
            has_begun: false,
            stop: Default::default(),
        }
    }

    /// The events of the next piece; the first one begins the message.
    pub(super) fn events(&mut self, piece: &Piece, counts: Counts) -> Vec<Value> {
        let mut events = Vec::new();
        if !self.has_begun {
            self.has_begun = true;
            let mut message = self.head();
            message["usage"] = usage(Counts { completion: 0, ..counts });
            events.push(json!({ "type": "message_start", "message": message }));
            events.push(json!({ "type": "ping" }));
        }
        if !piece.reasoning.is_empty() && self.thinking != Thinking::Hidden {
            if !self.is_open || self.last()["type"] != "thinking" {
                self.open(json!({ "type": "thinking", "thinking": "", "signature": "" }), &mut events);
            }
            if self.thinking == Thinking::Shown {
                self.write("thinking", &piece.reasoning);
                events.push(self.delta(&json!({ "type": "thinking_delta", "thinking": piece.reasoning })));
            }
        }
        if !piece.text.is_empty() {
            if !self.is_open || self.last()["type"] != "text" {
                self.open(json!({ "type": "text", "text": "" }), &mut events);
            }
            self.write("text", &piece.text);
            events.push(self.delta(&json!({ "type": "text_delta", "text": piece.text })));
        }
        for event in &piece.calls {
            match event {
                ToolEvent::Begin { name, .. } => {
                    let call = json!({ "type": "tool_use", "id": new_call_id(), "name": name, "input": {} });
                    self.open(call, &mut events);
                }
                ToolEvent::Arguments { text, .. } => {
                    self.input.push_str(text);
                    events.push(self.delta(&json!({ "type": "input_json_delta", "partial_json": text })));
                }
                _ => {}
            }
        }
        if let Some(finish) = piece.finish {
            self.close(&mut events);
            self.stop = match finish {
                FinishReason::Length | FinishReason::Time => ("max_tokens".into(), Value::Null),
                _ if piece.has_calls => ("tool_use".into(), Value::Null),
                _ if piece.stop_reason.is_string() => ("stop_sequence".into(), piece.stop_reason.clone()),
                _ => ("end_turn".into(), Value::Null),
            };
            let (reason, sequence) = &self.stop;
            let delta = json!({ "stop_reason": reason, "stop_sequence": sequence });
            events.push(json!({ "type": "message_delta", "delta": delta, "usage": usage(counts) }));
            events.push(json!({ "type": "message_stop" }));
        }
        events
    }

    /// The whole message.
    pub(super) fn whole(self, counts: Counts) -> Value {
        let mut message = self.head();
        message["usage"] = usage(counts);
        (message["stop_reason"], message["stop_sequence"]) = self.stop;
        message["content"] = self.blocks.into();
        message
    }

    fn head(&self) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
        })
    }

    fn last(&self) -> &Value {
        self.blocks.last().unwrap_or(&Value::Null)
    }

    fn open(&mut self, block: Value, events: &mut Vec<Value>) {
        self.close(events);
        let index = self.blocks.len();
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
        self.blocks.push(block);
        self.is_open = true;
    }

    /// Adds to a text of the open block.
    fn write(&mut self, name: &str, more: &str) {
        if let Some(Value::String(text)) = self.blocks.last_mut().map(|block| &mut block[name]) {
            text.push_str(more);
        }
    }

    fn delta(&self, delta: &Value) -> Value {
        let index = self.blocks.len().saturating_sub(1);
        json!({ "type": "content_block_delta", "index": index, "delta": delta })
    }

    fn close(&mut self, events: &mut Vec<Value>) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        if self.last()["type"] == "thinking" {
            self.write("signature", SIGNATURE);
            events.push(self.delta(&json!({ "type": "signature_delta", "signature": SIGNATURE })));
        }
        events.push(json!({ "type": "content_block_stop", "index": self.blocks.len().saturating_sub(1) }));
        let input = std::mem::take(&mut self.input);
        // The arguments of a call that the limit of tokens cut are no JSON.
        if let (Some(block), Ok((input, _))) = (self.blocks.last_mut(), object(input.as_bytes()))
            && block["type"] == "tool_use"
        {
            block["input"] = input.into();
        }
    }
}

/// Tokens as Anthropic counts them: those that the cache had are not among the others.
fn usage(counts: Counts) -> Value {
    let Counts { prompt, cached, completion, .. } = counts;
    json!({
        "input_tokens": prompt.saturating_sub(cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": completion,
    })
}
