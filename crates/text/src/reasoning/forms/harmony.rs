//! Harmony, as gpt-oss writes it: thinking is a message on the channel `analysis`, the answer one on `final`.

use super::{MessageMarks, ReasoningForm};

pub(super) static FORM: ReasoningForm = ReasoningForm {
    name: "openai_gptoss",
    signs: &[&["<|channel|>", "analysis", "<|message|>"]],
    begins: &["<|channel|>analysis<|message|>"],
    ends: &["<|end|>"],
    is_always_open: false,
    messages: Some(MessageMarks {
        next: "<|start|>assistant",
        answer: "<|channel|>final<|message|>",
        tokens: &["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|return|>", "<|call|>"],
    }),
};
