//! Memory that requests size: weighed before they start, and an error wherever the system does not give it.

use std::sync::LazyLock;
use std::time::Instant;

use rsgen::generation::{DolaLayers, SequenceBias};
use rsgen::{
    Error, ErrorKind, GenerationConfig, GenerationOutput, Generator, GeneratorOptions, Prompts, Result,
    TokenId,
};

static STORY: LazyLock<Generator> = LazyLock::new(|| {
    Generator::bundled_with(&GeneratorOptions { num_threads: Some(1), ..GeneratorOptions::default() })
        .unwrap()
});

fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

fn refused<T>(result: Result<T>, words: &[&str]) {
    let error: Error = result.err().unwrap_or_else(|| panic!("an error with {words:?}"));
    let message = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Capacity, "{message}");
    assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
}

#[test]
fn an_answer_that_may_not_fit_is_refused_before_it_starts() {
    let started = Instant::now();
    let rows = GenerationConfig::new().do_sample(true).num_return_sequences(65_536).max_new_tokens(500);
    let generate = |config: &GenerationConfig| STORY.generate(ids(&[5, 6]), config);
    // 65,536 rows of 500 tokens with 2,048 scores of 4 bytes, in a list each.
    refused(
        generate(&rows.clone().output_scores(true)),
        &[
            "65536 rows of up to 500 new tokens",
            "269746176000 of them for `output_scores`, but",
            "`max_new_tokens`",
        ],
    );
    refused(generate(&rows.clone().output_logits(true)), &["269746176000 of them for `output_logits`"]);
    refused(generate(&rows.clone().top_logprobs(2048)), &["538181632000 of them for `top_logprobs`"]);
    refused(
        generate(&rows.clone().output_logits(true).output_scores(true)),
        &[
            "539492352000 of them for `output_scores`, `output_logits`",
            "or leave out `output_scores`, `output_logits`",
        ],
    );
    let beams = GenerationConfig::new().num_beams(65_536).max_new_tokens(500).output_scores(true);
    refused(
        generate(&beams),
        &["1 rows of up to 500 new tokens", "269746176000 of them for `output_scores`"],
    );
    refused(generate(&beams.num_beam_groups(2).diversity_penalty(0.5)), &["`output_scores`"]);
    let prompts = Prompts::from(vec![ids(&[5]); 512]);
    let each = rows.clone().num_return_sequences(128).output_scores(true);
    refused(STORY.generate(prompts, &each), &["65536 rows of up to 500", "269746176000 of them"]);
    refused(
        STORY.stream(ids(&[5]), &rows.output_scores(true)),
        &["269746176000 of them for `output_scores`"],
    );
    let stats = STORY.engine().pool().stats();
    assert_eq!((stats.used_blocks, stats.reserved_blocks), (0, 0));
    assert!(started.elapsed().as_secs() < 5);
}

#[test]
fn lists_of_a_configuration_are_weighed_for_all_prompts() {
    let sequence: Vec<TokenId> = (0..100_000).map(|id| TokenId(id % 2048)).collect();
    let biased =
        GenerationConfig::new().sequence_bias(SequenceBias::new([(sequence, 1.0)])).max_new_tokens(1);
    let started = Instant::now();
    refused(
        STORY.generate(vec![ids(&[5]); 100_000], &biased),
        &[
            "`bad_words_ids`, `sequence_bias`",
            "hold 100001 token ids",
            "for 100000 prompts",
            "give fewer prompts",
        ],
    );
    assert!(started.elapsed().as_secs() < 5);
    assert!(STORY.generate(vec![ids(&[5]); 2], &biased).is_ok());
}

/// Calls that keep scores, one of each kind of search.
fn calls() -> Vec<(&'static str, GenerationConfig)> {
    let config =
        GenerationConfig::new().max_new_tokens(3).output_scores(true).output_logits(true).top_logprobs(2);
    let sampled = config.clone().do_sample(true).seed(1).top_k(5);
    vec![
        ("greedy", config.clone()),
        ("processed", config.clone().repetition_penalty(1.3)),
        ("sample", sampled.clone().num_return_sequences(2)),
        ("beams", config.clone().num_beams(2).num_return_sequences(2)),
        ("sampled beams", sampled.num_beams(2)),
        ("groups", config.clone().num_beams(4).num_beam_groups(2).diversity_penalty(0.5)),
        ("contrastive", config.clone().penalty_alpha(0.6).top_k(2)),
        ("dola", config.dola_layers(DolaLayers::High)),
    ]
}

/// As SQLite does: whichever allocation fails, it is an error, all blocks are free, and the next call gives the same.
#[test]
fn every_allocation_that_a_request_sizes_may_fail() {
    let generator = rsgen::fuzzing::small_model();
    let mut table = Vec::new();
    for (name, config) in calls() {
        let list = || vec![ids(&[8, 9, 10]), ids(&[11])];
        let generate = || generator.generate(list(), &config).map(outcome);
        let stream = || generator.stream(ids(&[8, 9, 10]), &config)?.into_output().map(outcome);
        let mut count = sweep(name, &generate);
        if !name.contains("beams") && name != "groups" {
            count += sweep(name, &stream);
        }
        table.push((name, count));
    }
    let text = || generator.token_scores([ids(&[8, 9, 10])], 2);
    table.push(("token_scores", sweep("token_scores", &text)));
    let logits = || generator.forward(&[ids(&[8, 9]), ids(&[9, 10])]);
    table.push(("forward", sweep("forward", &logits)));
    for (name, failures) in table {
        println!("{name:<14} {failures:>3} allocations, each an error and all well afterwards");
        assert!(failures >= 2, "{name}");
    }
}

/// What an output holds besides times.
fn outcome(mut output: GenerationOutput) -> GenerationOutput {
    output.timings = rsgen::engine::Timings::default();
    output
}

/// Lets one allocation after the other fail; returns how many there are.
fn sweep<T: PartialEq + std::fmt::Debug>(name: &str, call: &dyn Fn() -> Result<T>) -> usize {
    let generator = rsgen::fuzzing::small_model();
    let expected = call().unwrap();
    for index in 0..1000 {
        rsgen::fuzzing::fail_allocation(Some(index));
        let result = call();
        if rsgen::fuzzing::fail_allocation(None).is_some() {
            assert_eq!(result.unwrap(), expected, "{name}: nothing failed");
            return index;
        }
        let error = result.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Capacity, "{name}, allocation {index}: {error}");
        assert!(
            error.to_string().contains("the system gave no memory"),
            "{name}, allocation {index}: {error}"
        );
        let stats = generator.engine().pool().stats();
        assert_eq!((stats.used_blocks, stats.reserved_blocks), (0, 0), "{name}, allocation {index}");
        assert_eq!(call().unwrap(), expected, "{name}, after allocation {index}");
    }
    panic!("{name}: no end of allocations");
}
