//! Mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}}]`, and since its eleventh tokenizer
//! `[TOOL_CALLS]name[ARGS]{…}`. Both read both.

use super::super::Part;
use super::super::bodies::{Body, JsonCalls, Named, Status};
use super::super::tools::Tools;
use super::{Arguments, Mark, ToolForm, Writes};

pub(super) static V1: ToolForm = FORM;

pub(super) static V11: ToolForm = ToolForm {
    name: "mistral_v11",
    signs: &[&["[TOOL_CALLS]", "[ARGS]"]],
    writes: Writes {
        begin: "",
        end: "",
        call: ["[TOOL_CALLS]", "[ARGS]", ""],
        between: "",
        arguments: Arguments::Json,
    },
    ..FORM
};

const FORM: ToolForm = ToolForm {
    name: "mistral",
    signs: &[&["[TOOL_CALLS]"]],
    marks: &[Mark("[TOOL_CALLS]", either)],
    bare: None,
    dropped: &[],
    inner: &["[ARGS]", "[CALL_ID]"],
    writes: Writes {
        begin: "[TOOL_CALLS][",
        end: "]",
        call: ["{\"name\": \"", "\", \"arguments\": ", "}"],
        between: ", ",
        arguments: Arguments::Json,
    },
};

/// The name before `[CALL_ID]…` and `[ARGS]`.
fn name(head: &str) -> Option<&str> {
    head.split(['[', '\n']).next()
}

fn either(_: &Tools) -> Box<dyn Body> {
    Box::new(Either(None))
}

/// A list or an object if it begins with a bracket, else a name.
struct Either(Option<Box<dyn Body>>);

impl Body for Either {
    fn read(&mut self, text: &str, ends: bool, parts: &mut Vec<Part>) -> (usize, Status) {
        let begin = text.len() - text.trim_start().len();
        let body = match (&mut self.0, text[begin..].chars().next()) {
            (Some(body), _) => body,
            (none, Some('[' | '{')) => none.insert(Box::new(JsonCalls::new("", None))),
            (none, Some(_)) => none.insert(Box::new(Named::new(name, ""))),
            (None, None) => return (0, if ends { Status::Failed } else { Status::More }),
        };
        body.read(text, ends, parts)
    }
}
