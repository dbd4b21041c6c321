//! Tests of the registry and the list, and helpers that the processors' own tests share.

use super::super::config::{GenerationConfig, LogitBias, SequenceBias};
use super::*;

/// The rows of scores that the goldens of the processors were computed from.
pub(super) const FIRST: [f32; 8] = [1.5, -2.25, 0.0, 3.125, -0.5, 3.125, f32::NEG_INFINITY, 0.75];
pub(super) const SECOND: [f32; 8] = [0.3, 0.1, -0.7, 2.2, 1.9, -3.3, 0.6, 1.1];

/// Applies `processor` to one row of scores after `ids`.
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

/// The ids that have not been removed.
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

/// The configuration of a request with one prompt of two ids.
pub(super) fn resolved(fields: &GenerationConfig) -> ResolvedConfig {
    ResolvedConfig {
        prompt_len: 2,
        min_length: 2 + fields.min_new_tokens.unwrap_or(0),
        max_length: 20,
        eos_token_ids: vec![TokenId(1)],
        num_beams: 1,
        num_beam_groups: 1,
        num_return_sequences: 1,
        ..ResolvedConfig::of_fields(fields.clone(), 8)
    }
}

/// Applies `processor` to equal rows of scores after these ids.
pub(super) fn process_rows(processor: &dyn LogitsProcessor, ids: &[&[u32]], scores: &[f32]) -> Vec<Vec<f32>> {
    let ids: Vec<Vec<TokenId>> = ids.iter().map(|ids| ids.iter().copied().map(TokenId).collect()).collect();
    let rows = ids.iter().enumerate();
    let rows = rows.map(|(index, ids)| RowContext::numbered(ids, index)).collect();
    let mut all = scores.repeat(ids.len());
    processor.process(&mut ScoreRows::new(&mut all, scores.len()), &mut ProcessContext::new(rows)).unwrap();
    all.chunks(scores.len()).map(<[f32]>::to_vec).collect()
}

