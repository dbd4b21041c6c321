//! Results do not depend on the batch, the threads, the chunks of a prompt, the instruction set, or on whether anyone
//! watches: equal tokens, and logits with equal bits.
#![cfg(feature = "bundled")]
#![expect(clippy::unwrap_used, reason = "a test")]

mod support;

use rsgen::generation::OneOrMany;
use rsgen::kernels::Isa;
use rsgen::{GenerationConfig, Generator, GeneratorOptions};

use support::bits;

const PROMPTS: [&str; 8] = [
    "Once upon a time",
    "One day, a little fox",
    "This is the story of a dragon",
    "Near the lake",
    "One rainy morning, a girl",
    "A",
    "Once upon a time, in a small house by the sea, there lived an old man and his cat. Every morning",
    "The",
];
const NEW_TOKENS: usize = 60;

fn generator(isa: Option<Isa>, num_threads: usize) -> Generator {
    let options = GeneratorOptions { isa, num_threads: Some(num_threads), ..GeneratorOptions::default() };
    Generator::bundled_with(&options).unwrap()
}

fn config() -> GenerationConfig {
    GenerationConfig::new().max_new_tokens(NEW_TOKENS).output_logits(true)
}

fn sampling(seed: u64) -> GenerationConfig {
    config().do_sample(true).temperature(0.9).top_p(0.95).seed(seed)
}

#[test]
fn a_prompt_gives_the_same_bits_alone_and_in_a_list() {
    let generator = generator(None, 2);
    let together = bits(&generator.generate(PROMPTS.to_vec(), &config()).unwrap());
    for (prompt, expected) in PROMPTS.iter().zip(together) {
        assert_eq!(bits(&generator.generate(*prompt, &config()).unwrap()), [expected], "{prompt}");
    }
}

#[test]
fn a_seeded_prompt_gives_the_same_bits_alone_and_in_a_list() {
    let generator = generator(None, 2);
    let seeds: Vec<u64> = (0..8).map(|i| 1000 + 17 * i).collect();
    let mut list = sampling(0);
    list.seed = Some(OneOrMany::Many(seeds.clone()));
    let together = bits(&generator.generate(PROMPTS.to_vec(), &list).unwrap());
    for ((prompt, seed), expected) in PROMPTS.iter().zip(seeds).zip(together) {
        assert_eq!(bits(&generator.generate(*prompt, &sampling(seed)).unwrap()), [expected], "{prompt}");
    }
}

#[test]
fn one_seed_for_a_list_is_followed_by_its_successors() {
    let generator = generator(None, 2);
    let together = bits(&generator.generate(PROMPTS.to_vec(), &sampling(40)).unwrap());
    let third = bits(&generator.generate(PROMPTS[3], &sampling(43)).unwrap());
    assert_eq!(together[3], third[0]);
}

#[test]
fn chunks_threads_and_instruction_sets_change_no_bit() {
    let prompt = PROMPTS[6];
    for config in [config(), sampling(5).num_return_sequences(3)] {
        let expected = bits(&generator(None, 2).generate(prompt, &config).unwrap());
        for chunk in [1, 7, 512] {
            let chunked = config.clone().prefill_chunk_size(chunk);
            assert_eq!(
                bits(&generator(None, 1).generate(prompt, &chunked).unwrap()),
                expected,
                "chunk {chunk}"
            );
        }
        for isa in Isa::available() {
            for threads in [1, 2, 3] {
                let actual = bits(&generator(Some(isa), threads).generate(prompt, &config).unwrap());
                assert!(actual == expected, "{isa:?}, {threads} threads");
            }
        }
    }
}

#[test]
fn a_stream_gives_the_tokens_and_the_text_of_the_call() {
    let generator = generator(None, 2);
    for config in [config(), sampling(11), sampling(12).num_return_sequences(2)] {
        let expected = generator.generate(PROMPTS[1], &config).unwrap();
        let mut stream = generator.stream(PROMPTS[1], &config).unwrap();
        let mut rows = vec![(Vec::new(), String::new()); expected.rows.len()];
        for token in stream.by_ref() {
            let token = token.unwrap();
            rows[token.index].0.push(token.id);
            rows[token.index].1.push_str(&token.text);
        }
        assert_eq!(bits(stream.output().unwrap()), bits(&expected));
        for ((ids, text), row) in rows.iter().zip(&expected.rows) {
            assert_eq!(ids, &row.generated.token_ids);
            assert_eq!(Some(text), row.text.as_ref());
        }
    }
}

#[test]
fn forward_gives_the_bits_that_generation_sees() {
    let generator = generator(None, 2);
    let output = generator.generate(PROMPTS[6], &config()).unwrap();
    let row = &output.rows[0];
    let mut ids = row.prompt_ids.clone();
    ids.extend(&row.generated.token_ids);
    let all = generator.forward(&[ids.clone()]).unwrap();
    let vocab_size = generator.config().vocab_size;
    let steps = output.lanes[0].logits.as_ref().unwrap();
    for (step, logits) in steps.iter().enumerate() {
        let at = row.prompt_ids.len() - 1 + step;
        let same = logits.iter().zip(&all[at * vocab_size..]).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "step {step}");
    }
}

#[test]
fn all_blocks_are_free_after_calls_streams_and_interrupts() {
    let generator = generator(None, 2);
    let pool = generator.engine().pool();
    let free = pool.stats().available_blocks;
    generator.generate(PROMPTS.to_vec(), &config()).unwrap();
    let mut stream = generator.stream(PROMPTS[0], &config()).unwrap();
    stream.next().unwrap().unwrap();
    assert!(pool.stats().available_blocks < free);
    drop(stream);
    assert_eq!(pool.stats().available_blocks, free);

    let stream = generator.stream(PROMPTS[0], &config()).unwrap();
    stream.cancel_flag().store(true, std::sync::atomic::Ordering::Relaxed);
    let error = stream.into_output().unwrap_err();
    assert_eq!(error.kind(), rsgen::ErrorKind::Cancelled);
    assert_eq!(pool.stats().available_blocks, free);
    assert!(generator.generate(PROMPTS[0], &config()).is_ok());
}

#[test]
fn threads_that_share_a_generator_get_what_each_gets_alone() {
    let generator = generator(None, 2);
    let expected: Vec<_> =
        PROMPTS.iter().map(|prompt| bits(&generator.generate(*prompt, &config()).unwrap())).collect();
    std::thread::scope(|scope| {
        for (prompt, expected) in PROMPTS.iter().zip(&expected) {
            let generator = generator.clone();
            scope.spawn(move || {
                for _ in 0..3 {
                    assert_eq!(&bits(&generator.generate(*prompt, &config()).unwrap()), expected);
                }
            });
        }
    });
}
