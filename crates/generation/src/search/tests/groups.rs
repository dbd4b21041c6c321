//! Groups of beams on the scripted model. What is expected is what transformers 4.55.4 gives for a model that
//! looks up the same table.

use super::*;

// generate([[0, 0, 4, 9], [2, 7, 8, 6]], attention_mask=[[0, 0, 1, 1], [1, 1, 1, 1]], num_beams=6,
// num_beam_groups=3, diversity_penalty=0.8, num_return_sequences=3, max_new_tokens=6, eos_token_id=1,
// pad_token_id=0, …)
fn padded_prompts_in_three_groups() -> (GenerationConfig, PromptBatch) {
    let prompts = PromptBatch::rectangular(vec![ids(&[0, 0, 4, 9]), ids(&[2, 7, 8, 6])]).unwrap();
    let config = config()
        .num_beams(6)
        .num_beam_groups(3)
        .diversity_penalty(0.8)
        .num_return_sequences(3)
        .max_new_tokens(6)
        .eos_token_id(1)
        .pad_token_id(0);
    (config, prompts)
}

fn tokens(transcript: &Transcript) -> Vec<Vec<u32>> {
    rows(transcript).into_iter().map(|(tokens, _)| tokens).collect()
}

#[test]
fn groups_of_several_prompts_are_those_of_transformers() {
    let (config, prompts) = padded_prompts_in_three_groups();
    let transcript = generate(&config, prompts);
    assert_eq!(
        tokens(&transcript),
        [
            vec![4, 6, 7, 4, 6, 7],
            vec![4, 6, 7, 1],
            vec![9, 9, 4, 6, 7, 1],
            vec![7, 1],
            vec![7, 4, 6, 7, 1],
            vec![10, 8, 9, 4, 6, 7],
        ]
    );
    let scores = transcript.output.rows.iter().map(|row| row.score.unwrap());
    for (score, expected) in scores.zip([-0.9775, -0.9805, -1.2231, -1.0263, -1.0333, -1.2064]) {
        assert!((score - expected).abs() < 1e-4, "{score} {expected}");
    }
}

// … encoder_no_repeat_ngram_size=1
#[test]
fn processors_that_know_the_prompts_find_them_from_every_group() {
    let (config, prompts) = padded_prompts_in_three_groups();
    let transcript = generate(&config.encoder_no_repeat_ngram_size(1), prompts);
    assert_eq!(
        tokens(&transcript),
        [
            vec![10, 8, 2, 11, 6, 7],
            vec![5, 10, 8, 2, 11, 6],
            vec![5, 2, 11, 6, 7, 1],
            vec![0, 5, 10, 1],
            vec![0, 5, 10, 9, 9, 4],
            vec![3, 0, 5, 0, 5, 10],
        ]
    );
}

// … prefix_allowed_tokens_fn=lambda batch_id, ids: [1, 2, 3, 5, 7, 11] if batch_id else [0, 2, 4, 6, 8, 10]
#[test]
fn a_prefix_function_is_asked_for_the_right_prompt_in_every_group() {
    let (config, prompts) = padded_prompts_in_three_groups();
    let mut context = context();
    context.prefix_allowed_tokens_fn = Some(Arc::new(|batch_id: usize, _: &[TokenId]| {
        ids(if batch_id == 0 { &[0, 2, 4, 6, 8, 10] } else { &[1, 2, 3, 5, 7, 11] })
    }));
    let mut model = ScriptedModel::bigram(table());
    let transcript = try_generate(&config, prompts, &context, &mut model).unwrap();
    assert_eq!(
        tokens(&transcript),
        [
            vec![4, 6, 0, 4, 6, 0],
            vec![4, 6, 0, 10, 8, 2],
            vec![4, 10, 8, 2, 4, 6],
            vec![7, 1],
            vec![7, 7, 1],
            vec![7, 1],
        ]
    );
}
