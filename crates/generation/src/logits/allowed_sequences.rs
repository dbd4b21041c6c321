//! Allows the tokens by which the new text stays one of a catalogue's: `prefix_allowed_tokens_fn` over a
//! [`TokenTrie`], without a call for each row.

use std::sync::Arc;

use rsgen_core::{Error, Result, TokenId, message};

use super::super::resolved::ResolvedConfig;
use super::super::token_trie::TokenTrie;
use super::prefix_constrained::rows_each;
use super::{LogitsProcessor, ProcessContext, RowContext, ScoreRows};

/// Removes all tokens but those by which the new tokens of a row begin or continue an entry. Where an entry ends,
/// an end-of-sequence token is allowed as well, and after tokens that are of no entry only that.
///
/// When earlier processors have removed the allowed tokens of all rows of a prompt, these get the score 0, as with
/// `prefix_allowed_tokens_fn`; but not if words are banned or a grammar is followed.
pub(crate) struct AllowedSequencesLogitsProcessor {
    trie: Arc<TokenTrie>,
    eos_token_ids: Vec<TokenId>,
    /// Consecutive rows of a prompt.
    rows_each: usize,
    rescues: bool,
    /// Beams that cannot go on may run, but never win.
    has_beams: bool,
    /// Whether the first new token is forced after a single id, before the entry.
    forces_first: bool,
}

/// The tokens that are allowed in a row.
pub(crate) struct Allowed<'a> {
    children: &'a [TokenId],
    ends: &'a [TokenId],
}

impl Allowed<'_> {
    fn tokens(&self) -> impl Iterator<Item = usize> {
        self.children.iter().chain(self.ends).map(|token| token.index())
    }

    /// Writes them to `tokens` in ascending order, each once.
    pub(crate) fn write_to(&self, tokens: &mut Vec<usize>) {
        tokens.clear();
        tokens.extend(self.tokens());
        if !self.ends.is_empty() {
            tokens.sort_unstable();
            tokens.dedup();
        }
    }

    /// Removes all other tokens. Returns whether a token is left.
    fn keep_only(&self, scores: &mut [f32]) -> bool {
        let kept: Vec<Option<f32>> = self.tokens().map(|token| scores.get(token).copied()).collect();
        scores.fill(f32::NEG_INFINITY);
        let mut any_left = false;
        for (token, score) in self.tokens().zip(kept) {
            if let Some(score) = score {
                scores[token] = score;
                any_left |= score != f32::NEG_INFINITY;
            }
        }
        any_left
    }

    /// Gives all of them the score 0.
    fn rescue(&self, scores: &mut [f32]) {
        for token in self.tokens() {
            if let Some(score) = scores.get_mut(token) {
                *score = 0.0;
            }
        }
    }
}

impl AllowedSequencesLogitsProcessor {
    /// The name of the argument that switches it on.
    pub(crate) const NAME: &'static str = "allowed_sequences";

    /// That of a request with a catalogue.
    pub(crate) fn of(config: &ResolvedConfig) -> Option<Self> {
        let (trie, fields) = (config.allowed_sequences.as_ref()?, &config.fields);
        let has_grammar = fields.grammar.is_some() || fields.regex.is_some() || fields.json_schema.is_some();
        Some(Self {
            trie: Arc::clone(trie),
            eos_token_ids: config.eos_token_ids.clone(),
            rows_each: rows_each(config),
            rescues: !has_grammar && fields.bad_words_ids.is_none(),
            has_beams: config.mode.has_beams(),
            forces_first: config.forces_first(),
        })
    }

    /// The tokens that are allowed after these ids, of which the first `prompt_len` are the prompt.
    pub(crate) fn after(&self, input_ids: &[TokenId], prompt_len: usize) -> Allowed<'_> {
        let forced = usize::from(self.forces_first);
        let new_tokens = input_ids.get(prompt_len + forced..).unwrap_or_default();
        let Some(node) = self.trie.node_after(new_tokens) else {
            return Allowed { children: &[], ends: &self.eos_token_ids };
        };
        let ends = if self.trie.entry_of(node).is_some() { &self.eos_token_ids[..] } else { &[] };
        Allowed { children: self.trie.children(node), ends }
    }

    fn allowed(&self, row: &RowContext<'_>) -> Allowed<'_> {
        self.after(row.input_ids, row.prompt_len)
    }

    /// Refuses a row that cannot go on, without beams.
    fn check(&self, row: &RowContext<'_>, is_left: bool) -> Result<()> {
        if is_left || self.rescues || self.has_beams {
            return Ok(());
        }
        let num_tokens = row.input_ids.len() - row.prompt_len;
        Err(Error::config(message!(
            "leaves no token after {num_tokens} new ones that the banned words or the grammar allow as well; loosen one of \
             them, or set " {num_beams = 4} ", for example: beams go around such ends"
        ))
        .about(Self::NAME))
    }
}

impl LogitsProcessor for AllowedSequencesLogitsProcessor {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn process(&self, rows: &mut ScoreRows<'_>, context: &mut ProcessContext<'_>) -> Result<()> {
        let prompt = |row: &RowContext<'_>| row.row_index / self.rows_each;
        let mut index = 0;
        for neighbours in context.rows.chunk_by(|a, b| prompt(a) == prompt(b)) {
            let mut any_left = false;
            for (offset, row) in neighbours.iter().enumerate() {
                let is_left = self.allowed(row).keep_only(rows.row_mut(index + offset));
                self.check(row, is_left)?;
                any_left |= is_left;
            }
            if !any_left && self.rescues {
                for (offset, row) in neighbours.iter().enumerate() {
                    self.allowed(row).rescue(rows.row_mut(index + offset));
                }
            }
            index += neighbours.len();
        }
        Ok(())
    }

