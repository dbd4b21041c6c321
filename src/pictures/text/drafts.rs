//! Drafts: a line for each round, with what was accepted, what was rejected, and the model's own token.

use super::paint::{Look, Paint, cut, width};
use crate::engine::trace::{Draft, DraftedToken};

pub(super) fn lines(drafts: &[Draft], look: &Look, lines: &mut Vec<String>) {
    let longest = drafts.iter().map(|draft| draft.proposed.len()).max().unwrap_or(0).min(MAX_GAUGE);
    lines.extend(drafts.iter().map(|draft| round(draft, longest, look)));
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

pub(super) fn legend(look: &Look) -> String {
    if !look.colors {
        return "accepted, [rejected], +the model's own token".to_owned();
    }
    let parts = [
        (Paint::Accepted, " accepted "),
        (Paint::Rejected, " rejected "),
        (Paint::Next, " the model's own "),
    ];
    parts.map(|(paint, words)| look.paint(paint, words)).join(" ")
}
