//! Drafts of an assistant: a smaller model, or the first layers of the model itself.
//!
//! Each row drafts in a sequence of its own, one token a step, all rows side by side; a row that is done
//! waits. Sampling draws drafts with the generator of the request, as in transformers.

use rsgen_core::{Result, TokenId, memory};
use rsgen_kernels::{argmax, softmax};

use super::super::super::candidate::{AdaptiveLength, Translation};
use super::super::super::config::AssistantTokensSchedule;
use super::super::super::logits::{DraftProcessors, ProcessorStates, UnconditionalLogits};
use super::super::super::plan::{DraftPlan, DraftSource, GenerationPlan, PlannedPrompt};
use super::super::{ModelRole, PromptInputs, SearchInputs};
use super::row::{ComputedBy, Row, TrackedSequence};
use super::schedule::Schedule;
use super::threshold::ConfidenceThreshold;
use super::verify::Choice;

/// The assistant of a request.
pub(super) struct Drafter {
    draft: DraftPlan,
    by: ComputedBy,
    processors: DraftProcessors,
    /// One for each row of the output.
    rows: Vec<DraftRow>,
    /// Whether the assistant's probabilities are needed to check its drafts.
    keeps_probabilities: bool,
    /// Whether the last step computes a token or two of each draft, and no more of the text.
    is_single_step: bool,
    /// Scratch: the scores of one token.
    scores: Vec<f32>,
}

/// The draft of a row.
struct DraftRow {
    sequence: Option<TrackedSequence>,
    schedule: Schedule,
    threshold: ConfidenceThreshold,
    states: ProcessorStates,
    /// The ids of the row and its candidates; those of the assistant are in `translation`.
    ids: Vec<TokenId>,
    translation: Option<Translation>,
    /// The cached tokens of the sequence, if the text is translated.
    cached: Vec<TokenId>,
    /// The most candidates of this draft.
    limit: usize,
    is_done: bool,
}

impl Drafter {
    pub(super) fn new(plan: &GenerationPlan, draft: &DraftPlan) -> Self {
        let by = match draft.source {
            DraftSource::Model => ComputedBy { model: ModelRole::Draft, ..ComputedBy::TARGET },
            DraftSource::EarlyExit { num_layers } => {
                ComputedBy { last_layer: Some(num_layers), ..ComputedBy::TARGET }
            }
        };
        let is_unconditional = |processor: usize| {
            plan.prompts.iter().any(|prompt| prompt.unconditional.get(processor).is_some_and(Option::is_some))
        };
        // Other processors would take the assistant's tokens for the model's.
        let processors = match draft.vocabulary_map {
            Some(_) => DraftProcessors::warpers(&plan.processors),
            None => DraftProcessors::of(&plan.processors, is_unconditional),
        };
        let row = |_| DraftRow {
            sequence: None,
            schedule: Schedule::new(draft.schedule, draft.num_tokens, &draft.kept),
            threshold: ConfidenceThreshold::new(
                draft.confidence_threshold,
                draft.source == DraftSource::Model,
            ),
            states: ProcessorStates::default(),
            ids: Vec::new(),
            translation: draft.vocabulary_map.as_ref().map(Translation::new),
            cached: Vec::new(),
            limit: 0,
            is_done: true,
        };
        Self {
            by,
            processors,
            rows: (0..plan.num_rows()).map(row).collect(),
            keeps_probabilities: match plan.config.seed {
                Some(_) => draft.schedule != AssistantTokensSchedule::Adaptive,
                None => draft.ensemble_weight.is_some() && !draft.is_translated(),
            },
            is_single_step: false,
            scores: Vec::new(),
            draft: draft.clone(),
        }
    }

    /// The size of the assistant's vocabulary.
    pub(super) fn vocab_size(&self) -> usize {
        self.draft.vocab_size
    }

    /// Whether the assistant has another tokenizer.
    pub(super) fn is_translated(&self) -> bool {
        self.draft.is_translated()
    }

    /// Whether the last step computes a token or two of each draft: the newest one, and the last of the draft
    /// before.
    pub(super) fn is_single_step(&self) -> bool {
        self.is_single_step
    }

    /// Begins the next draft of a row, of at most `most` tokens.
    ///
    /// # Errors
    /// When the text cannot be translated.
    pub(super) fn begin(&mut self, plan: &GenerationPlan, row: &Row, most: usize) -> Result<()> {
        let draft = &mut self.rows[row.index];
        let most = most.min(draft.schedule.num_tokens()).min(row.room(plan));
        if let Some(translation) = &mut draft.translation {
            draft.limit = most;
            draft.is_done = draft.limit == 0;
            if !draft.is_done {
                let ids = target_ids(plan, row);
                match plan.config.seed {
                    Some(_) => translation.append_new(&ids)?,
                    None => translation.encode_again(&ids, self.draft.target_lookbehind)?,
                }
                let most = plan.draft_len(row.prompt_index) + 1;
                draft.limit = draft.limit.min(most.saturating_sub(translation.ids.len()));
                draft.is_done = draft.limit == 0 || translation.ids.is_empty();
            }
            return Ok(());
        }
        // A draft leaves room for the token that follows it; its last token is not computed.
        let text_len = plan.draft_prompt_len(row.prompt_index) + row.new_tokens(plan).len();
        let context = self.draft.context_len.saturating_add(1).saturating_sub(text_len);
        draft.limit = most.min(context);
        draft.is_done = draft.limit == 0;
        if !draft.is_done {
            draft.ids.clone_from(&row.ids);
            draft.states = self.processors.fork_states(&row.states);
        }
        Ok(())
    }