    fn process_row(&self, scores: &mut [f32], row: &mut RowContext<'_>) -> Result<()> {
        let allowed = self.allowed(row);
        let is_left = allowed.keep_only(scores);
        if !is_left && self.rescues {
            allowed.rescue(scores);
        }
        self.check(row, is_left)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::config::GenerationConfig;
    use super::super::super::mode::GenerationMode;
    use super::super::tests::process_rows;
    use super::super::{PrefixAllowedTokens, PrefixConstrainedLogitsProcessor};
    use super::*;

    const NEG_INF: f32 = f32::NEG_INFINITY;
    const EOS: u32 = 0;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    /// A processor for rows without a prompt.
    fn processor(num_beams: usize, fields: GenerationConfig) -> AllowedSequencesLogitsProcessor {
        let trie = TokenTrie::new([ids(&[1]), ids(&[1, 2]), ids(&[3, 2, 1])]).unwrap();
        AllowedSequencesLogitsProcessor::of(&ResolvedConfig {
            allowed_sequences: Some(Arc::new(trie)),
            eos_token_ids: ids(&[EOS]),
            num_beams,
            num_beam_groups: 1,
            num_return_sequences: 1,
            mode: if num_beams > 1 { GenerationMode::BeamSearch } else { GenerationMode::Greedy },
            ..ResolvedConfig::of_fields(fields, 5)
        })
        .unwrap()
    }

    /// The tokens that follow, as a function of the entries.
    fn by_hand() -> Arc<dyn PrefixAllowedTokens> {
        let entries = [ids(&[1, EOS]), ids(&[1, 2, EOS]), ids(&[3, 2, 1, EOS])];
        Arc::new(move |_: usize, row: &[TokenId]| {
            let following = entries.iter().filter_map(|entry| entry.strip_prefix(row)?.first().copied());
            let following: Vec<TokenId> = following.collect();
            if following.is_empty() { ids(&[EOS]) } else { following }
        })
    }

    fn rows_of(processor: &dyn LogitsProcessor, rows: &[&[u32]], scores: &[f32]) -> Vec<Vec<f32>> {
        let ids: Vec<Vec<TokenId>> = rows.iter().map(|row| ids(row)).collect();
        let contexts = ids
            .iter()
            .enumerate()
            .map(|(index, ids)| RowContext { prompt_len: 0, ..RowContext::numbered(ids, index) });
        let mut all = scores.repeat(rows.len());
        let mut context = ProcessContext::new(contexts.collect());
        processor.process(&mut ScoreRows::new(&mut all, scores.len()), &mut context).unwrap();
        all.chunks(scores.len()).map(<[f32]>::to_vec).collect()
    }

    #[test]
    fn rows_get_what_the_function_over_the_same_entries_gives_them() {
        let rows: &[&[u32]] = &[&[], &[1], &[1, 2], &[3], &[3, 2], &[3, 2, 1], &[4], &[1, 0]];
        let all_scores = [
            [0.5, 1.0, -2.0, 3.0, 4.0],
            [NEG_INF, 1.0, NEG_INF, 2.0, 3.0],
            [1.0, NEG_INF, NEG_INF, NEG_INF, 1.0],
            [NEG_INF; 5],
        ];
        for num_beams in [1, 2, 4] {
            let own = processor(num_beams, GenerationConfig::new());
            let function = PrefixConstrainedLogitsProcessor::new(by_hand(), num_beams).unwrap();
            for scores in &all_scores {
                assert_eq!(
                    rows_of(&own, rows, scores),
                    rows_of(&function, rows, scores),
                    "{num_beams} {scores:?}"
                );
            }
        }
    }

    #[test]
    fn banned_words_are_not_rescued() {
        let fields = || GenerationConfig { bad_words_ids: Some(vec![ids(&[2])]), ..GenerationConfig::new() };
        let scores = [NEG_INF, 1.0, NEG_INF, 1.0, 1.0];
        assert_eq!(rows_of(&processor(2, fields()), &[&[3], &[3]], &scores), [[NEG_INF; 5]; 2]);
        let ids = ids(&[3]);
        let mut row = RowContext { prompt_len: 0, ..RowContext::of_prompt(&ids) };
        let error = processor(1, fields()).process_row(&mut scores.clone(), &mut row).unwrap_err();
        assert!(
            error.to_string().contains("`allowed_sequences` leaves no token after 1 new ones"),
            "{error}"
        );
    }

    #[test]
    fn an_entry_begins_after_a_forced_first_token() {
        let mut own = processor(1, GenerationConfig::new());
        own.forces_first = true;
        let scores = [1.0; 5];
        let left = |row: &[u32]| {
            let row = &rows_of(&own, &[row], &scores)[0];
            (0..5).filter(|&token| row[token] == 1.0).collect::<Vec<_>>()
        };
        assert_eq!(left(&[]), [1, 3]);
        assert_eq!(left(&[4]), [1, 3]);
        assert_eq!(left(&[4, 1]), [0, 2]);
        let rows = process_rows(&own, &[&[9]], &scores);
        assert_eq!(rows[0], [NEG_INF, 1.0, NEG_INF, 1.0, NEG_INF], "the prompt is none of it");
    }
}
