//! Watermarks in every search: each sequence is marked by its own tokens, wherever it comes from. Where
//! sequences fork or roll back, transformers mixes up what SynthID remembers of them; here each score follows
//! from the tokens before it.

use proptest::prelude::*;

use super::super::super::config::{
    SeedingScheme, SynthIDTextWatermarkingConfig, Watermarking, WatermarkingConfig,
};
use super::super::super::logits::{
    LogitsProcessor, RowContext, SynthIDTextWatermarkLogitsProcessor, WatermarkLogitsProcessor,
};
use super::assisted::{assert_same, repeating};
use super::drafts::{Assistant, compared, with_draft};
use super::*;
use rsgen_kernels::{Isa, log_softmax};

fn green(seeding_scheme: SeedingScheme, context_width: usize, hashing_key: i128) -> Watermarking {
    let green = WatermarkingConfig { hashing_key, seeding_scheme, context_width, ..Default::default() };
    WatermarkingConfig { greenlist_ratio: 0.5, bias: 1.5, ..green }.into()
}

fn synthid(ngram_len: usize, context_history_size: usize, skip_first_ngram_calls: bool) -> Watermarking {
    let base = SynthIDTextWatermarkingConfig::new(ngram_len, vec![5, 77, -3]);
    SynthIDTextWatermarkingConfig { context_history_size, skip_first_ngram_calls, ..base }.into()
}

fn watermarks() -> impl Strategy<Value = Watermarking> {
    let schemes = prop::sample::select(vec![SeedingScheme::LeftHash, SeedingScheme::SelfHash]);
    prop_oneof![
        (schemes, 1_usize..4, -9_i128..9).prop_map(|(scheme, width, key)| green(scheme, width, key)),
        (1_usize..4, 0_usize..6, any::<bool>())
            .prop_map(|(len, history, skips)| synthid(len, history, skips)),
    ]
}

/// The processor by itself.
fn processor(watermarking: &Watermarking) -> Box<dyn LogitsProcessor> {
    match watermarking.clone() {
        Watermarking::GreenList(config) => {
            let WatermarkingConfig { greenlist_ratio, bias, hashing_key, seeding_scheme, context_width } =
                config;
            let processor = WatermarkLogitsProcessor::new(
                VOCAB,
                greenlist_ratio,
                bias,
                hashing_key,
                seeding_scheme,
                context_width,
            );
            Box::new(processor.unwrap())
        }
        Watermarking::SynthIDText(config) => Box::new(
            SynthIDTextWatermarkLogitsProcessor::new(
                config.ngram_len,
                config.keys,
                config.sampling_table_size,
                config.sampling_table_seed,
                config.context_history_size,
                config.skip_first_ngram_calls,
                config.debug_mode,
            )
            .unwrap(),
        ),
    }
}

/// The marked scores after `generated`, computed from these tokens alone.
fn marked(
    model: &mut ScriptedModel,
    watermarking: &Watermarking,
    (prompt, generated): (&[TokenId], &[TokenId]),
    is_log_softmax: bool,
) -> Vec<f32> {
    let ids = [prompt, generated].concat();
    let mut scores = model.logits_after(&ids);
    if is_log_softmax {
        log_softmax(Isa::fastest(), &mut scores);
    }
    let mut row = RowContext { prompt_len: prompt.len(), ..RowContext::of_prompt(&ids) };
    processor(watermarking).process_row(&mut scores, &mut row).unwrap();
    scores
}

