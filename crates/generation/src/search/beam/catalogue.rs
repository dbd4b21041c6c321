//! The candidates of a step where a catalogue is all that changes scores: the other tokens are not looked at.
//!
//! They are those of the scores of all tokens, to the last bit and to the order of ties. But a step takes time for
//! each token that is allowed, not for each of the vocabulary.

use rsgen_core::{Result, TokenId, memory};
use rsgen_kernels::torch_sort::{is_of_few, topk_of_few};

use super::super::super::logits::AllowedSequencesLogitsProcessor;
use super::super::super::plan::GenerationPlan;
use super::super::sequences::Sequences;
use super::super::step_logits::StepLogits;
use super::candidates::count;
use super::{Beam, BeamSearch, Candidate, Drawn};

/// Finds candidates among the allowed tokens.
pub(super) struct CatalogueCandidates {
    allowed: AllowedSequencesLogitsProcessor,
    /// The continuations that the heap sees: the first `count` of all, and the allowed ones.
    continuations: Vec<Continuation>,
    /// Scratch memory.
    scores: Vec<f32>,
    tokens: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Continuation {
    /// Among those of all beams of a prompt.
    index: usize,
    /// The processed score of its token.
    token_score: f32,
}

impl BeamSearch {
    /// Draws the candidates of all prompts out of the scores of the allowed tokens alone. `None` where all scores
    /// have to be looked at.
    pub(super) fn draw_allowed(&mut self, logits: &StepLogits<'_>) -> Result<Option<Vec<Drawn>>> {
        let Some(of_catalogue) = &mut self.of_catalogue else { return Ok(None) };
        let (mut drawn, mut rows) = (Vec::new(), (0..).step_by(self.plan.config.num_beams));
        for (prompt_index, item) in self.items.iter().enumerate().filter(|(_, item)| !item.done) {
            let place = (prompt_index, rows.next().unwrap_or(0));
            let candidates = of_catalogue.draw(&self.plan, &self.sequences, &item.running, place, logits)?;
            let Some(candidates) = candidates else { return Ok(None) };
            drawn.push(Drawn { prompt_index, candidates });
        }
        Ok(Some(drawn))
    }
}

impl CatalogueCandidates {
    /// For a plan in which nothing else looks at the scores of tokens.
    pub(super) fn of(plan: &GenerationPlan) -> Option<Self> {
        let config = &plan.config;
        let is_alone = plan.processors.names().eq([AllowedSequencesLogitsProcessor::NAME]);
        let is_looked_at = config.output_scores || config.seed.is_some() || !plan.criteria.is_built_in;
        let all = config.num_beams * config.vocab_size;
        if !is_alone || is_looked_at || !is_of_few(all, count(config, config.num_beams, all)) {
            return None;
        }
        let allowed = AllowedSequencesLogitsProcessor::of(config)?;
        Some(Self { allowed, continuations: Vec::new(), scores: Vec::new(), tokens: Vec::new() })
    }

    /// The candidates of a prompt whose beams are the rows from `first_row` on of `logits`, which are the model's
    /// own. `None` where no allowed token is possible: the processor says what then.
    pub(super) fn draw(
        &mut self,
        plan: &GenerationPlan,
        sequences: &Sequences,
        running: &[Beam],
        (prompt_index, first_row): (usize, usize),
        logits: &StepLogits<'_>,
    ) -> Result<Option<Vec<Candidate>>> {
        let Self { allowed, continuations, scores, tokens } = self;
        let (config, vocab_size) = (&plan.config, plan.config.vocab_size);
        let count = count(config, running.len(), running.len() * vocab_size);
        let row = |beam: usize| &logits.scores[(first_row + beam) * vocab_size..][..vocab_size];
        continuations.clear();
        scores.clear();
        memory::reserve(continuations, count, "candidates")?;
        memory::reserve(scores, count, "candidates")?;
        let removed = |index| Continuation { index, token_score: f32::NEG_INFINITY };
        continuations.extend((0..count).map(removed));
        scores.resize(count, f32::NEG_INFINITY);
        let mut any_left = false;
        for (beam, Beam { score, .. }) in running.iter().enumerate() {
            let ids = &sequences.sequence(prompt_index * running.len() + beam).ids;
            let (row, normalizer) = (row(beam), logits.normalizer(first_row + beam));
            allowed.after(ids, config.prompt_len).write_to(tokens);
            for &token in &*tokens {
                let Some(logit) = row.get(token) else { continue };
                let token_score = logit - normalizer;
                any_left |= token_score > f32::NEG_INFINITY;
                let index = beam * vocab_size + token;
                if index < count {
                    continuations[index].token_score = token_score;
                    scores[index] = token_score + score;
                } else {
                    continuations.push(Continuation { index, token_score });
                    scores.push(token_score + score);
                }
            }
        }
        if !any_left {
            return Ok(None);
        }
        let candidate = |place: u32| {
            let (place, Continuation { index, token_score }) =
                (place as usize, continuations[place as usize]);
            let (parent, token) = (index / vocab_size, index % vocab_size);
            let logprob = row(parent)[token] - logits.normalizer(first_row + parent);
            let (token, score) = (TokenId(token as u32), scores[place]);
            Candidate { parent, token, score, logprob, token_score, finish: None }
        };
        Ok(Some(topk_of_few(scores, count)?.into_iter().map(candidate).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::super::super::config::GenerationConfig;
    use super::super::super::super::plan::PlanContext;
    use super::super::super::super::prompt::PromptBatch;
    use super::super::super::super::token_trie::TokenTrie;
    use super::*;

    #[test]
    fn other_tokens_are_left_aside_where_nothing_looks_at_them() {
        let mut context = PlanContext::new(300, 64);
        context.allowed_sequences = Some(Arc::new(TokenTrie::new([[TokenId(5)]]).unwrap()));
        let leaves_aside = |config: GenerationConfig, vocab_size: usize| {
            let context = PlanContext { vocab_size, ..context.clone() };
            let prompt = PromptBatch::single(vec![TokenId(3)]).unwrap();
            CatalogueCandidates::of(&GenerationPlan::new(&config, prompt, &context).unwrap()).is_some()
        };
        let beams = || GenerationConfig::new().num_beams(4).eos_token_id(0).max_new_tokens(3);
        assert!(leaves_aside(beams(), 300));
        assert!(leaves_aside(beams().seed(7).output_logits(true), 300));
        assert!(!leaves_aside(beams(), 100), "torch sorts them in another way");
        assert!(!leaves_aside(beams().repetition_penalty(1.2), 300));
        assert!(!leaves_aside(beams().output_scores(true), 300));
        assert!(!leaves_aside(beams().do_sample(true), 300));
    }
}
