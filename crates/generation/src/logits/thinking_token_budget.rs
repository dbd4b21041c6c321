//! A budget for the thinking of a model, as vLLM's `thinking_token_budget`.

use rsgen_core::{Error, Result, TokenId, message, refuse_if};

use super::super::resolved::ResolvedConfig;
use super::super::thinking::{Thinking, begun};
use super::{BuiltIn, LogitsProcessor, RowContext};

/// Ends thinking after so many tokens: it forces those that end it, and lets it not begin again.
#[derive(Debug, Clone)]
pub struct ThinkingTokenBudgetLogitsProcessor {
    budget: usize,
    thinking: Thinking,
    prompt_len: usize,
}

impl ThinkingTokenBudgetLogitsProcessor {
    /// At most so many tokens between `think_start_token_ids` and `think_end_token_ids`, after a prompt of
    /// `prompt_length_to_skip` ids. Without the former the prompt has begun the thinking.
    ///
    /// # Errors
    /// When no token ends the thinking.
    pub fn new(
        thinking_token_budget: usize,
        think_end_token_ids: Vec<TokenId>,
        think_start_token_ids: Vec<TokenId>,
        prompt_length_to_skip: usize,
    ) -> Result<Self> {
        refuse_if(
            think_end_token_ids.is_empty(),
            "think_end_token_ids",
            || "must hold at least one token id, but is empty; give the tokens that end the thinking",
        )?;
        let thinking =
            Thinking { start: think_start_token_ids, end: think_end_token_ids, ..Thinking::default() };
        Ok(Self { budget: thinking_token_budget, thinking, prompt_len: prompt_length_to_skip })
    }

    /// The token that has to come, or the one that must not.
    fn next(&self, new: &[TokenId]) -> Option<(bool, TokenId)> {
        let Thinking { start, end, answer, .. } = &self.thinking;
        let (count, is_thinking, at) = self.thinking.thought(new);
        let rest = &new[at..];
        if is_thinking {
            let len = begun(rest, end);
            return (count >= self.budget).then(|| (true, end[len]));
        }
        // The token that tells thinking from an answer; the mark of a message's head may stand behind it.
        let told = if answer.is_empty() {
            start.len().saturating_sub(2)
        } else {
            start.iter().zip(answer).take_while(|(thought, said)| thought == said).count()
        };
        let is_there = count >= self.budget && rest == &start[..told.min(start.len())];
        start.get(told).filter(|_| is_there).map(|token| (false, *token))
    }
}

impl BuiltIn for ThinkingTokenBudgetLogitsProcessor {
    fn from_config(config: &ResolvedConfig) -> Result<Option<Self>> {
        let Some(budget) = config.fields.thinking_token_budget else { return Ok(None) };
        let Some(thinking) = Thinking::of(&config.fields, config.vocabulary.as_ref()) else {
            return Err(Error::config(message!(
                "needs the tokens that end the thinking, but there are none; set " {think_end_token_ids}
                ", which chats take from a template that thinks, or leave it out"
            ))
            .about("thinking_token_budget"));
        };
        super::check_held("think_start_token_ids", thinking.start.iter().copied(), config.vocab_size)?;
        super::check_held("think_end_token_ids", thinking.end.iter().copied(), config.vocab_size)?;
        Ok(Some(Self { budget, thinking, prompt_len: config.prompt_len }))
    }
}

impl LogitsProcessor for ThinkingTokenBudgetLogitsProcessor {
    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let new = row.input_ids.get(self.prompt_len..).unwrap_or_default();
        match self.next(new) {
            Some((true, token)) => super::force("think_end_token_ids", &[token], scores),
            Some((false, token)) => {
                super::remove(scores, &[token]);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::GenerationConfig;
    use super::super::tests::{SECOND, kept, process, resolved};
    use super::*;

    fn processor(budget: usize, end: &[u32], start: &[u32]) -> ThinkingTokenBudgetLogitsProcessor {
        let ids = |ids: &[u32]| ids.iter().copied().map(TokenId).collect();
        ThinkingTokenBudgetLogitsProcessor::new(budget, ids(end), ids(start), 1).unwrap()
    }

    fn left(processor: &ThinkingTokenBudgetLogitsProcessor, new: &[u32]) -> Vec<usize> {
        kept(&process(processor, &[&[0], new].concat(), &SECOND))
    }

    const ALL: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    #[test]
    fn thinking_ends_after_so_many_tokens() {
        let two = processor(2, &[6, 7], &[1]);
        for (new, tokens) in [
            (&[][..], &ALL[..]),
            (&[1], &ALL),
            (&[1, 3], &ALL),
            (&[1, 3, 3], &[6]),
            (&[1, 3, 3, 6], &[7]),
            (&[1, 3, 6], &[7]),
            (&[1, 3, 3, 6, 7], &[0, 2, 3, 4, 5, 6, 7]),
            (&[1, 3, 3, 6, 7, 1], &[6]),
            (&[1, 3, 6, 7], &ALL),
            (&[3, 3, 3], &ALL),
        ] {
            assert_eq!(left(&two, new), tokens, "{new:?}");
        }
        // The prompt has begun it.
        let open = processor(1, &[6], &[]);
        assert_eq!(left(&open, &[]), ALL);
        assert_eq!(left(&open, &[3]), [6]);
        assert_eq!(left(&open, &[3, 6]), ALL);
        assert_eq!(left(&processor(0, &[6], &[]), &[]), [6]);
    }

    #[test]
    fn a_budget_of_nothing_lets_it_not_begin() {
        assert_eq!(left(&processor(0, &[6], &[1]), &[]), [0, 2, 3, 4, 5, 6, 7]);
        // Its head and that of an answer begin with the same token.
        let heads = processor(0, &[6], &[1, 2, 3]);
        assert_eq!(left(&heads, &[]), ALL);
        assert_eq!(left(&heads, &[1]), [0, 1, 3, 4, 5, 6, 7]);
        let mut named = processor(0, &[6], &[1, 2, 3, 4, 5]);
        named.thinking.answer = [1, 7].map(TokenId).to_vec();
        assert_eq!(left(&named, &[1]), [0, 1, 3, 4, 5, 6, 7]);
        assert_eq!(left(&named, &[1, 2, 3]), ALL);
    }

    #[test]
    fn a_budget_needs_the_tokens_that_end_it() {
        let config = GenerationConfig::new().thinking_token_budget(3);
        let made = |config: &GenerationConfig| {
            ThinkingTokenBudgetLogitsProcessor::from_config(&resolved(config)).map(|made| made.is_some())
        };
        let error = made(&config).unwrap_err().to_string();
        assert!(error.contains("`thinking_token_budget` needs the tokens that end"), "{error}");
        assert!(made(&config.clone().think_end_token_ids(vec![TokenId(6)])).unwrap());
        let error = made(&config.think_end_token_ids(vec![TokenId(60)])).unwrap_err().to_string();
        assert!(error.contains("`think_end_token_ids` must hold ids of the model's vocabulary"), "{error}");
        let error = ThinkingTokenBudgetLogitsProcessor::new(1, vec![], vec![], 0).unwrap_err();
        assert_eq!(error.field(), Some("think_end_token_ids"));
    }
}
