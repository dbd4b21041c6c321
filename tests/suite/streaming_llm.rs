//! Attention sinks: a text goes on past the context, with its first and its last tokens in the cache.

use std::fs;
use std::path::Path;

use rsgen::error::ErrorKind;
use rsgen::generator::KvDtype;
use rsgen::{GenerationConfig, GenerationOutput, Generator, GeneratorOptions, TokenId};
use serde_json::{Value, json};

use crate::support::{bits, with_tensors};

/// A golden model of one layer: the keys and values of its tokens depend on nothing but the token and its position.
fn one_layer(model: &str) -> tempfile::TempDir {
    let source = format!("tests/golden/models/{model}");
    let folder = with_tensors(&source, |tensors| {
        tensors.retain(|name, _| !name.contains(".layers.") || name.contains(".layers.0."));
    });
    change_config(folder.path(), |config| {
        config["num_hidden_layers"] = json!(1);
        if let Some(types) = config.get_mut("layer_types").and_then(Value::as_array_mut) {
            types.truncate(1);
        }
    });
    folder
}

fn change_config(folder: &Path, change: impl FnOnce(&mut Value)) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    fs::write(path, config.to_string()).unwrap();
}

fn open(folder: impl AsRef<Path>, kv_dtype: KvDtype) -> Generator {
    let options = GeneratorOptions::new().num_threads(2).kv_dtype(kv_dtype).kv_cache_bytes(64 << 20);
    Generator::open_with(folder.as_ref().to_str().unwrap(), &options).unwrap()
}

