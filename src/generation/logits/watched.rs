//! Tokens of a row that are looked at after each processor, to tell which one removes them.

use crate::types::TokenId;

/// A token whose score is looked at after each processor.
#[derive(Clone)]
pub(in crate::generation) struct WatchedToken {
    pub(in crate::generation) token: TokenId,
    /// What removed it, if anything has.
    pub(in crate::generation) cut_by: Option<String>,
}

/// Notes which of the watched tokens of a row have been removed by now; `source` names who did it.
pub(in crate::generation) fn note_removed(
    watched: &mut [WatchedToken],
    scores: &[f32],
    source: impl Fn() -> String,
) {
    for watched in watched.iter_mut().filter(|watched| watched.cut_by.is_none()) {
        if scores.get(watched.token.index()).is_none_or(|&score| score == f32::NEG_INFINITY) {
            watched.cut_by = Some(source());
        }
    }
}
