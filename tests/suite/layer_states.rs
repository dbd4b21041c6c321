//! Hidden states and attention weights: those that a search keeps are those of one pass over its text, to the bit, in every
//! strategy, and what they are is checked against the model's own logits.

use rsgen::generation::{AssistantTokensSchedule, DolaLayers, LayerStates};
use rsgen::{ErrorKind, GenerationConfig, GenerationOutput, Generator, GeneratorOptions, TokenId};

const DRAFT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-draft");

fn ids(len: usize, first: u32) -> Vec<TokenId> {
    (0..len as u32).map(|index| TokenId(300 + (first + index * 37) % 1500)).collect()
}

fn config() -> GenerationConfig {
    GenerationConfig::new().max_new_tokens(12).output_hidden_states(true).output_attentions(true)
}

/// Every strategy, and whether a second model drafts.
fn strategies() -> Vec<(GenerationConfig, bool)> {
    let alone = [
        config(),
        config().do_sample(true).seed(6).num_return_sequences(3),
        config().num_beams(4).num_return_sequences(2),
        config().num_beams(3).do_sample(true).seed(8),
        config().num_beams(4).num_beam_groups(2).diversity_penalty(0.7),
        config().penalty_alpha(0.6).top_k(4),
        config().dola_layers(DolaLayers::High).repetition_penalty(1.2),
        config().prompt_lookup_num_tokens(6),
        config().prompt_lookup_num_tokens(4).do_sample(true).seed(9).num_return_sequences(2),
        config().assistant_early_exit(2).num_assistant_tokens(3),
    ];
    let drafted = [
        config().num_assistant_tokens(4),
        config().num_assistant_tokens(3).do_sample(true).seed(10).num_return_sequences(2),
        config().num_assistant_tokens_schedule(AssistantTokensSchedule::Adaptive),
    ];
    let alone = alone.into_iter().map(|config| (config, false));
    alone.chain(drafted.into_iter().map(|config| (config, true))).collect()
}

fn bits(numbers: Option<&[f32]>) -> Vec<u32> {
    numbers.unwrap().iter().map(|number| number.to_bits()).collect()
}

/// The states that a row's tokens were chosen from are those of its text in one pass.
fn check(generator: &Generator, output: &GenerationOutput, label: &str) {
    for (index, row) in output.rows.iter().enumerate() {
        let text = [&row.prompt_ids[..], &row.generated.token_ids].concat();
        let (_, whole) = generator.forward_states(&[text], true, true, &mut || false).unwrap();
        let (whole, mut steps) = (&whole[0], 0);
        for (step, sequence) in row.generated.sequences(index).enumerate() {
            let states: &LayerStates = &output.sequences[sequence].layer_states.as_ref().unwrap()[step];
            let expected =
                if step == 0 { (0, row.prompt_ids.len()) } else { (row.prompt_ids.len() + step - 1, 1) };
            assert_eq!((states.first_position, states.num_tokens), expected, "{label}, step {step}");
            for token in 0..states.num_tokens {
                let position = states.first_position + token;
                for layer in 0..=states.shape.num_layers() {
                    let (got, expected) =
                        (states.hidden_state(token, layer), whole.hidden_state(position, layer));
                    assert_eq!(bits(got), bits(expected), "{label}, step {step}, layer {layer}");
                }
                for layer in 0..states.shape.num_layers() {
                    for head in 0..states.shape.num_heads {
                        let got = states.attention(token, layer, head);
                        assert_eq!(bits(got), bits(whole.attention(position, layer, head)), "{label}");
                        let sum: f32 = got.unwrap().iter().sum();
                        assert!((sum - 1.0).abs() < 1e-5, "{label}: weights sum to {sum}");
                    }
                }
            }
            steps += 1;
        }
        assert!(steps > 0, "{label}");
    }
}

#[test]
fn states_of_every_strategy_are_those_of_one_pass_over_the_text() {
    let (generator, draft) = (Generator::bundled().unwrap(), Generator::open(DRAFT).unwrap());
    for (config, is_drafted) in strategies() {
        let call = generator.call(ids(40, 3)).config(&config).assistant(is_drafted.then_some(&draft));
        check(&generator, &call.run().unwrap(), &format!("{config:?}"));
    }
    // In a list, beside each other and in chunks.
    let prompts = vec![ids(300, 1), ids(5, 2), ids(33, 3)];
    let output = generator.generate(prompts, &config().prefill_chunk_size(7_usize)).unwrap();
    check(&generator, &output, "a list");
}

#[test]
fn states_are_the_same_when_the_cache_runs_out() {
    let options = GeneratorOptions::new().num_threads(2).kv_cache_bytes(14 * 6 * 3 * (32 + 32) * 32 * 4);
    let generator = Generator::bundled_with(&options).unwrap();
    let prompts: Vec<_> = (0..6).map(|index| ids(60 + index, index as u32)).collect();
    let output = generator.generate(prompts, &config().max_new_tokens(60).num_beams(2)).unwrap();
    assert!(generator.engine().preemptions() > 0, "somebody lost their blocks");
    check(&Generator::bundled().unwrap(), &output, "a small cache");
}

#[test]
fn states_change_no_token_and_one_kind_comes_without_the_other() {
    let generator = Generator::bundled().unwrap();
    let plain = GenerationConfig::new().max_new_tokens(12);
    for beams in [1_usize, 3] {
        let run = |config: &GenerationConfig| {
            generator.generate(ids(40, 3), &config.clone().num_beams(beams)).unwrap()
        };
        let (expected, both) = (run(&plain), run(&config()));
        assert_eq!(both.token_ids(), expected.token_ids());
        assert!(expected.sequences.iter().all(|sequence| sequence.layer_states.is_none()));
        let steps = |output: &GenerationOutput| output.sequences[0].layer_states.clone().unwrap();
        let hidden = steps(&run(&plain.clone().output_hidden_states(true)));
        let weights = steps(&run(&plain.clone().output_attentions(true)));
        for ((both, hidden), weights) in steps(&both).iter().zip(&hidden).zip(&weights) {
            assert_eq!((&both.hidden_states, hidden.attentions.len()), (&hidden.hidden_states, 0));
            assert_eq!((&both.attentions, weights.hidden_states.len()), (&weights.attentions, 0));
        }
    }
}

#[test]
fn outputs_with_states_survive_json() {
    let generator = Generator::bundled().unwrap();
    let output = generator.generate(ids(6, 3), &config().max_new_tokens(2)).unwrap();
    let json = serde_json::to_string(&output).unwrap();
    let again: GenerationOutput = serde_json::from_str(&json).unwrap();
    assert_eq!(again.sequences, output.sequences);
}

#[test]
fn states_that_do_not_fit_into_the_memory_are_refused_before_the_work_begins() {
    let generator = Generator::bundled().unwrap();
    let config =
        GenerationConfig::new().output_attentions(true).do_sample(true).num_return_sequences(60_000_usize);
    let error = generator.generate(ids(400, 1), &config.max_new_tokens(100)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Capacity);
    assert!(error.to_string().contains("leave out `output_attentions`"), "{error}");
}
