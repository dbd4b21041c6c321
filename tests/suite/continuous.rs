//! Continuous batching: requests that arrive at any time share their passes, and none can tell.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rsgen::generation::{AssistantTokensSchedule, DolaLayers, ForcedWord};
use rsgen::generator::Call;
use rsgen::{GenerationConfig, Generator, GeneratorOptions, TokenId};

use crate::support::bits;

const DRAFT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-draft");

/// A block of the story model: 6 layers of 3 heads with 32 keys and 32 values of 32 tokens, in float32.
const BLOCK_BYTES: usize = 6 * 3 * (32 + 32) * 32 * 4;

fn open(blocks: usize) -> Generator {
    let options = GeneratorOptions::new().num_threads(2).kv_cache_bytes(blocks * BLOCK_BYTES);
    Generator::bundled_with(&options).unwrap()
}

/// A repeatable sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn prompt(numbers: &mut Numbers) -> Vec<TokenId> {
    // Some begin in the same way.
    let (shared, own) = ([0, 40, 200][numbers.below(3)], 1 + numbers.below(130));
    let shared = (0..shared).map(|index| TokenId(300 + index % 97));
    shared.chain((0..own).map(|_| TokenId(300 + numbers.below(1500) as u32))).collect()
}

/// Every strategy, and whether a second model drafts for it.
fn strategies() -> Vec<(GenerationConfig, bool)> {
    let config = || GenerationConfig::new().output_logits(true);
    let adaptive = || config().num_assistant_tokens_schedule(AssistantTokensSchedule::Adaptive);
    let alone = vec![
        config(),
        config().do_sample(true).seed(5).temperature(0.8),
        config().do_sample(true).seed(6).num_return_sequences(3),
        config().num_beams(4).num_return_sequences(2),
        config().num_beams(3).do_sample(true).seed(8),
        config().num_beams(4).num_beam_groups(2).diversity_penalty(0.7),
        config().penalty_alpha(0.6).top_k(4),
        config().dola_layers(DolaLayers::High).repetition_penalty(1.2),
        config().prompt_lookup_num_tokens(6),
        adaptive().prompt_lookup_num_tokens(6),
        adaptive().prompt_lookup_num_tokens(4).do_sample(true).seed(9).num_return_sequences(2),
        config().assistant_early_exit(2).num_assistant_tokens(3),
        config().repetition_penalty(1.3).no_repeat_ngram_size(3),
        config().guidance_scale(1.7).num_beams(3).negative_prompt_ids(vec![TokenId(300), TokenId(41)]),
        config().guidance_scale(2.0).prompt_lookup_num_tokens(4),
    ];
    let drafted = [
        config().num_assistant_tokens(4),
        config().num_assistant_tokens(3).do_sample(true).seed(10),
        adaptive(),
        adaptive().do_sample(true).seed(11).num_return_sequences(2),
    ];
    let alone = alone.into_iter().map(|config| (config, false));
    alone.chain(drafted.into_iter().map(|config| (config, true))).collect()
}

/// A request, and the bits of its answer when it is alone.
struct Known {
    prompt: Vec<TokenId>,
    config: GenerationConfig,
    is_drafted: bool,
    bits: Vec<(Vec<TokenId>, Vec<u32>)>,
}

impl Known {
    fn call<'a>(&self, generator: &'a Generator, draft: &Generator) -> Call<'a> {
        let call = generator.call(self.prompt.clone()).config(&self.config);
        call.assistant(self.is_drafted.then_some(draft))
    }
}

fn known(count: usize, draft: &Generator) -> Vec<Known> {
    let (alone, mut numbers) = (open(400), Numbers(11));
    let strategies = strategies();
    let draw = |index: usize| {
        let prompt = prompt(&mut numbers);
        let (config, is_drafted) = strategies[index % strategies.len()].clone();
        let config = config.max_new_tokens(4 + numbers.below(28));
        let mut known = Known { prompt, config, is_drafted, bits: Vec::new() };
        known.bits = bits(&known.call(&alone, draft).run().unwrap());
        known
    };
    (0..count).map(draw).collect()
}

