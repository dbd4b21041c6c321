//! Healing on a scripted model: what is chosen in place of the last token, and what the search then
//! continues.

use std::sync::Arc;

use super::super::healing::HealingSearch;
use super::super::{Search, SearchInputs, SearchResults, SearchStep, build};
use crate::config::GenerationConfig;
use crate::healing::Tokens;
use crate::plan::{GenerationPlan, PlanContext};
use crate::prompt::PromptBatch;
use crate::tests::{ScriptedModel, WordVocabulary, run};
use crate::vocabulary::Vocabulary;
use rsgen_core::{Result, TokenId};

const WORDS: [&str; 10] = ["<s>", "<pad>", "a", "ab", "abc", " ", "b", "x", "c", "<"];

/// Words with a beginning-of-sequence and a pad token, which encoding adds and decoding skips.
struct Special {
    words: WordVocabulary,
    has_pad: bool,
}

impl Vocabulary for Special {
    fn len(&self) -> usize {
        self.words.len()
    }

    fn token(&self, token: TokenId) -> Option<&str> {
        self.words.token(token)
    }

    fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        self.words.token_bytes(token)
    }

    fn is_special(&self, token: TokenId) -> bool {
        token.0 < 2
    }

    fn bos(&self) -> Option<TokenId> {
        Some(TokenId(0))
    }

    fn pad(&self) -> Option<TokenId> {
        self.has_pad.then_some(TokenId(1))
    }

    fn decode(&self, tokens: &[TokenId], skip_special: bool) -> Result<String> {
        let kept: Vec<TokenId> =
            tokens.iter().copied().filter(|&token| !(skip_special && self.is_special(token))).collect();
        self.words.decode(&kept, false)
    }

    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<TokenId>> {
        let words = self.words.encode(text, false)?;
        Ok(add_special.then_some(TokenId(0)).into_iter().chain(words).collect())
    }
}

fn vocabulary(has_pad: bool) -> Special {
    let words = WORDS.map(|word| word.as_bytes().to_vec()).to_vec();
    Special { words: WordVocabulary::new(words), has_pad }
}

fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

fn context() -> PlanContext {
    let mut context = PlanContext::new(WORDS.len(), 64);
    context.vocabulary = Some(Arc::new(vocabulary(true)));
    context
}

/// What a choice is made after, and what the scores of tokens gain.
type Choice = (Vec<TokenId>, Vec<(u32, f64)>);

/// The ids of a prompt that is healed, what is chosen after, and the tokens whose scores gain.
fn healed(vocabulary: &Special, prompt: &[u32]) -> (Vec<TokenId>, Option<Choice>) {
    let tokens = Tokens { vocabulary, vocab_size: WORDS.len() };
    let healed = tokens.heal(tokens.encode(&ids(prompt)).unwrap(), false).unwrap();
    let choice = healed.choice.map(|choice| {
        let mut bias: Vec<(u32, f64)> =
            choice.bias.entries().iter().map(|&(token, bias)| (token.0, bias)).collect();
        bias.sort_by_key(|&(token, _)| token);
        (choice.before, bias)
    });
    (healed.ids, choice)
}

#[test]
fn the_last_token_and_those_that_extend_it_gain_and_padding_begins_the_prompt() {
    let bias = vec![(2, 11.0), (3, 10.0), (4, 10.0)];
    // "xa" and "xa  ", with the beginning-of-sequence token of the tokenizer.
    for prompt in [&[0, 7, 2][..], &[7, 2], &[0, 7, 2, 5, 5]] {
        assert_eq!(
            healed(&vocabulary(true), prompt),
            (ids(&[1, 7, 2]), Some((ids(&[1, 7]), bias.clone()))),
            "{prompt:?}"
        );
    }
    let without_pad = (ids(&[0, 7, 2]), Some((ids(&[0, 7]), bias.clone())));
    assert_eq!(healed(&vocabulary(false), &[0, 7, 2]), without_pad);
    // A single token is chosen after the beginning of the text.
    assert_eq!(healed(&vocabulary(true), &[2]), (ids(&[0, 2]), Some((ids(&[0]), bias))));
    // Special tokens are texts, too.
    let (_, choice) = healed(&vocabulary(true), &[7, 9]);
    assert_eq!(choice.unwrap().1, [(0, 10.0), (1, 10.0), (9, 11.0)]);
}

#[test]
fn nothing_is_chosen_where_nothing_extends_the_last_token() {
    assert_eq!(healed(&vocabulary(true), &[0, 2, 7]), (ids(&[1, 2, 7]), None));
    assert_eq!(healed(&vocabulary(true), &[0, 2, 4]), (ids(&[1, 2, 4]), None));
    assert_eq!(healed(&vocabulary(true), &[0]), (ids(&[1]), None));
    let tokens = Tokens { vocabulary: &vocabulary(true), vocab_size: WORDS.len() };
    let kept = |prompt: &[u32]| tokens.heal_as_it_is(&ids(prompt)).unwrap();
    assert_eq!(kept(&[0, 1, 2]).choice.map(|choice| choice.before), Some(ids(&[0, 1])));
    assert_eq!(kept(&[7, 0]).choice, None, "a special token stays");
    assert_eq!(kept(&[2]).choice, None, "there is nothing to choose after");
    // Without a beginning-of-sequence token of the tokenizer's own, padding leaves room for one.
    let alone = |is_padded| tokens.heal(ids(&[2]), is_padded).unwrap();
    assert_eq!((alone(false).choice, alone(false).follows_bos), (None, false));
    assert_eq!(alone(true).choice.map(|choice| choice.before), Some(ids(&[0])));
    assert!(alone(true).follows_bos && alone(true).ids == ids(&[2]));
}

