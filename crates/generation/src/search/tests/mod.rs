//! Searches on a scripted model. Token sequences marked so are those of transformers 5.23 with torch 2.13:
//! its `generate` on a model whose forward pass looks up the same table. The tests of a search that
//! transformers does not have stand in its own file and use the functions below.

mod assisted;
mod beams;
mod callers;
mod catalogues;
mod details;
mod drafts;
mod groups;
mod healing;
mod streams;
mod watermarks;

use std::sync::Arc;

use super::super::config::GenerationConfig;
use super::super::plan::{GenerationPlan, PlanContext};
use super::super::prompt::PromptBatch;
use super::super::stopping::{StopContext, StoppingCriterion};
use super::*;
use crate::tests::{ScriptedModel, Transcript, WordVocabulary, run};
use rsgen_core::SeqId;

const VOCAB: usize = 12;

/// `[[((i * 31 + j * 17 + i * j * 7) % 101) / 16 - 3 for j in range(12)] for i in range(12)]`
pub(super) fn table() -> Vec<Vec<f32>> {
    (0..VOCAB)
        .map(|i| (0..VOCAB).map(|j| ((i * 31 + j * 17 + i * j * 7) % 101) as f32 / 16.0 - 3.0).collect())
        .collect()
}

pub(super) fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

pub(super) fn single(prompt: &[u32]) -> PromptBatch {
    PromptBatch::single(ids(prompt)).unwrap()
}

pub(super) fn config() -> GenerationConfig {
    GenerationConfig::new()
}

fn context() -> PlanContext {
    PlanContext::new(VOCAB, 64)
}

pub(super) fn try_generate(
    config: &GenerationConfig,
    prompts: PromptBatch,
    context: &PlanContext,
    model: &mut ScriptedModel,
) -> Result<Transcript> {
    run(build(GenerationPlan::new(config, prompts, context)?), model)
}

fn generate(config: &GenerationConfig, prompts: PromptBatch) -> Transcript {
    let mut model = ScriptedModel::bigram(table());
    let transcript = try_generate(config, prompts, &context(), &mut model).unwrap();
    assert!(model.idle.iter().all(Vec::is_empty), "no sequence outlives its row: {:?}", model.idle);
    transcript
}

/// Generated tokens and reason of each row.
pub(super) fn rows(transcript: &Transcript) -> Vec<(Vec<u32>, FinishReason)> {
    let rows = transcript.output.rows.iter();
    rows.map(|row| (row.token_ids.iter().map(|id| id.0).collect(), row.finish_reason)).collect()
}

