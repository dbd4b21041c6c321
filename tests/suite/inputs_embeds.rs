//! Embeddings in place of tokens: those of tokens give what the tokens give, to the bit, in every strategy, in lists, streams and
//! a full cache; and others are never taken for the tokens that they stand for.

use rsgen::generation::{AssistantTokensSchedule, Compat, DolaLayers, Embeddings, ForcedWord};
use rsgen::{
    ErrorKind, GenerationConfig, GenerationOutput, Generator, GeneratorOptions, Prompt, PromptBatch, TokenId,
};

use crate::support::bits;

const DRAFT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/rsgen/models/story-draft");
/// A block of the story model: 6 layers of 3 heads with 32 keys and 32 values of 32 tokens, in float32.
const BLOCK_BYTES: usize = 6 * 3 * (32 + 32) * 32 * 4;

fn ids(len: usize, first: u32) -> Vec<TokenId> {
    (0..len as u32).map(|index| TokenId(300 + (first + index * 37) % 1500)).collect()
}

fn embeddings(generator: &Generator, ids: &[TokenId]) -> Embeddings {
    Embeddings::new(generator.embed(ids).unwrap(), generator.config().hidden_size).unwrap()
}

/// The embeddings of tokens that processors see as well.
fn prompt(generator: &Generator, ids: &[TokenId]) -> Prompt {
    Prompt::Embeddings { embeddings: embeddings(generator, ids), input_ids: ids.to_vec() }
}

/// Every strategy, with processors that look at the prompt, and whether a second model drafts.
fn strategies() -> Vec<(GenerationConfig, bool)> {
    let config = || GenerationConfig::new().max_new_tokens(20).output_logits(true);
    let alone = vec![
        config(),
        config().repetition_penalty(1.3).no_repeat_ngram_size(2).min_length(70_usize),
        config().do_sample(true).seed(6).num_return_sequences(3).temperature(0.8),
        config().num_beams(4).num_return_sequences(2),
        config().num_beams(3).do_sample(true).seed(8),
        config().num_beams(4).num_beam_groups(2).diversity_penalty(0.7),
        config().num_beams(4).force_words_ids(vec![ForcedWord::Phrase(vec![TokenId(44)])]),
        config().num_beams(2).compat(Compat::V4_49),
        config().penalty_alpha(0.6).top_k(4),
        config().dola_layers(DolaLayers::High).repetition_penalty(1.2),
        config().prompt_lookup_num_tokens(6),
        config().prompt_lookup_num_tokens(4).do_sample(true).seed(9).num_return_sequences(2),
        config().assistant_early_exit(2).num_assistant_tokens(3),
        config().assistant_early_exit(2).do_sample(true).seed(3).num_return_sequences(2),
    ];
    let drafted = [
        config().num_assistant_tokens(4),
        config().num_assistant_tokens(3).do_sample(true).seed(10),
        config().num_assistant_tokens_schedule(AssistantTokensSchedule::Adaptive),
    ];
    let alone = alone.into_iter().map(|config| (config, false));
    alone.chain(drafted.into_iter().map(|config| (config, true))).collect()
}

fn run(
    generator: &Generator,
    draft: Option<&Generator>,
    prompt: Prompt,
    config: &GenerationConfig,
) -> GenerationOutput {
    generator.call(prompt).config(config).assistant(draft).run().unwrap()
}

#[test]
fn embeddings_of_tokens_give_what_the_tokens_give_in_every_strategy() {
    let (generator, draft) = (Generator::bundled().unwrap(), Generator::open(DRAFT).unwrap());
    let ids = ids(50, 3);
    for (config, is_drafted) in strategies() {
        let draft = is_drafted.then_some(&draft);
        let expected = run(&generator, draft, Prompt::Ids(ids.clone()), &config);
        let got = run(&generator, draft, prompt(&generator, &ids), &config);
        assert_eq!(bits(&got), bits(&expected), "{config:?}");
        assert_eq!(got.rows[0].prompt_ids, ids);
        assert_eq!(got.usage, expected.usage, "{config:?}");

        let streamed = generator.call(prompt(&generator, &ids)).config(&config).assistant(draft);
        assert_eq!(bits(&streamed.stream().unwrap().into_output().unwrap()), bits(&expected), "{config:?}");
    }
}