fn golden(model: &str) -> Generator {
    open(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/models").join(model), KvDtype::F32)
}

fn ids(len: usize, first: usize) -> Vec<TokenId> {
    (0..len).map(|i| TokenId(((first + i * i / 3 + i * first) % 61) as u32)).collect()
}

fn config(sinks: usize, window: usize, new: usize) -> GenerationConfig {
    GenerationConfig::new()
        .attention_sinks(sinks)
        .window(window)
        .max_new_tokens(new)
        .eos_token_id(Vec::new())
        .output_logits(true)
}

/// The tokens in the cache when each token of a text is computed, the token included.
fn in_cache(text: &[TokenId], sinks: usize, window: usize) -> Vec<Vec<TokenId>> {
    let dropped = ((window - sinks) / 2).clamp(1, 32);
    let mut cache = Vec::new();
    let grow = |&token: &TokenId| {
        if cache.len() == window {
            cache.drain(sinks..sinks + dropped);
        }
        cache.push(token);
        cache.clone()
    };
    text.iter().map(grow).collect()
}

/// The log-probability of each new token of each row, when each is computed from the tokens in the cache alone.
fn expected_logprobs(
    generator: &Generator,
    output: &GenerationOutput,
    sinks: usize,
    window: usize,
) -> Vec<Vec<f32>> {
    let rows = output.rows.iter().map(|row| {
        let text = [&row.prompt_ids[..], &row.generated.token_ids].concat();
        let caches = in_cache(&text, sinks, window);
        let new = row.generated.token_ids.iter().enumerate().map(|(index, token)| {
            let cache = &caches[row.prompt_ids.len() + index - 1];
            let logits = generator.forward(std::slice::from_ref(cache)).unwrap();
            let last = &logits[logits.len() - generator.config().vocab_size..];
            let max = last.iter().copied().fold(f32::MIN, f32::max);
            let sum: f64 = last.iter().map(|logit| f64::from(logit - max).exp()).sum();
            (f64::from(last[token.index()] - max) - sum.ln()) as f32
        });
        new.collect()
    });
    rows.collect()
}

#[track_caller]
fn assert_near(output: &GenerationOutput, expected: &[Vec<f32>], tolerance: f32, what: &str) {
    for (row, expected) in output.rows.iter().zip(expected) {
        assert_eq!(row.generated.logprobs.len(), expected.len(), "{what}");
        for (index, (found, expected)) in row.generated.logprobs.iter().zip(expected).enumerate() {
            assert!(
                (found - expected).abs() <= tolerance,
                "{what}, token {index}: {found} instead of {expected}"
            );
        }
    }
}

#[test]
fn with_one_layer_the_cache_is_that_of_its_tokens_as_a_text() {
    for model in [
        "rope_default",
        "rope_linear",
        "rope_llama3",
        "rope_yarn",
        "rope_dynamic",
        "qwen3_norms",
        "phi3_partial",
    ] {
        let folder = one_layer(model);
        let generator = open(&folder, KvDtype::F32);
        for (sinks, window, prompt) in [(4, 11, 3), (0, 9, 3), (2, 10, 70), (1, 3, 1)] {
            let config = config(sinks, window, 60);
            let strategies = [
                ("greedy", config.clone()),
                ("sample", config.clone().do_sample(true).seed(3).num_return_sequences(3)),
                ("beams", config.clone().num_beams(3).num_return_sequences(3)),
                ("beam sample", config.num_beams(3).do_sample(true).seed(3)),
            ];
            for (name, config) in strategies {
                let output = generator.generate(ids(prompt, 3), &config).unwrap();
                assert!(output.rows.iter().all(|row| row.generated.token_ids.len() == 60));
                let expected = expected_logprobs(&generator, &output, sinks, window);
                // The angles of keys that were rotated back err as float32 does.
                assert_near(&output, &expected, 2e-3, &format!("{model}, {name}, {sinks} of {window}"));
            }
        }
    }
}

#[test]
fn windows_of_several_blocks_and_narrow_types_keep_their_tokens() {
    let folder = one_layer("rope_llama3");
    for (kv_dtype, tolerance) in [(KvDtype::F32, 2e-3), (KvDtype::Bf16, 0.15), (KvDtype::I8, 0.4)] {
        let generator = open(&folder, kv_dtype);
        let window = generator.config().max_position_embeddings.min(100);
        for sinks in [4, 33] {
            let config = config(sinks, window, 150).do_sample(true).seed(7).num_return_sequences(2);
            let output = generator.generate(ids(250, 3), &config).unwrap();
            let expected = expected_logprobs(&generator, &output, sinks, window);
            assert_near(&output, &expected, tolerance, &format!("{kv_dtype}, {sinks} sinks"));
        }
    }
}

#[test]
fn until_the_window_is_full_it_is_the_same_text() {
    let generator = golden("four_layers");
    let plain = GenerationConfig::new().max_new_tokens(30).eos_token_id(Vec::new()).output_logits(true);
    let expected = generator.generate(ids(20, 3), &plain).unwrap();
    let output = generator.generate(ids(20, 3), &plain.attention_sinks(4).window(50)).unwrap();
    assert!(bits(&output) == bits(&expected));
}

#[test]
fn the_bits_do_not_depend_on_the_batch_the_chunks_or_the_threads() {
    let generator = golden("four_layers");
    let configs = [
        config(4, 24, 80),
        config(4, 24, 80).do_sample(true).seed([3, 4, 5]).num_return_sequences(2),
        config(4, 24, 40).num_beams(3).num_return_sequences(3),
    ];
    let prompts: Vec<_> = [5, 24, 90].into_iter().enumerate().map(|(i, len)| ids(len, i + 1)).collect();
    for config in configs {
        let together = bits(&generator.generate(prompts.clone(), &config).unwrap());
        let each = together.len() / prompts.len();
        for (index, prompt) in prompts.iter().enumerate() {
            let mut config = config.clone();
            if config.do_sample == Some(true) {
                config = config.seed(3 + index as u64);
            }
            for chunk in [1, 7, 256] {
                let config = config.clone().prefill_chunk_size(chunk);
                let alone = generator.generate(prompt.clone(), &config).unwrap();
                assert!(
                    bits(&alone) == together[each * index..each * (index + 1)],
                    "prompt {index}, chunk {chunk}"
                );
            }
            let mut stream = generator.stream(prompt.clone(), &config).unwrap();
            while stream.next_token(&mut || false).unwrap().is_some() {}
            let streamed = stream.into_output().unwrap();
            assert!(
                bits(&streamed) == together[each * index..each * (index + 1)],
                "a stream of prompt {index}"
            );
        }
    }
    // With others in the same passes, on other threads.
    let config = config(4, 24, 80);
    let alone = bits(&generator.generate(ids(5, 1), &config).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (generator, config, alone) = (&generator, &config, &alone);
            scope.spawn(move || match thread % 2 {
                0 => assert!(bits(&generator.generate(ids(5, 1), config).unwrap()) == *alone),
                _ => drop(
                    generator
                        .generate(ids(60, thread), &GenerationConfig::new().num_beams(3).max_new_tokens(40))
                        .unwrap(),
                ),
            });
        }
    });
}

