//! Checks the candidates of a row: the model chooses its tokens after them, up to the first that differs.

use rsgen_core::{Result, ResultExt, TokenId, memory};
use rsgen_kernels::{argmax, log_sum_exp, softmax};

use super::super::super::logits::UnconditionalLogits;
use super::super::super::logits::watched::WatchedToken;
use super::super::super::plan::{DraftSource, GenerationPlan};
use super::super::details::{Draft, DraftOrigin, DraftedToken, TokenDetails, watched};
use super::super::greedy::HighestScore;
use super::super::rows::TokenChoice;
use super::super::sample::Draw;
use super::super::{SearchStep, TokenEvent};
use super::row::{Candidates, Row};
use super::speculative;
use super::step_draws::StepDraws;

/// How the tokens of rows and drafts are chosen.
pub(super) enum Choice {
    Highest(HighestScore),
    /// As transformers draws: the numbers depend on the drafts.
    Draw(Draw),
    /// As plain sampling draws.
    Steps(StepDraws),
}

/// Chooses the tokens of rows.
pub(super) struct Verifier {
    pub(super) choice: Choice,
    ensemble_weight: Option<f64>,
    /// Scratch: the processed scores of one token.
    scores: Vec<f32>,
    /// Scratch: the mixture of the ensemble.
    mixture: Vec<f32>,
    /// Scratch: a random number for each drafted token.
    draws: Vec<f32>,
    /// With `output_events`, where the candidates come from.
    origin: Option<DraftOrigin>,
    /// With `output_events`, the watched tokens of one row.
    watched: Vec<Vec<WatchedToken>>,
}

/// What became of the candidates of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked {
    /// The number of new tokens.
    pub(super) emitted: usize,
    /// How many of them were candidates.
    pub(super) accepted: usize,
}

impl Verifier {
    /// `has_step_draws`: sampling draws each token with the numbers of its step.
    pub(super) fn new(plan: &GenerationPlan, has_step_draws: bool) -> Self {
        let choice = match plan.config.seed {
            Some(seed) if has_step_draws => Choice::Steps(StepDraws::new(seed, plan)),
            Some(seed) => Choice::Draw(Draw::new(seed, plan)),
            None => Choice::Highest(HighestScore(plan.config.isa)),
        };
        let origin = match plan.draft().map(|draft| draft.source) {
            None => DraftOrigin::PromptLookup,
            Some(DraftSource::Model) => DraftOrigin::AssistantModel,
            Some(DraftSource::EarlyExit { .. }) => DraftOrigin::EarlyExit,
        };
        Self {
            choice,
            ensemble_weight: plan.draft().and_then(|draft| draft.ensemble_weight),
            scores: Vec::new(),
            mixture: Vec::new(),
            draws: Vec::new(),
            origin: plan.config.output_events.then_some(origin),
            watched: Vec::new(),
        }
    }

    /// Chooses the tokens of a row. `main` is the row of `logits` after its newest token, `unconditional` for
    /// each processor that of its unconditional sequence; those of the candidates follow each.
    ///
    /// The token after each candidate is chosen as in a plain search, and the row ends where it would end
    /// there.
    pub(super) fn check(
        &mut self,
        plan: &GenerationPlan,
        row: &mut Row,
        (main, unconditional): (usize, &[Option<usize>]),
        logits: &[f32],
        step: &mut SearchStep,
    ) -> Result<Checked> {
        let vocab_size = plan.config.vocab_size;
        let mut candidates = std::mem::take(&mut row.candidates);
        let count = candidates.tokens.len();
        let is_speculative = !candidates.probabilities.is_empty();
        self.draws.clear();
        if let (Choice::Draw(draw), true) = (&mut self.choice, is_speculative) {
            self.draws.extend((0..count).map(|_| draw.rand()));
        }
        let mut checked = Checked { emitted: 0, accepted: 0 };
        let mut was_accepted = false;
        let mut proposed = self.origin.map(|_| drafted(plan, &candidates)).unwrap_or_default();
        for position in 0..=count {
            let raw = &logits[(main + position) * vocab_size..][..vocab_size];
            let rows: Vec<Option<usize>> =
                unconditional.iter().map(|row| row.map(|row| row + position)).collect();
            let unconditional = UnconditionalLogits { rows: &rows, logits, vocab_size };
            let normalizer = self.process(plan, row, raw, unconditional)?;
            if let Some(drafted) = proposed.get_mut(position) {
                let logprob =
                    self.scores[drafted.token.id.index()] - log_sum_exp(plan.config.isa, &self.scores);
                drafted.p_target = Some(logprob.exp()).filter(|p| p.is_finite());
            }
            let place = || format!("step {}, row {}", row.ids.len() - plan.config.prompt_len, row.index);
            let token;
            (token, was_accepted) = self.choose(plan, row, &candidates, position).context(place)?;
            self.append(plan, row, token, raw, raw[token.index()] - normalizer, step)?;
            checked.emitted += 1;
            checked.accepted += usize::from(was_accepted);
            if !was_accepted || !row.is_active() {
                break;
            }
        }
        if let Some(source) = self.origin {
            let next = row.ids.last().copied().filter(|_| checked.emitted > checked.accepted);
            let (accepted, next) = (checked.accepted, next.map(Into::into));
            step.details.drafts.push(Draft { row: row.index, round: 0, source, proposed, accepted, next });
        }
        // torch draws for all candidates, or for the token after them.
        let left = if is_speculative {
            usize::from(was_accepted)
        } else {
            count + 1 - checked.emitted + candidates.beyond
        };
        if let Choice::Draw(draw) = &mut self.choice {
            (0..left).for_each(|_| draw.skip_row(vocab_size));
        }
        candidates.clear();
        row.candidates = candidates;
        Ok(checked)
    }

