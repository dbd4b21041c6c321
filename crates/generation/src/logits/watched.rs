//! Tokens that are checked after each processor, to record which one removes them.

use rsgen_core::TokenId;

/// A token whose score is checked after each processor.
#[derive(Clone)]
pub(crate) struct WatchedToken {
    pub(crate) token: TokenId,
    /// What removed it, if anything has.
    pub(crate) cut_by: Option<String>,
}

/// Notes which of the watched tokens of a row have been removed by now; `source` names who did it.
pub(crate) fn note_removed(watched: &mut [WatchedToken], scores: &[f32], source: impl Fn() -> String) {
    for watched in watched.iter_mut().filter(|watched| watched.cut_by.is_none()) {
        if scores.get(watched.token.index()).is_none_or(|&score| score == f32::NEG_INFINITY) {
            watched.cut_by = Some(source());
        }
    }
}
