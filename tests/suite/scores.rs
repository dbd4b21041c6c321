//! Scores of many texts: what they share is computed once, and nobody can tell from the results.

use proptest::prelude::*;
use rsgen::engine::TokenScore;
use rsgen::{Generator, GeneratorOptions, TokenId};

use crate::golden_support::path;

fn open(model: &str, prefix_caching: bool) -> Generator {
    let options =
        GeneratorOptions::new().num_threads(2).prefix_caching(prefix_caching).kv_cache_bytes(32 << 20);
    Generator::open_with(path(&format!("tests/golden/models/{model}")), &options).unwrap()
}

/// An id, the bits of its log-probability, its rank, and the most probable ids with theirs.
type Bits = (u32, u32, usize, Vec<(u32, u32)>);

fn bits(texts: &[Vec<TokenScore>]) -> Vec<Vec<Bits>> {
    let of_token = |score: &TokenScore| {
        let top = score.top_logprobs.iter().map(|(id, logprob)| (id.0, logprob.to_bits())).collect();
        (score.token_id.0, score.logprob.to_bits(), score.rank, top)
    };
    texts.iter().map(|text| text.iter().map(of_token).collect()).collect()
}

fn ids(numbers: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
    numbers.into_iter().map(TokenId).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    // Few different tokens, so that texts share beginnings, are equal, or begin others.
    #[test]
    fn texts_in_any_order_have_the_scores_that_each_has_alone(
        texts in prop::collection::vec((0_usize..3, prop::collection::vec(0_u32..2, 0..6)), 1..30),
        top_logprobs in 0_usize..3,
    ) {
        let beginnings = [ids(3..43), ids([3, 4, 9]), ids((3..43).chain(20..60))];
        let texts: Vec<_> =
            texts.into_iter().map(|(beginning, end)| [beginnings[beginning].clone(), ids(end)].concat()).collect();
        // With a window; with keys that depend on the length of the text, so that nothing can be shared.
        for model in ["qwen3_norms", "mistral_window", "config_4_dynamic"] {
            let together = open(model, true).token_scores(texts.clone(), top_logprobs).unwrap();
            let alone = open(model, false);
            let alone: Vec<_> = texts
                .iter()
                .map(|text| alone.token_scores([text.clone()], top_logprobs).unwrap().remove(0))
                .collect();
            prop_assert_eq!(bits(&together), bits(&alone), "{}", model);
            // One after the other: nothing is known of a text before those before it are planned.
            let (one_by_one, mut found) = (open(model, true), Vec::new());
            let mut given = texts.clone().into_iter();
            let given = std::iter::from_fn(|| given.next().map(|text| Ok(rsgen::Prompt::Ids(text))));
            let mut done = |_: usize, scores: rsgen::Result<Vec<TokenScore>>| {
                found.push(scores?);
                Ok(())
            };
            one_by_one.score_texts(given, top_logprobs, &mut || false, &mut done).unwrap();
            prop_assert_eq!(bits(&found), bits(&alone), "{}", model);
        }
    }
}

#[test]
fn a_beginning_is_computed_once_for_all_that_have_it() {
    const SHARED: u32 = 400;
    let beginning = || (0..SHARED).map(|index| (index * index / 3 + index) % 61);
    let texts: Vec<_> = (0..60).map(|end| ids(beginning().chain([end, end / 7, 3]))).collect();
    let generator = open("qwen3_norms", true);
    generator.token_scores(texts.clone(), 0).unwrap();
    let stats = generator.engine().pool().stats();
    assert_eq!((stats.used_blocks, stats.reserved_blocks), (0, 0));
    // All of it, of each text but the first.
    assert_eq!(stats.prefix_cache_hits, 59 * u64::from(SHARED));
}

#[test]
fn a_text_that_cannot_be_computed_is_no_beginning_of_others() {
    // A cache of three blocks; the first text takes more, and the second has a token that there is not.
    let options = GeneratorOptions::new().num_threads(1);
    let path = path("tests/golden/models/qwen3_norms");
    let layout = *Generator::open_with(&path, &options).unwrap().engine().pool().capacity().layout();
    let generator =
        Generator::open_with(&path, &options.kv_cache_bytes(3 * layout.bytes_per_block())).unwrap();
    let text = |end: &[u32]| ids((0..20).chain(end.iter().copied()));
    let long = ids((0..130).map(|index| index % 50));
    let texts = [[text(&[1]), long].concat(), text(&[1, 9_999_999]), text(&[1, 2]), text(&[1, 2, 3])];
    let mut found = Vec::new();
    let mut done = |_: usize, scores: rsgen::Result<Vec<TokenScore>>| {
        found.push(scores.map_err(|error| error.kind()));
        Ok(())
    };
    let given = texts.iter().map(|text| Ok(rsgen::Prompt::Ids(text.clone())));
    generator.score_texts(given, 0, &mut || false, &mut done).unwrap();
    let alone = |text: &Vec<TokenId>| generator.token_scores([text.clone()], 0).map(|mut all| all.remove(0));
    assert_eq!(found[0].as_ref().unwrap_err(), &rsgen::ErrorKind::Capacity);
    assert_eq!(found[1].as_ref().unwrap_err(), &rsgen::ErrorKind::Input);
    assert_eq!(found[2].as_ref().unwrap(), &alone(&texts[2]).unwrap());
    assert_eq!(found[3].as_ref().unwrap(), &alone(&texts[3]).unwrap());
}

#[test]
fn a_text_may_have_a_token_more_than_the_context() {
    let generator = open("qwen3_norms", true);
    let context = generator.config().context_len();
    let text = |len: usize| ids((0..len as u32).map(|index| index % 50));
    assert_eq!(generator.score(text(context + 1)).unwrap().len(), context + 1);
    let error = generator.score(text(context + 2)).unwrap_err().to_string();
    assert!(error.contains("must fit the model's context and one token more"), "{error}");
}