fn names(config: &GenerationConfig, callers: &[&'static str]) -> Vec<String> {
    let callers: Vec<Arc<dyn LogitsProcessor>> =
        callers.iter().map(|&name| Arc::new(Named(name)) as Arc<dyn LogitsProcessor>).collect();
    build(&resolved(config), &callers).unwrap().names().map(str::to_owned).collect()
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

/// The order of transformers' `_get_logits_processor`, of 4.49 where 5.23 has less.
const ORDER: [&str; 25] = [
    "SequenceBiasLogitsProcessor",
    "HammingDiversityLogitsProcessor",
    "EncoderRepetitionPenaltyLogitsProcessor",
    "RepetitionPenaltyLogitsProcessor",
    "NoRepeatNGramLogitsProcessor",
    "EncoderNoRepeatNGramLogitsProcessor",
    "NoBadWordsLogitsProcessor",
    "MinLengthLogitsProcessor",
    "MinNewTokensLengthLogitsProcessor",
    "PrefixConstrainedLogitsProcessor",
    "ForcedBOSTokenLogitsProcessor",
    "ForcedEOSTokenLogitsProcessor",
    "InfNanRemoveLogitsProcessor",
    "ExponentialDecayLengthPenalty",
    "SuppressTokensLogitsProcessor",
    "SuppressTokensAtBeginLogitsProcessor",
    "TemperatureLogitsWarper",
    "TopHLogitsWarper",
    "TopKLogitsWarper",
    "TopPLogitsWarper",
    "MinPLogitsWarper",
    "TypicalLogitsWarper",
    "EpsilonLogitsWarper",
    "EtaLogitsWarper",
    "LogitNormalization",
];

#[test]
fn the_order_is_that_of_transformers() {
    let place = |class: &&str| PROCESSORS.iter().position(|entry| entry.class == *class).unwrap();
    assert!(ORDER.iter().map(place).is_sorted());
    let first_warper = PROCESSORS.iter().position(|entry| entry.after_callers);
    assert_eq!(first_warper, Some(place(&"TemperatureLogitsWarper")));
    assert!(PROCESSORS.is_sorted_by_key(|entry| entry.after_callers));
    assert_eq!(PROCESSORS.last().unwrap().class, "LogitNormalization");
    assert_eq!(
        names(&everything().do_sample(true).renormalize_logits(true), &["Mine"]),
        [
            "RepetitionPenaltyLogitsProcessor",
            "MinLengthLogitsProcessor",
            "MinNewTokensLengthLogitsProcessor",
            "Mine",
            "TemperatureLogitsWarper",
            "TopKLogitsWarper",
            "TopPLogitsWarper",
            "MinPLogitsWarper",
            "LogitNormalization",
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
        .typical_p(1.0)
        .epsilon_cutoff(0.0)
        .eta_cutoff(0.0)
        .temperature(1.0)
        .repetition_penalty(1.0)
        .encoder_repetition_penalty(1.0)
        .frequency_penalty(0.0)
        .presence_penalty(0.0)
        .diversity_penalty(0.0)
        .no_repeat_ngram_size(0)
        .encoder_no_repeat_ngram_size(0)
        .remove_invalid_values(false)
        .renormalize_logits(false)
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
        let argument = entry.switch == "prefix_allowed_tokens_fn";
        assert!(argument || GenerationConfig::is_field(entry.switch), "{}", entry.switch);
    }
}

struct Failing;

impl LogitsProcessor for Failing {
    fn process_row(&self, _scores: &mut [f32], _row: &mut RowContext<'_>) -> Result<()> {
        Err(rsgen_core::error::Error::callback("no"))
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
    let names: Vec<_> = top_k.arguments.iter().map(|argument| argument.name).collect();
    assert_eq!(names, ["top_k", "filter_value", "min_tokens_to_keep"]);
}

#[test]
fn a_callers_namesake_is_an_error_in_transformers_4_49() {
    let config = GenerationConfig::new().repetition_penalty(1.1).compat(Compat::V4_49);
    let mine: Arc<dyn LogitsProcessor> = Arc::new(Named("RepetitionPenaltyLogitsProcessor"));
    let error = build(&resolved(&config), &[mine]).unwrap_err().to_string();
    assert!(
        error.contains("no RepetitionPenaltyLogitsProcessor when `repetition_penalty` asks for one"),
        "{error}"
    );
    let warper: Arc<dyn LogitsProcessor> = Arc::new(Named("TopKLogitsWarper"));
    assert!(build(&resolved(&config.do_sample(true)), &[warper]).is_ok());
}

#[test]
fn warpers_keep_a_token_more_than_can_end_a_text_when_there_are_beams() {
    let config = GenerationConfig::new();
    let kept = |num_beams, eos: &[TokenId]| {
        ResolvedConfig { num_beams, eos_token_ids: eos.to_vec(), ..resolved(&config) }.min_tokens_to_keep()
    };
    assert_eq!((kept(1, &[TokenId(1)]), kept(4, &[TokenId(1)])), (1, 2));
    assert_eq!((kept(4, &[]), kept(2, &[TokenId(1), TokenId(2), TokenId(3)])), (2, 4));
}

#[test]
fn a_processor_of_groups_takes_part_where_there_are_groups() {
    let config = GenerationConfig::new().diversity_penalty(0.5);
    let grouped = ResolvedConfig { num_beams: 4, num_beam_groups: 2, ..resolved(&config) };
    assert!(build(&grouped, &[]).unwrap().names().any(|name| name == "HammingDiversityLogitsProcessor"));
    assert_eq!(names(&config, &[]), ["MinLengthLogitsProcessor"]);
}

#[test]
fn fields_with_tokens_outside_of_the_vocabulary_are_refused_before_anything_is_computed() {
    let beyond = vec![TokenId(8)];
    for config in [
        GenerationConfig::new().sequence_bias(SequenceBias::new([(beyond.clone(), 1.0)])),
        GenerationConfig::new().logit_bias(LogitBias::new([(TokenId(8), 1.0)])),
        GenerationConfig::new().bad_words_ids(vec![beyond.clone()]),
        GenerationConfig::new().forced_bos_token_id(8),
        GenerationConfig::new().forced_eos_token_id(beyond),
    ] {
        let error = build(&resolved(&config), &[]).unwrap_err().to_string();
        assert!(error.contains("of the model's vocabulary, 0 to 7, but"), "{error}");
    }
}

#[test]
fn the_length_decay_needs_a_token_that_ends_texts() {
    let config = GenerationConfig::new().exponential_decay_length_penalty((3, 1.1));
    let without = ResolvedConfig { eos_token_ids: Vec::new(), ..resolved(&config) };
    let error = build(&without, &[]).unwrap_err().to_string();
    assert!(error.contains("`exponential_decay_length_penalty` needs a token that ends texts"), "{error}");
}

#[test]
fn the_same_object_twice_is_one_processor_but_in_transformers_4_49() {
    let mine: Arc<dyn LogitsProcessor> = Arc::new(Named("Mine"));
    let count = |config: &GenerationConfig| {
        let list = build(&resolved(config), &[Arc::clone(&mine), Arc::clone(&mine)]).unwrap();
        list.names().filter(|name| *name == "Mine").count()
    };
    assert_eq!(count(&GenerationConfig::new()), 1);
    assert_eq!(count(&GenerationConfig::new().compat(Compat::V4_49)), 2);
}

#[test]
fn prompts_of_a_list_have_the_numbers_of_their_places() {
    let config = GenerationConfig::new();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let numbers = Arc::clone(&seen);
    let function: Arc<dyn PrefixAllowedTokens> = Arc::new(move |batch_id: usize, _: &[TokenId]| {
        numbers.lock().unwrap().push(batch_id);
        vec![TokenId(0)]
    });
    let call = |compat: Option<Compat>, num_beams, num_beam_groups, num_return_sequences, rows: usize| {
        let config = GenerationConfig { compat, ..config.clone() };
        let config = ResolvedConfig {
            num_beams,
            num_beam_groups,
            num_return_sequences,
            first_prompt: 3,
            prefix_allowed_tokens_fn: Some(Arc::clone(&function)),
            ..resolved(&config)
        };
        let list = build(&config, &[]).unwrap();
        let rows = (0..rows).map(|index| RowContext::numbered(&[], index)).collect::<Vec<_>>();
        let mut scores = vec![0.0; rows.len()];
        list.process(&mut ScoreRows::new(&mut scores, 1), &mut ProcessContext::new(rows)).unwrap();
        std::mem::take(&mut *seen.lock().unwrap())
    };
    for compat in [None, Some(Compat::V5_23), Some(Compat::V4_49)] {
        assert_eq!(call(compat, 1, 1, 1, 1), [3]);
        let own = if compat.is_none() { [3, 3] } else { [6, 7] };
        assert_eq!(call(compat, 1, 1, 2, 2), own, "of the prompt; each row's own until 5.23");
        assert_eq!(call(compat, 4, 1, 2, 4), [3, 3, 3, 3]);
        assert_eq!(call(compat, 4, 2, 1, 2), [3, 3]);
    }
}
