//! Pictures as lines of characters, for a terminal or a file.

mod beams;
mod drafts;
mod paint;
mod probs;

pub use paint::Look;

use super::{Pictures, View};

impl Pictures {
    /// A picture as text: lines with a line break each.
    pub fn text(&self, view: View, look: &Look) -> String {
        let lines = match view {
            View::Probs => probs::lines(self, look),
            View::Beams => beams::lines(self, look),
            View::Drafts => drafts::lines(self, look),
        };
        let lines = if lines.is_empty() { vec![missing(view).to_owned()] } else { lines };
        look.bounded(lines).into_iter().map(|line| line + "\n").collect()
    }
}

/// The text in place of an empty picture.
const fn missing(view: View) -> &'static str {
    match view {
        View::Probs => "no tokens to draw",
        View::Beams => "no beams to draw: they come from a beam search, such as --num-beams 3",
        View::Drafts => "no drafts to draw: they come from --assistant MODEL or --prompt-lookup-num-tokens N",
    }
}
