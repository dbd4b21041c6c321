//! Prefix caching: prompts with the same beginning are computed once, and nobody can tell from the results.

use std::sync::Barrier;
use std::thread;

use rsgen::generation::AssistantTokensSchedule;
use rsgen::generator::Assistant;
use rsgen::{GenerationConfig, GenerationOutput, Generator, GeneratorOptions, TokenId};

use crate::support::bits;

const SHARED: usize = 1000;
const ENDS: usize = 16;

fn open(model: &str, prefix_caching: bool) -> Generator {
    let options =
        GeneratorOptions::new().num_threads(2).prefix_caching(prefix_caching).kv_cache_bytes(64 << 20);
    let folder = format!("{}/tests/golden/models/{model}", env!("CARGO_MANIFEST_DIR"));
    Generator::open_with(folder, &options).unwrap()
}

/// Ids that never repeat a block.
fn ids(len: usize, first: usize) -> Vec<TokenId> {
    (0..len).map(|i| TokenId(((first + i * i / 3 + i * first) % 61) as u32)).collect()
}

/// A prompt with an end of its own.
fn prompt(shared: usize, end: usize, tokens: usize) -> Vec<TokenId> {
    [ids(shared, 3), vec![TokenId(end as u32 + 1)], ids(tokens - 1, end)].concat()
}

fn config() -> GenerationConfig {
    GenerationConfig::new().max_new_tokens(4).output_logits(true)
}

/// Tokens of prompts that were computed.
fn computed(output: &GenerationOutput) -> usize {
    output.usage.prompt_tokens - output.usage.cached_prompt_tokens
}

/// Whether the shared part was computed about once, whatever the length of the ends.
fn assert_shared_once(computed: usize, end: usize) {
    let once = SHARED + ENDS * end;
    assert!(computed * 10 <= once * 11, "{computed} tokens were computed, {once} are different");
}

#[test]
fn a_list_of_prompts_with_one_beginning_computes_it_about_once() {
    for end in [1, 5, 20] {
        let prompts: Vec<_> = (0..ENDS).map(|index| prompt(SHARED, index, end)).collect();
        let output = open("qwen3_norms", true).generate(prompts.clone(), &config()).unwrap();
        assert_shared_once(computed(&output), end);
        let alone = open("qwen3_norms", false);
        for (index, prompt) in prompts.into_iter().enumerate().step_by(5) {
            let expected = alone.generate(prompt, &config()).unwrap();
            assert_eq!(expected.usage.cached_prompt_tokens, 0);
            assert!(bits(&output)[index] == bits(&expected)[0], "end {end} of prompt {index}");
        }
    }
}