#[test]
fn without_ids_the_output_holds_new_tokens_alone_and_lengths_count_the_embeddings() {
    let generator = Generator::bundled().unwrap();
    let ids = ids(20, 5);
    let alone = || Prompt::from(embeddings(&generator, &ids));
    let by_ids = |config: &GenerationConfig| generator.generate(Prompt::Ids(ids.clone()), config).unwrap();
    let config = GenerationConfig::new().max_new_tokens(9).output_logits(true);
    let got = generator.generate(alone(), &config).unwrap();
    assert_eq!(bits(&got), bits(&by_ids(&config)));
    assert!(got.rows[0].prompt_ids.is_empty());
    assert_eq!((got.usage.prompt_tokens, got.usage.generated_tokens), (20, 9));
    // Both limits count the prompt, in whatever form it comes.
    let config = GenerationConfig::new().max_length(27_usize).min_length(27_usize).output_logits(true);
    assert_eq!(bits(&generator.generate(alone(), &config).unwrap()), bits(&by_ids(&config)));
    // An early exit reads the embeddings; a draft model has nothing to read.
    let config = GenerationConfig::new().max_new_tokens(9).assistant_early_exit(2);
    assert_eq!(generator.generate(alone(), &config).unwrap().token_ids(), got.token_ids());
    let draft = Generator::open(DRAFT).unwrap();
    let error = generator.call(alone()).assistant(Some(&draft)).run().unwrap_err();
    assert!(error.to_string().contains("give the `input_ids` that the embeddings stand for"), "{error}");
}

#[test]
fn ids_may_be_fewer_than_the_embeddings_and_chunks_change_nothing() {
    let generator = Generator::bundled().unwrap();
    let ids = ids(40, 5);
    let config = GenerationConfig::new().max_new_tokens(9).output_logits(true);
    let expected = bits(&generator.generate(Prompt::Ids(ids.clone()), &config).unwrap());
    let few = Prompt::Embeddings { embeddings: embeddings(&generator, &ids), input_ids: ids[38..].to_vec() };
    for config in [config.clone(), config.prefill_chunk_size(3_usize)] {
        let got = generator.generate(few.clone(), &config).unwrap();
        assert_eq!(bits(&got), expected);
        assert_eq!(got.rows[0].prompt_ids, ids[38..]);
    }
}

#[test]
fn a_batch_and_a_list_give_what_each_prompt_gives_alone() {
    let generator = Generator::bundled().unwrap();
    let config = GenerationConfig::new().max_new_tokens(12).output_logits(true);
    let prompts = [ids(33, 1), ids(7, 9), ids(64, 2)];
    let expected: Vec<_> = prompts
        .iter()
        .flat_map(|ids| bits(&generator.generate(Prompt::Ids(ids.clone()), &config).unwrap()))
        .collect();
    let list: Vec<Prompt> = prompts.iter().map(|ids| prompt(&generator, ids)).collect();
    assert_eq!(bits(&generator.generate(list, &config).unwrap()), expected);

    // The same, padded on the left with embeddings of anything.
    let padded = |ids: &Vec<TokenId>| [vec![TokenId(2); 64 - ids.len()], ids.clone()].concat();
    let embeddings = prompts.iter().map(|ids| embeddings(&generator, &padded(ids))).collect();
    let masks = prompts.iter().map(|ids| (0..64).map(|index| index >= 64 - ids.len()).collect()).collect();
    let batch = PromptBatch::with_embeddings(embeddings, Vec::new(), Some(masks)).unwrap();
    assert_eq!(bits(&generator.generate(batch, &config).unwrap()), expected);
}

