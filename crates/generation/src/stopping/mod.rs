//! Stopping criteria: when a row is finished, and why.
//!
//! One file per criterion, named as in transformers. To add one: its file, its `mod` line, its entry in
//! `build`.

mod confidence;
mod eos;
mod max_length;
mod max_time;
mod stop_strings;

use std::sync::Arc;

use rsgen_core::{Error, FinishReason, Result, ResultExt, TokenId, message};
use rsgen_kernels::Isa;

use super::resolved::ResolvedConfig;

pub use confidence::ConfidenceCriteria;
pub use eos::EosTokenCriteria;
pub use max_length::{ContextLimit, MaxLengthCriteria};
pub use max_time::MaxTimeCriteria;
pub use stop_strings::StopStringCriteria;

/// Decides whether a row ends with its newest token.
pub trait StoppingCriterion: Send + Sync {
    /// The name, unique within a request: that of the type by default. A criterion with the name
    /// of a built-in one replaces it.
    fn name(&self) -> &str {
        super::type_name::<Self>()
    }

    /// The reason to stop, if any. Called once per new token of every active row.
    ///
    /// # Errors
    /// Any error ends the request.
    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>>;

    /// Whether it wants all rows of a step together, in [`should_stop_rows`](Self::should_stop_rows).
    fn judges_steps(&self) -> bool {
        false
    }

    /// The reason for each row of a step, whose ids have one length. Rows that have ended are among them, padded;
    /// their reasons are not looked at.
    ///
    /// # Errors
    /// As for [`should_stop`](Self::should_stop).
    fn should_stop_rows(&self, rows: &[StopContext<'_>]) -> Result<Vec<Option<FinishReason>>> {
        rows.iter().map(|row| self.should_stop(row)).collect()
    }
}

/// The row that a criterion checks.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StopContext<'a> {
    /// All ids of the row: prompt, its padding included, and generated tokens, the last one newest.
    pub input_ids: &'a [TokenId],
    /// The length of the prompt, padding included.
    pub prompt_len: usize,
    /// The index of the prompt that the row continues.
    pub prompt_index: usize,
    /// The row within the request.
    pub row_index: usize,
    /// The processed scores that the newest token was chosen from, `[vocab_size]`.
    pub scores: &'a [f32],
    /// The instruction set to compute with.
    pub isa: Isa,
    /// Whether the row has ended before: it has padding in place of a new token, and zeros as scores.
    pub has_ended: bool,
}

impl<'a> StopContext<'a> {
    /// A row of one prompt whose scores are unknown, to call a criterion by hand.
    pub fn of_row(input_ids: &'a [TokenId], prompt_len: usize) -> Self {
        let (scores, isa) = (&[][..], Isa::fastest());
        Self { input_ids, prompt_len, prompt_index: 0, row_index: 0, scores, isa, has_ended: false }
    }

    /// The generated tokens.
    pub fn new_tokens(&self) -> &'a [TokenId] {
        self.input_ids.get(self.prompt_len..).unwrap_or_default()
    }
}

/// The criteria of a request: those that its fields switch on; the caller's replace those of the same name or
/// follow. The model's context, which has `context_room[i]` tokens after prompt `i`, limits every request and
/// cannot be replaced.
pub(super) fn build(
    config: &ResolvedConfig,
    context_room: Vec<usize>,
    callers: &[Arc<dyn StoppingCriterion>],
) -> Result<StoppingCriteriaList> {
    let built_in = [
        MaxLengthCriteria::build(config)?,
        MaxTimeCriteria::build(config)?,
        StopStringCriteria::build(config)?,
        EosTokenCriteria::build(config)?,
    ];
    let mut waiting: Vec<&Arc<dyn StoppingCriterion>> = callers.iter().collect();
    let mut criteria: Vec<Arc<dyn StoppingCriterion>> = vec![Arc::new(ContextLimit::new(context_room))];
    for criterion in built_in.into_iter().flatten() {
        let namesake = waiting.iter().position(|caller| caller.name() == criterion.name());
        criteria.push(match namesake {
            Some(index) => Arc::clone(waiting.remove(index)),
            None => criterion,
        });
    }
    criteria.extend(waiting.into_iter().map(Arc::clone));
    Ok(StoppingCriteriaList { criteria, is_built_in: callers.is_empty() })
}

type Built = Result<Option<Arc<dyn StoppingCriterion>>>;

/// The criteria of a request as a list.
#[derive(Clone, Default)]
pub struct StoppingCriteriaList {
    criteria: Vec<Arc<dyn StoppingCriterion>>,
    /// Whether none is the caller's. Those of fields look at no scores.
    pub(super) is_built_in: bool,
}