#[test]
fn a_thousand_requests_of_all_strategies_in_a_small_cache_are_what_they_are_alone() {
    const REQUESTS: usize = 1000;
    let draft = Generator::open(DRAFT).unwrap();
    let (generator, known) = (open(64), known(68, &draft));
    let (next, longest) = (AtomicUsize::new(0), Mutex::new(Duration::ZERO));
    thread::scope(|scope| {
        for worker in 0..12 {
            let (generator, draft, known, next, longest) = (&generator, &draft, &known, &next, &longest);
            scope.spawn(move || {
                let mut numbers = Numbers(worker);
                while next.fetch_add(1, Ordering::Relaxed) < REQUESTS {
                    let request = &known[numbers.below(known.len())];
                    let start = Instant::now();
                    match numbers.below(4) {
                        0 => {
                            let mut stream = request.call(generator, draft).stream().unwrap();
                            // Some readers leave before the end, some at once.
                            for _ in 0..numbers.below(8) {
                                if stream.next_token(&mut || false).unwrap().is_none() {
                                    break;
                                }
                            }
                        }
                        1 => {
                            let stream = request.call(generator, draft).stream().unwrap();
                            assert!(bits(&stream.into_output().unwrap()) == request.bits);
                        }
                        _ => {
                            let output = request.call(generator, draft).run().unwrap();
                            assert!(bits(&output) == request.bits);
                        }
                    }
                    let mut longest = longest.lock().unwrap();
                    *longest = start.elapsed().max(*longest);
                    drop(longest);
                    thread::sleep(Duration::from_micros(numbers.below(2000) as u64));
                }
            });
        }
    });
    for pool in generator.engine().draft_pools() {
        let stats = pool.stats();
        assert_eq!((stats.available_blocks, stats.reserved_blocks), (stats.max_blocks, 0));
    }
    // The blocks of the draft model return with it.
    drop(draft);
    let stats = generator.engine().pool().stats();
    assert_eq!((stats.available_blocks, stats.reserved_blocks), (64, 0));
    assert!(generator.engine().preemptions() > 0, "the cache was large enough for all");
    // As if each of the others had gone before it with the longest answer: far less in practice.
    let longest = longest.into_inner().unwrap();
    assert!(longest < Duration::from_secs(20), "a request took {longest:?}");
}

#[test]
fn a_stream_that_nobody_reads_makes_room_and_goes_on_later() {
    let generator = open(8);
    let config = GenerationConfig::new().max_new_tokens(150);
    let expected = open(100).generate("Once upon a time", &config).unwrap();
    let mut stream = generator.stream("Once upon a time", &config).unwrap();
    let mut tokens = Vec::new();
    for _ in 0..120 {
        tokens.extend(stream.next_token(&mut || false).unwrap());
    }
    // Together they need 10 blocks.
    let other = generator.generate("Once upon a time", &config).unwrap();
    assert_eq!(other.token_ids(), expected.token_ids());
    tokens.extend(stream.by_ref().map(Result::unwrap));
    assert_eq!(tokens.iter().map(|token| token.id).collect::<Vec<_>>(), expected.token_ids());
}

static STORY: LazyLock<Generator> = LazyLock::new(|| open(400));

/// Of a list of forty, whose steps have enough logits for both threads; on one thread each is searched by itself.
#[test]
fn every_strategy_gives_the_same_bits_when_the_searches_of_a_list_share_the_threads() {
    let phrase = ForcedWord::Phrase(vec![TokenId(300), TokenId(41)]);
    let others = [
        GenerationConfig::new().num_beams(3).force_words_ids(vec![phrase]).output_logits(true),
        GenerationConfig::new().regex("[a-z ]+").output_logits(true),
        GenerationConfig::new().regex("[a-z ]+").num_beams(2).output_logits(true),
        GenerationConfig::new().stop_strings(vec![" the".to_owned()]).output_logits(true),
    ];
    let configs = strategies().into_iter().filter(|(_, is_drafted)| !is_drafted).map(|(config, _)| config);
    let opened = [1, 2].map(|threads| {
        let options = GeneratorOptions::new().num_threads(threads).prefix_caching(false);
        Generator::bundled_with(&options).unwrap()
    });
    let prompts: Vec<String> = (0..40).map(|i| format!("Once upon a time, {i} little foxes")).collect();
    for (index, config) in configs.chain(others).enumerate() {
        let config = config.max_new_tokens(4);
        let [one, two] = [0, 1].map(|i| bits(&opened[i].generate(prompts.clone(), &config).unwrap()));
        assert_eq!(one.len() % prompts.len(), 0);
        assert!(one == two, "strategy {index}");
    }
}

#[test]
fn calls_of_several_threads_share_their_passes() {
    const THREADS: usize = 8;
    let config = GenerationConfig::new().max_new_tokens(60).do_sample(true).seed(3);
    let _ = STORY.generate("One day", &config).unwrap();
    let before = STORY.engine().passes();
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                STORY.generate("One day", &config).unwrap();
            });
        }
    });
    // One after the other they would take 480.
    let passes = STORY.engine().passes() - before;
    assert!(passes < 60 * THREADS as u64 / 2, "{passes} passes");
}

#[test]
fn an_interrupted_leader_and_a_failing_neighbour_harm_nobody() {
    let config = GenerationConfig::new().max_new_tokens(40).do_sample(true).seed(9).output_logits(true);
    let expected = bits(&STORY.generate("One day", &config).unwrap());
    thread::scope(|scope| {
        for worker in 0..6 {
            let (config, expected) = (&config, &expected);
            scope.spawn(move || {
                for round in 0..6_usize {
                    if worker % 2 == 0 {
                        assert!(bits(&STORY.generate("One day", config).unwrap()) == *expected);
                        continue;
                    }
                    let call = STORY.call("One day").config(config).prepare(false, &mut || false).unwrap();
                    let mut polls = 0;
                    let interrupted = call.run(&mut || {
                        polls += 1;
                        polls > 20 * round
                    });
                    assert!(interrupted.is_err() || round > 0);
                }
            });
        }
    });
}
