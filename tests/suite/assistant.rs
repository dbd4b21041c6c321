//! Assistants: a second model that drafts, in a slot of the engine of the first.

use std::sync::LazyLock;

use rsgen::cache::PoolStats;
use rsgen::generation::{AssistantTokensSchedule, FieldValue};
use rsgen::generator::Assistant;
use rsgen::{ErrorKind, GenerationConfig, Generator, GeneratorOptions, Prompts};

/// An assistant with other tokens.
const OTHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/models/other_tokenizer");
const DRAFT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-draft");

static PLAIN: LazyLock<Generator> = LazyLock::new(|| Generator::bundled_with(&options(None)).unwrap());
/// A generator of its own, so that no other test takes its blocks.
fn assisted() -> Generator {
    Generator::bundled_with(&options(Some(Assistant::Bundled))).unwrap()
}

fn options(assistant: Option<Assistant>) -> GeneratorOptions {
    GeneratorOptions::new().num_threads(2).kv_cache_bytes(64 << 20).assistant(assistant)
}

/// Blocks that are taken or reserved, of all models.
fn taken(generator: &Generator) -> usize {
    let engine = generator.engine();
    let pools = std::iter::once(engine.pool().clone()).chain(engine.draft_pools());
    pools.map(|pool| pool.stats()).map(|stats| stats.used_blocks + stats.reserved_blocks).sum()
}

fn prompts() -> Prompts {
    vec!["Once upon a time", "One day, a little fox", "Tom had a red kite", "The"].into()
}

/// The most bytes that the pools may take.
fn most_bytes(generator: &Generator) -> usize {
    let engine = generator.engine();
    let pools = std::iter::once(engine.pool().clone()).chain(engine.draft_pools());
    pools.map(|pool| pool.stats().max_blocks * pool.capacity().layout().bytes_per_block()).sum()
}

#[test]
fn an_assistant_shares_the_cache_with_as_many_tokens_as_the_model() {
    let draft = Generator::open(DRAFT).unwrap();
    let generator = Generator::bundled_with(&options(None)).unwrap();
    let all = generator.engine().pool().stats();
    let slot = generator.engine().draft(draft.engine()).unwrap();
    let (target, drafts) = (generator.engine().pool().stats(), slot.pool().stats());
    assert!(target.max_blocks < all.max_blocks);
    let fewer = target.max_blocks.min(drafts.max_blocks);
    assert!(target.max_blocks.abs_diff(drafts.max_blocks) <= fewer / 8, "{target:?} {drafts:?}");
    assert!(most_bytes(&generator) <= 64 << 20);

    // The same model has the same slot; another one has another.
    generator.engine().draft(draft.engine()).unwrap();
    assert_eq!(generator.engine().draft_pools().len(), 1);
    let other = Generator::open(DRAFT).unwrap();
    generator.engine().draft(other.engine()).unwrap();
    assert_eq!(generator.engine().draft_pools().len(), 2);
    assert!(most_bytes(&generator) <= 64 << 20);

    // A slot goes with the last handle of its model.
    drop((other, draft, slot));
    assert_eq!(generator.engine().pool().stats(), all);
    assert!(generator.engine().draft_pools().is_empty());
}

#[test]
fn blocks_in_use_stay_when_the_cache_is_divided() {
    let generator = Generator::bundled_with(&options(None)).unwrap();
    let pool = generator.engine().pool();
    let before = pool.stats();
    let reservation = pool.reserve(before.max_blocks).unwrap();
    let draft = Generator::open(DRAFT).unwrap();
    let slot = generator.engine().draft(draft.engine()).unwrap();
    assert_eq!(generator.engine().pool().stats().max_blocks, before.max_blocks);
    assert_eq!(slot.pool().stats(), PoolStats::default(), "nothing is left for it");
    let config = GenerationConfig::new().max_new_tokens(4);
    let error = generator.call("One day").config(&config).assistant(Some(&draft)).run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);

    drop(reservation);
    let output = generator.call("One day").config(&config).assistant(Some(&draft)).run().unwrap();
    assert_eq!(output.token_ids().len(), 4);
    assert!(slot.pool().stats().max_blocks > 0 && most_bytes(&generator) <= 64 << 20);
    assert_eq!(taken(&generator), 0);
}

