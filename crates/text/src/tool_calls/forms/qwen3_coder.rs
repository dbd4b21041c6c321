//! Qwen3-Coder: `<function=name>` with a `<parameter=name>` for each argument, whose text is a value of the type
//! that the tool's schema says.

use serde_json::Value;

use super::super::Part;
use super::super::bodies::{Body, Status, is_name};
use super::super::partial;
use super::super::tools::Tools;
use super::{Arguments, Mark, ToolForm, Writes};

pub(super) static FORM: ToolForm = ToolForm {
    name: "qwen3_coder",
    signs: &[&["<function=", "<parameter="]],
    marks: &[Mark("<function=", |tools| {
        Box::new(Xml { tools: tools.clone(), name: None, has_arguments: false })
    })],
    bare: None,
    dropped: &["<tool_call>", "</tool_call>", "</function>"],
    inner: &[],
    writes: Writes {
        begin: "",
        end: "",
        call: ["<tool_call>\n<function=", ">\n", "</function>\n</tool_call>"],
        between: "\n",
        arguments: Arguments::Xml,
    },
};

const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
const END: &str = "</function>";

/// A call. Each argument comes when it is whole.
struct Xml {
    tools: Tools,
    name: Option<String>,
    has_arguments: bool,
}

impl Body for Xml {
    fn read(&mut self, text: &str, ends: bool, parts: &mut Vec<Part>) -> (usize, Status) {
        let mut at = 0;
        let name = if let Some(name) = &self.name {
            name.clone()
        } else {
            let Some(end) = text.find(['>', '\n']) else {
                return (0, if ends { Status::Failed } else { Status::More });
            };
            let name = text[..end].trim();
            if !text[end..].starts_with('>') || !is_name(name) {
                return (0, Status::Failed);
            }
            parts.push(Part::Begin(name.to_owned()));
            at = end + 1;
            self.name.insert(name.to_owned()).clone()
        };
        loop {
            let rest = &text[at..];
            let begin = rest.len() - rest.trim_start().len();
            let next = &rest[begin..];
            let may_be = |mark: &str| !ends && next.len() < mark.len() && mark.starts_with(next);
            if let Some(inner) = next.strip_prefix(PARAMETER) {
                match argument(inner, ends) {
                    Some((key, value, len)) => {
                        let value = typed(value, self.tools.parameters(&name), key);
                        let before = if self.has_arguments { ", " } else { "{" };
                        self.has_arguments = true;
                        parts.push(Part::Arguments(format!("{before}{}: {value}", Value::from(key))));
                        at += begin + PARAMETER.len() + len;
                    }
                    None if ends => return (text.len(), self.end(parts)),
                    None => return (at, Status::More),
                }
            } else if next.starts_with(END) {
                return (at + begin + END.len(), self.end(parts));
            } else if may_be(PARAMETER) || may_be(END) {
                return (at, Status::More);
            } else {
                return (at, self.end(parts));
            }
        }
    }
}

impl Xml {
    fn end(&self, parts: &mut Vec<Part>) -> Status {
        parts.push(Part::Arguments(if self.has_arguments { "}" } else { "{}" }.to_owned()));
        Status::Done
    }
}

/// A whole argument from behind its mark: key, value and length. It may lack its end before the next mark.
fn argument(text: &str, ends: bool) -> Option<(&str, &str, usize)> {
    let (key, value) = text.split_once('>')?;
    let end =
        [PARAMETER_END, END, PARAMETER].iter().filter_map(|mark| Some((value.find(mark)?, *mark))).min();
    if let (false, Some((at, mark))) = (ends, end)
        && mark != PARAMETER_END
        && partial(value, &[PARAMETER_END]) > 0
        && at + PARAMETER_END.len() > value.len()
    {
        return None;
    }
    let (at, mark) = end?;
    let len = key.len() + 1 + at + if mark == PARAMETER_END { mark.len() } else { 0 };
    let value = &value[..at];
    let value = value.strip_prefix('\n').unwrap_or(value);
    Some((key.trim(), value.strip_suffix('\n').unwrap_or(value), len))
}

/// The JSON of a value: a text where the schema says so, or where it is nothing else.
fn typed(value: &str, schema: Option<&Value>, key: &str) -> String {
    let schema = schema.and_then(|schema| schema.get("properties")?.get(key));
    let is_text = match schema.and_then(|schema| schema.get("type")) {
        Some(Value::String(kind)) => kind == "string",
        Some(Value::Array(kinds)) => kinds.iter().all(|kind| kind == "string"),
        _ => schema.and_then(|schema| schema.get("enum")?.as_array()?.first()).is_some_and(Value::is_string),
    };
    let trimmed = value.trim();
    let word = match trimmed {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        other => other,
    };
    if !is_text && serde_json::from_str::<Value>(word).is_ok() {
        return word.to_owned();
    }
    Value::from(value).to_string()
}
