//! `clean_up_tokenization_spaces` of transformers: spaces before punctuation and English contractions go.

/// The replacements of transformers' `clean_up_tokenization`, in order.
pub(super) fn clean_up(text: &str) -> String {
    const REPLACEMENTS: [(&str, &str); 10] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    REPLACEMENTS.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The last position where `text` can be cut so that cleaning both halves equals cleaning the whole.
///
/// Cleaning only removes spaces, so a pair of other characters stays a pair; and of the pairs inside the
/// replaced texts only those with an apostrophe, `ve` and `re` have no space.
pub(super) fn last_safe_cut(text: &str) -> usize {
    let mut pairs = text.char_indices().rev().zip(text.chars().rev().skip(1));
    let safe = pairs.find(|&((_, right), left)| {
        ![left, right].iter().any(|char| matches!(char, ' ' | '\''))
            && !matches!((left, right), ('v' | 'r', 'e'))
    });
    safe.map_or(0, |((at, _), _)| at)
}