pub(super) fn row(transcript: &Transcript) -> (Vec<u32>, FinishReason) {
    let mut rows = rows(transcript);
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

// generate([[3, 5]], max_new_tokens=10)
#[test]
fn greedy_search_equals_transformers() {
    let transcript = generate(&config().max_new_tokens(10), single(&[3, 5]));
    assert_eq!(row(&transcript), (vec![10, 8, 9, 4, 6, 7, 1, 7, 1, 7], FinishReason::Length));
    assert_eq!(transcript.output.seed, None);
}

// … max_new_tokens=12, repetition_penalty=1.5 / eos_token_id=[1, 2], min_new_tokens=6
#[test]
fn processors_take_part_in_greedy_search() {
    let penalized = generate(&config().max_new_tokens(12).repetition_penalty(1.5), single(&[3, 5]));
    assert_eq!(row(&penalized).0, [10, 8, 9, 4, 6, 7, 1, 11, 6, 0, 11, 6]);
    let ends = config().max_new_tokens(12).eos_token_id([TokenId(4), TokenId(1)]);
    assert_eq!(row(&generate(&ends, single(&[3, 5]))), (vec![10, 8, 9, 4], FinishReason::Eos));
    let least = config().max_new_tokens(12).eos_token_id([TokenId(1), TokenId(2)]).min_new_tokens(6);
    assert_eq!(row(&generate(&least, single(&[3, 5]))), (vec![10, 8, 9, 4, 6, 7, 1], FinishReason::Eos));
}

// torch.manual_seed(42); generate([[3, 5]], max_new_tokens=12, do_sample=True)
// torch.manual_seed(5); generate([[3, 5]], …, top_k=0, min_p=0.2, temperature=1.7)
#[test]
fn sampling_draws_the_tokens_that_transformers_draws() {
    let sampling = config().max_new_tokens(12).do_sample(true);
    let transcript = generate(&sampling.clone().seed(42), single(&[3, 5]));
    assert_eq!(row(&transcript).0, [8, 2, 1, 11, 8, 9, 1, 11, 7, 4, 6, 7]);
    assert_eq!(transcript.output.seed, Some(42));
    let warped = generate(&sampling.seed(5).top_k(0).min_p(0.2).temperature(1.7), single(&[3, 5]));
    assert_eq!(row(&warped).0, [4, 10, 11, 10, 8, 3, 8, 2, 10, 1, 11, 7]);
}

// torch.manual_seed(7); generate([[3, 5]], max_new_tokens=12, do_sample=True, num_return_sequences=3,
// eos_token_id=1,
//                                pad_token_id=0)
#[test]
fn ended_rows_keep_consuming_random_words_as_in_transformers() {
    let config = config()
        .max_new_tokens(12)
        .do_sample(true)
        .num_return_sequences(3)
        .eos_token_id(1)
        .pad_token_id(0)
        .seed(7);
    let transcript = generate(&config, single(&[3, 5]));
    assert_eq!(
        rows(&transcript),
        [
            (vec![10, 1], FinishReason::Eos),
            (vec![4, 6, 0, 3, 0, 8, 9, 9, 9, 0, 3, 5], FinishReason::Length),
            (vec![4, 6, 5, 0, 11, 10, 3, 0, 5, 10, 8, 7], FinishReason::Length),
        ]
    );
    assert_eq!(transcript.output.pad_token_id, Some(TokenId(0)));
}

// torch.manual_seed(11); generate([[0, 0, 4, 9], [2, 7, 8, 6]], max_new_tokens=10, do_sample=True,
// num_return_sequences=2,
//     eos_token_id=[1, 10], pad_token_id=0, temperature=0.8, top_k=6, top_p=0.9, repetition_penalty=1.2)
#[test]
fn a_left_padded_batch_with_several_rows_each_equals_transformers() {
    let config = config()
        .max_new_tokens(10)
        .do_sample(true)
        .num_return_sequences(2)
        .eos_token_id([TokenId(1), TokenId(10)])
        .pad_token_id(0)
        .temperature(0.8)
        .top_k(6)
        .top_p(0.9)
        .repetition_penalty(1.2)
        .seed(11);
    let prompts = PromptBatch::rectangular(vec![ids(&[0, 0, 4, 9]), ids(&[2, 7, 8, 6])]).unwrap();
    let transcript = generate(&config, prompts);
    assert_eq!(
        rows(&transcript),
        [
            (vec![0, 5, 2, 1], FinishReason::Eos),
            (vec![5, 8, 6, 0, 11, 9, 5, 10], FinishReason::Eos),
            (vec![7, 4, 6, 5, 10], FinishReason::Eos),
            (vec![7, 1], FinishReason::Eos),
        ]
    );
    let prompt_indices: Vec<usize> = transcript.output.rows.iter().map(|row| row.prompt_index).collect();
    assert_eq!(prompt_indices, [0, 0, 1, 1]);
}

// torch.manual_seed(3); generate([[3, 5]], max_new_tokens=3, do_sample=True, top_k=3, repetition_penalty=1.5,
//                                output_scores=True, output_logits=True, return_dict_in_generate=True)
#[test]
fn scores_logits_and_log_probabilities_are_those_of_transformers() {
    let config = config()
        .max_new_tokens(3)
        .do_sample(true)
        .top_k(3)
        .repetition_penalty(1.5)
        .output_scores(true)
        .output_logits(true)
        .seed(3);
    let transcript = generate(&config, single(&[3, 5]));
    let row = &transcript.output.rows[0];
    assert_eq!(row.token_ids, ids(&[10, 1, 7]));
    let kept = &transcript.output.sequences[0];
    let scores = kept.scores.as_ref().unwrap();
    let finite = |step: usize| -> Vec<(usize, f32)> {
        scores[step].iter().copied().enumerate().filter(|(_, score)| score.is_finite()).collect()
    };
    assert_eq!(finite(0), [(6, 0.9375), (8, 1.125), (10, 1.3125)]);
    assert_eq!(finite(1), [(1, 2.875), (8, 3.0625), (9, 2.1875)]);
    assert_eq!(finite(2), [(2, 1.9375), (7, 3.125), (11, 2.8125)]);
    assert_eq!(kept.logits.as_ref().unwrap()[1], table()[10]);
    for (logprob, torch) in row.logprobs.iter().zip([-1.419_444, -1.314_129_8, -0.960_933_7]) {
        assert!((logprob - torch).abs() < 1e-5, "{logprob} {torch}");
    }
    let scores: Vec<f32> = transcript.events.iter().map(|event| event.score).collect();
    assert_eq!(scores, [1.3125, 2.875, 3.125]);
}

#[test]
fn nothing_is_kept_that_was_not_asked_for() {
    let kept = &generate(&config().max_new_tokens(2), single(&[3])).output.sequences[0];
    assert_eq!((&kept.scores, &kept.logits), (&None, &None));
}

#[test]
fn a_prompt_is_computed_once_and_forked() {
    let config = config().max_new_tokens(2).do_sample(true).num_return_sequences(3).seed(1);
    let mut model = ScriptedModel::bigram(table());
    try_generate(&config, single(&[3, 5, 7]), &context(), &mut model).unwrap();
    let [prompt, fork] = &model.steps[..] else { panic!("two steps") };
    assert_eq!(prompt.ops, [SequenceOp::Create { seq: SeqId(0), model: ModelRole::Target, source: None }]);
    assert_eq!(prompt.rows.len(), 3);
    assert!(prompt.rows.iter().all(|row| row.is_prompt));
    let wanted: Vec<bool> = prompt.rows.iter().map(|row| row.outputs.logits).collect();
    assert_eq!(wanted, [false, false, true]);
    assert_eq!(
        fork.ops,
        [
            SequenceOp::Fork { parent: SeqId(0), child: SeqId(1) },
            SequenceOp::Fork { parent: SeqId(0), child: SeqId(2) }
        ]
    );
    assert!(fork.rows.len() == 3 && fork.rows.iter().all(|row| !row.is_prompt && row.outputs.logits));
}

#[test]
fn padding_never_reaches_the_model() {
    let mut model = ScriptedModel::bigram(table());
    let prompts = PromptBatch::with_mask(
        vec![ids(&[0, 0, 4, 9]), ids(&[2, 7, 8, 6])],
        vec![vec![false, false, true, true], vec![true; 4]],
    )
    .unwrap();
    try_generate(&config().max_new_tokens(1), prompts, &context(), &mut model).unwrap();
    let fed: Vec<(SeqId, RowInput)> =
        model.steps[0].rows.iter().map(|row| (row.seq, row.input.clone())).collect();
    let expected: Vec<(SeqId, RowInput)> = [(0, 4), (0, 9), (1, 2), (1, 7), (1, 8), (1, 6)]
        .map(|(seq, token)| (SeqId(seq), RowInput::Token(TokenId(token))))
        .into();
    assert_eq!(fed, expected);
}

#[test]
fn a_row_that_ends_with_the_prompts_first_token_leaves_its_prompt_to_the_others() {
    // The first row samples the end at once; the others are forked from its sequence before that is released.
    let config =
        config().max_new_tokens(3).do_sample(true).num_return_sequences(8).eos_token_id(10).top_k(3).seed(1);
    let mut model = ScriptedModel::bigram(table());
    let transcript = try_generate(&config, single(&[5]), &context(), &mut model).unwrap();
    let at_once = |row: &crate::OutputRow| row.token_ids == ids(&[10]);
    assert!(at_once(&transcript.output.rows[0]), "{:?}", rows(&transcript));
    let further = transcript.output.rows.iter().filter(|row| !at_once(row)).count();
    assert!(further > 0);
    let ops = &model.steps[1].ops;
    assert_eq!(ops.len(), further + 1);
    assert_eq!(ops[further], SequenceOp::Release { seq: SeqId(0) });
    assert!(ops[..further].iter().all(|op| matches!(op, SequenceOp::Fork { parent: SeqId(0), .. })));
    assert!(model.idle.iter().all(Vec::is_empty));
}

#[test]
fn events_tell_the_rows_tokens_in_order() {
    let config = config().max_new_tokens(6).do_sample(true).num_return_sequences(3).eos_token_id(1).seed(7);
    let transcript = generate(&config, single(&[3, 5]));
    for (index, row) in transcript.output.rows.iter().enumerate() {
        let events: Vec<&TokenEvent> = transcript.events.iter().filter(|event| event.row == index).collect();
        assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), row.token_ids);
        assert_eq!(events.iter().map(|event| event.logprob).collect::<Vec<_>>(), row.logprobs);
        let (last, earlier) = events.split_last().unwrap();
        assert_eq!(last.finish, Some(row.finish_reason));
        assert!(earlier.iter().all(|event| event.finish.is_none()));
    }
}

