//! A grammar begins where a model has thought.

use super::*;

/// `<` begins thinking, `>` ends it, and `#` leads to an answer.
fn thinks(config: GenerationConfig, start: &str, answer: &str) -> GenerationConfig {
    config.think_start_token_ids(ids(start)).think_end_token_ids(ids(">")).answer_start_token_ids(ids(answer))
}

fn ids(text: &str) -> Vec<TokenId> {
    text.bytes().map(|byte| TokenId(byte.into())).collect()
}

/// The letters that may follow a text, and whether it may end.
fn next(config: &GenerationConfig, text: &str) -> (String, bool) {
    let request = request(config, &[EOS], &context());
    let processor = GrammarLogitsProcessor::new(request, false, false);
    let mut scores = vec![0.0; VOCAB];
    let ids = ids(text);
    let mut row = crate::logits::RowContext { prompt_len: 0, ..crate::logits::RowContext::of_prompt(&ids) };
    processor.process_row(&mut scores, &mut row).unwrap();
    let letters = (33..127_u8).filter(|letter| scores[usize::from(*letter)] == 0.0);
    (letters.map(char::from).collect(), scores[EOS.index()] == 0.0)
}

#[test]
fn the_answer_alone_is_held() {
    let config = thinks(config().regex("a[bc]"), "<", "");
    assert_eq!(next(&config, ""), ("<a".to_owned(), false), "it thinks, or answers at once");
    assert_eq!(next(&config, "a"), ("bc".to_owned(), false));
    let (letters, may_end) = next(&config, "<ab");
    assert_eq!((letters.len(), may_end), (94, false), "thinking is free, but no end of the text");
    assert_eq!(next(&config, "<x>"), ("a".to_owned(), false), "it does not think twice");
    assert_eq!(next(&config, "<x>ac"), (String::new(), true));
    let open = thinks(config.clone(), "", "");
    assert_eq!(next(&open, "").0.len(), 94);
    assert_eq!(next(&open, "x>a"), ("bc".to_owned(), false));
    let head = thinks(config, "<", "<#");
    assert_eq!(next(&head, ""), ("<".to_owned(), false));
    assert_eq!(next(&head, "<x>"), ("<".to_owned(), false));
    assert_eq!(next(&head, "<x><"), ("#".to_owned(), false));
    assert_eq!(next(&head, "<x><#"), ("a".to_owned(), false));
    // What may say nothing may end while it thinks.
    assert_eq!(next(&thinks(super::config().regex("a?"), "", ""), "x"), (next(&open, "").0, true));
}

#[test]
fn every_search_thinks_and_answers() {
    for (name, config) in searches() {
        for (start, budget) in [("", 5), ("<", 3), ("", 0)] {
            let mut config = thinks(config.clone().json_schema(list_of_words()), start, "");
            config.thinking_token_budget = Some(budget);
            let transcript = run(search::build(plan(&config, &context()).unwrap()), &mut model()).unwrap();
            for row in &transcript.output.rows {
                let end = row.token_ids.iter().position(|id| *id == ids(">")[0]);
                assert!(end.is_some() || !start.is_empty(), "{name}: the prompt has begun the thinking");
                let begin = end.map_or(0, |end| end + 1);
                assert!(begin <= start.len() + budget + 1, "{name}: {begin} tokens before the answer");
                let answer = text(&row.token_ids[begin..]);
                assert!(
                    is_list_of_words(&answer) && row.finish_reason == FinishReason::Eos,
                    "{name}: {answer:?}"
                );
            }
        }
    }
}
