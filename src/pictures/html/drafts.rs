//! Drafts as a table: a line for each round, accepted, rejected and the model's own token.

use std::fmt::Write as _;

use super::super::collected::{DraftTotals, Pictures};
use super::super::percent;
use super::{MAX_PARTS, escaped, plain};
use crate::engine::trace::{Draft, DraftedToken};

/// The most rounds of a row, and the most tokens of a round.
const MAX_ROUNDS: usize = 500;
const MAX_TOKENS: usize = 64;

pub(super) fn html(pictures: &Pictures) -> String {
    let mut html = String::new();
    for (row, drafts) in pictures.drafts.iter().take(MAX_PARTS) {
        let totals = DraftTotals::of(drafts);
        let share = totals.accepted as f32 / totals.proposed.max(1) as f32;
        let _ = write!(
            html,
            "<p class=\"rp-note\">row {}: {} tokens drafted, {} accepted ({}); {:.2} tokens a round in {} rounds · <span \
             class=\"rp-yes\">accepted</span> <s>rejected</s> <b class=\"rp-own\">the model’s own</b></p><table>",
            row.saturating_add(1),
            totals.proposed,
            totals.accepted,
            plain(&percent(share)),
            totals.tokens as f32 / totals.rounds.max(1) as f32,
            totals.rounds
        );
        drafts.iter().take(MAX_ROUNDS).for_each(|draft| round(draft, &mut html));
        html.push_str("</table>");
        if drafts.len() > MAX_ROUNDS {
            let _ = write!(html, "<p class=\"rp-note\">… {} more rounds</p>", drafts.len() - MAX_ROUNDS);
        }
    }
    html
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
