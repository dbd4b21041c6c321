//! Warns of the fields of sampling where nothing is drawn.

use rsgen_core::error::Message;
use rsgen_core::message;

use super::super::config::GenerationConfig;
use super::super::logits::{AppliesTo, PROCESSORS};
use super::super::mode::GenerationMode;

/// Warns of fields of the call that have no effect without `do_sample`.
pub(super) fn warn_of_unused_sampling_fields(
    config: &GenerationConfig,
    merged: &GenerationConfig,
    mode: GenerationMode,
    warnings: &mut Vec<Message>,
) {
    if merged.do_sample == Some(true) {
        return;
    }
    let set = config.to_json();
    let unused: Vec<&str> = PROCESSORS
        .iter()
        .filter(|entry| entry.applies_to == AppliesTo::Sampling)
        .map(|entry| entry.switch)
        // Contrastive search takes its number of candidates from `top_k`.
        .filter(|&field| mode != GenerationMode::ContrastiveSearch || field != "top_k")
        .filter(|field| {
            let neutral =
                GenerationConfig::FIELDS.iter().find(|info| info.name == *field).map(|info| info.default);
            set.get(*field)
                .is_some_and(|value| !value.is_null() && Some(value.to_string().as_str()) != neutral)
        })
        .collect();
    let has = if unused.len() == 1 { "has" } else { "have" };
    if !unused.is_empty() {
        warnings.push(Message::names(unused).then(message!(
            " {has} no effect because " {do_sample} " is not set; set " {do_sample = true} " to sample"
        )));
    }
}
