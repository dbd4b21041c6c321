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
        look.bounded(lines).into_iter().map(|line| line + "\n").collect()
    }
}
