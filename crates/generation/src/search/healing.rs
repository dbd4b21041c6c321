//! A search that first chooses the last tokens of its prompts, one prompt after the other, and then is the
//! search of the call.

use std::collections::VecDeque;

use rsgen_core::{Error, Result, ResultExt, SeqId, TokenId};

use super::super::output::SearchOutput;
use super::super::plan::{GenerationPlan, Healing, PlannedPrompt};
use super::{Search, SearchInputs, SearchResults, SearchStep, SequenceOp, build};

/// The choices of last tokens, and the search that follows.
pub(super) struct HealingSearch {
    /// Those that are still to be made, each for a prompt.
    choices: VecDeque<(usize, GenerationPlan)>,
    /// The one that is being made.
    running: Option<(usize, Box<dyn Search>)>,
    /// The last token of each prompt so far.
    last: Vec<TokenId>,
    /// `None` once all are chosen.
    healing: Option<Healing>,
    /// The search of the call: of the prompts as they were, until all are chosen.
    search: Box<dyn Search>,
    prompts: Option<Vec<PlannedPrompt>>,
    /// The sequences of the choice that is being made, or was made last.
    live: Vec<SeqId>,
    /// Whether the next step is the first one of a choice or of the search.
    is_first: bool,
    /// The results of a choice.
    step: SearchStep,
}

impl HealingSearch {
    /// `plan` is that of the call with its prompts as they are.
    pub(super) fn new(plan: GenerationPlan, mut healing: Healing) -> Self {
        let mut choices: VecDeque<_> = std::mem::take(&mut healing.choices).into();
        let last = healing.rows.iter().filter_map(|row| row.input_ids.last().copied()).collect();
        let running = choices.pop_front().map(|(index, plan)| (index, build(plan)));
        Self {
            choices,
            running,
            last,
            healing: Some(healing),
            search: build(plan),
            prompts: None,
            live: Vec::new(),
            is_first: true,
            step: SearchStep::default(),
        }
    }

    /// Takes the token of the choice that has been made, and begins the next one or the search.
    fn chosen(&mut self) -> Result<()> {
        let Some((index, choice)) = self.running.take() else { return Ok(()) };
        let output = choice.finish();
        let token = output.rows.first().and_then(|row| row.token_ids.first()).copied();
        let token =
            token.ok_or_else(|| Error::internal("the search for the last token of a prompt found none"))?;
        if let Some(last) = self.last.get_mut(index) {
            *last = token;
        }
        self.is_first = true;
        self.running = self.choices.pop_front().map(|(index, plan)| (index, build(plan)));
        if self.running.is_none()
            && let Some(healing) = self.healing.take()
        {
            let plan = healing.plan(&self.last)?;
            self.prompts = Some(plan.prompts().to_vec());
            self.search = build(plan);
        }
        Ok(())
    }
}

impl Search for HealingSearch {
    fn wants(&mut self, inputs: &mut SearchInputs) {
        if std::mem::take(&mut self.is_first) {
            self.live.drain(..).for_each(|seq| inputs.release(seq));
        }
        let Some((_, choice)) = &mut self.running else { return self.search.wants(inputs) };
        let before = inputs.ops.len();
        choice.wants(inputs);
        for op in &inputs.ops[before..] {
            match op {
                SequenceOp::Create { seq, .. } | SequenceOp::Fork { child: seq, .. } => self.live.push(*seq),
                SequenceOp::Release { seq } => self.live.retain(|live| live != seq),
                SequenceOp::Truncate { .. } | SequenceOp::Reorder { .. } => {}
            }
        }
    }

    fn advance(&mut self, results: SearchResults<'_>, step: &mut SearchStep) -> Result<()> {
        let Some((_, choice)) = &mut self.running else { return self.search.advance(results, step) };
        self.step.clear();
        choice.advance(results, &mut self.step).context(|| "token_healing")?;
        if self.step.finished { self.chosen() } else { Ok(()) }
    }

    fn sums(&mut self) -> Option<&mut Vec<f32>> {
        self.search.sums()
    }

    fn take_prompts(&mut self) -> Option<Vec<PlannedPrompt>> {
        self.prompts.take()
    }

    fn finish(self: Box<Self>) -> SearchOutput {
        self.search.finish()
    }
}
