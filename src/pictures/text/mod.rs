//! Pictures as lines of characters, for a terminal or a file.

mod beams;
mod drafts;
mod paint;
mod probs;

pub use paint::Look;

use paint::{Paint, cut};

use super::layout::Part;
use super::{Pictures, View};

impl Pictures {
    /// A picture as text: lines with a line break each.
    pub fn text(&self, view: View, look: &Look) -> String {
        let mut lines = Vec::new();
        for part in self.layout(view, usize::MAX) {
            draw(&part, look, &mut lines);
        }
        let lines = if lines.is_empty() { vec![missing(view).to_owned()] } else { lines };
        look.bounded(lines).into_iter().map(|line| line + "\n").collect()
    }
}

fn draw(part: &Part<'_>, look: &Look, lines: &mut Vec<String>) {
    // Rows and prompts stand apart.
    if matches!(part, Part::Row(_) | Part::Prompt(..)) && !lines.is_empty() {
        lines.push(String::new());
    }
    match part {
        Part::Row(title) | Part::Group(title) => lines.push(look.paint(Paint::Bold, title)),
        Part::Prompt(title, text) => lines.push(beams::prompt(title, text, look)),
        Part::Strip(prompt, tokens) => probs::strip(prompt, tokens, look, lines),
        Part::Explained(token) => probs::explain(token, look, lines),
        Part::Tree(tree, group) => beams::lines(tree, *group, look, lines),
        Part::Rounds(drafts) => drafts::lines(drafts, look, lines),
        Part::Summary(view, sentences) => {
            lines.push(String::new());
            match view {
                View::Probs => lines.push(look.paint(Paint::Dim, probs::legend(look))),
                View::Drafts => lines.push(drafts::legend(look)),
                View::Beams => {}
            }
            let paint = if *view == View::Beams { Paint::Dim } else { Paint::Plain };
            let sentences = sentences.iter().map(|sentence| cut(sentence, look.width));
            lines.extend(sentences.map(|sentence| look.paint(paint, sentence)));
        }
        Part::More(what) => lines.push(look.paint(Paint::Dim, what)),
    }
}

/// What stands in the place of a picture of nothing.
const fn missing(view: View) -> &'static str {
    match view {
        View::Probs => "no tokens to draw",
        View::Beams => "no beams to draw: they come from a beam search, such as --num-beams 3",
        View::Drafts => "no drafts to draw: they come from --assistant MODEL or --prompt-lookup-num-tokens N",
    }
}
