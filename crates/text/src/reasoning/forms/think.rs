//! `<think>…</think>`: Qwen3, `QwQ`, `DeepSeek`, GLM and many others. Their prompts may begin it.

use super::ReasoningForm;

pub(super) static QWEN3: ReasoningForm = FORM;

/// An answer that begins with thinking even where nothing says so, as that of older templates of `DeepSeek` R1.
pub(super) static DEEPSEEK_R1: ReasoningForm =
    ReasoningForm { name: "deepseek_r1", signs: &[], is_always_open: true, ..FORM };

const FORM: ReasoningForm = ReasoningForm {
    name: "qwen3",
    signs: &[&["<think>"]],
    begins: &["<think>"],
    ends: &["</think>"],
    is_always_open: false,
    messages: None,
};