/// The rows of a request as single prompts are generated.
fn tokens(transcript: &Transcript) -> Vec<Vec<TokenId>> {
    transcript.output.rows.iter().map(|row| row.token_ids.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_scores_of_drawn_rows_follow_from_their_own_tokens(
        seed in 0_u64..1000,
        watermark in watermarks(),
        num_return_sequences in 1_usize..4,
        eos in prop::option::of(0_u32..VOCAB as u32),
    ) {
        let mut config = config()
            .do_sample(true)
            .top_k(0)
            .seed(seed)
            .num_return_sequences(num_return_sequences)
            .max_new_tokens(14)
            .output_scores(true)
            .watermarking_config(watermark.clone());
        config.eos_token_id = eos.map(|eos| TokenId(eos).into());
        let prompt = ids(&[3, 5]);
        let transcript =
            try_generate(&config, single(&[3, 5]), &context(), &mut repeating(seed)).unwrap();
        for (row, kept) in transcript.output.rows.iter().zip(&transcript.output.sequences) {
            for (step, scores) in kept.scores.as_ref().unwrap().iter().enumerate() {
                let so_far = (&prompt[..], &row.token_ids[..step]);
                let expected = marked(&mut repeating(seed), &watermark, so_far, false);
                prop_assert_eq!(scores, &expected, "step {}", step);
            }
        }
    }

    #[test]
    fn the_score_of_a_beam_is_that_of_its_own_tokens(
        seed in 0_u64..1000,
        watermark in watermarks(),
        num_beams in 2_usize..5,
        do_sample in any::<bool>(),
    ) {
        let mut config = config()
            .num_beams(num_beams)
            .num_return_sequences(num_beams)
            .max_new_tokens(9)
            .length_penalty(0.0)
            .watermarking_config(watermark.clone());
        if do_sample {
            config = config.do_sample(true).top_k(0).seed(seed);
        }
        let prompt = ids(&[3, 5]);
        let transcript =
            try_generate(&config, single(&[3, 5]), &context(), &mut repeating(seed)).unwrap();
        prop_assert_eq!(transcript.output.rows.len(), num_beams);
        for row in &transcript.output.rows {
            let mut sum = 0.0;
            for (step, token) in row.token_ids.iter().enumerate() {
                let so_far = (&prompt[..], &row.token_ids[..step]);
                sum += marked(&mut repeating(seed), &watermark, so_far, true)[token.index()];
            }
            let score = row.score.unwrap();
            prop_assert!((score - sum).abs() < 1e-3, "{:?}: {} and not {}", row.token_ids, score, sum);
        }
    }

    #[test]
    fn each_prompt_of_several_is_marked_as_it_is_alone(
        seed in 0_u64..1000,
        watermark in watermarks(),
        prompts in prop::collection::vec(prop::collection::vec(0_u32..VOCAB as u32, 3), 2..4),
        num_beams in 1_usize..4,
    ) {
        let config = config().num_beams(num_beams).max_new_tokens(10).watermarking_config(watermark);
        let batch = PromptBatch::rectangular(prompts.iter().map(|prompt| ids(prompt)).collect()).unwrap();
        let together = try_generate(&config, batch, &context(), &mut repeating(seed)).unwrap();
        for (prompt, row) in prompts.iter().zip(tokens(&together)) {
            let alone = try_generate(&config, single(prompt), &context(), &mut repeating(seed)).unwrap();
            prop_assert_eq!(&tokens(&alone)[0], &row);
        }
    }

    #[test]
    fn drafts_that_are_rejected_leave_no_trace(
        seed in 0_u64..1000,
        watermark in watermarks(),
        num_tokens in 1_usize..7,
        assistant in prop::sample::select(vec![Assistant::Same, Assistant::Similar, Assistant::Unrelated]),
    ) {
        let config = config().max_new_tokens(16).output_scores(true).watermarking_config(watermark);
        let prompts = single(&[3, 5, 3, 5]);
        let fields = GenerationConfig::new().num_assistant_tokens(num_tokens);
        compared(&config, &fields, &prompts, &with_draft(context()), (seed, assistant));
        let plain = try_generate(&config, prompts.clone(), &context(), &mut repeating(seed)).unwrap();
        let lookup = config.prompt_lookup_num_tokens(num_tokens);
        let looked_up = try_generate(&lookup, prompts, &context(), &mut repeating(seed)).unwrap();
        assert_same(&looked_up, &plain);
    }
}

#[test]
fn a_mark_changes_the_text() {
    let plain = tokens(&generate(&config().max_new_tokens(12), single(&[3, 5])));
    for watermark in
        [green(SeedingScheme::LeftHash, 1, 7), green(SeedingScheme::SelfHash, 2, 7), synthid(3, 9, false)]
    {
        let config = config().max_new_tokens(12).watermarking_config(watermark);
        assert_ne!(tokens(&generate(&config, single(&[3, 5]))), plain);
    }
}
