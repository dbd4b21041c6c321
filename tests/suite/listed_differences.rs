//! Intended differences from transformers that no unit test covers, and a check that every test named in
//! `docs/parity.md` and `SECURITY.md` exists.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rsgen::{FinishReason, GenerationConfig, Generator, GeneratorOptions, PromptBatch, TokenId};
use rsgen_generation::Compat;

use crate::support::{bits, with_tensors};

const STORY: &str = "python/rsgen/models/story-3m";
const ROPE: &str = "tests/golden/models/rope_default";
const DYNAMIC: &str = "tests/golden/models/rope_dynamic";
const YARN: &str = "tests/golden/models/rope_yarn";
const LONGROPE: &str = "tests/golden/models/phi3_longrope";
const WINDOW: &str = "tests/golden/models/mistral_window";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn open(model: &str) -> Generator {
    let options = GeneratorOptions::new().num_threads(1);
    Generator::open_with(root().join(model).to_str().unwrap(), &options).unwrap()
}

fn ids(ids: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
    ids.into_iter().map(TokenId).collect()
}

// transformers takes the next token from the logits after the padding.
#[test]
fn a_prompt_padded_on_the_right_goes_on_from_its_last_token_with_a_warning() {
    let generator = open(STORY);
    let config = GenerationConfig::new().max_new_tokens(12).do_sample(false).output_logits(true);
    let prompt = generator.tokenizer().unwrap().encode("Once upon a time", true).unwrap();
    let mut padded = prompt.clone();
    padded.extend([TokenId(2); 3]);
    let mask: Vec<bool> = (0..padded.len()).map(|index| index < prompt.len()).collect();
    let batch = PromptBatch::with_mask(vec![padded], vec![mask]).unwrap();
    let prepared = generator.call(batch).config(&config).prepare(false, &mut || false).unwrap();
    assert!(prepared.warnings()[0].to_string().contains("padded on the right"), "{:?}", prepared.warnings());
    let output = prepared.run(&mut || false).unwrap();
    assert_eq!(bits(&output), bits(&generator.generate(prompt, &config).unwrap()));
}

#[test]
fn generation_stops_at_the_context_with_the_reason_length_and_a_warning() {
    let generator = open(YARN);
    let context = generator.config().max_position_embeddings;
    let config = GenerationConfig::new().max_new_tokens(10 * context).do_sample(false);
    let prepared = generator.call(ids(1..6)).config(&config).prepare(false, &mut || false).unwrap();
    let expected = format!("has room for {} new tokens", context - 5);
    assert!(prepared.warnings()[0].to_string().contains(&expected), "{:?}", prepared.warnings());
    let row = prepared.run(&mut || false).unwrap().rows.remove(0).generated;
    assert_eq!((row.token_ids.len(), row.finish_reason), (context - 5, FinishReason::Length));
}

// transformers takes the base of all rows from the longest one, and may keep a grown base for later calls.
#[test]
fn dynamic_rope_grows_with_each_sequence_alone_and_shrinks_again() {
    let generator = open(DYNAMIC);
    let long = 2 * generator.config().max_position_embeddings;
    assert!(generator.config().context_len() > long + 5);
    let config = GenerationConfig::new().max_new_tokens(5).do_sample(false).output_logits(true);
    let alone = |len: usize| {
        let prompt = ids((0..len as u32).map(|index| 3 + index * 7 % 50));
        (prompt.clone(), bits(&open(DYNAMIC).generate(prompt, &config).unwrap()).remove(0))
    };
    let ((short_prompt, short), (long_prompt, long)) = (alone(6), alone(long));

    let width = long_prompt.len();
    let mut padded = vec![TokenId(0); width - short_prompt.len()];
    padded.extend(&short_prompt);
    let mask = (0..width).map(|index| index >= width - short_prompt.len()).collect();
    let batch = PromptBatch::with_mask(vec![long_prompt, padded], vec![vec![true; width], mask]).unwrap();
    assert_eq!(bits(&generator.generate(batch, &config).unwrap()), [long, short.clone()]);
    assert_eq!(bits(&generator.generate(short_prompt, &config).unwrap()), [short]);
}

