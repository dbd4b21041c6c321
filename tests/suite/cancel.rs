//! Cancels every search at every moment: no block leaks, and later results are unchanged.

use std::sync::Arc;

use rsgen::generation::config::ForcedWord;
use rsgen::generation::{LogitsProcessor, RowContext, Strategy};
use rsgen::{Error, ErrorKind, GenerationConfig, GenerationOutput, Generator, GeneratorOptions, TokenId};

const PROMPTS: [&str; 2] = ["Once upon a time", "One day"];
const NEW_TOKENS: usize = 9;
/// The number of moments tried of each search, spread over its run.
const MOMENTS: usize = 60;

fn generator() -> Generator {
    let options = GeneratorOptions::new().num_threads(1);
    Generator::bundled_with(&options).unwrap()
}

/// Each search as its method makes it, with its required fields.
fn searches() -> impl Iterator<Item = (&'static str, GenerationConfig)> {
    Strategy::ALL.iter().map(|strategy| {
        let mut config = GenerationConfig::new().max_new_tokens(NEW_TOKENS).seed(3);
        if strategy.name == "constrained_beam_search" {
            config = config.force_words_ids([ForcedWord::Phrase(vec![TokenId(300), TokenId(301)])]);
        }
        (strategy.name, strategy.apply(&config, &GenerationConfig::new()).unwrap())
    })
}

/// A run that is interrupted at a given poll.
fn interrupted(
    generator: &Generator,
    config: &GenerationConfig,
    after: usize,
) -> rsgen::Result<GenerationOutput> {
    let prepared =
        generator.call(PROMPTS.map(String::from).to_vec()).config(config).prepare(false, &mut || false)?;
    let mut left = after;
    prepared.run(&mut || {
        let stops = left == 0;
        left = left.saturating_sub(1);
        stops
    })
}

fn times_asked(generator: &Generator, config: &GenerationConfig) -> (usize, GenerationOutput) {
    let prepared = generator
        .call(PROMPTS.map(String::from).to_vec())
        .config(config)
        .prepare(false, &mut || false)
        .unwrap();
    let mut asked = 0;
    let output = prepared.run(&mut || {
        asked += 1;
        false
    });
    (asked, output.unwrap())
}

fn assert_all_free(generator: &Generator, label: &str) {
    let stats = generator.engine().pool().stats();
    assert_eq!((stats.used_blocks, stats.reserved_blocks), (0, 0), "{label}");
}

#[test]
fn a_search_that_is_interrupted_at_any_moment_leaves_nothing_behind() {
    let generator = generator();
    for (name, config) in searches() {
        let (asked, expected) = times_asked(&generator, &config);
        assert!(asked > NEW_TOKENS, "{name} asked {asked} times");
        for after in (0..asked).step_by(asked.div_ceil(MOMENTS)) {
            let error = interrupted(&generator, &config, after).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{name} after {after}: {error}");
            assert_all_free(&generator, name);
        }
        let again = generator.generate(PROMPTS.map(String::from).to_vec(), &config).unwrap();
        assert_eq!(again.rows, expected.rows, "{name}");
    }
}

/// Fails at a step.
struct FailsAt(usize);

impl LogitsProcessor for FailsAt {
    fn name(&self) -> &'static str {
        "FailsAt"
    }

    fn process_row(&self, _scores: &mut [f32], row: &mut RowContext<'_>) -> rsgen::Result<()> {
        if row.input_ids.len() - row.prompt_len == self.0 {
            return Err(Error::callback("on purpose"));
        }
        Ok(())
    }
}

#[test]
fn a_search_that_fails_at_any_step_leaves_nothing_behind() {
    let generator = generator();
    for (name, config) in searches() {
        for step in 0..NEW_TOKENS {
            let call = generator.call(PROMPTS[0]).config(&config).processor(Arc::new(FailsAt(step)));
            let error = call.run().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Callback, "{name} at step {step}: {error}");
            assert_all_free(&generator, name);
        }
    }
}

#[test]
fn encoding_the_prompts_of_a_call_can_be_interrupted() {
    let generator = generator();
    let prompts = vec!["hello ".repeat(2000); 50];
    let mut polls = 0;
    let call = generator.call(prompts).prepare(true, &mut || {
        polls += 1;
        polls == 40
    });
    assert_eq!(call.err().unwrap().kind(), ErrorKind::Cancelled);
    assert_eq!(polls, 40, "nothing is encoded afterwards");
}
