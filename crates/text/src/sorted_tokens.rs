//! The tokens of a vocabulary in the order of their texts, to find those that begin with a text.
//!
//! Made when it is first needed: four bytes for each token, and no copy of the texts.

use rsgen_core::types::TokenId;

/// The ids of tokens, by their texts.
#[derive(Debug)]
pub(super) struct SortedTokens(Box<[u32]>);

impl SortedTokens {
    /// `tokens` are the texts by id; `id_of` says which of several equal ones counts.
    pub(super) fn new(tokens: &[Option<Box<str>>], id_of: impl Fn(&str) -> Option<TokenId>) -> Self {
        let text = |id: u32| tokens[id as usize].as_deref().unwrap_or_default();
        let mut ids: Vec<u32> =
            (0..).zip(tokens).filter(|(_, token)| token.is_some()).map(|(id, _)| id).collect();
        ids.sort_unstable_by(|&a, &b| text(a).cmp(text(b)).then(a.cmp(&b)));
        ids.dedup_by(|next, kept| {
            let is_equal = text(*next) == text(*kept);
            if is_equal && id_of(text(*next)) == Some(TokenId(*next)) {
                *kept = *next;
            }
            is_equal
        });
        Self(ids.into_boxed_slice())
    }

    /// Those that begin with `prefix`.
    pub(super) fn starting_with(
        &self,
        tokens: &[Option<Box<str>>],
        prefix: &str,
    ) -> impl Iterator<Item = TokenId> {
        let text = |id: u32| tokens[id as usize].as_deref().unwrap_or_default();
        let first = self.0.partition_point(|&id| text(id) < prefix);
        let count = self.0[first..].partition_point(|&id| text(id).starts_with(prefix));
        self.0[first..first + count].iter().copied().map(TokenId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_with_a_beginning_are_those_that_a_look_at_each_finds() {
        let texts = ["b", "a", "", "ab", "é", "éa", "abc", "ab", "b\u{10ffff}", "b\u{10ffff}c"];
        let mut tokens: Vec<Option<Box<str>>> = texts.map(|text| Some(text.into())).to_vec();
        tokens.insert(3, None);
        let last = |text: &str| {
            let found = tokens.iter().rposition(|token| token.as_deref() == Some(text));
            found.map(|id| TokenId(id as u32))
        };
        let sorted = SortedTokens::new(&tokens, last);
        for prefix in ["", "a", "ab", "abcd", "b", "b\u{10ffff}", "é", "z", "\u{10ffff}"] {
            let mut found: Vec<u32> = sorted.starting_with(&tokens, prefix).map(|id| id.0).collect();
            found.sort_unstable();
            let each = (0..tokens.len() as u32).filter(|&id| {
                let text = tokens[id as usize].as_deref();
                text.is_some_and(|text| text.starts_with(prefix) && last(text) == Some(TokenId(id)))
            });
            assert_eq!(found, each.collect::<Vec<_>>(), "{prefix:?}");
        }
    }
}