// transformers takes the factors of all rows from the longest one.
#[test]
fn the_factors_of_longrope_follow_from_each_sequences_own_length() {
    let generator = open(LONGROPE);
    let config = GenerationConfig::new().max_new_tokens(5).do_sample(false).output_logits(true);
    // The original context of this model is 40 tokens.
    let prompts = [ids(3..13), ids((0..70).map(|index| index * 7 % 50))];
    let alone = prompts
        .each_ref()
        .map(|prompt| bits(&generator.generate(prompt.clone(), &config).unwrap()).remove(0));
    let padded =
        prompts.each_ref().map(|prompt| [vec![TokenId(0); 70 - prompt.len()], prompt.clone()].concat());
    let mask = prompts.each_ref().map(|prompt| (0..70).map(|index| index >= 70 - prompt.len()).collect());
    let batch = PromptBatch::with_mask(padded.to_vec(), mask.to_vec()).unwrap();
    assert_eq!(bits(&generator.generate(batch, &config).unwrap()), alone);
}

// transformers computes the base of dynamic RoPE from the tokens of a pass, candidates included.
#[test]
fn candidates_do_not_change_what_rope_makes_of_a_text() {
    for model in [DYNAMIC, LONGROPE, WINDOW] {
        let generator = open(model);
        let context = if model == DYNAMIC { generator.config().max_position_embeddings } else { 40 };
        let config = GenerationConfig::new().max_new_tokens(12).do_sample(false).output_logits(true);
        let lookup = config.clone().prompt_lookup_num_tokens(5);
        let exit = config.clone().assistant_early_exit(1).num_assistant_tokens(3);
        // Some pass the original context with their candidates, some with their first token, some before.
        for len in [3, context - 6, context - 2, context, context + 3] {
            let prompt = ids((0..len as u32).map(|index| 3 + index % 5));
            let expected = bits(&generator.generate(prompt.clone(), &config).unwrap());
            for assisted in [&lookup, &exit] {
                let output = generator.generate(prompt.clone(), assisted).unwrap();
                assert_eq!(bits(&output), expected, "{model}, {len} tokens");
                assert!(output.draft_stats.unwrap().verified > 0);
            }
        }
    }
}

#[test]
fn yarn_goes_by_its_original_context_in_4_49_too() {
    let config = GenerationConfig::new().max_new_tokens(8).do_sample(false).output_logits(true);
    let old = config.clone().compat(Compat::V4_49);
    let logits = |model: &str, config| bits(&open(model).generate(ids(3..40), config).unwrap());
    assert_eq!(logits(YARN, &old), logits(YARN, &config));
    let folder = with_tensors(YARN, |_| {});
    let path = folder.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    let other =
        text.replace("\"original_max_position_embeddings\": 24", "\"original_max_position_embeddings\": 256");
    assert_ne!(other, text);
    fs::write(path, other).unwrap();
    assert_ne!(logits(folder.path().to_str().unwrap(), &old), logits(YARN, &old));
}

// transformers divides 0 by 0 for the first token, and is left with a greedy search.
#[test]
fn contrastive_search_goes_on_beside_a_hidden_state_of_zero() {
    const PAD: u32 = 5;
    let folder = with_tensors(ROPE, |tensors| {
        let (_, shape, bytes) = tensors.get_mut("model.embed_tokens.weight").unwrap();
        let row = bytes.len() / shape[0];
        bytes[PAD as usize * row..][..row].fill(0);
    });
    let generator = open(folder.path().to_str().unwrap());
    let greedy = GenerationConfig::new().max_new_tokens(12).do_sample(false);
    let contrastive = greedy.clone().penalty_alpha(0.9).top_k(6);
    let tokens = |config, prompt: &[u32]| {
        let output = generator.generate(ids(prompt.iter().copied()), config).unwrap();
        output.rows[0].generated.token_ids.clone()
    };
    assert_ne!(tokens(&contrastive, &[PAD, 9, 33]), tokens(&greedy, &[PAD, 9, 33]));
}

