//! Beam searches: `early_stopping` in both versions of transformers, custom criteria and constraints.
//!
//! Sequences, scores and numbers of steps are those of transformers 5.23.0 and 4.49.0 on a model that looks
//! up the same table.

use std::sync::Arc;

use super::super::super::config::{Compat, EarlyStopping, ForcedWord};
use super::super::super::constraint::{Constraint, ConstraintStep, PhrasalConstraint};
use super::super::super::plan::PlanContext;
use super::*;
use rsgen_core::{Error, ErrorKind};

fn beams() -> GenerationConfig {
    config().num_beams(3).num_return_sequences(3).max_new_tokens(7).output_scores(true)
}

/// The tokens of each row, their scores, and the number of steps.
fn found(transcript: &Transcript) -> (Vec<Vec<u32>>, Vec<f32>, usize) {
    let tokens = rows(transcript).into_iter().map(|(tokens, _)| tokens).collect();
    let scores = transcript.output.rows.iter().filter_map(|row| row.score).collect();
    let steps = transcript.output.sequences[0].scores.as_ref().map_or(0, Vec::len);
    (tokens, scores, steps)
}

fn assert_found(transcript: &Transcript, tokens: [&[u32]; 3], scores: [f32; 3], steps: usize) {
    let (got, got_scores, got_steps) = found(transcript);
    assert_eq!(got, tokens);
    assert_eq!(got_steps, steps);
    for (got, expected) in got_scores.iter().zip(scores) {
        assert!((got - expected).abs() < 2e-5, "{got_scores:?}");
    }
}

// generate([[3, 5]], num_beams=3, num_return_sequences=3, max_new_tokens=7, eos_token_id=[4, 7],
// early_stopping=…)
#[test]
fn the_three_values_of_early_stopping_end_the_search_as_in_transformers() {
    let ending = |value: EarlyStopping| beams().eos_token_id(ids(&[4, 7])).early_stopping(value);
    let new = |value| generate(&ending(value), single(&[3, 5]));
    let old = |value| generate(&ending(value).compat(Compat::V4_49), single(&[3, 5]));
    let scores = [-1.11275, -1.13013, -1.16577];
    // Stopping compares with the best running beam; in 4.49 with the best candidate.
    let sequences: [&[u32]; 3] = [&[10, 8, 2, 11, 6, 7], &[10, 8, 9, 4], &[10, 8, 9, 9, 4]];
    assert_found(&new(EarlyStopping::False), sequences, scores, 6);
    assert_found(&new(EarlyStopping::Never), sequences, scores, 7);
    // The first of the end-of-sequence tokens is shown, whichever was generated.
    let sequences: [&[u32]; 3] = [&[10, 8, 2, 11, 6, 4], &[10, 8, 9, 4], &[10, 8, 9, 9, 4]];
    assert_found(&old(EarlyStopping::False), sequences, scores, 7);
    assert_found(&old(EarlyStopping::Never), sequences, scores, 7);

    let scores = [-1.1938, -1.2315, -1.33812];
    assert_found(&new(EarlyStopping::True), [&[8, 9, 4], &[10, 1, 7], &[6, 7]], scores, 3);
    assert_found(&old(EarlyStopping::True), [&[8, 9, 4], &[10, 1, 4], &[6, 4]], scores, 3);
}

// … eos_token_id=[4, 7] / [9], length_penalty=-1.0
#[test]
fn a_negative_length_penalty_favours_short_sequences() {
    let with = |eos: &[u32]| {
        let eos: Vec<TokenId> = ids(eos);
        generate(&beams().eos_token_id(eos).length_penalty(-1.0), single(&[3, 5]))
    };
    let sequences: [&[u32]; 3] = [&[6, 7], &[8, 9, 4], &[10, 1, 7]];
    assert_found(&with(&[4, 7]), sequences, [-5.35249, -10.74417, -11.08352], 4);
    let sequences: [&[u32]; 3] = [&[8, 9], &[10, 8, 9], &[10, 8, 2, 11, 6, 7, 1]];
    assert_found(&with(&[9]), sequences, [-5.04614, -10.38659, -54.93098], 7);
}

#[test]
fn the_beams_of_a_prompt_end_by_themselves_whatever_is_beside_them() {
    let config = beams().eos_token_id(ids(&[4, 7]));
    let prompts: [&[u32]; 3] = [&[3, 5], &[3, 8], &[3, 1]];
    let batch = PromptBatch::rectangular(prompts.iter().map(|prompt| ids(prompt)).collect()).unwrap();
    let (together, scores, _) = found(&generate(&config, batch));
    let alone: Vec<_> = prompts.iter().map(|prompt| found(&generate(&config, single(prompt)))).collect();
    assert!(alone.iter().any(|(_, _, steps)| *steps != alone[0].2), "they end at different steps");
    assert_eq!(together, alone.iter().flat_map(|(tokens, _, _)| tokens.clone()).collect::<Vec<_>>());
    assert_eq!(scores, alone.iter().flat_map(|(_, scores, _)| scores.clone()).collect::<Vec<_>>());
}