    /// Processes the model's own logits after the ids of a row, `[vocab_size]`; returns the logarithm of the
    /// sum of their exponentials.
    fn process(
        &mut self,
        plan: &GenerationPlan,
        row: &mut Row,
        raw: &[f32],
        unconditional: UnconditionalLogits<'_>,
    ) -> Result<f32> {
        let normalizer = log_sum_exp(plan.config.isa, raw);
        if !normalizer.is_finite() && !plan.processors.takes_invalid_logits() {
            let place = || format!("step {}, row {}", row.ids.len() - plan.config.prompt_len, row.index);
            return Err(super::super::step_logits::not_finite(normalizer)).context(place);
        }
        self.scores.clear();
        memory::extend(&mut self.scores, raw, "scores")?;
        self.watched.clear();
        if plan.config.output_events {
            self.watched.push(watched(plan.config.isa, raw)?);
        }
        let mut states = std::mem::take(&mut row.states);
        let context = row.context(plan, &row.ids, unconditional, Some(&mut states));
        let processed = super::process(plan, &plan.processors, context, &mut self.scores, &mut self.watched);
        row.states = states;
        processed.map(|()| normalizer)
    }

    /// The token after the first `position` candidates, and whether it is the next candidate.
    fn choose(
        &mut self,
        plan: &GenerationPlan,
        row: &Row,
        candidates: &Candidates,
        position: usize,
    ) -> Result<(TokenId, bool)> {
        let Self { choice, scores, mixture, draws, ensemble_weight, .. } = self;
        let candidate = candidates.tokens.get(position).copied();
        let draft =
            candidate.zip(candidates.probabilities.chunks_exact(plan.config.vocab_size).nth(position));
        let token = match (choice, draft) {
            (Choice::Draw(draw), Some((candidate, q))) => {
                let p = draw.softmax(scores)?;
                let index = candidate.index();
                if speculative::accepts(draws[position], p[index], q[index], *ensemble_weight) {
                    return Ok((candidate, true));
                }
                speculative::residual(p, q);
                return Ok((draw.draw(), false));
            }
            (Choice::Draw(draw), None) => draw.choose(scores)?,
            (Choice::Steps(draws), _) => draws.choose(scores, (row.new_tokens(plan).len(), row.index))?.0,
            (Choice::Highest(highest), draft) => {
                let token = highest.choose(scores)?;
                match (draft, *ensemble_weight) {
                    (Some((_, q)), Some(weight)) => {
                        mixture.clear();
                        memory::extend(mixture, scores, "scores")?;
                        softmax(plan.config.isa, mixture);
                        speculative::mix(mixture, q, weight);
                        TokenId(argmax(plan.config.isa, mixture) as u32)
                    }
                    _ => token,
                }
            }
        };
        Ok((token, candidate == Some(token)))
    }

    /// Appends a token to a row, and ends the row if a criterion stops it.
    fn append(
        &mut self,
        plan: &GenerationPlan,
        row: &mut Row,
        token: TokenId,
        raw: &[f32],
        logprob: f32,
        step: &mut SearchStep,
    ) -> Result<()> {
        row.ids.push(token);
        row.logprobs.push(logprob);
        row.recorded.keep_scores(&self.scores)?;
        row.recorded.keep_logits(plan.config.isa, raw)?;
        row.finish = plan.should_stop(&row.ids, (row.prompt_index, row.index), &self.scores)?;
        if let Some(watched) = self.watched.pop() {
            step.details.tokens.push(TokenDetails::new(plan.config.isa, raw, &self.scores, token, watched)?);
        }
        let score = self.scores[token.index()];
        let top_logprobs = row.recorded.alternatives(None)?;
        step.events.push(TokenEvent {
            row: row.index,
            token,
            logprob,
            score,
            finish: row.finish,
            top_logprobs,
        });
        Ok(())
    }
}

/// The candidates with their probabilities in the draft.
fn drafted(plan: &GenerationPlan, candidates: &Candidates) -> Vec<DraftedToken> {
    let rows = candidates.probabilities.chunks_exact(plan.config.vocab_size);
    let mut probabilities = rows.zip(&candidates.tokens).map(|(row, token)| row[token.index()]);
    let tokens = candidates.tokens.iter();
    tokens
        .map(|&token| DraftedToken { token: token.into(), p_draft: probabilities.next(), p_target: None })
        .collect()
}
