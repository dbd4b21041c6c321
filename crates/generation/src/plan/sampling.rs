//! Warns of the fields of sampling where nothing is drawn.

use rsgen_core::{Message, message};

use super::super::config::{FieldInfo, GenerationConfig};
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
        .filter(|entry| entry.applies_to() == AppliesTo::Sampling)
        .filter_map(|entry| FieldInfo::of(entry.switch))
        .filter(|field| !field.searches.includes(mode, false))
        .filter(|field| {
            let value = set.get(field.name).filter(|value| !value.is_null());
            value.is_some_and(|value| format!("{value}") != field.default)
        })
        .map(|field| field.name)
        .collect();
    let has = if unused.len() == 1 { "has" } else { "have" };
    if !unused.is_empty() {
        warnings.push(Message::names(unused).then(message!(
            " {has} no effect because " {do_sample} " is not set; set " {do_sample = true} " to sample"
        )));
    }
}
