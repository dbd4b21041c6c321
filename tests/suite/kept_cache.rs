//! Kept caches: a call that continues one gives what it gives for the whole text, whatever is still there of it.

use std::thread;

use rsgen::error::ErrorKind;
use rsgen::generation::DolaLayers;
use rsgen::generator::{Assistant, KvDtype};
use rsgen::{
    GenerationConfig, GenerationOutput, Generator, GeneratorOptions, KeptCache, PromptBatch, TokenId,
};

use crate::support::bits;

fn open_with(model: &str, options: GeneratorOptions) -> Generator {
    let options = options.num_threads(2);
    let folder = format!("{}/tests/golden/models/{model}", env!("CARGO_MANIFEST_DIR"));
    Generator::open_with(folder, &options).unwrap()
}

fn open(model: &str) -> Generator {
    open_with(model, GeneratorOptions::new().kv_cache_bytes(64 << 20))
}

/// Without sharing between calls, so that nothing is found that was not handed over.
fn alone(model: &str) -> Generator {
    let options = GeneratorOptions::new().prefix_caching(false).kv_cache_bytes(64 << 20);
    open_with(model, options)
}

fn ids(len: usize, first: usize) -> Vec<TokenId> {
    (0..len).map(|i| TokenId(((first + i * i / 3 + i * first) % 61) as u32)).collect()
}

fn config() -> GenerationConfig {
    GenerationConfig::new().max_new_tokens(12).output_logits(true)
}

/// A configuration of each kind of search.
fn strategies() -> Vec<(&'static str, GenerationConfig)> {
    vec![
        ("greedy", config()),
        ("sample", config().do_sample(true).seed(3).num_return_sequences(3)),
        ("beams", config().num_beams(4).num_return_sequences(2)),
        ("beam sample", config().num_beams(3).do_sample(true).seed(5)),
        ("groups", config().num_beams(4).num_beam_groups(2).diversity_penalty(1.0)),
        ("contrastive", config().penalty_alpha(0.6).top_k(4)),
        ("dola", config().dola_layers(DolaLayers::High)),
        ("prompt lookup", config().prompt_lookup_num_tokens(3)),
        ("early exit", config().assistant_early_exit(1)),
    ]
}

fn continued(
    generator: &Generator,
    cache: &KeptCache,
    rest: Vec<TokenId>,
    config: &GenerationConfig,
) -> GenerationOutput {
    generator.call(rest).cache([cache]).config(config).run().unwrap()
}

#[test]
fn a_continued_text_gives_the_bits_of_the_whole_text_in_every_search() {
    let (generator, reference) = (open("four_layers"), alone("four_layers"));
    for (held, new) in [(1, 1), (31, 2), (32, 1), (33, 0), (70, 40)] {
        let (text, rest) = (ids(held, 3), ids(new, 7));
        let cache = generator.prefill(text.clone()).unwrap();
        assert_eq!((cache.token_ids(), cache.num_computed()), (&text[..], held));
        for (name, config) in strategies() {
            let whole = reference.generate([&text[..], &rest].concat(), &config).unwrap();
            let output = continued(&generator, &cache, rest.clone(), &config);
            assert!(bits(&output) == bits(&whole), "{name} after {held} tokens, {new} new");
            assert_eq!(output.rows, whole.rows, "{name}");
            // The last token of a prompt is always computed; contrastive search wants the states of all.
            let least = if name == "contrastive" { 0 } else { held.min(held + new - 1) };
            assert!(output.usage.cached_prompt_tokens >= least, "{name}: {:?}", output.usage);
        }
    }
}

#[test]
fn a_row_goes_on_where_its_call_ended() {
    for (generator, is_shared) in [(open("four_layers"), true), (alone("four_layers"), false)] {
        let reference = alone("four_layers");
        for (name, config) in strategies() {
            let first = generator.call(ids(40, 3)).config(&config).return_cache(true).run().unwrap();
            for row in &first.rows {
                let cache = row.cache.as_ref().unwrap();
                let text = [&row.prompt_ids[..], &row.generated.token_ids].concat();
                assert_eq!(cache.token_ids(), text);
                assert!(
                    cache.num_computed() >= 40,
                    "{name}, {is_shared}: {} of the prompt",
                    cache.num_computed()
                );
                let whole = reference.generate([&text[..], &ids(5, 9)].concat(), &config).unwrap();
                let output = continued(&generator, cache, ids(5, 9), &config);
                assert!(bits(&output) == bits(&whole), "{name}");
                let least = if name == "contrastive" { 0 } else { 40 };
                assert!(output.usage.cached_prompt_tokens >= least, "{name}: {:?}", output.usage);
            }
        }
        let greedy = generator.call(ids(40, 3)).config(&config()).return_cache(true).run().unwrap();
        let cache = greedy.cache().unwrap();
        // Where calls share blocks, another has gone on from there and computed the last token, too.
        assert_eq!(
            cache.num_computed(),
            cache.len() - usize::from(!is_shared),
            "all but the last token are computed"
        );
    }
}

