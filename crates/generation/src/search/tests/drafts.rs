//! Drafts of an assistant: greedy search with them is greedy search, whatever they hold, and sampling has the
//! distribution of the model.

use proptest::prelude::*;

use rsgen_core::Error;

use super::super::super::config::AssistantTokensSchedule;
use super::super::super::logits::{LogitsProcessor, ProcessorState, RowContext};
use super::super::super::plan::{DraftContext, DraftSource};
use super::assisted::{SecondOf, adaptive, any_times, assert_same, repeating};
use super::callers::FollowUnconditional;
use super::*;

/// How the logits of an assistant relate to those of the model.
#[derive(Debug, Clone, Copy)]
pub(super) enum Assistant {
    Same,
    Similar,
    Unrelated,
    Nonsense,
}

/// The repeating model with an assistant.
fn assisted(seed: u64, assistant: Assistant) -> ScriptedModel {
    let mut draft = repeating(if matches!(assistant, Assistant::Unrelated) { seed + 1000 } else { seed });
    repeating(seed).with_clock(any_times(seed)).with_draft(move |tokens| {
        let mut logits = draft.logits_after(tokens);
        let len = tokens.len();
        match assistant {
            Assistant::Same | Assistant::Unrelated => {}
            Assistant::Similar => logits[len % VOCAB] += (len % 4) as f32,
            Assistant::Nonsense => {
                logits.fill([f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 0.0][len % 4]);
            }
        }
        logits
    })
}

pub(super) fn with_draft(context: PlanContext) -> PlanContext {
    PlanContext { draft: Some(DraftContext::new(VOCAB, 64)), num_layers: 4, ..context }
}

/// Runs a plain and an assisted search and compares all but the passes.
pub(super) fn compared(
    config: &GenerationConfig,
    fields: &GenerationConfig,
    prompts: &PromptBatch,
    context: &PlanContext,
    (seed, assistant): (u64, Assistant),
) -> Transcript {
    let plain = PlanContext { draft: None, ..context.clone() };
    let expected = try_generate(config, prompts.clone(), &plain, &mut repeating(seed)).unwrap();
    let mut model = assisted(seed, assistant);
    model.draft_context_len = context.draft.as_ref().map_or(64, |draft| draft.context_len);
    let transcript = try_generate(&config.merged_over(fields), prompts.clone(), context, &mut model).unwrap();
    assert_same(&transcript, &expected);
    check_idle(&model);
    transcript
}

/// Sequences are idle while rows draft, and those of drafts while rows are checked; none outlives its row.
fn check_idle(model: &ScriptedModel) {
    let mut owners = std::collections::BTreeMap::new();
    for (step, idle) in model.steps.iter().zip(&model.idle) {
        let drafts = step.rows.iter().any(|row| row.model == ModelRole::Draft || row.last_layer.is_some());
        owners.extend(step.rows.iter().map(|row| (row.seq, drafts)));
        let wasted = idle.iter().filter(|seq| !drafts && owners.get(*seq) == Some(&false)).count();
        assert_eq!(wasted, 0, "{:?}", model.idle);
    }
}

/// A processor with a state: lowers each token by the number of its uses in this sequence, and fails when the
/// state has seen other tokens than the row holds.
struct CountUses;

struct Uses(Vec<TokenId>);

impl ProcessorState for Uses {
    fn fork(&self) -> Box<dyn ProcessorState> {
        Box::new(Self(self.0.clone()))
    }
}

impl LogitsProcessor for CountUses {
    fn name(&self) -> &'static str {
        "CountUses"
    }

    fn new_state(&self) -> Option<Box<dyn ProcessorState>> {
        Some(Box::new(Uses(Vec::new())))
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let (ids, prompt_len) = (row.input_ids, row.prompt_len);
        let uses = &mut row.state::<Uses>().ok_or_else(|| Error::internal("no state"))?.0;
        uses.extend(ids[prompt_len..].last());
        if uses[..] != ids[prompt_len..] {
            return Err(Error::internal(format!("the state has seen {uses:?}, the row holds {ids:?}")));
        }
        for token in uses {
            scores[token.index()] -= 0.5;
        }
        Ok(())
    }
}

fn schedules() -> impl Strategy<Value = AssistantTokensSchedule> {
    prop::sample::select(vec![
        AssistantTokensSchedule::Constant,
        AssistantTokensSchedule::Heuristic,
        AssistantTokensSchedule::HeuristicTransient,
        AssistantTokensSchedule::Adaptive,
    ])
}