/// Ends rows with token 4 or 7.
struct Ends;

impl StoppingCriterion for Ends {
    fn name(&self) -> &'static str {
        "Ends"
    }

    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        let ends = [TokenId(4), TokenId(7)].contains(&row.input_ids[row.input_ids.len() - 1]);
        Ok(ends.then_some(FinishReason::Stop))
    }
}

// … stopping_criteria=[Ends()]
#[test]
fn a_callers_criterion_ends_single_beams_and_in_4_49_only_all_of_them() {
    let generate = |config: &GenerationConfig| {
        let context = PlanContext { criteria: vec![Arc::new(Ends)], ..context() };
        try_generate(config, single(&[3, 5]), &context, &mut ScriptedModel::bigram(table())).unwrap()
    };
    let new = generate(&beams());
    let sequences: [&[u32]; 3] = [&[10, 8, 2, 11, 6, 7], &[10, 8, 9, 4], &[10, 8, 9, 9, 4]];
    assert_found(&new, sequences, [-1.11275, -1.13013, -1.16577], 6);
    assert!(new.output.rows.iter().all(|row| row.finish_reason == FinishReason::Stop));
    let early = generate(&beams().early_stopping(true));
    assert_found(&early, [&[8, 9, 4], &[10, 1, 7], &[6, 7]], [-1.1938, -1.2315, -1.33812], 3);
    let old = generate(&beams().compat(Compat::V4_49));
    let sequences: [&[u32]; 3] = [&[10, 8, 9, 4, 6, 7, 1], &[8, 9, 4, 6, 7, 1, 7], &[10, 8, 9, 9, 4, 6, 7]];
    assert_found(&old, sequences, [-1.05491, -1.05802, -1.07456], 7);
}

/// A custom phrase that fails after `patience` calls.
#[derive(Clone)]
struct Own {
    phrase: PhrasalConstraint,
    asked: Arc<std::sync::atomic::AtomicUsize>,
    patience: usize,
}

impl Constraint for Own {
    fn advance(&self) -> Result<Vec<TokenId>> {
        self.phrase.advance()
    }

    fn does_advance(&self, token: TokenId) -> Result<bool> {
        if self.asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= self.patience {
            return Err(Error::callback("no more"));
        }
        self.phrase.does_advance(token)
    }

    fn update(&mut self, token: TokenId) -> Result<ConstraintStep> {
        self.phrase.update(token)
    }

    fn remaining(&self) -> Result<usize> {
        self.phrase.remaining()
    }

    fn max_steps(&self) -> usize {
        self.phrase.max_steps()
    }

    fn fresh(&self) -> Result<Box<dyn Constraint>> {
        Ok(Box::new(Self { phrase: PhrasalConstraint::new(self.phrase.tokens())?, ..self.clone() }))
    }

    fn fork(&self) -> Result<Box<dyn Constraint>> {
        Ok(Box::new(self.clone()))
    }
}

#[test]
fn a_callers_constraint_holds_in_the_output_and_its_error_ends_the_request() {
    let with = |patience: usize| {
        let phrase = PhrasalConstraint::new(ids(&[5, 11])).unwrap();
        let own = Own { phrase, asked: Arc::default(), patience };
        let asked = Arc::clone(&own.asked);
        let context = PlanContext { constraints: vec![Arc::new(own)], ..context() };
        let config = beams().num_return_sequences(1);
        let done = try_generate(&config, single(&[3, 5]), &context, &mut ScriptedModel::bigram(table()));
        (done, asked.load(std::sync::atomic::Ordering::Relaxed))
    };
    let (done, asked) = with(usize::MAX);
    let native = config().force_words_ids(vec![ForcedWord::Phrase(ids(&[5, 11]))]);
    let native = generate(&native.merged_over(&beams().num_return_sequences(1)), single(&[3, 5]));
    let (tokens, _) = row(&done.unwrap());
    assert!(tokens.windows(2).any(|pair| pair == [5, 11]), "{tokens:?}");
    assert_eq!(tokens, row(&native).0);
    // Also when it fails at the very end.
    for patience in [0, 1, asked / 2, asked - 1] {
        let error = with(patience).0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Callback);
        assert!(error.to_string().ends_with("no more"), "{error}");
    }
}