impl StoppingCriteriaList {
    /// Why the row ends, if any criterion stops it; of several reasons the first of eos, stop, length, time.
    ///
    /// # Errors
    /// The first error of a criterion, with its name.
    pub fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        let mut found = None;
        for criterion in &self.criteria {
            let reason = criterion.should_stop(row).context(|| criterion.name())?;
            found = [found, reason].into_iter().flatten().min_by_key(|&reason| rank(reason));
        }
        Ok(found)
    }

    /// [`should_stop`](Self::should_stop) for each row of a step: every criterion is called once.
    ///
    /// # Errors
    /// The first error of a criterion, with its name.
    pub fn should_stop_rows(&self, rows: &[StopContext<'_>]) -> Result<Vec<Option<FinishReason>>> {
        let mut found = vec![None; rows.len()];
        for criterion in self.criteria.iter().filter(|_| !rows.is_empty()) {
            let reasons = if criterion.judges_steps() {
                criterion.should_stop_rows(rows)
            } else {
                let of_row =
                    |row: &StopContext<'_>| if row.has_ended { Ok(None) } else { criterion.should_stop(row) };
                rows.iter().map(of_row).collect()
            };
            let reasons = reasons.context(|| criterion.name())?;
            for (found, reason) in found.iter_mut().zip(reasons) {
                *found = [*found, reason].into_iter().flatten().min_by_key(|&reason| rank(reason));
            }
        }
        Ok(found)
    }

    /// Whether any criterion wants all rows of a step together.
    pub(super) fn judges_steps(&self) -> bool {
        self.criteria.iter().any(|criterion| criterion.judges_steps())
    }

    /// With one more criterion.
    pub(super) fn with(mut self, criterion: Option<Arc<dyn StoppingCriterion>>) -> Self {
        self.criteria.extend(criterion);
        self
    }

    /// The criteria's names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.criteria.iter().map(|criterion| criterion.name())
    }
}

impl std::fmt::Debug for StoppingCriteriaList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// The reasons, the one that holds before all others first.
const ORDER: [FinishReason; 5] = [
    FinishReason::Eos,
    FinishReason::Stop,
    FinishReason::Length,
    FinishReason::Time,
    FinishReason::Cancelled,
];

fn rank(reason: FinishReason) -> usize {
    ORDER.iter().position(|&other| other == reason).unwrap_or(ORDER.len())
}

/// A tokenizer is needed for `field`, and there is none.
fn needs_vocabulary(field: &str) -> Error {
    Error::config(message!(
        "needs the model's tokenizer, but the model folder has none; stop on token ids with "
        {eos_token_id} " instead"
    ))
    .about(field)
}

#[cfg(test)]
mod tests {
    use super::super::config::GenerationConfig;
    use super::*;

    struct Says(&'static str, Option<FinishReason>);

    impl StoppingCriterion for Says {
        fn name(&self) -> &str {
            self.0
        }

        fn should_stop(&self, _row: &StopContext<'_>) -> Result<Option<FinishReason>> {
            Ok(self.1)
        }
    }

    fn list(reasons: &[Option<FinishReason>]) -> StoppingCriteriaList {
        StoppingCriteriaList {
            is_built_in: false,
            criteria: reasons
                .iter()
                .map(|&reason| Arc::new(Says("says", reason)) as Arc<dyn StoppingCriterion>)
                .collect(),
        }
    }

    #[test]
    fn of_several_reasons_the_first_of_eos_stop_length_time_holds() {
        use FinishReason::{Eos, Length, Stop, Time};
        let ids = [TokenId(0)];
        let mut order = [Time, Length, Stop, Eos];
        for kept in (1..=4).rev() {
            let reasons: Vec<_> = order[..kept].iter().copied().map(Some).collect();
            assert_eq!(
                list(&reasons).should_stop(&StopContext::of_row(&ids, 1)).unwrap(),
                Some(order[kept - 1])
            );
        }
        order.reverse();
        let reasons: Vec<_> = order.iter().copied().map(Some).chain([None]).collect();
        assert_eq!(list(&reasons).should_stop(&StopContext::of_row(&ids, 1)).unwrap(), Some(Eos));
        assert_eq!(list(&[None, None]).should_stop(&StopContext::of_row(&ids, 1)).unwrap(), None);
    }

    #[test]
    fn a_callers_criterion_replaces_its_namesake_but_never_the_context() {
        let config = ResolvedConfig {
            max_length: 3,
            eos_token_ids: vec![TokenId(1)],
            ..ResolvedConfig::of_fields(GenerationConfig::new(), 8)
        };
        let callers: Vec<Arc<dyn StoppingCriterion>> = vec![
            Arc::new(Says("Mine", None)),
            Arc::new(Says("MaxLengthCriteria", None)),
            Arc::new(Says("ContextLimit", None)),
        ];
        let list = build(&config, vec![10], &callers).unwrap();
        assert_eq!(
            list.names().collect::<Vec<_>>(),
            ["ContextLimit", "MaxLengthCriteria", "EosTokenCriteria", "Mine", "ContextLimit"]
        );
        let ids = [TokenId(5); 5];
        assert_eq!(list.should_stop(&StopContext::of_row(&ids, 1)).unwrap(), None, "the namesake decides");
        let ids = [TokenId(5); 11];
        assert_eq!(list.should_stop(&StopContext::of_row(&ids, 1)).unwrap(), Some(FinishReason::Length));
    }
}
