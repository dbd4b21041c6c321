//! JSON alone: `{"name": …, "arguments": {…}}` at the beginning of a line, or in a block of code. It is the form
//! of templates that show tools and name no form. An object is a call only if it names a tool.

use super::super::bodies::JsonCalls;
use super::{Arguments, Mark, ToolForm, Writes};

pub(super) static FORM: ToolForm = ToolForm {
    name: "json",
    signs: &[],
    marks: &[Mark("```json", |tools| Box::new(JsonCalls::new("```", Some(tools.shared_names()))))],
    bare: Some((&['{', '['], |tools| Box::new(JsonCalls::new("", Some(tools.shared_names()))))),
    dropped: &[],
    inner: &[],
    writes: Writes {
        begin: "",
        end: "",
        call: ["{\"name\": \"", "\", \"arguments\": ", "}"],
        between: "\n",
        arguments: Arguments::Json,
    },
};
