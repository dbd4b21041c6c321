//! Memory: what a step allocates, on the thread that drives it, and that memory which the system refuses is an error.
#![cfg(feature = "bundled")]
#![expect(clippy::unwrap_used, reason = "a test")]

mod allocator;

use allocator::{Refusing, alone, measure};
use rsgen::generation::{DolaLayers, ForcedWord, OneOrMany};
use rsgen::{GenerationConfig, Generator, GeneratorOptions, TokenId};

/// The first of the counted steps, with its tokens: between two doublings of the lists that grow, and inside a block of the
/// cache, as the last one is.
const PROMPT_TOKENS: u32 = 70;
const FIRST: usize = 33;
const STEPS: usize = 20;

/// The story model without its tokenizer, so that no text is made of the tokens. On one thread: a helper that has gone to
/// sleep is woken by a job, which is allocated.
fn generator() -> Generator {
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(format!("{source}/{file}"), folder.path().join(file)).unwrap();
    }
    let options = GeneratorOptions { num_threads: Some(1), ..GeneratorOptions::default() };
    Generator::open_with(folder.path().to_str().unwrap(), &options).unwrap()
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

/// What fails, at every one of its large allocations: it must give an error, free its blocks, and go on rightly after.
#[test]
fn every_large_allocation_that_is_refused_gives_an_error() {
    let _alone = alone();
    let generator = generator();
    let scored = || {
        let mut config = endless(GenerationConfig::new(), 6).output_scores(true).output_logits(true);
        config.top_logprobs = Some(2000);
        config
    };
    let beams = || scored().num_beams(3).num_return_sequences(2);
    let requests: [(&str, GenerationConfig); 8] = [
        ("greedy search", scored()),
        ("sampling", scored().do_sample(true).seed(1).num_return_sequences(3)),
        ("beam search", beams()),
        ("beam sampling", beams().do_sample(true).seed(1)),
        ("group beam search", beams().num_beams(4).num_beam_groups(2).diversity_penalty(0.5)),
        ("constrained beam search", beams().force_words_ids(vec![ForcedWord::Phrase(vec![TokenId(9)])])),
        ("contrastive search", scored().penalty_alpha(0.6).top_k(4)),
        ("dola", scored().dola_layers(DolaLayers::High)),
    ];
    for (name, config) in requests {
        let call = || generator.generate(prompt(PROMPT_TOKENS), &config);
        sweep(name, &generator, call);
        let streamed = || generator.stream(prompt(PROMPT_TOKENS), &config)?.collect::<Result<Vec<_>, _>>();
        if generator.stream(prompt(PROMPT_TOKENS), &config).is_ok() {
            sweep(&format!("{name} as a stream"), &generator, streamed);
        }
    }
    sweep("score", &generator, || generator.score(prompt(PROMPT_TOKENS)));
    sweep("forward", &generator, || generator.forward(&[prompt(PROMPT_TOKENS)]));
}

/// Lets the first large allocation of a call fail, then the second, until all of them succeed.
fn sweep<T: PartialEq + std::fmt::Debug>(
    name: &str,
    generator: &Generator,
    mut call: impl FnMut() -> rsgen::Result<T>,
) {
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
            assert_eq!(result.unwrap(), expected, "{name}");
            break;
        }
        let error = result.expect_err(name);
        assert_eq!(error.kind(), rsgen::ErrorKind::Capacity, "{name}, allocation {refused}: {error}");
        refused += 1;
    }
    assert_eq!(call().unwrap(), expected, "{name}");
    println!("{name}: {refused} allocations refused");
}