#[test]
fn a_stream_of_many_contexts_takes_the_same_memory_throughout() {
    let generator = golden("four_layers");
    let context = generator.config().context_len();
    let config = GenerationConfig::new().window(64).eos_token_id(Vec::new());
    let mut stream = generator.stream(ids(5, 3), &config.max_new_tokens(10 * context)).unwrap();
    let (mut count, mut most) = (0, 0);
    while stream.next_token(&mut || false).unwrap().is_some() {
        count += 1;
        let stats = generator.engine().pool().stats();
        most = most.max(stats.used_blocks);
        assert!(stats.used_blocks + stats.reserved_blocks <= 2, "{stats:?}");
    }
    assert_eq!((count, most), (10 * context, 2));
    assert!(stream.into_output().unwrap().rows[0].generated.token_ids.len() == 10 * context);
    assert_eq!(generator.engine().pool().stats().used_blocks, 0);
}

#[test]
fn others_make_room_and_never_take_its_blocks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/models/four_layers");
    let block = golden("four_layers").engine().pool().capacity().layout().bytes_per_block();
    let options = GeneratorOptions::new().num_threads(2).kv_cache_bytes(6 * block);
    let generator = Generator::open_with(folder.to_str().unwrap(), &options).unwrap();
    let plain = GenerationConfig::new().max_new_tokens(60).eos_token_id(Vec::new()).output_logits(true);
    let expected = [
        bits(&golden("four_layers").generate(ids(5, 1), &config(4, 64, 200)).unwrap()),
        bits(&golden("four_layers").generate(ids(50, 2), &plain).unwrap()),
    ];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (generator, plain, expected) = (&generator, &plain, &expected);
            scope.spawn(move || {
                let output = match thread % 2 {
                    0 => generator.generate(ids(5, 1), &config(4, 64, 200)),
                    _ => generator.generate(ids(50, 2), plain),
                };
                assert!(bits(&output.unwrap()) == expected[thread % 2], "thread {thread}");
            });
        }
    });
    // A stream that nobody reads keeps its blocks, and who needs them is told so.
    let mut stream = generator.stream(ids(5, 1), &config(4, 128, 500)).unwrap();
    stream.next_token(&mut || false).unwrap();
    let refused = generator.generate(ids(90, 2), &plain).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Capacity);
    drop(stream);
    generator.generate(ids(90, 2), &plain).unwrap();
}

#[test]
fn what_cannot_go_on_is_refused_in_words() {
    let generator = golden("four_layers");
    let context = generator.config().max_position_embeddings;
    let error = |generator: &Generator, config: &GenerationConfig| {
        let error = generator.generate(ids(5, 3), config).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    };
    let beyond = error(&generator, &config(4, context + 1, 5));
    assert!(beyond.contains(&format!("`window` must be at most the {context} tokens")), "{beyond}");
    let contrastive = error(&generator, &config(4, 32, 5).penalty_alpha(0.6).top_k(4));
    assert!(contrastive.contains("unset in contrastive search"), "{contrastive}");
    let kept = generator.call(ids(5, 3)).config(&config(4, 32, 5)).return_cache(true).run().unwrap_err();
    assert!(kept.to_string().contains("`return_cache`"), "{kept}");
    // A layer that sees a part of the window, and factors that change within it.
    for model in ["mistral_window", "phi3_longrope"] {
        let generator = golden(model);
        let message = error(&generator, &config(4, generator.config().max_position_embeddings, 5));
        assert!(message.contains("every layer of the model was made for"), "{model}: {message}");
    }
    let windows = golden("mistral_window");
    let seen = windows.config().window.of_layer(0).unwrap();
    windows.generate(ids(5, 3), &config(1, seen, 50)).unwrap();
}
