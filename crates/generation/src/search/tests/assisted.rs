//! Assisted decoding: its rows equal those of the plain search, in fewer passes.

use proptest::prelude::*;

use super::super::super::config::AssistantTokensSchedule;
use super::super::super::stopping::StopContext;
use super::callers::FollowUnconditional;
use super::*;

/// A model whose logits depend on the last two tokens, so that texts repeat themselves and stop doing so.
pub(super) fn repeating(seed: u64) -> ScriptedModel {
    ScriptedModel::new(VOCAB, move |tokens| {
        let last = |back: usize| tokens.len().checked_sub(back).map_or(0, |at| u64::from(tokens[at].0));
        let (a, b) = (last(1), if tokens.len() % 7 == 0 { last(2) } else { 0 });
        (0..VOCAB as u64)
            .map(|j| ((a * 31 + b * 13 + j * 17 + a * j * 7 + seed) % 101) as f32 / 16.0 - 3.0)
            .collect()
    })
}

fn compared(
    config: &GenerationConfig,
    prompts: &PromptBatch,
    context: &PlanContext,
    seed: u64,
    lookup: [usize; 2],
) {
    compared_with(config, &GenerationConfig::new(), prompts, context, seed, lookup);
}

/// Compares prompt lookup with further `fields` with the plain search.
fn compared_with(
    config: &GenerationConfig,
    fields: &GenerationConfig,
    prompts: &PromptBatch,
    context: &PlanContext,
    seed: u64,
    lookup: [usize; 2],
) {
    let mut plain = repeating(seed);
    let expected = try_generate(config, prompts.clone(), context, &mut plain).unwrap();
    let assisted = config.clone().prompt_lookup_num_tokens(lookup[0]).max_matching_ngram_size(lookup[1]);
    let mut model = repeating(seed).with_clock(any_times(seed));
    let transcript =
        try_generate(&assisted.merged_over(fields), prompts.clone(), context, &mut model).unwrap();
    assert_same(&transcript, &expected);
    let prompts_alone = usize::from(transcript.output.rows.len() > prompts.rows().len());
    assert!(model.steps.len() <= plain.steps.len() + prompts_alone);
    assert!(model.idle.iter().all(Vec::is_empty), "no sequence outlives its row: {:?}", model.idle);
}

/// A clock with unpredictable times: in some runs many rows take as long as one, in others far longer.
pub(super) fn any_times(seed: u64) -> impl FnMut(&SearchInputs) -> f64 + Send + 'static {
    let mut random = seed;
    move |inputs| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
        let rows = inputs.rows.len() as f64;
        (1.0 + rows * [0.01, 0.3, 1.0][seed as usize % 3]) * (1 + (random >> 62)) as f64
    }
}

pub(super) fn adaptive() -> GenerationConfig {
    GenerationConfig::new().num_assistant_tokens_schedule(AssistantTokensSchedule::Adaptive)
}

/// Compares all but the order in which the tokens of several rows appear, and the statistics, which have to
/// add up.
pub(super) fn assert_same(transcript: &Transcript, expected: &Transcript) {
    let stats = transcript.output.draft_stats.unwrap();
    let output = SearchOutput { draft_stats: None, ..transcript.output.clone() };
    assert_eq!(output, expected.output);
    let of_rows = |transcript: &Transcript| {
        let mut events = transcript.events.clone();
        events.sort_by_key(|event| event.row);
        events
    };
    assert_eq!(of_rows(transcript), of_rows(expected));
    let tokens: usize = transcript.output.rows.iter().map(|row| row.token_ids.len()).sum();
    assert!(stats.accepted <= stats.verified && stats.verified <= stats.drafted, "{stats:?}");
    // Each check gives the accepted tokens and one more, unless the row ends with an accepted one.
    let (rows, tokens) = (transcript.output.rows.len() as u64, tokens as u64);
    assert!(
        (tokens..=tokens + rows).contains(&(stats.rounds + stats.accepted)),
        "{stats:?}, {tokens} tokens"
    );
}

proptest! {
    #[test]
    fn greedy_search_with_prompt_lookup_is_greedy_search(
        seed in 0_u64..1000,
        ids in proptest::collection::vec(0_u32..VOCAB as u32, 1..12),
        lookup in (1_usize..8, 1_usize..4),
        penalty in prop::option::of(0.8_f64..1.5),
        ngram in prop::option::of(0_usize..4),
        eos in prop::option::of(0_u32..VOCAB as u32),
        min_new_tokens in prop::option::of(0_usize..10),
        max_new_tokens in 1_usize..30,
        adapts in any::<bool>(),
    ) {
        let mut config = config().max_new_tokens(max_new_tokens).output_scores(true).output_logits(true).top_logprobs(3);
        (config.repetition_penalty, config.no_repeat_ngram_size) = (penalty, ngram);
        (config.eos_token_id, config.min_new_tokens) = (eos.map(|eos| TokenId(eos).into()), min_new_tokens);
        let fields = if adapts { adaptive() } else { GenerationConfig::new() };
        compared_with(&config, &fields, &single(&ids), &context(), seed, [lookup.0, lookup.1]);
    }

    #[test]
    fn sampling_with_adaptive_prompt_lookup_is_sampling(
        (model, seed) in (0_u64..1000, 0_u64..1000),
        ids in proptest::collection::vec(0_u32..VOCAB as u32, 1..12),
        lookup in (1_usize..8, 1_usize..3),
        (rows, top_k) in (1_usize..4, 1_usize..5),
        eos in prop::option::of(0_u32..VOCAB as u32),
        max_new_tokens in 1_usize..40,
    ) {
        let mut config = config().max_new_tokens(max_new_tokens).do_sample(true).seed(seed).top_k(top_k);
        config = config.num_return_sequences(rows).output_scores(true).temperature(0.7);
        config.eos_token_id = eos.map(|eos| TokenId(eos).into());
        compared_with(&config, &adaptive(), &single(&ids), &context(), model, [lookup.0, lookup.1]);
    }
}

