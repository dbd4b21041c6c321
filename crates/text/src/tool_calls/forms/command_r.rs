//! Command R7B and Command A: a list between `<|START_ACTION|>` and `<|END_ACTION|>`; Command R before them wrote
//! `Action:` and a block of code.

use super::super::bodies::JsonCalls;
use super::{Arguments, Mark, ToolForm, Writes};

pub(super) static FORM: ToolForm = ToolForm {
    name: "command_r",
    signs: &[&["<|START_ACTION|>"], &["Action:", "tool_name"]],
    marks: &[
        Mark("<|START_ACTION|>", |_| Box::new(JsonCalls::new("<|END_ACTION|>", None))),
        Mark("Action: ```json", |_| Box::new(JsonCalls::new("```", None))),
    ],
    bare: None,
    dropped: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|END_ACTION|>"],
    inner: &[],
    writes: Writes {
        begin: "<|START_ACTION|>[\n    ",
        end: "\n]<|END_ACTION|>",
        call: ["{\"tool_call_id\": \"0\", \"tool_name\": \"", "\", \"parameters\": ", "}"],
        between: ",\n    ",
        arguments: Arguments::Json,
    },
};
