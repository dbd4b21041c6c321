//! The heat strip: each token with a colour and an underline by how unsure the model was, and its
//! alternatives on hover.

use std::fmt::Write as _;

use super::super::{heat, percent};
use super::{escaped, note, plain};
use crate::engine::trace::{Alternative, Token};

/// The most tokens of a row.
const MAX_TOKENS: usize = 2000;
pub(super) const LEGEND: &str = "<p class=\"rp-note\">unmarked: 90% and more · <span class=\"rp-h1\">60–90%</span> <span \
    class=\"rp-h2\">30–60%</span> <span class=\"rp-h3\">10–30%</span> <span class=\"rp-h4\">below 10%</span></p>";

pub(super) fn strip(tokens: &[Token], html: &mut String) {
    html.push_str("<p>");
    tokens.iter().take(MAX_TOKENS).for_each(|token| span(token, html));
    html.push_str("</p>");
    if tokens.len() > MAX_TOKENS {
        note(&format!("… {} more tokens", tokens.len() - MAX_TOKENS), html);
    }
}

fn span(token: &Token, html: &mut String) {
    if token.text.is_empty() {
        return;
    }
    let class = match token.logprob.map_or(0, |logprob| heat(logprob.exp())) {
        0 => String::new(),
        heat => format!(" class=\"rp-h{heat}\""),
    };
    let mut title = token.logprob.map(|logprob| plain(&percent(logprob.exp()))).unwrap_or_default();
    if let Some(rank) = token.rank {
        let _ = write!(title, ", rank {rank}");
    }
    for top in token.top.iter().take(8) {
        let _ = write!(title, "&#10;{} {}", escaped(&top.token.text), plain(&after(top)));
    }
    let _ = write!(html, "<span{class} title=\"{title}\">{}</span>", escaped(&token.text));
    html.push_str(if token.text.contains('\n') { "<br>" } else { "" });
}

/// `12% → 31%`, or `12% ✂ top_p`.
fn after(top: &Alternative) -> String {
    let before = percent(top.p_raw);
    match &top.cut_by {
        Some(cut_by) => format!("{before} ✂ {}", super::visible(cut_by)),
        None => format!("{before} → {}", percent(top.p_final)),
    }
}

/// A table of what could have been chosen instead of a token.
pub(super) fn explain(token: &Token, html: &mut String) {
    if token.top.is_empty() {
        return;
    }
    let place = token.pos.saturating_add(1);
    let _ = write!(
        html,
        "<table><tr><th>token {place}: “{}”</th><th>the model</th><th>after the processors</th></tr>",
        escaped(&token.text)
    );
    for top in token.top.iter().take(8) {
        let (class, mark) = match (&top.cut_by, top.token.id == token.id) {
            (Some(_), _) => (" class=\"rp-cut\"", ""),
            (None, true) => ("", "▸ "),
            (None, false) => ("", ""),
        };
        let last = match &top.cut_by {
            Some(cut_by) => format!("✂ cut by {}", escaped(cut_by)),
            None => bar(top.p_final),
        };
        let _ = write!(
            html,
            "<tr{class}><td>{mark}“{}”</td><td>{}</td><td>{last}</td></tr>",
            escaped(&top.token.text),
            bar(top.p_raw)
        );
    }
    html.push_str("</table>");
}

fn bar(probability: f32) -> String {
    let width = (100.0 * probability.clamp(0.0, 1.0)).round();
    format!("<i class=\"rp-bar\" style=\"width:{width}px\"></i> {}", plain(&percent(probability)))
}
