//! The engine's guarantees about memory, errors and interrupts.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use rsgen::generation::{LogitsProcessor, OneOrMany, RowContext, StopContext, StoppingCriterion};
use rsgen::{
    DType, Error, ErrorKind, FinishReason, GenerationConfig, Generator, GeneratorOptions, Prompt, TokenId,
};

const PROMPT: &str = "Once upon a time";

fn options(kv_cache_bytes: usize) -> GeneratorOptions {
    GeneratorOptions::new().num_threads(1).kv_cache_bytes(kv_cache_bytes)
}

fn small(kv_cache_bytes: usize) -> Generator {
    Generator::bundled_with(&options(kv_cache_bytes)).unwrap()
}

fn free(generator: &Generator) -> usize {
    generator.engine().pool().stats().available_blocks
}

/// A block of the story model: 6 layers of 3 heads with 32 keys and 32 values of 32 tokens, in float32.
const BLOCK_BYTES: usize = 6 * 3 * (32 + 32) * 32 * 4;

#[test]
fn a_list_that_does_not_fit_at_once_runs_in_turns_with_the_same_result() {
    let prompts = vec![PROMPT; 9];
    let config = GenerationConfig::new().do_sample(true).seed(3).max_new_tokens(50);
    let roomy = Generator::bundled().unwrap().generate(prompts.clone(), &config).unwrap();
    // 4 + 50 tokens are two blocks, so two requests fit at a time.
    let narrow = small(5 * BLOCK_BYTES);
    let in_turns = narrow.generate(prompts, &config).unwrap();
    let texts = |output: &rsgen::GenerationOutput| output.texts().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(texts(&in_turns), texts(&roomy));
    assert_eq!(free(&narrow), 5);
}

#[test]
fn a_request_that_can_never_fit_is_refused_before_anything_is_computed() {
    let generator = small(2 * BLOCK_BYTES);
    let error = generator.generate(PROMPT, &GenerationConfig::new().max_new_tokens(100)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    assert!(error.to_string().contains("kv_cache_bytes"), "{error}");
    assert!(generator.generate(PROMPT, &GenerationConfig::new().max_new_tokens(40)).is_ok());
}

#[test]
fn a_stream_without_any_limit_goes_on_to_the_end_of_the_context_or_of_the_cache() {
    // The story model's own defaults limit it to 256 tokens: leave them out.
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(format!("{source}/{file}"), folder.path().join(file)).unwrap();
    }
    let prompt: Vec<TokenId> = (0..4).map(|i| TokenId(300 + i)).collect();
    for (blocks, length) in [(100, 512), (3, 96)] {
        let options = GeneratorOptions::new().kv_cache_bytes(blocks * BLOCK_BYTES);
        let generator = Generator::open_with(folder.path().to_str().unwrap(), &options).unwrap();
        let mut config = GenerationConfig::new();
        config.eos_token_id = Some(OneOrMany::Many(Vec::new()));
        let output = generator.stream(prompt.clone(), &config).unwrap().into_output().unwrap();
        assert_eq!(output.token_ids().len(), length - 4, "{blocks} blocks");
        assert_eq!(output.rows[0].generated.finish_reason, FinishReason::Length);
    }
}

