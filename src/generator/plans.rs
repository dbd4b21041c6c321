//! The plans of a call. Those of a long list are made to be checked, and again when their turn comes: a plan
//! takes much more memory than its prompt.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Generator;
use super::adapters::CallAdapters;
use super::kept::Caches;
use super::output_texts::OutputTexts;
use crate::engine::{Estimate, ModelRunner, salted};
use rsgen_core::{Error, ErrorKind, Message, Result};
use rsgen_generation::{
    GenerationConfig, GenerationMode, GenerationPlan, OneOrMany, PlanContext, PromptBatch,
};

/// So many plans are kept from the check until they run; the next ones are made again.
const KEPT: usize = 256;

/// What plans are made of: the call, and what each prompt has of its own.
pub(super) struct Planner<'a> {
    pub(super) generator: &'a Generator,
    pub(super) config: Box<GenerationConfig>,
    pub(super) context: PlanContext,
    pub(super) output_texts: OutputTexts,
    pub(super) seeds: Option<Vec<u64>>,
    pub(super) decoder_prompts: Vec<Option<PromptBatch>>,
    pub(super) adapters: CallAdapters,
    pub(super) caches: Caches,
    pub(super) salt: Option<Arc<str>>,
}

impl Planner<'_> {
    /// The plan of a prompt, or why it has none.
    fn plan(&mut self, index: usize, prompt: Result<PromptBatch>) -> Result<GenerationPlan> {
        let (mut config, context) = (self.config.clone(), &mut self.context);
        config.seed = self.seeds.as_ref().map(|seeds| OneOrMany::One(seeds[index]));
        self.output_texts.add_terms(index, &context.model_defaults, &mut config);
        context.first_prompt = index;
        context.target_prefix_len = self.output_texts.prefix_len(index);
        context.decoder_prompts.clone_from(&self.decoder_prompts[index]);
        context.adapters = self.adapters.of(index).clone();
        context.cache_salt = self.caches.salt(index, salted(&context.adapters, self.salt.clone()));
        prompt.and_then(|prompt| GenerationPlan::new(&config, prompt, context)).map_err(|error| {
            if error.kind() == ErrorKind::Config {
                let inherited = self.generator.shared.inherited(error, &config, &context.model_defaults);
                return self.output_texts.named(inherited);
            }
            error
        })
    }
}

/// The plans of the valid prompts, in order.
pub(super) struct Plans<'a> {
    planner: Planner<'a>,
    waiting: VecDeque<Waiting>,
    warnings: Vec<Message>,
    without_drafts: Option<GenerationMode>,
}

/// What is known of a plan before it runs.
struct Waiting {
    index: usize,
    form: Form,
    num_rows: usize,
    heals_prompts: bool,
    memory: Estimate,
}

enum Form {
    Plan(Box<GenerationPlan>),
    Prompt(PromptBatch),
}