#[test]
fn computed_prompts_of_tokens_and_embeddings_are_never_mixed() {
    let generator = Generator::bundled().unwrap();
    let (ids, hidden_size) = (ids(100, 7), generator.config().hidden_size);
    let config = GenerationConfig::new().max_new_tokens(8).output_logits(true);
    let of_tokens = generator.generate(Prompt::Ids(ids.clone()), &config).unwrap();
    let mut values = generator.embed(&ids).unwrap();
    values[40 * hidden_size..60 * hidden_size].iter_mut().for_each(|value| *value = -*value);
    let changed = || Prompt::Embeddings {
        embeddings: Embeddings::new(values.clone(), hidden_size).unwrap(),
        input_ids: ids.clone(),
    };
    let of_changed = generator.generate(changed(), &config).unwrap();
    assert_ne!(bits(&of_changed), bits(&of_tokens));
    assert_eq!(of_changed.usage.cached_prompt_tokens, 0);
    // Neither takes the blocks of the other afterwards, nor does either of them of itself.
    let again = generator.generate(Prompt::Ids(ids.clone()), &config).unwrap();
    assert_eq!(bits(&again), bits(&of_tokens));
    assert!(again.usage.cached_prompt_tokens > 0);
    assert_eq!(bits(&generator.generate(changed(), &config).unwrap()), bits(&of_changed));
}

#[test]
fn embeddings_are_computed_again_when_the_cache_runs_out() {
    let options = GeneratorOptions::new().num_threads(2).kv_cache_bytes(14 * BLOCK_BYTES);
    let (generator, alone) = (Generator::bundled_with(&options).unwrap(), Generator::bundled().unwrap());
    let config = GenerationConfig::new().max_new_tokens(90).num_beams(2).output_logits(true);
    let prompts: Vec<Vec<TokenId>> = (0..6).map(|index| ids(60 + index, index as u32)).collect();
    let list: Vec<Prompt> = prompts.iter().map(|ids| prompt(&generator, ids)).collect();
    let got = bits(&generator.generate(list, &config).unwrap());
    assert!(generator.engine().preemptions() > 0, "somebody lost their blocks");
    let of = |output: GenerationOutput| (output.rows[0].generated.token_ids.clone(), bits(&output));
    for (index, ids) in prompts.iter().enumerate() {
        let (tokens, _) = of(alone.generate(Prompt::Ids(ids.clone()), &config).unwrap());
        assert_eq!(got[index].0, tokens, "prompt {index}");
    }
}

#[test]
fn embeddings_that_fit_no_model_are_refused() {
    let generator = Generator::bundled().unwrap();
    let (hidden_size, context) = (generator.config().hidden_size, generator.config().context_len());
    let refused = |prompt: Prompt, message: &str| {
        let error = generator.generate(prompt, &GenerationConfig::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains(message), "{error}");
    };
    let of = |len: usize, size: usize| Embeddings::new(vec![0.1; len * size], size).unwrap();
    refused(of(2, hidden_size - 1).into(), "the size of the model's");
    refused(of(context, hidden_size).into(), "at least 1 is to be generated");
    let too_many_ids = PromptBatch::with_embeddings(vec![of(2, 4)], vec![ids(1, 1), ids(1, 1)], None);
    assert!(too_many_ids.unwrap_err().to_string().contains("a row for each of their 1 prompts"));
    let wrong_mask = PromptBatch::with_embeddings(vec![of(2, 4)], Vec::new(), Some(vec![vec![true; 3]]));
    assert!(wrong_mask.unwrap_err().to_string().contains("must have the shape of the embeddings, [1, 2]"));
    let uneven = PromptBatch::with_embeddings(vec![of(2, 4), of(3, 4)], Vec::new(), None);
    assert!(uneven.unwrap_err().to_string().contains("must have one shape"));
    let error = generator.embed(&[TokenId(1 << 20)]).unwrap_err();
    assert!(error.to_string().contains("at position 0"), "{error}");
    let scored = generator.score(Prompt::from(of(2, hidden_size))).unwrap_err();
    assert!(scored.to_string().contains("embeddings are no text"), "{scored}");
}