#[test]
fn nothing_is_shared_with_calls_that_were_not_given_the_cache() {
    let generator = alone("four_layers");
    let cache = generator.prefill(ids(70, 3)).unwrap();
    let with = |cache: Option<&KeptCache>| {
        let output = generator.call(match cache {
            Some(_) => ids(3, 1),
            None => [ids(70, 3), ids(3, 1)].concat(),
        });
        output.cache(cache).config(&config()).run().unwrap().usage.cached_prompt_tokens
    };
    assert_eq!((with(Some(&cache)), with(None)), (70, 0));
    // Nor with another that holds the same text.
    let other = generator.prefill(ids(70, 3)).unwrap();
    drop(cache);
    assert_eq!(with(Some(&other)), 70);
}

#[test]
fn threads_continue_one_cache_at_once_and_each_gets_its_own_bits() {
    let (generator, reference) = (open("four_layers"), alone("four_layers"));
    let cache = generator.prefill(ids(50, 3)).unwrap();
    thread::scope(|scope| {
        for thread in 0..6 {
            let (generator, reference, cache) = (&generator, &reference, cache.clone());
            scope.spawn(move || {
                for (name, config) in strategies() {
                    let rest = ids(4 + thread, thread);
                    let whole = reference.generate([cache.token_ids(), &rest].concat(), &config).unwrap();
                    let output = generator.call(rest).cache([&cache]).config(&config).run().unwrap();
                    assert!(bits(&output) == bits(&whole), "{name} on thread {thread}");
                }
            });
        }
    });
    assert_eq!(cache.num_computed(), 50);
}

#[test]
fn a_list_continues_one_cache_or_one_each() {
    let (generator, reference) = (open("four_layers"), alone("four_layers"));
    let caches: Vec<_> =
        (0..3).map(|index| generator.prefill(ids(20 + 20 * index, index)).unwrap()).collect();
    let rests: Vec<Vec<TokenId>> = (0..3).map(|index| ids(index, 5)).collect();
    let output = generator.call(rests.clone()).cache(&caches).config(&config()).run().unwrap();
    let whole = |cache: &KeptCache, rest: &[TokenId]| [cache.token_ids(), rest].concat();
    let texts: Vec<_> = caches.iter().zip(&rests).map(|(cache, rest)| whole(cache, rest)).collect();
    assert!(bits(&output) == bits(&reference.generate(texts, &config()).unwrap()));

    let output = generator.call(rests.clone()).cache([&caches[1]]).config(&config()).run().unwrap();
    let texts: Vec<_> = rests.iter().map(|rest| whole(&caches[1], rest)).collect();
    assert!(bits(&output) == bits(&reference.generate(texts, &config()).unwrap()));

    let error = generator.call(rests).cache(&caches[..2]).config(&config()).run().unwrap_err();
    assert!(error.to_string().contains("one for each (3), got 2"), "{error}");
}

#[test]
fn past_key_values_is_beside_the_whole_text_as_in_transformers() {
    let (generator, reference) = (open("four_layers"), alone("four_layers"));
    let cache = generator.prefill(ids(40, 3)).unwrap();
    let text = [ids(40, 3), ids(6, 8)].concat();
    let whole = reference.generate(text.clone(), &config()).unwrap();
    // The second call finds all that the first has computed: everything but the token whose logits it needs.
    for (prompts, cached) in [
        (rsgen::Prompts::from(text.clone()), 40),
        (PromptBatch::single(text.clone()).unwrap().into(), text.len() - 1),
    ] {
        let output = generator.call(prompts).past_key_values([&cache]).config(&config()).run().unwrap();
        assert!(bits(&output) == bits(&whole));
        assert_eq!(output.usage.cached_prompt_tokens, cached);
    }
    // Padding is not part of the text.
    let padded = PromptBatch::with_mask(
        vec![[vec![TokenId(0); 2], text].concat()],
        vec![[vec![false; 2], vec![true; 46]].concat()],
    );
    let output = generator.call(padded.unwrap()).past_key_values([&cache]).config(&config()).run().unwrap();
    assert!(bits(&output) == bits(&whole));
    let error = generator.call(ids(6, 8)).past_key_values([&cache]).config(&config()).run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.to_string().contains("begin with the 40 tokens of the cache, but only"), "{error}");
}

