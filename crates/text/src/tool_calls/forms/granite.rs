//! Granite 3: a list of objects after `<|tool_call|>`, which the text of early ones writes as `<tool_call>`.

use super::super::bodies::JsonCalls;
use super::{Arguments, Mark, ToolForm, Writes};

pub(super) static FORM: ToolForm = ToolForm {
    name: "granite",
    signs: &[&["<|start_of_role|>", "<|tool_call|>"], &["<|start_of_role|>", "available_tools"]],
    marks: &[
        Mark("<|tool_call|>", |_| Box::new(JsonCalls::new("", None))),
        Mark("<tool_call>", |_| Box::new(JsonCalls::new("</tool_call>", None))),
    ],
    bare: None,
    dropped: &[],
    inner: &[],
    writes: Writes {
        begin: "<|tool_call|>[",
        end: "]",
        call: ["{\"name\": \"", "\", \"arguments\": ", "}"],
        between: ", ",
        arguments: Arguments::Json,
    },
};
