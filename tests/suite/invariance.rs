//! Results do not depend on the batch, the threads, the chunks of a prompt, the instruction set, or on streaming:
//! equal tokens, and logits with equal bits.

use rsgen::generation::{DolaLayers, ForcedWord, OneOrMany};
use rsgen::generator::{ComputeDtype, KvDtype};
use rsgen::{GenerationConfig, Generator, GeneratorOptions, WeightType};
use rsgen_kernels::Isa;

use crate::support::bits;
use rsgen::{Prompts, TokenId};

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

/// Every call computes its whole prompt.
fn computed_anew() -> GeneratorOptions {
    GeneratorOptions::new().prefix_caching(false)
}

fn generator(isa: Option<Isa>, num_threads: usize) -> Generator {
    let options = computed_anew().isa(isa).num_threads(num_threads);
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

/// Opens a generator with an instruction set and a number of threads.
type Opened = fn(Option<Isa>, usize) -> Generator;

/// In `bfloat16` arithmetic, with a cache in `bfloat16`.
fn in_bfloat16(isa: Option<Isa>, num_threads: usize) -> Generator {
    opened(isa, num_threads, ComputeDtype::Bf16, None)
}

/// In `bfloat16` arithmetic, with a cache in integers.
fn in_bfloat16_over_int8(isa: Option<Isa>, num_threads: usize) -> Generator {
    opened(isa, num_threads, ComputeDtype::Bf16, Some(KvDtype::I8))
}

/// In `float32` arithmetic, with a cache in integers.
fn over_int8(isa: Option<Isa>, num_threads: usize) -> Generator {
    opened(isa, num_threads, ComputeDtype::F32, Some(KvDtype::I8))
}

/// Weights in 8-bit integers.
fn in_int8(isa: Option<Isa>, num_threads: usize) -> Generator {
    quantized(isa, num_threads, WeightType::Int8, ComputeDtype::F32)
}

/// Weights in 4-bit integers, attention in `bfloat16`.
fn in_int4(isa: Option<Isa>, num_threads: usize) -> Generator {
    quantized(isa, num_threads, WeightType::Int4, ComputeDtype::Bf16)
}

fn quantized(
    isa: Option<Isa>,
    num_threads: usize,
    dtype: WeightType,
    compute_dtype: ComputeDtype,
) -> Generator {
    let options = computed_anew().isa(isa).num_threads(num_threads).dtype(dtype).compute_dtype(compute_dtype);
    Generator::bundled_with(&options).unwrap()
}

fn opened(
    isa: Option<Isa>,
    num_threads: usize,
    compute_dtype: ComputeDtype,
    kv_dtype: Option<KvDtype>,
) -> Generator {
    let options =
        computed_anew().isa(isa).num_threads(num_threads).compute_dtype(compute_dtype).kv_dtype(kv_dtype);
    Generator::bundled_with(&options).unwrap()
}

#[test]
fn rounded_numbers_give_the_same_bits_alone_and_in_a_list() {
    for open in [in_bfloat16 as Opened, in_bfloat16_over_int8, over_int8, in_int8, in_int4] {
        let generator = open(None, 2);
        let together = bits(&generator.generate(PROMPTS.to_vec(), &config()).unwrap());
        for (prompt, expected) in PROMPTS.iter().zip(together) {
            assert_eq!(bits(&generator.generate(*prompt, &config()).unwrap()), [expected], "{prompt}");
        }
    }
}

#[test]
fn bfloat16_arithmetic_gives_the_same_bits_in_any_chunks_threads_and_instruction_sets() {
    the_same_bits_in_any_chunks_threads_and_instruction_sets(in_bfloat16);
}

#[test]
fn a_cache_in_int8_gives_the_same_bits_in_any_chunks_threads_and_instruction_sets() {
    the_same_bits_in_any_chunks_threads_and_instruction_sets(over_int8);
}

#[test]
fn weights_of_integers_give_the_same_bits_in_any_chunks_threads_and_instruction_sets() {
    the_same_bits_in_any_chunks_threads_and_instruction_sets(in_int8);
    the_same_bits_in_any_chunks_threads_and_instruction_sets(in_int4);
}

/// Each gives the bits that it has alone, in one pass with the others.
#[test]
fn strategies_in_integers_give_the_same_bits_beside_each_other() {
    for open in [in_int8 as Opened, in_int4] {
        let generator = open(None, 2);
        let configs = [
            config(),
            sampling(3).num_return_sequences(2),
            config().num_beams(4).num_return_sequences(4),
            config().num_beams(2).do_sample(true).seed(8),
            config().prompt_lookup_num_tokens(3),
            config().penalty_alpha(0.6).top_k(4),
        ];
        let alone: Vec<_> =
            configs.iter().map(|config| bits(&generator.generate(PROMPTS[6], config).unwrap())).collect();
        std::thread::scope(|scope| {
            for (config, alone) in configs.iter().zip(&alone) {
                let generator = &generator;
                scope
                    .spawn(move || assert!(bits(&generator.generate(PROMPTS[6], config).unwrap()) == *alone));
            }
        });
    }
}

fn the_same_bits_in_any_chunks_threads_and_instruction_sets(open: Opened) {
    let prompt = PROMPTS[6];
    for config in [config(), sampling(5).num_return_sequences(3)] {
        let expected = bits(&open(None, 2).generate(prompt, &config).unwrap());
        assert_ne!(expected, bits(&generator(None, 2).generate(prompt, &config).unwrap()));
        for chunk in [1, 7] {
            let chunked = config.clone().prefill_chunk_size(chunk);
            assert!(bits(&open(None, 1).generate(prompt, &chunked).unwrap()) == expected, "chunk {chunk}");
        }
        for isa in Isa::available() {
            for threads in [1, 3] {
                let actual = bits(&open(Some(isa), threads).generate(prompt, &config).unwrap());
                assert!(actual == expected, "{isa:?}, {threads} threads");
            }
        }
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
    let steps = output.sequences[0].logits.as_ref().unwrap();
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

/// Families with windows of 5, 33 and 7 tokens, the latter two in some layers only.
const WINDOWED: [&str; 3] = ["mistral_window", "qwen2_layer_types", "qwen3_window"];
/// Models whose rotary frequencies switch beyond 40 and beyond 64 tokens, the latter with a window of 50.
const SWITCHING: [&str; 2] = ["phi3_longrope", "phi3_longrope_partial"];

fn tiny(name: &str, isa: Option<Isa>, num_threads: usize) -> Generator {
    let options = computed_anew().isa(isa).num_threads(num_threads);
    let folder = format!("{}/tests/golden/models/{name}", env!("CARGO_MANIFEST_DIR"));
    Generator::open_with(folder, &options).unwrap()
}

fn ids(len: u32, first: u32) -> Vec<TokenId> {
    (0..len).map(|i| TokenId((first + i * i % 59 + 7 * i) % 61)).collect()
}

/// The prompt ends in the third of attention's spans of 256 tokens.
#[test]
fn a_sliding_window_gives_the_same_bits_in_any_chunks_threads_and_instruction_sets() {
    for name in WINDOWED {
        let prompts = || Prompts::from(vec![ids(600, 3), ids(70, 11), ids(1, 5), ids(290, 8)]);
        let expected = bits(&tiny(name, None, 2).generate(prompts(), &config()).unwrap());
        for (chunk, isa) in [(1, None), (7, None), (100, None)]
            .into_iter()
            .chain(Isa::available().into_iter().map(|isa| (1000, Some(isa))))
        {
            let config = config().prefill_chunk_size(chunk);
            let generator = tiny(name, isa, 1 + chunk % 3);
            assert!(
                bits(&generator.generate(prompts(), &config).unwrap()) == expected,
                "{name} {chunk} {isa:?}"
            );
        }
        let generator = tiny(name, None, 2);
        assert_eq!(bits(&generator.generate(ids(600, 3), &config()).unwrap()), expected[..1], "{name} alone");
        let mut all = ids(600, 3);
        all.extend(&expected[0].0);
        let vocab_size = generator.config().vocab_size;
        let forward: Vec<u32> =
            generator.forward(&[all]).unwrap().iter().map(|logit| logit.to_bits()).collect();
        assert!(
            forward[599 * vocab_size..(599 + NEW_TOKENS) * vocab_size] == expected[0].1,
            "{name} forward"
        );
    }
}

#[test]
fn a_sequence_that_outgrows_its_original_context_is_what_it_is_as_a_prompt() {
    for name in SWITCHING {
        let generator = tiny(name, None, 2);
        let vocab_size = generator.config().vocab_size;
        let output = generator.generate(ids(30, 3), &sampling(9).num_return_sequences(3)).unwrap();
        for (row, kept) in output.rows.into_iter().zip(output.sequences) {
            let mut text = row.prompt_ids;
            let logits = kept.logits.unwrap();
            for (logits, token) in logits.iter().zip(row.generated.token_ids) {
                let forward = generator.forward(&[text.clone()]).unwrap();
                let same = logits.iter().zip(&forward[(text.len() - 1) * vocab_size..]);
                assert!(same.clone().all(|(a, b)| a.to_bits() == b.to_bits()), "{name} after {}", text.len());
                text.push(token);
            }
            assert!(text.len() > 80);
        }
    }
}

/// Beams that are forked, candidates that are copied and drafts that are rolled back switch, too.
#[test]
fn a_sequence_that_outgrows_its_original_context_is_so_in_every_search() {
    let greedy = || GenerationConfig::new().do_sample(false).max_new_tokens(NEW_TOKENS);
    let phrase = ForcedWord::Phrase(vec![TokenId(44), TokenId(3)]);
    let searches = [
        ("greedy", greedy()),
        ("beams", greedy().num_beams(3).num_return_sequences(3)),
        ("groups", greedy().num_beams(4).num_beam_groups(2).diversity_penalty(0.7)),
        ("constrained", greedy().num_beams(3).force_words_ids(vec![phrase])),
        ("contrastive", greedy().penalty_alpha(0.6).top_k(4)),
        ("dola", greedy().dola_layers(DolaLayers::High)),
        ("prompt lookup", greedy().prompt_lookup_num_tokens(3)),
        ("early exit", greedy().assistant_early_exit(1).num_assistant_tokens(3)),
    ];
    for (model, (search, config)) in
        SWITCHING.iter().flat_map(|model| searches.iter().map(move |search| (model, search)))
    {
        let generator = tiny(model, None, 2);
        let vocab_size = generator.config().vocab_size;
        let output = generator.generate(ids(30, 3), config).unwrap();
        for row in output.rows {
            let (prompt, tokens) = (row.prompt_ids.len(), row.generated.token_ids);
            assert_eq!(tokens.len(), NEW_TOKENS, "{model}, {search}");
            let text = [row.prompt_ids, tokens.clone()].concat();
            for (index, token) in tokens.iter().enumerate() {
                let logits = generator.forward(&[text[..prompt + index].to_vec()]).unwrap();
                let logits = &logits[logits.len() - vocab_size..];
                let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
                let expected = f64::from(logits[token.index()] - largest) - sum.ln();
                let got = f64::from(row.generated.logprobs[index]);
                assert!(
                    (got - expected).abs() < 1e-5 * (1.0 + expected.abs()),
                    "{model}, {search}, after {}: {got}, expected {expected}",
                    prompt + index
                );
            }
        }
    }
}

#[test]
fn sequences_that_switch_at_different_times_do_not_disturb_each_other() {
    for name in SWITCHING {
        let prompts = [ids(30, 3), ids(39, 7), ids(40, 1), ids(41, 9), ids(63, 4), ids(64, 4), ids(300, 2)];
        let expected: Vec<_> = prompts
            .iter()
            .flat_map(|prompt| bits(&tiny(name, None, 1).generate(prompt.clone(), &config()).unwrap()))
            .collect();
        for (chunk, isa) in [(1, None), (7, None), (1000, Some(Isa::available()[0]))] {
            let generator = tiny(name, isa, 2);
            let config = config().prefill_chunk_size(chunk);
            let together = bits(&generator.generate(prompts.to_vec(), &config).unwrap());
            assert!(together == expected, "{name} chunk {chunk} {isa:?}");
        }
    }
}

/// Before the switch the rows share the blocks of their prompt, after it none.
#[test]
fn a_cache_that_a_switching_request_is_admitted_to_never_runs_out() {
    let blocks = |new_tokens: usize| 4 * (30 + new_tokens).div_ceil(32) + 1;
    let folder = format!("{}/tests/golden/models/{}", env!("CARGO_MANIFEST_DIR"), SWITCHING[0]);
    let one = tiny(SWITCHING[0], None, 1).engine().pool().capacity().layout().bytes_per_block();
    for new_tokens in [11, 34, 35, 66, 99] {
        let options = GeneratorOptions::new().kv_cache_bytes(one * blocks(new_tokens));
        let generator = Generator::open_with(&folder, &options).unwrap();
        let config = GenerationConfig::new().max_new_tokens(new_tokens).do_sample(true).seed(3);
        let output = generator.generate(ids(30, 3), &config.num_return_sequences(4)).unwrap();
        assert!(output.rows.iter().all(|row| row.generated.token_ids.len() == new_tokens));
        let stats = generator.engine().pool().stats();
        assert_eq!((stats.used_blocks, stats.reserved_blocks), (0, 0));
    }
}