fn assistants() -> impl Strategy<Value = Assistant> {
    prop::sample::select(vec![Assistant::Same, Assistant::Similar, Assistant::Unrelated, Assistant::Nonsense])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn greedy_search_with_drafts_is_greedy_search(
        seed in 0_u64..1000,
        assistant in assistants(),
        ids in proptest::collection::vec(proptest::collection::vec(0_u32..VOCAB as u32, 1..9), 1..3),
        (num_tokens, schedule, threshold) in (1_usize..9, schedules(), prop::option::of(0.0_f64..1.0)),
        early_exit in prop::option::of(1_usize..5),
        draft_context in 1_usize..64,
        (penalty, ngram) in (prop::option::of(0.8_f64..1.5), prop::option::of(0_usize..4)),
        (eos, stop) in (prop::option::of(0_u32..VOCAB as u32), prop::option::of(0_u32..VOCAB as u32)),
        stop_string in prop::option::of(0_u8..VOCAB as u8),
        min_new_tokens in prop::option::of(0_usize..10),
        (counts, follows) in (any::<bool>(), any::<bool>()),
        max_new_tokens in 1_usize..30,
    ) {
        let mut config = config().max_new_tokens(max_new_tokens).output_scores(true).output_logits(true).top_logprobs(3);
        (config.repetition_penalty, config.no_repeat_ngram_size) = (penalty, ngram);
        (config.eos_token_id, config.min_new_tokens) = (eos.map(|eos| TokenId(eos).into()), min_new_tokens);
        config.stop_strings = stop_string.map(|letter| String::from_utf8(vec![b'a' + letter, b'b']).unwrap().into());
        let mut fields = GenerationConfig::new().num_assistant_tokens(num_tokens).num_assistant_tokens_schedule(schedule);
        (fields.assistant_confidence_threshold, fields.assistant_early_exit) = (threshold, early_exit);
        let longest = ids.iter().map(Vec::len).max().unwrap();
        let pad = |row: &Vec<u32>| [vec![0; longest - row.len()], row.clone()].concat();
        let mask = |row: &Vec<u32>| [vec![false; longest - row.len()], vec![true; row.len()]].concat();
        let prompts = PromptBatch::with_mask(
            ids.iter().map(|row| super::ids(&pad(row))).collect(),
            ids.iter().map(mask).collect(),
        ).unwrap();
        let mut context = with_draft(context());
        context.draft = Some(DraftContext::new(VOCAB, draft_context));
        context.vocabulary = Some(Arc::new(WordVocabulary::new((b'a'..b'a' + VOCAB as u8).map(|b| vec![b]).collect())));
        if counts {
            context.processors.push(Arc::new(CountUses));
        }
        if follows {
            context.processors.push(Arc::new(FollowUnconditional));
        }
        context.criteria.extend(stop.map(|token| Arc::new(SecondOf(TokenId(token))) as Arc<dyn StoppingCriterion>));
        // Early exits draft to the end of the model's context.
        if early_exit.is_some() {
            context.draft = None;
        }
        compared(&config, &fields, &prompts, &context, (seed, assistant));
    }

    #[test]
    fn sampling_with_adaptive_drafts_is_sampling(
        (model, seed) in (0_u64..1000, 0_u64..1000),
        assistant in assistants(),
        ids in proptest::collection::vec(0_u32..VOCAB as u32, 1..9),
        (num_tokens, threshold) in (1_usize..9, prop::option::of(0.0_f64..1.0)),
        (rows, top_k) in (1_usize..4, 1_usize..6),
        early_exit in prop::option::of(1_usize..5),
        eos in prop::option::of(0_u32..VOCAB as u32),
        max_new_tokens in 1_usize..40,
    ) {
        let mut config = config().max_new_tokens(max_new_tokens).do_sample(true).seed(seed).top_k(top_k);
        config = config.num_return_sequences(rows).output_logits(true);
        config.eos_token_id = eos.map(|eos| TokenId(eos).into());
        let mut fields = adaptive().num_assistant_tokens(num_tokens);
        (fields.assistant_confidence_threshold, fields.assistant_early_exit) = (threshold, early_exit);
        let mut context = with_draft(context());
        if early_exit.is_some() {
            context.draft = None;
        }
        compared(&config, &fields, &single(&ids), &context, (model, assistant));
    }
}

#[test]
fn an_assistant_that_agrees_is_accepted_whole() {
    let fields = GenerationConfig::new().num_assistant_tokens(4_usize).assistant_confidence_threshold(0.0);
    let config = config().max_new_tokens(20);
    let context = with_draft(context());
    let transcript = compared(&config, &fields, &single(&[3, 5]), &context, (4, Assistant::Same));
    let stats = transcript.output.draft_stats.unwrap();
    assert_eq!((stats.drafted, stats.verified, stats.accepted, stats.rounds), (16, 16, 16, 4));
    assert_eq!(stats.acceptance(), Some(1.0));
}

