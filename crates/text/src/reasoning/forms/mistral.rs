//! Mistral's models that think: `[THINK]…[/THINK]`.

use super::ReasoningForm;

pub(super) static FORM: ReasoningForm = ReasoningForm {
    name: "mistral",
    signs: &[&["[THINK]"]],
    begins: &["[THINK]"],
    ends: &["[/THINK]"],
    is_always_open: false,
    messages: None,
};