/// Eight beams share the blocks of their prompt: they fit into 1.15 times the memory of one sequence and that of the new tokens.
#[test]
fn beams_after_a_long_prompt_take_little_more_memory_than_one_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-3m");
    std::fs::copy(format!("{source}/model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let config = std::fs::read_to_string(format!("{source}/config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["max_position_embeddings"] = 4096.into();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();

    let (prompt_tokens, new_tokens, beams) = (2048, 32, 8);
    let one_sequence = (prompt_tokens + new_tokens) / 32;
    let blocks = one_sequence * 115 / 100 + beams * new_tokens / 32;
    let prompt: Vec<TokenId> = (0..prompt_tokens as u32).map(|i| TokenId(300 + i * 7 % 1000)).collect();
    let mut config = GenerationConfig::new().num_beams(beams).max_new_tokens(new_tokens);
    config.eos_token_id = Some(OneOrMany::Many(Vec::new()));
    let run = |kv_cache_bytes| {
        let options = GeneratorOptions::new().kv_cache_bytes(kv_cache_bytes);
        let generator = Generator::open_with(folder.path().to_str().unwrap(), &options).unwrap();
        let output = generator.generate(prompt.clone(), &config).unwrap();
        assert_eq!(output.rows[0].generated.token_ids.len(), new_tokens);
        output.rows[0].generated.token_ids.clone()
    };
    assert_eq!(run(Some(blocks * BLOCK_BYTES)), run(None));
}

#[test]
fn a_stream_that_is_dropped_at_any_token_gives_its_blocks_back() {
    let generator = small(40 * BLOCK_BYTES);
    let config = GenerationConfig::new().do_sample(true).seed(1).num_return_sequences(4).max_new_tokens(40);
    for tokens in 0..60 {
        let taken: Vec<_> = generator.stream(PROMPT, &config).unwrap().take(tokens).collect();
        assert!(taken.iter().all(Result::is_ok));
        assert_eq!(free(&generator), 40, "after {tokens} tokens");
    }
}

/// Fails at the n-th generated token.
struct FailsAfter(usize);

impl LogitsProcessor for FailsAfter {
    fn name(&self) -> &'static str {
        "FailsAfter"
    }

    fn process_row(&self, _scores: &mut [f32], row: &mut RowContext<'_>) -> rsgen::Result<()> {
        if row.input_ids.len() - row.prompt_len < self.0 {
            return Ok(());
        }
        Err(Error::callback("the processor of the test failed").with_source("on purpose"))
    }
}

#[test]
fn an_error_of_a_processor_ends_its_request_alone() {
    let generator = small(40 * BLOCK_BYTES);
    let config = GenerationConfig::new().max_new_tokens(30);
    let mut other = generator.stream(PROMPT, &config).unwrap();
    other.next().unwrap().unwrap();
    let error = generator.call(PROMPT).config(&config).processor(Arc::new(FailsAfter(5))).run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Callback);
    assert!(error.to_string().contains("on purpose"), "{error}");

    let mut failing =
        generator.call(PROMPT).config(&config).processor(Arc::new(FailsAfter(3))).stream().unwrap();
    assert_eq!(failing.by_ref().flatten().count(), 3);
    assert!(failing.next().is_none(), "there is no token after an error");

    let expected = generator.generate(PROMPT, &config).unwrap();
    assert_eq!(other.into_output().unwrap().token_ids(), expected.token_ids());
    assert_eq!(free(&generator), 40);
}

/// Notes the threads that it runs on.
#[derive(Default)]
struct NotesThreads(Mutex<HashSet<ThreadId>>);

impl LogitsProcessor for NotesThreads {
    fn name(&self) -> &'static str {
        "NotesThreads"
    }

    fn process_row(&self, _scores: &mut [f32], _row: &mut RowContext<'_>) -> rsgen::Result<()> {
        self.0.lock().unwrap().insert(std::thread::current().id());
        Ok(())
    }
}

/// These have enough logits for all threads to search through them.
#[test]
fn functions_of_the_caller_run_on_its_thread_and_searches_of_a_list_give_what_each_gives() {
    let generator = Generator::bundled_with(&GeneratorOptions::new().num_threads(2)).unwrap();
    let prompts: Vec<String> = (0..40).map(|i| format!("{PROMPT}, {i} little foxes")).collect();
    let config = GenerationConfig::new().num_beams(4).max_new_tokens(6);
    let noted = Arc::new(NotesThreads::default());
    let with_function =
        generator.call(prompts.clone()).config(&config).processor(Arc::clone(&noted) as _).run().unwrap();
    assert_eq!(*noted.0.lock().unwrap(), HashSet::from([std::thread::current().id()]));
    let listed = generator.generate(prompts.clone(), &config).unwrap();
    for (prompt, (row, noted)) in prompts.iter().zip(listed.rows.iter().zip(&with_function.rows)) {
        assert_eq!(row.generated.token_ids, noted.generated.token_ids, "{prompt}");
        let alone = generator.generate(prompt.as_str(), &config).unwrap();
        assert_eq!(row.generated.token_ids, alone.token_ids(), "{prompt}");
    }
}