/// Likes the token after the last one, and after `x` the token `abc` a little more than others.
fn model() -> ScriptedModel {
    ScriptedModel::new(WORDS.len(), |tokens| {
        let last = tokens.last().map_or(0, |token| token.index());
        let mut logits = vec![0.0; WORDS.len()];
        logits[(last + 1) % WORDS.len()] = 3.0;
        if last == 7 {
            logits[4] = 2.5;
        }
        logits
    })
}

fn healing() -> GenerationConfig {
    GenerationConfig::new().token_healing(true).max_new_tokens(3)
}

#[test]
fn the_search_continues_the_healed_prompt_and_no_sequence_is_left() {
    let beams = healing().num_beams(2).num_return_sequences(2);
    let drawn = healing().do_sample(true).seed(3).num_return_sequences(3);
    for config in [healing(), beams, drawn, healing().prompt_lookup_num_tokens(2_usize)] {
        let after = |ids: &[u32], config: &GenerationConfig| {
            let prompt = PromptBatch::single(self::ids(ids)).unwrap();
            let mut model = model();
            let plan = GenerationPlan::new(config, prompt, &context()).unwrap();
            let output = run(build(plan), &mut model).unwrap().output;
            assert!(model.idle.iter().all(Vec::is_empty), "{:?}", model.idle);
            output
        };
        // "xa" becomes "xabc".
        let mut plain = config.clone();
        plain.token_healing = None;
        let (healed, expected) = (after(&[0, 7, 2], &config), after(&[1, 7, 4], &plain));
        assert_eq!(healed.rows, expected.rows);
    }
}

#[test]
fn the_prompts_are_told_once_and_a_cancelled_request_has_no_token() {
    let plan = GenerationPlan::new(&healing(), PromptBatch::single(ids(&[0, 7, 2])).unwrap(), &context());
    let mut plan = plan.unwrap();
    let healing = *plan.healing.take().unwrap();
    let (mut search, mut model) = (HealingSearch::new(plan, healing), model());
    let (mut inputs, mut step) = (SearchInputs::new(), SearchStep::default());
    search.wants(&mut inputs);
    let mut logits = model.compute(&inputs).unwrap();
    search.advance(SearchResults::of_logits(&mut logits, WORDS.len()), &mut step).unwrap();
    assert!(step.events.is_empty() && !step.finished);
    let prompts = search.take_prompts().unwrap();
    assert_eq!((prompts[0].input_ids(), prompts[0].tail()), (&ids(&[1, 7, 4])[..], Some(TokenId(2))));
    assert!(search.take_prompts().is_none());
    let output = Box::new(search).finish();
    assert!(output.rows[0].token_ids.is_empty());
}

#[test]
fn rows_of_a_batch_are_healed_each_and_padded_on_the_left() {
    let config = healing();
    let batch = PromptBatch::with_mask(
        vec![ids(&[1, 7, 2]), ids(&[7, 7, 7])],
        vec![vec![false, true, true], vec![true; 3]],
    );
    let plan = GenerationPlan::new(&config, batch.unwrap(), &context()).unwrap();
    assert!(plan.heals_prompts());
    assert_eq!(plan.prompts()[0].input_ids(), ids(&[1, 1, 7, 2]));
    assert_eq!(plan.prompts()[0].tokens(), ids(&[1, 7, 2]));
    let mut model = model();
    let rows = run(build(plan), &mut model).unwrap().output.rows;
    // After "abc" comes " ", after "xxx" the next token.
    assert_eq!((rows[0].token_ids[0], rows[1].token_ids[0]), (TokenId(5), TokenId(8)));
}

#[test]
fn where_the_models_file_draws_the_last_token_is_drawn_with_the_seed() {
    let mut context = context();
    context.model_defaults = Arc::new(GenerationConfig::new().do_sample(true).temperature(4.0));
    let draw = |seed: u64| {
        let config = healing().seed(seed);
        let prompt = PromptBatch::single(ids(&[0, 7, 2])).unwrap();
        let plan = GenerationPlan::new(&config, prompt, &context).unwrap();
        let output = run(build(plan), &mut model()).unwrap().output;
        (output.seed, output.rows[0].token_ids.clone())
    };
    assert_eq!(draw(5), draw(5));
    assert_eq!(draw(5).0, Some(5));
    let all: std::collections::HashSet<_> = (0..40).map(|seed| draw(seed).1).collect();
    assert!(all.len() > 5, "{all:?}");
}

#[test]
fn a_call_without_a_tokenizer_is_refused() {
    let prompt = PromptBatch::single(ids(&[2])).unwrap();
    let error = GenerationPlan::new(&healing(), prompt, &PlanContext::new(10, 64)).unwrap_err();
    assert!(error.to_string().contains("`token_healing` must be false for a model without a tokenizer"));
}
