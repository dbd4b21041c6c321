//! Checks the fields of beam searches against each other: groups, constraints, length penalty.

use std::sync::Arc;

use rsgen_core::{Error, Message, Result, message, refuse_if};

use super::super::config::{EarlyStopping, ForcedWord, GenerationConfig};
use super::super::constraint::{self, Constraint, Constraints, DisjunctiveConstraint, PhrasalConstraint};
use super::super::mode::GenerationMode;
use super::PlanContext;

/// Rejects fields that contradict each other.
pub(super) fn check(merged: &GenerationConfig, mode: GenerationMode) -> Result<()> {
    let (beams, groups) = (merged.num_beams.unwrap_or(1), merged.num_beam_groups.unwrap_or(1));
    let samples = merged.do_sample == Some(true);
    refuse_if(groups == 0 || !beams.is_multiple_of(groups), "num_beam_groups", || {
        message!(
            "must be a divisor of " {num_beams} " ({beams}), but is {groups}; leave it unset, or change \
             one of them"
        )
    })?;
    let groups_differ = merged.diversity_penalty.is_some_and(|penalty| penalty > 0.0);
    refuse_if(mode == GenerationMode::GroupBeamSearch && !groups_differ, "diversity_penalty", || {
        message!(
            "must be above 0 with several " {num_beam_groups} ", which would find the same otherwise; \
             set " {diversity_penalty = 1.0}
        )
    })?;
    refuse_if(
        mode == GenerationMode::GroupBeamSearch && samples,
        "do_sample",
        || message!("must be false with several " {num_beam_groups} ", but is true; leave one of them out"),
    )?;
    refuse_if(mode.has_beams() && merged.dola_layers.is_some(), "dola_layers", || {
        message!(
            "goes with greedy search and sampling, but the other fields ask for {mode}; leave it out, or \
             set " {num_beams = 1}
        )
    })?;
    if mode == GenerationMode::ConstrainedBeamSearch {
        refuse_if(beams < 2, "force_words_ids", || {
            message!(
                "and `constraints` need beams, but " {num_beams} " is {beams}; set " {num_beams = 4} ", for example"
            )
        })?;
        refuse_if(samples, "force_words_ids", || {
            message!(
                "and `constraints` need a search that does not draw, but " {do_sample} " is true; set "
                {do_sample = false}
            )
        })?;
        refuse_if(groups > 1, "force_words_ids", || {
            message!(
                "and `constraints` need a single group of beams, but " {num_beam_groups} " is {groups}; leave it \
                 unset"
            )
        })?;
    }
    match merged.length_penalty {
        Some(power) if !power.is_finite() => Err(Error::config(format!(
            "must be a finite number, but is {power}; 1.0 divides scores by the length, 0.0 leaves them"
        ))
        .about("length_penalty")),
        _ => Ok(()),
    }
}

/// The constraints on the output: the words of the configuration and the caller's constraints.
pub(super) fn constraints(merged: &GenerationConfig, context: &PlanContext) -> Result<Constraints> {
    context.constraints.iter().try_for_each(|constraint| constraint::check(&**constraint))?;
    let mut constraints = context.constraints.clone();
    if let Some(words) = &merged.force_words_ids {
        refuse_if(
            words.is_empty(),
            "force_words_ids",
            || "must hold at least one word, but is empty; leave it unset",
        )?;
        for word in words {
            constraints.push(match word {
                ForcedWord::Phrase(phrase) => {
                    Arc::new(PhrasalConstraint::new(phrase.clone())?) as Arc<dyn Constraint>
                }
                ForcedWord::AnyOf(phrases) => Arc::new(DisjunctiveConstraint::new(phrases)?),
            });
        }
    }
    let tokens = constraints.iter().flat_map(|constraint| constraint.tokens());
    match tokens.into_iter().find(|token| token.index() >= context.vocab_size) {
        None => Ok(constraints),
        Some(token) => Err(Error::config(message!(
            "the tokens of " {force_words_ids}
            (" and `constraints` must be ids of the model's vocabulary, 0 to {}, but one is {token}",
             context.vocab_size - 1)
        ))
        .concerning("force_words_ids")),
    }
}

/// Warns of fields of the call that have no effect.
pub(super) fn warn_of_unused_fields(
    config: &GenerationConfig,
    merged: &GenerationConfig,
    mode: GenerationMode,
    warnings: &mut Vec<Message>,
) {
    let groups = merged.num_beam_groups.unwrap_or(1);
    let (no_beams, one_group, no_contrast) =
        (!mode.has_beams(), groups < 2, mode != GenerationMode::ContrastiveSearch);
    let beams = message!("because there are no beams; set " {num_beams} " above 1");
    let above_0 = |value: Option<f64>| value.is_some_and(|value| value > 0.0);
    for (field, set, unused, why) in [
        (
            "early_stopping",
            config.early_stopping.is_some_and(|value| value != EarlyStopping::False),
            no_beams,
            beams.clone(),
        ),
        ("length_penalty", config.length_penalty.is_some_and(|value| value != 1.0), no_beams, beams),
        (
            "diversity_penalty",
            above_0(config.diversity_penalty),
            one_group,
            message!("because there is one group of beams; set " {num_beam_groups} " above 1"),
        ),
        (
            "penalty_alpha",
            above_0(config.penalty_alpha),
            no_contrast,
            message!(
                "in {mode}; contrastive search needs " {top_k} " above 1, no " {do_sample} ", no " {num_beams}
                " and no other strategy's fields"
            ),
        ),
    ] {
        if set && unused {
            warnings.push(message!({(field)} " has no effect ").then(why));
        }
    }
}
