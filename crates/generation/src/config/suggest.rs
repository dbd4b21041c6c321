//! "Did you mean": the known name nearest to an unknown one.
//!
//! Edit distance, and a few names that other libraries use for the same thing.

/// Names of other libraries, and what they are called here.
const SYNONYMS: &[(&str, &str)] = &[
    ("max_tokens", "max_new_tokens"),
    ("max_token", "max_new_tokens"),
    ("max_gen_len", "max_new_tokens"),
    ("n_predict", "max_new_tokens"),
    ("min_tokens", "min_new_tokens"),
    ("stop", "stop_strings"),
    ("stop_sequences", "stop_strings"),
    ("n", "num_return_sequences"),
    ("best_of", "num_return_sequences"),
    ("repeat_penalty", "repetition_penalty"),
    ("random_seed", "seed"),
];

/// A longer name is not a misspelling; the bound limits the work for hostile requests.
const MAX_NAME_LEN: usize = 64;

/// The name of `known` that `name` was probably meant to be.
pub fn suggest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_NAME_LEN {
        return None;
    }
    if let Some((_, here)) = SYNONYMS.iter().find(|(other, _)| *other == name) {
        return Some(here);
    }
    let allowed = (name.chars().count() / 3).clamp(1, 4);
    known
        .map(|candidate| (edit_distance(&name.to_lowercase(), candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The number of characters to insert, delete or replace to make `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a_char) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b_char) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a_char != *b_char);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_single_edits() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("topp", "top_p"), 1);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        let known = ["top_p", "top_k", "max_new_tokens"];
        assert_eq!(suggest("Top_P", known.into_iter()), Some("top_p"));
        assert_eq!(suggest("max_tokens", known.into_iter()), Some("max_new_tokens"));
        assert_eq!(suggest("banana", known.into_iter()), None);
        assert_eq!(suggest(&"top_p".repeat(50), known.into_iter()), None);
    }
}