struct StopAfter(TokenId);

impl StoppingCriterion for StopAfter {
    fn name(&self) -> &'static str {
        "StopAfter"
    }

    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        Ok((row.new_tokens().last() == Some(&self.0)).then_some(FinishReason::Stop))
    }
}

// The greedy continuation of [3, 5] is 10, 8, 9, 4, 6, 7, 1, 7, …
#[test]
fn every_stop_reason_is_reported() {
    let reason = |config: &GenerationConfig, context: &PlanContext| {
        let mut model = ScriptedModel::bigram(table());
        row(&try_generate(config, single(&[3, 5]), context, &mut model).unwrap())
    };
    let long = config().max_new_tokens(20);
    assert_eq!(reason(&long.clone().eos_token_id(4), &context()), (vec![10, 8, 9, 4], FinishReason::Eos));
    assert_eq!(reason(&config().max_length(5), &context()), (vec![10, 8, 9], FinishReason::Length));
    assert_eq!(reason(&long.clone().max_time(0.0), &context()), (vec![10], FinishReason::Time));
    let short = PlanContext::new(VOCAB, 4);
    assert_eq!(reason(&long, &short), (vec![10, 8], FinishReason::Length));
    let criteria: Vec<Arc<dyn StoppingCriterion>> = vec![Arc::new(StopAfter(TokenId(9)))];
    assert_eq!(reason(&long, &PlanContext { criteria, ..context() }), (vec![10, 8, 9], FinishReason::Stop));
    let words =
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"];
    let vocabulary = WordVocabulary::new(words.iter().map(|word| word.as_bytes().to_vec()).collect());
    let with_text = PlanContext { vocabulary: Some(Arc::new(vocabulary)), ..context() };
    let stop = |text: &str| reason(&long.clone().stop_strings(text), &with_text);
    assert_eq!(stop("htni"), (vec![10, 8, 9], FinishReason::Stop));
    assert_eq!(stop("fivete"), (vec![10], FinishReason::Stop), "the prompt takes part");
    assert_eq!(
        stop("threefive"),
        (vec![10, 8, 9, 4, 6, 7, 1, 7, 1, 7, 1, 7, 1, 7, 1, 7, 1, 7, 1, 7], FinishReason::Length)
    );
}

