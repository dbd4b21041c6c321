//! Memory: what a step allocates, on the thread that drives it, and that memory which the system refuses is an error.
#![cfg(all(feature = "bundled", debug_assertions))]
#![expect(clippy::unwrap_used, reason = "a test")]

mod allocator;
#[path = "suite/support.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use allocator::{Refusing, alone, measure, most_held};
use rsgen::generation::{DolaLayers, ForcedWord, OneOrMany};
use rsgen::text::Tokenizer;
use rsgen::{GenerationConfig, GenerationOutput, Generator, GeneratorOptions, TokenId};
use rsgen_core::memory::failing;
use serde_json::json;

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
    let options = GeneratorOptions::new().num_threads(1);
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

const VOCAB: usize = 2048;

/// A quick model with so many tokens that the logits of some hundred rows are a large allocation, and what is kept for
/// each row besides is none.
fn wide_model() -> tempfile::TempDir {
    let folder = support::with_tensors("tests/golden/models/tied", |tensors| {
        let (_, shape, bytes) = tensors.get_mut("model.embed_tokens.weight").unwrap();
        let row = bytes.len() / shape[0];
        *bytes = (0..VOCAB * row).map(|i| if i % 4 == 3 { 0x3d } else { (i * 31 % 251) as u8 }).collect();
        shape[0] = VOCAB;
    });
    let path = folder.path().join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["vocab_size"] = VOCAB.into();
    std::fs::write(path, config.to_string()).unwrap();
    folder
}

/// What is refused.
#[derive(Debug, Clone, Copy)]
enum Refused {
    /// Allocations of so many bytes and more, whoever makes them: with many rows, all that a request sizes.
    Large(usize),
    /// What the engine reserves because a request sizes it, however small.
    Reserved,
}

/// As `SQLite` tests it: the first allocation that a request sizes is refused, then the second, and so on.
#[test]
fn every_allocation_that_is_refused_is_an_error() {
    let _alone = alone();
    let folder = wide_model();
    let generator = open(&folder).unwrap();
    // Reading a tokenizer is the work of another crate, which ends the process when it gets no memory.
    let story = story_without_tokenizer();
    sweep(Refused::Large(1 << 16), "open", &generator, || open(&story).map(drop));
    // A head and an embedding of their own.
    let apart = support::with_tensors("tests/golden/models/four_layers", |_| {});
    sweep(Refused::Reserved, "open", &generator, || open(&apart).map(drop));
    for (refused, rows) in [(Refused::Large(1 << 20), 300), (Refused::Reserved, 4)] {
        sweep_requests(refused, rows, &generator);
    }
}

fn sweep_requests(refused: Refused, rows: usize, generator: &Generator) {
    let scored = || {
        let mut config =
            endless(GenerationConfig::new(), 3).output_scores(true).output_logits(true).output_events(true);
        config.top_logprobs = Some(2000);
        config
    };
    let sampled = || scored().do_sample(true).seed(1);
    let beams = || scored().num_beams(rows).num_return_sequences(2);
    let phrase = || vec![ForcedWord::Phrase(vec![TokenId(9)])];
    let requests: [(&str, GenerationConfig); 8] = [
        ("greedy search", scored()),
        ("sampling", sampled().num_return_sequences(rows)),
        ("beam search", beams()),
        ("beam sampling", beams().do_sample(true).seed(1)),
        ("group beam search", beams().num_beam_groups(2).diversity_penalty(0.5)),
        ("constrained beam search", beams().force_words_ids(phrase())),
        ("contrastive search", scored().penalty_alpha(0.6).top_k(rows)),
        ("dola", sampled().num_return_sequences(rows).dola_layers(DolaLayers::High)),
    ];
    let answer = |output: GenerationOutput| (output.rows, output.sequences);
    let ids = |len: usize| -> Vec<TokenId> { (0..len as u32).map(|i| TokenId(3 + i * 7 % 50)).collect() };
    for (name, config) in requests {
        sweep(refused, name, generator, || generator.generate(ids(5), &config).map(answer));
        if generator.stream(ids(5), &config).is_ok() {
            let streamed = || generator.stream(ids(5), &config)?.collect::<Result<Vec<_>, _>>();
            sweep(refused, &format!("{name} as a stream"), generator, streamed);
        }
    }
    let many = || vec![ids(20); rows];
    sweep(refused, "a list", generator, || generator.call(many()).config(&scored()).run().map(answer));
    sweep(refused, "score", generator, || generator.score(ids(rows)));
    sweep(refused, "forward", generator, || generator.forward(&many()));
}

