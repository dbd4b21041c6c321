//! Seed-OSS: `<seed:think>…</seed:think>`.

use super::ReasoningForm;

pub(super) static FORM: ReasoningForm = ReasoningForm {
    name: "seed_oss",
    signs: &[&["<seed:think>"]],
    begins: &["<seed:think>"],
    ends: &["</seed:think>"],
    is_always_open: false,
    messages: None,
};