#[test]
fn rows_of_a_batch_and_unconditional_sequences_keep_their_candidates_apart() {
    let prompts = PromptBatch::with_mask(
        vec![ids(&[0, 3, 5, 3]), ids(&[4, 4, 6, 4])],
        vec![vec![false, true, true, true], vec![true; 4]],
    )
    .unwrap();
    let followed = PlanContext { processors: vec![Arc::new(FollowUnconditional)], ..context() };
    for seed in 0..20 {
        let config = config().max_new_tokens(20).eos_token_id(2);
        compared(&config, &prompts, &context(), seed, [5, 2]);
        compared(&config, &prompts, &followed, seed, [5, 2]);
    }
}

/// Stops a row at the second token of this value.
pub(super) struct SecondOf(pub(super) TokenId);

impl StoppingCriterion for SecondOf {
    fn name(&self) -> &'static str {
        "SecondOf"
    }

    fn should_stop(&self, row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        let count = row.new_tokens().iter().filter(|token| **token == self.0).count();
        Ok((count >= 2).then_some(FinishReason::Stop))
    }
}

#[test]
fn a_row_stops_within_a_run_where_it_would_stop_without_candidates() {
    for token in 0..VOCAB as u32 {
        let stopped = PlanContext { criteria: vec![Arc::new(SecondOf(TokenId(token)))], ..context() };
        compared(&config().max_new_tokens(25), &single(&[3, 5, 3, 5]), &stopped, 4, [7, 1]);
    }
}

#[test]
fn sampled_rows_of_a_prompt_go_their_own_ways_and_leave_nothing() {
    let config = config().max_new_tokens(15).do_sample(true).num_return_sequences(3).eos_token_id(2).seed(5);
    let assisted = config.prompt_lookup_num_tokens(4_usize);
    let mut model = repeating(1);
    let transcript = try_generate(&assisted, single(&[3, 5, 3, 5, 3]), &context(), &mut model).unwrap();
    assert!(model.idle.iter().all(Vec::is_empty), "{:?}", model.idle);
    let texts = rows(&transcript);
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{texts:?}");
}

#[test]
fn several_tokens_of_a_repetitive_text_take_one_pass() {
    let mut model = ScriptedModel::bigram(
        (0..VOCAB).map(|i| (0..VOCAB).map(|j| f32::from(j == (i + 1) % VOCAB)).collect()).collect(),
    );
    let config = config().max_new_tokens(24).prompt_lookup_num_tokens(5_usize);
    let prompt: Vec<u32> = (0..VOCAB as u32).chain([0, 1]).collect();
    let transcript = try_generate(&config, single(&prompt), &context(), &mut model).unwrap();
    assert_eq!(row(&transcript).0, (2..26).map(|i| i % VOCAB as u32).collect::<Vec<_>>());
    assert_eq!(model.steps.len(), 4, "six tokens a pass");
}

#[test]
fn prompt_lookup_adapts_to_the_text_and_the_clock() {
    let table = (0..VOCAB).map(|i| (0..VOCAB).map(|j| f32::from(j == (i + 1) % VOCAB)).collect()).collect();
    let mut model = ScriptedModel::bigram(table).with_clock(|_| 1.0);
    let config = config().max_new_tokens(46).prompt_lookup_num_tokens(5_usize).merged_over(&adaptive());
    let prompt: Vec<u32> = (0..VOCAB as u32).chain([0, 1]).collect();
    let transcript = try_generate(&config, single(&prompt), &context(), &mut model).unwrap();
    assert_eq!(row(&transcript).0, (2..48).map(|i| i % VOCAB as u32).collect::<Vec<_>>());
    let rows: Vec<usize> = model.steps.iter().map(|step| step.rows.len()).collect();
    assert_eq!(rows[..5], [14, 1, 3, 5, 6], "a plain step, then ever more candidates");
    let stats = transcript.output.draft_stats.unwrap();
    assert_eq!((stats.rounds + stats.accepted, stats.verified), (46, stats.accepted));

    // Where a row costs as much as a pass, candidates are looked up, and one is checked now and then.
    let text: Vec<u32> = (0..VOCAB as u32).chain([0, 1]).collect();
    let mut slow = repeating(3).with_clock(|inputs| inputs.rows.len() as f64);
    let long = PlanContext::new(VOCAB, 600);
    let transcript = try_generate(&config.max_new_tokens(500), single(&text), &long, &mut slow).unwrap();
    let stats = transcript.output.draft_stats.unwrap();
    assert!((1..40).contains(&stats.verified), "{stats:?}");
}
