//! Tests of planning: the message of every invalid value, and the rules by which fields are resolved.

use super::super::config::OneOrMany;
use super::*;
use crate::tests::WordVocabulary;
use crate::{LogitsProcessor, StoppingCriterion};
use rsgen_core::{ErrorKind, FinishReason, TokenId};

use super::super::logits::RowContext;
use super::super::stopping::StopContext;

fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

fn context() -> PlanContext {
    PlanContext::new(10, 64)
}

fn plan_of(config: &GenerationConfig, prompt: &[u32], context: &PlanContext) -> Result<GenerationPlan> {
    GenerationPlan::new(config, PromptBatch::single(ids(prompt))?, context)
}

fn plan(config: &GenerationConfig) -> Result<GenerationPlan> {
    plan_of(config, &[3, 4], &context())
}

fn config() -> GenerationConfig {
    GenerationConfig::new()
}

fn limited() -> GenerationConfig {
    config().max_new_tokens(5)
}

#[test]
fn each_impossible_value_names_field_rule_value_and_remedy() {
    let sampling = || limited().do_sample(true);
    let cases: Vec<(GenerationConfig, &str, &str)> = vec![
        (config().max_new_tokens(0), "`max_new_tokens` must be 1 or more", "0"),
        (config().max_length(0), "`max_length` counts the prompt and must be more than its 2 tokens", "0"),
        (config().max_length(2), "`max_length` counts the prompt and must be more than its 2 tokens", "2"),
        (limited().max_time(f64::NAN), "`max_time` must be a number of seconds", "NaN"),
        (limited().max_time(-1.0), "`max_time` must be a number of seconds", "-1.0"),
        (limited().max_time(f64::INFINITY), "`max_time` must be a number of seconds", "inf"),
        (limited().stop_strings("x"), "`stop_strings` needs the model's tokenizer", ""),
        (limited().num_beams(0), "`num_beams` must be 1 or more", "0"),
        (
            limited().num_beams(3).num_return_sequences(4),
            "`num_return_sequences` must be at most `num_beams` (3), but is 4",
            "num_beams=4",
        ),
        (limited().num_beams(usize::MAX), "`num_beams` times the number of prompts must be at most", ""),
        (limited().num_beams(2).length_penalty(f64::NAN), "`length_penalty` must be a finite number", "NaN"),
        (sampling().temperature(0.0), "`temperature` must be above 0", "do_sample=false"),
        (sampling().temperature(-0.5), "`temperature` must be a positive number", "-0.5"),
        (limited().temperature(f64::NAN), "`temperature` must be a positive number", "NaN"),
        (limited().temperature(f64::INFINITY), "`temperature` must be a positive number", "inf"),
        (limited().temperature(1e300), "`temperature` must be a positive number", "1e300"),
        (limited().top_p(1.5), "`top_p` must be a number from 0 to 1", "1.5"),
        (limited().top_p(-0.1), "`top_p` must be a number from 0 to 1", "-0.1"),
        (limited().top_p(f64::NAN), "`top_p` must be a number from 0 to 1", "NaN"),
        (limited().min_p(2.0), "`min_p` must be a number from 0 to 1", "2.0"),
        (limited().min_p(f64::NAN), "`min_p` must be a number from 0 to 1", "NaN"),
        (limited().repetition_penalty(0.0), "`repetition_penalty` must be a positive number", "0.0"),
        (limited().repetition_penalty(-1.0), "`repetition_penalty` must be a positive number", "-1.0"),
        (limited().repetition_penalty(f64::NAN), "`repetition_penalty` must be a positive number", "NaN"),
        (
            limited().repetition_penalty(f64::INFINITY),
            "`repetition_penalty` must be a positive number",
            "inf",
        ),
        (limited().num_return_sequences(0), "`num_return_sequences` must be 1 or more", "0"),
        (
            limited().num_return_sequences(2),
            "`num_return_sequences` must be 1 in greedy search",
            "do_sample=true",
        ),
        (sampling().num_return_sequences(usize::MAX), "must be at most 65536", "make several requests"),
        (limited().pad_token_id(10), "`pad_token_id` must be an id of the model's vocabulary, 0 to 9", "10"),
        (limited().bos_token_id(11), "`bos_token_id` must be an id of the model's vocabulary, 0 to 9", "11"),
        (
            limited().eos_token_id([TokenId(1), TokenId(99)]),
            "`eos_token_id` must be an id of the model's vocabulary, 0 to 9",
            "99",
        ),
        (limited().prefill_chunk_size(0), "`prefill_chunk_size` must be 1 or more", "0"),
        (sampling().seed(vec![1, 2]), "`seed` must be one seed for one request, but lists 2", ""),
        (sampling().seed(vec![]), "`seed` must be one seed for one request, but lists 0", ""),
    ];
    for (config, rule, rest) in cases {
        let error = plan(&config).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(rule) && message.contains(rest), "{config:?}: {message}");
        assert_eq!(error.kind(), ErrorKind::Config, "{message}");
    }
}

