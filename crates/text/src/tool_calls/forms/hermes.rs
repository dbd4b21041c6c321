//! Hermes, Qwen 2.5 and 3, Granite 4 and many others: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

use super::super::bodies::JsonCalls;
use super::{Arguments, Mark, ToolForm, Writes};

pub(super) static FORM: ToolForm = ToolForm {
    name: "hermes",
    signs: &[&["<tool_call>"]],
    marks: &[Mark("<tool_call>", |_| Box::new(JsonCalls::new("</tool_call>", None)))],
    bare: None,
    dropped: &["</tool_call>"],
    inner: &[],
    writes: Writes {
        begin: "",
        end: "",
        call: ["<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>"],
        between: "\n",
        arguments: Arguments::Json,
    },
};
