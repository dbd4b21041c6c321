//! Memory: what a step allocates, on the thread that drives it, and that memory which the system refuses is an error.
#![cfg(feature = "bundled")]
#![expect(clippy::unwrap_used, reason = "a test")]

mod allocator;

use allocator::{Refusing, alone, measure};
use rsgen::generation::{DolaLayers, ForcedWord, OneOrMany};
use rsgen::{GenerationConfig, GenerationOutput, Generator, GeneratorOptions, TokenId};

/// The first of the counted steps, with its tokens: between two doublings of the lists that grow, and inside a block of the
/// cache, as the last one is.
const PROMPT_TOKENS: u32 = 70;
const FIRST: usize = 33;
const STEPS: usize = 20;

/// The story model without its tokenizer, so that no text is made of the tokens. On one thread: a helper that has gone to
/// sleep is woken by a job, which is allocated.
fn generator() -> Generator {
    open(&story_without_tokenizer()).unwrap()
}

fn story_without_tokenizer() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(format!("{source}/{file}"), folder.path().join(file)).unwrap();
    }
    folder
}

fn open(folder: &tempfile::TempDir) -> rsgen::Result<Generator> {
    let options = GeneratorOptions { num_threads: Some(1), ..GeneratorOptions::default() };
    Generator::open_with(folder.path().to_str().unwrap(), &options)
}

fn prompt(len: u32) -> Vec<TokenId> {
    (0..len).map(|i| TokenId(300 + i * 7 % 1000)).collect()
}

fn endless(config: GenerationConfig, max_new_tokens: usize) -> GenerationConfig {
    let mut config = config.max_new_tokens(max_new_tokens);
    config.eos_token_id = Some(OneOrMany::Many(Vec::new()));
    config
}

#[test]
fn a_step_of_greedy_search_and_of_sampling_allocates_nothing() {
    let _alone = alone();
    let generator = generator();
    let sample = || GenerationConfig::new().do_sample(true).top_k(0).seed(1);
    for (name, rows, config) in [
        ("greedy search", 1, GenerationConfig::new()),
        ("with processors", 1, GenerationConfig::new().min_new_tokens(90).suppress_tokens(vec![TokenId(7)])),
        ("sampling", 1, sample().temperature(0.7)),
        ("several rows", 5, sample().num_return_sequences(5)),
    ] {
        let mut stream = generator.stream(prompt(PROMPT_TOKENS), &endless(config, 100)).unwrap();
        let mut take = |steps: usize| {
            for _ in 0..steps * rows {
                let token = stream.next().unwrap().unwrap();
                assert!(token.finish_reason.is_none());
            }
        };
        take(FIRST);
        let counted = measure(|| take(STEPS)).count_total;
        assert_eq!(counted, 0, "{name}: allocations of {STEPS} steps");
    }
}

/// Beams exchange their lists of tokens, and which of them are exchanged differs from step to step.
#[test]
fn a_step_of_beam_search_allocates_small_lists_only_however_long_the_text_is() {
    let _alone = alone();
    let generator = generator();
    let of_step = |prompt_tokens: u32| {
        let of_call = |new_tokens: usize| {
            let config = endless(GenerationConfig::new().num_beams(4), new_tokens);
            measure(|| {
                generator.generate(prompt(prompt_tokens), &config).unwrap();
            })
        };
        of_call(40);
        let (long, short) = (of_call(40), of_call(20));
        let bytes = (long.bytes_total - short.bytes_total) / 20;
        ((long.count_total - short.count_total) / 20, bytes)
    };
    for prompt_tokens in [70, 400] {
        let (count, bytes) = of_step(prompt_tokens);
        assert!(count < 4 * 20, "{count} allocations of a step with 4 beams after {prompt_tokens} tokens");
        // The ids of the beams, a copy of which has room to grow, and less than two rows of logits besides.
        let ids = 4 * 2 * 4 * (u64::from(prompt_tokens) + 40);
        assert!(bytes < ids + 2 * 8192, "{bytes} bytes of a step with 4 beams after {prompt_tokens} tokens");
    }
}

/// As SQLite tests it: the first large allocation is refused, then the second, and so on.
///
/// The model is so small, and the requests have so many rows, that all large allocations are those that a request sizes.
#[test]
fn every_large_allocation_that_is_refused_is_an_error() {
    let _alone = alone();
    let options = GeneratorOptions {
        num_threads: Some(1),
        kv_cache_bytes: Some(1 << 28),
        ..GeneratorOptions::default()
    };
    let tied = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/models/tied");
    let generator = Generator::open_with(tied, &options).unwrap();
    // Reading a tokenizer is the work of another crate, which ends the process when it gets no memory.
    let story = story_without_tokenizer();
    sweep("open", &generator, || open(&story).map(drop));
    let scored = || {
        let mut config = endless(GenerationConfig::new(), 4).output_scores(true).output_logits(true);
        config.top_logprobs = Some(40);
        config
    };
    let sampled = || scored().do_sample(true).seed(1);
    let beams = || scored().num_beams(3000).num_return_sequences(3000);
    let requests: [(&str, GenerationConfig); 8] = [
        ("greedy search", scored()),
        ("sampling", sampled().num_return_sequences(6000)),
        ("beam search", beams()),
        ("beam sampling", beams().do_sample(true).seed(1)),
        ("group beam search", beams().num_beam_groups(2).diversity_penalty(0.5)),
        (
            "constrained beam search",
            beams().num_return_sequences(50).force_words_ids(vec![ForcedWord::Phrase(vec![TokenId(9)])]),
        ),
        ("contrastive search", scored().penalty_alpha(0.6).top_k(60)),
        ("dola", sampled().num_return_sequences(6000).dola_layers(DolaLayers::High)),
    ];
    let answer = |output: GenerationOutput| (output.rows, output.sequences);
    let ids = |len: u32| -> Vec<TokenId> { (0..len).map(|i| TokenId(3 + i * 7 % 50)).collect() };
    for (name, config) in requests {
        sweep(name, &generator, || generator.generate(ids(5), &config).map(answer));
        if generator.stream(ids(5), &config).is_ok() {
            let streamed = || generator.stream(ids(5), &config)?.collect::<Result<Vec<_>, _>>();
            sweep(&format!("{name} as a stream"), &generator, streamed);
        }
    }
    let many = || vec![ids(20); 1000];
    sweep("a list", &generator, || generator.call(many()).config(&scored()).run().map(answer));
    sweep("score", &generator, || generator.score(ids(40)));
    sweep("forward", &generator, || generator.forward(&many()));
}

/// Lets the first large allocation of a call fail, then the second, until all of them succeed.
fn sweep<T: PartialEq>(name: &str, generator: &Generator, mut call: impl FnMut() -> rsgen::Result<T>) {
    let expected = call().unwrap();
    let mut refused = 0;
    loop {
        let refusing = Refusing::nth(refused);
        let result = call();
        let was_refused = refusing.has_refused();
        drop(refusing);
        let stats = generator.engine().pool().stats();
        assert_eq!((stats.used_blocks, stats.reserved_blocks), (0, 0), "{name}: allocation {refused}");
        if !was_refused {
            assert!(result.unwrap() == expected, "{name}: another result");
            break;
        }
        let Err(error) = result else { panic!("{name}, allocation {refused}: no error") };
        assert!(error.to_string().contains("memory"), "{name}, allocation {refused}: {error}");
        refused += 1;
    }
    assert!(call().unwrap() == expected, "{name}: another result afterwards");
    println!("{name}: {refused} allocations refused");
}
