//! Searches with custom processors, states, unconditional sequences and criteria, and with NaN and
//! infinities.

use std::sync::Arc;

use super::super::super::logits::{
    LogitsProcessor, LogitsProcessorList, ProcessContext, ProcessorState, ProcessorStates, RowContext,
    ScoreRows,
};
use super::super::super::plan::PlanContext;
use super::super::super::stopping::{StopContext, StoppingCriterion};
use super::*;
use rsgen_core::{Error, ErrorKind};

/// Sets the score of token 0 once `step` tokens have been generated, and those of the others too if there are
/// any.
struct Spoil {
    step: usize,
    first: f32,
    others: Option<f32>,
}

impl LogitsProcessor for Spoil {
    fn name(&self) -> &'static str {
        "Spoil"
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if row.input_ids.len() - row.prompt_len == self.step {
            if let Some(others) = self.others {
                scores.fill(others);
            }
            scores[0] = self.first;
        }
        Ok(())
    }
}

#[test]
fn rows_that_no_token_can_be_drawn_from_end_the_request_with_an_error() {
    let error = |config: GenerationConfig, first: f32, others: Option<f32>| {
        let context =
            PlanContext { processors: vec![Arc::new(Spoil { step: 2, first, others })], ..context() };
        let mut model = ScriptedModel::bigram(table());
        try_generate(&config.max_new_tokens(5), single(&[3]), &context, &mut model)
            .map(|transcript| row(&transcript).0)
    };
    let numerical = |result: Result<Vec<u32>>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Numerical);
        error.to_string()
    };
    let sampling = || config().do_sample(true).top_k(0).seed(1);
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    assert!(
        numerical(error(sampling(), nan, None)).starts_with("step 2, row 0: the processed scores hold NaN")
    );
    assert!(
        numerical(error(sampling(), inf, None)).starts_with("step 2, row 0: the processed scores hold inf")
    );
    assert!(
        numerical(error(sampling(), -inf, Some(-inf)))
            .starts_with("step 2, row 0: every token has been removed")
    );
    assert!(numerical(error(sampling().top_p(0.9).min_p(0.1).top_k(5), nan, None)).contains("NaN"));
    assert!(
        numerical(error(config(), nan, None)).starts_with("step 2, row 0: the processed scores hold NaN")
    );
    // Greedy search in transformers takes the first token of an empty choice.
    assert_eq!(error(config(), -inf, Some(-inf)).unwrap()[2], 0);
    assert_eq!(error(config(), inf, None).unwrap()[2], 0);
}

/// Makes the scores of rows that hold the end token NaN.
struct SpoilEnded;

impl LogitsProcessor for SpoilEnded {
    fn name(&self) -> &'static str {
        "SpoilEnded"
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        if row.input_ids.contains(&TokenId(1)) {
            scores.fill(f32::NAN);
        }
        Ok(())
    }
}

#[test]
fn rows_that_have_ended_are_not_processed() {
    let config = config().max_new_tokens(12).do_sample(true).num_return_sequences(3).eos_token_id(1).seed(7);
    let context = PlanContext { processors: vec![Arc::new(SpoilEnded)], ..context() };
    let mut model = ScriptedModel::bigram(table());
    let transcript = try_generate(&config, single(&[3, 5]), &context, &mut model).unwrap();
    assert_eq!(rows(&transcript), rows(&generate(&config, single(&[3, 5]))));
    assert_eq!(transcript.output.rows[0].finish_reason, FinishReason::Eos);
}

#[test]
fn logits_of_the_model_that_are_no_numbers_end_the_request_with_an_error() {
    for bad in [f32::NAN, f32::INFINITY] {
        for do_sample in [false, true] {
            let mut model = ScriptedModel::new(VOCAB, move |tokens| {
                let mut logits = vec![0.0; VOCAB];
                logits[4] = if tokens.len() == 3 { bad } else { 0.0 };
                logits
            });
            let config = config().max_new_tokens(9).do_sample(do_sample);
            let error = try_generate(&config, single(&[3]), &context(), &mut model).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Numerical);
            assert!(
                error.to_string().starts_with("step 2: the model's logits hold NaN or infinity"),
                "{error}"
            );
        }
    }
}

