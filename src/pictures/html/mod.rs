//! Pictures as static HTML for notebooks: no script, nothing loaded, light and dark.

mod beams;
mod drafts;
mod probs;

use std::fmt::Write as _;

use super::layout::Part;
use super::{Pictures, View, visible};

/// The most rows, prompts and drafts of each kind that are drawn.
const MAX_PARTS: usize = 16;
/// The longest page, in bytes: pictures that would make it longer are left out.
const MAX_BYTES: usize = 2 << 20;

/// The style of a picture. The width of an underline shows the same as its colour.
const STYLE: &str = include_str!("style.css");

impl Pictures {
    /// The pictures of these views as an element of HTML.
    pub fn html(&self, views: &[View]) -> String {
        let mut html = format!("<div class=\"rsgen-picture\"><style>{STYLE}</style>");
        for view in views {
            let mut part = String::new();
            self.layout(*view, MAX_PARTS).iter().for_each(|one| draw(one, &mut part));
            if html.len() + part.len() > MAX_BYTES {
                html.push_str("<p class=\"rp-note\">More is left out: the picture would be too large.</p>");
                break;
            }
            html.push_str(&part);
        }
        html.push_str("</div>");
        html
    }
}

fn draw(part: &Part<'_>, html: &mut String) {
    match part {
        Part::Row(title) | Part::Group(title) => note(title, html),
        Part::Prompt(title, text) => note(&format!("{title}{}", escaped(text)), html),
        Part::Strip(_, tokens) => probs::strip(tokens, html),
        Part::Explained(token) => probs::explain(token, html),
        Part::Tree(tree, group) => beams::lines(tree, *group, html),
        Part::Rounds(drafts) => drafts::lines(drafts, html),
        Part::Summary(view, sentences) => {
            for sentence in sentences {
                note(&plain(sentence), html);
            }
            match view {
                View::Probs => html.push_str(probs::LEGEND),
                View::Drafts => html.push_str(drafts::LEGEND),
                View::Beams => {}
            }
        }
        Part::More(what) => note(&format!("… {what}"), html),
    }
}

/// A remark, which is escaped.
fn note(html: &str, to: &mut String) {
    let _ = write!(to, "<p class=\"rp-note\">{html}</p>");
}

/// Text of a model, for an element or an attribute.
fn escaped(text: &str) -> String {
    plain(&visible(text))
}

/// Text of rsgen, for an element or an attribute.
fn plain(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            _ => html.push(letter),
        }
    }
    html
}
