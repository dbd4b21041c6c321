//! Command R7B and Command A: `<|START_THINKING|>…<|END_THINKING|>`.

use super::ReasoningForm;

pub(super) static FORM: ReasoningForm = ReasoningForm {
    name: "command_a",
    signs: &[&["<|START_THINKING|>"]],
    begins: &["<|START_THINKING|>"],
    ends: &["<|END_THINKING|>"],
    is_always_open: false,
    messages: None,
};