#[test]
fn invalid_logits_can_be_made_numbers() {
    for (bad, chosen) in [(f32::INFINITY, 4), (f32::NAN, 5)] {
        let mut model = ScriptedModel::new(VOCAB, move |_| {
            let mut logits = vec![-1.0; VOCAB];
            (logits[4], logits[5]) = (bad, 0.5);
            logits
        });
        let config = config().max_new_tokens(2).remove_invalid_values(true);
        let transcript = try_generate(&config, single(&[3]), &context(), &mut model).unwrap();
        assert_eq!(transcript.output.rows[0].token_ids, ids(&[chosen, chosen]));
    }
}

/// Replaces the scores by those of an unconditional sequence that began with another prompt.
pub(super) struct FollowUnconditional;

impl LogitsProcessor for FollowUnconditional {
    fn name(&self) -> &'static str {
        "FollowUnconditional"
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let logits = row.unconditional_logits().ok_or_else(|| Error::callback("no unconditional"))?;
        scores.copy_from_slice(logits);
        Ok(())
    }

    fn unconditional_prompt(&self, prompt_index: usize, prompt: &[TokenId]) -> Option<Vec<TokenId>> {
        Some(vec![prompt[0], TokenId(9 + prompt_index as u32)])
    }
}

/// A model whose logits depend on all tokens of a sequence.
fn sum_model() -> ScriptedModel {
    ScriptedModel::new(VOCAB, |tokens| {
        let sum: u32 = tokens.iter().map(|token| token.0).sum();
        table()[(sum as usize * 5 + tokens.len()) % VOCAB].clone()
    })
}

#[test]
fn unconditional_sequences_run_beside_their_rows_and_fork_with_them() {
    let config = config().max_new_tokens(6).do_sample(true).num_return_sequences(2).seed(9).eos_token_id(2);
    let followed = PlanContext { processors: vec![Arc::new(FollowUnconditional)], ..context() };
    let prompts = PromptBatch::with_mask(
        vec![ids(&[0, 3, 5]), ids(&[4, 4, 6])],
        vec![vec![false, true, true], vec![true; 3]],
    )
    .unwrap();
    let mut model = sum_model();
    let transcript = try_generate(&config, prompts, &followed, &mut model).unwrap();
    assert!(model.idle.iter().all(Vec::is_empty), "{:?}", model.idle);
    // The rows equal those of the unconditional sequences' prompts alone.
    let alone = PromptBatch::with_mask(vec![ids(&[3, 9]), ids(&[4, 10])], vec![vec![true; 2]; 2]).unwrap();
    let expected = try_generate(&config, alone, &context(), &mut sum_model()).unwrap();
    assert_eq!(rows(&transcript), rows(&expected));
    assert_ne!(
        transcript.output.rows[0].logprobs, expected.output.rows[0].logprobs,
        "of the model's own logits"
    );
}

/// Counts its calls for a sequence in the score of token 11, and at the third one forces token 0.
struct Counting;

struct Calls(u32);

impl ProcessorState for Calls {
    fn fork(&self) -> Box<dyn ProcessorState> {
        Box::new(Self(self.0))
    }
}

impl LogitsProcessor for Counting {
    fn name(&self) -> &'static str {
        "Counting"
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let generated = row.input_ids.len() - row.prompt_len;
        let calls = row.state::<Calls>().ok_or_else(|| Error::callback("no state"))?;
        calls.0 += 1;
        if calls.0 as usize != generated + 1 {
            return Err(Error::callback(format!("{} calls for {generated} tokens", calls.0)));
        }
        if calls.0 == 3 {
            scores.fill(f32::NEG_INFINITY);
            scores[0] = 0.0;
        }
        Ok(())
    }

    fn new_state(&self) -> Option<Box<dyn ProcessorState>> {
        Some(Box::new(Calls(0)))
    }
}

