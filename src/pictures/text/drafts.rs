//! Drafts: a line for each round, with what was accepted, what was rejected, and the model's own token.

use super::super::collected::{DraftTotals, Pictures};
use super::super::percent;
use super::paint::{Look, Paint, cut, width};
use crate::engine::trace::{Draft, DraftedToken};
use rsgen_generation::search::details::DraftOrigin;

pub(super) fn lines(pictures: &Pictures, look: &Look) -> Vec<String> {
    let mut lines = Vec::new();
    for (row, drafts) in &pictures.drafts {
        if pictures.drafts.len() > 1 {
            lines.extend((!lines.is_empty()).then(String::new));
            lines.push(look.paint(Paint::Bold, &format!("row {}", row.saturating_add(1))));
        }
        let longest = drafts.iter().map(|draft| draft.proposed.len()).max().unwrap_or(0).min(MAX_GAUGE);
        lines.extend(drafts.iter().map(|draft| round(draft, longest, look)));
        lines.push(String::new());
        lines.extend(summary(drafts, look));
    }
    lines
}

/// The most drafted tokens that the gauge of a round shows.
const MAX_GAUGE: usize = 16;

/// `  1 ■■■□□ 3 of 5  there was a[ big dog] +little`
fn round(draft: &Draft, longest: usize, look: &Look) -> String {
    let (accepted, proposed) = (draft.accepted.min(draft.proposed.len()), draft.proposed.len());
    let full = accepted.min(longest);
    let empty = proposed.min(longest) - full;
    let gauge = look.either("■", "#").repeat(full) + &look.either("□", ".").repeat(empty);
    let head =
        format!("{:>4} {gauge:longest$} {accepted:>2} of {proposed:<2} ", draft.round.saturating_add(1));
    let text = |tokens: &[DraftedToken]| -> String {
        tokens.iter().map(|token| look.shown(&token.token.text)).collect()
    };
    let rejected = text(&draft.proposed[accepted..]);
    let rejected = if rejected.is_empty() || look.colors { rejected } else { format!("[{rejected}]") };
    let next = draft.next.as_ref().map(|next| look.shown(&next.text)).unwrap_or_default();
    let next = if next.is_empty() || look.colors { next } else { format!(" +{}", next.trim_start()) };
    let mut line = look.paint(Paint::Dim, &head);
    let mut room = look.width.saturating_sub(width(&head));
    let parts = [
        (Paint::Accepted, text(&draft.proposed[..accepted])),
        (Paint::Rejected, rejected),
        (Paint::Next, next),
    ];
    for (paint, text) in parts {
        let part = cut(&text, room);
        room -= width(part);
        line += &look.paint(paint, part);
    }
    line
}

fn summary(drafts: &[Draft], look: &Look) -> Vec<String> {
    let legend = if look.colors {
        [
            look.paint(Paint::Accepted, " accepted "),
            look.paint(Paint::Rejected, " rejected "),
            look.paint(Paint::Next, " the model's own "),
        ]
        .join(" ")
    } else {
        "accepted, [rejected], +the model's own token".to_owned()
    };
    let totals = DraftTotals::of(drafts);
    let share = totals.accepted as f32 / totals.proposed.max(1) as f32;
    let source = drafts.first().map_or("", |draft| match draft.source {
        DraftOrigin::AssistantModel => " by a draft model",
        DraftOrigin::EarlyExit => " by the model's first layers",
        DraftOrigin::PromptLookup => " by looking into the text",
    });
    vec![
        legend,
        format!(
            "{} tokens drafted{source}, {} accepted ({})",
            totals.proposed,
            totals.accepted,
            percent(share)
        ),
        format!(
            "{:.2} tokens a round in {} rounds",
            totals.tokens as f32 / totals.rounds.max(1) as f32,
            totals.rounds
        ),
    ]
}