#[test]
fn threads_whose_prompts_have_one_beginning_compute_it_about_once() {
    let generator = open("qwen3_norms", true);
    let barrier = Barrier::new(ENDS);
    let rows = thread::scope(|scope| {
        let threads = (0..ENDS).map(|index| {
            let (generator, barrier) = (&generator, &barrier);
            scope.spawn(move || {
                barrier.wait();
                computed(&generator.generate(prompt(SHARED, index, 5), &config()).unwrap())
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_shared_once(rows, 5);
    let stats = generator.engine().pool().stats();
    assert_eq!((stats.used_blocks, stats.reserved_blocks), (0, 0));
    assert!(stats.prefix_cache_hits > 0 && stats.prefix_cache_hits < stats.prefix_cache_queries);
}

#[test]
fn a_conversation_goes_on_where_it_ended() {
    let generator = open("qwen3_norms", true);
    let first = generator.generate(ids(100, 3), &config()).unwrap();
    assert_eq!(first.usage.cached_prompt_tokens, 0);
    let next = [ids(100, 3), first.rows[0].generated.token_ids.clone(), ids(20, 9)].concat();
    let second = generator.generate(next.clone(), &config()).unwrap();
    // All but the last new token, whose keys and values nobody needed.
    assert_eq!(second.usage.cached_prompt_tokens, 103);
    assert!(bits(&second) == bits(&open("qwen3_norms", false).generate(next, &config()).unwrap()));
}

#[test]
fn only_calls_of_the_same_salt_share() {
    let generator = open("qwen3_norms", true);
    let cached = |salt: Option<&str>| {
        let call = generator.call(ids(100, 3)).config(&GenerationConfig::new().max_new_tokens(1));
        let call = match salt {
            Some(salt) => call.cache_salt(salt),
            None => call,
        };
        call.run().unwrap().usage.cached_prompt_tokens
    };
    let salts = [Some("a"), Some("b"), None, Some("a"), Some("b"), None, Some("")];
    assert_eq!(salts.map(cached), [0, 0, 0, 99, 99, 99, 0]);
}

#[test]
fn nothing_is_shared_when_it_is_switched_off_or_keys_depend_on_the_length() {
    for (model, prefix_caching) in [("qwen3_norms", false), ("rope_dynamic", true), ("phi3_longrope", true)] {
        let generator = open(model, prefix_caching);
        for _ in 0..2 {
            let output = generator.generate(vec![ids(50, 3); 2], &config()).unwrap();
            assert_eq!(output.usage.cached_prompt_tokens, 0, "{model}");
        }
        let stats = generator.engine().pool().stats();
        assert_eq!((stats.prefix_cache_queries, stats.idle_blocks), (0, 0), "{model}");
    }
}

#[test]
fn every_strategy_gives_the_same_bits_from_cached_prompts() {
    let strategies: [fn(GenerationConfig) -> GenerationConfig; 5] = [
        |config| config,
        |config| config.do_sample(true).seed(7).num_return_sequences(3),
        |config| config.num_beams(3).num_return_sequences(2),
        |config| config.penalty_alpha(0.6).top_k(3),
        |config| config.prompt_lookup_num_tokens(4),
    ];
    let (shared, plain) = (open("qwen3_norms", true), open("qwen3_norms", false));
    let prompts =
        || vec![prompt(70, 0, 30), prompt(70, 1, 3), prompt(40, 2, 5), ids(33, 3), prompt(70, 0, 30)];
    for (index, strategy) in strategies.into_iter().enumerate() {
        let config = strategy(config().max_new_tokens(40));
        let expected = bits(&plain.generate(prompts(), &config).unwrap());
        for round in 0..2 {
            let output = shared.generate(prompts(), &config).unwrap();
            assert!(bits(&output) == expected, "strategy {index}, round {round}");
            let cached = output.usage.cached_prompt_tokens;
            // Contrastive search wants the hidden states of the whole prompt.
            assert_eq!(cached > 0, index != 3, "strategy {index}: {cached} cached");
        }
    }
}

#[test]
fn a_prompt_that_comes_in_small_chunks_is_shared_too() {
    let generator = open("qwen3_norms", true);
    let expected = bits(&open("qwen3_norms", false).generate(ids(200, 3), &config()).unwrap());
    for chunk in [1, 7, 32, 50] {
        let config = config().prefill_chunk_size(chunk);
        let output = generator.generate(vec![ids(200, 3); 3], &config).unwrap();
        assert!(bits(&output).iter().all(|bits| bits == &expected[0]), "chunk {chunk}");
        assert!(output.usage.cached_prompt_tokens >= 2 * 160, "chunk {chunk}: {:?}", output.usage);
    }
}

#[test]
fn drafts_of_an_assistant_share_their_prompts() {
    let options = |prefix_caching| {
        GeneratorOptions::new().num_threads(2).prefix_caching(prefix_caching).assistant(Assistant::Bundled)
    };
    let open = |prefix_caching| Generator::bundled_with(&options(prefix_caching)).unwrap();
    let (shared, plain) = (open(true), open(false));
    let schedule = AssistantTokensSchedule::Constant;
    let config = GenerationConfig::new().max_new_tokens(12).output_logits(true);
    let config = config.num_assistant_tokens_schedule(schedule);
    let text = "Once upon a time there was a little fox who lived in a small house by the sea with an old man and his cat.";
    let expected = bits(&plain.assisted_decoding(text, &config).unwrap());
    for round in 0..2 {
        let output = shared.assisted_decoding(text, &config).unwrap();
        assert!(bits(&output) == expected, "round {round}");
        assert_eq!(output.usage.cached_prompt_tokens > 0, round > 0);
    }
    assert!(shared.engine().draft_pools()[0].stats().prefix_cache_hits > 0);
}