#[test]
fn every_row_has_its_own_state() {
    let config = config().max_new_tokens(4).do_sample(true).num_return_sequences(4).seed(2).eos_token_id(1);
    let context = PlanContext { processors: vec![Arc::new(Counting)], ..context() };
    let mut model = ScriptedModel::bigram(table());
    let transcript = try_generate(&config, single(&[3]), &context, &mut model).unwrap();
    let long: Vec<_> = transcript.output.rows.iter().filter(|row| row.token_ids.len() >= 3).collect();
    assert!(!long.is_empty() && long.iter().all(|row| row.token_ids[2] == TokenId(0)));
}

#[test]
fn states_that_are_forked_go_their_own_ways() {
    let list = LogitsProcessorList::new(vec![Arc::new(Counting)]);
    let mut first = list.new_states();
    let call = |ids: &[TokenId], states: &mut ProcessorStates| {
        let row = RowContext { prompt_len: 1, states: Some(states), ..RowContext::of_prompt(ids) };
        list.process(&mut ScoreRows::new(&mut [0.0; VOCAB], VOCAB), &mut ProcessContext::new(vec![row]))
    };
    call(&ids(&[3]), &mut first).unwrap();
    let mut second = first.fork();
    call(&ids(&[3, 4]), &mut first).unwrap();
    call(&ids(&[3, 5]), &mut second).unwrap();
    call(&ids(&[3, 5, 6]), &mut second).unwrap();
    call(&ids(&[3, 4, 6]), &mut first).unwrap();
}

#[test]
fn an_error_of_a_callers_code_ends_the_request() {
    struct Fails;
    impl StoppingCriterion for Fails {
        fn name(&self) -> &'static str {
            "Fails"
        }
        fn should_stop(&self, _row: &StopContext<'_>) -> Result<Option<FinishReason>> {
            Err(Error::callback("boom"))
        }
    }
    let context = PlanContext { criteria: vec![Arc::new(Fails)], ..context() };
    let mut model = ScriptedModel::bigram(table());
    let error = try_generate(&config().max_new_tokens(2), single(&[3]), &context, &mut model).unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Callback, "Fails: boom"));
}

// transformers keeps drawing real tokens for such a row until all rows stop, because nothing but
// `eos_token_id` makes it pad.
#[test]
fn a_row_with_its_stop_string_ends_also_where_no_token_ends_texts() {
    let words = ["a", "b", "c", "d", "e"];
    let mut context = PlanContext::new(words.len(), 64);
    let vocabulary = WordVocabulary::new(words.iter().map(|word| word.as_bytes().to_vec()).collect());
    context.vocabulary = Some(Arc::new(vocabulary));
    // a is followed by b, b by c and c by a, but d by e and e by d.
    let next = [1, 2, 0, 4, 3];
    let table = next.map(|next| (0..words.len()).map(|id| f32::from(u8::from(id == next))).collect());
    let prompts = PromptBatch::with_mask(vec![ids(&[0]), ids(&[3])], vec![vec![true]; 2]).unwrap();
    let config = GenerationConfig::new().max_new_tokens(6).stop_strings("bc");
    let plan = GenerationPlan::new(&config, prompts, &context).unwrap();
    let output = run(build(plan), &mut ScriptedModel::bigram(table.to_vec())).unwrap().output;
    let rows: Vec<_> = output.rows.iter().map(|row| (row.token_ids.clone(), row.finish_reason)).collect();
    assert_eq!(rows, [(ids(&[1, 2]), FinishReason::Stop), (ids(&[4, 3, 4, 3, 4, 3]), FinishReason::Length)]);
    assert_eq!(output.pad_token_id, None, "the caller chooses what fills the shorter row");
}
