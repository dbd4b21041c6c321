//! Phi-4-mini: `<|tool_call|>[{"name": …, "arguments": {…}}]<|/tool_call|>`, or `functools[…]`.

use super::super::bodies::JsonCalls;
use super::{Arguments, Mark, ToolForm, Writes};

pub(super) static FORM: ToolForm = ToolForm {
    name: "phi4_mini_json",
    signs: &[&["<|tool|>"], &["functools["]],
    marks: &[
        Mark("<|tool_call|>", |_| Box::new(JsonCalls::new("<|/tool_call|>", None))),
        Mark("functools", |_| Box::new(JsonCalls::new("", None))),
    ],
    bare: None,
    dropped: &["<|/tool_call|>"],
    inner: &[],
    writes: Writes {
        begin: "<|tool_call|>[",
        end: "]<|/tool_call|>",
        call: ["{\"name\": \"", "\", \"arguments\": ", "}"],
        between: ", ",
        arguments: Arguments::Json,
    },
};