#[test]
fn greedy_search_with_drafts_equals_greedy_search_bit_for_bit() {
    let generator = assisted();
    let config = GenerationConfig::new().max_new_tokens(40).output_logits(true).repetition_penalty(1.1);
    let plain = PLAIN.generate(prompts(), &config).unwrap();
    let schedules = [AssistantTokensSchedule::Constant, AssistantTokensSchedule::Adaptive];
    for (drafted, schedule) in
        [1, 5, 20].into_iter().flat_map(|count| schedules.map(|schedule| (count, schedule)))
    {
        let config = config.clone().num_assistant_tokens(drafted).num_assistant_tokens_schedule(schedule);
        let assisted = generator.assisted_decoding(prompts(), &config).unwrap();
        assert_eq!(plain.rows, assisted.rows, "{drafted} tokens");
        assert_eq!(plain.sequences, assisted.sequences, "{drafted} tokens");
        let stats = assisted.draft_stats.unwrap();
        let is_drafted = stats.accepted > 0 || schedule == AssistantTokensSchedule::Adaptive;
        assert!(is_drafted && stats.accepted <= stats.verified, "{stats:?}");
        assert_eq!(taken(&generator), 0);
    }
}

#[test]
fn sampling_in_the_named_methods_is_plain_sampling_with_the_same_seed() {
    let generator = assisted();
    let other = Generator::open(OTHER).unwrap();
    let config = GenerationConfig::new().do_sample(true).seed(7).max_new_tokens(24).output_logits(true);
    let config = config.temperature(0.8).top_p(0.9).num_return_sequences(2);
    let adaptive = config.clone().num_assistant_tokens_schedule(AssistantTokensSchedule::Adaptive);
    let prompts = || Prompts::from(vec!["Tom had a red kite. Mia had a red", "One day"]);
    let plain = PLAIN.sample(prompts(), &config).unwrap();
    for output in [
        generator.assisted_decoding(prompts(), &config).unwrap(),
        // What one call learns changes the drafts of the next, and no token.
        generator.assisted_decoding(prompts(), &config).unwrap(),
        generator.prompt_lookup(prompts(), &config).unwrap(),
        PLAIN.call(prompts()).config(&adaptive).assistant(Some(&other)).run().unwrap(),
    ] {
        assert_eq!(output.rows, plain.rows);
        assert_eq!(output.sequences, plain.sequences);
    }
    assert_eq!(taken(&generator), 0);
}

#[test]
fn a_stream_with_drafts_gives_the_tokens_of_the_call_and_leaves_both_pools_free_wherever_it_is_dropped() {
    let generator = assisted();
    let config = GenerationConfig::new().max_new_tokens(24).num_assistant_tokens(5_usize);
    let whole = generator.generate("Once upon a time", &config).unwrap();
    let streamed = generator.stream("Once upon a time", &config).unwrap();
    let tokens: Vec<_> = streamed.map(|token| token.unwrap().id).collect();
    assert_eq!(tokens, whole.token_ids());
    for passes in 0..12 {
        let mut stream = generator.stream("Once upon a time", &config).unwrap();
        for _ in 0..passes {
            let _ = stream.poll_token(&mut || false).unwrap();
            assert!(taken(&generator) > 0);
        }
        drop(stream);
        assert_eq!(taken(&generator), 0, "after {passes} passes");
    }
}

#[test]
fn calls_with_and_without_drafts_and_other_searches_share_a_generator() {
    let generator = assisted();
    let config = GenerationConfig::new().max_new_tokens(20).seed(3);
    let searches = [
        config.clone().num_beams(3),
        config.clone().penalty_alpha(0.6).top_k(4),
        config.clone().dola_layers(rsgen::generation::DolaLayers::High),
        config.clone().prompt_lookup_num_tokens(3_usize),
    ];
    let generator = &generator;
    std::thread::scope(|scope| {
        for config in &searches {
            scope.spawn(move || {
                let (plain, assisted) =
                    (PLAIN.generate(prompts(), config), generator.generate(prompts(), config));
                assert_eq!(plain.unwrap().rows, assisted.unwrap().rows);
            });
        }
        scope.spawn(|| {
            let plain = generator.call(prompts()).config(&config).assistant(None).run().unwrap();
            assert_eq!(plain.draft_stats, None);
            assert_eq!(plain.rows, generator.generate(prompts(), &config).unwrap().rows);
        });
    });
    assert_eq!(taken(generator), 0);
}

#[test]
fn assisted_decoding_asks_for_an_assistant() {
    let config = GenerationConfig::new().max_new_tokens(4);
    let error = PLAIN.assisted_decoding("One day", &config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().starts_with("`assistant_model` must be a Generator"), "{error}");
    let prepared = PLAIN.call("One day").config(&config.num_beams(2)).assistant(Some(&PLAIN));
    let prepared = prepared.prepare(false, &mut || false).unwrap();
    assert!(prepared.warnings()[0].to_string().starts_with("`assistant_model` has no effect in beam search"));
}

#[test]
fn a_model_may_draft_for_itself() {
    let config = GenerationConfig::new().max_new_tokens(24).num_assistant_tokens(4_usize);
    let plain = PLAIN.generate(prompts(), &config).unwrap();
    let own = PLAIN.call(prompts()).config(&config).assistant(Some(&PLAIN)).run().unwrap();
    assert_eq!(plain.rows, own.rows);
}