    /// Whether nothing has been drafted yet.
    pub(super) fn is_new(&self) -> bool {
        self.rows.iter().all(|draft| draft.sequence.is_none())
    }

    /// Whether a row of the request is not done with its draft.
    pub(super) fn is_drafting(&self) -> bool {
        self.num_drafting() > 0
    }

    /// The number of rows that are not done with their draft.
    pub(super) fn num_drafting(&self) -> usize {
        self.rows.iter().filter(|draft| !draft.is_done).count()
    }

    /// Requests the prompts without outputs, once each, for the rows of a prompt to share.
    pub(super) fn want_prompts(
        &mut self,
        plan: &GenerationPlan,
        rows: &[Row],
        next_seq: &mut u32,
        inputs: &mut SearchInputs,
    ) {
        for rows in rows.chunks(plan.config.num_return_sequences) {
            let prompt = prompt_of(self.by, &plan.prompts[rows[0].prompt_index]);
            if prompt.len() <= self.draft.context_len {
                let source = plan.source_of(rows[0].prompt_index);
                let mut sequence = TrackedSequence::create(self.by.model, source, next_seq, inputs);
                sequence.extend(prompt, [&[], &[]], usize::MAX, self.by, inputs);
                self.rows[rows[0].index].sequence = Some(sequence);
            }
        }
    }

    /// Requests the next token of each row that drafts. What a sequence holds of the last draft beyond the
    /// accepted tokens is dropped: all but the newest token, which was not drafted, can be kept.
    pub(super) fn want_tokens(
        &mut self,
        plan: &GenerationPlan,
        rows: &[Row],
        next_seq: &mut u32,
        inputs: &mut SearchInputs,
    ) {
        let each = plan.config.num_return_sequences;
        for index in 0..rows.len() {
            if !self.rows[index].is_done && self.rows[index].sequence.is_none() {
                // That of the first row holds the prompt alone, unless it has drafted before.
                let prompt_len = plan.draft_prompt_len(rows[index].prompt_index);
                let shared = self.rows[index - index % each].sequence;
                let shared = shared.filter(|shared| !self.is_translated() && shared.len <= prompt_len);
                let source = plan.source_of(rows[index].prompt_index);
                self.rows[index].sequence = Some(match shared {
                    Some(shared) => shared.fork(next_seq, inputs),
                    None => TrackedSequence::create(self.by.model, source, next_seq, inputs),
                });
            }
        }
        for (draft, row) in self.rows.iter_mut().zip(rows).filter(|(draft, _)| !draft.is_done) {
            let Some(sequence) = &mut draft.sequence else { continue };
            if let Some(translation) = &draft.translation {
                let ids = &translation.ids;
                let same = draft.cached.iter().zip(ids).take_while(|(cached, id)| cached == id).count();
                sequence.truncate(same.min(ids.len() - 1), inputs);
                let prompt = if draft.cached.is_empty() { ids.len() } else { 0 };
                let (prompt, new) = ids.split_at(prompt);
                sequence.extend(PromptInputs::Tokens(prompt), [new, &[]], ids.len() - 1, self.by, inputs);
                draft.cached.clone_from(ids);
                continue;
            }
            let (prompt, new) = (prompt_of(self.by, &plan.prompts[row.prompt_index]), row.new_tokens(plan));
            let len = prompt.len() + new.len() + row.candidates.tokens.len();
            sequence.truncate(len - 1, inputs);
            sequence.extend(prompt, [new, &row.candidates.tokens], len - 1, self.by, inputs);
        }
        self.is_single_step = inputs.rows.len() <= 2 * self.num_drafting();
    }

    /// Releases the sequences of rows that have ended.
    pub(super) fn release_ended(&mut self, rows: &[Row], inputs: &mut SearchInputs) {
        for (draft, _) in self.rows.iter_mut().zip(rows).filter(|(_, row)| !row.is_active()) {
            draft.sequence.take().into_iter().for_each(|sequence| inputs.release(sequence.seq));
        }
    }