impl<'a> Plans<'a> {
    /// Plans every prompt. Returns the index and the error of each invalid one besides.
    ///
    /// # Errors
    /// When a field is invalid.
    pub(super) fn new(
        mut planner: Planner<'a>,
        draft: Option<&ModelRunner>,
        prompts: Vec<Result<PromptBatch>>,
    ) -> Result<(Self, Vec<(usize, Error)>)> {
        let engine = &planner.generator.shared.engine;
        let (mut waiting, mut impossible) = (VecDeque::with_capacity(prompts.len()), Vec::new());
        let (mut warnings, mut without_drafts) = (Vec::new(), None);
        for (index, prompt) in prompts.into_iter().enumerate() {
            let again = if index < KEPT { None } else { prompt.as_ref().ok().cloned() };
            let plan = match planner.plan(index, prompt) {
                Ok(plan) => plan,
                Err(error) if error.kind() == ErrorKind::Input => {
                    impossible.push((index, error));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for warning in plan.warnings() {
                if !warnings.contains(warning) {
                    warnings.push(warning.clone());
                }
            }
            if plan.draft().is_none() {
                without_drafts = Some(plan.mode());
            }
            waiting.push_back(Waiting {
                index,
                num_rows: plan.num_rows(),
                heals_prompts: plan.heals_prompts(),
                memory: Estimate::of(engine, draft, &plan),
                form: again.map_or_else(|| Form::Plan(Box::new(plan)), Form::Prompt),
            });
        }
        Ok((Self { planner, waiting, warnings, without_drafts }, impossible))
    }

    /// Leaves out those that `keeps` is false for, in order.
    pub(super) fn retain(&mut self, keeps: Vec<bool>) {
        let mut keeps = keeps.into_iter();
        self.waiting.retain(|_| keeps.next() == Some(true));
    }

    /// The plan of the first prompt.
    pub(super) fn first(&self) -> Option<&GenerationPlan> {
        match &self.waiting.front()?.form {
            Form::Plan(plan) => Some(plan),
            Form::Prompt(_) => None,
        }
    }

    /// Warnings about likely mistakes of the caller, each once.
    pub(super) fn warnings(&self) -> &[Message] {
        &self.warnings
    }

    pub(super) fn num_rows(&self) -> usize {
        self.waiting.iter().map(|plan| plan.num_rows).sum()
    }

    pub(super) fn heals_prompts(&self) -> bool {
        self.waiting.iter().any(|plan| plan.heals_prompts)
    }

    /// The strategy of a plan without a source of drafts, if there is one.
    pub(super) fn without_drafts(&self) -> Option<GenerationMode> {
        self.without_drafts
    }

    /// What all of them may take in memory.
    pub(super) fn memory(&self) -> Estimate {
        self.waiting.iter().map(|plan| plan.memory).fold(Estimate::default(), Estimate::and)
    }

    /// The kept caches that the call continues.
    pub(super) fn caches(&self) -> &Caches {
        &self.planner.caches
    }

    /// The only plan; `None` if there are several, or none.
    pub(super) fn single(mut self) -> Option<Result<GenerationPlan>> {
        if self.len() == 1 { self.next() } else { None }
    }
}

impl Iterator for Plans<'_> {
    type Item = Result<GenerationPlan>;

    fn next(&mut self) -> Option<Self::Item> {
        let Waiting { index, form, .. } = self.waiting.pop_front()?;
        Some(match form {
            Form::Plan(plan) => Ok(*plan),
            Form::Prompt(prompt) => self.planner.plan(index, Ok(prompt)),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.waiting.len(), Some(self.waiting.len()))
    }
}

impl ExactSizeIterator for Plans<'_> {}

#[cfg(all(test, feature = "bundled"))]
mod tests {
    use super::*;
    use crate::engine::GenerationOutput;

    #[test]
    fn a_long_list_has_few_plans_and_what_ends_it_leaves_what_is_finished() {
        let generator = Generator::bundled().unwrap();
        let config =
            GenerationConfig::new().max_new_tokens(1).num_return_sequences(2).do_sample(true).seed(5);
        let prompts: Vec<String> = (0..KEPT + 9).map(|index| format!("One day {index}")).collect();
        let prepare =
            || generator.call(prompts.clone()).config(&config).prepare(false, &mut || false).unwrap();
        let prepared = prepare();
        let plans =
            prepared.plans.waiting.iter().filter(|waiting| matches!(waiting.form, Form::Plan(_))).count();
        let counts = (plans, prepared.num_requests(), prepared.num_rows());
        assert_eq!(counts, (KEPT, prompts.len(), 2 * prompts.len()));
        let whole = prepared.run(&mut || false).unwrap();
        assert_eq!(whole.seeds, (5..).take(prompts.len()).collect::<Vec<u64>>());

        let mut ended = |index: usize, _: &GenerationOutput| {
            if index == KEPT + 3 { Err(Error::cancelled()) } else { Ok(()) }
        };
        let (finished, result) = prepare().run_as_far(&mut || false, &mut ended);
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Cancelled);
        assert!((2 * KEPT..=whole.rows.len()).contains(&finished.rows.len()));
        for row in &finished.rows {
            assert!(whole.rows.contains(row), "{row:?}");
        }
        assert!(finished.rows.iter().any(|row| row.generated.prompt_index == KEPT + 3));
    }
}