#[test]
fn an_error_in_a_list_whose_searches_share_the_threads_names_its_prompt() {
    let generator = Generator::bundled_with(&GeneratorOptions::new().num_threads(2)).unwrap();
    let prompts: Vec<String> = (0..40).map(|i| format!("{PROMPT}, {i} little foxes")).collect();
    // No token is left to draw.
    let config = GenerationConfig::new().num_beams(4).do_sample(true).seed(1).max_new_tokens(6);
    let config =
        config.suppress_tokens((0..generator.engine().model().vocab_size() as u32).map(TokenId).collect());
    let error = generator.generate(prompts, &config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Numerical);
    assert!(error.to_string().contains("prompt 0"), "{error}");
}

/// Stops at the n-th generated token.
struct StopsAfter(usize);

impl StoppingCriterion for StopsAfter {
    fn name(&self) -> &'static str {
        "StopsAfter"
    }

    fn should_stop(&self, row: &StopContext<'_>) -> rsgen::Result<Option<FinishReason>> {
        Ok((row.input_ids.len() - row.prompt_len >= self.0).then_some(FinishReason::Stop))
    }
}

#[test]
fn a_criterion_of_the_callers_ends_a_row() {
    let generator = small(40 * BLOCK_BYTES);
    let config = GenerationConfig::new().max_new_tokens(30);
    let output = generator.call(PROMPT).config(&config).criterion(Arc::new(StopsAfter(7))).run().unwrap();
    assert_eq!(output.token_ids().len(), 7);
    assert_eq!(output.rows[0].generated.finish_reason, FinishReason::Stop);
}

#[test]
fn an_interrupt_is_asked_for_several_times_within_each_layer_of_a_pass() {
    // Every run computes the whole prompt.
    let options = options(40 * BLOCK_BYTES).prefix_caching(false);
    let generator = Generator::bundled_with(&options).unwrap();
    let prompt: Vec<TokenId> = (0..400).map(|i| TokenId(100 + i % 50)).collect();
    let config = GenerationConfig::new().max_new_tokens(1);
    let prepared = generator.call(prompt.clone()).config(&config).prepare(false, &mut || false).unwrap();
    let mut asked = 0;
    prepared
        .run(&mut || {
            asked += 1;
            false
        })
        .unwrap();
    assert!(asked >= 4 * generator.config().num_hidden_layers, "asked {asked} times");

    for stop_at in [0, 1, asked / 2, asked - 1] {
        let prepared = generator.call(prompt.clone()).config(&config).prepare(false, &mut || false).unwrap();
        let mut left = stop_at;
        let result = prepared.run(&mut || {
            left = left.wrapping_sub(1);
            left == usize::MAX
        });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(free(&generator), 40);
    }
}

#[test]
fn the_log_probabilities_of_a_text_are_those_of_generating_it() {
    let generator = small(40 * BLOCK_BYTES);
    let output = generator.generate(PROMPT, &GenerationConfig::new().max_new_tokens(150)).unwrap();
    let row = &output.rows[0];
    let mut ids = row.prompt_ids.clone();
    ids.extend(&row.generated.token_ids);
    let scores = generator.score(ids).unwrap();
    assert_eq!(scores[0], 0.0);
    for (score, logprob) in scores[row.prompt_ids.len()..].iter().zip(&row.generated.logprobs) {
        assert!((score - logprob).abs() < 1e-5, "{score} {logprob}");
    }
}

#[test]
fn weights_can_be_rounded_while_they_are_loaded() {
    let options = |dtype| GeneratorOptions::new().dtype(dtype).num_threads(1);
    let logits = |dtype| {
        let generator = Generator::bundled_with(&options(dtype)).unwrap();
        let ids = generator.tokenizer().unwrap().encode(PROMPT, true).unwrap();
        (generator.engine().model().weight_bytes(), generator.forward(&[ids]).unwrap())
    };
    let (bytes, stored) = logits(None);
    let (wide_bytes, wide) = logits(Some(DType::F32.into()));
    assert_eq!(wide_bytes, 2 * bytes, "the story model is stored in bfloat16");
    assert_eq!(wide, stored, "widening is exact");
    assert_eq!(logits(Some(DType::Bf16.into())).1, stored);
    // Most of its weights are also numbers of float16.
    let (_, narrow) = logits(Some(DType::F16.into()));
    assert!(narrow.iter().zip(&stored).all(|(a, b)| (a - b).abs() < 1e-3));
}

