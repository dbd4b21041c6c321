//! Granite 3.2: thinking and answer each after a sentence.

use super::ReasoningForm;

pub(super) static FORM: ReasoningForm = ReasoningForm {
    name: "granite",
    signs: &[&["Here is my thought process:", "Here is my response:"]],
    begins: &["Here is my thought process:", "Here's my thought process:"],
    ends: &["Here is my response:", "Here's my response:"],
    is_always_open: false,
    messages: None,
};
