//! Where a model thinks before it answers, by the tokens that thinking begins and ends with.
//!
//! A grammar holds the answer alone, and a budget ends the thinking. Both look for the place here, each time
//! anew: a row that drops tokens needs nothing else.

use std::sync::Arc;

use rsgen_core::TokenId;

use super::config::GenerationConfig;
use super::vocabulary::Vocabulary;

/// The tokens around the thinking of a model.
#[derive(Clone, Default)]
pub(crate) struct Thinking {
    /// Those that begin it; none where the prompt has.
    pub(crate) start: Vec<TokenId>,
    /// Those that end it.
    pub(crate) end: Vec<TokenId>,
    /// Those between its end and an answer.
    pub(crate) answer: Vec<TokenId>,
    /// The tokenizer, where the marks are texts that a model may write in other tokens.
    pub(crate) vocabulary: Option<Arc<dyn Vocabulary>>,
}

impl std::fmt::Debug for Thinking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Thinking").field("start", &self.start).field("end", &self.end).finish_non_exhaustive()
    }
}

/// Where new tokens stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Within thinking.
    Thinking,
    /// Before an answer: the tokens that lead to it, or to thinking.
    Before(Vec<TokenId>),
    /// In an answer from this token on, in place of which thinking may go on with another.
    Answer(usize, Option<TokenId>),
}

impl Thinking {
    /// The thinking that a configuration tells of.
    pub(crate) fn of(config: &GenerationConfig, vocabulary: Option<&Arc<dyn Vocabulary>>) -> Option<Self> {
        let end = config.think_end_token_ids.clone().filter(|end| !end.is_empty())?;
        let listed = |ids: &Option<Vec<TokenId>>| ids.clone().unwrap_or_default();
        Some(Self {
            start: listed(&config.think_start_token_ids),
            end,
            answer: listed(&config.answer_start_token_ids),
            vocabulary: vocabulary.cloned(),
        })
    }

    /// The bytes of a sequence of several tokens, none of them special; no other tokens are a single one, or a
    /// special one.
    fn bytes(&self, sequence: &[TokenId]) -> Option<(&dyn Vocabulary, Vec<u8>)> {
        let vocabulary = &**self.vocabulary.as_ref().filter(|_| sequence.len() > 1)?;
        let mut bytes = Vec::new();
        for id in sequence {
            bytes.extend(vocabulary.token_bytes(*id).filter(|_| !vocabulary.is_special(*id))?);
        }
        Some((vocabulary, bytes))
    }

    /// How many of the first tokens are the sequence, or its text.
    fn begins(&self, ids: &[TokenId], sequence: &[TokenId]) -> Option<usize> {
        if ids.starts_with(sequence) {
            return Some(sequence.len());
        }
        let (vocabulary, text) = self.bytes(sequence)?;
        let mut rest = &text[..];
        for (index, id) in ids.iter().enumerate() {
            let bytes = vocabulary.token_bytes(*id)?;
            if bytes.starts_with(rest) {
                return Some(index + 1);
            }
            rest = rest.strip_prefix(bytes)?;
        }
        None
    }

    /// Where the end begins, and the place behind it.
    fn ended(&self, ids: &[TokenId]) -> Option<(usize, usize)> {
        let Some((vocabulary, text)) = self.bytes(&self.end) else {
            let at = ids.windows(self.end.len().max(1)).position(|window| window == self.end)?;
            return Some((at, at + self.end.len()));
        };
        let (mut read, mut starts) = (Vec::<u8>::new(), Vec::new());
        for (index, id) in ids.iter().enumerate() {
            let new = read.len();
            starts.push(new);
            read.extend(vocabulary.token_bytes(*id).unwrap_or_default());
            let from = new.saturating_sub(text.len() - 1);
            if let Some(at) = read[from..].windows(text.len()).position(|window| window == text) {
                return Some((starts.partition_point(|start| *start <= from + at) - 1, index + 1));
            }
        }
        None
    }

    /// Where new tokens stand. Thinking that has ended does not begin again.
    pub(crate) fn place(&self, new: &[TokenId]) -> Place {
        let (begin, next) = match self.begins(new, &self.start) {
            Some(start) => match self.ended(&new[start..]) {
                Some((_, end)) => (start + end, None),
                None => return Place::Thinking,
            },
            None => (0, self.start.strip_prefix(new).and_then(|rest| rest.first().copied())),
        };
        let rest = &new[begin..];
        match self.answer.strip_prefix(rest) {
            Some([first, ..]) => {
                let mut all = vec![*first];
                all.extend(next.filter(|next| next != first));
                Place::Before(all)
            }
            _ if rest.starts_with(&self.answer) => Place::Answer(begin + self.answer.len(), next),
            _ => match next {
                Some(next) => Place::Before(vec![next]),
                // No grammar allows it.
                None => Place::Answer(begin, None),
            },
        }
    }