#[test]
fn a_full_cache_takes_the_blocks_and_nobody_can_tell_from_the_results() {
    let options = || GeneratorOptions::new().kv_cache_bytes(1);
    let block = open("four_layers").engine().pool().capacity().layout().bytes_per_block();
    let generator = open_with("four_layers", options().kv_cache_bytes(6 * block));
    let cache = generator.prefill(ids(100, 3)).unwrap();
    let before = generator.engine().pool().stats();
    assert_eq!((before.kept_blocks, before.used_blocks, before.available_blocks), (4, 0, 6));
    let expected =
        bits(&alone("four_layers").generate([ids(100, 3), ids(4, 1)].concat(), &config()).unwrap());
    assert!(bits(&continued(&generator, &cache, ids(4, 1), &config())) == expected);
    // A text that needs all blocks: it does not wait for the handle.
    generator.generate(ids(150, 5), &config().max_new_tokens(30)).unwrap();
    assert!(cache.num_computed() < 100);
    let output = continued(&generator, &cache, ids(4, 1), &config());
    assert!(bits(&output) == expected);
    assert!(output.usage.cached_prompt_tokens < 100);
    assert_eq!(cache.num_computed(), 100, "it keeps what was computed again");
    drop((cache, output));
    assert_eq!(generator.engine().pool().stats().kept_blocks, 0);
}

#[test]
fn assistants_and_models_whose_keys_depend_on_the_length_give_the_same_bits() {
    let draft =
        GeneratorOptions::new().assistant(Assistant::Generator(open("four_layers"))).kv_cache_bytes(64 << 20);
    let assisted = open_with("four_layers", draft);
    let cache = assisted.prefill(ids(40, 3)).unwrap();
    let whole = alone("four_layers").generate([ids(40, 3), ids(4, 1)].concat(), &config()).unwrap();
    assert_eq!(continued(&assisted, &cache, ids(4, 1), &config()).rows, whole.rows);

    for model in ["rope_dynamic", "phi3_longrope", "mistral_window", "qwen3_norms", "bfloat16"] {
        let (generator, reference) = (open(model), alone(model));
        for held in [3, 20] {
            let cache = generator.prefill(ids(held, 3)).unwrap();
            let whole = reference.generate([ids(held, 3), ids(4, 1)].concat(), &config()).unwrap();
            let output = continued(&generator, &cache, ids(4, 1), &config());
            assert!(bits(&output) == bits(&whole), "{model} after {held} tokens");
        }
    }
}

#[test]
fn caches_of_every_type_are_kept() {
    for kv_dtype in [KvDtype::F32, KvDtype::Bf16, KvDtype::I8] {
        let options = || GeneratorOptions::new().kv_dtype(kv_dtype).kv_cache_bytes(64 << 20);
        let [generator, reference] = [(); 2].map(|()| open_with("four_layers", options()));
        let cache = generator.prefill(ids(45, 3)).unwrap();
        let whole = reference.generate([ids(45, 3), ids(4, 1)].concat(), &config()).unwrap();
        assert!(bits(&continued(&generator, &cache, ids(4, 1), &config())) == bits(&whole), "{kv_dtype}");
    }
}

#[test]
fn what_cannot_be_continued_is_refused_in_words() {
    let (generator, other) = (open("four_layers"), open("four_layers"));
    let cache = generator.prefill(ids(10, 3)).unwrap();
    let call = || generator.call(ids(2, 1)).config(&config());
    let foreign = other.call(ids(2, 1)).cache([&cache]).config(&config()).run().unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::Input);
    assert!(foreign.to_string().contains("of the generator that continues it"), "{foreign}");
    let salted = call().cache([&cache]).cache_salt("tenant").run().unwrap_err();
    assert!(salted.to_string().contains("`cache_salt`"), "{salted}");
    let rows = PromptBatch::rectangular(vec![ids(3, 1), ids(3, 2)]).unwrap();
    let batch = generator.call(rows).cache([&cache]).config(&config()).run().unwrap_err();
    assert!(batch.to_string().contains("an array of 2 rows"), "{batch}");
    let id = generator.prefill(vec![TokenId(1), TokenId(1 << 20)]).unwrap_err();
    assert!(id.to_string().contains("got 1048576 at position 1"), "{id}");
    let long = generator.prefill(ids(100_000, 1)).unwrap_err();
    assert_eq!(long.kind(), ErrorKind::Input);
    let mut cancelled = || true;
    let error =
        generator.prefill_interruptible(ids(40, 8).as_slice().into(), None, &mut cancelled).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(generator.engine().pool().stats().used_blocks, 0);
}

#[test]
fn a_prompt_is_computed_upon_another() {
    let generator = alone("four_layers");
    let first = generator.prefill(ids(40, 3)).unwrap();
    let second =
        generator.prefill_interruptible(ids(30, 1).as_slice().into(), Some(&first), &mut || false).unwrap();
    assert_eq!(second.token_ids(), [ids(40, 3), ids(30, 1)].concat());
    assert_eq!(second.num_computed(), 70);
    // The blocks of the first are those of the second.
    assert!(generator.engine().pool().stats().kept_blocks <= 4);
}