#[test]
fn a_heuristic_schedule_goes_on_where_the_last_call_ended() {
    let context = with_draft(context());
    let kept = context.draft.as_ref().unwrap().kept_tokens.clone();
    let config = config().max_new_tokens(20);
    for (schedule, expected) in [
        (AssistantTokensSchedule::Constant, None),
        (AssistantTokensSchedule::HeuristicTransient, None),
        // 2, 4 and 6 tokens are accepted, then the 4 that fit, each with one more.
        (AssistantTokensSchedule::Heuristic, Some(10)),
    ] {
        let mut fields =
            GenerationConfig::new().num_assistant_tokens(2_usize).num_assistant_tokens_schedule(schedule);
        fields.assistant_confidence_threshold = Some(0.0);
        compared(&config, &fields, &single(&[3, 5]), &context, (4, Assistant::Same));
        assert_eq!(kept.get(), expected, "{schedule:?}");
    }
}

#[test]
fn adaptive_drafts_follow_the_clock_and_the_next_call_goes_on_from_there() {
    let context = PlanContext { context_len: 4096, max_position_embeddings: 4096, ..with_draft(context()) };
    let run = |assistant, fields: &GenerationConfig, step: f64| {
        let clock = move |inputs: &SearchInputs| match inputs.rows[0].model {
            ModelRole::Draft => step,
            ModelRole::Target => 1.0 + 0.02 * inputs.rows.len() as f64,
        };
        let mut context = context.clone();
        context.draft.as_mut().unwrap().context_len = 4096;
        let mut model = assisted(4, assistant).with_clock(clock);
        let config = config().max_new_tokens(300).assistant_confidence_threshold(0.0).merged_over(fields);
        let transcript = try_generate(&config, single(&[3, 5]), &context, &mut model).unwrap();
        let drafts = model.steps.iter().filter(|step| step.rows[0].model == ModelRole::Draft).count();
        (transcript.output.draft_stats.unwrap(), drafts)
    };
    let (stats, _) = run(Assistant::Same, &adaptive(), 0.05);
    assert!(stats.rounds < 40 && stats.accepted == stats.drafted, "{stats:?}");
    // The assistant is as good, but takes longer than the model.
    let (first, drafts) = run(Assistant::Same, &adaptive(), 5.0);
    let (second, later) = run(Assistant::Same, &adaptive(), 5.0);
    assert!(drafts < 40 && later < 5, "{first:?} {second:?}");
    // An ensemble's tokens depend on what is drafted, so its drafts never adapt.
    let ensemble = adaptive().assistant_ensemble_weight(0.5).num_assistant_tokens(3_usize);
    let (stats, drafts) = run(Assistant::Same, &ensemble, 5.0);
    assert!(drafts as u64 == stats.drafted && stats.rounds == 75, "{stats:?}");
}

#[test]
fn rows_that_begin_to_draft_later_compute_their_prompt_once() {
    let context = with_draft(context());
    let config = config().max_new_tokens(30).do_sample(true).seed(5).num_return_sequences(3);
    let mut model = assisted(4, Assistant::Same).with_clock(|_| 0.1);
    let config = config.merged_over(&adaptive());
    let transcript = try_generate(&config, single(&[3, 5, 7, 9]), &context, &mut model).unwrap();
    assert!(transcript.output.draft_stats.unwrap().accepted > 0);
    let rows = model.steps.iter().flat_map(|step| &step.rows);
    assert_eq!(rows.filter(|row| row.model == ModelRole::Draft && row.is_prompt).count(), 4);
}