// transformers' `forward` sees the token alone, but the cache of its `generate` forgets nothing then.
#[test]
fn in_a_window_of_one_token_each_sees_itself_alone() {
    let folder = tempfile::tempdir().unwrap();
    let source = root().join(WINDOW);
    fs::copy(source.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let config = fs::read_to_string(source.join("config.json")).unwrap();
    let config = config.replace("\"sliding_window\": 5", "\"sliding_window\": 1");
    assert!(config.contains("\"sliding_window\": 1"));
    fs::write(folder.path().join("config.json"), config).unwrap();
    let generator = Generator::open(folder.path().to_str().unwrap()).unwrap();

    let config = GenerationConfig::new().max_new_tokens(8).do_sample(false).output_logits(true);
    let last = |prompt: Vec<TokenId>| bits(&generator.generate(prompt, &config).unwrap());
    assert_eq!(last(ids([5, 9, 33])), last(ids([33])), "what stands before changes nothing");
    assert_ne!(last(ids([33])), last(ids([9])));
}

#[test]
fn max_time_counts_from_the_check_of_a_call() {
    let generator = open(STORY);
    let config = GenerationConfig::new().max_new_tokens(200).do_sample(false).max_time(0.02);
    let prepared = generator.call("Once upon a time").config(&config).prepare(false, &mut || false).unwrap();
    sleep(Duration::from_millis(50));
    let row = prepared.run(&mut || false).unwrap().rows.remove(0).generated;
    assert_eq!((row.token_ids.len(), row.finish_reason), (1, FinishReason::Time));
}

#[test]
fn integer_temperatures_are_numbers() {
    let generator = open(STORY);
    let sampled = |temperature: serde_json::Value| {
        let mut config = GenerationConfig::new().max_new_tokens(20).do_sample(true).seed(3);
        config.set("temperature", &temperature.into()).unwrap();
        generator.generate("Once upon a time", &config).unwrap().token_ids().to_vec()
    };
    assert_eq!(sampled(2.into()), sampled(2.0.into()));
}

/// The faults of the tables of differences or promises: rows of `a | b | c` whose last cell names pairs of a file and a test in
/// it, each in backticks.
fn faults(page: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    const LAST_COLUMN: &str = "| shown by |";
    let mut faults = Vec::new();
    let (mut rows_found, mut within) = (0, false);
    for line in page.lines() {
        within = line.ends_with(LAST_COLUMN) || within && line.starts_with('|');
        if !within || line.ends_with(LAST_COLUMN) || line.starts_with("|---") {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        rows_found += 1;
        let quoted: Vec<&str> = cells.last().map_or("", |cell| *cell).split('`').skip(1).step_by(2).collect();
        if cells.len() != 3 || quoted.is_empty() || !quoted.len().is_multiple_of(2) {
            faults.push(format!(
                "a row without three cells and pairs of `file` and `test`: {}",
                cells.join(" | ")
            ));
        }
        for pair in quoted.chunks_exact(2) {
            let source = read(pair[0]).unwrap_or_default();
            let defined = ["fn", "def"].iter().any(|word| source.contains(&format!("{word} {}(", pair[1])));
            if !defined {
                faults.push(format!("{} has no test `{}`", pair[0], pair[1]));
            }
        }
    }
    if rows_found == 0 {
        faults.push(format!("no table with the column {LAST_COLUMN}"));
    }
    faults
}

#[test]
fn every_test_that_a_page_of_promises_names_is_there() {
    let read = |path: &str| fs::read_to_string(root().join(path)).ok();
    for page in ["docs/parity.md", "SECURITY.md"] {
        let found = faults(&read(page).unwrap(), read);
        assert!(found.is_empty(), "{page}:\n{}", found.join("\n"));
    }
}

#[test]
fn a_page_that_names_no_test_or_a_wrong_one_is_found() {
    let read = |path: &str| (path == "a.rs").then(|| "#[test]\nfn shows_it() {}".to_owned());
    let page =
        |row: &str| format!("text\n\n| transformers 5.24 | rsgen | shown by |\n|---|---|---|\n{row}\n");
    assert_eq!(faults(&page("| x | y `z` | `a.rs` `shows_it` |"), read), [""; 0]);
    assert_eq!(faults(&page("| x | y | `a.rs` `shows` |"), read), ["a.rs has no test `shows`"]);
    assert_eq!(faults(&page("| x | y | `b.rs` `shows_it` |"), read).len(), 1);
    assert_eq!(faults(&page("| x | y | |"), read).len(), 1);
    assert_eq!(faults(&page("| x | `a.rs` `shows_it` |"), read).len(), 1);
    assert_eq!(faults("no table", read).len(), 1);
}
