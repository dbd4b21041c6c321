//! Harmony, as gpt-oss writes it: a message to `functions.name`, whose text is the JSON of the arguments.

use super::super::bodies::Named;
use super::{Arguments, Mark, ToolForm, Writes};

pub(super) static FORM: ToolForm = ToolForm {
    name: "openai",
    signs: &[&["<|channel|>", "functions."]],
    marks: &[Mark("<|channel|>commentary to=functions.", |_| Box::new(Named::new(name, "<|call|>")))],
    bare: None,
    dropped: &[
        "<|channel|>analysis<|message|>",
        "<|channel|>commentary<|message|>",
        "<|channel|>final<|message|>",
        "<|start|>assistant",
        "<|end|>",
        "<|return|>",
        "<|call|>",
    ],
    inner: &["<|channel|>", "<|constrain|>", "<|message|>", "<|start|>"],
    writes: Writes {
        begin: "",
        end: "",
        // The token that ends a call ends the answer too.
        call: ["<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", ""],
        between: "<|call|><|start|>assistant",
        arguments: Arguments::Json,
    },
};

/// The name before the form of the arguments.
fn name(head: &str) -> Option<&str> {
    head.split(|letter: char| letter.is_whitespace() || letter == '<').next()
}
