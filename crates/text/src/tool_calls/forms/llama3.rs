//! Llama 3.1 to 3.3: `{"name": …, "parameters": {…}}`, perhaps after `<|python_tag|>`; several with `;` between.

use super::super::bodies::JsonCalls;
use super::{Arguments, Mark, ToolForm, Writes};

pub(super) static FORM: ToolForm = ToolForm {
    name: "llama3_json",
    signs: &[&["<|python_tag|>"], &["<|start_header_id|>", "\"parameters\": "]],
    marks: &[Mark("<|python_tag|>", |_| Box::new(JsonCalls::new("", None)))],
    bare: Some((&['{'], |tools| Box::new(JsonCalls::new("", Some(tools.shared_names()))))),
    dropped: &["<|eom_id|>"],
    inner: &[],
    writes: Writes {
        begin: "",
        end: "",
        call: ["{\"name\": \"", "\", \"parameters\": ", "}"],
        between: "; ",
        arguments: Arguments::Json,
    },
};