/// Lets the first allocation of a call fail, then the second, until all of them succeed. Each time the call ends in an
/// error or in the same answer, its blocks are free, and in the end it gives the answer that it gave before.
#[expect(clippy::print_stdout, reason = "the table of the sweep, with --nocapture")]
fn sweep<T: PartialEq>(
    refused: Refused,
    name: &str,
    generator: &Generator,
    mut call: impl FnMut() -> rsgen::Result<T>,
) {
    let expected = call().unwrap();
    let (mut index, mut errors) = (0, 0);
    loop {
        let (result, was_refused) = match refused {
            Refused::Large(bytes) => {
                let refusing = Refusing::nth(index, bytes);
                let result = call();
                (result, refusing.has_refused())
            }
            Refused::Reserved => {
                failing::at(Some(index));
                (call(), failing::at(None).is_none())
            }
        };
        let stats = generator.engine().pool().stats();
        assert_eq!((stats.used_blocks, stats.reserved_blocks), (0, 0), "{name}: allocation {index}");
        if !was_refused {
            assert!(result.unwrap() == expected, "{name}: another result");
            break;
        }
        match result {
            Err(error) => {
                assert!(error.to_string().contains("memory"), "{name}, allocation {index}: {error}");
                errors += 1;
            }
            // A pass of several requests that fails is computed again, for each of them alone.
            Ok(answer) => assert!(answer == expected, "{name}, allocation {index}: another result"),
        }
        index += 1;
    }
    assert!(call().unwrap() == expected, "{name}: another result afterwards");
    assert!(errors * 2 >= index, "{name}: {errors} errors of {index} refused allocations");
    println!("{name}, {refused:?}: {index} allocations refused, {errors} errors");
}

/// What SECURITY.md says of a text's memory.
#[test]
fn encoding_takes_a_bounded_multiple_of_its_text() {
    const BYTES: usize = 1 << 18;
    const MOST_PER_BYTE: u64 = 300;
    let _alone = alone();
    let vocab: serde_json::Map<String, serde_json::Value> =
        ('!'..='~').chain(['Ġ', '▁']).zip(0..).map(|(char, id)| (char.to_string(), id.into())).collect();
    let bpe = json!({"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "?"});
    let unigram = json!({"type": "Unigram", "vocab": [["?", 0.0], ["a", -1.0], ["▁", -1.0]], "unk_id": 0});
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let nfkd = json!({"type": "NFKD"});
    for (normalizer, pre_tokenizer, model, unit, growth) in [
        (&json!(null), &json!(null), &bpe, "a", 1),
        (&json!(null), &json!(null), &unigram, "a", 1),
        (&json!(null), &digits, &bpe, "1", 1),
        (&json!(null), &byte_level, &bpe, "a!", 1),
        (&json!(null), &byte_level, &bpe, "é", 2),
        (&json!(null), &metaspace, &unigram, " ", 3),
        (&nfkd, &digits, &bpe, "\u{fdfa}", 11),
    ] {
        let file = json!({"version": "1.0", "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": null, "decoder": null, "model": model});
        let tokenizer = Tokenizer::from_bytes(file.to_string().as_bytes(), None, None).unwrap();
        let text = unit.repeat(BYTES / unit.len());
        let most = most_held(|| drop(tokenizer.encode(&text, true).unwrap()));
        let most = most / (growth * BYTES as u64);
        assert!(most < MOST_PER_BYTE, "{pre_tokenizer} {unit:?}: {most} bytes for each byte");
    }
}
