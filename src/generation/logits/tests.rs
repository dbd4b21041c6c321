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

/// The settings of a request with one prompt of two ids.
pub(super) fn settings(config: &GenerationConfig) -> ProcessorSettings<'_> {
    ProcessorSettings {
        config,
        do_sample: config.do_sample == Some(true),
        num_beams: 1,
        num_beam_groups: 1,
        prompts: &[],
        prompt_len: 2,
        min_length: 2 + config.min_new_tokens.unwrap_or(0),
        max_length: 20,
        eos_token_ids: &[TokenId(1)],
    }
}

fn names(config: &GenerationConfig, callers: &[&'static str]) -> Vec<String> {
    let callers: Vec<Arc<dyn LogitsProcessor>> =
        callers.iter().map(|&name| Arc::new(Named(name)) as Arc<dyn LogitsProcessor>).collect();
    build(&settings(config), &callers).unwrap().names().map(str::to_owned).collect()
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
    for entry in PROCESSORS {
        assert!(GenerationConfig::is_field(entry.switch), "{}", entry.switch);
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
    let mut context = ProcessContext::new(vec![RowContext::of_prompt(&[])]);
    let error = list.process(&mut ScoreRows::new(&mut [0.0], 1), &mut context).unwrap_err();
    assert_eq!(error.to_string(), "Failing: no");
}

#[test]
fn a_constructor_takes_its_arguments_by_name() {
    let top_k = PROCESSORS.iter().find(|entry| entry.name == "top_k").unwrap();
    let given = |arguments: &[(&str, i64)]| {
        let arguments = arguments.iter().map(|&(name, value)| (name.to_owned(), Argument::from(value)));
        top_k.construct(arguments, None).map_err(|error| error.to_string())
    };
    let processor = given(&[("min_tokens_to_keep", 3), ("top_k", 1)]).ok().unwrap();
    assert_eq!(kept(&process(&*processor, &[], &SECOND)), [3, 4, 7]);
    let message = |arguments: &[(&str, i64)]| given(arguments).err().unwrap();
    assert_eq!(message(&[]), "`top_k` must be given: it is an integer of 0 or more");
    assert_eq!(message(&[("top_k", -1)]), "`top_k` must be an integer of 0 or more, but is -1");
    assert_eq!(message(&[("top_k", 1), ("k", 1)]), "`k` is no argument of this processor");
    assert!(message(&[("top_k", 0)]).starts_with("`top_k` must be 1 or more"));
    let names: Vec<_> = top_k.arguments().into_iter().map(|argument| argument.name).collect();
    assert_eq!(names, ["top_k", "filter_value", "min_tokens_to_keep"]);
}

#[test]
fn a_callers_namesake_is_an_error_in_transformers_4_49() {
    let config = GenerationConfig::new().repetition_penalty(1.1).compat(Compat::V4_49);
    let mine: Arc<dyn LogitsProcessor> = Arc::new(Named("RepetitionPenaltyLogitsProcessor"));
    let error = build(&settings(&config), &[mine]).unwrap_err().to_string();
    assert!(
        error.contains("no RepetitionPenaltyLogitsProcessor when `repetition_penalty` asks for one"),
        "{error}"
    );
    let warper: Arc<dyn LogitsProcessor> = Arc::new(Named("TopKLogitsWarper"));
    assert!(build(&settings(&config.do_sample(true)), &[warper]).is_ok());
}