#[test]
fn an_assistant_that_cannot_be_opened_is_named() {
    let error = Generator::bundled_with(&options(Some("no/such/folder".into()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Load);
    assert!(error.to_string().starts_with("the assistant: "), "{error}");
}

/// Story openings.
const OPENINGS: [&str; 4] = ["Once upon a time", "One day", "There was a little", "Near the lake"];

#[test]
fn a_round_with_five_drafted_tokens_gives_about_four_tokens_of_a_story() {
    let generator = assisted();
    let config = GenerationConfig::new()
        .max_new_tokens(60)
        .num_assistant_tokens(5_usize)
        .assistant_confidence_threshold(0.0);
    let output = generator.generate(OPENINGS.to_vec(), &config).unwrap();
    let stats = output.draft_stats.unwrap();
    // transformers takes as many passes of the model for them.
    assert_eq!((output.usage.generated_tokens, stats.rounds), (240, 57), "{stats:?}");
}

#[test]
fn an_assistant_with_another_tokenizer_drafts_for_greedy_search() {
    let other = Generator::open(OTHER).unwrap();
    let generator = Generator::bundled_with(&options(None)).unwrap();
    let config = GenerationConfig::new().max_new_tokens(40).output_logits(true);
    let plain = PLAIN.generate(OPENINGS.to_vec(), &config).unwrap();
    for (drafted, lookbehind) in [(1, 10), (5, 10), (12, 2), (5, 1)] {
        let config = config.clone().num_assistant_tokens(drafted).assistant_confidence_threshold(0.0);
        let config = config.assistant_lookbehind(lookbehind).target_lookbehind(lookbehind);
        let call = generator.call(OPENINGS.to_vec()).config(&config).assistant(Some(&other));
        let output = call.run().unwrap();
        assert_eq!((&plain.rows, &plain.sequences), (&output.rows, &output.sequences), "{drafted} tokens");
        let stats = output.draft_stats.unwrap();
        assert!(drafted < 5 || lookbehind < 10 || stats.accepted > stats.rounds / 4, "{stats:?}");
        assert_eq!(taken(&generator), 0);
    }
}

#[test]
fn an_assistant_with_another_tokenizer_drafts_shared_tokens_for_sampling() {
    let other = Generator::open(OTHER).unwrap();
    let generator = Generator::bundled_with(&options(None)).unwrap();
    let config = GenerationConfig::new().do_sample(true).seed(5).max_new_tokens(30).num_return_sequences(3);
    let run =
        |prompts: Prompts| generator.call(prompts).config(&config).assistant(Some(&other)).run().unwrap();
    let output = run(OPENINGS.to_vec().into());
    let stats = output.draft_stats.unwrap();
    assert!(stats.accepted > 0 && stats.accepted < stats.verified, "{stats:?}");
    assert_eq!(taken(&generator), 0);
    let alone = run(OPENINGS[0].into());
    assert_eq!(alone.rows, output.rows[..3], "no row depends on the other prompts");
    let stream = generator.call(OPENINGS[0]).config(&config.clone().num_return_sequences(1));
    let stream = stream.assistant(Some(&other)).stream().unwrap();
    assert_eq!(stream.into_output().unwrap().token_ids().len(), 30);
}

#[test]
fn sampling_with_drafts_of_another_tokenizer_gives_the_tokens_of_transformers() {
    let golden = std::fs::read_to_string(format!("{OTHER}/sampled.json")).unwrap();
    let cases: Vec<serde_json::Value> = serde_json::from_str(&golden).unwrap();
    let generator = Generator::bundled_with(&options(Some(OTHER.into()))).unwrap();
    for case in cases {
        let mut config = GenerationConfig::new();
        for (name, value) in case["config"].as_object().unwrap() {
            config.set(name, &FieldValue::from(value.clone())).unwrap();
        }
        let output = generator.generate(case["prompt"].as_str().unwrap(), &config).unwrap();
        let tokens: Vec<u32> = output.token_ids().iter().map(|token| token.0).collect();
        assert_eq!(serde_json::json!(tokens), case["tokens"], "{}", case["config"]);
    }
}

#[test]
fn drafts_that_take_more_memory_than_there_is_are_refused_before_they_begin() {
    let generator = assisted();
    let config = GenerationConfig::new().do_sample(true).num_return_sequences(60_000).max_new_tokens(400);
    let config = config.num_assistant_tokens(400_usize);
    let error = generator.generate("One day", &config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    assert!(error.to_string().starts_with("60000 rows of up to 400 new tokens may take "), "{error}");
    assert_eq!(taken(&generator), 0);
}
