//! Drafts as a table: a line for each round, accepted, rejected and the model's own token.

use std::fmt::Write as _;

use super::{escaped, note};
use crate::engine::trace::{Draft, DraftedToken};

/// The most rounds of a row, and the most tokens of a round.
const MAX_ROUNDS: usize = 500;
const MAX_TOKENS: usize = 64;

/// What the colours mean.
pub(super) const LEGEND: &str = "<p class=\"rp-note\"><span class=\"rp-yes\">accepted</span> <s>rejected</s> <b \
    class=\"rp-own\">the model’s own</b></p>";

pub(super) fn lines(drafts: &[Draft], html: &mut String) {
    html.push_str("<table>");
    drafts.iter().take(MAX_ROUNDS).for_each(|draft| round(draft, html));
    html.push_str("</table>");
    if drafts.len() > MAX_ROUNDS {
        note(&format!("… {} more rounds", drafts.len() - MAX_ROUNDS), html);
    }
}

fn round(draft: &Draft, html: &mut String) {
    let (accepted, rejected) = draft.proposed.split_at(draft.accepted.min(draft.proposed.len()));
    let texts = |tokens: &[DraftedToken]| -> String {
        tokens.iter().take(MAX_TOKENS).map(|token| escaped(&token.token.text)).collect()
    };
    let next = draft.next.as_ref().map(|next| escaped(&next.text)).unwrap_or_default();
    let _ = write!(
        html,
        "<tr><th>{}</th><th>{} of {}</th><td><span class=\"rp-yes\">{}</span><s>{}</s><b class=\"rp-own\">{next}</b></td></tr>",
        draft.round.saturating_add(1),
        accepted.len(),
        draft.proposed.len(),
        texts(accepted),
        texts(rejected)
    );
}
