//! `DeepSeek` V3 and R1, with the arguments in a block of code, and V3.1, without.

use super::super::bodies::Named;
use super::{Arguments, Mark, ToolForm, Writes};

const SEPARATOR: &str = "<｜tool▁sep｜>";
const END: &str = "<｜tool▁call▁end｜>";

pub(super) static V3: ToolForm = FORM;

pub(super) static V31: ToolForm = ToolForm {
    name: "deepseek_v31",
    signs: &[&["<｜tool▁call▁begin｜>"]],
    writes: Writes { call: ["<｜tool▁call▁begin｜>", SEPARATOR, END], between: "", ..FORM.writes },
    ..FORM
};

const FORM: ToolForm = ToolForm {
    name: "deepseek_v3",
    signs: &[&["<｜tool▁call▁begin｜>", "```json"]],
    marks: &[Mark("<｜tool▁call▁begin｜>", |_| Box::new(Named::new(name, END)))],
    bare: None,
    dropped: &["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", END],
    inner: &[SEPARATOR],
    writes: Writes {
        begin: "<｜tool▁calls▁begin｜>",
        end: "<｜tool▁calls▁end｜>",
        call: ["<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"],
        between: "\n",
        arguments: Arguments::Json,
    },
};

/// The name before the separator, or after it, where the kind of the tool stands before it.
fn name(head: &str) -> Option<&str> {
    let (before, after) = head.split_once(SEPARATOR)?;
    let after = after.trim_start().split(['\n', '`']).next().unwrap_or_default().trim();
    Some(if after.is_empty() { before } else { after })
}
