//! Tests of the registry and the list, and what the processors' own tests share.

use super::*;

/// The rows of scores that the goldens of the processors were computed from.
pub(super) const FIRST: [f32; 8] = [1.5, -2.25, 0.0, 3.125, -0.5, 3.125, f32::NEG_INFINITY, 0.75];
pub(super) const SECOND: [f32; 8] = [0.3, 0.1, -0.7, 2.2, 1.9, -3.3, 0.6, 1.1];

/// What `processor` makes of one row of scores after `ids`.
pub(super) fn process(processor: &dyn LogitsProcessor, ids: &[u32], scores: &[f32]) -> Vec<f32> {
    process_padded(processor, ids, 0, scores)
}

/// The same when the first `padding_len` ids are padding.
pub(super) fn process_padded(
    processor: &dyn LogitsProcessor,
    ids: &[u32],
    padding_len: usize,
    scores: &[f32],
) -> Vec<f32> {
    let ids: Vec<TokenId> = ids.iter().copied().map(TokenId).collect();
    let mut scores = scores.to_vec();
    let vocab_size = scores.len();
    let row = RowContext { padding_len, ..RowContext::of_prompt(&ids) };
    processor
        .process(&mut ScoreRows::new(&mut scores, vocab_size), &mut ProcessContext::new(vec![row]))
        .unwrap();
    scores
}

/// The ids that a row of scores still allows.
pub(super) fn kept(scores: &[f32]) -> Vec<usize> {
    (0..scores.len()).filter(|&id| scores[id] > f32::NEG_INFINITY).collect()
}

struct Named(&'static str);

impl LogitsProcessor for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn process_row(&self, scores: &mut [f32], _row: &mut RowContext<'_>) -> Result<()> {
        scores[0] += 1.0;
        Ok(())
    }
}

fn names(config: &GenerationConfig, callers: &[&'static str]) -> Vec<String> {
    let callers: Vec<Arc<dyn LogitsProcessor>> =
        callers.iter().map(|&name| Arc::new(Named(name)) as Arc<dyn LogitsProcessor>).collect();
    let settings = ProcessorSettings {
        config,
        do_sample: config.do_sample == Some(true),
        prompt_len: 2,
        min_length: 2 + config.min_new_tokens.unwrap_or(0),
        eos_token_ids: &[TokenId(1)],
    };
    build(&settings, &callers).unwrap().names().map(str::to_owned).collect()
}

fn everything() -> GenerationConfig {
    GenerationConfig::new()
        .repetition_penalty(1.1)
        .min_new_tokens(3)
        .temperature(0.7)
        .top_k(5)
        .top_p(0.9)
        .min_p(0.1)
}

#[test]
fn the_order_is_that_of_transformers() {
    assert_eq!(
        names(&everything().do_sample(true), &["Mine"]),
        [
            "RepetitionPenaltyLogitsProcessor",
            "MinLengthLogitsProcessor",
            "MinNewTokensLengthLogitsProcessor",
            "Mine",
            "TemperatureLogitsWarper",
            "TopKLogitsWarper",
            "TopPLogitsWarper",
            "MinPLogitsWarper",
        ]
    );
}

#[test]
fn warpers_take_part_in_sampling_only() {
    assert_eq!(
        names(&everything(), &["Mine"]),
        [
            "RepetitionPenaltyLogitsProcessor",
            "MinLengthLogitsProcessor",
            "MinNewTokensLengthLogitsProcessor",
            "Mine"
        ]
    );
}

#[test]
fn sampling_has_top_k_50_unless_it_is_switched_off() {
    let sampling = GenerationConfig::new().do_sample(true);
    assert_eq!(names(&sampling, &[])[1..], ["TopKLogitsWarper"]);
    assert_eq!(names(&sampling.top_k(0), &[]).len(), 1);
}

#[test]
fn neutral_values_make_no_processor() {
    let neutral = GenerationConfig::new()
        .do_sample(true)
        .top_k(0)
        .top_p(1.0)
        .temperature(1.0)
        .repetition_penalty(1.0)
        .min_new_tokens(0);
    assert_eq!(names(&neutral, &[]), ["MinLengthLogitsProcessor"]);
}

#[test]
fn a_callers_processor_replaces_its_namesake_in_place_but_no_warper() {
    let config = GenerationConfig::new().do_sample(true).repetition_penalty(1.1);
    assert_eq!(
        names(&config, &["Mine", "TopKLogitsWarper", "RepetitionPenaltyLogitsProcessor"]),
        [
            "RepetitionPenaltyLogitsProcessor",
            "MinLengthLogitsProcessor",
            "Mine",
            "TopKLogitsWarper",
            "TopKLogitsWarper"
        ]
    );
}

#[test]
fn every_field_of_the_table_is_a_field_of_the_configuration() {
    for place in PROCESSORS {
        if let Place::BuiltIn(entry) = place {
            assert!(GenerationConfig::is_field(entry.field), "{}", entry.field);
        }
    }
}

struct Failing;

impl LogitsProcessor for Failing {
    fn name(&self) -> &'static str {
        "Failing"
    }

    fn process_row(&self, _scores: &mut [f32], _row: &mut RowContext<'_>) -> Result<()> {
        Err(crate::error::Error::callback("no"))
    }
}

#[test]
fn an_error_names_its_processor() {
    let list = LogitsProcessorList::new(vec![Arc::new(Failing)]);
    let mut states = list.new_states();
    let mut row = [RowToProcess {
        input_ids: &[],
        prompt_len: 0,
        padding_len: 0,
        prompt_index: 0,
        row_index: 0,
        beam_group: 0,
        group_tokens: &[],
        companion_logits: Vec::new(),
        states: &mut states,
    }];
    let error = list.process(&mut ScoreRows::new(&mut [0.0], 1), &mut row).unwrap_err();
    assert_eq!(error.to_string(), "Failing: no");
}