    /// How many of the new tokens are thinking, and the place of the last stretch: whether it goes on, and where
    /// what stands in it or behind it begins.
    pub(crate) fn thought(&self, new: &[TokenId]) -> (usize, bool, usize) {
        let (mut count, mut at) = (0, 0);
        while let Some(len) = self.begins(&new[at..], &self.start) {
            let begin = at + len;
            let Some((thought, end)) = self.ended(&new[begin..]) else {
                return (count + new.len() - begin, true, begin);
            };
            count += thought;
            at = begin + end;
            if self.start.is_empty() {
                break;
            }
        }
        (count, false, at)
    }
}

/// How many of the last tokens are the beginning of a sequence, which lacks at least one.
pub(crate) fn begun(ids: &[TokenId], sequence: &[TokenId]) -> usize {
    let most = ids.len().min(sequence.len().saturating_sub(1));
    (1..=most).rev().find(|&len| ids.ends_with(&sequence[..len])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[u32]) -> Vec<TokenId> {
        numbers.iter().copied().map(TokenId).collect()
    }

    fn thinking(start: &[u32], end: &[u32], answer: &[u32]) -> Thinking {
        Thinking { start: ids(start), end: ids(end), answer: ids(answer), vocabulary: None }
    }

    #[test]
    fn thinking_comes_before_the_answer_or_not_at_all() {
        let think = thinking(&[1], &[2], &[]);
        for (new, place) in [
            (&[][..], Place::Answer(0, Some(TokenId(1)))),
            (&[5], Place::Answer(0, None)),
            (&[1], Place::Thinking),
            (&[1, 5, 1], Place::Thinking),
            (&[1, 5, 2], Place::Answer(3, None)),
            (&[1, 2, 1, 2, 5], Place::Answer(2, None)),
            (&[5, 1], Place::Answer(0, None)),
        ] {
            assert_eq!(think.place(&ids(new)), place, "{new:?}");
        }
        let open = thinking(&[], &[2], &[]);
        assert_eq!(open.place(&[]), Place::Thinking);
        assert_eq!(open.place(&ids(&[5, 2, 6])), Place::Answer(2, None));
    }

    #[test]
    fn an_answer_may_have_a_head_that_begins_as_thinking_does() {
        let think = thinking(&[1, 7, 3], &[2, 4], &[1, 8, 3]);
        for (new, place) in [
            (&[][..], Place::Before(ids(&[1]))),
            (&[1], Place::Before(ids(&[8, 7]))),
            (&[1, 7], Place::Before(ids(&[3]))),
            (&[1, 8], Place::Before(ids(&[3]))),
            (&[1, 8, 3, 9], Place::Answer(3, None)),
            (&[1, 7, 3, 2, 2], Place::Thinking),
            (&[1, 7, 3, 2, 4], Place::Before(ids(&[1]))),
            (&[1, 7, 3, 2, 4, 1], Place::Before(ids(&[8]))),
            (&[1, 7, 3, 2, 4, 1, 8, 3], Place::Answer(8, None)),
        ] {
            assert_eq!(think.place(&ids(new)), place, "{new:?}");
        }
    }

    #[test]
    fn a_text_counts_in_whatever_tokens_it_comes() {
        // `<a>` and `</a>`, whose last letter may come with what follows.
        let words = ["<", "a", ">", "</", ">\n", "<a", "x", "</a", "a>x"];
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let vocabulary: Arc<dyn Vocabulary> = Arc::new(crate::tests::WordVocabulary::new(words));
        let think = Thinking { vocabulary: Some(vocabulary), ..thinking(&[0, 1, 2], &[3, 1, 2], &[]) };
        for (new, place, thought) in [
            (&[0, 1, 2, 6, 3, 1, 2][..], Place::Answer(7, None), (1, false, 7)),
            (&[5, 4, 6, 7, 4, 6], Place::Answer(5, None), (1, false, 5)),
            (&[5, 4, 6, 6, 7], Place::Thinking, (3, true, 2)),
            (&[5, 6], Place::Answer(0, None), (0, false, 0)),
            (&[0, 8, 6, 3, 8], Place::Answer(5, None), (1, false, 5)),
        ] {
            assert_eq!((think.place(&ids(new)), think.thought(&ids(new))), (place, thought), "{new:?}");
        }
    }

    #[test]
    fn all_stretches_of_thinking_count() {
        let think = thinking(&[1, 7], &[2, 4], &[]);
        for (new, thought) in [
            (&[][..], (0, false, 0)),
            (&[1], (0, false, 0)),
            (&[1, 7, 5, 5], (2, true, 2)),
            (&[1, 7, 5, 2, 4], (1, false, 5)),
            (&[1, 7, 5, 2, 4, 1, 7, 5, 2], (3, true, 7)),
            (&[1, 7, 5, 2, 4, 9, 1, 7, 5], (1, false, 5)),
        ] {
            assert_eq!(think.thought(&ids(new)), thought, "{new:?}");
        }
        assert_eq!(thinking(&[], &[2], &[]).thought(&ids(&[5, 2, 5])), (1, false, 2));
        assert_eq!((begun(&ids(&[5, 2]), &ids(&[2, 4])), begun(&ids(&[2, 4]), &ids(&[2, 4]))), (1, 0));
    }
}