#[test]
fn logits_that_memory_cannot_hold_are_refused_before_they_are_computed() {
    let generator = small(40 * BLOCK_BYTES);
    let bytes = 500 * generator.config().vocab_size as u64 * 4;
    let count = rsgen_model::weights::available_memory().unwrap() / bytes + 100;
    let sequences = vec![vec![TokenId(5); 500]; count as usize];
    let error = generator.forward(&sequences).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    assert!(error.to_string().contains("score"), "{error}");
}

#[test]
fn token_scores_are_the_score_with_the_rank_among_the_logits() {
    let generator = Generator::bundled().unwrap();
    // Longer than a chunk of the evaluation, so that ranks cross its boundary.
    let ids: Vec<TokenId> = (0..200u32).map(|i| TokenId(i * 37 % 2048)).collect();
    let scores = generator.token_scores([ids.as_slice()], 0).unwrap().remove(0);
    assert_eq!(scores.iter().map(|score| score.token_id).collect::<Vec<_>>(), ids);
    let logprobs: Vec<f32> = scores.iter().map(|score| score.logprob).collect();
    assert_eq!(logprobs, generator.score(ids.as_slice()).unwrap());
    assert_eq!(scores[0].rank, 0, "nothing predicts the first token");
    let logits = generator.forward(std::slice::from_ref(&ids)).unwrap();
    for ((row, next), score) in logits.chunks_exact(2048).zip(&ids[1..]).zip(&scores[1..]) {
        let above = row.iter().filter(|&&logit| logit > row[next.index()]).count();
        assert_eq!(score.rank, above + 1);
    }
}

#[test]
fn a_list_of_texts_is_scored_in_shared_passes_and_each_as_it_is_alone() {
    let generator = Generator::bundled().unwrap();
    let text = |len: u32| -> Vec<TokenId> { (0..len).map(|i| TokenId((i * 37 + len) % 2048)).collect() };
    let texts: Vec<Vec<TokenId>> = [3, 200, 1, 128, 40, 5, 127, 300].map(text).into();
    let together = generator.token_scores(texts.iter().map(Vec::as_slice), 2).unwrap();
    for (text, scores) in texts.iter().zip(&together) {
        assert_eq!(
            generator.token_scores([text.as_slice()], 2).unwrap(),
            *std::slice::from_ref(scores),
            "{} tokens",
            text.len()
        );
    }
    let top = &together[1][7].top_logprobs;
    assert!(top.len() == 2 && top[0].1 >= top[1].1);
    assert!(generator.token_scores(Vec::<&str>::new(), 0).unwrap().is_empty());
}

#[test]
fn texts_that_cannot_be_scored_are_named_and_the_others_are_there() {
    // A cache for one text at a time.
    let generator = small(16 * BLOCK_BYTES);
    let ids = |len: usize| Prompt::Ids(vec![TokenId(5); len]);
    let texts = [ids(300), ids(514), ids(300), Prompt::Ids(vec![TokenId(9999)]), ids(2)];
    let mut lens = Vec::new();
    let mut done = |index: usize, scores: rsgen::Result<Vec<_>>| {
        lens.push((index, scores.map_or_else(|error| Err(error.kind()), |scores| Ok(scores.len()))));
        Ok(())
    };
    generator.score_texts(texts.map(Ok), 0, &mut || false, &mut done).unwrap();
    let input = Err(ErrorKind::Input);
    assert_eq!(lens, [(0, Ok(300)), (1, input), (2, Ok(300)), (3, input), (4, Ok(2))]);
    let stats = generator.engine().pool().stats();
    assert_eq!(stats.available_blocks, stats.max_blocks);
    let error = generator.token_scores([ids(2), ids(514)], 0).unwrap_err();
    assert!(error.to_string().starts_with("text 1: "), "{error}");
}