#[test]
fn a_search_given_up_keeps_what_it_has() {
    let plan = GenerationPlan::new(&config().max_new_tokens(9), single(&[3, 5]), &context()).unwrap();
    let mut search = build(plan);
    let mut model = ScriptedModel::bigram(table());
    for _ in 0..2 {
        let (mut inputs, mut step) = (SearchInputs::new(), SearchStep::default());
        search.wants(&mut inputs);
        let mut logits = model.compute(&inputs).unwrap();
        search.advance(SearchResults::of_logits(&mut logits, VOCAB), &mut step).unwrap();
        assert!(!step.finished);
    }
    let row = search.finish().rows.remove(0);
    assert_eq!((row.token_ids, row.finish_reason), (ids(&[10, 8]), FinishReason::Cancelled));
}

#[test]
fn results_of_another_shape_are_refused() {
    let plan = || GenerationPlan::new(&config().max_new_tokens(9), single(&[3]), &context()).unwrap();
    let mut step = SearchStep::default();
    let mut search = build(plan());
    let error = search.advance(SearchResults::of_logits(&mut [0.0; VOCAB], VOCAB), &mut step).unwrap_err();
    assert!(error.to_string().contains("without wants"), "{error}");
    let mut search = build(plan());
    search.wants(&mut SearchInputs::new());
    let error = search.advance(SearchResults::of_logits(&mut [0.0; 5], VOCAB), &mut step).unwrap_err();
    assert!(error.to_string().contains("asked for 1 rows of 12 logits and was given 5"), "{error}");
}