#[test]
fn a_model_without_vocabulary_is_a_defect() {
    let error = plan_of(&limited(), &[3], &PlanContext::new(0, 64)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[test]
fn impossible_stop_strings_are_refused() {
    let vocabulary = Arc::new(WordVocabulary::new(vec![b"ab".to_vec()]));
    let context = PlanContext { vocabulary: Some(vocabulary), ..context() };
    let error = |texts: OneOrMany<String>| {
        plan_of(&limited().stop_strings(texts), &[3], &context).unwrap_err().to_string()
    };
    assert!(error("".into()).contains("`stop_strings` must hold texts that are not empty"));
    assert!(error(["b", "xyz"].into()).contains("no token of the vocabulary can complete \"xyz\""));
    assert!(plan_of(&limited().stop_strings("bc"), &[3], &context).is_err());
    assert!(plan_of(&limited().stop_strings("ca"), &[3], &context).is_ok());
    assert!(plan(&limited().stop_strings(Vec::<String>::new())).is_ok(), "an empty list is none");
}

#[test]
fn prompts_must_be_in_the_vocabulary_and_leave_room() {
    let error = |prompt: &[u32]| plan_of(&limited(), prompt, &context()).unwrap_err();
    assert!(error(&[3, 10]).to_string().contains("the prompt holds the id 10 (token 1)"));
    for len in [64, 65] {
        let message = error(&vec![3; len]).to_string();
        assert!(
            message.contains(&format!("the prompt has {len} tokens, but the model's context holds 64")),
            "{message}"
        );
        assert_eq!(error(&vec![3; len]).kind(), ErrorKind::Input);
    }
    assert!(plan_of(&limited(), &[3; 63], &context()).is_ok());
    let masked = PromptBatch::with_mask(vec![ids(&[99, 3])], vec![vec![false, true]]).unwrap();
    assert!(GenerationPlan::new(&limited(), masked, &context()).is_ok(), "padding may be any id");
}

#[test]
fn without_any_limit_the_default_holds_and_says_so() {
    let unlimited = plan(&config()).unwrap();
    assert_eq!(unlimited.max_new_tokens(0), 20);
    assert_eq!(
        unlimited.warnings(),
        ["generation stops after 20 new tokens, because nothing limits it; set `max_new_tokens`"]
    );
    assert_eq!(plan_of(&config(), &[3; 60], &context()).unwrap().max_new_tokens(0), 4);

    let to_the_end = PlanContext { default_length: DefaultLength::Context, ..context() };
    let plan = plan_of(&config(), &[3, 4], &to_the_end).unwrap();
    assert_eq!(plan.max_new_tokens(0), 62);
    assert!(plan.warnings().is_empty());
}

#[test]
fn a_limit_of_the_model_is_no_default() {
    let model_defaults = Arc::new(GenerationConfig::from_json_file(r#"{"max_length": 12}"#).unwrap());
    let context = PlanContext { model_defaults, ..context() };
    let plan = plan_of(&config(), &[3, 4], &context).unwrap();
    assert_eq!(plan.max_new_tokens(0), 10);
    assert!(plan.warnings().is_empty());
    let plan = plan_of(&config().max_new_tokens(3), &[3, 4], &context).unwrap();
    assert_eq!(plan.max_new_tokens(0), 3);
    assert!(plan.warnings().is_empty(), "the model's default gives way in silence");
    let plan = plan_of(&config().max_new_tokens(3).max_length(11), &[3, 4], &context).unwrap();
    assert_eq!(plan.max_new_tokens(0), 3);
    assert!(
        plan.warnings()[0].to_string().contains("`max_new_tokens` (3) and `max_length` (11) are both set")
    );
}

#[test]
fn a_limit_beyond_the_context_stops_there_with_a_warning() {
    for long in [config().max_new_tokens(100), config().max_new_tokens(usize::MAX), config().max_length(200)]
    {
        let plan = plan(&long).unwrap();
        assert_eq!(plan.max_new_tokens(0), 62);
        assert!(
            plan.warnings()[0].to_string().contains("has room for 62 new tokens"),
            "{:?}",
            plan.warnings()
        );
    }
    let stretched = PlanContext { context_len: 1000, ..context() };
    let plan = plan_of(&config().max_new_tokens(100), &[3, 4], &stretched).unwrap();
    assert_eq!(plan.max_new_tokens(0), 100);
    assert!(plan.warnings().is_empty());
}

#[test]
fn padding_takes_no_room_in_the_context() {
    let prompts = PromptBatch::with_mask(
        vec![ids(&[0; 60]), ids(&[3; 60])],
        vec![(0..60).map(|index| index == 59).collect(), vec![true; 60]],
    )
    .unwrap();
    let plan = GenerationPlan::new(&config().max_new_tokens(10), prompts, &context()).unwrap();
    assert_eq!((plan.max_new_tokens(0), plan.max_new_tokens(1)), (10, 4));
}

#[test]
fn a_least_length_that_cannot_be_reached_is_a_warning() {
    let plan = plan(&limited().eos_token_id(1).min_new_tokens(9)).unwrap();
    assert!(
        plan.warnings()[0].to_string().contains("the least length of 11 tokens cannot be reached"),
        "{:?}",
        plan.warnings()
    );
    assert_eq!(
        plan.processors().names().collect::<Vec<_>>(),
        ["MinLengthLogitsProcessor", "MinNewTokensLengthLogitsProcessor"]
    );
}

#[test]
fn sampling_fields_of_the_caller_without_sampling_are_a_warning() {
    let warned = plan(&limited().temperature(0.0).top_p(0.9).min_p(0.1).top_k(50)).unwrap();
    assert_eq!(
        warned.warnings(),
        ["`temperature`, `top_p`, `min_p` have no effect because `do_sample` is not set; set \
             do_sample=true to sample"]
    );
    assert!(plan(&limited().temperature(1.0).top_p(1.0)).unwrap().warnings().is_empty());

    let model_defaults = Arc::new(config().temperature(0.6).top_p(0.9));
    let inherited = plan_of(&limited(), &[3], &PlanContext { model_defaults, ..context() }).unwrap();
    assert!(inherited.warnings().is_empty());
}

#[test]
fn the_first_end_token_pads_unless_another_is_set() {
    assert_eq!(plan(&limited()).unwrap().config.pad_token_id, None);
    let two = limited().eos_token_id([TokenId(4), TokenId(5)]);
    assert_eq!(plan(&two).unwrap().config.pad_token_id, Some(TokenId(4)));
    assert_eq!(plan(&two.pad_token_id(0)).unwrap().config.pad_token_id, Some(TokenId(0)));
}

#[test]
fn ids_of_the_models_file_outside_of_its_vocabulary_do_no_harm() {
    let text = r#"{"eos_token_id": [1, 77], "pad_token_id": 77, "use_cache": false}"#;
    let model_defaults = Arc::new(GenerationConfig::from_json_file(text).unwrap());
    let plan = plan_of(&limited(), &[3], &PlanContext { model_defaults, ..context() }).unwrap();
    assert_eq!(plan.config.pad_token_id, Some(TokenId(77)));
    assert!(plan.warnings()[0].to_string().contains("outside of its vocabulary"), "{:?}", plan.warnings());
}

#[test]
fn a_seed_is_kept_or_drawn_when_sampling_and_absent_otherwise() {
    assert_eq!(plan(&limited().seed(5)).unwrap().seed(), None);
    assert_eq!(plan(&limited().do_sample(true).seed(5)).unwrap().seed(), Some(5));
    assert_eq!(plan(&limited().do_sample(true).seed([6])).unwrap().seed(), Some(6));
    let drawn = || plan(&limited().do_sample(true)).unwrap().seed().unwrap();
    let (first, second, third) = (drawn(), drawn(), drawn());
    assert!(first != second || second != third, "seeds are drawn anew");
    assert!(u32::try_from(first).is_ok());
}

#[test]
fn awkward_padding_is_a_warning() {
    let right =
        PromptBatch::with_mask(vec![ids(&[3, 4]), ids(&[3, 0])], vec![vec![true; 2], vec![true, false]])
            .unwrap();
    let plan = GenerationPlan::new(&limited(), right, &context()).unwrap();
    assert!(
        plan.warnings()[0].to_string().contains("prompt 1 is padded on the right"),
        "{:?}",
        plan.warnings()
    );

    let ambiguous = PromptBatch::rectangular(vec![ids(&[3, 4]), ids(&[1, 3])]).unwrap();
    let plan = GenerationPlan::new(&limited().eos_token_id(1), ambiguous, &context()).unwrap();
    assert!(plan.warnings()[0].to_string().contains("give an attention_mask"), "{:?}", plan.warnings());
    assert_eq!(plan.prompts()[1].tokens(), ids(&[1, 3]));
}

struct Guidance(Vec<TokenId>);

impl LogitsProcessor for Guidance {
    fn name(&self) -> &'static str {
        "Guidance"
    }

    fn process_row(&self, _scores: &mut [f32], _row: &mut RowContext<'_>) -> Result<()> {
        Ok(())
    }

    fn unconditional_prompt(&self, _prompt_index: usize, _prompt: &[TokenId]) -> Option<Vec<TokenId>> {
        Some(self.0.clone())
    }
}

#[test]
fn unconditional_prompts_are_checked_and_take_room_in_the_context() {
    let with = |unconditional: Vec<TokenId>| PlanContext {
        processors: vec![Arc::new(Guidance(unconditional))],
        ..context()
    };
    let plan =
        |unconditional: &[u32]| plan_of(&config().max_new_tokens(60), &[3, 4], &with(ids(unconditional)));
    assert!(plan(&[]).unwrap_err().to_string().contains("must have 1 to 63 tokens, but has 0"));
    assert!(plan(&[3; 64]).unwrap_err().to_string().contains("must have 1 to 63 tokens, but has 64"));
    assert!(
        plan(&[77])
            .unwrap_err()
            .to_string()
            .contains("unconditional prompt of a logits processor holds the id 77")
    );
    assert_eq!(plan(&[5; 10]).unwrap().max_new_tokens(0), 54);
}

struct AtOnce;

impl StoppingCriterion for AtOnce {
    fn name(&self) -> &'static str {
        "AtOnce"
    }

    fn should_stop(&self, _row: &StopContext<'_>) -> Result<Option<FinishReason>> {
        Ok(Some(FinishReason::Stop))
    }
}

#[test]
fn criteria_are_the_fields_and_the_callers() {
    let context = PlanContext { criteria: vec![Arc::new(AtOnce)], ..context() };
    let plan = plan_of(&limited().eos_token_id(1).max_time(9.0), &[3], &context).unwrap();
    assert_eq!(
        plan.criteria.names().collect::<Vec<_>>(),
        ["ContextLimit", "MaxLengthCriteria", "MaxTimeCriteria", "EosTokenCriteria", "AtOnce"]
    );
    assert_eq!(plan.config.mode, GenerationMode::Greedy);
    assert_eq!((plan.num_rows(), plan.config.prompt_len, plan.config.num_return_sequences), (1, 1, 1));
}

#[test]
fn fields_that_are_switched_off_have_the_librarys_defaults() {
    let file =
        config().eos_token_id(3).max_length(9).num_beams(2).num_return_sequences(2).length_penalty(2.0);
    let context = PlanContext { model_defaults: Arc::new(file), ..context() };
    let off = |names: &[&str]| {
        let config = names.iter().try_fold(config(), |config, name| config.switch_off(name)).unwrap();
        plan_of(&config, &[3, 4], &context).unwrap()
    };
    let plan = off(&["eos_token_id", "length_penalty"]);
    assert_eq!(
        (plan.config.eos_token_ids.len(), plan.config.length_penalty, plan.max_new_tokens(0)),
        (0, 1.0, 7)
    );
    let plan = off(&["num_beams", "num_return_sequences", "max_length", "pad_token_id"]);
    assert_eq!((plan.config.num_beams, plan.num_rows(), plan.max_new_tokens(0)), (1, 1, 20));
    assert_eq!(plan.config.pad_token_id, Some(TokenId(3)));
}
