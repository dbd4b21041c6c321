//! Memory that requests size, weighed before they start; `tests/allocations.rs` refuses what they then allocate.

use std::sync::LazyLock;
use std::time::Instant;

use rsgen::generation::SequenceBias;
use rsgen::{Error, ErrorKind, GenerationConfig, Generator, GeneratorOptions, Prompts, Result, TokenId};

static STORY: LazyLock<Generator> =
    LazyLock::new(|| Generator::bundled_with(&GeneratorOptions::new().num_threads(1)).unwrap());

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
    refused(
        generate(&rows.clone().output_events(true)),
        &["for `output_events`", "leave out `output_events`"],
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