#[test]
fn the_plan_says_which_draft_sequences_there_may_be() {
    let plan = |config: &GenerationConfig, context: &PlanContext| {
        GenerationPlan::new(config, single(&[3, 5, 7]), context)
    };
    let context = with_draft(context());
    let sampling = config().max_new_tokens(9).do_sample(true).num_return_sequences(3);
    let drafted = plan(&sampling, &context).unwrap();
    assert_eq!((drafted.draft().unwrap().sequences_each, drafted.draft_len(0)), (3, 12));
    let mut short = context.clone();
    short.draft = Some(DraftContext::new(VOCAB, 5));
    assert_eq!(plan(&config().max_new_tokens(9), &short).unwrap().draft_len(0), 5);
    let exit = plan(&config().max_new_tokens(9).assistant_early_exit(2_usize), &context).unwrap();
    assert_eq!(exit.draft().unwrap().source, DraftSource::EarlyExit { num_layers: 2 });
    let beams = plan(&config().num_beams(2), &context).unwrap();
    assert_eq!((beams.draft().is_none(), beams.draft_len(0)), (true, 0));

    short.draft = Some(DraftContext::new(VOCAB + 1, 5));
    for (config, context, field) in [
        (config().assistant_early_exit(5_usize), &context, "`assistant_early_exit` must be a number of"),
        (config().assistant_early_exit(0_usize), &context, "`assistant_early_exit` must be a number of"),
        (config().num_assistant_tokens(0_usize), &context, "`num_assistant_tokens` must be 1 or more"),
        (config().assistant_confidence_threshold(f64::NAN), &context, "`assistant_confidence_threshold`"),
        (config().assistant_ensemble_weight(1.0), &context, "`assistant_ensemble_weight` must be above 0"),
        (
            config().assistant_ensemble_weight(0.5).prompt_lookup_num_tokens(2_usize),
            &context,
            "which prompt lookup has not",
        ),
        (config(), &short, "the assistant must have the model's vocabulary of 12 tokens, but has one of 13"),
    ] {
        let error = plan(&config, context).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn the_assistant_s_own_fields_hold_unless_the_call_sets_them() {
    let mut context = with_draft(context());
    let file = GenerationConfig::new().num_assistant_tokens(3_usize).assistant_confidence_threshold(0.0);
    context.draft.as_mut().unwrap().model_defaults = Arc::new(file);
    let drafted = |fields: &GenerationConfig| {
        let config = config().max_new_tokens(13);
        compared(&config, fields, &single(&[3, 5]), &context, (4, Assistant::Same))
            .output
            .draft_stats
            .unwrap()
    };
    assert_eq!(
        drafted(&GenerationConfig::new()).rounds,
        4,
        "3 drafted and 1 more, 3 times, and the last one"
    );
    assert_eq!(drafted(&GenerationConfig::new().num_assistant_tokens(12_usize)).rounds, 1);
}

/// How often each token follows a prompt, as first and second new token.
fn counts(context: &PlanContext, fields: &GenerationConfig, runs: u64) -> Vec<Vec<f64>> {
    let mut counts = vec![vec![0.0; VOCAB]; 2];
    for seed in 0..runs {
        let config = config().max_new_tokens(2).do_sample(true).num_return_sequences(2).top_k(6).seed(seed);
        let mut model = assisted(4, Assistant::Similar);
        let transcript =
            try_generate(&config.merged_over(fields), single(&[3, 5]), context, &mut model).unwrap();
        check_idle(&model);
        for row in &transcript.output.rows {
            for (counts, token) in counts.iter_mut().zip(&row.token_ids) {
                counts[token.index()] += 0.5 / runs as f64;
            }
        }
    }
    counts
}

#[test]
fn sampling_with_drafts_has_the_distribution_of_the_model() {
    let runs = 3000;
    let none = GenerationConfig::new();
    let plain = counts(&context(), &none, runs);
    let drafted = counts(&with_draft(context()), &none.clone().num_assistant_tokens(2_usize), runs);
    let exits = counts(&with_draft(context()), &none.clone().assistant_early_exit(1_usize), runs);
    let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0;
    for position in 0..2 {
        for other in [&drafted, &exits] {
            let distance = distance(&plain[position], &other[position]);
            assert!(distance < 0.04, "token {position}: {distance}, {plain:?} {other:?}");
        }
    }
    let mixed = counts(&with_draft(context()), &none.assistant_ensemble_weight(0.01), runs);
    assert!(distance(&plain[0], &mixed[0]) > 0.04, "the ensemble has another distribution");
}

#[test]
fn an_ensemble_of_little_weight_follows_the_assistant() {
    let context = with_draft(context());
    let fields = GenerationConfig::new().num_assistant_tokens(5_usize).assistant_confidence_threshold(0.0);
    let mut model = assisted(4, Assistant::Unrelated);
    let config = config().max_new_tokens(6).assistant_ensemble_weight(0.001).merged_over(&fields);
    let drafted = try_generate(&config, single(&[3, 5]), &context, &mut model).unwrap();
    let mut alone = repeating(1004);
    let expected =
        try_generate(&super::config().max_new_tokens(5), single(&[3, 5]), &super::context(), &mut alone)
            .unwrap();
    assert_eq!(row(&drafted).0[..5], row(&expected).0[..], "the sixth is the model's");
    assert_eq!(drafted.output.draft_stats.unwrap().accepted, 5);
}

#[test]
fn an_assistant_sees_the_pad_token_where_the_text_holds_it() {
    let context = with_draft(context());
    let drafted = |pad: u32| {
        let config = config().max_new_tokens(20).eos_token_id(2).pad_token_id(pad).do_sample(true).seed(3);
        try_generate(&config, single(&[3, 5, 7]), &context, &mut assisted(4, Assistant::Similar)).unwrap()
    };
    assert_eq!(rows(&drafted(5)), rows(&drafted(1)));
}