    /// Takes the logits of the rows that draft, `[drafting rows, vocab_size]`, and adds a candidate to each.
    pub(super) fn advance(
        &mut self,
        plan: &GenerationPlan,
        rows: &mut [Row],
        choice: &mut Choice,
        logits: &[f32],
    ) -> Result<()> {
        let Self { rows: drafts, processors, scores, keeps_probabilities, draft: of_call, .. } = self;
        let is_translated = of_call.is_translated();
        let mut logits = logits.chunks_exact(of_call.vocab_size);
        for (draft, row) in drafts.iter_mut().zip(rows).filter(|(draft, _)| !draft.is_done) {
            let Some(raw) = logits.next() else { break };
            scores.clear();
            memory::extend(scores, raw, "scores")?;
            if let (Some(map), Some(_)) = (&of_call.vocabulary_map, plan.config.seed) {
                map.keep_shared(scores);
            }
            let states = Some(&mut draft.states);
            let context = row.context(plan, &draft.ids, UnconditionalLogits::default(), states);
            super::process(plan, &processors.list, context, scores, &mut [])?;
            // Scores that nothing can be chosen from end a draft, not the request.
            let Some((token, probabilities)) = choose(
                plan,
                choice,
                scores,
                row,
                is_translated,
                *keeps_probabilities || draft.threshold.is_on(),
            ) else {
                draft.is_done = true;
                continue;
            };
            if let (Some(translation), Some(map)) = (&mut draft.translation, &of_call.vocabulary_map) {
                let probability = f64::from(probabilities[token.index()]);
                let is_unsure = draft.threshold.is_on() && draft.threshold.is_above(probability);
                draft.is_done = is_unsure || draft.limit <= 1;
                draft.limit -= 1;
                if plan.config.seed.is_some() {
                    let Some(target) = translation.push_shared(token) else {
                        draft.is_done = true;
                        continue;
                    };
                    if *keeps_probabilities {
                        let all = &mut row.candidates.probabilities;
                        map.scatter(probabilities, plan.config.vocab_size, all)?;
                    }
                    row.candidates.tokens.push(target);
                    // By number, in the assistant's own vocabulary: transformers gives the assistant the
                    // model's `eos_token_id`. Whether a draft goes on changes the draws after it.
                    draft.is_done |= plan.config.eos_token_ids.contains(&token);
                    continue;
                }
                translation.ids.push(token);
                draft.is_done |= of_call.eos_token_ids.contains(&token);
                if draft.is_done {
                    let ids = target_ids(plan, row);
                    let mut found = translation.candidates(&ids, of_call.assistant_lookbehind)?;
                    found.truncate(row.room(plan));
                    row.candidates.tokens = found;
                }
                continue;
            }
            draft.ids.push(token);
            row.candidates.tokens.push(token);
            if *keeps_probabilities {
                memory::extend(&mut row.candidates.probabilities, probabilities, "probabilities")?;
            }
            let is_unsure = draft.threshold.is_on() && draft.threshold.push(probabilities[token.index()]);
            draft.is_done = is_unsure
                || row.candidates.tokens.len() >= draft.limit
                || plan.config.eos_token_ids.contains(&token);
        }
        Ok(())
    }

    /// Updates the schedule and the threshold with the outcome of a row's draft: `drafted` tokens, of which
    /// `accepted` were accepted.
    pub(super) fn update(&mut self, row: usize, drafted: usize, accepted: usize) {
        self.rows[row].schedule.update(accepted == drafted);
        if !self.is_translated() {
            self.rows[row].threshold.update(accepted);
        }
    }

    /// Keeps what the schedule has learned for later calls with the assistant; `length` is that of the
    /// schedule `"adaptive"`.
    pub(super) fn keep_schedule(&self, length: Option<AdaptiveLength>) {
        if let Some(first) = self.rows.first() {
            first.schedule.keep(&self.draft.kept);
        }
        if let Some(length) = length {
            self.draft.kept.keep_adaptive(length);
        }
    }
}

/// The prompt of the drafting model: the model's own layers read its embeddings, an assistant the tokens that
/// they stand for.
fn prompt_of(by: ComputedBy, prompt: &PlannedPrompt) -> PromptInputs<'_> {
    if by.last_layer.is_some() { prompt.inputs() } else { PromptInputs::Tokens(&prompt.tokens) }
}

/// The tokens of a row without padding.
fn target_ids(plan: &GenerationPlan, row: &Row) -> Vec<TokenId> {
    [&plan.prompts[row.prompt_index].tokens, row.new_tokens(plan)].concat()
}

/// The next token of a row's draft, and the assistant's probabilities when they are wanted; `None` when the
/// scores are no distribution.
fn choose<'a>(
    plan: &GenerationPlan,
    choice: &'a mut Choice,
    scores: &'a mut [f32],
    row: &Row,
    is_translated: bool,
    wants_probabilities: bool,
) -> Option<(TokenId, &'a [f32])> {
    match choice {
        Choice::Draw(draw) => {
            draw.softmax(scores).ok()?;
            let token = draw.draw();
            Some((token, draw.probabilities()))
        }
        // The numbers of a step are for the model's own tokens.
        Choice::Steps(draws) if !is_translated => {
            let step = row.new_tokens(plan).len() + row.candidates.tokens.len();
            draws.choose(scores, (step, row.index)).ok()
        }
        Choice::Highest(_) | Choice::Steps(_) => {
            let highest = argmax(plan.config.isa, scores);
            if !scores[highest].is_finite() {
                return None;
            }
            if wants_probabilities {
                softmax(plan.config.isa, scores);
            }
            Some((TokenId(highest as u32), scores))
        }
    }
}
